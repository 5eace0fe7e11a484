# SPDX-License-Identifier: MIT
"""The clang that preprocesses all sources, and compiles for GPUs that no vendor's compiler here knows: that of libclc's version."""
import os
import re
import shutil
import subprocess
from typing import NamedTuple, Optional

from .targets import Missing

CLC = "/usr/lib/clc"
AMDGCN = ["amdgcn--amdhsa.bc", "amdgcn-amd-amdhsa.bc"]      # libclc's names by version
OLDEST = 15


class Clang(NamedTuple):
    """`libclc`: its functions for AMD's GPUs, None if it is not here, or not for this clang. Other versions may refuse them (older ones) or
    make other code of the kernels."""
    program: str
    version: str
    libclc: Optional[str]


def major(program):
    found = re.search(r"clang version (\d+)", subprocess.run([program, "--version"], capture_output=True, text=True).stdout)
    return int(found.group(1)) if found else 0


def find():
    """Raises Missing."""
    bitcode = next((path for path in (f"{CLC}/{name}" for name in AMDGCN) if os.path.exists(path)), None)
    wanted = None
    if bitcode:
        with open(bitcode, "rb") as f:
            found = re.search(rb"clang version (\d+)", f.read())
        wanted = int(found.group(1)) if found else None
    names = ([f"clang-{wanted}"] if wanted else []) + ["clang", *(f"clang-{version}" for version in range(25, OLDEST - 1, -1))]
    there = [program for program in map(shutil.which, names) if program]
    program = next((p for p in there if major(p) == wanted), None) or next((p for p in there if major(p) >= OLDEST), None)
    if not program:
        raise Missing(f"clang of version {OLDEST} or later")
    with_libclc = bitcode if wanted and major(program) == wanted else None
    return Clang(program, subprocess.run([program, "--version"], capture_output=True, text=True).stdout, with_libclc)
