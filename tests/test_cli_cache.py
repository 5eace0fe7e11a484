#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it, with folders of caches that are missing or full: test_cli_cache.py CONVOY GROUP

groups: the functions named test_<group> below"""

import os
import shutil
import subprocess

from cli import CONVOY, SMALL, call, check, expect, first_device, main

ONE_STEP = ["train", *SMALL[:-4], "--batch", "64", "--max-steps", "1", "--no-eval", "--tune", "off"]


def on_disk(mib, folder, command, env):
    """Runs the command with a file system of so many MiB at the folder. None: this machine does not let it be mounted."""
    unshare = ["unshare", "--mount", "--propagation", "private", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
    mount = f'mount -t tmpfs -o size={int(mib * 1024)}k tmpfs "$0"'
    if not shutil.which("unshare") or subprocess.run([*unshare, "sh", "-c", mount, folder], capture_output=True).returncode:
        return None
    return call([*unshare, "sh", "-c", f'{mount} && exec "$@"', folder, *command], env=env)


def test_no_home(at):
    """A home that does not exist is not made: nothing is kept, one warning, and the run is a right one."""
    env = {"HOME": at("home"), "XDG_CACHE_HOME": "", "CVY_NO_CACHE": "0", "CVY_NO_TUNE": "0", "CVY_COMPILE_AHEAD": ""}
    done = expect(0, *ONE_STEP, env=env)
    check(done.stderr.count("is no folder") == 1 and f"warning: HOME={at('home')} is no folder" in done.stderr, "one warning", done)
    check(not os.path.exists(at("home")), "the home is made")
    os.mkdir(at("home"))
    done = expect(0, *ONE_STEP, env=env)
    check("is no folder" not in done.stderr and os.path.isdir(at("home", ".cache", "convoy")), "a home that exists is used", done)


def test_driver_cache(at):
    """PoCL's folder on a full disk: the folder and its free space are named."""
    if "Portable Computing Language" not in expect(0, "devices", "--json", "-").stdout or not first_device():
        return
    os.mkdir(at("pocl"))
    env = {"POCL_CACHE_DIR": at("pocl"), "XDG_CACHE_HOME": at("cache"), "CVY_NO_CACHE": "0", "CVY_COMPILE_AHEAD": "none"}
    done = on_disk(0.04, at("pocl"), [CONVOY, *ONE_STEP], env)
    if done is None:
        print("nothing can be mounted on this machine: not tested")
        return
    check(done.returncode == 1 and ".cl does not compile" in done.stderr, "a full disk", done)
    lines = [line for line in done.stderr.splitlines() if f"keeps its compiled kernels in {at('pocl')}, where 0" in line]
    check(lines and all(line.endswith(" MiB are free; POCL_CACHE_DIR names another folder") for line in lines), "the folder and its space", done)


if __name__ == "__main__":
    main(globals())
