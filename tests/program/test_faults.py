#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Devices that hang or fail under the program, and the program killed: test_faults.py CONVOY LAYER [test_hang…]

Runs LeNet with the test layer (tests/support/layer.c). What a run without the fault would have given is computed: up to the step of
the loss on the whole team, from its checkpoint on by the devices that were left; the files must be the same bytes.
CVY_FAULT_ROUNDS (default 1 for each way to hang; 100: so many in all), CVY_KILL_ROUNDS (default 3). Exit 77 without device."""

import glob
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import cli
from cli import call, CONVOY, first_device, lines_of, need_device, read_bytes, with_layer

SEED = int(os.environ.get("CVY_TEST_SEED", time.time()))
rng = random.Random(SEED)
BATCH, STEPS = 48, 30
SANITIZED = 5 if os.environ.get("CVY_TEST_SANITIZER") else 1
TIMEOUT = 0.8 * SANITIZED  # at least: measure_timeout
cli.LAYER = os.path.abspath(sys.argv[2])
need_device()
DEVICE = first_device()


def check(ok, what, done=None):
    cli.check(ok, f"{what} (CVY_TEST_SEED={SEED})", done)


def small_disk():
    """In the child: files of more than 800 kB cannot be written."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (800000, 800000))


def train(replicas, *args, words="", steps=STEPS, no_eval=("--no-eval",), mib=None, begin=None):
    """A run that must end within two minutes on a quiet machine, whatever hangs. mib: device memory; begin: called in the child."""
    devices = f"{DEVICE}*{replicas}" if replicas > 1 else DEVICE
    command = [CONVOY, "train", "--model", "lenet", "--data", "synthetic:480", "--devices", devices, "--batch", BATCH,
               "--init", "he", "--epochs", 100, "--max-steps", steps, *no_eval, "--quiet", *args]
    env = {**with_layer(words), **({"CVY_MEMORY_LIMIT_MIB": str(mib)} if mib else {})}
    return call(command, timeout=120 * SANITIZED + 30 * TIMEOUT, env=env, preexec_fn=begin)


def measure_timeout(at):
    """A machine may be slow or busy: ten times the longest step of a team in which nothing hangs is no hang yet."""
    global TIMEOUT
    log = at("healthy.jsonl")
    done = train(3, "--log", log)
    check(done.returncode == 0, "healthy", done)
    steps = [line["ms"] for line in lines_of(log) if "ms" in line and "step" in line]
    check(len(steps) == STEPS, f"{len(steps)} steps in the log")
    TIMEOUT = max(TIMEOUT, 10e-3 * max(steps[2:]))  # the first two are granted more
    print(f"device timeout: {TIMEOUT:.1f} s, longest step: {max(steps[2:]):.0f} ms")


def named(done):
    """The devices of which it is said that they hang."""
    return {int(a or b) for a, b in re.findall(r"device (\d+) \(.*?\): no sign of life|device (\d+) \(.*?\) hangs while", done.stderr)}


def lost(log):
    return [line["device_lost"] for line in lines_of(log) if "device_lost" in line]


def same(a, b):
    return read_bytes(a) == read_bytes(b)


def reference(at, replicas, losses, name):
    """The weights of a run on so many devices at first, and one less from each of these steps on."""
    folder, file = at("ref-" + name), at("ref-" + name + ".st")
    shutil.rmtree(folder, ignore_errors=True)
    left = replicas
    for step in sorted(losses) + [STEPS]:
        if step > 0:
            done = train(left, "--checkpoint", folder, "--resume", "--save", file, steps=step)
            check(done.returncode == 0, f"reference of {name}", done)
        left -= 1
    return file


def test_hang(at):
    """One device of three hangs: in commands that never end, or in a call that does not return, on any thread."""
    # from what step 0 does on
    ways = [("hang=%d:%d", 45, 900), ("hang-call=%d:launch:%d", 35, 700), ("hang-call=%d:wait:%d", 24, 60),
            ("hang-call=%d:write:%d", 5, 60), ("hang-call=%d:flush:%d", 24, 200), ("hang-call=%d:map:%d", 3, 60),
            ("hang-call=%d:unmap:%d", 3, 60), ("hang-call=%d:info:%d", 200, 1800), ("hang-call=%d:release:%d", 200, 1800)]
    rounds = int(os.environ.get("CVY_FAULT_ROUNDS", "0"))
    for i in range(rounds if rounds else len(ways)):
        way, least, most = ways[i % len(ways)]
        words = way % (rng.randrange(3), rng.randrange(least, most))
        log, file = at("hang.jsonl"), at("hang.st")
        done = train(3, "--device-timeout", TIMEOUT, "--log", log, "--save", file, words=words)
        losses = lost(log)
        check(done.returncode == 0 and len(losses) <= 1, f"{words}: {losses}", done)
        if losses:
            check(losses[0]["hung"] and losses[0]["shares"][losses[0]["device"]] == 0 and sum(losses[0]["shares"]) == BATCH
                  and f"(lost in step {losses[0]['step']})" in done.stdout and "no sign of life" in done.stderr,
                  f"{words}: {losses}", done)
        check(same(file, reference(at, 3, [loss["step"] for loss in losses], "hang")), f"{words}: other weights, {losses}", done)


