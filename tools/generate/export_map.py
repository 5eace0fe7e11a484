#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Linker version script that exports the functions declared in the public headers: export_map.py OUT HEADER…"""
import re
import sys


def prototypes(path):
    """{function: its declaration without the semicolon} of a public header."""
    with open(path, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    found = re.findall(r"([\w\s*]*?)\b(cvy_\w+)(\s*\([^()]*(?:\([^()]*\)[^()]*)*\))\s*;", text)
    return {name: " ".join(f"{kind}{name}{arguments}".split()) for kind, name, arguments in found if not name.endswith("_fn")}


def main():
    names = {name for path in sys.argv[2:] for name in prototypes(path)}
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write("{\n  global:\n" + "".join(f"    {n};\n" for n in sorted(names)) + "  local: *;\n};\n")


if __name__ == "__main__":
    main()
