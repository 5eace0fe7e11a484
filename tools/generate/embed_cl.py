#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes all kernel files as one C file: embed_cl.py OUT.c CL_FOLDER FILE.cl…

Each file becomes an array of bytes (compilers cut long string literals) and a row of cvy_embedded_cl[], sorted by name, without ".cl".
A line `#include "folder/x.clh"`, a path from CL_FOLDER, is replaced by that file, once per kernel file (x_tmpl.clh, a template, each time), between
#line marks, which have the file's name without its folder.
src/cl/compile/source.c does the same at run time for CVY_CL_DIR; test_launch compares the two."""
import os
import re
import sys

INCLUDE = re.compile(r'^#include "([^"]+)"$')


def expand(folder, name, seen):
    seen.add(name)
    shown = os.path.basename(name)
    lines = [f'#line 1 "{shown}"']
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        for number, line in enumerate(f.read().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                lines.append(line)
            elif match.group(1) not in seen or match.group(1).endswith("_tmpl.clh"):
                lines += expand(folder, match.group(1), seen)
                lines.append(f'#line {number + 1} "{shown}"')
            else:
                lines.append("")
    return lines


def main():
    folder = sys.argv[2]
    files = sorted(sys.argv[3:], key=os.path.basename)
    out = ['/* Made by tools/generate/embed_cl.py. */', '#include "src/cl/compile/source.h"', ""]
    rows = []
    for i, path in enumerate(files):
        name = os.path.relpath(path, folder)
        data = ("\n".join(expand(folder, name, set())) + "\n").encode()
        out.append(f"static const unsigned char source_{i}[] = {{")
        out += ["".join(f"{b}," for b in data[at:at + 64]) for at in range(0, len(data), 64)]
        out.append("};")
        within = os.path.dirname(name)
        rows.append(f'  {{"{os.path.basename(path)[:-len(".cl")]}", "{within + "/" if within else ""}", source_{i}, sizeof source_{i}}},')
    out += ["const cvy_embedded_source cvy_embedded_cl[] = {"] + rows + ["  {0, 0, 0, 0}", "};"]
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


main()
