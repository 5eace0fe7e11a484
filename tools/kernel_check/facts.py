# SPDX-License-Identifier: MIT
"""What is known of a compiled kernel, as it is kept."""


def kernel_facts(name, registers=None, spills=None, private=None, inner=None, local=None, size=256, simd=None, loop=None):
    """None: unknown. `spills`: registers or bytes that do not stay in registers; `private`: bytes of memory that an item has for itself;
    `inner`: accesses to that memory in the innermost loop with the most multiply-adds (in all, where none has any); `local`: bytes of a group; `size`: items of a group; `simd`: items that go
    together; `loop`: (multiply-adds, loads from local memory) of the innermost loop with the most multiply-adds."""
    return {"kernel": name, "registers": registers, "spills": spills, "private": private, "inner": inner, "local": local, "size": size, "simd": simd,
            "loop": loop}
