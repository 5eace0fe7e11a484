#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A hostile user: tests/program/hostile.py [--seed S] [--runs N] [--only K,…] [--seconds T] [--work DIR] PROGRAM

Runs the program with random right and wrong option combinations of every verb, in odd surroundings (environment, closed files, limits,
signals, a deleted working folder), several at once on one folder, killed and resumed, and with damaged files. Verbs and options are read
from the program's own help, so that a new option is covered without a change here. Each run is judged by the rules of `Judge`.
Run K of seed S is always the same: --only K repeats it. Exit 0: nothing found · 1: findings, each with the command that repeats it ·
2 wrong use · 77 no device. Python's own modules only."""

import argparse
import collections
import glob
import os
import random
import re
import shutil
import signal
import struct
import sys
import tempfile
import time

from hostile_options import COSTLY, SMALL, Values, read_verbs
from hostile_stage import STRAYS, ENVIRONMENTS, LIMITS, ODD_FILES, Finding, Judge, Stage, command, judge, look, shell

# ---- scenes: one is drawn for each run --------------------------------------------------------------------------------


def draw_train(rng, values, rows, without=()):
    """Options of a right training run that says the same each time."""
    args = ["train", "--model", "lenet", "--data", rng.choice(["synthetic:64", "data"])]
    steady = [
        o
        for o in rows
        if o.name
        in (
            "lr", "lr-schedule", "warmup", "momentum", "weight-decay", "init", "seed", "bn", "bucket-mib", "run-ahead", "no-shuffle",
            "drop-last", "no-overlap", "no-times", "verify-every", "no-eval",
        )
        and o.name not in without
    ]
    team = rng.choice(values.stage.teams)
    args += ["--devices", team, "--batch", "16", "--split", "even"]
    if len(team) > 4 and rng.random() < 0.5:
        args += rng.choice([["--exchange", "bf16"], ["--staleness", "1"], ["--exchange", "bf16", "--staleness", "1"]])
    for option in rng.sample(steady, rng.randint(0, 4)):
        args += values.words(option, "" if option.kind == "flag" else values.right(option))
    if "--lr" not in " ".join(args):
        args += ["--lr", "0.01"]
    return args


def scene_one(rng, stage, folder):
    """One command: right words, edges and wrong ones, in odd surroundings."""
    values = Values(rng, stage)
    heavy = set()
    verb = rng.choices([("train",), ("eval",), "any", "words"], [50, 12, 26, 12])[0]
    if verb == "words":
        words = [
            "--version", "--help", "-h", "help", "version", "extra", "trian", "train", "--bogus", "", "bench", "eval", "-q", "ünï",
            "x" * 3000, "--", "-", "\n",
        ]
        args = rng.sample(words, rng.randint(0, 3))
        if args[:1] in (["train"], ["eval"]):
            heavy = {"stops"}
    else:
        verb = rng.choice(sorted(stage.verbs)) if verb == "any" else verb
        rows = stage.verbs[verb]
        base = {"model": "lenet"} if verb[0] != "devices" else {}
        if verb[0] in ("train", "eval"):
            base.update(data=rng.choice(["synthetic:64", "data"]), batch="32")
        if verb[0] == "train":
            base.update({"max-steps": rng.choice("123"), "epochs": "1"})
        if verb[0] == "eval":
            base["weights"] = "weights.st"
        if verb[0] in ("bench", "tune"):
            base.update(
                {
                    n: SMALL[n][0]
                    for n in ("time", "steps", "rounds", "budget", "batch", "shape", "op", "algo", "buckets")
                    if n in {o.name for o in rows}
                }
            )
        chosen = rng.sample(rows, min(len(rows), rng.choice([0, 1, 1, 2, 3, 4, 6])))
        refused = rng.random() < (0.9 if verb in COSTLY else 0.35)
        args = [*verb, *([rng.choice(["synthetic:64", "data", "data"])] if verb[0] == "data" else [])]
        for option in rows:
            if option.name not in base and option not in chosen or option.name == "help" and rng.random() < 0.7:
                continue
            value = base.get(option.name, "") if option not in chosen else "" if option.kind == "flag" else None
            if value is None:
                value = values.refused(option) if refused and not values.wrong else None
                if value is None:
                    value = values.edge(option) if rng.random() < 0.4 and option.name not in base else values.right(option)
            args += values.words(option, value)
        if rng.random() < 0.06:
            args.append(rng.choice(["extra", "--bogus", "-Z", "--quiet=yes", "--batch", "--", "--help=x"]))
        if {"-h", "--help"} & set(args):
            values.wrong = []  # help wins
        if verb in COSTLY and not values.wrong and rng.random() < 0.9:
            args.append("--help")
    odd = {}
    if rng.random() < 0.3:
        odd["env"] = rng.choice(ENVIRONMENTS)
    if rng.random() < 0.12:
        odd.update(rng.choice(ODD_FILES))
    if rng.random() < 0.1:
        odd["limit"] = rng.choice(LIMITS)
    if rng.random() < 0.04:
        odd["gone"] = True
    if rng.random() < 0.12 and not heavy:
        odd["signal"] = draw_signals(rng)
    if verb == ("tune",):
        odd["env"] = {"XDG_CACHE_HOME": os.path.join(folder, "cache"), **odd.get("env", {})}  # what it finds changes what others do
    c = command(args, **odd)
    done = stage.run(c, folder)
    judge(stage, folder, done, values.wrong)
    if values.wrong and done.code == 2 and not odd:  # the same words where there is no device: refused before one is asked for
        none = stage.run(command(args, env={"OCL_ICD_VENDORS": "/nonexistent"}), folder)
        if "selector" not in {o.kind for o, _ in values.wrong} and (none.code, none.err) != (2, done.err):
            raise Finding(f"refused with other words where there is no device: {none.err[:1000]}", [none.command])
    return 1


