#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Finds libconvoy for the build of the Python package: find_library.py version | include | libdir | program

The first of these is taken:
1. $CONVOY_BUILD: a build folder of meson (build/release), in which the library is built
2. the installed library, by pkg-config, if its version is at least NEEDED
3. build/release beside this folder, where tools/quickstart builds
Prints the version as PyPI writes it, the folder of convoy/convoy.h, the folder of libconvoy.so, or the program's path."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NEEDED = ("cvy_compile_by", "cvy_log_store", "cvy_stop_withdraw", "cvy_data_from_sets")  # the newest functions that the package calls
NOT_FOUND = """libconvoy was not found. Looked for:
{looked}
Build it first: `tools/quickstart --setup-only` builds build/release, which is found here. Or install it (doc/install.md), or name a build folder:
  CONVOY_BUILD=/path/to/build/release pip install ./python"""


def pkg_config(*words):
    try:
        done = subprocess.run([os.environ.get("PKG_CONFIG", "pkg-config"), *words, "convoy"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def lacks(include):
    """The reason why the headers of a folder are not those that the package needs, or None."""
    texts = ""
    for name in ("compile.h", "log.h", "stop.h", "data.h"):
        path = os.path.join(include, "convoy", name)
        if not os.path.isfile(path):
            return f"no convoy/{name} in {include}"
        with open(path, encoding="utf-8") as f:
            texts += f.read()
    missing = [name for name in NEEDED if name not in texts]
    return f"it is older than this package: it lacks {', '.join(missing)}" if missing else None


def of_build(folder):
    """({version, include, libdir, program}, None) of a build folder, or (None, the reason)."""
    description = os.path.join(folder, "meson-uninstalled", "convoy-uninstalled.pc")
    if not os.path.isfile(description):
        return None, "not a build folder of Convoy"
    if not os.path.exists(os.path.join(folder, "libconvoy.so")):
        return None, "libconvoy.so is not built yet"
    with open(description, encoding="utf-8") as f:
        text = f.read()
    source = re.search(r"^srcdir=(.*)$", text, re.M).group(1)
    found = {"version": re.search(r"^Version: (.*)$", text, re.M).group(1), "include": os.path.join(source, "include"),
             "libdir": folder, "program": os.path.join(folder, "tools", "convoy")}
    why = lacks(found["include"])
    return (None, why) if why else (found, None)


def installed():
    version = pkg_config("--modversion")
    if version is None:
        return None, "pkg-config does not find it"
    include, libdir, prefix = (pkg_config(f"--variable={name}") for name in ("includedir", "libdir", "prefix"))
    why = lacks(include)
    return (None, why) if why else ({"version": version, "include": include, "libdir": libdir, "program": os.path.join(prefix, "bin", "convoy")}, None)


def find():
    looked = []
    named = os.environ.get("CONVOY_BUILD")
    places = [("$CONVOY_BUILD, " + named, lambda: of_build(os.path.abspath(named)))] if named else [
        ("the installed library", installed), (os.path.join(ROOT, "build", "release"), lambda: of_build(os.path.join(ROOT, "build", "release")))]
    for place, look in places:
        found, why = look()
        if found:
            return found
        looked.append(f"  {place}: {why}")
    sys.exit(NOT_FOUND.format(looked="\n".join(looked)))


def of_pypi(version):
    """1.0.0-rc1 → 1.0.0rc1"""
    return re.sub(r"-(a|b|rc)", r"\1", version)


def main():
    names = ("version", "include", "libdir", "program")
    if len(sys.argv) != 2 or sys.argv[1] not in names:
        sys.exit(__doc__)
    found = find()
    print(of_pypi(found[sys.argv[1]]) if sys.argv[1] == "version" else found[sys.argv[1]])


if __name__ == "__main__":
    main()
