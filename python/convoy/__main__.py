# SPDX-License-Identifier: MIT
"""`python -m convoy …`: the program `convoy` with these arguments."""
import os
import sys

from . import program


def main() -> int:
    path = program.find()
    if not path:
        print(f"python -m convoy: {program.missing()}", file=sys.stderr)
        return 127
    os.execv(path, [path, *sys.argv[1:]])


sys.exit(main())
