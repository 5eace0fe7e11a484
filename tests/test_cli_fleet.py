#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several machines train one network (convoy/fleet.h): nodes are processes on this one, which meet over TCP on loopback or are
started by an MPI. The truth is one process with all the devices: same weights file, same losses, byte for byte.
test_cli_fleet.py CONVOY GROUP   (groups: the functions named test_<group> below)

  CVY_FLEET_KILLS=N   how many times a node is killed at a random moment (3)
"""
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time

from cli import CONVOY, LENET, call, check, expect, first_device, main

# The convolutions' algorithm is given: the choice would depend on what else runs.
BASE = ["train", *LENET[:2], "--data", "synthetic:700", "--batch", "64", "--momentum", "0.9", "--seed", "3", "--conv-algo", "direct",
        "--tune", "off", "--no-eval"]
LIMIT_S = 120


def unused_ports(n):
    held = [socket.socket() for _ in range(n)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def start(rank, ports, args, folder):
    nodes = ",".join(f"127.0.0.1:{p}" for p in ports)
    out = open(os.path.join(folder, f"node{rank}.txt"), "w+")
    return subprocess.Popen([CONVOY, *map(str, args), "--nodes", nodes, "--node", str(rank)], stdout=out, stderr=subprocess.STDOUT, text=True), out


def end(started):
    """Exit statuses and texts, by rank."""
    ends = []
    for process, out in started:
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = "hangs"
        out.seek(0)
        ends.append((code, out.read()))
        out.close()
    return ends


def fleet(n, args, folder, ports=None):
    ports = ports or unused_ports(n)
    return end([start(r, ports, args, folder) for r in range(n)])


def losses(path):
    with open(path, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return [(d["step"], d["loss"], d["correct"], d["shares"]) for d in lines if "step" in d]


def same_file(a, b, what):
    with open(a, "rb") as x, open(b, "rb") as y:
        check(x.read() == y.read(), f"{what}: {a} and {b} differ")


def all_done(ends, what):
    for r, (code, text) in enumerate(ends):
        check(code == 0, f"{what}: node {r} ends with {code}: {text}")


def truth(folder, name, devices, *args):
    files = ["--log", f"{folder}/{name}.jsonl", "--save", f"{folder}/{name}.safetensors"]
    expect(0, *BASE, "--devices", devices, *args, *files, timeout=LIMIT_S)


def two_nodes(folder, device):
    """Over TCP, and over each MPI that is there: the bits of one process."""
    args = ["--shares", "40,24", "--max-steps", "3"]
    truth(folder, "one", f"{device}*2", *args)
    names = ["--log", f"{folder}/tcp.jsonl", "--save", f"{folder}/tcp.safetensors"]
    ends = fleet(2, [*BASE, "--devices", device, *args, *names], folder)
    all_done(ends, "two nodes")
    same_file(f"{folder}/one.safetensors", f"{folder}/tcp.safetensors", "TCP")
    check(losses(f"{folder}/one.jsonl") == losses(f"{folder}/tcp.jsonl"), "TCP: other losses than in one process")
    check("train loss" in ends[0][1] and ends[1][1] == "", f"node 0 alone prints, but node 1 has printed: {ends[1][1]}")
    with open(f"{folder}/tcp.jsonl", encoding="utf-8") as f:
        nodes = json.loads(f.readline())["run"]["nodes"]
    check(len(nodes) == 2 and all(len(node["devices"]) == 1 for node in nodes), f"the log's nodes: {nodes}")
    # the first node has no samples, and sends no sum
    idle = ["--shares", "0,64", "--max-steps", "2"]
    truth(folder, "idle", f"{device}*2", *idle)
    all_done(fleet(2, [*BASE, "--devices", device, *idle, "--save", f"{folder}/idle2.safetensors"], folder), "an idle node")
    same_file(f"{folder}/idle.safetensors", f"{folder}/idle2.safetensors", "an idle node")
    for mpirun, more in (("mpirun.openmpi", ["--oversubscribe", "--allow-run-as-root"]), ("mpiexec.mpich", [])):
        if not shutil.which(mpirun):
            print(f"{mpirun} is not there: not tested")
            continue
        path = f"{folder}/{mpirun}.safetensors"
        done = call([mpirun, *more, "-n", "2", CONVOY, *BASE, "--devices", device, *args, "--save", path], timeout=LIMIT_S)
        if "CVY_E_UNSUPPORTED" in done.stderr or "plug-in" in done.stderr:
            print(f"{mpirun}: its plug-in was not built: not tested")
            continue
        check(done.returncode == 0, mpirun, done)
        same_file(f"{folder}/one.safetensors", path, mpirun)


def three_nodes(folder, device):
    """Uneven shares, groups, bfloat16, a short last batch, a checkpoint in the middle of an epoch, and going on from it."""
    args = ["--shares", "40,4,20", "--bn", "ghost:4", "--exchange", "bf16", "--epochs", "2", "--checkpoint"]
    truth(folder, "three", f"{device}*3", *args, f"{folder}/alone")
    fleet_args = [*BASE, "--devices", device, *args, f"{folder}/fleet", "--log", f"{folder}/fleet.jsonl"]
    ends = fleet(3, [*fleet_args, "--max-steps", "5"], folder)
    all_done(ends, "three nodes")
    ends = fleet(3, [*fleet_args, "--resume", "--max-steps", "22", "--save", f"{folder}/fleet.safetensors"], folder)
    all_done(ends, "three nodes resumed")
    same_file(f"{folder}/three.safetensors", f"{folder}/fleet.safetensors", "three nodes")
    check(losses(f"{folder}/three.jsonl") == losses(f"{folder}/fleet.jsonl"), "three nodes: other losses than in one process")


def differences(folder, device):
    """Nodes that would not train the same are refused, and the difference is named with its node."""
    ports = unused_ports(2)
    args = [*BASE, "--devices", device, "--max-steps", "2"]
    started = [start(0, ports, args, folder), start(1, ports, [*args, "--lr", "0.2"], folder)]
    ends = end(started)
    check(ends[0][0] == 2 and ends[1][0] == 2, f"exit {ends[0][0]} and {ends[1][0]}, must be 2: {ends}")
    check("lr" in ends[0][1] and "node 1 (127.0.0.1" in ends[0][1], f"the difference is not named: {ends[0][1]}")
    expect(2, *args, "--nodes", "a,b", err="--node I is missing")
    expect(2, *args, "--node", "1", err="--nodes A,B,... is missing")
    expect(2, *args, "--nodes", "a,b", "--node", "0", "--no-fleet", err="expected one of them")


def evaluation(folder, device):
    """The weights that test_two_nodes has left: the same hits as on one process; a verb for one machine is refused under a launcher."""
    args = ["eval", *LENET[:2], "--data", "synthetic:700", "--weights", f"{folder}/one.safetensors", "--conv-algo", "direct"]
    one = json.loads(expect(0, *args, "--devices", f"{device}*2", "--json", "-").stdout)
    ends = fleet(2, [*args, "--devices", device, "--json", f"{folder}/eval.json"], folder)
    all_done(ends, "eval")
    with open(f"{folder}/eval.json", encoding="utf-8") as f:
        both = json.load(f)
    for key in ("test_acc", "correct", "images", "loss"):
        check(one[key] == both[key], f"eval: {key} is {both[key]} on two nodes, {one[key]} in one process")
    expect(2, "tune", "--model", "lenet", env={"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, err="has started 2 processes")


def test_fleet(at):
    """Fleets that nothing happens to, and such that cannot be."""
    folder, device = at(""), first_device()
    two_nodes(folder, device)
    three_nodes(folder, device)
    evaluation(folder, device)
    differences(folder, device)


def test_fleet_lost(at):
    """A node is killed at a random moment: the others go on, end, and have lost no step."""
    folder, device, n, steps = at(""), first_device(), int(os.environ.get("CVY_FLEET_KILLS", "3")), 60
    for i in range(n):
        victim, rng = i % 3, random.Random(i)
        log = f"{folder}/kill{i}.jsonl"
        args = [*BASE, "--devices", device, "--epochs", "10", "--max-steps", steps, "--shares", "24,20,20", "--log", log]
        ports = unused_ports(3)
        started = [start(r, ports, args, folder) for r in range(3)]
        begun = time.monotonic()
        while time.monotonic() - begun < LIMIT_S and not (os.path.exists(log) and os.path.getsize(log) > 3000):
            time.sleep(0.02)
        time.sleep(rng.random())
        started[victim][0].send_signal(signal.SIGKILL)
        ends = end(started)
        for r, (code, text) in enumerate(ends):
            check(code == (-9 if r == victim else 0) or (r == victim and code == 0), f"kill {i} of node {victim}: node {r} ends with {code}: {text}")
        seen = [step for step, *_ in losses(log)]
        check(seen == sorted(set(seen)) and seen[-1] == steps - 1, f"kill {i} of node {victim}: the log's steps are {seen}")


class Network:
    """Nodes in network namespaces of their own, on one bridge; `rate`: of each node's link, as tc writes it."""

    made = 0  # what is deleted goes later: each network has names of its own

    def __init__(self, n, rate=None):
        Network.made += 1
        self.names = [f"c{os.getpid()}{'abcdefgh'[Network.made % 8]}{r}" for r in range(n)]
        self.bridge = f"b{os.getpid()}{'abcdefgh'[Network.made % 8]}"
        self.addresses = [f"10.214.77.{r + 1}" for r in range(n)]
        self.ip("link", "add", self.bridge, "type", "bridge")
        self.ip("link", "set", self.bridge, "up")
        for r, name in enumerate(self.names):
            self.ip("netns", "add", name)
            self.ip("link", "add", f"{name}o", "type", "veth", "peer", "name", "eth0", "netns", name)
            self.ip("link", "set", f"{name}o", "master", self.bridge, "up")
            self.ip("-n", name, "addr", "add", f"{self.addresses[r]}/24", "dev", "eth0")
            self.ip("-n", name, "link", "set", "eth0", "up")
            self.ip("-n", name, "link", "set", "lo", "up")
            for where in ([["-n", name], ["dev", "eth0"]], [[], ["dev", f"{name}o"]]) if rate else ():
                call(["tc", *where[0], "qdisc", "add", *where[1], "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"], check=True)

    @staticmethod
    def ip(*words):
        return call(["ip", *words], check=True)

    @staticmethod
    def is_allowed():
        try:
            name = f"cvy{os.getpid()}probe"
            Network.ip("netns", "add", name)
            Network.ip("netns", "del", name)
            return shutil.which("tc") is not None
        except (OSError, subprocess.CalledProcessError):
            return False

    def start(self, rank, args, folder, before=()):
        """before: words in front of the program's."""
        out = open(os.path.join(folder, f"node{rank}.txt"), "w+")
        words = ["ip", "netns", "exec", self.names[rank], *before, CONVOY, *map(str, args), "--nodes", ",".join(self.addresses), "--node", str(rank)]
        return subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, text=True), out

    def cut(self, rank):
        self.ip("link", "set", f"{self.names[rank]}o", "down")

    def close(self):
        for name in self.names:
            call(["ip", "netns", "del", name])
        call(["ip", "link", "del", self.bridge])


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


