#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the folders of the source and which includes which: tools/generate/house_svg.py [--check] doc/house.svg

A box for each folder that has a rule of its own (the line "# May include: …" of its meson.build), with the sentence above that line. A
folder stands one row below the lowest folder whose files include it; an arrow leads from a folder to each that it includes, but for
those that it also reaches through another, and for src/base, which all include. --check: exit status 1 if the file is not what would be drawn."""
import html
import os
import re
import sys
import textwrap

from folder_rules import ROOT, Rule

BOX_W, BOX_H, GAP_X, GAP_Y, MARGIN = 204, 84, 24, 34, 12
LINE_H, LETTERS, MOST_LINES = 13, 31, 4
INCLUDE = re.compile(r'^\s*#\s*include\s*"((?:src|tools|convoy)/[^"]+)"', re.M)
BASE = "src/base"
NO_BOX = ("src/ref",)           # the tests' truth; the library does not use it
STYLE = """<style>
svg{background:#fff}rect{fill:#f6f8fa;stroke:#57606a}rect.pure{fill:#e7f5e9}path{fill:none;stroke:#8c959f}text{font:11px sans-serif;fill:#1f2328}
text.name{font:bold 13px monospace}marker path{fill:#8c959f;stroke:none}
@media (prefers-color-scheme:dark){svg{background:#0d1117}rect{fill:#161b22;stroke:#8b949e}rect.pure{fill:#12261a}path{stroke:#6e7681}text{fill:#e6edf3}marker path{fill:#6e7681}}
</style>"""


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def folders():
    """{folder: its rule} of those with a box, and {header of include/convoy: folder}."""
    found = {}
    for top in ("src", "tools/program"):
        for at, below, _ in os.walk(os.path.join(ROOT, top)):
            below[:] = below if top == "src" else []
            rule = Rule(os.path.relpath(at, ROOT))
            if rule.is_set and rule.layer not in NO_BOX:
                found[rule.layer] = rule
    return found, {f"convoy/{name}.h": rule.layer for rule in found.values() for name in rule.public}


def included(found, public):
    """{folder: the folders that its files include}"""
    owner = lambda path: next((folder for folder in sorted(found, key=len, reverse=True) if path.startswith(folder + "/")), None)
    uses = {folder: set() for folder in found}
    for folder in found:
        for at, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in names:
                if name.endswith((".c", ".h")):
                    for target in INCLUDE.findall(read(os.path.relpath(os.path.join(at, name), ROOT))):
                        other = public.get(target) if target.startswith("convoy/") else owner(target)
                        if other and other != folder:
                            uses[folder].add(other)
    return uses


def floors(uses):
    """{folder: its row, 0 the highest}; the includes have no circle (the test `layers`)."""
    place = {}

    def look(folder):
        if folder not in place:
            place[folder] = 1 + max((look(other) for other in uses if folder in uses[other]), default=-1)
        return place[folder]

    for folder in uses:
        look(folder)
    return place


def reached(uses, folder):
    through = set()
    for other in uses[folder]:
        through |= {other} | reached(uses, other)
    return through


def draw():
    found, public = folders()
    uses = included(found, public)
    place = floors(uses)
    rows, corner = {}, {}
    for folder in sorted(found):
        rows.setdefault(place[folder], []).append(folder)
    most = max(map(len, rows.values()))
    width, height = 2 * MARGIN + most * (BOX_W + GAP_X) - GAP_X, 2 * MARGIN + len(rows) * (BOX_H + GAP_Y) - GAP_Y + 32
    for row, names in rows.items():
        free = (most - len(names)) * (BOX_W + GAP_X) / 2
        for i, folder in enumerate(names):
            corner[folder] = (MARGIN + free + i * (BOX_W + GAP_X), MARGIN + row * (BOX_H + GAP_Y))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
           "<title>The folders of the source, and which includes which</title>", STYLE,
           '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>']
    for folder in sorted(found):
        near = [other for other in uses[folder] if not any(other in reached(uses, third) for third in uses[folder] if third != other)]
        for other in sorted(set(near) - {BASE}):
            x, y = corner[folder][0] + BOX_W / 2, corner[folder][1] + BOX_H
            to_x, to_y = corner[other][0] + BOX_W / 2, corner[other][1]
            out.append(f'<path d="M{x:g} {y:g}C{x:g} {y + GAP_Y:g} {to_x:g} {to_y - GAP_Y:g} {to_x:g} {to_y - 2:g}" marker-end="url(#a)"/>')
    for folder, (x, y) in corner.items():
        pure = "OpenCL" in found[folder].without
        out.append(f'<rect x="{x:g}" y="{y:g}" width="{BOX_W}" height="{BOX_H}" rx="5"{" class=" + chr(34) + "pure" + chr(34) if pure else ""}/>')
        out.append(f'<text class="name" x="{x + 8:g}" y="{y + 18:g}">{folder}</text>')
        lines = textwrap.wrap(found[folder].sentence.replace("`", ""), LETTERS)
        lines = lines if len(lines) <= MOST_LINES else lines[:MOST_LINES - 1] + [lines[MOST_LINES - 1] + " …"]
        out += [f'<text x="{x + 8:g}" y="{y + 34 + i * LINE_H:g}">{html.escape(line)}</text>' for i, line in enumerate(lines)]
    for y, line in ((height - 20, "An arrow: the folder includes headers of the other one; all include src/base."),
                    (height - 6, "Green: no OpenCL header behind any include.")):
        out.append(f'<text x="{MARGIN}" y="{y}">{line}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    check, paths = sys.argv[1:2] == ["--check"], sys.argv[2:] if sys.argv[1:2] == ["--check"] else sys.argv[1:]
    if len(paths) != 1:
        sys.exit("usage: house_svg.py [--check] FILE.svg")
    made = draw()
    if check:
        with open(paths[0], encoding="utf-8") as f:
            if f.read() != made:
                print(f"{paths[0]}: is not what the folders give; renew it: tools/generate/house_svg.py doc/house.svg")
                return 1
        return 0
    with open(paths[0], "w", encoding="utf-8") as f:
        f.write(made)
    return 0


sys.exit(main())
