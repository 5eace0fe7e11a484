#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it: test_cli_train.py CONVOY GROUP   (groups: the functions named test_<group> below)

Training. Exit 77 where a group needs a device and there is none."""

import json
import math
import os
import pty
import re
import signal
import subprocess
import time
import xml.dom.minidom

from cli import (call, check, CONVOY, DEVICE, device_times, expect, first_device, with_layer, LENET, lines_of, read, read_bytes, read_json, same, SMALL,
                 main, write_idx)

RESULT = r"test acc: [01]\.\d\d, {} on \[\d+:\d+[^\]]+\]\n"


def check_log(path, first_step, last_step, batch=64, epoch_steps=10):
    """The schema of a log (doc/training.md); returns the lines."""
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
        check(set(e) == {"epoch", "train_loss", "train_acc", "test_acc", "sec"} and e["sec"] > 0, f"epoch: {e}")
    return lines


def test_train(at):
    done = expect(
        0, "train", *SMALL, "--max-steps", 3, "--log", at("a.jsonl"), "--save", at("a.st"), "--plot", at("a.svg")
    )
    check(done.stderr.endswith(f"saved: {at('a.st')}, {at('a.svg')}, {at('a.jsonl')}\n"), "where things are is said last", done)
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
        len(re.findall(r"^epoch \d/2 loss \d+\.\d\d train acc [01]\.\d\d test acc [01]\.\d\d \d+\.\d s$", done.stderr, re.M)) == 2,
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
        ms -= 1e3 * lines[-2]["start"]["first_step_extra_sec"] if e["epoch"] == 0 else 0
        check(abs(ms / 1e3 - e["sec"]) < 1e-3, f"the steps' times add up to the epoch's: {ms} ms, {e['sec']} s")
    svg = xml.dom.minidom.parse(at("b.svg"))
    check(
        len(svg.getElementsByTagName("polyline")) == 3 and len(svg.getElementsByTagName("circle")) == 6,
        "two points on three curves",
    )

    # the bar leaves out the first step, whose launches compile kernels
    master, slave = pty.openpty()
    subprocess.run([CONVOY, "train", *LENET, "--batch", "320", "--epochs", "1", "--no-eval", "--log", at("bar.jsonl")],
                   stdout=subprocess.DEVNULL, stderr=slave, timeout=120, env={**os.environ, "TERM": "xterm"})
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
    # a pipe with a reader is written directly, to its end
    os.mkfifo(at("pipe"))
    for option, begin in [("--save", b""), ("--plot", b"<?xml"), ("--log", b'{"run"'), ("--trace", b'{"traceEvents"')]:
        with open(at("got"), "w+b") as got, subprocess.Popen(["cat", at("pipe")], stdout=got) as cat:
            expect(0, "train", *SMALL, "--epochs", 1, "--max-steps", 1, "--quiet", option, at("pipe"))
            cat.wait(timeout=20)
            got.seek(0)
            content = got.read()
            check(content.startswith(begin) and len(content) > 200, f"{option} to a pipe: {content[:40]}")
    # no step has as many images as were asked for
    expect(
        0,
        "train",
        *LENET,
        *["--batch", 5000, "--max-steps", 1, "--no-eval", "--quiet"],
        err="--batch 5000 is larger than the 640 training images: every step uses all of them",
    )

    # algorithms: the log tells which were taken; one that cannot do some layer is refused, with the layer's name
    chosen = lines[0]["run"]["conv_choices"]
    check(
        list(chosen[0]) == ["0", "3", "7", "9"]
        and all(c == "convpool" or c[0] and c[2] and (c[1] is None) == (name == "0") for name, c in chosen[0].items()),
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
    same(at("fp32.st"), at("tf32.st"), "float32 where there is no TF32")
    expect(0, "eval", "--weights", at("a.st"), *LENET, "--math", "tf32", err="no TF32 here")

    refused = ("layer '", "winograd4 cannot do", "',direct'")
    done = expect(2, *forced, "--conv-algo", "winograd4", err=refused)
    check(done.stderr.count("error:") == 1, "one message", done)
    expect(2, "eval", "--weights", at("a.st"), *LENET, "--conv-algo", "winograd4", err=refused)
    expect(0, "eval", "--weights", at("a.st"), *LENET, "--conv-algo", "winograd4,direct")

    # quiet: one line on stdout, nothing on stderr; the same run gives the same weights
    done = expect(0, "train", *SMALL, "--max-steps", 3, "--save", at("c.st"), "--quiet")
    check(done.stderr == "", "--quiet", done)
    same(at("a.st"), at("c.st"), "same settings, same bytes")
    done = expect(0, "train", *SMALL, "--max-steps", 3, "--no-eval", "--quiet")
    check(done.stdout.startswith("train loss: ") and "img/s" in done.stdout, "--no-eval: the loss", done)

    # probes: the same run without overlap; no run at all without exchange
    expect(0, "train", *SMALL, "--max-steps", 3, "--no-overlap", "--save", at("late.st"), "--quiet")
    same(at("a.st"), at("late.st"), "--no-overlap changes no number")
    done = expect(0, "train", *SMALL, "--max-steps", 3, "--no-sync", "--log", at("probe.jsonl"), "--quiet",
                  err="this is a measurement, not training")
    check(done.stdout.startswith("not training (--no-sync), ") and "test acc" not in done.stdout, "--no-sync", done)
    lines = lines_of(at("probe.jsonl"))
    check(lines[0]["run"]["settings"]["no_sync"] and lines[-1]["end"]["trained"] is False, f"--no-sync's log: {lines[-1]}")

    # stale weights: said, other numbers, not on one device, not resumed without
    expect(2, "train", *SMALL, "--staleness", 1, err="on one device")
    two = ["train", *LENET[:-1], DEVICE + "*2", "--batch", 64, "--init", "he", "--no-eval", "--split", "even"]
    stale = [*two, "--staleness", 1, "--checkpoint", at("stale"), "--quiet"]
    expect(0, *stale, "--max-steps", 5, "--log", at("stale.jsonl"), err="without the previous step's update")
    expect(0, *two, "--max-steps", 5, "--quiet", "--log", at("fresh.jsonl"))
    fresh, old = ([line["loss"] for line in lines_of(at(name)) if "step" in line] for name in ("fresh.jsonl", "stale.jsonl"))
    check(fresh[0] == old[0] and fresh[1] != old[1], f"losses with and without staleness: {old}, {fresh}")
    check(lines_of(at("stale.jsonl"))[0]["run"]["settings"]["staleness"] == 1, "staleness in the log")
    expect(2, *two, "--checkpoint", at("stale"), "--resume", "--staleness", 0, "--max-steps", 6, err="staleness: 1 in the checkpoint")
    expect(0, *stale, "--resume", "--max-steps", 8, "--save", at("stale8.st"))
    expect(0, *two, "--staleness", 1, "--quiet", "--max-steps", 8, "--save", at("whole8.st"))
    same(at("stale8.st"), at("whole8.st"), "a stale run in pieces")

    # gradients in half the bytes: noted, nearly the same losses, not on one device, in pieces the same bits
    expect(2, "train", *SMALL, "--exchange", "bf16", err="exchange bf16 on one device")
    expect(2, *two, "--exchange", "bf16", "--no-sync", err="exclude each other")
    half = [*two, "--exchange", "bf16", "--checkpoint", at("half"), "--verify-every", 2, "--quiet"]
    expect(0, *half, "--max-steps", 5, "--log", at("half.jsonl"))
    near = [line["loss"] for line in lines_of(at("half.jsonl")) if "step" in line]
    check(near != fresh and all(abs(a - b) < 5e-3 * a for a, b in zip(fresh, near)), f"losses with bf16: {near}, without: {fresh}")
    check(lines_of(at("half.jsonl"))[0]["run"]["settings"]["exchange"] == "bf16" and
          lines_of(at("fresh.jsonl"))[0]["run"]["settings"]["exchange"] == "fp32", "exchange in the log")
    expect(2, *two, "--checkpoint", at("half"), "--resume", "--exchange", "fp32", "--max-steps", 6, err='exchange: "bf16" in the checkpoint')
    expect(0, *half, "--resume", "--max-steps", 8, "--save", at("half8.st"))
    expect(0, *two, "--exchange", "bf16", "--quiet", "--max-steps", 8, "--save", at("half8whole.st"))
    same(at("half8.st"), at("half8whole.st"), "a run with bf16 in pieces")

    # the rate of each step is in the log, and a run in pieces has the rates of a run in one
    rates = lambda name: [line["lr"] for line in lines_of(at(name)) if "lr" in line]
    slope = ["train", *SMALL, "--epochs", 2, "--no-eval", "--quiet", "--lr-schedule", "step:1e,0.5",
             "--warmup", 4, "--log"]
    expect(0, *slope, at("slope.jsonl"))
    per_epoch = len(rates("slope.jsonl")) // 2
    check(rates("slope.jsonl") == [0.025, 0.05, 0.075] + [0.1] * (per_epoch - 3) + [0.05] * per_epoch, f"{rates('slope.jsonl')}")
    cosine = [*slope[:-5], "--lr-schedule", "cosine", "--checkpoint", at("cosine"), "--resume", "--log", at("cosine.jsonl")]
    expect(0, *cosine, "--max-steps", per_epoch)
    expect(2, *cosine, "--epochs", 3, err="lr_schedule")
    expect(2, *cosine, "--warmup", 1, err="warmup")
    expect(0, *cosine)
    want = [0.05 * (1 + math.cos(math.pi * i / per_epoch / 2)) for i in range(2 * per_epoch)]
    got = rates("cosine.jsonl")
    check(len(got) == len(want) and all(abs(a - b) < 1e-7 for a, b in zip(got, want)), f"{got}")
    expect(2, *slope[:-1], "--warmup", "2e", err="warm-up of")

    # whole batches only; the run's own setting
    whole = ["train", *LENET[:2], "--data", "synthetic:100:28x28x1", "--batch", 40, "--no-eval", "--epochs", 2, "--drop-last"]
    whole += ["--checkpoint", at("whole")]
    done = expect(0, *whole, "--max-steps", 3, "--log", at("whole.jsonl"))
    check("every epoch leaves out 20 images" in done.stderr, "what is left out", done)
    expect(0, *whole, "--resume", "--log", at("whole.jsonl"))
    lines = lines_of(at("whole.jsonl"))
    check([line["images"] for line in lines if "lr" in line] == [40] * 4, f"steps of whole batches: {lines}")
    check(lines[0]["run"]["settings"]["drop_last"] is True, f"{lines[0]}")
    expect(0, *[word for word in whole if word != "--drop-last"], "--resume", err="taken from " + at("whole") + ": --drop-last")
    expect(2, *whole, "--batch", 101, err="expected --batch 100 or less")

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


def test_balance(at):
    """--split auto with a device that the test layer makes slow; so few steps that shares stay."""
    first = first_device()
    slow = with_layer("slow=1:20")
    team = ["train", "--model", "lenet", "--data", "synthetic:640", "--init", "he", "--batch", 128, "--devices", first + "*2", "--epochs", 1]
    auto = [*team, "--split", "auto"]
    done = expect(0, *auto, "--save", at("auto.st"), "--log", at("log"), env=slow, err=("shares by measured speed: ", "even shares"))
    told = re.search(r"--shares (\d+),(\d+) repeats this run bit for bit\n", done.stderr)
    check(told, "the shares that repeat the run", done)
    shares = [int(n) for n in told.groups()]
    check(sum(shares) == 128 and shares[0] > 2 * shares[1], f"shares {shares}", done)
    lines = lines_of(at("log"))
    run_line, change = lines[0]["run"], lines[1]["balance"]
    check(run_line["settings"]["split"] == "auto" and run_line["shares"] == shares, f"{run_line}")
    check(change["step"] == 0 and change["shares"] == shares and change["before"] == [64, 64], f"{change}")
    check(change["expected_ms"] < change["expected_ms_before"] and len(change["devices"][1]["measured_ms"]) >= 2, f"{change}")
    check(all(line["shares"] == shares for line in lines[2:] if "images" in line), "shares of each step")
    expect(0, *team, "--shares", ",".join(map(str, shares)), "--save", at("given.st"), "--quiet")
    parts = [*auto, "--checkpoint", at("ck"), "--resume"]
    part = expect(0, *parts, "--max-steps", 2, env=slow)
    told = re.search(r"--shares (\d+),(\d+) repeats", part.stderr)
    check(told, "the shares of the first part", part)
    # resumed where the devices are equal: with the shares of the checkpoint all the same
    expect(0, *parts, "--save", at("parts.st"), "--log", at("log2"))
    check(all(line["shares"] == [int(n) for n in told.groups()] for line in lines_of(at("log2")) if "images" in line), "resumed shares")
    expect(0, *team, "--shares", ",".join(told.groups()), "--save", at("given2.st"), "--quiet")
    for a, b in (("auto.st", "given.st"), ("parts.st", "given2.st")):
        same(at(a), at(b), f"{a} and {b}: the same bytes")
    # a team of one kind is even by default, without a measurement, and so is a resumed one
    done = expect(0, *team, "--log", at("log3"), "--checkpoint", at("ck3"), "--max-steps", 2, env=slow)
    check("measured" not in done.stderr and lines_of(at("log3"))[0]["run"]["settings"]["split"] == "even", "the default", done)
    expect(0, *team, "--checkpoint", at("ck3"), "--resume")
    expect(0, *parts, "--split", "even")   # lenet has no batch statistics: any split will do


def test_resume(at):
    straight = ["train", *SMALL, "--epochs", 2, "--momentum", 0.9, "--quiet"]
    parts = [*straight, "--checkpoint", at("ck"), "--resume", "--log", at("log")]
    expect(0, *straight, "--save", at("whole.st"))
    expect(0, *parts, "--max-steps", 7)
    with open(at("log"), "a", encoding="utf-8") as f:
        f.write('{"epoch":0,"st')  # as a killed run leaves it
    expect(0, *parts, "--save", at("parts.st"))
    same(at("whole.st"), at("parts.st"), "resumed in the middle of an epoch: the same bytes")
    text = read(at("log")).splitlines()
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

    # a device with other compute units is another one
    here = [*straight, "--checkpoint", at("units"), "--resume", "--log", at("units.jsonl")]
    expect(0, *here, "--max-steps", 2, env={"POCL_MAX_PTHREAD_COUNT": "1"})
    head = lines_of(at("units.jsonl"))[0]["run"]
    check(len(head["compute_units"]) == len(head["drivers"]) == 1 and head["drivers"][0], f"the log's run line: {head}")
    done = expect(0, *[word for word in here if word != "--quiet"], "--max-steps", 3, env={"POCL_MAX_PTHREAD_COUNT": "4"})
    runs = [line["run"] for line in lines_of(at("units.jsonl")) if "run" in line]
    if runs[0]["compute_units"] != runs[1]["compute_units"]:
        check("has 4 compute units" in done.stderr and "another team" in done.stderr and "not bit for bit" in done.stderr,
              "another number of compute units is told", done)

    # another team: lenet has no batchnorm, so any; resnet18 with groups any, else with the same shares
    losses = lambda name: [line["loss"] for line in lines_of(at(name)) if "lr" in line]
    calm = ["train", *SMALL, "--epochs", 2, "--lr", 0.02, "--quiet"]   # a rate that does not make much of rounding
    away = ["--checkpoint", at("away"), "--resume", "--log", at("away.jsonl")]
    first = first_device()
    two = ["--devices", first + "*2"]
    expect(0, *calm, "--log", at("whole.jsonl"))
    expect(0, *calm, *away, "--max-steps", 5)
    expect(0, *calm, *away, *two, "--shares", "40,24", "--max-steps", 13)
    expect(0, *calm, *away)
    near = lambda a, b: len(a) == len(b) and all(abs(x - y) <= 1e-4 * y for x, y in zip(a, b))
    check(near(losses("away.jsonl"), losses("whole.jsonl")), f"{losses('away.jsonl')} for {losses('whole.jsonl')}")
    norm = ["train", "--model", "resnet18", "--data", "synthetic:48:8x8x3", "--no-eval", "--batch", 12, "--epochs", 1]
    for bn in "ghost:4", "sync":
        here = [*norm, "--bn", bn, "--checkpoint", at(bn), "--resume", "--log", at(bn + ".jsonl")]
        expect(0, *norm, "--bn", bn, "--log", at("one.jsonl"))
        expect(0, *here, "--devices", first, "--max-steps", 2)
        done = expect(0, *here, *two, "--shares", "8,4", err=("with shares 12", "8+4 on another team"))
        check(near(losses(bn + ".jsonl"), losses("one.jsonl")), f"--bn {bn}: {losses(bn + '.jsonl')}", done)
    here = [*norm, "--checkpoint", at("own"), "--resume"]
    expect(0, *here, *two, "--max-steps", 2)
    expect(2, *here, "--devices", first, err=("shares 6,6", "bn device", "ghost groups or sync"))
    expect(2, *here, *two, "--shares", "8,4", err="split")
    expect(0, *here, "--devices", first + "*2")

    # statistics of the whole batch need each share in one pass
    large = ["train", "--model", "resnet18", "--data", "synthetic:96:16x16x1", "--batch", 96, "--max-steps", 1, "--no-eval"]
    expect(2, *large, "--devices", first, "--bn", "sync", env={"CVY_MEMORY_LIMIT_MIB": "120"}, err=("in one pass", "ghost groups of at most"))

    # what is not given is the checkpoint's, what is given and differs is refused
    bare = ["train", "--checkpoint", at("bare"), "--resume", "--quiet"]
    first_part = [*SMALL[:-4], "--batch", 64, "--epochs", 2, "--momentum", 0.9, "--init-from", at("whole.st")]
    expect(0, *bare, *first_part, "--max-steps", 3)
    os.rename(at("whole.st"), at("whole2.st"))   # it is not needed any more
    done = expect(0, *bare[:-1], "--save", at("bare.st"), err=("--resume: taken from", "--model lenet", "--momentum 0.9", "--epochs 2"))
    expect(0, "train", *SMALL[:-4], "--batch", 64, "--epochs", 2, "--momentum", 0.9, "--init-from", at("whole2.st"), "--quiet",
           "--save", at("straight.st"))
    same(at("straight.st"), at("bare.st"), "resumed without a word: the same bytes", done)
    expect(2, *bare, "--lr", 0.2, err=("lr", "0.1 in the checkpoint, 0.2 now"))
    expect(2, "train", "--checkpoint", at("none"), "--resume", err="--model NAME is missing")

    # what is refused changes no file
    before = read_bytes(at("log"))
    expect(2, *parts, "--lr", 0.2)
    expect(2, *(part for part in parts if part != "--resume"), err="--resume")
    check(read_bytes(at("log")) == before, "a refused run leaves the log as it was")

    # the figure of a run that goes on: whole with the log of its first part, else with a word about it
    points = lambda: len(xml.dom.minidom.parse(at("p.svg")).getElementsByTagName("circle")) // 3
    plot = ["train", *LENET, "--batch", 320, "-q", "--plot", at("p.svg"), "--checkpoint", at("ckp"), "--resume"]
    log = ["--log", at("plog")]
    expect(0, *plot, *log, "--epochs", 2)
    done = expect(0, *plot, *log, "--epochs", 3)
    check(points() == 3 and "warning" not in done.stderr, f"{points()} points of 3", done)
    os.remove(at("p.svg"))
    expect(0, *plot, "--epochs", 3, err=("--plot", "not drawn", "already finished"))
    check(not os.path.exists(at("p.svg")), "nothing to draw")
    done = expect(0, *plot, "--epochs", 3, "--no-eval")
    check(re.fullmatch(r"no step was left of 6 on \[[^\]]+\]\n", done.stdout), "no loss where no step was made", done)
    expect(0, *plot, *log, "--epochs", 3)
    check(points() == 3, f"drawn again from the log: {points()} points of 3")
    expect(0, *plot, "--epochs", 4, err="the curve begins with epoch 4")
    check(points() == 1, f"{points()} points of 1")


def test_input(at):
    """Normalised and augmented: the same bytes in parts and whatever the division of a batch; refused where it cannot be."""
    device = first_device()
    small = ["--model", "lenet", "--data", "synthetic:300:20x20x3", "--batch", 32, "--init", "he", "--lr", 0.02, "--quiet", "--epochs", 2]
    whole = [*small, "--devices", device]
    how = ["--normalize", "dataset", "--augment", "flip,crop:4,jitter:0.2,0.2,0.2,0.05,cutout:6"]
    expect(0, "train", *whole, *how, "--save", at("whole.st"), "--log", at("log"))
    settings = lines_of(at("log"))[0]["run"]["settings"]
    check(settings["normalize"] == how[1] and settings["augment"] == how[3], f"settings: {settings}")
    # in three parts, two of them in the middle of an epoch; the second takes its options from the checkpoint
    parts = ["--checkpoint", at("ck"), "--resume", "--save", at("parts.st"), "--quiet"]
    expect(0, "train", *whole, *how, *parts, "--max-steps", 7)
    expect(2, "train", *whole, "--normalize", "none", *parts, err='normalize: "dataset" in the checkpoint, "none" now')
    expect(2, "train", *whole, "--augment", "flip", *parts, err='jitter:0.2,0.2,0.2,0.05,cutout:6" in the checkpoint, "flip" now')
    expect(0, "train", *parts, "--max-steps", 13)
    expect(0, "train", *parts)
    same(at("whole.st"), at("parts.st"), "resumed in the middle of an epoch: other weights")
    # whichever of two devices has the samples
    for shares in ("32,0", "0,32"):
        expect(0, "train", *small, *how, "--devices", device + "*2", "--shares", shares, "--save", at("two.st"))
        same(at("whole.st"), at("two.st"), f"--shares {shares}: other weights")
    for other in ([], how[:2], how[2:], [*how[:3], "resized-crop:0.5-1"], [*how, "--seed", 1]):
        expect(0, "train", *small[:-2], *other, "--devices", device, "--epochs", 1, "--save", at("other.st"))
        check(read_bytes(at("other.st")) != read_bytes(at("whole.st")), f"{other} changes nothing")
    evaluate = ["eval", "--model", "lenet", "--data", "synthetic:300:20x20x3", "--devices", device, "--weights", at("whole.st"), "--json", "-"]
    loss = lambda *more: json.loads(expect(0, *evaluate, *more).stdout)["loss"]
    check(loss("--normalize", "none") != loss(), "eval normalises as training did")
    expect(2, "train", *LENET, "--normalize", "imagenet", "--devices", device, err="mean and deviation of 3 channels, but the images have 1")
    expect(2, "train", *LENET, "--augment", "jitter:0,0,0,0.1", "--devices", device, err="gray ones have no saturation and no hue")
    expect(2, "train", *LENET, "--augment", "crop:99", "--devices", device, err="must be 1 to the shorter side, 28")


def test_sweep(at):
    """Several rates and seeds: the bits and names of the runs alone, a table, going on after a stop, runs that diverge."""
    base = ["train", "--model", "lenet", "--data", "synthetic:200", "--devices", first_device(), "--batch", 40, "--epochs", 2, "--val-split", 0.1]
    sweep = [*base, "--lr", "0.05,0.2", "--seed", "0-1"]
    files = ["--save", at("w.st"), "--save-best", at("best.st"), "--log", at("l.jsonl"), "--plot", at("p.svg"), "--report", at("r.html"), "--trace",
             at("t.json"), "--checkpoint", at("c.k")]
    done = expect(0, *sweep, *files)
    runs = [f"-lr{lr}-seed{seed}" for lr in ("0.05", "0.2") for seed in (0, 1)]
    wanted = {f"{name}{run}{end}" for run in runs for name, end in (
        ("w", ".st"), ("best", ".st"), ("l", ".jsonl"), ("p", ".svg"), ("r", ".html"), ("t", ".json"), ("c.k", ""))}
    check(set(os.listdir(at(""))) == wanted, f"files: {sorted(os.listdir(at('')))}", done)
    results = done.stdout.splitlines()
    check([line.split("], ")[1] for line in results] == ["lr 0.05, seed 0", "lr 0.05, seed 1", "lr 0.2, seed 0", "lr 0.2, seed 1"], "order", done)
    ends = [lines_of(at(f"l{run}.jsonl"))[-1]["end"] for run in runs]
    losses = [[line["train_loss"] for line in lines_of(at(f"l{run}.jsonl")) if "train_loss" in line][-1] for run in runs]
    rows = [line.split() for line in done.stderr.splitlines() if re.match(r"0\.\d+ +(\d|mean)", line)]
    check(len(rows) == 6 and [row[1] for row in rows] == ["0", "1", "mean"] * 2, f"rows: {rows}", done)
    for row, end, loss in zip([row for row in rows if row[1] != "mean"], ends, losses):
        check(row[2] == f"{end['test_acc']:.4f}" and row[4] == f"{loss:.4f}", f"{row}: {end}, {loss}", done)
    mean, deviation = (losses[2] + losses[3]) / 2, abs(losses[2] - losses[3]) / math.sqrt(2)
    check(rows[5][4] == f"{mean:.4f}+-{deviation:.4f}", f"{rows[5]}: {mean} {deviation}", done)
    expect(0, *base, "--lr", 0.2, "--seed", 1, "--save", at("alone.st"), "--quiet")
    same(at("alone.st"), at("w-lr0.2-seed1.st"), "a run of a sweep: the bytes of the run alone")

    # finished runs are not repeated, one that was interrupted goes on
    stop = ["train", *LENET, "--epochs", 10, "--batch", 16, "--lr", "0.05,0.2", "--no-eval", "--checkpoint", at("parts"), "--save", at("parts.st"),
            "--log", at("parts.jsonl")]
    whole = ["--checkpoint", at("whole"), "--save", at("whole.st"), "--log", at("whole.jsonl")]
    expect(0, *stop[:-6], *whole, "--quiet")
    job = subprocess.Popen([CONVOY, *map(str, stop)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    for _ in range(600):
        if os.path.exists(at("parts-lr0.2-seed0.jsonl")) and len(read(at("parts-lr0.2-seed0.jsonl")).splitlines()) > 3:
            break
        time.sleep(0.02)
    job.send_signal(signal.SIGINT)
    told = job.communicate()[1]
    check(job.returncode == 130 and "the sweep ends in run 2 of 2 (lr 0.2, seed 0); the same command with --resume continues" in told, told)
    done = expect(0, *stop, "--resume", err=("parts-lr0.05-seed0 is already finished", "finished before"))
    for run in ("-lr0.05-seed0", "-lr0.2-seed0"):
        same(at(f"parts{run}.st"), at(f"whole{run}.st"), "a sweep that was interrupted: the same bytes", done)

    # a run that diverges, names that would be the same, a sweep that no machine can do alone
    done = expect(0, *base, "--lr", "1e5,0.1", err=("has diverged", "diverged in step"))
    check(len(done.stdout.splitlines()) == 1, "no result of a run that diverged", done)
    expect(1, *base, "--lr", "1e5,2e5", err="diverged in step")
    for option, value, why in (("--lr", "0.1,0.10", "appears twice"), ("--seed", "0-2,1", "appears twice"), ("--seed", "3-1", "A-B"),
                               ("--seed", "0-5000", "at most 1024"), ("--lr", "0.1,", "X1,X2")):
        expect(2, *base, option, value, err=why)
    expect(2, *base, "--seed", "0-1", "--nodes", "a,b", "--node", 0, err="a sweep runs on one machine")


def test_words(at):
    """Paths and a device's name that are not UTF-8: everything that holds them in JSON is made all the same."""
    odd = os.fsdecode(b"d\xe4ten")
    env = with_layer(os.fsdecode(b"device-name=K\xe4rtchen"))
    plain, at = at, lambda name: plain(odd, name)
    os.mkdir(at(""))
    write_idx(at(""), 40)
    base = ["--model", "lenet", "--data", at(""), "--batch", 20, "--devices", first_device()]
    files = ["--save", at("w.st"), "--trace", at("trace"), "--checkpoint", at("ck"), "--resume", "--log", at("log")]
    for steps in (1, 2):
        expect(0, "train", *base, *files, "--max-steps", steps, env=env)
    lines = lines_of(at("log"))
    text = plain("d\\xe4ten", "")
    for head in (line["run"] for line in lines if "run" in line):
        check(head["devices"] == [first_device() + " K\\xe4rtchen"] and head["data"]["name"] == text, f"first line: {head}")
        settings = head["settings"]
        check((settings["data"], settings["save"]) == (text, text + "w.st"), f"settings: {settings}")
    check([line["step"] for line in lines if "step" in line] == [0, 1] and "end" in lines[-1], f"all of the log: {lines}")
    names = [e["args"]["name"] for e in read_json(read(at("trace")))["traceEvents"] if e["name"] == "process_name"]
    check(any("K\\xe4rtchen" in name for name in names), f"the trace names the device: {names}")
    done = expect(0, "eval", "--weights", at("w.st"), *base, "--json", env=env)
    result = json.loads(done.stdout)
    check((result["weights"], result["data"]) == (text + "w.st", text), "eval --json", done)
    # an error that names a path: no file may be larger than 500 KiB; a checkpoint is 505, what compilers write aside is smaller
    files = ["--checkpoint", at("full"), "--checkpoint-every", 1, "--log", at("error"), "--max-steps", 2]
    few = ["sh", "-c", 'trap "" XFSZ; ulimit -f 1000; exec "$@"', "sh", CONVOY]
    done = call([*few, "train", *base, *files], env=env)
    check(done.returncode == 1 and "File too large" in done.stderr, "a checkpoint that cannot be written", done)
    last = lines_of(at("error"))[-1]
    check("error" in last and "d\\xe4ten" in last["error"]["message"], f"last line: {last}")


