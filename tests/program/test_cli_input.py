#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hostile files: test_cli_input.py CONVOY GROUP   (groups: the functions named test_<group> below)

What predict, eval --confusion, data, report and --report say of files that are wrong, lie or have odd names: a line that begins with the
program's name, the right exit status, no control character of a name on a terminal, and nothing left half-written."""
import json
import os
import re
import resource
import shutil
import struct
import subprocess

from cli import LENET, check, main, read_bytes, run, write

ODD = "odd \x1b[31mname"
NO_FILES = ("missing", "dir", "fifo", "loop", "/dev/null", "/dev/zero", "x" * 300, "x" * 5000)
NO_OUTPUTS = ("/dev/full", "dir", "missing/x", "loop", "", "x" * 300, "text/x")


def refused(*args, codes=(1, 2), **more):
    """Ends with one of these statuses, says why, and leaves all files as they were."""
    before = {name: os.stat(name, follow_symlinks=False).st_mtime_ns for name in os.listdir(".")}
    done = run(*args, timeout=60, stdin=subprocess.DEVNULL, **more)
    lines = [line for line in done.stderr.split("\n") if line and "warning" not in line]
    check(done.returncode in codes, f"exit {done.returncode}, must be one of {codes}", done)
    check(1 <= len(lines) <= 3 and all(line.startswith(("convoy", "Help: ")) for line in lines), "a clear line", done)
    check(not re.search(r"[\x00-\x08\x0b-\x1f\x7f]|\(null\)", done.stderr), "plain text", done)
    check(before == {name: os.stat(name, follow_symlinks=False).st_mtime_ns for name in os.listdir(".")}, "files as they were", done)
    return done


def stage(at):
    """Moves into a folder of odd things."""
    os.makedirs(at("stage"))
    os.chdir(at("stage"))
    os.makedirs("dir")
    os.mkfifo("fifo")
    os.symlink("loop", "loop")
    write("text", "hello\n")
    write("empty", "")
    with open("p.pgm", "wb") as f:
        f.write(b"P5 28 28 255\n" + bytes(784))


def train():
    done = run("train", *LENET, "--batch", 64, "--max-steps", 1, "--save", "w.st", "--log", "a.jsonl", "-q")
    check(done.returncode == 0, "weights", done)


def lie(name, text=None, **facts):
    """The weights with other facts, or with this text instead of them."""
    raw = read_bytes("w.st")
    size = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + size])
    told = {**json.loads(head["__metadata__"]["convoy"]), **facts}
    head["__metadata__"]["convoy"] = json.dumps(told) if text is None else text
    new = json.dumps(head).encode()
    with open(name, "wb") as f:
        f.write(struct.pack("<Q", len(new)) + new + raw[8 + size:])


