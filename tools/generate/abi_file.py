#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Describes the ABI of the library for libabigail: tools/generate/abi_file.py [--check] LIBCONVOY.so

Writes tests/data/convoy.abi, or with --check compares: exit status 1 if a function has gone, come or changed, or a type that a caller can see.
LIBCONVOY.so is the built library, which gives the functions. Its build has no debug information, so the types come from a library of the same
functions, without content, that is made here from include/convoy, whose declarations the compiler has compared with the real functions (-Werror,
-Wmissing-prototypes). Exit 77 without abidw (Debian: abigail-tools) or on another processor than x86-64, after the look at the functions."""
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

from export_map import prototypes

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADERS = os.path.join(ROOT, "include", "convoy")
ABI = os.path.join(ROOT, "tests", "data", "convoy.abi")
STABLE = ["--no-show-locs", "--no-comp-dir-path", "--no-corpus-path", "--drop-private-types", "--type-id-style", "hash"]   # abidw: no paths
CHANGED, BROKEN = 4, 8   # exit status of abidiff, bits


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def declared():
    """{function: its declaration}"""
    return {name: text for header in sorted(os.listdir(HEADERS)) if header.endswith(".h") for name, text in prototypes(os.path.join(HEADERS, header)).items()}


def exported(library):
    """The functions that a library shows, by its table of symbols."""
    done = run("nm", "-D", "--defined-only", library)
    if done.returncode:
        sys.exit(f"nm {library}: {done.stderr}")
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines() if line.split()[-2] in "TW"}


def hollow_library(folder):
    """A library with the declared functions and all debug information."""
    source, out = os.path.join(folder, "hollow.c"), os.path.join(folder, "libconvoy.so")
    with open(source, "w", encoding="utf-8") as f:
        f.write('#include "convoy/convoy.h"\n' + "".join(f"{text} {{ __builtin_trap(); }}\n" for _, text in sorted(declared().items())))
    done = run(os.environ.get("CC", "cc"), "-std=gnu11", "-g", "-O0", "-w", "-fPIC", "-shared", "-Wl,-soname," + soname(), "-I" + os.path.join(ROOT, "include"), source, "-o", out)
    if done.returncode:
        sys.exit(f"the library of the public declarations does not compile:\n{done.stderr}")
    return out


def soname():
    with open(os.path.join(HEADERS, "convoy.h"), encoding="utf-8") as f:
        return "libconvoy.so." + re.search(r"CVY_API_VERSION_MAJOR (\d+)", f.read()).group(1)


def described(folder):
    """The ABI in libabigail's words."""
    done = run("abidw", *STABLE, "--headers-dir", HEADERS, hollow_library(folder))
    if done.returncode:
        sys.exit(f"abidw: {done.stderr}")
    return re.sub(r" path='[^']*'", "", done.stdout)


def check_functions(library):
    """Those of the library are those of the description and of the headers."""
    with open(ABI, encoding="utf-8") as f:
        known = set(re.findall(r"<elf-symbol name='(\w+)' [^>]*type='func-type'", f.read()))
    shown, faults = exported(library), []
    faults += [f"{name}: has gone from {os.path.basename(library)}" for name in sorted(known - shown)]
    faults += [f"{name}: {os.path.basename(library)} has it, tests/data/convoy.abi lacks it" for name in sorted(shown - known)]
    done = run("readelf", "-d", library)
    real = re.search(r"soname: \[(.*?)\]", done.stdout)
    if not real or real.group(1) != soname():
        faults.append(f"{library}: its soname is {real.group(1) if real else 'missing'}, expected {soname()}")
    return faults


def check_types(folder):
    now = os.path.join(folder, "now.abi")
    with open(now, "w", encoding="utf-8") as f:
        f.write(described(folder))
    done = run("abidiff", "--harmless", ABI, now)
    if done.returncode & ~(CHANGED | BROKEN):
        sys.exit(f"abidiff: exit {done.returncode}: {done.stderr}{done.stdout}")
    return [done.stdout] if done.returncode else []


def main():
    check = sys.argv[1:2] == ["--check"]
    if len(sys.argv) != 2 + check:
        sys.exit("usage: abi_file.py [--check] LIBCONVOY.so")
    library = os.path.abspath(sys.argv[-1])
    lacks = "x86-64, whose ABI the file has" if platform.machine() != "x86_64" else "" if shutil.which("abidw") and shutil.which("abidiff") else "abidw (Debian: abigail-tools)"
    with tempfile.TemporaryDirectory() as folder:
        if not check:
            if lacks:
                sys.exit(f"abi_file.py: this needs {lacks}")
            with open(ABI, "w", encoding="utf-8") as f:
                f.write(described(folder))
        faults = check_functions(library)
        if check and not lacks:
            faults += check_types(folder)
    if faults:
        print("\n".join(faults))
        print("An intended change: write tests/data/convoy.abi anew with tools/generate/abi_file.py " + os.path.relpath(library, ROOT) + "\n"
              "Functions that have gone and types that have changed need another major number (meson.build, include/convoy/convoy.h), functions that are new another minor one.")
        return 1
    if lacks:
        print(f"the types were not compared: this needs {lacks}")
        return 77
    print("abi: no faults")
    return 0


if __name__ == "__main__":
    sys.exit(main())
