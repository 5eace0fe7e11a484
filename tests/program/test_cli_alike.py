#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fleets (nodes.py) whose nodes have all kinds of settings: the bits of one process, or a difference that is named.
test_cli_alike.py CONVOY GROUP   (groups: the functions named test_<group>)
"""
import os
import shutil
import signal

from cli import CONVOY, LENET, ROOT, call, check, expect, first_device, main, same
from nodes import (LIMIT_S, all_done, await_log, end, fleet, lines_of, losses, start, unlike, unused_ports)

BASE = ["train", *LENET[:2], "--data", "synthetic:700", "--batch", "64", "--seed", "3", "--conv-algo", "direct", "--tune=off"]
ADAMW = ["--init", "he", "--optimizer", "adamw", "--lr", "0.002", "--weight-decay", "0.05", "--decay-only-weights", "--clip-norm", "1", "--log-grad-norm",
         "--label-smoothing", "0.1", "--lr-mult", "0.*=0.5", "--augment", "flip,crop:2", "--normalize", "dataset", "--val-split", "0.15",
         "--patience", "2", "--epochs", "5", "--lr-schedule", "cosine", "--warmup", "3"]
LAUNCHERS = (("mpirun.openmpi", ["--oversubscribe", "--allow-run-as-root"]), ("mpiexec.mpich", []))


def files(folder, name):
    return ["--log", f"{folder}/{name}.jsonl", "--save", f"{folder}/{name}.st", "--save-best", f"{folder}/{name}.best"]


def curve(path):
    """What the log says of whole epochs."""
    keys = ("epoch", "train_loss", "train_acc", "val_acc", "test_acc", "best")
    return {line["epoch"]: [line.get(key) for key in keys] for line in lines_of(path, "train_loss")}


def same_run(folder, one, other):
    same(f"{folder}/{one}.st", f"{folder}/{other}.st", f"{other}: the last weights")
    same(f"{folder}/{one}.best", f"{folder}/{other}.best", f"{other}: the best weights")
    logs = [f"{folder}/{name}.jsonl" for name in (one, other)]
    norms = [[line.get("grad_norm", 0) for line in lines_of(log, "step") if "loss" in line] for log in logs]
    check(losses(logs[0]) == losses(logs[1]) and norms[0] == norms[1], f"{other}: other losses or norms than {one}")
    check(all(norm > 0 for norm in norms[0]), f"norms: {norms[0]}")
    check(curve(logs[0]) == curve(logs[1]), f"{other}: {curve(logs[1])}, {one}: {curve(logs[0])}")


def launched(folder, device, args):
    """The same under each MPI that is there."""
    for mpirun, more in LAUNCHERS:
        if not shutil.which(mpirun):
            print(f"{mpirun} is not there: not tested")
            continue
        done = call([mpirun, *more, "-n", "2", CONVOY, *args, "--devices", device, *files(folder, mpirun)], timeout=LIMIT_S)
        if "CVY_E_UNSUPPORTED" in done.stderr or "plug-in" in done.stderr:
            print(f"{mpirun}: its plug-in was not built: not tested")
            continue
        check(done.returncode == 0, mpirun, done)
        same_run(folder, "one", mpirun)


def resumed(folder, device):
    """Three nodes, then one process, then three nodes again, each time in the middle of an epoch."""
    args = [*BASE, *ADAMW, "--shares", "40,4,20", "--exchange", "bf16"]
    expect(0, *args, "--devices", f"{device}*3", *files(folder, "whole"), timeout=LIMIT_S)
    parts = [*args, *files(folder, "parts"), "--checkpoint", f"{folder}/parts", "--resume"]
    all_done(fleet(3, [*parts, "--devices", device, "--max-steps", "4"], folder), "three nodes")
    expect(0, *parts, "--devices", f"{device}*3", "--max-steps", "15", timeout=LIMIT_S)
    all_done(fleet(3, [*parts, "--devices", device], folder), "three nodes again")
    same_run(folder, "whole", "parts")


def loses_the_head(folder, device):
    """The next node goes on: it has the moments, the best accuracy and the random pictures of the one that died."""
    args = [*BASE, *ADAMW, "--save-best"]
    ports = unused_ports(3)
    started = [start(r, ports, [*args, f"{folder}/lost.best", "--shares", "40,4,20", "--devices", device, "--log", f"{folder}/lost.jsonl",
                                "--save", f"{folder}/lost.st"], folder) for r in range(3)]
    await_log(f"{folder}/lost.jsonl", 3000)
    started[0][0].send_signal(signal.SIGKILL)
    ends = end(started)
    check([code for code, _ in ends[1:]] == [0, 0], f"node 0 is killed: {ends}")
    told = [line["node_lost"] for line in lines_of(f"{folder}/lost.jsonl", "node_lost")]
    check(len(told) == 1, f"the log tells of {told}")
    alone = [*args, f"{folder}/alone.best", "--checkpoint", f"{folder}/alone"]
    there = ",".join(str(share) for share in told[0]["shares"] if share > 0)
    expect(0, *alone, "--devices", f"{device}*3", "--shares", "40,4,20", "--max-steps", told[0]["step"], timeout=LIMIT_S)
    expect(0, *alone, "--devices", f"{device}*2", "--shares", there, "--resume", "--save", f"{folder}/alone.st", timeout=LIMIT_S)
    same(f"{folder}/alone.st", f"{folder}/lost.st", "node 0 is killed: the last weights")
    same(f"{folder}/alone.best", f"{folder}/lost.best", "node 0 is killed: the best weights")


def fine_tuned(folder, device):
    """From weights that all nodes read, with layers that are frozen: nothing of them crosses."""
    args = [*BASE, "--shares", "0,64", "--epochs", "1", "--init-from", f"{folder}/one.st", "--init-skip", "9.*", "--freeze", "0,3",
            "--lr-mult", "9.*=10", "--momentum", "0.9", "--log-grad-norm"]
    expect(0, *args, "--devices", f"{device}*2", *files(folder, "tuned"), timeout=LIMIT_S)
    all_done(fleet(2, [*args, "--devices", device, *files(folder, "tuned2")], folder), "fine-tuning")
    same_run(folder, "tuned", "tuned2")


def test_fleet_options(at):
    """The bits of one process, over TCP and MPI."""
    folder, device = at(""), first_device()
    args = [*BASE, *ADAMW, "--shares", "40,24"]
    expect(0, *args, "--devices", f"{device}*2", *files(folder, "one"), timeout=LIMIT_S)
    all_done(fleet(2, [*args, "--devices", device, *files(folder, "two")], folder), "two nodes")
    same_run(folder, "one", "two")
    launched(folder, device, args)
    resumed(folder, device)
    loses_the_head(folder, device)
    fine_tuned(folder, device)


def refused(folder, args, first, second, *said):
    """Both nodes name the difference before the first step."""
    texts = unlike([*args, *first], [*args, *second], folder)
    for text in said:
        check(all(f"error: {text}" in node and "on node 1 (127.0.0.1" in node for node in texts), f"{text!r} is not said: {texts}")


def test_fleet_unlike(at):
    """Nodes with other settings, and with other pictures, which may lie elsewhere."""
    folder, device = at(""), first_device()
    args = [*BASE, "--devices", device, "--max-steps", "2"]
    refused(folder, args, ["--optimizer", "adam"], ["--optimizer", "adamw", "--weight-decay", "0.1"], 'optimizer kind: "adam"', "weight_decay: 0.0")
    refused(folder, args, ["--clip-norm", "1.5", "--label-smoothing", "0.1", "--augment", "flip", "--freeze", "0"],
            ["--log-grad-norm", "--normalize", "dataset", "--augment", "crop:3", "--lr-mult", "0.*=2", "--bn", "ghost:2"],
            "clip_norm: 1.5", "log_grad_norm: false", "label_smoothing: 0.1", "augment flip: true", "normalize: []", 'parameters 0.weight: "frozen"',
            'bn: "device"')
    judged = ["--val-split", "0.2", "--patience"]
    refused(folder, args, [*judged, "2", "--save-best", f"{folder}/best"], [*judged, "3"], "patience: 2", "save_best: true")
    refused(folder, args, judged[:2], ["--val-split", "0.1"], "images: [560,140,117]")
    # the folders' last pictures are exchanged, in the training and in the test set
    pictures = [*(word for word in args if word not in ("--data", "synthetic:700")), "--size", "28", "--batch", "6", "--data"]
    for name in "abc":
        shutil.copytree(os.path.join(ROOT, "tests", "data", "pictures"), f"{folder}/{name}")
    shutil.copy(f"{folder}/b/train/jpeg/gray.jpeg", f"{folder}/b/train/jpeg/progressive.jpg")
    shutil.copy(f"{folder}/c/train/jpeg/colour.jpg", f"{folder}/c/test/jpeg/small.jpg")
    refused(folder, pictures, [f"{folder}/a"], [f"{folder}/b"], "training_images_and_labels: ")
    refused(folder, pictures, [f"{folder}/a"], [f"{folder}/c"], "other_images_and_labels: ")
    shutil.rmtree(f"{folder}/b")
    shutil.copytree(f"{folder}/a", f"{folder}/b")
    ports = unused_ports(2)
    all_done(end([start(r, ports, [*pictures, f"{folder}/{name}"], folder) for r, name in enumerate("ab")]), "the same pictures in two folders")


if __name__ == "__main__":
    main(globals())
