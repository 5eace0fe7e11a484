#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The documentation fits the code: check_docs.py reference CONVOY | links   (from anywhere; meson runs both)

reference: doc/reference.md and doc/convoy.1 are what the program's tables of verbs and options give; groff, where it is, lays the man page
           out without a warning, examples to the right of the text around them.
links:     every row of a table stands below a head with as many cells; links between the pages lead somewhere; files that they name are there, and a function that is named with its file is in it; each
           `grep` finds one line; README.md is short, CHANGELOG.md begins with the version of meson.build; SECURITY.md lists the fuzz targets, doc/d2l.md
           the public headers.
"""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
README_LINES = 120
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"] + [
    folder + n for folder in ("doc/", "doc/developers/") for n in sorted(os.listdir(os.path.join(ROOT, folder))) if n.endswith(".md")]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def check_reference(program):
    faults, renew = [], f"{os.path.relpath(program, ROOT)} help"
    for option, path in (("--markdown", "doc/reference.md"), ("--man", "doc/convoy.1")):
        made = subprocess.run([program, "help", option], capture_output=True, text=True, check=True).stdout
        if made != read(path):
            faults.append(f"{path}: is not what the option tables give")
    faults += check_man_page("doc/convoy.1")
    if faults:
        faults.append(f"renew them: {renew} --markdown >doc/reference.md; {renew} --man >doc/convoy.1")
    return faults


def unescaped(text):
    """Cells of a row of a table: | divides, \\| does not."""
    return re.split(r"(?<!\\)\|", text.strip().strip("|"))


def check_tables(page, text):
    """GitHub's rule: a table is a head, a line of dashes with as many cells, and rows; lines with bars elsewhere are shown as they are."""
    faults, fenced, cells, lines = [], False, 0, text.split("\n") + [""]
    for number, line in enumerate(lines[:-1], 1):
        fenced ^= line.startswith("```")
        if fenced or not line.startswith("|"):
            cells = 0
        elif cells == 0:
            cells = len(unescaped(line))
            dashes = unescaped(lines[number])
            if not all(re.fullmatch(r"\s*:?-+:?\s*", cell) for cell in dashes) or len(dashes) != cells:
                faults.append(f"{page}:{number}: a row without a table's head above it: {line[:60]}")
        elif len(unescaped(line)) != cells:
            faults.append(f"{page}:{number}: {len(unescaped(line))} cells below a head of {cells}: {line[:60]}")
    return faults


def check_man_page(path):
    """Examples (.nf) are indented by more than the text of their section."""
    if not shutil.which("groff"):
        return []
    done = subprocess.run(["groff", "-man", "-Tascii", "-P-cbou", "-ww", path], cwd=ROOT, capture_output=True, text=True, errors="replace")
    faults = [f"{path}: {line}" for line in done.stderr.splitlines()]
    laid_out = [line for line in done.stdout.split("\n") if line.strip()]
    indent = lambda text: len(text) - len(text.lstrip())
    texts = min(indent(line) for line in laid_out if re.match(r" {4,}\S", line))
    for example in re.findall(r"^\.nf\n\.in .*\n(.*)$", read(path), re.M):
        shown = example.replace("\\-", "-").replace("\\e", "\\")
        found = [line for line in laid_out if line.strip() == shown.strip()]
        if not found or indent(found[0]) <= texts:
            faults.append(f"{path}: the example is not to the right of the text: {shown}")
    return faults


def anchors(path):
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", read(path), re.M)}


def check_fuzz_targets():
    """Those of tests/fuzz are built, and are the rows of SECURITY.md's table."""
    files = {name[:-2] for name in os.listdir(os.path.join(ROOT, "tests/fuzz")) if re.fullmatch(r"fuzz_\w+\.c", name)}
    built = {"fuzz_" + name for name in re.findall(r"'(\w+)'", re.search(r"foreach name : \[(.*?)\]", read("tests/fuzz/meson.build"), re.S).group(1))}
    listed = re.findall(r"^\| `(fuzz_\w+)` \|", read("SECURITY.md"), re.M)
    faults = [f"SECURITY.md: lists {name} twice" for name in set(listed) if listed.count(name) > 1]
    faults += [f"SECURITY.md: its table of fuzz targets lacks {name}, which is in tests/fuzz" for name in sorted(files - set(listed))]
    faults += [f"SECURITY.md: its table of fuzz targets has {name}, which is not in tests/fuzz" for name in sorted(set(listed) - files)]
    return faults + [f"tests/fuzz/meson.build: {name} is not built, or has no file" for name in sorted(files ^ built)]


def check_headers():
    """The page of the library names each public header."""
    page, folder = read("doc/d2l.md"), os.path.join(ROOT, "include/convoy")
    return [f"doc/d2l.md: does not name convoy/{name}" for name in sorted(os.listdir(folder)) if name.endswith(".h") and f"`convoy/{name}`" not in page]


def check_links():
    faults = check_fuzz_targets() + check_headers()
    for page in PAGES:
        text = read(page)
        faults += check_tables(page, text)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if link.startswith("http"):
                continue
            if not os.path.exists(os.path.join(ROOT, target)):
                faults.append(f"{page}: links to {link}, which is not there")
            elif anchor and anchor not in anchors(target):
                faults.append(f"{page}: links to {link}: {target} has no such heading")
        for path in re.findall(r"`((?:src|tests|tools|cl|doc|include)/[\w./-]+)`", text):
            if "foo" not in path and not os.path.exists(os.path.join(ROOT, path)):
                faults.append(f"{page}: names {path}, which is not there")
        # "`src/protocol/gradient_sum.c` | `sum_parts`" in a table, "src/protocol/ledger.c: cvy_ledger_update → sum_parts" in a drawing
        for path, names in re.findall(r"`(src/[\w/]+\.c)` \| (`\w+`)", text) + re.findall(r"(src/[\w/]+\.c): (\w+(?: → \w+)*)", text):
            faults += [f"{page}: {path} has no function {name}" for name in re.findall(r"\w+", names)
                       if not os.path.exists(os.path.join(ROOT, path)) or not re.search(rf"^[\w \*]*\b{name}\(", read(path), re.M)]
        for command in re.findall(r"grep -n '[^']+' src/\S+?\.c", text):
            if len(subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()) != 1:
                faults.append(f"{page}: {command}: does not find one line")
    if read("README.md").count("\n") > README_LINES:
        faults.append(f"README.md: more than {README_LINES} lines: the long parts belong to doc/")
    version = re.search(r"version: '([^']+)'", read("meson.build")).group(1)
    if f"\n## [{version}]" not in read("CHANGELOG.md"):
        faults.append(f"CHANGELOG.md: has no section of {version}, the version of meson.build")
    return faults


def main():
    if sys.argv[1:] == ["links"]:
        faults = check_links()
    elif len(sys.argv) == 3 and sys.argv[1] == "reference":
        faults = check_reference(sys.argv[2])
    else:
        sys.exit("usage: check_docs.py reference CONVOY | links")
    print("\n".join(faults) or f"{sys.argv[1]}: no faults")
    return 1 if faults else 0


sys.exit(main())
