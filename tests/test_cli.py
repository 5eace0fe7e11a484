#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it: test_cli.py CONVOY GROUP   (groups: the functions named test_<group> below)

Needs Python's own modules only. Exit 77 where a group needs a device and there is none."""

import glob
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.dom.minidom

CONVOY = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "convoy"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEVICE = os.environ.get("CVY_TEST_DEVICE", "auto")
LENET = ["--model", "lenet", "--data", "synthetic:640", "--devices", DEVICE]
# 640 images in batches of 64: 10 steps per epoch
SMALL = LENET + ["--batch", "64", "--init", "he"]
# A folder without OpenCL drivers: where a test must not get as far as using a device
NO_DEVICE = {"OCL_ICD_VENDORS": os.path.join(ROOT, "tests", "examples")}
failures = 0


def run(*args, env=None, stdout=subprocess.PIPE, timeout=120):
    return subprocess.run(
        [CONVOY, *map(str, args)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )


def check(ok, what, done=None):
    global failures
    if ok:
        return
    failures += 1
    print("FAILED:", what)
    if done is not None:
        print(
            "  command:",
            " ".join(done.args[1:]),
            "\n  exit:",
            done.returncode,
            "\n  stdout:",
            done.stdout,
            "\n  stderr:",
            done.stderr,
        )


def expect(code, *args, err=(), out=(), **kw):
    """Runs, checks exit status and that each text is in stderr or stdout."""
    done = run(*args, **kw)
    check(done.returncode == code, f"exit {done.returncode}, must be {code}", done)
    for text in [err] if isinstance(err, str) else err:
        check(text in done.stderr, f"stderr lacks {text!r}", done)
    for text in [out] if isinstance(out, str) else out:
        check(text in done.stdout, f"stdout lacks {text!r}", done)
    return done


def need_device():
    done = run("devices")
    if "No usable OpenCL device" in done.stderr:
        print("no usable OpenCL device")
        sys.exit(77)
    check(done.returncode == 0, "devices", done)


def lines_of(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line, parse_constant=lambda name: 1 / 0) for line in f]  # NaN and Infinity are no JSON


# ---- without a device ----


def test_errors():
    """Wrong use: exit 2, nothing on stdout; first what was wrong, with the option and the value; then where help is."""
    base = ["--model", "lenet", "--data", "synthetic"]
    table = [
        # option, value, what the message must say beside both
        ("--model", "vgg", "resnet18 or lenet"),
        ("--batch", "0", "from 1"),
        ("--batch", "-1", "from 1"),
        ("--batch", "1.5", "whole"),
        ("--batch", "12x", "whole"),
        ("--batch", " 12", "whole"),
        ("--batch", "99999999999999999999", "whole"),
        ("--epochs", "0", "from 1"),
        ("--lr", "0", "above 0"),
        ("--lr", "-0.1", "above 0"),
        ("--lr", "nan", "above 0"),
        ("--lr", "inf", "above 0"),
        ("--lr", "0.1x", "above 0"),
        ("--lr", "0x1", "above 0"),
        ("--momentum", "1.5", "from 0 to 1"),
        ("--weight-decay", "-1", "from 0"),
        ("--seed", "-1", "from 0 to 9.2e+18"),
        ("--seed", "18446744073709551615", "from 0 to 9.2e+18"),
        ("--data-dir", "somewhere", "only fashion-mnist"),
        ("--init", "zero", "d2l or he"),
        ("--split", "auto", "this version"),
        ("--split", "0,0", "above 0"),
        ("--split", "1,,2", "weights"),
        ("--split", "odd", "even"),
        ("--shares", "1,x", "whole numbers"),
        ("--shares", "100,100", "256"),
        ("--bn", "sync", "this version"),
        ("--bn", "ghost:0", "1 or more"),
        ("--bn", "ghost", "ghost:G"),
        ("--staleness", "1", "this version"),
        ("--run-ahead", "3", "from 0 to 2"),
        ("--trace", "t.json", "this version"),
        ("--max-steps", "0", "from 1"),
        ("--verify-every", "0", "from 1"),
        ("--keep", "0", "from 1"),
        ("--checkpoint-every", "0", "1 or more"),
        ("--checkpoint-every", "e", "Ne"),
        ("--classes", "999", "256"),
        ("--save", "", "empty"),
        ("--log", "-", "file"),
        ("--tune", "slow", "cached, off or quick"),
        ("--conv-algo", "fast", "direct, winograd2"),
        ("--math", "bf16", "fp32 or tf32"),
        ("--math", "", "fp32 or tf32"),
        ("--conv-algo", "direct,", "direct, winograd2"),
        ("--conv-algo", "auto,direct", "direct, winograd2"),
        ("--conv-algo", "gemm,direct,gemm", "twice"),
    ]
    for option, value, says in table:
        done = expect(2, "train", *base, option, value, err=(option, value, says, "convoy train --help"), env=NO_DEVICE)
        check(done.stdout == "", "wrong use writes nothing to stdout", done)
        check(done.stderr.startswith("convoy train: " + option), "the reason comes first", done)
    for args, says in [
        (["train"], "--model NAME is missing"),
        (["train", "--model", "lenet"], "--data DATA is missing"),
        (["train", *base, "stray"], "'stray'"),
        (["train", *base, "--ephocs", "3"], "--epochs?"),
        (["train", *base, "--no"], "could be"),
        (["train", *base, "-x"], "-x: no such option"),
        (["train", *base, "--quiet=1"], "takes no value"),
        (["train", *base, "--batch"], "value is missing"),
        (["train", *base, "--trace"], "this version"),
        (["train", *base, "--resume"], "--checkpoint DIR is missing"),
        (["train", *base, "--keep", "3"], "--checkpoint DIR is missing"),
        (["train", *base, "--nesterov"], "momentum above 0"),
        (["train", *base, "--shares", "256", "--split", "even"], "one of them"),
        (["train", *base, "--save", "x", "--log", "x"], "two names"),
        (["train", *base, "--save", "x", "--log", "./x"], "two names"),
        (["train", *base, "--plot", "x//y", "--checkpoint", os.path.abspath("x/y") + "/"], "two names"),
        (["eval", "--weights", "a.st", *LENET, "--json", "./a.st"], "two names"),
        (["eval", "--weights", "a.st", *LENET, "--data-dir", "somewhere"], "only fashion-mnist"),
        (["train", *base, "--init", "he", "--init-from", "x"], "one of them"),
        (["eval"], "--weights F is missing"),
        (["tune", "--show", "--clear"], "one of them"),
        (["tune", "--budget", "soon"], "as 60 or 60s"),
        (["tune", "--budget", "0"], "as 60 or 60s"),
        (["tune", "--model", "vgg"], "resnet18, lenet or all"),
        (["devices", "0:0"], "'0:0'"),
        (["selftest", "--devices"], "value is missing"),
    ]:
        expect(2, *args, err=(says, f"convoy {args[0]} --help"), env=NO_DEVICE)
    for verb in ("frobnicate",):
        expect(2, verb, err=(verb, "train"))
    for args, says in [
        (["bench"], "a word is missing"),
        (["bench", "peek"], "'peek': expected a word: peak"),
        (["bench", "peak", "--time", "0"], "--time 0: expected a number from 0.001"),
        (["bench", "peak", "conv"], "'conv'"),
        (["bench", "peak", "--devices", ""], "the value is empty"),
        (["bench", "conv", "--shape", "n1h4c1k1"], "'r' is missing"),
        (["bench", "conv", "--shape", "n1h4c1k1r0"], "'r0': expected a number from 1"),
        (["bench", "conv", "--shape", "n1h4c1k1r3x"], "at 'x': expected letters"),
        (["bench", "conv", "--shape", "n1h4c1k1r3n2"], "at 'n2': expected letters"),
        (["bench", "conv", "--shape", "n1h4c1k1r3", "--model", "lenet"], "--model and --shape"),
        (["bench", "conv", "--pass", "back"], "--pass back: expected fwd, bwd-data, bwd-weights or all"),
        (["bench", "conv", "--algo", "fast"], "--algo fast: expected all, auto, or of direct"),
        (["bench", "conv", "--algo", "direct,direct"], "--algo direct,direct: expected all, auto"),
        (["bench", "conv", "--max-slowdown", "5%"], "--baseline F"),
        (["bench", "conv", "--max-slowdown", "x%"], "--max-slowdown x%: expected a percentage"),
        (["bench", "conv", "--op", "relu"], "--op: no such option"),
        (["bench", "ops", "--op", "conv3d"], "--op conv3d: expected conv2d"),
        (["bench", "ops", "--shape", "n1"], "--shape: no such option"),
        (["bench", "train", "--steps", "0"], "--steps 0: expected a whole number from 1"),
        (["bench", "train", "--conv-algo", "fast"], "--conv-algo fast"),
        (["bench", "train", "--model", "vgg"], "--model vgg: expected resnet18 or lenet"),
        (["bench", "exchange", "--buckets", "1,x"], "--buckets 1,x: expected one or several sizes"),
        (["bench", "exchange", "--buckets", "0"], "--buckets 0: expected one or several sizes"),
        (["bench", "ops", "--baseline", os.path.join(ROOT, "README.md")], "expected a file of convoy bench"),
    ]:
        done = expect(2, *args, err=(says, "Help: convoy bench"), env=NO_DEVICE)
        check(done.stdout == "", "wrong use writes nothing to stdout", done)
    done = expect(2, err="usage: convoy VERB")
    check(done.stdout == "", "no verb: usage on stderr only", done)


