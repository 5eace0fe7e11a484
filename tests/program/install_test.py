#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Installs into a clean root, compiles the example of doc/d2l.md there and runs it, with the lines of the documentation, as a stranger would.
usage: install_test.py BUILD_DIR EXAMPLE.c [ARGUMENT of the example]…

The clean root is this one in a mount namespace, with an empty /usr/local and an /etc of its own: nothing but what was installed says where
header, library and program are. Where such a namespace cannot be made, the files go into a folder, which is named to the compiler and the
loader; the test then exits 77 (skipped), since that does not show that they are found."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATHS = ("PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CLEAN = {**{name: value for name, value in os.environ.items() if name not in PATHS}, "PATH": SYSTEM_PATH}


def run(command, env=None, cwd=None):
    done = subprocess.run(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"exit {done.returncode}: {' '.join(command)}\n{done.stdout}")
    return done.stdout


def told_lines():
    """(installs, compiles, uninstalls, sets up without root): commands of the documentation"""
    lines = []
    for path, pattern in (("README.md", r"Installing, as root: `(.+?)`"), ("doc/d2l.md", r"`(cc d2l_section\.c .+?)`"),
                          ("doc/install.md", r"as root: `(ninja .+? uninstall && ldconfig)`"), ("doc/install.md", r"^(meson setup build/home .+)$")):
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            found = re.search(pattern, f.read(), re.M)
        if not found:
            sys.exit(f"{path} has no command like {pattern}")
        lines.append(found.group(1))
    return lines


def check_where(work):
    """Debian without dpkg-dev: the library is still installed where the loader and pkg-config look."""
    with open(os.path.join(work, "dpkg-architecture"), "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\nexit 1\n")
    os.chmod(f.name, 0o755)
    env = {**CLEAN, "PATH": work + ":" + SYSTEM_PATH}
    for prefix in ("/usr/local", "/opt/convoy", work + "/home/.local"):
        setup = work + "/setup" + prefix.replace("/", "-")
        run(["meson", "setup", setup, ROOT, "-Dtests=false", "--prefix", prefix], env)
        installed = list(json.loads(run(["meson", "introspect", "--installed", setup], env)).values())
        for end in ("/libconvoy.so", "/pkgconfig/convoy.pc"):
            path = next(p for p in installed if p.endswith(end))
            if os.path.exists("/etc/debian_version") and "/lib64/" in path:
                sys.exit(f"{path}: not looked for on Debian")
    check_without_root(work)


def check_without_root(work):
    """The page's lines for a home: where the files would go; with CVY_TEST_FULL they are built and put there, and the program runs."""
    home, setup = os.path.join(work, "home"), told_lines()[3]
    env, build = {**CLEAN, "HOME": home}, os.path.join(work, "build-home")
    os.makedirs(home, exist_ok=True)
    run(["sh", "-ec", setup.replace("build/home", f"'{build}'")], env, ROOT)
    installed = json.loads(run(["meson", "introspect", "--installed", build], env)).values()
    for end in ("bin/convoy", "lib/libconvoy.so", "lib/pkgconfig/convoy.pc", "include/convoy/convoy.h", "share/man/man1/convoy.1"):
        if f"{home}/.local/{end}" not in installed:
            sys.exit(f"{setup}: does not install ~/.local/{end}")
    if os.environ.get("CVY_TEST_FULL"):
        run(["sh", "-ec", f"meson install -C '{build}'"], env, ROOT)
        library = run(["pkg-config", "--cflags", "--libs", "convoy"], {**env, "PKG_CONFIG_PATH": home + "/.local/lib/pkgconfig"}).split()
        run(["cc", os.path.join(ROOT, "tests", "examples", "predict.c"), "-o", work + "/p", *library, f"-Wl,-rpath,{home}/.local/lib"], env)
        if "not found" in run(["ldd", work + "/p"], env):
            sys.exit(f"{setup}: the library is not found")
        check_installed(home + "/.local/bin/convoy", home + "/.local/lib/libconvoy.so")


def prefix_of(build):
    return next(o["value"] for o in json.loads(run(["meson", "introspect", "--buildoptions", build])) if o["name"] == "prefix")


def check_output(output):
    for pattern in (r"device 1 \(.*\), 2 of 4 samples:", r"largest \|logit\| \S+: a fresh network", r"0\.weight on device 1: the same bits",
                    r"not initialised on device 2", r"test acc: \d\.\d\d, \d+\.\d sec/epoch on \[0:0"):
        if not re.search(pattern, output):
            sys.exit(f"the example's output has no line like: {pattern}\n{output}")


def check_by_hand(compiles, program, env, work):
    """What cvy_train does can be written by hand: the same weights and checkpoints, however often either goes on from the other's. The files
    say what network they are."""
    example = os.path.join(ROOT, "tests", "examples", "train_by_hand.c")
    run(["sh", "-ec", compiles.replace("d2l_section.c", f"'{example}' -o by_hand")], env, work)
    results = {}
    for folder, parts in {"hand": ["hand"], "train": ["train"], "parts": ["hand 5", "train 6", "hand"]}.items():
        for how, *steps in map(str.split, parts):
            run(["./by_hand", how, folder, "synthetic:640", *steps], env, work)
        results[folder] = {}
        for path in glob.glob(f"{work}/{folder}/*.safetensors"):
            with open(path, "rb") as f:
                results[folder][os.path.basename(path)] = f.read()
    names = sorted(results["train"])
    if names != ["step-0000000028.safetensors", "step-0000000030.safetensors", "weights.safetensors"]:
        sys.exit(f"cvy_train left {names}")
    for folder, files in results.items():
        if files != results["train"]:
            sys.exit(f"{folder}: other files than cvy_train's: {sorted(files)}, of {names}")
    for path in ("hand/weights.safetensors", "hand/step-0000000030.safetensors"):
        if not re.search(r"^test acc: \d\.\d\d ", run([program, "eval", "--weights", path, "--data", "synthetic:640", "--devices", "0:0"], env, work), re.M):
            sys.exit(f"{path}: cannot be evaluated without --model")


