#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Linker version script that exports the functions declared in the public headers: export_map.py OUT HEADER…"""
import re
import sys

names = set()
for path in sys.argv[2:]:
    text = re.sub(r"/\*.*?\*/", "", open(path, encoding="utf-8").read(), flags=re.S)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    names.update(re.findall(r"\b(cvy_\w+)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*;", text))
names = {n for n in names if not n.endswith("_fn")}
with open(sys.argv[1], "w", encoding="utf-8") as out:
    out.write("{\n  global:\n" + "".join(f"    {n};\n" for n in sorted(names)) + "  local: *;\n};\n")