def draw_signals(rng, kill=False):
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE] + [signal.SIGKILL] * kill * 2
    at = rng.choice([0, 0.05, rng.uniform(0, 0.4), rng.uniform(0, 1.5)])
    out = [(rng.choice(numbers), at)]
    while rng.random() < 0.25:
        at += rng.choice([0, 0.001, 0.1, 1.2])
        out.append((rng.choice(numbers), at))
    return out


def same_file(a, b):
    with open(a, "rb") as x, open(b, "rb") as y:
        return x.read() == y.read()


def scene_twice(rng, stage, folder):
    """The same right command twice: the same bits, also on other ways to the host."""
    values = Values(rng, stage)
    args = draw_train(rng, values, stage.verbs[("train",)]) + ["--max-steps", rng.choice("23"), "--no-eval"]
    env = rng.choice([{}, {}, {"CVY_FORCE_STAGING": "1"}])
    runs = [command(args + ["--save", name], env=e) for name, e in (("a.st", {}), ("b.st", env))]
    dones = [judge(stage, folder, stage.run(c, folder)) for c in runs]
    if all(d.code == 0 for d in dones) and not same_file(os.path.join(folder, "a.st"), os.path.join(folder, "b.st")):
        raise Finding("the same command gives other weights", runs)
    if dones[0].code != dones[1].code:
        raise Finding(f"the same command ends with {dones[0].code} and with {dones[1].code}\n{dones[1].err}", runs)
    return 2


def scene_resume(rng, stage, folder):
    """Killed at random moments and resumed: the bits of a run that was left alone."""
    values = Values(rng, stage)
    args = draw_train(rng, values, stage.verbs[("train",)]) + ["--epochs", "2"]
    whole = command(args + ["--save", "whole.st"])
    if judge(stage, folder, stage.run(whole, folder)).code != 0:
        return 1
    cut = args + [
        "--save", "cut.st", "--checkpoint", "ck", "--checkpoint-every", rng.choice(["1", "2", "1e"]), "--keep", rng.choice("12"), "--log",
        "log", "--resume",
    ]
    runs = [command(cut, signal=draw_signals(rng, kill=True)) for _ in range(rng.randint(1, 4))] + [command(cut)]
    for c in runs:
        done = judge(stage, folder, stage.run(c, folder))
    if done.code != 0:
        raise Finding(f"the last run fails: {done.err}", [whole] + runs)
    if not same_file(os.path.join(folder, "whole.st"), os.path.join(folder, "cut.st")):
        raise Finding("resumed, other weights than uninterrupted", [whole] + runs)
    strays = [name for name in done.after if STRAYS.search(name) and name.startswith("ck/")]
    if strays:
        raise Finding(f"strays in the checkpoint folder after a good run: {strays}", runs)
    return len(runs) + 1