def test_before(at):
    """One of three hangs while weights or data are brought to it: the others train as if they had been alone."""
    for words in ("hang-call=1:write:0", f"hang-call={rng.randrange(3)}:write:{rng.randrange(1, 5)}"):
        log, file = at("before.jsonl"), at("before.st")
        done = train(3, "--device-timeout", TIMEOUT, "--log", log, "--save", file, words=words)
        losses = lost(log)
        check(done.returncode == 0 and [loss["step"] for loss in losses] == [0] and "the team continues without it" in done.stderr,
              f"{words}: {losses}", done)
        check(same(file, reference(at, 3, [0], "before")), f"{words}: other weights, {losses}", done)


def test_open(at):
    """One device of two hangs while the team is opened: exit 1, and words that say which."""
    for words, args in (("hang=1:3", ()), ("hang-call=1:wait:0", ()), ("hang-call=0:launch:20", ("--split", "auto"))):
        begin = time.monotonic()
        done = train(2, "--device-timeout", TIMEOUT, *args, words=words)
        check(done.returncode == 1 and named(done) == {int(words.split("=")[1][0])} and "no sign of life" in done.stderr
              and "hangs while the team is opened" in done.stderr, f"{words} in {time.monotonic() - begin:.0f} s", done)


def left_out(at, words, code, said, n_left, *args, devices=None, **more):
    """A run on three replicas that no number names."""
    log = at("left_out.jsonl")
    done = train(3, "--log", log, "--devices", devices or "cpu*3", *args, words=words, steps=4, **more)
    check(done.returncode == code and all(text in done.stderr for text in said), f"{words}: exit {code} and {said}", done)
    if code == 0:
        run, losses = lines_of(log)[0]["run"], lost(log)
        check(len(run["devices"]) == n_left and len(losses) == 3 - n_left and all(d["device"] == -1 and "#" in d["label"] and d["reason"] and
              len(d["shares"]) == n_left and sum(d["shares"]) == BATCH for d in losses), f"{words}: {run['devices']}, {losses}", done)
    return done


def test_left_out(at):
    """A device that fails while the team is opened is left out if no number names it, whatever fails; one that is named ends the run."""
    for words in ("fail=1:context:0:-6", "fail=1:build:0:-11", "fail=1:buffer:0:-4", "fail=1:buffer:3:-4"):
        left_out(at, words, 0, ["#1 ", "is left out: ", "convoy selftest --devices", "2 devices are left: "], 2)
    code = {"context": "CL_OUT_OF_HOST_MEMORY", "build": "CL_BUILD_PROGRAM_FAILURE"}
    left_out(at, "fail=1:context:0:-6", 0, [code["context"]], 2, "--shares", "16,16,16")
    left_out(at, "fail=1:build:0:-11,fail=2:context:0:-6", 0, ["1 device is left: "], 1)
    left_out(at, "fail=all:context:0:-6", 1, [code["context"]], 0)
    left_out(at, "fail=1:context:0:-6", 1, [code["context"]], 0, "--on-device-loss", "stop")
    done = left_out(at, "fail=1:context:0:-6", 1, [code["context"]], 0, devices=f"{DEVICE}*3")
    check("left out" not in done.stderr, "a device that is named by number is left out", done)
    weights = at("left_out.st")
    check(train(1, "--save", weights, steps=1).returncode == 0, "weights")
    for verb in (["eval", "--weights", weights, "--data", "synthetic:480"], ["bench", "train", "--model", "lenet", "--batch", 48],
                 ["bench", "scaling", "--model", "lenet", "--batch", 16, "--rounds", 1, "--steps", 1]):
        done = call([CONVOY, *verb, "--devices", "cpu*2", "--quiet"], env=with_layer("fail=1:build:0:-11"), timeout=120 * SANITIZED)
        check(done.returncode == 0 and "1 device is left" in done.stderr, f"{verb[0]} without a device", done)


