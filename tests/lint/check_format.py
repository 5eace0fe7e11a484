#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The layout of C sources: check_format.py

clang-format of one version, from PyPI, leaves every C file as it is (.clang-format, .clang-format-ignore); no line of a source is longer
than 120 characters, in OpenCL C than 160. Exit 77 without that clang-format, after the look at the lines."""
import fnmatch
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "fetch"))
import wheels  # noqa: E402

VERSION = wheels.read_list()["clang-format"]["clang-format"][0]
LENGTHS = {".c": 120, ".h": 120, ".cl": 160, ".clh": 160}
FOLDERS = ("src", "include", "tools", "tests", "cl")


def files():
    for folder in FOLDERS:
        for at, folders, names in os.walk(os.path.join(ROOT, folder)):
            folders[:] = sorted(f for f in folders if f != "__pycache__" and os.path.join(at, f) != os.path.join(ROOT, "tests", "data"))
            for name in sorted(names):
                if os.path.splitext(name)[1] in LENGTHS:
                    yield os.path.relpath(os.path.join(at, name), ROOT)


def formatter():
    own = os.path.join(ROOT, "build", "clang-format", "bin", "clang-format")
    for program in (os.environ.get("CLANG_FORMAT"), own, shutil.which("clang-format")):
        if program and os.path.exists(program):
            said = subprocess.run([program, "--version"], capture_output=True, text=True,
                                  env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "build", "clang-format")})
            if VERSION in said.stdout:
                return program
    return None


def main():
    faults = 0
    with open(os.path.join(ROOT, ".clang-format-ignore"), encoding="utf-8") as f:
        ignored = [line.strip() for line in f if line.strip() and not line.startswith("#")]
    formatted = []
    for path in files():
        kind = os.path.splitext(path)[1]
        if any(fnmatch.fnmatch(path, pattern) for pattern in ignored if pattern != "cl/**"):
            continue
        if kind in (".c", ".h"):
            formatted.append(path)
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                if len(line.rstrip("\n")) > LENGTHS[kind]:
                    print(f"{path}:{number}: {len(line) - 1} characters, {LENGTHS[kind]} at most")
                    faults += 1
    program = formatter()
    if not program:
        print(f"no clang-format {VERSION}: pip install clang-format=={VERSION}")
        return 1 if faults else 77
    done = subprocess.run([program, "--dry-run", "--Werror", *formatted], capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "build", "clang-format")})
    places = [line for line in done.stderr.splitlines() if "error:" in line]
    for place in places[:20]:
        print(place)
    faults += len(places) if places else done.returncode
    print(f"format: {len(formatted)} files, {faults} faults")
    return 1 if faults else 0


sys.exit(main())