def test_help():
    expect(0, "--version", out="convoy ")
    for args in (["--help"], ["-h"]):
        done = expect(0, *args, out=("devices", "train", "eval", "selftest", "bench"))
        check(done.stderr == "", "help goes to stdout", done)
    wanted = {
        "devices": "json",
        "selftest": "devices json quiet",
        "bench peak": "time devices json quiet",
        "bench train": "model batch steps inference conv-algo tune math no-breakdown devices json quiet",
        "bench exchange": "model buckets time devices json quiet",
        "bench scaling": "model batch steps extrapolate conv-algo math tune devices json quiet",
        "eval": "weights model data data-dir classes seed devices batch conv-algo math json quiet",
        "bench conv": "model batch shape pass algo tiles tune math time baseline max-slowdown dump-build devices json quiet",
        "bench ops": "model batch op pass algo tiles tune math time baseline max-slowdown dump-build devices json quiet",
        "tune": "devices model batch budget show clear json quiet",
        "train": "model data data-dir classes batch epochs lr init init-from momentum nesterov weight-decay seed "
        "no-shuffle split shares conv-algo math tune bn run-ahead staleness max-steps no-eval save checkpoint checkpoint-every "
        "keep resume verify-every log plot allow-nan quiet devices",
    }
    for verb, names in wanted.items():
        done = expect(0, *verb.split(), "--help", out=f"usage: convoy {verb}")
        check(done.stderr == "" and run(*verb.split(), "-h").stdout == done.stdout, "-h is --help, on stdout", done)
        entries = re.findall(r"^  (?:-\w, |    )--([\w-]+)(.*?)(?=^ {2,6}-|^\S|^$|\Z)", done.stdout, re.M | re.S)
        check(
            set(names.split()) == {name for name, _ in entries} - {"help"},
            f"options of {verb}: {sorted(name for name, _ in entries)}",
        )
        for name, text in entries:
            flat = " ".join(text.split())
            check(
                re.search(r"\[[^\[\]]+; (default: .+|required)\]$", flat),
                f"{verb} --{name}: no unit and default in {flat!r}",
            )
        check(max(map(len, done.stdout.splitlines())) <= 92, f"{verb} --help: lines are too long", done)