def test_cancelled(at):
    """A bias in front of a batch normalisation has the gradient zero, on any division of a batch: Adam makes full steps of rounding noise. Behind
    running values, which do not move with it, it is trained."""
    args = ["train", "--model", "resnet18", "--data", "synthetic:64:32x32x3", "--devices", device_times(2), "--batch", 16, "--optimizer", "adam",
            "--lr", "0.01", "--max-steps", 3, "--no-eval", "--quiet", "--tune", "off", "--save", at("w.st")]
    for words, moves in (([], ()), (["--shares", "5,11"], ()), (["--bn", "ghost:4"], ()), (["--bn", "sync"], ()), (["--freeze", "1"], ("0.bias",))):
        expect(0, *args, *words)
        data = read_bytes(at("w.st"))
        length = int.from_bytes(data[:8], "little")
        spans = {name: t["data_offsets"] for name, t in json.loads(data[8 : 8 + length]).items() if name != "__metadata__"}
        moved = {name for name, (begin, end) in spans.items() if name.endswith(".bias") and any(data[8 + length + begin : 8 + length + end])}
        biases = {name for name in spans if name.endswith((".conv1.bias", ".conv2.bias")) or name == "0.bias"}
        check(len(biases) == 17 and moved & biases == set(moves), f"{words}: {sorted(moved & biases)}")
        check("resnet_block1.0.bn1.bias" in moved, f"{words}: {sorted(moved)}")


def test_nan(at):
    log = at("log")
    bad = ["train", *SMALL, "--lr", "1e6", "--momentum", "0.9", "--epochs", "1", "--log", log, "--no-eval"]
    done = expect(1, *bad, err=("step", "1e+06"))
    check(done.stdout == "" and "error" in lines_of(log)[-1], "no result; the error ends the log", done)
    done = expect(0, *bad, "--allow-nan", err="loss nan", out="train loss: nan")
    check("-nan" not in done.stdout + done.stderr, "a NaN has no sign", done)
    check(any(line.get("loss", 0) is None for line in lines_of(log)), "null for what is not finite")


if __name__ == "__main__":
    main(globals())