def test_last(at):
    """The last device fails or hangs: exit 1, the newest state is kept, and the run goes on from there."""
    whole = reference(at, 2, [], "whole")
    whole_of_one = at("one.st")
    train(1, "--save", whole_of_one)
    for replicas, words in ((2, "fail=all:launch:300:-5"), (2, "hang=all:400"), (1, "bad-event=0:200:-9999"), (1, "hang=0:300"),
                            (1, "hang-call=0:launch:250")):
        folder, file, log = at("last"), at("last.st"), at("last.jsonl")
        shutil.rmtree(folder, ignore_errors=True)
        args = ["--checkpoint", folder, "--save", file, "--log", log]
        done = train(replicas, *args, "--device-timeout", TIMEOUT, words=words)
        check(done.returncode == 1 and "it was the last one" in done.stderr and "resume with --resume" in done.stderr,
              f"{words} of {replicas}", done)
        check(glob.glob(folder + "/*.safetensors") and os.path.exists(file), f"{words}: nothing is kept", done)
        check(len(lost(log)) == replicas, f"{words}: {lost(log)}", done)
        done = train(replicas, *args, "--resume")
        check(done.returncode == 0 and same(file, whole if replicas > 1 else whole_of_one),
              f"{words} of {replicas}: resumed to other weights", done)


def test_last_shares(at):
    """The second of two devices dies while the first one is taken out: the steps that are kept were made by both."""
    log = at("both.jsonl")
    small = ["--model", "resnet18", "--data", "synthetic:64:8x8x1", "--batch", 24, "--checkpoint", at("both"), "--save", at("both.st")]
    for finish in (*range(14, 40), *range(8, 14)):  # the first ones are called while the team is opened
        shutil.rmtree(at("both"), ignore_errors=True)
        done = train(2, *small, "--log", log, words=f"fail=1:launch:1200:-5,fail=0:finish:{finish}:-5", steps=12)
        steps = [loss["step"] for loss in lost(log)] if os.path.exists(log) else []
        if len(steps) == 2 and steps[0] == steps[1] > 0:
            break
    check(done.returncode == 1 and len(steps) == 2 and "resume with --resume" in done.stderr, f"finish {finish}, lost in steps {steps}", done)
    done = train(2, *small, "--resume", steps=12)
    check(done.returncode == 0, "resumed on both", done)
    shutil.rmtree(at("both"), ignore_errors=True)
    done = train(2, *small[:-1], at("whole.st"), steps=12)
    check(done.returncode == 0 and same(at("both.st"), at("whole.st")), "resumed on both: other weights", done)


def test_no_room(at):
    """Those that are left have no memory for statistics of the whole batch: exit 1, and the run can go on."""
    small = ["--model", "resnet18", "--data", "synthetic:128:16x16x1", "--batch", 64, "--bn", "sync", "--checkpoint", at("room")]
    done = train(2, *small[:-2], "--log", at("room.jsonl"), steps=1)
    mib = max(lines_of(at("room.jsonl"))[0]["run"]["device_bytes"]) // 2**20 + 2
    for launch in (600, 1200, 2400, 4800):
        shutil.rmtree(at("room"), ignore_errors=True)
        done = train(2, *small, words=f"fail=1:launch:{launch}:-5", mib=mib, steps=8)
        if "needs each share in one pass" in done.stderr:
            break
    check(done.returncode == 1 and "needs each share in one pass" in done.stderr and "resume with --resume" in done.stderr,
          f"{mib} MiB, launch {launch}", done)
    done = train(2, *small, "--resume", mib=mib, steps=8)
    check(done.returncode == 0, "resumed with memory for two", done)


def test_finished(at):
    """A finished run is looked at again, and a device fails in its evaluation: curve and accuracy are what they were."""
    args = ["--epochs", 2, "--checkpoint", at("done"), "--log", at("done.jsonl"), "--plot", at("done.svg"), "--resume"]
    done = train(2, *args, no_eval=())
    check(done.returncode == 0, "two epochs", done)
    shutil.copy(at("done.svg"), at("done0.svg"))
    lost_one = lambda: len(lost(at("done.jsonl"))) == 1
    for launch in (4, 12, 30):
        again = train(2, *args, words=f"fail=1:launch:{launch}:-5", no_eval=())
        if again.returncode != 0 or lost_one():
            break
    check(again.returncode == 0 and lost_one() and again.stdout.split(" on ")[0] == done.stdout.split(",")[0],
          f"finished, and a device fails at launch {launch}; before: {done.stdout}", again)
    check(same(at("done.svg"), at("done0.svg")), "another curve", again)
    again = train(2, *args[2:], "--epochs", 1, no_eval=())
    check(again.returncode == 0 and "not drawn" in again.stderr, "a run that was longer", again)


def test_full_disk(at):
    """The checkpoint cannot be written: exit 1, and --save has what was reached; nothing is promised that is not there."""
    args = ["--momentum", 0.9, "--save", at("full.st")]
    for words in ("", "fail=0:launch:300:-5"):
        done = train(1, *args, "--checkpoint", at("full"), words=words, begin=small_disk)
        check(done.returncode == 1 and ("after step 30; weights in" if not words else "weights in") in done.stderr
              and "resume with --resume" not in done.stderr, f"full disk, {words}", done)
        if not words:
            train(1, "--momentum", 0.9, "--save", at("roomy.st"))
            check(same(at("full.st"), at("roomy.st")), "other weights", done)