def test_outputs():
    """Files that cannot be written are found before any work, and nothing is left behind."""
    with tempfile.TemporaryDirectory() as dir:
        folder = os.path.join(dir, "folder")
        os.mkdir(folder)
        for option in ("--save", "--log", "--plot"):
            expect(
                1,
                "train",
                *SMALL,
                option,
                os.path.join(dir, "no/such"),
                err=(option, "no/such", "No such file"),
                env=NO_DEVICE,
            )
            expect(1, "train", *SMALL, option, folder, err=(option, "folder"), env=NO_DEVICE)
        expect(
            1,
            "train",
            *SMALL,
            "--save",
            os.path.join(dir, "good"),
            "--plot",
            os.path.join(dir, "good.svg"),
            "--checkpoint",
            folder,
            "--log",
            os.path.join(dir, "no/such"),
            env=NO_DEVICE,
        )
        expect(1, "train", *SMALL, "--save", "/dev/null", err="plain file", env=NO_DEVICE)
        expect(1, "train", *SMALL, "--checkpoint", "/dev/null/x", err=("--checkpoint", "/dev/null/x"), env=NO_DEVICE)
        for verb in (["devices"], ["eval", "--weights", "w", *LENET]):
            expect(1, *verb, "--json", os.path.join(dir, "no/such"), err=("--json", "no/such"), env=NO_DEVICE)
        check(os.listdir(dir) == ["folder"] and not os.listdir(folder), f"left behind: {os.listdir(dir)}")
        # two names of one file: by a link, and by one to what is not there yet
        at = lambda name: os.path.join(dir, name)
        for target in ("folder", "later"):
            os.symlink(target, at("to-" + target))
        with open(at("a"), "w", encoding="utf-8") as f:
            f.write("kept")
        os.link(at("a"), at("b"))
        for one, two in [("to-folder/x", "folder/x"), ("to-later", "later"), ("a", "b")]:
            expect(2, "train", *SMALL, "--log", at(one), "--plot", at(two), err="two names", env=NO_DEVICE)
        expect(2, "eval", *LENET, "--weights", at("a"), "--json", at("b"), err="two names", env=NO_DEVICE)
        done = expect(1, "train", *SMALL, "--log", at("a"), "--plot", at("folder/a"), env=NO_DEVICE)
        check("two names" not in done.stderr, "two files of one name", done)
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = run("--version", stdout=full)
        check(done.returncode == 1 and "stdout" in done.stderr, "a full disk is not success")


def test_nodevice():
    """No OpenCL at all: exit 1 and what to install."""
    expect(1, "devices", err=("No usable OpenCL device", "apt install pocl-opencl-icd"), env=NO_DEVICE)
    done = expect(1, "devices", "--json", env=NO_DEVICE)
    check(json.loads(done.stdout)["devices"] == [], "an empty list", done)
    for verb in (["train", *SMALL[:4]], ["eval", "--weights", "w", *LENET[:4]], ["selftest"], ["tune"]):
        done = expect(1, *verb, err=("no usable OpenCL device", "pocl-opencl-icd"), env=NO_DEVICE)
        check(done.stdout == "", "nothing on stdout", done)


# ---- with a device ----


def test_devices():
    need_device()
    done = expect(0, "devices", out="--devices auto takes ")
    listed = [line for line in done.stdout.splitlines() if re.match(r"\d+:\d+ |- +\d", line)]
    data = json.loads(expect(0, "devices", "--json").stdout)
    check(len(listed) == len(data["devices"]), "as many lines as devices", done)
    for line, device in zip(listed, data["devices"]):
        check(line.startswith("-") != device["usable"] and device["id"] in line.split()[:2], f"{line!r} and {device}")
        check(device["usable"] or device["reason"] != "", f"a reason: {device}")
    check(data["auto"] and len(data["libraries"]) == 2 and re.match(r"\d+\.\d+", data["version"]), f"{data}")
    with tempfile.TemporaryDirectory() as dir:
        path = os.path.join(dir, "d.json")
        check(expect(0, "devices", "--json", path).stdout == done.stdout, "--json F prints the table too")
        with open(path, encoding="utf-8") as f:
            check(json.load(f) == data, "the same in the file")
    expect(2, "train", *SMALL[:4], "--devices", "99:0", err=("99:0", data["devices"][0]["id"]))
    expect(2, "train", *SMALL[:4], "--devices", "no such name", err="no such name")
    expect(2, "train", *SMALL, "--shares", "32,32", err=("--shares 32,32", "2 numbers, expected 1"))


RESULT = r"test acc: [01]\.\d\d, {} on \[\d+:\d+[^\]]+\]\n"


def check_log(path, first_step, last_step, batch=64, epoch_steps=10):
    """DESIGN's schema; returns the lines."""
    lines = lines_of(path)
    head = lines[0]["run"]
    check(
        {"version", "seed", "devices", "settings"} <= set(head) and head["settings"]["batch"] == batch,
        f"first line: {head}",
    )
    steps = [line for line in lines if "step" in line]
    check([s["step"] for s in steps] == list(range(first_step, last_step)), f"steps: {[s['step'] for s in steps]}")
    for s in steps:
        check(set(s) >= {"epoch", "step", "loss", "lr", "images", "shares", "ms"}, f"step: {s}")
        check(
            s["epoch"] == s["step"] // epoch_steps
            and s["images"] == batch == sum(s["shares"])
            and s["lr"] == 0.1
            and s["ms"] > 0,
            f"step: {s}",
        )
    for e in (line for line in lines if "train_loss" in line):
        check(set(e) == {"epoch", "train_loss", "test_acc", "sec"} and e["sec"] > 0, f"epoch: {e}")
    return lines


