#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fleets (nodes.py) that lose a node and end, or only end. test_cli_lost.py CONVOY GROUP   (groups: the functions named test_<group>)
CVY_KILL_ROUNDS=N: how often an MPI's job is disturbed (2)."""
import os
import random
import shutil
import signal
import time

from cli import CONVOY, call, check, expect, first_device, main, same
from nodes import (BASE, LIMIT_S, SHARES, STEPS, Network, all_done, await_log, end, fleet, kill_rank, lines_of, losses, run_mpirun,
                   start, unused_ports)

def stop_and_resume(folder, device, what, disturb, code_of):
    """--on-device-loss stop: all nodes end after the same step, the head's checkpoint goes on to the bits of a run that nothing has happened to."""
    log, kept, saved = f"{folder}/stop.jsonl", f"{folder}/stop", f"{folder}/stop.safetensors"
    shutil.rmtree(kept, ignore_errors=True)
    if os.path.exists(log):
        os.remove(log)
    mine = [*BASE, "--devices", device, "--epochs", "10", "--max-steps", STEPS, "--shares", ",".join(map(str, SHARES)), "--log", log,
            "--checkpoint", kept, "--save", saved, "--on-device-loss", "stop"]
    ends = disturb(mine, log)
    for r, (code, text) in enumerate(ends):
        check(code == code_of(r), f"{what}: node {r} ends with {code}, not {code_of(r)}: {text}")
    said = "".join(text for _, text in ends)
    check("the run ends (--on-device-loss stop)" in said and "resume with --resume" in said, f"{what}: the nodes say {said}")
    check(len(lines_of(log, "error")) == 1, f"{what}: the log has not one error")
    all_done(fleet(3, [*mine, "--resume"], folder), f"{what}: resumed")
    same(f"{folder}/whole.safetensors", saved, what)


def test_fleet_stop(at):
    folder, device = at(""), first_device()
    expect(0, *BASE, "--devices", f"{device}*3", "--epochs", "10", "--max-steps", STEPS, "--shares", ",".join(map(str, SHARES)), "--save",
           f"{folder}/whole.safetensors", timeout=LIMIT_S)

    def kill(victim):
        def disturb(args, log):
            ports = unused_ports(3)
            started = [start(r, ports, args, folder) for r in range(3)]
            await_log(log)
            started[victim][0].send_signal(signal.SIGKILL)
            return end(started)
        return disturb

    def fail(args, log):
        ports = unused_ports(3)
        return end([start(r, ports, args, folder, "fail=0:launch:400:-36" if r == 1 else "") for r in range(3)])

    for victim in (0, 1) if os.environ.get("CVY_TEST_FULL") else (0,):
        stop_and_resume(folder, device, f"node {victim} is killed", kill(victim), lambda r, victim=victim: -9 if r == victim else 1)
    stop_and_resume(folder, device, "a device of node 1 fails", fail, lambda r: 1)


