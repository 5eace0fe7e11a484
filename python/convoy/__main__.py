# SPDX-License-Identifier: MIT
"""`python -m convoy …`: the program `convoy` with these arguments."""
import os
import shutil
import sys

from .built import PROGRAM


def main() -> int:
    program = PROGRAM if os.access(PROGRAM, os.X_OK) else shutil.which("convoy")
    if not program:
        print(f"python -m convoy: the program is neither {PROGRAM} nor in PATH: build it with tools/quickstart --setup-only, or install it", file=sys.stderr)
        return 127
    os.execv(program, [program, *sys.argv[1:]])


sys.exit(main())
