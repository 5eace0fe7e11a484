#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it, with folders of caches that are missing: test_cli_cache.py CONVOY GROUP

groups: the functions named test_<group> below"""

import json
import os
import sys

from cli import SMALL, check, expect, lines_of, main

ONE_STEP = ["train", *SMALL[:-4], "--batch", "64", "--max-steps", "1", "--no-eval", "--tune", "off"]


def test_no_home(at):
    """A home that does not exist is not made: nothing is kept, one warning, and the run is a right one."""
    env = {"HOME": at("home"), "XDG_CACHE_HOME": "", "CVY_NO_CACHE": "0", "CVY_NO_TUNE": "0", "CVY_COMPILE_AHEAD": "", "POCL_CACHE_DIR": at("pocl")}
    os.mkdir(at("pocl"))
    done = expect(0, *ONE_STEP, env=env)
    check("generated." not in done.stderr, "PoCL's compiler prints how many warnings it has", done)
    check(done.stderr.count("is not a folder") == 1 and f"warning: HOME={at('home')} is not a folder" in done.stderr, "one warning", done)
    check(not os.path.exists(at("home")), "the home is made")
    os.mkdir(at("home"))
    done = expect(0, *ONE_STEP, env=env)
    check("is not a folder" not in done.stderr and os.path.isdir(at("home", ".cache", "convoy")), "a home that exists is used", done)


def test_no_linker(at):
    """PoCL ends the process where PATH has no ld: the processes that compile ahead see it, and the error has the reason."""
    with_pocl = [d for d in json.loads(expect(0, "devices", "--json", "-").stdout)["devices"]
                 if d["usable"] and d["kind"] == "CPU" and "Portable Computing" in d["platform_name"]]
    if not with_pocl or len(os.sched_getaffinity(0)) < 2:
        print("skipped: no device of PoCL's, or nothing is compiled ahead on one core")
        sys.exit(77)
    os.mkdir(at("none"))
    env = {"PATH": at("none"), "POCL_CACHE_DIR": at("pocl"), "XDG_CACHE_HOME": at("cache"), "CVY_NO_CACHE": "0", "CVY_COMPILE_AHEAD": ""}
    done = expect(1, *ONE_STEP, "--devices", with_pocl[0]["id"], "--log", at("log"), env=env,
                  err=("is not compiled: the driver's compiler died of signal 6 (Aborted)", '"ld"',
                       f"no folder of PATH={at('none')} has: install binutils"))
    check("other kernels are used" not in done.stderr, "no kernel is used instead", done)
    lines = lines_of(at("log"))
    check(len(lines) == 1 and lines[0]["error"]["code"] == "CVY_E_BUILD", f"the log: {lines}", done)


if __name__ == "__main__":
    main(globals())
