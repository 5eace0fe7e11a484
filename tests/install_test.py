#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Installs into an empty folder, then compiles and runs the README's example there as a stranger would: headers, library, pkg-config.
usage: install_test.py BUILD_DIR EXAMPLE.c [ARGUMENT of the example]…"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile


def run(command, env=None):
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"exit {done.returncode}: {' '.join(command)}\n{done.stdout}")
    return done.stdout


def main():
    build, example, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
    folder = tempfile.mkdtemp(prefix="convoy-install-")
    try:
        run(["meson", "install", "-C", build, "--no-rebuild", "--destdir", folder])
        packages = glob.glob(folder + "/**/pkgconfig/convoy.pc", recursive=True)
        if len(packages) != 1:
            sys.exit(f"expected one convoy.pc under {folder}, found {packages}")
        env = dict(os.environ, PKG_CONFIG_PATH=os.path.dirname(packages[0]), PKG_CONFIG_SYSROOT_DIR=folder)
        flags = run(["pkg-config", "--cflags", "--libs", "convoy"], env).split()
        program = folder + "/example"
        run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-D_POSIX_C_SOURCE=200809L", example, *flags, "-lm", "-o", program], env)
        library = os.path.dirname(glob.glob(folder + "/**/libconvoy.so", recursive=True)[0])
        env["LD_LIBRARY_PATH"] = library + ":" + env.get("LD_LIBRARY_PATH", "")
        output = run([program, *arguments], env)
        print(output)
        for pattern in (r"device 1 \(.*\), 2 of 4 samples:", r"largest \|logit\| \S+: a fresh network", r"0\.weight on device 1: the same bits",
                        r"not initialised on device 2", r"test acc: \d\.\d\d, \d+\.\d sec/epoch on \[0:0"):
            if not re.search(pattern, output):
                sys.exit(f"the example's output has no line like: {pattern}")
        shown = run([folder + glob.glob(folder + "/**/bin/convoy", recursive=True)[0][len(folder):], "--version"], env)
        if not re.match(r"convoy \d+\.\d+\.\d+", shown):
            sys.exit(f"convoy --version printed {shown!r}")
        exported = run(["nm", "-D", "--defined-only", os.path.realpath(library + "/libconvoy.so")])
        foreign = [line for line in exported.splitlines() if not re.search(r" (cvy_\w+|CVY_\w+)(@@\S+)?$| A CONVOY", line)]
        if foreign:
            sys.exit("the library shows symbols of others:\n" + "\n".join(foreign[:10]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