def test_train():
    need_device()
    with tempfile.TemporaryDirectory() as dir:
        at = lambda name: os.path.join(dir, name)
        done = expect(
            0, "train", *SMALL, "--max-steps", 3, "--log", at("a.jsonl"), "--save", at("a.st"), "--plot", at("a.svg")
        )
        check(re.fullmatch(RESULT.format(r"\d+\.\d img/s"), done.stdout), "result line without a full epoch", done)
        check("\r" not in done.stderr and "\033" not in done.stderr, "plain lines when stderr is no terminal", done)
        lines = check_log(at("a.jsonl"), 0, 3)
        check(lines[-1]["end"]["steps"] == 3, f"last line: {lines[-1]}")
        start = lines[-2]["start"]
        check(
            start["first_forward_sec"] > 0 and start["programs_compiled"] + start["programs_cached"] > 3,
            f"start: {start}",
        )

        done = expect(
            0, "train", *SMALL, "--epochs", 2, "--log", at("b.jsonl"), "--plot", at("b.svg"), err="epoch 2/2 loss "
        )
        check(re.fullmatch(RESULT.format(r"\d+\.\d sec/epoch"), done.stdout), "result line", done)
        check(
            len(re.findall(r"^epoch \d/2 loss \d+\.\d\d test acc [01]\.\d\d \d+\.\d s$", done.stderr, re.M)) == 2,
            "epoch lines",
            done,
        )
        check("test acc\n" in done.stderr and "|" in done.stderr, "text curve", done)
        lines = check_log(at("b.jsonl"), 0, 20)
        epochs = [line for line in lines if "train_loss" in line]
        losses = [line["loss"] for line in lines if "step" in line]
        check([e["epoch"] for e in epochs] == [0, 1], f"epochs: {epochs}")
        check(losses[-1] < losses[0], f"it learns: {losses}")
        for e in epochs:
            ms = sum(line["ms"] for line in lines if line.get("epoch") == e["epoch"] and "step" in line)
            check(abs(ms / 1e3 - e["sec"]) < 1e-3, f"the steps' times add up to the epoch's: {ms} ms, {e['sec']} s")
        svg = xml.dom.minidom.parse(at("b.svg"))
        check(
            len(svg.getElementsByTagName("polyline")) == 2 and len(svg.getElementsByTagName("circle")) == 4,
            "two points on two curves",
        )

        # the bar leaves out the first step, whose launches compile kernels
        master, slave = pty.openpty()
        subprocess.run(
            [CONVOY, "train", *LENET, "--batch", "320", "--epochs", "1", "--no-eval", "--log", at("bar.jsonl")],
            stdout=subprocess.DEVNULL,
            stderr=slave,
            timeout=120,
        )
        os.close(slave)
        drawn = os.read(master, 1 << 16).decode()
        os.close(master)
        rates = re.findall(r"100 %.* (\d+) img/s", drawn)
        second = [line for line in lines_of(at("bar.jsonl")) if line.get("step") == 1][0]
        check(
            rates and abs(int(rates[-1]) - 1e3 * second["images"] / second["ms"]) < 1,
            f"img/s of the second step: {rates} {second}",
        )

        # a link stays one, and what it leads to is written
        for option, name in [("--save", "link.st"), ("--plot", "link.svg")]:
            os.symlink("real-" + name, at(name))
            expect(0, "train", *SMALL, "--epochs", 1, "--max-steps", 1, "--quiet", option, at(name))
            check(os.path.islink(at(name)) and os.path.getsize(at("real-" + name)) > 0, f"{option} through a link")
        # no step has as many images as were asked for
        expect(
            0,
            "train",
            *LENET,
            *["--batch", 5000, "--max-steps", 1, "--no-eval", "--quiet"],
            err="batch 5000 is larger than the 640 training images: every step takes all of them",
        )

        # algorithms: the log tells which were taken; one that cannot do some layer is refused, with the layer's name
        chosen = lines[0]["run"]["conv_choices"]
        check(
            list(chosen[0]) == ["0", "3", "7", "9"] and chosen[0]["0"][1] is None and all(chosen[0]["7"]),
            f"a choice for each pass of each layer: {chosen}",
        )
        forced = ["train", *SMALL, "--max-steps", 1, "--no-eval", "--quiet", "--log", at("forced.jsonl")]
        expect(0, *forced, "--conv-algo", "winograd4,direct")
        head = lines_of(at("forced.jsonl"))[0]["run"]
        check(
            head["settings"]["conv_algo"] == "winograd4,direct" and head["conv_choices"][0]["3"] == ["direct"] * 3,
            f"5x5 filters are not for winograd4: {head}",
        )
        # --math tf32 on a device without it: a warning, and float32, bit by bit
        plain = ["train", *SMALL, "--max-steps", 2, "--no-eval", "--quiet"]
        expect(0, *plain, "--save", at("fp32.st"))
        done = expect(0, *plain, "--math", "tf32", "--save", at("tf32.st"), "--log", at("tf32.jsonl"), err="no TF32 here")
        check(done.stderr.count("no TF32 here") == 1, "one warning", done)
        settings = lines_of(at("tf32.jsonl"))[0]["run"]["settings"]
        check((settings["math"], settings["math_used"]) == ("tf32", ["fp32"]), f"what was asked for and what was used: {settings}")
        with open(at("fp32.st"), "rb") as a, open(at("tf32.st"), "rb") as b:
            check(a.read() == b.read(), "float32 where there is no TF32")
        expect(0, "eval", "--weights", at("a.st"), *LENET, "--math", "tf32", err="no TF32 here")

        refused = ("layer '", "winograd4 cannot do", "',direct'")
        done = expect(2, *forced, "--conv-algo", "winograd4", err=refused)
        check(done.stderr.count("error:") == 1, "one message", done)
        expect(2, "eval", "--weights", at("a.st"), *LENET, "--conv-algo", "winograd4", err=refused)
        expect(0, "eval", "--weights", at("a.st"), *LENET, "--conv-algo", "winograd4,direct")

        # quiet: one line on stdout, nothing on stderr; the same run gives the same weights
        done = expect(0, "train", *SMALL, "--max-steps", 3, "--save", at("c.st"), "--quiet")
        check(done.stderr == "" or "no GPU" in done.stderr and done.stderr.count("\n") == 1, "--quiet", done)
        with open(at("a.st"), "rb") as a, open(at("c.st"), "rb") as c:
            check(a.read() == c.read(), "same settings, same bytes")
        done = expect(0, "train", *SMALL, "--max-steps", 3, "--no-eval", "--quiet")
        check(done.stdout.startswith("train loss: ") and "img/s" in done.stdout, "--no-eval: the loss", done)

        # eval of what was saved
        done = expect(0, "eval", "--weights", at("a.st"), *LENET)
        check(
            re.fullmatch(r"test acc: [01]\.\d\d \(\d+ of 107\), \d+\.\d sec on \[\d+:\d+[^\]]+\]\n", done.stdout),
            "eval's line",
            done,
        )
        result = json.loads(expect(0, "eval", "--weights", at("a.st"), *LENET[:-2], "-d", DEVICE, "--json", "-").stdout)
        check(f"({result['correct']} of {result['images']})" in done.stdout, f"the same as JSON: {result}", done)
        expect(2, "eval", "--weights", at("a.st"), "--model", "resnet18", *LENET[2:], err="a.st")
        expect(1, "eval", "--weights", at("none.st"), *LENET, err="none.st")
        expect(2, "train", "--model", "lenet", "--data", at("none"), err="none")
        expect(0, "train", *SMALL[:-2], "--max-steps", 1, "--init-from", at("a.st"), "--quiet")


