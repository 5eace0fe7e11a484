#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fleets (nodes.py) that lose one of three nodes at a random moment: none hangs, and the weights are those of the survivors alone from that step on.
test_cli_kills.py CONVOY GROUP   (groups: the functions named test_<group>)

  CVY_KILL_ROUNDS=N      how many nodes are lost (2; fleet_kills: 6)
  CVY_TEST_SEED=N        the first of them has this number (0)
  CVY_FLEET_WAYS=W,...   in which ways, in turns: tcp, openmpi5, cut (those that are possible here)
  CVY_TEST_OPENMPI5      folder of an Open MPI with fault tolerance
"""
import os
import random
import shutil
import signal
import time

from cli import check, expect, first_device, main, same
from nodes import (BASE, LIMIT_S, SHARES, STEPS, Network, await_log, end, kill_rank, lines_of, losses, run_mpirun, start, unused_ports)

# mpirun of Open MPI takes --tune for its own
MORE = ["--epochs", "10", "--bn", "ghost:4", "--max-steps", str(STEPS)]
LINE = 100  # bytes of the log for a step, about


class Loss:
    """A run of three nodes that loses one."""

    def __init__(self, folder, device, number):
        self.folder, self.device, self.number = folder, device, number
        self.victim = number % 3
        self.rng = random.Random(number)
        self.ends = {}    # survivors' exit statuses; of mpirun: one
        self.said = ""    # by the survivors
        self.log = f"{folder}/loss.jsonl"
        self.saved = f"{folder}/loss.safetensors"
        for path in (self.log, self.saved):
            if os.path.exists(path):
                os.remove(path)

    def args(self, log, saved):
        return [*(word for word in BASE if word not in ("--tune", "off")), *MORE, "--devices", self.device, "--shares", ",".join(map(str, SHARES)),
                "--fleet-wait", "10", "--log", log, "--save", saved]

    def wait(self):
        """One in six comes while the nodes open, or a little later; the others around a step of any number."""
        if self.rng.random() < 1 / 6:
            time.sleep(self.rng.uniform(0, 1.5))
        else:
            await_log(self.log, 1200 + LINE * self.rng.randrange(STEPS))
            time.sleep(self.rng.uniform(0, 0.02))


def lose_tcp(loss):
    """kill -9 over TCP."""
    ports = unused_ports(3)
    started = [start(r, ports, loss.args(loss.log, loss.saved), loss.folder) for r in range(3)]
    loss.wait()
    started[loss.victim][0].send_signal(signal.SIGKILL)
    ends = end(started)
    loss.ends = {r: code for r, (code, _) in enumerate(ends) if r != loss.victim}
    loss.said = "".join(text for r, (_, text) in enumerate(ends) if r != loss.victim)


def lose_openmpi5(loss):
    """kill -9 under Open MPI with fault tolerance."""
    def kill(mpirun, mark):
        loss.wait()
        kill_rank(loss.victim)(mpirun, mark)

    words = [os.path.join(os.environ["CVY_TEST_OPENMPI5"], "bin", "mpirun"), "--with-ft", "ulfm", "--oversubscribe", "-np", "3"]
    code, loss.said = run_mpirun(words, loss.args(loss.log, loss.saved), f"{loss.folder}/mpirun.txt", kill)
    loss.ends = {"mpirun": code}


def lose_cut(loss):
    """The cable of one node is pulled. Each node has a disk of its own."""
    network = Network(3)
    logs, saved = [f"{loss.folder}/cut{r}.jsonl" for r in range(3)], [f"{loss.folder}/cut{r}.safetensors" for r in range(3)]
    for path in (*logs, *saved):
        if os.path.exists(path):
            os.remove(path)
    loss.log = logs[0]
    try:
        started = [network.start(r, loss.args(logs[r], saved[r]), loss.folder) for r in range(3)]
        loss.wait()
        network.cut(loss.victim)
        ends = end(started)
    finally:
        network.close()
    code, text = ends[loss.victim]
    loss.ends = {r: code for r, (code, _) in enumerate(ends) if r != loss.victim}
    loss.said = "".join(text for r, (_, text) in enumerate(ends) if r != loss.victim)
    check(code in (0, 1), f"the node that is cut off ends with {code}: {text}")
    head = 1 if loss.victim == 0 and os.path.exists(logs[1]) else 0
    if head == 1:  # node 1 has logged what node 0 has not
        steps = [step for step, *_ in losses(logs[1])]
        check(steps and steps[0] <= len(losses(logs[0])), "node 0 has logged what node 1 has done again")
        with open(loss.folder + "/loss.jsonl", "w", encoding="utf-8") as out:
            for path, keep in ((logs[0], lambda step: step < steps[0]), (logs[1], lambda _: True)):
                with open(path, encoding="utf-8") as f:
                    out.writelines(line for line in f if line.endswith("\n") and ('"step":' not in line or '"node_lost"' in line or
                                                                                 keep(int(line.split('"step":')[1].split(",")[0]))))
        loss.log = loss.folder + "/loss.jsonl"
    loss.saved = saved[head]


WAYS = {"tcp": lose_tcp, "openmpi5": lose_openmpi5, "cut": lose_cut}


def same_as_alone(loss, lost, what):
    """lost: as the log tells it."""
    alone, want = f"{loss.folder}/alone", f"{loss.folder}/alone.safetensors"
    shutil.rmtree(alone, ignore_errors=True)
    run = [*BASE, *MORE[:4], "--checkpoint", alone]
    from_step = lost["step"]
    for shares, until, more in ((SHARES, from_step, []), (lost["shares"], STEPS, ["--resume", "--save", want] if from_step else ["--save", want])):
        there = [str(share) for share in shares if share > 0]
        if until > 0:
            expect(0, *run, "--devices", f"{loss.device}*{len(there)}", "--shares", ",".join(there), "--max-steps", until, *more, timeout=LIMIT_S)
    same(want, loss.saved, f"{what}, from step {from_step} on")


def logged_once(lines):
    """The steps. Nodes share a log here: the head may have logged its last step, and the next head, which cannot know, logs it, too."""
    return [line[0] for line, before in zip(lines, [None, *lines]) if line != before]


def judge(loss, what):
    """What became of it: `before` the first step, `after` the last one, or `within`."""
    codes = list(loss.ends.values())
    if "hangs" in codes:
        check(False, f"{what}: hangs: {loss.ends} {loss.said}")
        return "hangs"
    seen = logged_once(losses(loss.log)) if os.path.exists(loss.log) else []
    told = [line["node_lost"] for line in lines_of(loss.log, "node_lost")] if seen else []
    if not seen and not told:  # there was nothing to go on with
        check(all(code not in (0, 2) for code in codes) and not os.path.exists(loss.saved), f"{what}: before the first step: {loss.ends} {loss.said}")
        check("node" in loss.said, f"{what}: no reason is said: {loss.said}")
        return "before"
    check(all(code == 0 for code in codes), f"{what}: the survivors end with {loss.ends}: {loss.said}")
    check(seen == list(range(STEPS)), f"{what}: the log's steps are {seen}")
    epochs = {line["epoch"] for line in lines_of(loss.log, "train_loss")}
    check(epochs >= set(range(STEPS // 11)), f"{what}: the log's epochs are {epochs}")
    if not told:
        same(f"{loss.folder}/whole.safetensors", loss.saved, f"{what}, which came after the last step")
        return "after"
    first = told[0]
    check(len(told) == 1 and first["node"] == loss.victim and first["nodes_left"] == 2 and first["shares"][loss.victim] == 0,
          f"{what}: the log says {told}")
    alone_from = next((step for step, _, _, shares in losses(loss.log) if shares[loss.victim] == 0), STEPS)
    check(alone_from == first["step"], f"{what}: the log says {told}, and step {alone_from} is the first one without it")
    check(f"node {loss.victim} (" in loss.said and "is lost in step" in loss.said, f"{what}: the survivors say {loss.said}")
    same_as_alone(loss, first, what)
    return "within"


def own_logs(folder):
    """Each node has a log of its own, and node 0 is killed: node 1's log begins with what node 0 may not have written any more."""
    ports, logs = unused_ports(3), [f"{folder}/own{r}.jsonl" for r in range(3)]
    loss = Loss(folder, first_device(), 0)
    started = [start(r, ports, loss.args(logs[r], loss.saved), folder) for r in range(3)]
    await_log(logs[0])
    started[0][0].send_signal(signal.SIGKILL)
    ends = end(started)
    check([code for code, _ in ends] == [-signal.SIGKILL, 0, 0], f"own logs: {ends}")
    lost, mine, others = lines_of(logs[1], "node_lost")[0]["node_lost"]["step"], losses(logs[1]), losses(logs[0])
    check(lost - 8 <= mine[0][0] < lost and [step for step, *_ in mine] == list(range(mine[0][0], STEPS)),
          f"own logs: lost in step {lost}, node 1's are {[step for step, *_ in mine]}")
    both = [line for line in mine if line[0] < lost and line[0] <= others[-1][0]]
    check(both and all(line in others for line in both), f"own logs: {both} of node 1 are not those of node 0")
    check(not os.path.exists(logs[2]), "own logs: node 2 has a log")


