#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts Intel's OpenCL runtime for CPUs into a folder: intel_opencl.py FOLDER

The runtime comes from PyPI (tools/fetch/wheels.txt). Its libraries are data files of the wheels, which `pip install --target` leaves out, so the wheels are downloaded
and unpacked here: FOLDER/lib/libintelocl.so and what it loads. The folder must be called lib: the libraries find one another by
$ORIGIN/../lib, and no LD_LIBRARY_PATH is needed. Left out: Intel's own libOpenCL.so, which would take the place of the system's loader."""
import glob
import hashlib
import os
import shutil
import sys
import tempfile
import zipfile

import wheels

GROUP = "intel-opencl"
LEFT_OUT = ("libOpenCL.so", "libtcm_debug", "libtbbmalloc_proxy", "icx-lto", "libze_trace", "libxptifw")


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = os.path.abspath(sys.argv[1])
    if os.path.exists(os.path.join(folder, "lib", "libintelocl.so")):
        return 0
    parent = os.path.dirname(folder)
    os.makedirs(parent, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent) as work:
        done = wheels.fetch(GROUP, "download", work)
        if done.returncode:
            print("\n  ".join([f"the wheels of {GROUP} are not fetched:", *wheels.reasons(done)]), file=sys.stderr)
            return 1
        lib = os.path.join(work, "runtime", "lib")
        os.makedirs(lib)
        contents = {}
        for wheel in sorted(glob.glob(os.path.join(work, "*.whl"))):
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.infolist():
                    head, _, name = member.filename.partition(".data/data/lib/")
                    if not name or "/" in name or name.startswith(LEFT_OUT) or name.endswith(".py"):
                        continue
                    data = archive.read(member)
                    digest = hashlib.sha256(data).digest()
                    path = os.path.join(lib, name)
                    if digest in contents:            # libX.so, libX.so.1 and libX.so.1.2 are three copies in a wheel
                        os.symlink(contents[digest], path)
                        continue
                    contents[digest] = name
                    with open(path, "wb") as f:
                        f.write(data)
        if not os.path.exists(os.path.join(lib, "libintelocl.so")):
            print(f"the wheels of {GROUP} hold no libintelocl.so", file=sys.stderr)
            return 1
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(os.path.join(work, "runtime"), folder)
    return 0


sys.exit(main())