def test_resume():
    need_device()
    with tempfile.TemporaryDirectory() as dir:
        at = lambda name: os.path.join(dir, name)
        straight = ["train", *SMALL, "--epochs", 2, "--momentum", 0.9, "--quiet"]
        parts = [*straight, "--checkpoint", at("ck"), "--resume", "--log", at("log")]
        expect(0, *straight, "--save", at("whole.st"))
        expect(0, *parts, "--max-steps", 7)
        with open(at("log"), "a", encoding="utf-8") as f:
            f.write('{"epoch":0,"st')  # as a killed run leaves it
        expect(0, *parts, "--save", at("parts.st"))
        with open(at("whole.st"), "rb") as a, open(at("parts.st"), "rb") as b:
            check(a.read() == b.read(), "resumed in the middle of an epoch: the same bytes")
        with open(at("log"), encoding="utf-8") as f:
            text = f.read().splitlines()
        runs = [i for i, line in enumerate(text) if line.startswith('{"run"')]
        check(
            len(runs) == 2 and text[runs[1] - 1] == '{"epoch":0,"st',
            f"the log is continued on a line of its own: {runs}",
        )
        steps = [json.loads(line)["step"] for line in text if '"step":' in line and line.startswith('{"epoch"')]
        check(steps == list(range(20)), f"steps of both parts: {steps}")
        os.remove(at("parts.st"))
        expect(0, *parts, "--save", at("parts.st"))
        check(os.path.exists(at("parts.st")), "a finished run writes --save again")
        done = expect(2, *parts, "--lr", 0.2)
        check(
            "lr" in done.stderr and "0.1" in done.stderr and "0.2" in done.stderr,
            "a changed setting is named with both values",
            done,
        )

        expect(2, *parts, "--conv-algo", "direct", err=("conv_algo", '"auto" in the checkpoint, "direct" now'))
        expect(2, *parts, "--math", "tf32", err=("math", '"fp32" in the checkpoint, "tf32" now'))

        # what is refused changes no file
        with open(at("log"), "rb") as f:
            before = f.read()
        expect(2, *parts, "--lr", 0.2)
        expect(2, *(part for part in parts if part != "--resume"), err="--resume")
        with open(at("log"), "rb") as f:
            check(f.read() == before, "a refused run leaves the log as it was")

        # the figure of a run that goes on: whole with the log of its first part, else with a word about it
        points = lambda: len(xml.dom.minidom.parse(at("p.svg")).getElementsByTagName("circle")) // 2
        plot = ["train", *LENET, "--batch", 320, "-q", "--plot", at("p.svg"), "--checkpoint", at("ckp"), "--resume"]
        log = ["--log", at("plog")]
        expect(0, *plot, *log, "--epochs", 2)
        done = expect(0, *plot, *log, "--epochs", 3)
        check(points() == 3 and "warning" not in done.stderr, f"{points()} points of 3", done)
        os.remove(at("p.svg"))
        expect(0, *plot, "--epochs", 3, err=("--plot", "not drawn", "finished already"))
        check(not os.path.exists(at("p.svg")), "nothing to draw")
        expect(0, *plot, *log, "--epochs", 3)
        check(points() == 3, f"drawn again from the log: {points()} points of 3")
        expect(0, *plot, "--epochs", 4, err="the curve begins with epoch 4")
        check(points() == 1, f"{points()} points of 1")


def test_tune():
    """What is found is kept, shown and used; what a checkpoint notes goes before it; a bad file is passed over."""
    need_device()
    with tempfile.TemporaryDirectory() as dir:
        at = lambda name: os.path.join(dir, name)
        # kernels and drivers keep their caches; only the tuned choices are this test's
        here = {"XDG_CACHE_HOME": at("cache"), "CVY_NO_TUNE": "0", "CVY_BAD_DEFAULTS": "1"}
        caches = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
        here["POCL_CACHE_DIR"] = os.environ.get("POCL_CACHE_DIR", os.path.join(caches, "pocl", "kcache"))
        files = lambda: glob.glob(at("cache/convoy/tune-*.txt"))
        tune = ["tune", "--devices", DEVICE, "--model", "lenet", "--batch", 16]
        hint = "'convoy tune' may find faster ones, and takes about "
        steps = ["train", *LENET, "--batch", 16, "--init", "he", "--no-eval"]

        expect(0, *tune, "--show", out="nothing was found yet", env=here)
        expect(0, *tune, "--clear", err="nothing to forget", env=here)
        done = expect(0, *steps, "--max-steps", 2, "--log", at("bad.jsonl"), env=here)
        bad = lines_of(at("bad.jsonl"))[0]["run"]["conv_choices"]
        several = hint in done.stderr  # some layer can be done in several ways on this device
        check(done.stderr.count("convoy tune") == several, "a hint, once", done)
        check(not files(), "training leaves no file")
        done = expect(0, *steps, "--max-steps", 1, "--quiet", env=here)
        check(hint not in done.stderr, "no hint with --quiet", done)
        done = expect(0, *steps, "--max-steps", 1, "--tune", "off", env=here)
        check(hint not in done.stderr, "no hint with --tune off", done)
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
        with open(at("whole.st"), "rb") as a, open(at("parts.st"), "rb") as b:
            check(a.read() == b.read(), "resumed with what the checkpoint notes: the same bytes")
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

        # a damaged file is as none, and says so once; the next tune makes it good
        with open(files()[0], "r+", encoding="utf-8") as f:
            f.truncate(os.path.getsize(files()[0]) - 5)
        done = expect(0, *steps, "--max-steps", 1, err=("is damaged", hint), env=here)
        quick = [*steps, "--max-steps", 1, "--tune", "quick"]
        for _ in range(4):  # each goes on where the time of the one before was over
            expect(0, *quick, "--log", at("quick.jsonl"), env=here)
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


def test_nan():
    need_device()
    with tempfile.TemporaryDirectory() as dir:
        log = os.path.join(dir, "log")
        bad = ["train", *SMALL, "--lr", "1e6", "--momentum", "0.9", "--epochs", "1", "--log", log, "--no-eval"]
        done = expect(1, *bad, err=("step", "1e+06"))
        check(done.stdout == "" and "error" in lines_of(log)[-1], "no result; the error ends the log", done)
        expect(0, *bad, "--allow-nan")
        check(any(line.get("loss", 0) is None for line in lines_of(log)), "null for what is not finite")


