#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts the compilers of Intel's, AMD's and NVIDIA's OpenCL into a folder, for tools/kernel-check: vendor_compilers.py FOLDER [GROUP…]

Debian's packages are taken apart (dpkg -x) and the wheels of PyPI unzipped; nothing is installed, so the OpenCL loader finds no new platform.
FOLDER/<group> holds the tree of the group's packages and in `packages` their versions. A library below the
compilers that the system has installed is not fetched; the compilers are, since another version makes other code. A package that the system's own sources do not have is looked for in Debian 12, whose compilers
these are. A group that is complete is left alone. Groups: intel, amd, nvidia, clang. Exit status: 0 if all that were asked for are there."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import wheels

# Libraries that the compilers load stand behind them: another Debian may have none of that version.
BELOW_LLVM = ["libz3-4", "libedit2", "libxml2", "libicu72", "libbsd0", "libmd0"]
DEBIAN = {
    "intel": ["intel-opencl-icd", "libigc1", "libigdfcl1", "libigdgmm12", "libopencl-clang14", "libllvmspirvlib14", "libllvm14", "libclang-cpp14",
              *BELOW_LLVM],
    "amd": ["libamd-comgr2", "libllvm15", *BELOW_LLVM],
    "clang": ["clang-15", "libclang-common-15-dev", "libclang-cpp15", "libllvm15", *BELOW_LLVM],
}
# What tools/kernel_check looks for in the folder: the packages, and a file of each group. (clang 15 is taken from the system where it is.)
COMPILERS = ("intel-opencl-icd", "libigc1", "libigdfcl1", "libigdgmm12", "libopencl-clang14", "libamd-comgr2")
FOUND_BY = {"intel": "usr/bin/ocloc", "amd": "usr/lib/*/libamd_comgr.so.2", "nvidia": "libnvvm.so.4"}
# The group of tools/fetch/wheels.txt, and the files of its wheels that are used.
PYPI = {"nvidia": ("libnvvm.so.4", "libdevice.10.bc", "ptxas")}
GROUPS = [*DEBIAN, *PYPI]
BOOKWORM = "deb http://deb.debian.org/debian bookworm main\n"


class Missing(Exception):
    """tells which package cannot be had, and why"""


def said(command, **more):
    """What a command printed; Missing with the end of its complaint if it failed."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, **more)
    if done.returncode:
        reasons = [line for line in done.stderr.strip().splitlines() if not line.startswith("W:")] or ["no reason given"]
        raise Missing("; ".join(dict.fromkeys(reasons[:1] + reasons[-1:])))
    return done.stdout


def installed(package):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", package], capture_output=True, text=True)
    return done.stdout.startswith("installed")


def candidate(package, options):
    text = subprocess.run(["apt-cache", *options, "policy", package], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    return any(line.strip().startswith("Candidate:") and "(none)" not in line for line in text.splitlines())


def debian_12(work):
    """Options with which apt knows Debian 12's packages and nothing else; its lists lie in `work`, the system's are left alone."""
    for folder in ("lists/partial", "cache/archives/partial", "parts"):
        os.makedirs(os.path.join(work, folder), exist_ok=True)
    with open(os.path.join(work, "sources.list"), "w", encoding="utf-8") as f:
        f.write(BOOKWORM)
    open(os.path.join(work, "status"), "a", encoding="utf-8").close()
    options = [word for name, value in {"Dir::Etc::SourceList": "sources.list", "Dir::Etc::SourceParts": "parts", "Dir::State::Lists": "lists",
                                        "Dir::State::Status": "status", "Dir::Cache": "cache"}.items()
               for word in ("-o", f"{name}={os.path.join(work, value)}")]
    said(["apt-get", *options, "update", "-q"])
    return options


def fetch_debian(packages, tree, work):
    wanted = [package for package in packages if package in COMPILERS or not installed(package)]
    # all from one Debian: another one's package of the same name may want libraries of another version
    options = [] if all(candidate(package, []) for package in wanted) else debian_12(work)
    if wanted:
        said(["apt-get", *options, "download", "-q", *wanted], cwd=work)
    versions = []
    for path in sorted(glob.glob(os.path.join(work, "*.deb"))):
        said(["dpkg", "-x", path, tree])
        versions.append(said(["dpkg-deb", "-f", path, "Package", "Version"]).replace("Package: ", "").replace("\nVersion: ", " ").strip())
    return versions


def fetch_pypi(group, tree, work):
    done = wheels.fetch(group, "download", work)
    if done.returncode:
        raise Missing("; ".join(wheels.reasons(done)))
    files = set(PYPI[group])
    for path in glob.glob(os.path.join(work, "*.whl")):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = os.path.basename(member.filename)
                if name in files:
                    with archive.open(member) as source, open(os.path.join(tree, name), "wb") as f:
                        shutil.copyfileobj(source, f)
                    os.chmod(os.path.join(tree, name), 0o755)
                    files.remove(name)
    if files:
        raise Missing("the wheels hold no " + ", ".join(sorted(files)))
    return [f"{name} {version}" for name, (version, _) in wheels.read_list()[group].items()]


def add_links(tree):
    """ocloc asks for libiga64.so, a name that only the package for developers has."""
    for path in glob.glob(os.path.join(tree, "usr", "lib", "*", "libiga64.so.1")):
        os.symlink(os.path.basename(path), path.removesuffix(".1"))


def recipe(group):
    """What a group is made of: one that was made by another is made anew."""
    return f"{DEBIAN.get(group) or (PYPI[group], wheels.read_list()[group])}\n"


def is_there(group, folder):
    try:
        with open(os.path.join(folder, group, "recipe"), encoding="utf-8") as f:
            return f.read() == recipe(group) and bool(glob.glob(os.path.join(folder, group, FOUND_BY.get(group, ""))))
    except OSError:
        return False


def fetch(group, folder):
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        tree = os.path.join(work, "tree")
        os.makedirs(tree)
        downloads = os.path.join(work, "downloads")
        os.makedirs(downloads)
        versions = fetch_debian(DEBIAN[group], tree, downloads) if group in DEBIAN else fetch_pypi(group, tree, downloads)
        add_links(tree)
        for name, text in (("packages", "".join(line + "\n" for line in versions)), ("recipe", recipe(group))):
            with open(os.path.join(tree, name), "w", encoding="utf-8") as f:
                f.write(text)
        shutil.rmtree(os.path.join(folder, group), ignore_errors=True)
        os.rename(tree, os.path.join(folder, group))


def main():
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(GROUPS):
        print(__doc__, file=sys.stderr)
        return 2
    folder, status = os.path.abspath(sys.argv[1]), 0
    for group in sys.argv[2:] or GROUPS:
        if is_there(group, folder):
            continue
        print(f"{group}: fetching {len(DEBIAN.get(group) or wheels.read_list()[group])} packages", file=sys.stderr)
        try:
            fetch(group, folder)
        except (Missing, OSError) as fault:
            print(f"{group}: not fetched: {fault}", file=sys.stderr)
            status = 1
    return status


sys.exit(main())