def scene_crowd(rng, stage, folder):
    """Several at once on the same files: each ends well or says who is there; then one alone goes on to the right end."""
    values = Values(rng, stage)
    args = draw_train(rng, values, stage.verbs[("train",)]) + ["--epochs", "2", "--no-eval"]
    whole = command(args + ["--save", "whole.st"])
    if judge(stage, folder, stage.run(whole, folder)).code != 0:
        return 1
    shared = args + ["--save", "all.st", "--checkpoint", "ck", "--checkpoint-every", "1", "--log", "log", "--resume"]
    crowd = [command(shared, signal=draw_signals(rng, kill=True) if rng.random() < 0.2 else None) for _ in range(rng.randint(2, 4))]
    for done in stage.run_all(crowd, folder, rng):
        j = Judge(done)
        j.leftovers = lambda: []  # another may be writing
        j.folder = folder
        found = j.all() if done.code != 2 else [] if done.err.strip() else ["refused without a word"]
        if found:
            raise Finding("\n  ".join(found) + f"\n  in a crowd of {len(crowd)}\n  stderr: {done.err[-2000:]}", crowd)
    done = judge(stage, folder, stage.run(command(shared), folder))
    if done.code != 0 or not same_file(os.path.join(folder, "whole.st"), os.path.join(folder, "all.st")):
        raise Finding(f"after a crowd, one alone: exit {done.code}, or other weights\n{done.err}", crowd + [done.command])
    return len(crowd) + 2


def damage(rng, path):
    """Bits, bytes, lengths and words of a file, wrong; says what."""
    with open(path, "rb") as f:
        data = bytearray(f.read())
    how = rng.choice(["bits", "cut", "longer", "zeros", "length", "words", "empty", "twice"])
    head = min(len(data), 2000)
    if how == "bits":
        for _ in range(rng.choice([1, 1, 3, 30])):
            at = rng.randrange(head if rng.random() < 0.7 else len(data))
            data[at] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del data[rng.choice([rng.randrange(len(data)), rng.randrange(head), len(data) - 1]) :]
    elif how == "longer":
        data += rng.randbytes(rng.choice([1, 7, 5000]))
    elif how == "zeros":
        at, n = rng.randrange(len(data)), rng.choice([1, 8, 100])
        data[at : at + n] = bytes(len(data[at : at + n]))
    elif how == "length":
        at = rng.choice([0, 4, 8])
        data[at : at + 8] = rng.choice(
            [b"\xff" * 8, b"\0" * 8, struct.pack("<Q", 1 << 40), struct.pack("<Q", len(data)), struct.pack(">Q", 1 << 31)]
        )
    elif how == "words":
        numbers = list(re.finditer(rb"\d+|true|\"[\w.:]+\"|[\[\]{},]", bytes(data[:head])))
        if numbers:
            m = rng.choice(numbers)
            new = rng.choice(
                [
                    b"-1", b"0", b"99999999999999999999", b"1e999", b"null", b'"x"', b"[]", b"[" * 3000, b"{}", b"\xff",
                    b'"' + b"y" * 999 + b'"',
                ]
            )
            if path.endswith("ubyte"):
                new = new[: m.end() - m.start()]
            elif len(data) > 8 and rng.random() < 0.8:  # the header's length stays true
                (n,) = struct.unpack("<Q", data[:8])
                data[:8] = struct.pack("<Q", (n + len(new) - (m.end() - m.start())) % (1 << 64))
            data[m.start() : m.end()] = new
    elif how == "empty":
        data = bytearray()
    else:
        data += bytes(data)
    with open(path, "wb") as f:
        f.write(data)
    return how


