#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it, with folders of caches that are missing: test_cli_cache.py CONVOY GROUP

groups: the functions named test_<group> below"""

import os

from cli import SMALL, check, expect, main

ONE_STEP = ["train", *SMALL[:-4], "--batch", "64", "--max-steps", "1", "--no-eval", "--tune", "off"]


def test_no_home(at):
    """A home that does not exist is not made: nothing is kept, one warning, and the run is a right one."""
    env = {"HOME": at("home"), "XDG_CACHE_HOME": "", "CVY_NO_CACHE": "0", "CVY_NO_TUNE": "0", "CVY_COMPILE_AHEAD": ""}
    done = expect(0, *ONE_STEP, env=env)
    check(done.stderr.count("is no folder") == 1 and f"warning: HOME={at('home')} is no folder" in done.stderr, "one warning", done)
    check(not os.path.exists(at("home")), "the home is made")
    os.mkdir(at("home"))
    done = expect(0, *ONE_STEP, env=env)
    check("is no folder" not in done.stderr and os.path.isdir(at("home", ".cache", "convoy")), "a home that exists is used", done)


if __name__ == "__main__":
    main(globals())
