#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fleets (nodes.py) whose shares follow speeds. test_cli_shares.py CONVOY GROUP   (groups: the functions named test_<group>)"""
import json
import os
import re
import signal
import time

from cli import check, first_device, main, same
from nodes import BASE, LIMIT_S, all_done, end, fleet, losses, start, truth, unlike, unused_ports


def steps_shares(path):
    return [shares for *_, shares in losses(path)]


def test_fleet_shares(at):
    """--split auto where one machine is slower; so few steps that shares stay. They are those of --shares, bit for bit."""
    folder, device = at(""), first_device()
    auto = [*BASE, "--devices", device, "--split", "auto"]
    names = ["--log", f"{folder}/auto.jsonl", "--save", f"{folder}/auto.safetensors"]
    ends = fleet(2, [*auto, "--max-steps", "5", *names], folder, words="slow=all:20")
    all_done(ends, "shares by speed")
    check("shares by measured speed: " in ends[0][1] and "even shares" in ends[0][1], f"node 0 says: {ends[0][1]}")
    check("train loss" not in ends[1][1] and "shares by" not in ends[1][1], f"node 0 alone prints the result, but node 1 has printed: {ends[1][1]}")
    told = re.search(r"--shares (\d+),(\d+) repeats this run bit for bit\n", ends[0][1])
    check(told, f"the shares that repeat the run: {ends[0][1]}")
    shares = [int(n) for n in told.groups()]
    check(sum(shares) == 64 and shares[0] > 2 * shares[1], f"shares {shares}")
    check(steps_shares(f"{folder}/auto.jsonl") == 5 * [shares], "shares of each step")
    with open(f"{folder}/auto.jsonl", encoding="utf-8") as f:
        change = [json.loads(line) for line in f][1]["balance"]
    check(change["shares"] == shares and len(change["devices"]) == 2 and len(change["devices"][1]["measured_ms"]) >= 2, f"{change}")
    truth(folder, "given", f"{device}*2", "--max-steps", "5", "--shares", ",".join(told.groups()))
    same(f"{folder}/auto.safetensors", f"{folder}/given.safetensors", "shares by speed")
    # nodes that would not find them together
    texts = unlike(auto, [*BASE, "--devices", device, "--shares", "40,24"], folder)
    check(all("split: auto on node 0" in text and "shares on node 1" in text for text in texts), f"another split: {texts}")
    # resumed where the devices are equal: with the shares of the checkpoint all the same
    parts = [*auto, "--checkpoint", f"{folder}/parts", "--resume"]
    ends = fleet(2, [*parts, "--max-steps", "2"], folder, words="slow=all:20")
    told = re.search(r"--shares (\d+),(\d+) repeats", ends[0][1])
    check(told, f"the shares of the first part: {ends}")
    all_done(fleet(2, [*parts, "--max-steps", "4", "--log", f"{folder}/parts.jsonl"], folder), "resumed")
    check(steps_shares(f"{folder}/parts.jsonl") == 2 * [[int(n) for n in told.groups()]], "resumed shares")


def test_fleet_change(at):
    """A node becomes slow while the fleet trains, and gets less in a later step; then another one is killed."""
    folder, device = at(""), first_device()
    log = f"{folder}/change.jsonl"
    args = [*BASE, "--devices", device, "--split", "auto", "--drop-last", "--epochs", "1000", "--max-steps", "20000", "--verify-every", "100", "--log", log]
    ports = unused_ports(3)
    started = [start(r, ports, args, folder, "slow=all:30:6s-1000s" if r == 2 else "") for r in range(3)]
    begun, changes = time.monotonic(), []
    while time.monotonic() - begun < LIMIT_S and not any(c["step"] > 0 and c["shares"][2] <= 4 for c in changes):
        time.sleep(0.2)
        if os.path.exists(log):
            with open(log, encoding="utf-8") as f:
                changes = [json.loads(line)["balance"] for line in f if line.startswith('{"balance"') and line.endswith("\n")]
    check(any(c["step"] > 0 and c["shares"][2] <= 4 for c in changes), f"shares change: {changes}")
    started[1][0].send_signal(signal.SIGKILL)
    size = os.path.getsize(log)
    while time.monotonic() - begun < LIMIT_S and os.path.getsize(log) < size + 20000:
        time.sleep(0.1)
    started[2][0].send_signal(signal.SIGINT)
    ends = end(started)
    check([code for code, _ in ends] == [130, -9, 130], f"the nodes end with {ends}")
    seen = losses(log)
    check([step for step, *_ in seen] == list(range(len(seen))), "the log's steps")
    last = seen[-1][3]
    check(last[1] == 0 and last[0] > 2 * last[2] and sum(last) == 64, f"the last shares are {last}")
    at_step = {c["step"]: c["shares"] for c in changes}
    for step, *_, shares in seen:
        if step in at_step:
            check(shares == at_step[step], f"step {step} has the shares {shares}, not {at_step[step]}")


if __name__ == "__main__":
    main(globals())