def scene_damaged(rng, stage, folder):
    """A damaged file: told by name, or read for what it is; never a crash, a hang, much memory."""
    kind = rng.choice(["eval", "init-from", "checkpoint", "checkpoint", "data"])
    small = stage.small(3) + ["--devices", stage.device]
    if kind == "eval":
        args, path = ["eval", "--weights", "weights.st", "--model", "lenet", "--data", "synthetic:64"], "weights.st"
    elif kind == "init-from":
        args, path = small + ["--init-from", "weights.st"], "weights.st"
    elif kind == "checkpoint":
        args = small + ["--conv-algo", "winograd2,direct", "--checkpoint", "ckpt", "--resume", "--save", "out.st"]
        path = rng.choice(sorted(n for n in look(os.path.join(folder, "ckpt"))))
        path = os.path.join("ckpt", path)
        if os.path.isdir(os.path.join(folder, path)):
            return 0
    else:
        args = ["train", "--model", "lenet", "--data", "data", "--batch", "32", "--max-steps", "2"]
        path = os.path.join("data", rng.choice(sorted(os.listdir(os.path.join(folder, "data")))))
    how = damage(rng, os.path.join(folder, path))

    def named(j):
        done = j.d
        if (
            done.code in (1, 2)
            and os.path.basename(path).removesuffix(".gz") not in done.err
            and "ckpt" not in done.err
            and "not finite" not in done.err
        ):
            yield f"{path} is damaged ({how}), and the message names another thing"

    if rng.random() < 0.15:
        args.append("--allow-nan") if args[0] == "train" else None
    judge(stage, folder, stage.run(command(args), folder), more=named)
    return 1


SCENES = {scene_one: 62, scene_twice: 8, scene_resume: 10, scene_crowd: 6, scene_damaged: 14}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--only", help="these runs alone: K,K…")
    parser.add_argument("--seconds", type=float, default=0, help="no further run after so many seconds")
    parser.add_argument("--scene", choices=[s.__name__[6:] for s in SCENES], help="this kind of runs alone")
    parser.add_argument(
        "--work", help="a folder that stays, with what failing runs left (default: one that is removed when nothing was found)"
    )
    parser.add_argument("program")
    options = parser.parse_args()
    convoy = os.path.abspath(options.program)
    work = os.path.abspath(options.work) if options.work else tempfile.mkdtemp(prefix="convoy-hostile.")
    print(f"hostile: seed {options.seed}, {options.runs} runs, in {work}", flush=True)
    for old in glob.glob(os.path.join(glob.escape(work), "run-*")):
        shutil.rmtree(old, ignore_errors=True)
    stage = Stage(convoy, work)
    stage.verbs = read_verbs(convoy)
    stage.given_look = look(stage.given)
    for row in (row for rows in stage.verbs.values() for row in rows if "(null)" in row.note):
        print(f"hostile: the help of --{row.name} says (null)")
    began, findings, processes, count = time.monotonic(), collections.Counter(), 0, collections.Counter()
    for k in [int(k) for k in options.only.split(",")] if options.only else range(options.runs):
        if options.seconds and time.monotonic() - began > options.seconds:
            break
        rng = random.Random(f"{options.seed}:{k}")
        scene = rng.choices(list(SCENES), list(SCENES.values()))[0]
        if options.scene and scene.__name__ != "scene_" + options.scene:
            continue
        folder = stage.folder(f"run-{k}")
        count[scene.__name__[6:]] += 1
        try:
            processes += scene(rng, stage, folder)
            shutil.rmtree(os.path.dirname(folder), ignore_errors=True)
        except Finding as finding:
            cause = re.sub(r"\d+", "N", finding.what.splitlines()[0])[:60]
            findings[cause] += 1
            print(f"FAILED: run {k} ({scene.__name__[6:]}): {finding.what if findings[cause] < 3 else finding.what.splitlines()[0]}")
            print(f"  again: tests/program/hostile.py --seed {options.seed} --only {k} {options.program}")
            for line in {shell(stage, folder, c)[:3000]: None for c in finding.commands}:
                print(f"  shell: {line}")
            sys.stdout.flush()
            stage.given_look = look(stage.given)
    for cause, n in findings.most_common():
        print(f"hostile: {n} times: {cause}")
    took, said = time.monotonic() - began, ", ".join(f"{n} {name}" for name, n in count.most_common())
    print(f"hostile: seed {options.seed}: {sum(count.values())} runs ({said}), {findings.total()} findings, {took:.0f} s")
    if not findings and not options.work:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
