#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fetches wheels of PyPI by the hashes in tools/fetch/wheels.txt: wheels.py GROUP download|install FOLDER

The one place in the tree that calls pip (the test `wheels` looks). Exit status: pip's; 2: wrong use."""
import os
import re
import subprocess
import sys
import tempfile

LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wheels.txt")
LINE = re.compile(r"([\w.-]+)==([\w.]+)((?: --hash=sha256:[0-9a-f]{64})+)")


def read_list(path=LIST):
    """{group: {name: (version, line)}}; ValueError: a line is neither a comment nor a wheel with its version and hashes."""
    groups, wheels = {}, None
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f.read().splitlines(), 1):
            head = re.match(r"# group: ([\w-]+)", line)
            wheel = LINE.fullmatch(line)
            if head:
                wheels = groups.setdefault(head.group(1), {})
            elif wheel and wheels is not None and wheel.group(1) not in wheels:
                wheels[wheel.group(1)] = (wheel.group(2), line)
            elif line.strip() and not line.startswith("#"):
                raise ValueError(f"{path}:{number}: expected NAME==VERSION --hash=sha256:HEX in a group, each name once: {line}")
    return groups


def fetch(group, verb, folder, path=LIST):
    """pip's process, which has ended: verb is download (the wheels come into the folder) or install (what is in them does)."""
    lines = [line for _, line in read_list(path)[group].values()]
    where = ["--dest", folder] if verb == "download" else ["--target", folder]
    with tempfile.TemporaryDirectory() as work:
        asked = os.path.join(work, "wheels.txt")
        with open(asked, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")
        return subprocess.run([sys.executable, "-m", "pip", verb, "-q", "--disable-pip-version-check", "--retries", "2", "--no-deps",
                               "--only-binary", ":all:", "--require-hashes", *where, "-r", asked], capture_output=True, text=True, check=False)


def reasons(done):
    """The first and the last lines of what pip complained about."""
    lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
    return list(dict.fromkeys([lines[0], *lines[-2:]]))


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in read_list() or sys.argv[2] not in ("download", "install"):
        print(__doc__, file=sys.stderr)
        return 2
    done = fetch(*sys.argv[1:])
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