def test_odd_weights(at):
    stage(at)
    train()
    raw = read_bytes("w.st")
    lies = [{"classes": 11}, {"classes": 9}, {"classes": 10**9}, {"input": [1, 32, 32]}, {"input": [3, 28, 28]}, {"input": [1, 65536, 65536]},
            {"input": [1, 0, 28]}, {"model": "resnet18"}, {"model": "vgg"}, {"model": ODD}, {"class_names": ["a"] * 9}, {"class_names": [ODD] * 10},
            {"mean": [float("nan")], "deviation": [1]}, {"mean": [1e300], "deviation": [1]}, {"mean": [0.5], "deviation": [0]}, {"gray": 3},
            {"size": [65536, 65536]}, {"size": [-1, 27]}, {"text": "{junk"}, {"text": "[]"}, {"text": "[" * 100000},
            {"text": '{"classes":10,"input":[1,28,28],"model":"lenet","mean":[1e999],"deviation":[1]}'}]
    for facts in lies:
        lie("lie.st", **facts)
        refused("predict", "--weights", "lie.st", "p.pgm")
        refused("eval", "--weights", "lie.st", "--data", "synthetic:64", "--confusion", "-q")
    for name, content in (("cut.st", raw[:len(raw) // 2]), ("cut.st", raw[:50]), ("cut.st", struct.pack("<Q", 1 << 60) + b"{}"), ("cut.st", b"")):
        with open(name, "wb") as f:
            f.write(content)
        refused("predict", "--weights", name, "p.pgm")
    for name in NO_FILES:
        refused("predict", "--weights", name, "p.pgm")
        refused("eval", "--weights", name, "--data", "synthetic:64", "--confusion")


def test_odd_pictures(at):
    stage(at)
    train()
    wrong = {"cut.pgm": b"P5 28 28 255\n" + bytes(9), "huge.pgm": b"P5 99999999 99999999 255\n", "x.jpg": b"\xff\xd8\xff" + bytes(20),
             "x.png": b"\x89PNG\r\n\x1a\n" + bytes(20), ODD + ".pgm": b"P5"}
    for name, content in wrong.items():
        with open(name, "wb") as f:
            f.write(content)
    for name in (*NO_FILES, *wrong, "empty", "text"):
        refused("predict", "--weights", "w.st", name, "-q", codes=(1,))
    refused("predict", "--weights", "w.st", "p.pgm", *wrong, "--json", "dir", codes=(1, 2))
    for name in (ODD + "\nline", os.fsdecode(b"\xff\xfe")):
        shutil.copy("p.pgm", name)
        done = run("predict", "--weights", "w.st", name, "--top", 1)
        check(done.returncode == 0 and done.stdout.count("\n") == 2 and "\x1b" not in done.stdout, "a line for a picture", done)
        done = run("predict", "--weights", "w.st", name, "--json", "-")
        check(len(json.loads(done.stdout)["predictions"][0]["top"]) == 5, "JSON", done)
    for out in NO_OUTPUTS:
        for option in ("--json", "--csv"):
            refused("predict", "--weights", "w.st", "p.pgm", option, out)
        refused("eval", "--weights", "w.st", "--data", "synthetic:64", "-q", f"--confusion={out}")
        refused("train", *LENET, "--batch", 64, "--max-steps", 1, "-q", "--report", out)
    with open("/dev/full", "w", encoding="utf-8") as full:
        for args in (["predict", "--weights", "w.st", "p.pgm", "-q"], ["eval", "--weights", "w.st", "--data", "synthetic:64", "-q", "--confusion"]):
            refused(*args, codes=(1,), stdout=full)


def test_odd_sources(at):
    stage(at)
    os.makedirs("pics/" + ODD)
    os.makedirs(b"pics/\xff")
    for name in (f"pics/{ODD}/1.pgm".encode(), b"pics/\xff/1.pgm"):
        shutil.copy("p.pgm", name)
    write(f"pics/{ODD}/2.pgm", "P5")
    write(f"pics/{ODD}/{ODD}", "")
    os.mkfifo("pics/" + ODD + "/3.pgm")
    done = run("data", "pics")
    check(done.returncode == 0 and "\x1b" not in done.stdout + done.stderr and "broken, left out: 2" in done.stdout, "odd names", done)
    done = run("data", "pics", "--json", "-")
    check(len(json.loads(done.stdout)["pictures"]["broken"]) == 2, "JSON", done)
    refused("data", "pics", "--strict", codes=(1,))
    for name in (*NO_FILES, "empty", "text", "synthetic:0", "synthetic:x", "synthetic:1:65536x65536x3", ODD):
        refused("data", name)
    for out in NO_OUTPUTS:
        for option in ("--json", "--sheet"):
            refused("data", "synthetic:64", option, out)
    with open("/dev/full", "w", encoding="utf-8") as full:
        refused("data", "synthetic:64", codes=(1,), stdout=full)
    # test/ without class folders, as ImageNet and Kaggle hand it out: left out with one warning, and val/ is the test set
    for name in ("train/a/1", "train/a/2", "train/b/1", "train/b/2", "val/a/1", "val/b/1", "test/1", "test/2", "test/3"):
        os.makedirs(os.path.dirname("flat/" + name), exist_ok=True)
        shutil.copy("p.pgm", f"flat/{name}.pgm")
    done = run("data", "flat", "--json", "-")
    check(done.returncode == 0 and done.stderr.count("warning") == 1 and
          "flat/test is left out: without a folder for each class its files have no labels" in done.stderr, "one warning", done)
    check([json.loads(done.stdout)["sets"][s]["of_class"] for s in ("training", "test")] == [[2, 2], [1, 1]], "val/ is the test set", done)


def test_odd_logs(at):
    stage(at)
    line = '{"epoch":0,"step":0,"loss":1.5,"lr":0.1,"images":64,"correct":3,"shares":[64],"ms":2}\n'
    write("a.jsonl", line)
    for name in (*NO_FILES, "empty", "text", "p.pgm"):
        refused("report", name, "--out", "r.html", "--csv", "r.csv", "--tensorboard", "tb")
        refused("report", "a.jsonl", name, "--out", "r.html")
    for out in NO_OUTPUTS:
        for option in ("--out", "--csv"):
            refused("report", "a.jsonl", option, out)
    refused("report", "a.jsonl", "--tensorboard", "text")
    # a hole of a gigabyte is a line of that length: counted, not held
    with open("hole.jsonl", "w", encoding="utf-8") as f:
        f.write(line)
        f.truncate(1 << 30)
    write(ODD, line + '{"step":' + "9" * (1 << 20))
    not_utf8 = os.fsdecode(b"\xff.jsonl")
    shutil.copy("a.jsonl", not_utf8)
    for name in ("hole.jsonl", ODD, not_utf8):
        done = run("report", name, "--out", "r.html", "--csv", "r.csv", timeout=100,
                   preexec_fn=None if os.environ.get("CVY_TEST_SANITIZER") else lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29)))
        check(done.returncode == 0 and "\x1b" not in done.stderr, "a log of an odd name, or with an endless line", done)
        page = read_bytes("r.html")
        check(page.endswith(b"</body></html>\n") and b"\x1b" not in page, "the page")


if __name__ == "__main__":
    main(globals(), without_device=("odd_sources", "odd_logs"))