class Running:
    """A run to be interrupted; waits until the log has a line with `text`; None: until training begins."""

    def __init__(self, args, log, text):
        self.process = subprocess.Popen(
            [CONVOY, *map(str, args), "--log", log], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        end = time.time() + 60
        while text is None:
            line = self.process.stderr.readline()
            if line.startswith("batch ") or not line:
                check(line != "", "training never began")
                return
        while time.time() < end and self.process.poll() is None:
            if os.path.exists(log):
                with open(log, encoding="utf-8") as f:
                    if text in f.read():
                        return
            time.sleep(0.02)
        check(
            False,
            f"the log never had {text!r}: {self.process.communicate(timeout=5) if self.process.poll() else ''}",
        )

    def end(self, number):
        begin = time.time()
        self.process.send_signal(number)
        self.stdout, self.stderr = self.process.communicate(timeout=60)
        return self.process.returncode, time.time() - begin


def test_signals():
    need_device()
    with tempfile.TemporaryDirectory() as dir:
        at = lambda name: os.path.join(dir, name)
        for number in (signal.SIGINT, signal.SIGTERM):
            ck, log, save = at(f"ck{number}"), at(f"log{number}"), at(f"save{number}")
            args = ["train", *SMALL, "--epochs", 100000, "--checkpoint", ck, "--save", save]
            r = Running(args, log, '"step":12,')
            code, _ = r.end(number)
            check(
                code == 130 and r.stdout == "" and "interrupted after step" in r.stderr,
                f"first signal: {code} {r.stdout} {r.stderr}",
            )
            check(glob.glob(ck + "/*.safetensors") and os.path.exists(save), "checkpoint and weights are saved")
            lines = lines_of(log)
            last = max(line["step"] for line in lines if "step" in line)
            check(
                lines[-1] == {"end": {**lines[-1]["end"], "interrupted": True, "steps": last + 1}},
                f"last line: {lines[-1]}",
            )
            expect(0, *args, "--resume", "--max-steps", last + 3, "--log", log, "--quiet")
            check(max(line["step"] for line in lines_of(log) if "step" in line) == last + 2, "goes on where it stopped")
        # a step of many seconds: the second signal does not wait for it
        args = [
            "train",
            "--model",
            "resnet18",
            "--data",
            "synthetic:512",
            "--devices",
            DEVICE,
            "--batch",
            512,
            "--checkpoint",
            at("slow"),
        ]
        r = Running(args, at("slowlog"), None)
        time.sleep(0.3)
        r.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        if r.process.poll() is None:  # a very fast device may be through
            code, seconds = r.end(signal.SIGINT)
            check(
                code == 130 and seconds < 3 and not glob.glob(at("slow") + "/*.safetensors"),
                f"second signal: {code} after {seconds:.1f} s",
            )
        if os.environ.get("CVY_TEST_SANITIZER") == "thread":  # holds signals back until the next blocking call
            return
        # before training has begun, the first one ends at once
        process = subprocess.Popen(
            [CONVOY, "train", *SMALL, "--data", "synthetic:3000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=30)[1].decode()
        check(
            process.returncode == 130 and "interrupted before the first step; nothing was saved" in text,
            f"a signal while preparing: {process.returncode} {text}",
        )


def test_selftest():
    """Passes; and with a wrong kernel it fails and says which operation."""
    need_device()
    device = ["--devices", DEVICE]
    result = json.loads(expect(0, "selftest", *device, "--json").stdout)
    for d in result["devices"]:
        check(d["passed"] and d["shapes"] > 30 and d["kernels"] > 100 and 0 < d["worst_error_per_bound"] <= 1, f"{d}")
    with tempfile.TemporaryDirectory() as dir:
        broken = os.path.join(dir, "cl")
        shutil.copytree(os.path.join(ROOT, "cl"), broken)
        path = os.path.join(broken, "softmax.cl")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        changed = re.sub(r"\bexp\(", "exp(1.0001f * ", text)
        check(changed != text, "softmax.cl has an exp to change")
        with open(path, "w", encoding="utf-8") as f:
            f.write(changed)
        done = expect(1, "selftest", *device, out=("FAILED softmax ", "bound"), env={"CVY_CL_DIR": broken})
        check("1 wrong" in done.stdout, "only that one", done)


FAST = ["--time", "0.02", "--devices", DEVICE, "--quiet"]


def bench(word, *args, code=0, **kw):
    """The JSON of convoy bench; stdout holds nothing else."""
    done = expect(code, "bench", word, *FAST, *args, "--json", **kw)
    result = json.loads(done.stdout, parse_constant=lambda name: 1 / 0)
    check(result["word"] == word and result["version"] and len(result["devices"]) >= 1, "frame of the JSON", done)
    return result


def check_peaks(device, names):
    for name in names.split():
        check(device["peaks"].get(name, 0) > 0, f"peak {name} of {device['device']}: {device['peaks']}")


def test_bench():
    """What can be asked, and the fields of the answers."""
    need_device()
    for device in bench("peak")["devices"]:
        check_peaks(device, "fma_gflops read_gbs write_gbs copy_gbs to_device_gbs to_host_gbs launch_us round_trip_us")
        p = device["peaks"]
        check(p["launch_us"] <= p["round_trip_us"] * 1.5, f"a launch costs less than a launch and its end: {p}")
    table = expect(0, "bench", "peak", *FAST, out=("GFLOP/s", "copy")).stdout
    check(max(map(len, table.splitlines())) <= 120, f"table of 120 columns: {table}")
    expect(1 if DEVICE == "auto" else 2, "bench", "peak", *FAST, env=NO_DEVICE, err="evice")


ROW = "operation pass shape count algorithm tile chosen tuned samples ms ms_low ms_high wall_ms event_ms flops bytes gflops gbs"
ROW = set((ROW + " of_peak of_roofline bound error error_bound").split())
PASSES = {"forward", "backward_data", "backward_weights"}


def check_row(row):
    check(set(row) - {"change"} == ROW, f"fields of a row: {sorted(row)}")
    check(0 < row["ms_low"] <= row["ms"] <= row["ms_high"] and row["wall_ms"] > 0 and row["samples"] > 0, f"times: {row}")
    check(0 <= row["error"] <= (row["error_bound"] or 1e-5), f"error: {row}")
    # the direct count, and figures that follow from others
    if row["operation"] == "conv2d":
        n, h, w, c, k, r, s, p = (int(v) for v in re.fullmatch(r"n(\d+)h(\d+)w(\d+)c(\d+)k(\d+)r(\d+)s(\d+)p(\d+)", row["shape"]).groups())
        out = ((h + 2 * p - r) // s + 1) * ((w + 2 * p - r) // s + 1)
        check(row["flops"] == 2 * n * out * k * r * r * c, f"operations: {row}")
        check(row["bytes"] == 4 * (n * h * w * c + n * out * k + r * r * c * k), f"bytes: {row}")
    check(abs(row["gbs"] * row["ms"] * 1e6 / row["bytes"] - 1) < 1e-6, f"gbs: {row}")
    check(abs(row["gflops"] * row["ms"] * 1e6 - row["flops"]) <= 1e-6 * row["flops"], f"gflops: {row}")


def test_bench_ops():
    """Rows of convolutions and of all operations; the comparison with an older file."""
    need_device()
    shape = ["--shape", "n3h9w7c20k33r3s1p1"]
    device = bench("conv", *shape)["devices"][0]
    check_peaks(device, "fma_gflops read_gbs write_gbs copy_gbs")
    rows = device["rows"]
    for row in rows:
        check_row(row)
    for name in PASSES:
        mine = [row for row in rows if row["pass"] == name]
        check(sum(row["chosen"] for row in mine) == 1, f"one row of {name} is what auto takes: {mine}")
        check(sum(row["algorithm"].startswith(("direct", "columns")) for row in mine) == 1, f"{name} by direct, once: {mine}")
    one = bench("conv", *shape, "--pass", "bwd-data", "--algo", "direct")["devices"][0]["rows"]
    check([row["pass"] for row in one] == ["backward_data"], f"one pass, one algorithm: {one}")
    automatic = bench("conv", *shape, "--algo", "auto", "--pass", "fwd")["devices"][0]["rows"]
    check(len(automatic) == 1 and automatic[0]["chosen"], f"what auto takes: {automatic}")
    more = bench("conv", *shape, "--tiles", "all", "--algo", "direct")["devices"][0]["rows"]
    check({row["pass"] for row in more} == PASSES, "all tiles of direct")

    net = bench("ops", "--model", "lenet", "--batch", "4", "--algo", "auto")["devices"][0]["rows"]
    for row in net:
        check_row(row)
    there = {row["operation"] for row in net}
    check(there == {"conv2d", "relu", "pool2d", "linear", "softmax_xent", "sgd", "gather"}, f"operations of lenet: {there}")
    norm = bench("ops", "--op", "batchnorm", "--batch", "2")["devices"][0]["rows"]
    check({row["operation"] for row in norm} == {"batchnorm"}, "--op batchnorm")
    check({row["pass"] for row in norm} == {"inference", "forward", "backward"}, "passes of batchnorm")
    check(sum(row["count"] for row in norm if row["pass"] == "forward") == 17, f"resnet18 has 17 batchnorms: {norm}")
    conv = bench("conv", "--batch", "1", "--pass", "bwd-data", "--algo", "auto")["devices"][0]["rows"]
    check(sum(row["count"] for row in conv if row["chosen"]) == 19, "20 convolutions; the first one has no data gradient")
    table = expect(0, "bench", "ops", *FAST, "--model", "lenet", "--batch", "2", "--algo", "auto", out=("together", "% roof", "x peak")).stdout
    check(max(map(len, table.splitlines())) <= 120, f"table of 120 columns: {table}")

    with tempfile.TemporaryDirectory() as dir:
        old = os.path.join(dir, "old.json")
        command = ["bench", "conv", *FAST, *shape, "--pass", "fwd", "--algo", "direct"]
        expect(0, *command, "--json", old)
        compare = ["--baseline", old, "--max-slowdown"]
        expect(0, *command, *compare, "1000%", out="vs old")
        with open(old, encoding="utf-8") as f:
            text = f.read()
        faster = json.loads(text)
        for row in faster["devices"][0]["rows"]:
            row["ms"] /= 1000
        with open(old, "w", encoding="utf-8") as f:
            json.dump(faster, f)
        expect(1, *command, *compare, "50%", err=("slower by", "n3h9w7c20k33r3s1p1 forward direct", "1 of 1 rows"))
        faster["devices"][0]["rows"][0]["shape"] = "other"
        with open(old, "w", encoding="utf-8") as f:
            json.dump(faster, f)
        expect(2, *command, *compare, "50%", err="none of the rows measured")
        expect(1, *command, "--baseline", os.path.join(dir, "none"), err="none")
        expect(0, *command, "--dump-build", err=("program conv2d_direct", "-cl-std=CL1.2"))
        # a wrong kernel: its error is in the row, and in words
        broken = os.path.join(dir, "cl")
        shutil.copytree(os.path.join(ROOT, "cl"), broken)
        path = os.path.join(broken, "eltwise.cl")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace("y[i] = cvy_relu(x[i]);", "y[i] = cvy_relu(1.01f * x[i]);"))
        relu = ["--model", "lenet", "--op", "relu", "--batch", "2"]
        rows = bench("ops", *relu, code=1, env={"CVY_CL_DIR": broken})["devices"][0]["rows"]
        check(all((row["error"] > 5e-3) == (row["pass"] == "forward") for row in rows), f"errors of a wrong relu: {rows}")
        expect(1, "bench", "ops", *FAST, *relu, env={"CVY_CL_DIR": broken}, err=("relu", "forward", "is wrong"))


TRAIN = "version word devices model batch inference steps img_s img_s_best step_ms step_ms_low step_ms_high gflops peak_gflops"
TRAIN = set((TRAIN + " fraction_of_peak peak_mib device_mib process_mib profiled_step_ms conv_choices").split())


def bench_train(*args, **kw):
    done = expect(0, "bench", "train", "--devices", DEVICE, "--quiet", "--model", "lenet", *args, "--json", **kw)
    result = json.loads(done.stdout, parse_constant=lambda name: 1 / 0)
    check(set(result) == TRAIN, f"fields: {sorted(set(result) ^ TRAIN)}", done)
    check(abs(result["img_s"] * result["step_ms"] / 1e3 / result["batch"] - 1) < 1e-6, "img_s", done)
    check(abs(result["gflops"] / result["peak_gflops"] / result["fraction_of_peak"] - 1) < 1e-6, "fraction", done)
    check(result["img_s_best"] >= result["img_s"] and result["peak_mib"] > 5, "best step, memory", done)
    return result


def test_bench_train():
    """A step's parts add up to it; the exchange alone."""
    need_device()
    result = bench_train("--batch", "256", "--steps", "3")
    check(abs(result["gflops"] / result["img_s"] / 0.01326 - 1) < 1e-3, "lenet has 13.26 MFLOP per trained image")
    for device in result["devices"]:
        families = {f["name"]: f["ms"] for f in device["families"]}
        for name in ("conv2d forward", "conv2d backward_data", "conv2d backward_weights", "linear forward", "relu backward",
                     "pool2d backward", "loss", "gather", "sgd"):
            check(families.get(name, 0) > 0, f"time of {name}: {families}")
        layers = {layer["name"]: layer for layer in device["layers"]}
        check(layers["conv2d '0'"]["backward_data_ms"] == 0, "nobody wants the data gradient of the first layer")
        check(all(layers[name][pass_] > 0 for name in ("conv2d '3'", "linear '7'", "linear '9'")
                  for pass_ in ("forward_ms", "backward_ms", "backward_data_ms")), f"times of layers: {layers}")
        kernels = device["kernels_ms"]
        outside = sum(families.get(name, 0) for name in ("loss", "gather", "sgd", "other"))
        check(abs(sum(families.values()) - kernels) < 1e-6 * kernels, "families add up to the kernels")
        check(abs(sum(v["ms"] for v in layers.values()) + outside - kernels) < 1e-6 * kernels, "layers add up to the kernels")
        check(abs(kernels + device["between_ms"] - result["profiled_step_ms"]) < 1e-6 * kernels, "and these to the step")
        # 3 % where the machine is quiet and the network is large
        check(kernels > 0.7 * result["profiled_step_ms"], f"most of the step is kernels: {kernels} {result['profiled_step_ms']}")
    result = bench_train("--batch", "32", "--steps", "1", "--inference", "--no-breakdown")
    check(result["inference"] and result["profiled_step_ms"] is None and "layers" not in result["devices"][0], "rate alone")
    check(abs(result["gflops"] / result["img_s"] / 0.0045007 - 1) < 1e-3, "forward of lenet is 4.5 MFLOP")
    result = bench_train("--batch", "32", "--steps", "1", "--conv-algo", "direct", "--no-breakdown")
    chosen = [algo for layers in result["conv_choices"] for layer in layers.values() for algo in layer if algo]
    check(chosen and all(str(algo).startswith("direct") for algo in chosen), f"--conv-algo direct: {result['conv_choices']}")
    table = expect(0, "bench", "train", "--devices", DEVICE, "--quiet", "--model", "lenet", "--steps", "1",
                   out=("img/s", "x the FMA peak", "between kernels", "conv2d '3'")).stdout
    check(max(map(len, table.splitlines())) <= 120, f"table of 120 columns: {table}")

    result = bench("exchange", "--model", "lenet", "--buckets", "0.125,64")
    check(result["gradient_bytes"] > 4 * 129068, "lenet's gradients")
    check([row["buckets"] for row in result["team"]] == [-(-result["gradient_bytes"] // 131072), 1], f"{result['team']}")
    for device in result["devices"]:
        check(len(device["rows"]) == 2 and all(row["to_device_gbs"] > 0 for row in device["rows"]), f"{device}")
    staged = bench("exchange", "--model", "lenet", "--buckets", "1", env={"CVY_FORCE_STAGING": "1"})["devices"][0]
    check(not staged["mapped"] and staged["rows"][0]["to_host_gbs"] > 0, f"{staged}")


def tool(name, *args, code=0, err="", out="", **kw):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", name), *args], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=280, **kw)
    check(done.returncode == code and err in done.stderr and out in done.stdout, f"{name}: exit {code}, {err!r}, {out!r}", done)
    return done


FAKE_TORCH = """#!{python}
# Stands for a Python with PyTorch: the version, or a line of torch_baseline.py.
import sys
if sys.argv[1] == "-c":
    print("9.9 False")
elif "compile" in sys.argv:
    sys.exit("no compiler")
else:
    print("task=train model=lenet mode=eager layout=" + sys.argv[sys.argv.index("--layout") + 1],
          "img_s=" + ("200" if "nhwc" in sys.argv else "100"), "img_s_median=" + ("180" if "nhwc" in sys.argv else "90"),
          "gflops=1 peak_mib=70")
"""


def test_bench_tools():
    """compare-torch and gpu-report, with a stand-in for PyTorch."""
    need_device()
    with tempfile.TemporaryDirectory() as dir:
        python, result, report = (os.path.join(dir, name) for name in ("python", "result.json", "report.md"))
        with open(python, "w", encoding="utf-8") as f:
            f.write(FAKE_TORCH.format(python=sys.executable))
        os.chmod(python, 0o755)
        tool("compare-torch", "--rounds", "0", "--convoy", CONVOY, code=2, err="--rounds 0: expected a whole number from 1")
        tool("compare-torch", "--convoy", os.path.join(dir, "none"), code=2, err="there is no program convoy")
        tool("compare-torch", "--convoy", CONVOY, "--python", "/bin/false", code=2, err="pip install torch numpy")
        tool("compare-torch", "--convoy", CONVOY, "--python", python, "--device", "cuda", code=2, err="no CUDA device")
        done = tool("compare-torch", "--convoy", CONVOY, "--python", python, "--model", "lenet", "--rounds", "2", "--steps", "1",
                    "--batch", "16", "--devices", DEVICE, "--json", result, out="middle", err="compile nchw")
        with open(result, encoding="utf-8") as f:
            both = json.load(f)["results"]
        check([r["task"] for r in both] == ["train", "eval"], "training and evaluation", done)
        for r in both:
            check(r["torch_img_s"] == 180 and [x["torch"]["layout"] for x in r["rounds"]] == ["nhwc"] * 2, "best way of PyTorch", done)
            check([len(x["torch_all"]) for x in r["rounds"]] == [2, 1], "only the best one after the first round", done)
            check(abs(r["ratio"] * 180 / r["convoy_img_s"] - 1) < 1e-9 and r["convoy_mib"] > 5, "ratio", done)

        tool("gpu-report", "--only", "nothing", code=2, err="the steps are: system compile")
        build = os.path.dirname(os.path.dirname(CONVOY))
        here = ["--device", "cpu" if DEVICE == "auto" else DEVICE, "--quick", "--build", build, "--out", report, "--python", "/bin/false"]
        tool("gpu-report", *here, "--only", "system", "peak", "exchange", "torch", out="all well")
        with open(report, encoding="utf-8") as f:
            text = f.read()
        for words in ("| bench peak | well |", "GFLOP/s, read", "| PyTorch beside it | skipped |", "$ uname -a"):
            check(words in text, f"the report has {words!r}: {text}")
        tool("gpu-report", *here, "--only", "peak", code=1, out="not well: devices, devices in words, peak",
             env={**os.environ, **NO_DEVICE})
        with open(report, encoding="utf-8") as f:
            check("| peak | left out |" in f.read(), "a step without device is named")


if __name__ == "__main__":
    globals()["test_" + sys.argv[2]]()
    sys.exit(1 if failures else 0)
