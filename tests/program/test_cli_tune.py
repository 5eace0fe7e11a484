#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it: test_cli_tune.py CONVOY GROUP   (groups: the functions named test_<group> below)

Tuning. Exit 77 where a group needs a device and there is none."""

import fcntl
import glob
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios

from cli import call, check, CONVOY, DEVICE, device_times, expect, with_layer, LENET, lines_of, NO_DEVICE, read, read_json, run, same, main


def tune_here(folder):
    """Environment in which tuned choices are kept in the folder, and defaults are bad enough that there is something to find.
    Kernels and drivers keep their caches."""
    caches = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    return {"XDG_CACHE_HOME": folder, "CVY_NO_TUNE": "0", "CVY_BAD_DEFAULTS": "1",
            "POCL_CACHE_DIR": os.environ.get("POCL_CACHE_DIR", os.path.join(caches, "pocl", "kcache"))}


def test_tune_hint(at):
    """What the hint says to run makes it go away, whatever the images, classes, batch and devices."""
    here = tune_here(at("cache"))
    train = ["train", "--model", "lenet", "--data", "synthetic:40:14x14x3", "--classes", 4, "--batch", 4, "--devices", device_times(2),
             "--max-steps", 1, "--no-eval"]
    done = expect(0, *train, env=here)
    said = re.search(r"'(\S+ tune [^']*)' may find faster", done.stderr)
    if "may find faster" not in done.stderr:
        print("nothing can be done in several ways on this device")
        sys.exit(77)
    check(said and said[1] == f'{CONVOY} tune --model lenet --input 14x14x3 --classes 4 --batch 2 --devices {device_times(2)[:-2]}', "the hint", done)
    tuned = call(["sh", "-c", said[1] + " --budget 120"], timeout=300, env=here)
    check(tuned.returncode == 0 and "the budget of" not in tuned.stderr, "the hint's command", tuned)
    done = expect(0, *train, env=here)
    check("may find faster" not in done.stderr, "no hint when all is tuned", done)
    for text in ("28x28x3", "3x28x28"):
        done = expect(0, "net", "lenet", "--input", text)
        check("3x28x28" in done.stdout, "channels in front or behind", done)
    for text in ("28x28", "28x28x", "0x28x1", "28x28x1x1", "x28x1", "a"):
        expect(2, "tune", "--input", text, err=(f"--input {text}: expected HxWxC: ", "28x28x1"), env=NO_DEVICE)


def test_tune(at):
    """What is found is kept, shown and used; what a checkpoint notes goes before it; a bad file is passed over."""
    here = tune_here(at("cache"))
    files = lambda: glob.glob(at("cache/convoy/tune-*.txt"))
    tune = ["tune", "--devices", DEVICE, "--model", "lenet", "--batch", 16]
    tf32 = ["--math", "tf32"]
    wanted = f"tune --model lenet --batch 16{'' if DEVICE == 'auto' else ' --devices ' + DEVICE}"
    hint = f"'{CONVOY} {wanted}' may find faster ones, and takes about "
    steps = ["train", *LENET, "--batch", 16, "--init", "he", "--no-eval"]

    expect(0, *tune, "--show", out="no stored results", env=here)
    expect(0, *tune, "--clear", err="no stored results to delete", env=here)
    done = expect(0, *steps, "--max-steps", 2, "--log", at("bad.jsonl"), env=here)
    bad = lines_of(at("bad.jsonl"))[0]["run"]["conv_choices"]
    several = hint in done.stderr  # some layer can be done in several ways on this device
    check(done.stderr.count("may find faster") == several, "a hint, once", done)
    check(not files(), "training leaves no file")
    done = expect(0, *steps, "--max-steps", 1, "--quiet", env=here)
    check(hint not in done.stderr, "no hint with --quiet", done)
    done = expect(0, *steps, "--max-steps", 1, "--tune", "off", env=here)
    check(hint not in done.stderr, "no hint with --tune off", done)
    # arithmetic that the device may not have: it says so, and tunes the one that it uses instead
    done = expect(0, *tune, *tf32, "--budget", 0.1, "--json", env=here)
    used = [d["math"] for d in json.loads(done.stdout)["devices"]]
    check(used == ["fp32" if "no TF32 here" in done.stderr else "tf32"], f"what is tuned: {used}", done)
    if not several:
        expect(0, *tune, out="nothing was measured", env=here)
        return

    # a run in two parts: the second has a file of tuned choices, and goes on as it began
    parts = [*steps, "--quiet", "--checkpoint", at("ck"), "--resume"]
    expect(0, *steps, "--quiet", "--max-steps", 4, "--save", at("whole.st"), env=here)
    expect(0, *parts, "--max-steps", 2, env=here)

    data = json.loads(expect(0, *tune, "--budget", "600s", "--json", env=here, timeout=280).stdout)["devices"][0]
    check(len(files()) == 1 and data["file"] == files()[0], f"one file: {files()} {data['file']}")
    check(data["entries"] and not data["out_of_time"] and data["waiting"] == 0, f"all is measured: {data}")
    check(any(e["choice"] != e["default"] and e["gain"] > 1 for e in data["entries"]), f"something is found: {data}")
    check(all(e["ms"] <= e["default_ms"] for e in data["entries"]), f"nothing is worse: {data}")
    shown = json.loads(expect(0, *tune, "--show", "--json", env=here).stdout)["devices"][0]
    by = lambda e: (e["shape"], e["pass"], e["images"])
    check(sorted(shown["entries"], key=by) == sorted(data["entries"], key=by), f"shown as found: {shown} {data}")
    done = expect(0, *tune, "--show", env=here, out=("convolution", "gain"))
    check(len(done.stdout.splitlines()) == 2 + len(data["entries"]), "a line for each", done)

    expect(0, *parts, "--max-steps", 4, "--save", at("parts.st"), env=here)
    same(at("whole.st"), at("parts.st"), "resumed with what the checkpoint notes: the same bytes")
    done = expect(0, *steps, "--max-steps", 1, "--log", at("tuned.jsonl"), env=here)
    check(hint not in done.stderr, "no hint when all is tuned", done)
    tuned = lines_of(at("tuned.jsonl"))[0]["run"]["conv_choices"]
    check(tuned != bad, f"the tuned choices are taken: {tuned}")
    expect(0, *steps, "--max-steps", 1, "--tune", "off", "--log", at("off.jsonl"), env=here)
    check(lines_of(at("off.jsonl"))[0]["run"]["conv_choices"] == bad, "--tune off: the defaults")
    expect(0, *steps, "--max-steps", 1, "--conv-algo", "direct", "--log", at("direct.jsonl"), env=here)
    forced = lines_of(at("direct.jsonl"))[0]["run"]["conv_choices"]
    check(
        all(w in (None, "direct") for d in forced for layer in d.values() for w in layer),
        f"--conv-algo goes before what is tuned: {forced}",
    )

    # a damaged file is as none, and one line says so, what is used instead and what helps; the next tune makes it good
    with open(files()[0], "r+", encoding="utf-8") as f:
        f.truncate(os.path.getsize(files()[0]) - 5)
    for devices in (DEVICE, device_times(2)):
        done = expect(0, *(devices if word == DEVICE else word for word in steps), "--max-steps", 1, env=here)
        told = [line for line in done.stderr.splitlines() if "may find faster" in line or "is damaged" in line]
        check(len(told) == 1 and "is damaged: the shipped defaults are used" in told[0] and "may find faster" in told[0], f"one line: {told}", done)
    expect(0, *tune, "--show", err="is damaged: it is not used", env=here)
    quick = [*steps, "--max-steps", 1, "--tune", "quick"]
    for i in range(4):  # each goes on where the time of the one before was over
        done = expect(0, *quick, "--log", at("quick.jsonl"), env=here)
        said = done.stderr.count("is damaged: new measurements replace it")
        check(i > 0 or said == 1, "it is said that the file is replaced", done)
        if lines_of(at("quick.jsonl"))[0]["run"]["conv_choices"] != bad:
            break
    check(lines_of(at("quick.jsonl"))[0]["run"]["conv_choices"] != bad, "measured at the start")
    done = expect(0, *steps, "--max-steps", 1, env=here)
    check("is damaged" not in done.stderr, "the file is good again", done)
    expect(0, *tune, "--clear", err="forgotten", env=here)
    check(not files(), "nothing is left")
    # no place to keep it: it is used all the same
    nowhere = {**here, "XDG_CACHE_HOME": "/proc/nothing"}
    expect(0, *quick, env=nowhere)
    # a budget that is over at once changes nothing
    expect(0, *tune, "--budget", 0.1, env=here)


def test_tune_units(at):
    """What stands for matrix units is tuned with TF32, and for it alone."""
    here = tune_here(at("cache"))
    units = {**here, "CVY_BAD_DEFAULTS": "0", "CVY_FORCE_SHAPE": "simt", "CVY_FORCE_MATRIX": "nvidia-emulated"}
    few = ["tune", "--devices", DEVICE, "--model", "lenet", "--batch", 4]
    # Compilers are slow the first time, and what they have done is kept: one pass with all its candidates is enough.
    for budget in (10, 20, 40, 80, 160):
        done = expect(0, *few, "--math", "tf32", "--budget", budget, "--json", env=units, timeout=400)
        data = json.loads(done.stdout)["devices"][0]
        if data["entries"] or "no TF32 here" in done.stderr:
            break
    if "no TF32 here" not in done.stderr:  # too little local memory for it
        check(data["math"] == "tf32" and data["entries"], "something is tuned for TF32", done)
        check(all(e["shape"].endswith(" tf32") for e in data["entries"]), "and kept for it alone", done)
    expect(0, *few, "--clear", env=units)


def test_tune_trouble(at):
    """A file that cannot be written, a device that fails late, Ctrl-C: what was found by then is not lost."""
    # several tiles to choose from, and no libraries, whose kernels take long to compile
    here = {**tune_here(at("cache")), "CVY_BAD_DEFAULTS": "0", "CVY_FORCE_SHAPE": "simt", "CVY_CLBLAST": "none", "CVY_CLFFT": "none"}
    tune = ["tune", "--model", "lenet", "--batch", 4]
    one, two = ["--devices", device_times(1)], ["--devices", device_times(2)]
    shown = lambda: json.loads(expect(0, *tune, *one, "--show", "--json", env=here).stdout)["devices"][0]

    # a folder where the file should be: both devices are tuned and shown all the same
    file = shown()["file"]
    os.makedirs(os.path.join(file, "full"))
    for budget in (5, 20, 80, 200):  # what compilers have done is kept: some time is enough
        done = run(*tune, *two, "--budget", budget, "--json", env=here, timeout=600)
        devices = json.loads(done.stdout)["devices"] if done.stdout else []
        if len(devices) != 2 or all(d["entries"] for d in devices):
            break
        if not any(d["waiting"] for d in devices):
            print("nothing can be done in two ways here")
            return
    check(done.returncode == 1 and len(devices) == 2 and all(d["entries"] for d in devices), "both are shown", done)
    check(done.stderr.count("cannot rename") == 2 and done.stderr.count("the results are not stored") == 2, "it is said", done)
    shutil.rmtree(file)

    # Ctrl-C while it measures: nothing is said of a budget, and what was found is kept
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    process = subprocess.Popen([CONVOY, *map(str, tune), *one, "--budget", "600", "--json", at("stopped.json")],
                               stdout=subprocess.DEVNULL, stderr=slave, env={**os.environ, **here, "TERM": "xterm"})
    text = ""
    while " 1/" not in text and process.poll() is None:
        text += os.read(master, 1 << 16).decode() if select.select([master], [], [], 0.1)[0] else ""
    process.send_signal(signal.SIGINT)
    check(process.wait(timeout=120) == 130, "exit after Ctrl-C")
    text += os.read(master, 1 << 16).decode() if select.select([master], [], [], 0.1)[0] else ""
    os.close(master)
    os.close(slave)
    check("budget" not in text, f"after Ctrl-C: {text}")
    data = read_json(read(at("stopped.json")))["devices"][0]
    check(data["entries"] and data["waiting"] > 0 and shown()["entries"] == data["entries"], f"what was found by then: {data}")

    # a device that fails for good after some launches
    expect(0, *tune, *one, "--clear", env=here)
    kept, launches = [], 25
    while not kept and launches < 1e6:
        launches *= 2
        done = run(*tune, *one, "--budget", 600, env={**here, **with_layer(f"fail=all:launch:{launches}:-5")}, timeout=400)
        if done.returncode == 0:  # all was measured by then
            break
        kept = shown()["entries"]
    check(done.returncode == 1 and kept, f"what was found before launch {launches} is kept", done)

    # --tune quick: more samples than can be indexed, and tensors larger than the device gives, are measured in part
    small = {**here, **with_layer("no-buffer=4000000")}
    quick = ["train", "--model", "lenet", "--init", "he", *one, "--no-eval", "--max-steps", 1, "--tune", "quick"]
    expect(0, *quick, "--data", "synthetic:512", "--batch", 512, env=small, timeout=600)
    done = expect(1, *quick, "--data", "synthetic:100000", "--batch", 100000, env={**small, "CVY_MEMORY_LIMIT_MIB": "1"},
                  err="at a time need", timeout=600)
    check("2^31" not in done.stderr and done.stderr.count("error:") == 1, "memory alone ends it", done)


if __name__ == "__main__":
    main(globals())