def check_predict(compiles, program, env, work):
    """A program that predicts (doc/predict.md), with the weights of another one."""
    example = os.path.join(ROOT, "tests", "examples", "predict.c")
    run(["sh", "-ec", compiles.replace("d2l_section.c", f"'{example}' -o predict")], env, work)
    with open(os.path.join(work, "p.pgm"), "wb") as f:
        f.write(b"P5 28 28 255\n" + bytes(i % 251 for i in range(784)))
    run([program, "train", "--model", "lenet", "--data", "synthetic:64", "--max-steps", "1", "--no-eval", "--save", "p.safetensors"], env, work)
    answer = run(["./predict", "p.safetensors", "p.pgm"], env, work)
    if not re.fullmatch(r"p\.pgm: class \d, probability 0\.\d{4}\n", answer):
        sys.exit(f"the example predicts {answer!r}")


def check_installed(program, library):
    shown = run([program, "--version"], CLEAN)
    if not re.match(r"convoy \d+\.\d+\.\d+", shown):
        sys.exit(f"convoy --version printed {shown!r}")
    exported = run(["nm", "-D", "--defined-only", os.path.realpath(library)])
    foreign = [line for line in exported.splitlines() if not re.search(r" (cvy_\w+|CVY_\w+)(@@\S+)?$| A CONVOY", line)]
    if foreign:
        sys.exit("the library shows symbols of others:\n" + "\n".join(foreign[:10]))


def in_clean_root(build, work, example, arguments):
    """Inside the namespace."""
    etc, (install, compiles, uninstall, _) = os.path.join(work, "etc"), told_lines()
    shutil.copytree("/etc", etc, symlinks=True, ignore_dangling_symlinks=True)
    for command in (["mount", "-t", "tmpfs", "tmpfs", "/usr/local"], ["mount", "--bind", etc, "/etc"]):
        run(command)
    os.makedirs("/usr/local/bin")
    run(["ldconfig"], CLEAN)
    shutil.copy(example, os.path.join(work, "d2l_section.c"))
    run(["sh", "-ec", install.replace("-C build/release", f"-C '{build}' --no-rebuild")], CLEAN)
    run(["sh", "-ec", compiles], CLEAN, work)
    check_output(run(["./a.out", *arguments], CLEAN, work))
    check_by_hand(compiles, "convoy", CLEAN, work)
    check_predict(compiles, "convoy", CLEAN, work)
    check_installed("convoy", next(iter(glob.glob("/usr/local/lib*/**/libconvoy.so", recursive=True))))
    run(["sh", "-ec", uninstall.replace("-C build/release", f"-C '{build}'")], CLEAN)
    left = [os.path.join(at, name) for at, _, names in os.walk("/usr/local") for name in names if "convoy" in os.path.join(at, name)]
    if left or shutil.which("convoy", path="/usr/local/bin"):
        sys.exit(f"{uninstall}: left {left}")
    print(f"in a clean root: {install}; {compiles}; ./a.out; {uninstall}")


def in_a_folder(build, work, example, arguments):
    """Where no clean root can be had."""
    folder = os.path.join(work, "root")
    run(["meson", "install", "-C", build, "--no-rebuild", "--destdir", folder])
    find = lambda name: glob.glob(f"{folder}/**/{name}", recursive=True)[0]
    env = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(find("pkgconfig/convoy.pc")), "PKG_CONFIG_SYSROOT_DIR": folder,
           "LD_LIBRARY_PATH": os.path.dirname(find("libconvoy.so")) + ":" + os.environ.get("LD_LIBRARY_PATH", "")}
    run(["sh", "-ec", told_lines()[1].replace("d2l_section.c", f"'{example}'")], env, work)
    check_output(run(["./a.out", *arguments], env, work))
    check_by_hand(told_lines()[1], find("bin/convoy"), env, work)
    check_predict(told_lines()[1], find("bin/convoy"), env, work)
    check_installed(find("bin/convoy"), find("libconvoy.so"))


def main():
    inside = sys.argv[1] == "--inside"
    build, example, arguments = os.path.abspath(sys.argv[1 + inside]), os.path.abspath(sys.argv[2 + inside]), sys.argv[3 + inside:]
    if inside:
        work, *arguments = arguments
        return in_clean_root(build, work, example, arguments)
    with tempfile.TemporaryDirectory(prefix="convoy-install-") as work:
        check_where(work)
        run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-D_POSIX_C_SOURCE=200809L", "-I", ROOT + "/include", "-fsyntax-only",
             *sorted(glob.glob(ROOT + "/tests/examples/*.c"))])
        unshare = ["unshare", "--mount", "--propagation", "private", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
        why = None
        if [p for p in ("cc", "pkg-config", "meson", "ldconfig") if not shutil.which(p, path="/usr/sbin:/usr/bin:/sbin:/bin")]:
            why = "compiler, pkg-config, meson and ldconfig are to be outside /usr/local"
        elif prefix_of(build) != "/usr/local":
            why = f"the prefix of {build} is not /usr/local"
        elif subprocess.run([*unshare, "mount", "-t", "tmpfs", "tmpfs", "/usr/local"], capture_output=True).returncode:
            why = "no mount namespace can be made here"
        if why is None:
            print(run([*unshare, sys.executable, os.path.abspath(__file__), "--inside", build, example, work, *arguments]))
            return None
        in_a_folder(build, work, example, arguments)
        print(f"clean root: skipped: {why}")
        return 77


sys.exit(main())
