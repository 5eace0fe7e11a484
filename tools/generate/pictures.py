#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the pictures of README.md from files of the repository: tools/generate/pictures.py [--check] CONVOY

speed.svg   Convoy's rates by PyTorch's, from the tables of doc/results.md
team.svg    the shares of a team of unlike devices, step by step, from doc/pictures/team.jsonl
report.svg  the page that CONVOY (the built program) makes of that log with `convoy report`

--check: exit status 1 if a file of doc/pictures is not what would be made, or if together they have more than 250 KB.

doc/pictures/team.jsonl is the log of a run on two cores of a CPU, each a device of its own; the second one is three times slower until its launch 5,000
by tests/support/layer.c, made in doc/pictures with B=../../build/check:

  OPENCL_LAYERS=$PWD/$B/tests/test_layer.so CVY_LAYER=slow=1:3:0-5000 $B/tools/convoy train --model lenet --data fashion-mnist --init he \\
    --lr 0.05 --momentum 0.9 --lr-schedule cosine --devices 0:0/1+1 --split auto --batch 512 --epochs 4 --log team.jsonl
"""
import os
import subprocess
import sys
import tempfile

import picture_report
import picture_speed
import picture_team

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "doc", "pictures")
LOG = os.path.join(FOLDER, "team.jsonl")
CAUSE = ("Two cores of a CPU, each an OpenCL device. A test layer makes device 1 three times slower until its launch 5,000.",
         "Shares follow the speeds that the run measures.")
MOST_BYTES = 250_000


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def page_of(convoy, log):
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        subprocess.run([convoy, "report", log, "--out", page], check=True, stdout=subprocess.DEVNULL)
        return read(page)


def main():
    words = sys.argv[1:]
    check = words[:1] == ["--check"]
    if len(words) != 1 + check:
        sys.exit("usage: pictures.py [--check] CONVOY")
    made = {"speed.svg": picture_speed.make(read(os.path.join(ROOT, "doc", "results.md"))), "team.svg": picture_team.make(read(LOG), CAUSE),
            "report.svg": picture_report.make(page_of(words[-1], LOG))}
    faults = []
    for name, text in made.items():
        path = os.path.join(FOLDER, name)
        if not check:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        elif not os.path.exists(path) or read(path) != text:
            faults.append(f"doc/pictures/{name}: is not what its sources give")
    if faults:
        faults.append(f"make them anew: tools/generate/pictures.py {os.path.relpath(words[-1], ROOT)}")
    size = sum(len(text.encode()) for text in made.values())
    if size > MOST_BYTES:
        faults.append(f"doc/pictures: the pictures have {size} bytes together; at most {MOST_BYTES}")
    print("\n".join(faults) or f"pictures: no faults, {size} bytes")
    return 1 if faults else 0


sys.exit(main())
