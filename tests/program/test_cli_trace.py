#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it: test_cli_trace.py CONVOY GROUP   (groups: the functions named test_<group> below)

Where a run's time goes: traces, sums, status lines. Exit 77 where a group needs a device and there is none."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from cli import (check, CONVOY, device_times, expect, first_device, LENET, with_layer, lines_of, read, read_bytes, read_json,
                  SMALL, main)


def covered(spans):
    """Sum of what the spans cover together."""
    total, end = 0, float("-inf")
    for begin, stop in sorted(spans):
        total += max(0, stop - max(begin, end))
        end = max(end, stop)
    return total


def check_trace(path, log, n_devices, units):
    """The file's schema, that slices nest, what is named, and that the rows agree with the log's sums."""
    trace = read_json(read(path))
    end = [line for line in log if "end" in line][0]["end"]
    steps = [line["step"] for line in log if "loss" in line and "step" in line]
    check(set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}, f"{set(trace)}")
    errors = trace["otherData"]["clock_error_us"]
    check(len(errors) == n_devices and all(0 <= e < 1000 for e in errors), f"the clocks' errors are told: {errors}")
    names, rows = {}, {}
    for e in trace["traceEvents"]:
        check(e["ph"] in "MX" and isinstance(e["pid"], int) and isinstance(e["tid"], int), f"{e}")
        if e["ph"] == "M":
            check(e["name"] in ("process_name", "thread_name", "process_sort_index", "thread_sort_index"), f"{e}")
            names[e["name"], e["pid"], e["tid"]] = e["args"].get("name")
            continue
        check(set(e) == {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"} and e["ts"] >= 0 and e["dur"] >= 0, f"{e}")
        check(("process_name", e["pid"], 0) in names and ("thread_name", e["pid"], e["tid"]) in names, f"no name: {e}")
        check(e["cat"] in ("step", "layer", "kernel", "transfer", "wait", "host"), f"{e}")
        rows.setdefault((names["process_name", e["pid"], 0], names["thread_name", e["pid"], e["tid"]]), []).append(e)
    written = sum(map(len, rows.values()))
    check(trace["otherData"]["events"] == written, f"{written} events, {trace['otherData']}")
    for row, events in rows.items():   # a slice lies in the one that is open, or after it; outer ones come first
        open_until = []
        for e in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= e["ts"] + 2e-3:
                open_until.pop()
            check(not open_until or e["ts"] + e["dur"] <= open_until[-1] + 2e-3, f"{row}: {e} crosses another")
            open_until.append(e["ts"] + e["dur"])
    of = lambda row, cat=None: [e for e in rows.get(row, []) if cat in (None, e["cat"])]
    whole = of(("host", "steps"))
    check([e["args"]["step"] for e in whole] == steps, "a slice for each step")
    for e, line in zip(whole, [line for line in log if "loss" in line and "step" in line]):
        check(abs(e["dur"] / 1e3 - line["ms"]) < 0.01 + 1e-3 * line["ms"], f"step of the log: {e} {line}")
    check(len(of(("host", "caller"))) >= len(steps) and of(("host", "exchange")), "rows of caller and exchange")
    begin, stop = whole[1]["ts"], whole[-1]["ts"] + whole[-1]["dur"]
    cut = lambda events: [(max(e["ts"], begin), min(e["ts"] + e["dur"], stop)) for e in events if e["ts"] + e["dur"] > begin and e["ts"] < stop]
    for d, sums in enumerate(end["times"]["devices"]):
        device = f"device {d}: {sums['device']}"
        compute = (device, "compute queue")
        check(of(("host", f"worker {d}")), f"row of worker {d}")
        check([e["args"]["step"] for e in of(compute, "step")] == steps, f"{device}: a slice for each step")
        layers = {e["name"] for e in of(compute, "layer")}
        for name in ("forward: conv2d '0'", "backward: conv2d '3'", "backward data: linear '9'", "loss"):
            check(name in layers, f"{device}: layer {name} in {layers}")
        kernels = {e["name"] for e in of(compute, "kernel")}
        check("gather_forward" in kernels and len(kernels) > 5, f"{device}: {kernels}")
        for row, verb in ((("transfer queue"), "map|read"), ("upload queue", "write")):
            seen = {e["args"]["unit"] for e in of((device, row)) if re.match(verb, e["name"])}
            check(seen == units, f"{device}, {row}: {seen}, must be {units}")
        # the rows and the sums, both over all steps but the first
        in_steps = [e for e in of(compute, "kernel") if "step" in e["args"]]
        ms = covered(cut(in_steps)) / 1e3 / (len(steps) - 1)
        # what was computed for the second step before the first one was over counts as that step's
        early = covered([(e["ts"], min(e["ts"] + e["dur"], begin)) for e in in_steps if e["args"]["step"] > steps[0] and e["ts"] < begin])
        slack, most = 0.03 * end["times"]["step_ms"], ms + early / 1e3 / (len(steps) - 1)
        check(ms - slack < sums["computing_ms"] < most + slack, f"{device}: kernels {ms} to {most} ms, {sums}")


def check_sums(log):
    """The four times of a device add up to the step, and that is the mean of the steps' ms but the first's."""
    ms = [line["ms"] for line in log if "loss" in line and "step" in line][1:]
    times = [line for line in log if "end" in line][0]["end"]["times"]
    mean = sum(ms) / len(ms)
    check(abs(times["step_ms"] - mean) < 0.002 + 1e-3 * mean, f"step of {times['step_ms']} ms, the log's mean is {mean}")
    for d in times["devices"]:
        sums = [d[name] for name in ("computing_ms", "exchanging_ms", "waiting_ms", "idle_ms")]
        check(min(sums) >= 0 and abs(sum(sums) - times["step_ms"]) < 0.03 * times["step_ms"], f"they add up: {times}")
        check(d["computing_ms"] > 0.02 * times["step_ms"], f"it computes: {d}")
    return times


def test_trace(at):
    table = r"^ms a step +computing +exchanging +waiting +idle +together$"
    for run_ahead in (0, 1):
        files = ["--trace", at("one.json"), "--log", at("one.jsonl"), "--run-ahead", run_ahead]
        done = expect(0, "train", *SMALL, "--epochs", 2, *files)
        check(re.search(table, done.stderr, re.M), "a table at the end", done)
        log = lines_of(at("one.jsonl"))
        times = check_sums(log)
        check(len(times["devices"]) == 1 and times["update_ms"] == 0, f"a team of one updates on the device: {times}")
        check(times["devices"][0]["waiting_ms"] == 0, f"a team of one waits for nobody: {times}")
        check(times["devices"][0]["images"] == 19 * 64, f"images of all steps but the first: {times}")
        check_trace(at("one.json"), log, 1, set())
        check("evaluate" in {e["name"] for e in read_json(read(at("one.json")))["traceEvents"]}, "evaluation has its slice")
    team = [*SMALL, "--devices", device_times(3)]
    done = expect(0, "train", *team, "--epochs", 1, "--trace", at("team.json"), "--log", at("team.jsonl"))
    check(done.stderr.count(" images, ") == 3 and "img/s, idle " in done.stderr, "a line per device and epoch", done)
    log = lines_of(at("team.jsonl"))
    times = check_sums(log)
    check(len(times["devices"]) == 3 and times["update_ms"] > 0, f"{times}")
    buckets = {"bucket 0"}
    check_trace(at("team.json"), log, 3, buckets)
    # nothing is asked of a device without a share
    expect(0, "train", *team, "--epochs", 1, "--no-eval", "--shares", "32,0,32", "--log", at("zero.jsonl"))
    zero = lines_of(at("zero.jsonl"))[-1]["end"]["times"]["devices"][1]
    check(zero["computing_ms"] == 0 and zero["images"] == 0 and zero["idle_ms"] > 10 * zero["waiting_ms"], f"{zero}")
    # bounded, and said
    done = expect(0, "train", *SMALL, "--epochs", 1, "--trace", at("few.json"), "--trace-events", 100,
                  err="100 events written, the last ")
    few = read_json(read(at("few.json")))
    check(len([e for e in few["traceEvents"] if e["ph"] == "X"]) == 100, "100 events")
    check(few["otherData"]["events_left_out"] > 100 and few["otherData"]["first_step_left_out"] >= 0, f"{few['otherData']}")
    # numbers do not depend on who looks
    weights = []
    for name, options in (("timed", []), ("untimed", ["--no-times"]), ("traced", ["--trace", at("x.json")])):
        done = expect(0, "train", *team, "--epochs", 1, "--save", at(name), "--log", at("x.jsonl"), *options)
        times = lines_of(at("x.jsonl"))[-1]["end"]["times"]
        check((times is None) == (name == "untimed") == (not re.search(table, done.stderr, re.M)), f"{name}: {times}", done)
        weights.append(read_bytes(at(name)))
    check(weights[0] == weights[1] == weights[2], "the same bits")
    expect(0, "train", *SMALL, "--epochs", 1, "--quiet", "--trace", at("x.json"))
    # a device is lost: the others' rows go on, and nothing of it is used any more
    for fault in ("fail=1:launch:150:-5", "bad-event=1:200:-14"):
        done = expect(0, "train", *team, "--epochs", 1, "--trace", at("lost.json"), "--log", at("lost.jsonl"), err="not known: it was lost",
                      env=with_layer(fault))
        lost = read_json(read(at("lost.json")))
        steps = [e["args"]["step"] for e in lost["traceEvents"] if e["ph"] == "X" and (e["pid"], e["tid"]) == (1, 1)]
        check(steps == list(range(10)) and lost["otherData"]["clock_error_us"][1] is None, f"{fault}: {steps} {lost['otherData']}")
        times = lines_of(at("lost.jsonl"))[-1]["end"]["times"]["devices"]
        check([t is None for t in times] == [False, True, False], f"{fault}: {times}")
    if os.path.exists("/dev/full"):
        expect(1, "train", *SMALL, "--epochs", 1, "--trace", "/dev/full", err="could not be written in full")


def test_sampled(at):
    """On a graphics card some steps of many are measured; a trace measures all."""
    gpu = {"CVY_FORCE_SHAPE": "simt"}
    steps, batch = 115, 4
    options = [*LENET, "--batch", batch, "--data", f"synthetic:{steps * batch}", "--epochs", 1, "--no-eval"]
    for traced in (False, True):
        done = expect(0, "train", *options, "--log", at("log.jsonl"), *(["--trace", at("trace.json")] if traced else []), env=gpu)
        check("ms a step" in done.stderr, "a table at the end", done)
        log = lines_of(at("log.jsonl"))
        ms = [line["ms"] for line in log if "loss" in line and "step" in line]
        measured = [step for step in range(1, steps) if traced or step % 100 < 8]  # the first one may compile kernels
        times = log[-1]["end"]["times"]
        mean = sum(ms[step] for step in measured) / len(measured)
        check(abs(times["step_ms"] - mean) < 0.002 + 1e-3 * mean, f"step of {times['step_ms']} ms, the mean of the measured is {mean}")
        one = times["devices"][0]
        check(one["images"] == len(measured) * batch, f"images of the measured steps: {one}")
        sums = [one[name] for name in ("computing_ms", "exchanging_ms", "waiting_ms", "idle_ms")]
        check(min(sums) >= 0 and abs(sum(sums) - times["step_ms"]) < 0.03 * times["step_ms"] and sums[0] > 0, f"they add up: {times}")
    rows = [e["args"]["step"] for e in read_json(read(at("trace.json")))["traceEvents"] if e["ph"] == "X" and e["name"] == "gather_forward"]
    check(set(rows) == set(range(steps)), f"a trace has the kernels of each step: {rows}")


def resize(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def on_terminal(columns, *args, enough=lambda text: False, then=None, env=()):
    """What a terminal of so many columns and 24 rows is sent until the program ends or that is `enough`; `then`: the terminal
    gets so many columns, and what comes after that is told too, until it is enough again."""
    master, slave = pty.openpty()
    resize(slave, columns)
    process = subprocess.Popen([CONVOY, *map(str, args)], stdout=subprocess.DEVNULL, stderr=slave,
                               env={**os.environ, "TERM": "xterm", **dict(env)})
    os.close(slave)
    texts, end = [""], time.time() + 180
    while time.time() < end:
        if enough(texts[-1]):
            if not then or len(texts) > 1:
                break
            resize(master, then)
            texts.append("")
        if select.select([master], [], [], 1)[0]:
            try:
                texts[-1] += os.read(master, 1 << 16).decode()
            except OSError:   # the program has ended
                break
    process.kill()
    process.wait()
    os.close(master)
    return texts if then else texts[0]


def status_of(columns, devices, *more_options, **more):
    n = int(devices.rsplit("*")[1])
    return on_terminal(columns, "train", *SMALL, "--devices", devices, "--epochs", 400, "--no-eval", *more_options,
                       enough=lambda text: text.count("idle") >= 6 * n, **more)


def test_status(at):
    """The lines under the bar: one per device while they fit, none wider than the terminal."""
    for columns, n in ((80, 1), (120, 3), (60, 3), (80, 16), (40, 16)):
        text = status_of(columns, device_times(n))
        plain = re.sub(r"\033\[[JK]", "", text.replace("\r\n", "\n"))
        drawings = [d for d in re.split(r"\r(?:\033\[\d+A)?", plain) if "idle" in d and d.startswith("epoch")]
        check(drawings, f"{columns} columns, {n} devices: {text[-2000:]!r}")
        lines = drawings[-2].rstrip("\n").split("\n") if len(drawings) > 1 else []
        check(lines and len(lines) < 24 and all(len(line) < columns for line in lines), f"{columns} columns: {lines}")
        check("loss" in lines, f"the curve under the bar: {lines}")
        lines = lines[:lines.index("loss")] if "loss" in lines else lines
        check(len(lines) == {1: 1, 3: 4}.get(n, len(lines)) and len(lines) <= 9, f"{n} devices on {len(lines)} lines: {lines}")
        check(n > 3 or sum("idle" in line for line in lines) == n, f"{n} devices: {lines}")
    # a terminal that was made narrower has broken the four lines of 99 columns into two each; those of the curve are shorter
    before, after = status_of(100, device_times(3), "--data", "synthetic:64000", then=50)
    check("\033[11A" in before and "\033[15A" not in before, f"100 columns: {before[-1000:]!r}")
    check("\033[15A" in after and "\033[11A" in after.split("\033[15A")[1], f"50 columns after 100: {after!r}")
    # what is no terminal gets no escape sequences
    for kind in ("dumb", ""):
        text = on_terminal(80, "train", *SMALL, "--epochs", 2, env={"TERM": kind})
        check("preparing the devices" in text and "epoch 2/2 loss" in text, f"TERM={kind}: {text!r}")
        check("\033" not in text and "\r" not in text.replace("\r\n", ""), f"TERM={kind}: {text!r}")


def test_start(at):
    """Until the first step is done, in which kernels are compiled: here a layer makes its launches take 0.1 s each."""
    slow = {**with_layer("slow=all:700:0-24"), "CVY_NO_CACHE": "1"}
    log = at("log")
    text = on_terminal(80, "train", *SMALL, "--epochs", 1, "--no-eval", "--log", log, env=slow)
    waits = [line for line in re.split(r"[\r\n]", text.replace("\033[K", "").replace("\033[J", "")) if line.startswith("compiling")]
    numbers = [re.fullmatch(r"compiling kernels for \d+:\d+: (\d+) of about (\d+), (\d+) s", line) for line in waits]
    check(len(waits) > 5 and all(numbers), f"a line that is renewed: {text!r}")
    done = [int(m[1]) for m in numbers if m]
    check(done == sorted(done) and len(set(done)) > 3 and all(int(m[1]) <= int(m[2]) for m in numbers if m), f"it counts: {waits}")
    said = re.search(r"kernels compiled in (\d+\.\d) s\r\n", text)
    lines = lines_of(log)
    steps = [line for line in lines if "ms" in line]
    start = [line for line in lines if "start" in line][0]["start"]
    epoch = [line for line in lines if "train_loss" in line][0]
    check(said and abs(float(said[1]) - start["compile_sec"]) < 0.06, f"{said} {start}")
    extra = steps[0]["ms"] - steps[1]["ms"]
    check(extra > 1500 and abs(1e3 * start["first_step_extra_sec"] - extra) < 1, f"{start} {steps[:2]}")
    check(abs(sum(s["ms"] for s in steps) - extra - 1e3 * epoch["sec"]) < 1, f"an epoch without it: {steps} {epoch}")
    check(abs(lines[-1]["end"]["sec_per_epoch"] - epoch["sec"]) < 1e-5, f"{lines[-1]} {epoch}")
    bars = [b for b in re.split(r"[\r\n]", text) if b.startswith("epoch 1/1 [")]
    check(bars and "ETA" not in bars[0] and "img/s" not in bars[0], f"the first step tells no rate: {bars}")
    check(not re.search(r"ETA (0:[1-5]|[1-9])", text), f"an ETA of seconds: {bars}")
    # processes that compile ahead: here they find everything in PoCL's cache, but their notes are gone
    if len(os.sched_getaffinity(0)) > 1 and "Portable Computing Language" in expect(0, "devices", "--json", "-").stdout:
        weights = at("weights")
        expect(0, "train", *SMALL, "--max-steps", 1, "--no-eval", "--save", weights)
        for i, command in enumerate((
                ("train", *SMALL, "--max-steps", 1, "--no-eval"),
                ("eval", "--weights", weights, "--model", "lenet", "--data", "synthetic:640"),
                ("bench", "train", "--model", "lenet", "--batch", 16, "--steps", 1, "--no-breakdown"),
                ("tune", "--model", "resnet18", "--input", "8x8x1", "--batch", 1, "--budget", 2))):
            text = on_terminal(80, *command, env={"XDG_CACHE_HOME": at(f"cache{i}"), "CVY_NO_CACHE": "0"})
            waits = re.findall(r"compiling kernels (\d+)/(\d+): \w+, \d+ s", text)
            check(waits and waits == sorted(waits, key=lambda w: int(w[0])) and int(waits[-1][0]) <= int(waits[-1][1]), f"{command}: {text!r}")
    # one plain line where there is no terminal
    plain = expect(0, "train", *SMALL, "--max-steps", 1, "--no-eval", "--log", log).stderr
    check("\npreparing the devices (kernels are compiled the first time)\n" in "\n" + plain, plain)
    # a single step: nothing to compare it with
    check([line for line in lines_of(log) if "start" in line][0]["start"]["first_step_extra_sec"] == 0, "a single step")


def test_table(at):
    """The table at the end, as wide as the terminal."""
    for columns in (40, 80, 120):
        text = on_terminal(columns, "train", *SMALL, "--devices", device_times(2), "--epochs", 1, "--no-eval")
        lines = text.replace("\r\n", "\n").split("\n")
        begin = next((i for i, line in enumerate(lines) if "ms a step" in line), None)
        table = [line.split("\r")[-1].replace("\033[J", "") for line in lines[begin:begin + 4]] if begin else []
        check(len(table) == 4 and all(len(line) < columns for line in table), f"{columns} columns: {lines}")
        check(table and all(len(line.split()) >= 6 for line in table[:3]) and table[1].startswith(f"{first_device()}#0"), f"{table}")
        check(columns < 80 or "together" in table[0], f"{table}")
    plain = expect(0, "train", *SMALL, "--devices", device_times(2), "--epochs", 1, "--no-eval", out="(last step), ")
    check("ms a step" in plain.stderr and max(map(len, plain.stderr.split("ms a step")[1].splitlines()[1:])) < 80, "a file", plain)


if __name__ == "__main__":
    main(globals())