def test_stop(at):
    folder, file = at("stop"), at("stop.st")
    done = train(2, "--on-device-loss", "stop", "--checkpoint", folder, "--save", file, words="fail=1:launch:300:-36")
    check(done.returncode == 1 and "device 1" in done.stderr and "resume with --resume" in done.stderr, "stop", done)
    done = train(2, "--checkpoint", folder, "--save", file, "--resume")
    check(done.returncode == 0 and same(file, reference(at, 2, [], "stop")), "resumed after a stop: other weights", done)


def test_left(at):
    """A run whose shares follow the devices' speeds, each with batch statistics of its own, goes on with those that are left."""
    small = ["--model", "resnet18", "--data", "synthetic:64:8x8x1", "--batch", 24, "--split", "auto", "--resume"]
    for replicas in (3, 2):
        folder, log = at(f"left{replicas}"), at(f"left{replicas}.jsonl")
        launch, least, most = 4000, 0, None
        for _ in range(8):  # measuring speeds at the start takes some launches; how many is the machine's
            done = train(replicas, *small, "--checkpoint", folder, "--log", log, words=f"fail={replicas - 1}:launch:{launch}:-5", steps=28)
            if done.returncode == 0 and lost(log):
                break
            least, most = (least, launch) if done.returncode == 0 else (launch, most)
            launch = (least + most) // 2 if most else 2 * launch
            shutil.rmtree(folder, ignore_errors=True)
        check(done.returncode == 0 and len(lost(log)) == 1, f"one of {replicas} is lost", done)
        done = train(replicas - 1, *small, "--checkpoint", folder, steps=30)
        check(done.returncode == 0, f"resumed on {replicas - 1} of {replicas}", done)


def test_eval(at):
    file = at("eval.st")
    train(2, "--save", file)
    command = [CONVOY, "eval", "--weights", file, "--model", "lenet", "--data", "synthetic:480", "--devices", f"{DEVICE}*3",
               "--batch", "30", "--quiet"]
    good = call(command)
    done = call(command, env=with_layer("fail=1:launch:12:-5"), timeout=120 * SANITIZED)
    check(done.returncode == 0 and done.stdout.split(",")[0] == good.stdout.split(",")[0] and "(lost in step 0)" in done.stdout,
          f"evaluation, {good.stdout}", done)


def test_kill(at):
    """kill -9 at any moment: what is found afterwards loads, and the run ends with the same bytes."""
    folder, file, whole = at("kill"), at("kill.st"), at("unkilled.st")
    args = ["--checkpoint", folder, "--checkpoint-every", 2, "--resume", "--save", file]
    begin = time.monotonic()
    train(1, "--checkpoint", at("unkilled"), "--checkpoint-every", 2, "--save", whole)
    usual = time.monotonic() - begin
    rounds = int(os.environ.get("CVY_KILL_ROUNDS", "3"))
    kills = ends = 0
    while kills < rounds:
        command = [CONVOY, "train", "--model", "lenet", "--data", "synthetic:480", "--devices", DEVICE, "--batch", BATCH, "--init",
                   "he", "--epochs", 100, "--max-steps", STEPS, "--no-eval", "--quiet", *args]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            process.wait(rng.uniform(0, 1.1 * usual))
        except subprocess.TimeoutExpired:
            process.kill()
        out, err = process.communicate()
        kills += process.returncode == -signal.SIGKILL
        check(process.returncode in (0, -signal.SIGKILL), f"after {kills} kills: exit {process.returncode}: {out} {err}")
        if process.returncode == 0 or kills == rounds or rng.random() < 0.1:
            if process.returncode != 0:
                done = train(1, *args)
                check(done.returncode == 0, f"after {kills} kills", done)
            check(same(file, whole), f"after {kills} kills: other weights")
            shutil.rmtree(folder, ignore_errors=True)
            ends += 1
        if cli.failures:
            return
    print(f"{kills} kills, {ends} runs compared")


if __name__ == "__main__":
    for replicas in (1, 2, 3):  # drivers compile now, not while the watch looks
        train(replicas, steps=2)
    with tempfile.TemporaryDirectory() as folder:
        measure_timeout(lambda name: os.path.join(folder, name))
        tests = (test_open, test_left_out, test_before, test_hang, test_last, test_last_shares, test_no_room, test_finished, test_full_disk,
                 test_stop, test_left, test_eval, test_kill)
        for test in tests:
            if len(sys.argv) > 3 and test.__name__ not in sys.argv[3:]:
                continue
            begin = time.monotonic()
            test(lambda name: os.path.join(folder, name))
            print(f"{test.__name__}: {time.monotonic() - begin:.1f} s")
    sys.exit(1 if cli.failures else 0)
