#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes all kernel files as one C file: embed_cl.py OUT.c FILE.cl…

Each file becomes an array of bytes (compilers cut long string literals) and a row of cvy_embedded_cl[], sorted by name, without ".cl".
A line `#include "x.clh"` is replaced by that file of the same folder, once per kernel file (x_tmpl.clh, a template, each time), between #line marks.
src/cl/source.c does the same at run time for CVY_CL_DIR; test_launch compares the two."""
import os
import re
import sys

INCLUDE = re.compile(r'^#include "([^"/]+)"$')


def expand(folder, name, seen):
    seen.add(name)
    lines = [f'#line 1 "{name}"']
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        for number, line in enumerate(f.read().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                lines.append(line)
            elif match.group(1) not in seen or match.group(1).endswith("_tmpl.clh"):
                lines += expand(folder, match.group(1), seen)
                lines.append(f'#line {number + 1} "{name}"')
            else:
                lines.append("")
    return lines


def main():
    files = sorted(sys.argv[2:], key=os.path.basename)
    out = ['/* Made by tools/embed_cl.py. */', '#include "src/cl/source.h"', ""]
    rows = []
    for i, path in enumerate(files):
        data = ("\n".join(expand(os.path.dirname(path), os.path.basename(path), set())) + "\n").encode()
        out.append(f"static const unsigned char source_{i}[] = {{")
        out += ["".join(f"{b}," for b in data[at:at + 64]) for at in range(0, len(data), 64)]
        out.append("};")
        rows.append(f'  {{"{os.path.basename(path)[:-len(".cl")]}", source_{i}, sizeof source_{i}}},')
    out += ["const cvy_embedded_source cvy_embedded_cl[] = {"] + rows + ["  {0, 0, 0}", "};"]
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


main()
