#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fleets (nodes.py) in which one device has all samples of every batch: it updates its own weights, and no gradient crosses.
test_cli_fleet_lone.py CONVOY GROUP   (groups: the functions named test_<group> below)"""
import os
import signal
import time

from cli import check, first_device, main, same
from nodes import BASE, LIMIT_S, STEPS, Network, all_done, await_log, end, fleet, lines_of, losses, start, truth, unused_ports

RATE_MBIT = 4


def test_fleet_lone(at):
    """The bits of one process, whichever node has the device: clipped gradients, Adam, checkpoints within an epoch, and going on from one with
    shares for both."""
    folder, device = at(""), first_device()
    ways = [["--clip-norm", "0.5", "--checkpoint-every", "7"], ["--optimizer", "adam", "--momentum", "0", "--lr", "0.001", "--log-grad-norm"]]
    for shares, more in zip(("64,0", "0,64"), ways):
        what, name = f"shares {shares}", shares.replace(",", "+")
        args = ["--shares", shares, "--epochs", "3", *more]
        truth(folder, f"one{name}", f"{device}*2", *args, "--max-steps", "20", *(["--checkpoint", f"{folder}/c{name}"] if "--clip-norm" in more else []))
        mine = [*BASE, "--devices", device, *args, "--log", f"{folder}/two.jsonl"]
        all_done(fleet(2, [*mine, "--checkpoint", f"{folder}/f{name}", "--max-steps", "12"], folder), what)
        ends = fleet(2, [*mine, "--checkpoint", f"{folder}/f{name}", "--resume", "--max-steps", "20", "--save", f"{folder}/two.safetensors"], folder)
        all_done(ends, f"{what}, resumed")
        same(f"{folder}/one{name}.safetensors", f"{folder}/two.safetensors", what)
        one, two = ([(*entry, d.get("grad_norm")) for entry, d in zip(losses(log), lines_of(log, "step"))]
                    for log in (f"{folder}/one{name}.jsonl", f"{folder}/two.jsonl"))
        check(one == two and one[0][-1] is not None, f"{what}: {two}, in one process {one}")


def test_fleet_lone_lost(at):
    """The node with that device is killed: the other one redoes the steps that it has alone, and comes to the bits of a run without a loss."""
    folder, device = at(""), first_device()
    truth(folder, "whole", f"{device}*2", "--shares", "64,0", "--epochs", "10", "--max-steps", STEPS)
    for victim, shares in ((0, "64,0"), (1, "0,64")):
        what, ports = f"node {victim}, which has all samples, is killed", unused_ports(2)
        logs = [f"{folder}/{victim}of{r}.jsonl" for r in range(2)]
        args = [*BASE, "--devices", device, "--epochs", "10", "--max-steps", STEPS, "--shares", shares]
        started = [start(r, ports, [*args, "--log", logs[r], "--save", f"{folder}/{r}.safetensors"], folder) for r in range(2)]
        await_log(logs[0])
        started[victim][0].send_signal(signal.SIGKILL)
        ends = end(started)
        code, said = ends[1 - victim]
        check(code == 0, f"{what}: the other node ends with {code}: {said}")
        check("this node continues alone" in said, f"{what}: it says {said}")
        again = "are repeated: only a lost device has their weights"  # node 0 alone says what is no warning
        check(victim == 0 or again in said, f"{what}: it says {said}")
        same(f"{folder}/whole.safetensors", f"{folder}/{1 - victim}.safetensors", what)
        seen = {entry[0]: entry[:3] for log in logs if os.path.exists(log) for entry in losses(log)}
        check([seen[step] for step in range(STEPS)] == [entry[:3] for entry in losses(f"{folder}/whole.jsonl")], f"{what}: other losses")


def test_fleet_lone_link(at):
    """Over a slow link a step takes no longer than alone: nothing but its sums crosses."""
    folder, device, steps = at(""), first_device(), 40
    if not Network.is_allowed():
        print("no network namespaces or no tc here: not tested")
        return
    gradients_s = 8e-6 * steps * 4 * 61706 / RATE_MBIT  # LeNet's, one way
    network, log = Network(2, f"{RATE_MBIT}mbit"), f"{folder}/link.jsonl"
    try:
        started = [network.start(r, [*BASE, "--devices", device, "--epochs", "10", "--max-steps", steps, "--shares", "0,64", "--log", log], folder)
                   for r in range(2)]
        await_log(log, 0)
        while not losses(log):
            time.sleep(0.01)
        begun = time.monotonic()
        all_done(end(started, LIMIT_S), "a slow link")
        took_s = time.monotonic() - begun
    finally:
        network.close()
    print(f"{took_s:.2f} s for {steps} steps and the state at their end; their gradients would take {gradients_s:.1f} s")
    check(took_s < gradients_s / 3, f"{steps} steps over {RATE_MBIT} Mbit/s take {took_s:.2f} s: their gradients alone would take {gradients_s:.1f} s")


if __name__ == "__main__":
    main(globals())