def read_bench(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def check_bench(result, shares):
    """The figures of `bench fleet`, and what they must be to each other."""
    n = len(shares)
    check(result["word"] == "fleet" and len(result["nodes"]) == n, f"{result}")
    check([node["share"] for node in result["nodes"]] == shares, f"shares: {result['nodes']}")
    check(len(result["devices"]) == sum(len(node["devices"]) for node in result["nodes"]), f"devices: {result['devices']}")
    for key in ("links_ms", "predicted_ms", "measured_ms"):
        check(result[key] > 0, f"{key}: {result[key]}")
    slowest = max(node["share_ms"] for node in result["nodes"])
    check(result["predicted_ms"] > 0.8 * max(slowest, result["links_ms"]), f"a step is predicted to take less than its parts: {result}")
    for r, node in enumerate(result["nodes"]):
        check(node["alone_ms"] > 0 and node["share_ms"] > node["host_ms"] > 0 and node["without_ms"] > 0, f"node {r}: {node}")
        gain = node["without_ms"] / result["measured_ms"]
        words = f"a step is {gain:.2f}x as fast" if gain >= 1.02 else f"{gain:.2f}x, because "
        check(words in node["verdict"] and node["name"] in node["verdict"], f"{words!r} is not in {node['verdict']!r}")
        link = node["to_next"]
        check((link is None) == (r == n - 1), f"node {r}: {link}")
        for key in link or ():
            check(link[key] > 0, f"node {r}: {key} is {link[key]}")
    if n == 2:
        check([node["without_ms"] for node in result["nodes"]] == [node["alone_ms"] for node in reversed(result["nodes"])], "without one: the other")


def test_fleet_bench(at):
    """Figures of a fleet: over TCP, and over an MPI; what cannot be measured is refused."""
    folder, device = at(""), first_device()
    args = ["bench", "fleet", "--model", "lenet", "--batch", "16", "--steps", "3", "--conv-algo", "direct", "--tune", "off", "--devices", device]
    ends = fleet(2, [*args, "--exchange", "bf16", "--shares", "10,6", "--rounds", "2", "--json", f"{folder}/bench.json"], folder)
    all_done(ends, "bench fleet")
    result = read_bench(f"{folder}/bench.json")
    check_bench(result, [10, 6])
    check(result["exchange"] == "bf16" and result["link"] == "tcp", f"{result}")
    for words in ("A step: predicted", result["nodes"][0]["verdict"], result["nodes"][1]["verdict"], "round 2 of 2: measuring the links"):
        check(words in ends[0][1], f"node 0 has not said {words!r}: {ends[0][1]}")
    check(ends[1][1] == "", f"node 0 alone prints, but node 1 has printed: {ends[1][1]}")
    if os.environ.get("CVY_TEST_FULL") == "1":
        ends = fleet(3, [*args, "--quiet", "--json", f"{folder}/three.json"], folder)
        all_done(ends, "bench fleet of three")
        check_bench(read_bench(f"{folder}/three.json"), [6, 5, 5])
    if shutil.which("mpirun.openmpi"):
        path = f"{folder}/mpi.json"
        done = call(["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-n", "2", CONVOY, *args, "--quiet", "--json", path], timeout=LIMIT_S)
        if "CVY_E_UNSUPPORTED" not in done.stderr and "plug-in" not in done.stderr:
            check(done.returncode == 0, "bench fleet over Open MPI", done)
            check_bench(read_bench(path), [8, 8])
    ports = unused_ports(2)
    ends = end([start(0, ports, args, folder), start(1, ports, [*args, "--exchange", "bf16"], folder)])
    check(ends[0][0] == 2 and ends[1][0] == 2 and 'exchange: "fp32" on node 0' in ends[0][1], f"nodes that differ: {ends}")
    ends = fleet(2, [*args, "--shares", "16,0"], folder)
    check(ends[0][0] == 2 and "no image for node 1" in ends[0][1], f"a node without images: {ends}")
    expect(2, *args, err="this process is alone")
    expect(2, *args, "--no-fleet", err="this process is alone", env={"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"})
    expect(2, *args, "--shares", "10,7", err="their sum is 17, expected that of --batch, 16")
    # a node that is killed while all are measured
    ports = unused_ports(2)
    started = [start(r, ports, [*args, "--steps", "128", "--rounds", "100"], folder) for r in range(2)]
    begun = time.monotonic()
    while time.monotonic() - begun < LIMIT_S and os.path.getsize(f"{folder}/node0.txt") < 30:
        time.sleep(0.02)
    time.sleep(0.5)
    started[1][0].send_signal(signal.SIGKILL)
    ends = end(started)
    check(ends[0][0] == 1 and "node 1 (127.0.0.1" in ends[0][1], f"node 1 is killed: {ends}")


def test_fleet_rates(at):
    """Links of known rates: these are found, and steps are predicted from them. The cores are taken as they are: what is predicted may
    be off by more than on a quiet machine."""
    folder, device = at(""), first_device()
    if not Network.is_allowed():
        print("no network namespaces or no tc here: not tested")
        return
    cores = sorted(os.sched_getaffinity(0))
    for n, rate, mbit, exchange in ((2, "100mbit", 100, "fp32"), (2, "1gbit", 1000, "fp32"), (2, "1gbit", 1000, "bf16"), (3, "1gbit", 1000, "fp32")):
        name, path = f"{n} nodes at {rate}, {exchange}", f"{folder}/rates.json"
        args = ["bench", "fleet", "--model", "resnet18", "--batch", 32 * n, "--exchange", exchange, "--steps", 4, "--rounds", 2, "--devices", device,
                "--tune", "off", "--json", path]
        network = Network(n, rate)
        try:
            ends = end([network.start(r, args, folder, ("taskset", "-c", str(cores[r % len(cores)]))) for r in range(n)])
        finally:
            network.close()
        all_done(ends, name)
        result = read_bench(path)
        check_bench(result, [32] * n)
        for node in result["nodes"][:-1]:
            link = node["to_next"]
            for key in ("up_mbit", "down_mbit"):
                check(0.85 * mbit < link[key] < 1.05 * mbit, f"{name}: {key} is {link[key]}")
            for key in ("both_up_mbit", "both_down_mbit"):
                check(0.6 * mbit < link[key] < 1.05 * mbit, f"{name}: {key} is {link[key]}")
        off = result["predicted_ms"] / result["measured_ms"] - 1
        print(f"{name}: predicted {result['predicted_ms']:.0f} ms, measured {result['measured_ms']:.0f}, off by {100 * off:+.1f} %")
        check(abs(off) < 0.3, f"{name}: off by {100 * off:+.1f} %")


if __name__ == "__main__":
    main(globals())
