#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""clang's -Wthread-safety over every source that takes a lock: check_thread_safety.py

src/base/sync.h says which functions take and release a lock, headers of src/team which ones want it held. The check then shows that it
sees: with one unlock, one lock or one word of a header taken away, clang must complain. Exit 77 without clang."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLAGS = ["-std=c11", "-D_GNU_SOURCE", '-DCVY_VERSION="0"', "-pthread", "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety"]
# file, the text, what stands there instead: each must be found
BROKEN = [
    ("src/protocol/mail.c", "cvy_roster_unlock(m->roster);", ""),
    ("src/protocol/ring.c", "cvy_roster_lock(r->roster);", ""),
    ("src/protocol/results.c", "cvy_mutex_unlock(&r->lock);", ""),
    ("src/protocol/ring.c", "static void post(cvy_ring *r, cvy_step *step) CVY_HOLDS(r->roster);", ""),
    ("src/base/pool.c", "cvy_mutex_unlock(", "(void)("),
]


def complaint(clang, path, include):
    done = subprocess.run([clang, *FLAGS, "-I" + ROOT, "-I" + os.path.join(ROOT, "include"), *include, path],
                          capture_output=True, text=True, cwd=ROOT)
    return done.stderr if done.returncode else ""


def main():
    clang = shutil.which("clang")
    if not clang:
        print("no clang")
        return 77
    sources = subprocess.run(["grep", "-rlE", "cvy_(mutex|roster|cond)_|CVY_HOLDS", "--include=*.c", "src"], cwd=ROOT, capture_output=True,
                             text=True, check=True).stdout.split()
    faults = 0
    for path in sorted(sources):
        said = complaint(clang, path, [])
        if said:
            faults += 1
            print(said)
    with tempfile.TemporaryDirectory() as folder:
        for path, old, new in BROKEN:
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                text = f.read()
            copy = os.path.join(folder, os.path.basename(path))
            with open(copy, "w", encoding="utf-8") as f:
                f.write(text.replace(old, new, 1))
            if old not in text or not re.search("thread-safety", complaint(clang, copy, [])):
                faults += 1
                print(f"{path}: not found: '{old}' instead of '{new}'" if old in text else f"{path}: there is no '{old}'")
    print(f"thread_safety: {len(sources)} files, {len(BROKEN)} broken ones, {faults} faults")
    return 1 if faults else 0


sys.exit(main())