def lose_nodes(folder, ways, rounds):
    device, begin = first_device(), int(os.environ.get("CVY_TEST_SEED", "0"))
    whole = ["--devices", f"{device}*3", "--shares", ",".join(map(str, SHARES)), "--save", f"{folder}/whole.safetensors"]
    expect(0, *BASE, *MORE, *whole, timeout=LIMIT_S)
    came = {}
    for i in range(begin, begin + int(os.environ.get("CVY_KILL_ROUNDS", rounds))):
        way = ways[i // 3 % len(ways)]
        loss = Loss(folder, device, i)
        WAYS[way](loss)
        when = judge(loss, f"loss {i}, of node {loss.victim}, {way}")
        came[way, when] = came.get((way, when), 0) + 1
    print(", ".join(f"{way}: {n} {when}" for (way, when), n in sorted(came.items())))


def test_fleet_lost(at):
    lose_nodes(at(""), ["tcp"], 2)
    own_logs(at(""))


def test_fleet_kills(at):
    """In each way that is possible here."""
    ways = os.environ.get("CVY_FLEET_WAYS", "tcp,openmpi5,cut").split(",")
    if "openmpi5" in ways and not os.path.exists(os.path.join(os.environ.get("CVY_TEST_OPENMPI5", ""), "bin", "mpirun")):
        print("CVY_TEST_OPENMPI5 names no Open MPI with fault tolerance: not tested")
        ways.remove("openmpi5")
    if "cut" in ways and not Network.is_allowed():
        print("no network namespaces here: not tested")
        ways.remove("cut")
    check(ways, "nothing can be tested")
    if ways:
        lose_nodes(at(""), ways, 3 * len(ways))


if __name__ == "__main__":
    main(globals())