def test_fleet_ends(at):
    """Nodes end at different times, and none looks lost to the others, over TCP and each MPI that is there."""
    folder, device = at(""), first_device()
    rounds = 40 if os.environ.get("CVY_TEST_FULL") else 3
    args = [*BASE, "--devices", device, "--max-steps", 2]
    for i in range(rounds):
        ports, late = unused_ports(3), i % 3
        ends = end([start(r, ports, args, folder, "slow=0:20" if r == late else "") for r in range(3)])
        all_done(ends, f"node {late} is slow")
        said = "".join(text for _, text in ends)
        check("is lost" not in said and "has left" not in said and said.count("train loss") == 1, f"node {late} is slow: {said}")
    for mpirun, more in (("mpirun.openmpi", ["--oversubscribe", "--allow-run-as-root"]), ("mpiexec.mpich", [])):
        if not shutil.which(mpirun):
            print(f"{mpirun} is not there: not tested")
            continue
        for i in range(1 + rounds // 4):
            done = call([mpirun, *more, "-n", "3", CONVOY, *args], timeout=LIMIT_S)
            if "plug-in" in done.stderr:
                print(f"{mpirun}: its plug-in was not built: not tested")
                break
            check(done.returncode == 0 and "is lost" not in done.stderr and done.stdout.count("train loss") == 1, f"{mpirun}, run {i}", done)


def test_fleet_job(at):
    """An MPI that ends the job with one of its processes: node 0 saves at once, and a resumed job comes to the bits of one that nothing happened to;
    the same when mpirun is asked to end."""
    folder, device = at(""), first_device()
    words = [shutil.which("mpirun.openmpi"), "--oversubscribe"]
    if not words[0] or "4.1" not in call([words[0], "--version"]).stdout:
        print("no Open MPI 4.1: not tested")
        return
    n, at_once, steps = int(os.environ.get("CVY_KILL_ROUNDS", "2")), 0, 300
    base = [word for word in BASE if word not in ("--tune", "off")]  # mpirun takes --tune for its own
    args = [*base, "--devices", device, "--epochs", "40", "--max-steps", steps, "--shares", ",".join(map(str, SHARES))]
    expect(0, *base, "--devices", f"{device}*3", *args[args.index("--epochs"):], "--save", f"{folder}/whole.safetensors", timeout=LIMIT_S)
    ways = [kill_rank(1), kill_rank(2), kill_rank(0), lambda mpirun, _: mpirun.send_signal(signal.SIGTERM),
            lambda mpirun, _: mpirun.send_signal(signal.SIGINT)]

    def moment(log, rng, disturb):
        def wait(mpirun, mark):
            await_log(log)
            time.sleep(rng.random())
            disturb(mpirun, mark)
        return wait

    for i in range(n):
        rng, what = random.Random(i), f"disturbance {i}"
        kept, log, saved = f"{folder}/job{i}", f"{folder}/job{i}.jsonl", f"{folder}/job{i}.safetensors"
        mine = [*args, "--checkpoint", kept, "--checkpoint-every", 40, "--log", log, "--save", saved]
        code, text = run_mpirun([*words, "-n", "3"], mine, f"{folder}/job.txt", moment(log, rng, ways[i % len(ways)]))
        check(code != "hangs", f"{what}: the job hangs: {text}")
        seen = [step for step, *_ in losses(log)]
        newest = max((int("".join(filter(str.isdigit, name)) or 0) for name in os.listdir(kept)), default=-1) if os.path.isdir(kept) else -1
        at_once += i % len(ways) != 2 and newest >= seen[-1] - 1 and seen[-1] + 1 < steps
        print(f"{what}: exit {code}, {seen[-1] + 1} steps logged, checkpoints {sorted(os.listdir(kept)) if os.path.isdir(kept) else 'none'}")
        done = call([*words, "--allow-run-as-root", "-n", "3", CONVOY, *mine, "--resume"], timeout=LIMIT_S)
        check(done.returncode == 0, f"{what}: resumed", done)
        same(f"{folder}/whole.safetensors", saved, what)
    print(f"{at_once} of {n} saved at once")


def test_fleet_cut(at):
    """A node's cable is pulled: the larger part goes on, of two equal ones that with node 0; the other part ends and says why."""
    folder, device, steps = at(""), first_device(), 120
    if not Network.is_allowed():
        print("no network namespaces or no tc here: not tested")
        return
    for n, victim in ((2, 1), (3, 0), (3, 1)):
        network, logs = Network(n), [f"{folder}/cut{n}{victim}{r}.jsonl" for r in range(n)]
        args = [*BASE, "--devices", device, "--epochs", "20", "--max-steps", steps]
        try:
            started = [network.start(r, [*args, "--log", logs[r]], folder) for r in range(n)]
            begun = time.monotonic()
            while time.monotonic() - begun < LIMIT_S and not (os.path.exists(logs[0]) and os.path.getsize(logs[0]) > 3000):
                time.sleep(0.02)
            network.cut(victim)
            ends = end(started)
        finally:
            network.close()
        for r, (code, text) in enumerate(ends):
            check(code == (1 if r == victim else 0), f"{n} nodes, node {victim} is cut off: node {r} ends with {code}: {text}")
        check("too few of the other nodes answer" in ends[victim][1], f"the node that is cut off says: {ends[victim][1]}")
        seen = [step for step, *_ in losses(logs[0])]
        if victim == 0:  # node 1 logs what node 0 has not
            more = [step for step, *_ in losses(logs[1])]
            check(more and more[0] <= seen[-1] + 1, f"node 0 has logged {seen}, node 1 {more}")
            seen = [step for step in seen if step < more[0]] + more
        check(seen == list(range(steps)), f"{n} nodes, node {victim} is cut off: the logs' steps are {seen}")


def test_fleet_mpi_cut(at):
    """A node's cable is pulled under Open MPI 5: within a minute the larger part comes to its end, the other one gives up. mpirun itself waits for
    the machine that is lost, and is ended here."""
    folder, steps, base = at(""), 60, [word for word in BASE if word not in ("--tune", "off")]
    path = os.path.join(os.environ.get("CVY_TEST_OPENMPI5", ""), "bin", "mpirun")
    if not os.path.exists(path) or not Network.is_allowed():
        print("CVY_TEST_OPENMPI5 names no Open MPI with fault tolerance, or no network namespaces here: not tested")
        return
    for n, victim in ((2, 1), (3, 2)):
        what, network = f"{n} nodes, node {victim} is cut off", Network(n)
        log, saved = f"{folder}/{n}.jsonl", f"{folder}/{n}.safetensors"
        words = [path, "--with-ft", "ulfm", "--prtemca", "oob_tcp_keepalive_time", "0"]
        try:
            mpirun, out = network.mpirun(words, [*base, "--devices", first_device(), "--epochs", 20, "--max-steps", steps, "--log", log, "--save",
                                                 saved], folder)
            await_log(log)
            network.cut(victim)
            begun = time.monotonic()
            while time.monotonic() - begun < 60 and any(network.pids(r) for r in range(n)):
                time.sleep(0.1)
            left = [r for r in range(n) if network.pids(r)]
        finally:
            network.end_all()
            mpirun.wait()
            network.close()
        out.seek(0)
        said = out.read()
        out.close()
        check(not left, f"{what}: after a minute nodes {left} still run: {said}")
        check(f"node {victim} (" in said and "it does not answer" in said and "may go on waiting for" in said, f"{what}: it says {said}")
        check([step for step, *_ in losses(log)] == list(range(steps)) and os.path.exists(saved), f"{what}: not all steps: {said}")
        print(f"{what}: {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main(globals())
