# SPDX-License-Identifier: MIT
"""The GPUs that kernels are compiled for, and what a compute unit of each holds."""
from typing import NamedTuple, Optional


class Missing(Exception):
    """A compiler that cannot be had on this machine; its text names what is not here."""


class Fault(Exception):
    """A kernel that does not compile; its text is the compiler's."""


class Unit(NamedTuple):
    """What a compute unit (AMD) or streaming multiprocessor (NVIDIA) has. `parts`: SIMD units or partitions, each with `registers` 32-bit
    registers per lane of a wave of `wave` items, handed out in steps of `step`, and room for `waves` waves; `groups` work-groups; `local`
    bytes of local memory, of which each group takes `reserved` more than it asks for, in steps of `local_step`."""
    parts: int
    wave: int
    registers: int
    step: int
    waves: int
    groups: int
    local: int
    local_step: int
    reserved: int = 0


class Target(NamedTuple):
    """`maker` names the module that compiles for it; `local_most`: bytes of local memory that one group can have; `unit`: None where no rule
    asks how many groups a unit holds; `simd_least`: items of a sub-group in a hot kernel; `defines` and `flags`: what the host passes there
    beside the variant's own defines, and what the driver makes of it for its assembler (src/cl/compile/program.c)."""
    name: str
    maker: str
    local_most: int
    unit: Optional[Unit] = None
    simd_least: int = 0
    defines: tuple = ()
    flags: tuple = ()


# AMD: "RDNA 2", "RDNA 3", "Vega 7nm" and "AMD Instinct MI200" instruction set guides, sections on wave state and LDS; allocation steps as in
# LLVM's AMDGPUBaseInfo.cpp (getTotalNumVGPRs, getVGPRAllocGranule, getMaxWavesPerEU). gfx10 and later are taken in CU mode; gfx90a's registers
# are the unified file. NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; registers are handed out to warps
# in steps of 256, that is 8 per lane.
REGISTERS_128 = {"defines": ("CVY_REGISTER_LIMIT=128",), "flags": ("-maxrregcount=128",)}
TARGETS = {t.name: t for t in (
    Target("skl", "intel", 65536, simd_least=8, defines=("CVY_SUB_GROUP=8",)),
    Target("tgllp", "intel", 65536, simd_least=8, defines=("CVY_SUB_GROUP=8",)),
    Target("acm-g10", "intel", 65536, simd_least=8, defines=("CVY_SUB_GROUP=8",)),
    Target("pvc", "intel", 131072, simd_least=16, defines=("CVY_SUB_GROUP=16",)),
    Target("gfx906", "comgr", 65536, Unit(parts=4, wave=64, registers=256, step=4, waves=10, groups=16, local=65536, local_step=512)),
    Target("gfx1030", "comgr", 65536, Unit(parts=2, wave=32, registers=1024, step=8, waves=16, groups=16, local=65536, local_step=512)),
    Target("gfx90a", "comgr", 65536, Unit(parts=4, wave=64, registers=512, step=8, waves=8, groups=16, local=65536, local_step=512)),
    Target("gfx1100", "clang", 65536, Unit(parts=2, wave=32, registers=1536, step=24, waves=16, groups=16, local=65536, local_step=512)),
    Target("sm_75", "nvidia", 49152, **REGISTERS_128,
           unit=Unit(parts=4, wave=32, registers=512, step=8, waves=8, groups=16, local=65536, local_step=256)),
    Target("sm_80", "nvidia", 49152, **REGISTERS_128,
           unit=Unit(parts=4, wave=32, registers=512, step=8, waves=16, groups=32, local=167936, local_step=128, reserved=1024)),
    Target("sm_90", "nvidia", 49152, **REGISTERS_128,
           unit=Unit(parts=4, wave=32, registers=512, step=8, waves=16, groups=32, local=233472, local_step=128, reserved=1024)),
    Target("x86-64", "host", 1 << 31),
)}
HOST = "x86-64"
GPUS = [name for name in TARGETS if name != HOST]


def occupancy(target, registers, local, items):
    """Work-items of work-groups of `items` that a unit of the target holds at once; None where that is not counted."""
    unit = TARGETS[target].unit
    if not unit:
        return None
    up = lambda n, step: -(-n // step) * step
    waves = up(items, unit.wave) // unit.wave
    per_part = min(unit.waves, unit.registers // up(max(registers, 1), unit.step))
    groups = min(unit.groups, per_part * unit.parts // waves)
    if local + unit.reserved > 0:
        groups = min(groups, unit.local // up(local + unit.reserved, unit.local_step))
    return groups * items
