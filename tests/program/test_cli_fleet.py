#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several machines train one network (convoy/fleet.h), and nothing happens to them; nodes.py says how they are made and what is true.
test_cli_fleet.py CONVOY GROUP   (groups: the functions named test_<group> below)
"""
import fcntl
import json
import os
import pty
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import termios
import time

from cli import CONVOY, LENET, call, check, expect, first_device, main, read, same
from nodes import BASE, LIMIT_S, Network, all_done, end, fleet, lines_of, losses, start, truth, unlike, unused_ports

RATES_LIMIT_S = 900  # the first of these runs compiles all kernels of ResNet-18, on one core


def two_nodes(folder, device):
    """Over TCP, and over each MPI that is there: the bits of one process."""
    args = ["--shares", "40,24", "--max-steps", "3"]
    truth(folder, "one", f"{device}*2", *args)
    names = ["--log", f"{folder}/tcp.jsonl", "--save", f"{folder}/tcp.safetensors"]
    ends = fleet(2, [*BASE, "--devices", device, *args, *names], folder)
    all_done(ends, "two nodes")
    same(f"{folder}/one.safetensors", f"{folder}/tcp.safetensors", "TCP")
    check(losses(f"{folder}/one.jsonl") == losses(f"{folder}/tcp.jsonl"), "TCP: other losses than in one process")
    check("train loss" in ends[0][1] and "train loss" not in ends[1][1], f"node 0 alone prints the result, but node 1 has printed: {ends[1][1]}")
    check("node 1 of 2: 24 of 64 images a step, on 0:" in ends[1][1], f"node 1 does not show its share: {ends[1][1]}")
    with open(f"{folder}/tcp.jsonl", encoding="utf-8") as f:
        nodes = json.loads(f.readline())["run"]["nodes"]
    check(len(nodes) == 2 and all(len(node["devices"]) == 1 for node in nodes), f"the log's nodes: {nodes}")
    # the first node has no samples, and sends no sum
    idle = ["--shares", "0,64", "--max-steps", "2"]
    truth(folder, "idle", f"{device}*2", *idle)
    all_done(fleet(2, [*BASE, "--devices", device, *idle, "--save", f"{folder}/idle2.safetensors"], folder), "an idle node")
    same(f"{folder}/idle.safetensors", f"{folder}/idle2.safetensors", "an idle node")
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
        same(f"{folder}/one.safetensors", path, mpirun)


def three_nodes(folder, device):
    """Uneven shares, groups, bfloat16, a short last batch, a checkpoint in the middle of an epoch, and going on from it."""
    args = ["--shares", "40,4,20", "--bn", "ghost:4", "--exchange", "bf16", "--epochs", "2", "--checkpoint"]
    truth(folder, "three", f"{device}*3", *args, f"{folder}/alone")
    fleet_args = [*BASE, "--devices", device, *args, f"{folder}/fleet", "--log", f"{folder}/fleet.jsonl"]
    ends = fleet(3, [*fleet_args, "--max-steps", "5"], folder)
    all_done(ends, "three nodes")
    ends = fleet(3, [*fleet_args, "--resume", "--max-steps", "22", "--save", f"{folder}/fleet.safetensors"], folder)
    all_done(ends, "three nodes resumed")
    same(f"{folder}/three.safetensors", f"{folder}/fleet.safetensors", "three nodes")
    check(losses(f"{folder}/three.jsonl") == losses(f"{folder}/fleet.jsonl"), "three nodes: other losses than in one process")


def elsewhere(folder, device):
    """Each node has the images in a folder of its own, also when the run goes on; other images are refused."""
    rng = random.Random(5)
    for name in ("a", "b", "other"):
        for i in range(40):
            os.makedirs(f"{folder}/{name}/{i % 2}", exist_ok=True)
            with open(f"{folder}/{name}/{i % 2}/{i}.pgm", "wb") as f:
                f.write(b"P5 28 28 255\n" + (random.Random(i) if name != "other" else rng).randbytes(784))
    args = ["train", *LENET[:2], "--batch", "8", "--seed", "3", "--conv-algo", "direct", "--tune", "off", "--no-eval", "--devices", device]

    def run(second, *more):
        ports = unused_ports(2)
        mine = [*args, "--checkpoint", f"{folder}/moved", *more]
        return end([start(0, ports, [*mine, "--data", f"{folder}/a"], folder), start(1, ports, [*mine, "--data", second], folder)])

    all_done(run(f"{folder}/b", "--max-steps", "2"), "data in two folders")
    ends = run(f"{folder}/other", "--resume", "--max-steps", "4", "--fleet-wait", "15")  # node 0 waits for a right node 1
    check(all(code != 0 for code, _ in ends), f"other images are taken: {ends}")
    all_done(run(f"{folder}/b", "--resume", "--max-steps", "4", "--save", f"{folder}/moved.safetensors"), "resumed in two folders")
    expect(0, *args[:-1], f"{device}*2", "--data", f"{folder}/b", "--max-steps", "4", "--save", f"{folder}/stayed.safetensors", timeout=LIMIT_S)
    same(f"{folder}/stayed.safetensors", f"{folder}/moved.safetensors", "resumed in two folders")


def differences(folder, device):
    """A node that would train otherwise than node 0 is refused, and the difference is named with it; node 0 waits for a right one."""
    args = [*BASE, "--devices", device, "--max-steps", "2"]
    for option, said in ((["--lr", "0.2"], "lr: 0.1 on node 0"), (["--batch", "32"], "batch: 64 on node 0"), (["--split", "auto"], "split: ")):
        ports = unused_ports(2)
        first, second = start(0, ports, args, folder), start(1, ports, [*args, *option], folder)
        code, text = end([second])[0]
        check(code == 2 and said in text, f"{option}: exit {code} of the wrong node, must be 2, with the difference: {text}")
        ends = end([first, start(1, ports, args, folder)])
        all_done(ends, f"{option}: after a wrong node")
        for words in (said, f"on node 1 (127.0.0.1:{ports[1]})", "waits for the right nodes"):
            check(words in ends[0][1], f"{option}: node 0 does not say {words!r}: {ends[0][1]}")
    two = ["--nodes", "127.0.0.1:1,127.0.0.1:2", "--node", "0"]  # before it waits for the other one
    expect(2, *BASE, *two, "--bn", "sync", err="--bn sync with --nodes: --bn sync is not supported on several machines")
    expect(2, *BASE, *two, "--no-sync", err="--no-sync with --nodes")
    ports = unused_ports(2)
    nodes = ",".join(f"127.0.0.1:{port}" for port in ports)
    waits = f"node 0 of 2 waits for 127.0.0.1:{ports[1]}"
    done = expect(1, *BASE, "--nodes", nodes, "--node", "0", "--fleet-wait", "2", err=[waits, f"within 2 s; missing: 127.0.0.1:{ports[1]}"])
    check(done.stderr.count("waits for") == 1, "it says more than once for which node it waits", done)
    done = expect(1, *BASE, "--nodes", nodes, "--node", "0", "--fleet-wait", "2", "--quiet", err="missing: ")
    check("waits for" not in done.stderr, "--quiet: it talks", done)
    expect(2, *args, "--nodes", "a,b", err="--node I is missing")
    expect(2, *args, "--node", "1", err="--nodes A,B,... is missing")
    expect(2, *args, "--nodes", "a,b", "--node", "0", "--no-fleet", err="expected one of them")


def evaluation(folder, device):
    """The weights that test_two_nodes has left: the same hits as on one process; a verb for one machine is refused under a launcher."""
    args = ["eval", *LENET[:2], "--data", "synthetic:700", "--weights", f"{folder}/one.safetensors", "--conv-algo", "direct",
            "--confusion"]
    one = json.loads(expect(0, *args, "--devices", f"{device}*2", "--json", "-").stdout)
    ends = fleet(2, [*args, "--devices", device, "--json", f"{folder}/eval.json"], folder)
    all_done(ends, "eval")
    with open(f"{folder}/eval.json", encoding="utf-8") as f:
        both = json.load(f)
    for key in ("test_acc", "correct", "images", "loss", "classes", "confusion"):
        check(one[key] == both[key], f"eval: {key} is {both[key]} on two nodes, {one[key]} in one process")
    launched = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
    for verb in (["tune"], ["bench", "train"], ["bench", "exchange"]):
        expect(2, *verb, "--model", "lenet", env=launched, err=["started 2 processes", "measures one machine"])
        expect(2, *verb, "--nodes", "pc1,pc2", "--node", "0", err=["--nodes pc1,pc2: this", "one machine"])
    expect(0, "devices", env=launched)  # each process has its own machine
    for verb in ("devices", "selftest"):
        expect(2, verb, "--nodes", "pc1,pc2", err=["--nodes pc1,pc2: this verb runs on one machine: start it on each machine"])


def test_fleet(at):
    """Fleets that nothing happens to, and such that cannot be."""
    folder, device = at(""), first_device()
    two_nodes(folder, device)
    three_nodes(folder, device)
    evaluation(folder, device)
    elsewhere(folder, device)
    differences(folder, device)


def test_fleet_screens(at):
    """Each node shows its own part: as lines, with --quiet not at all, and in a terminal of 80 columns by the bar of its own devices."""
    folder, device = at(""), first_device()
    args = [*BASE, "--devices", f"{device}*2", "--shares", "20,20,14,10", "--epochs", "3"]  # the last batch of an epoch has 60 images: the lines show a whole one's shares
    ends = fleet(2, args, folder)
    all_done(ends, "screens")
    for words in ("node 1 of 2: 24 of 64 images a step, on ", "epoch 1/3 loss ", "epoch 3/3 loss ", "#0 ", ": 14 images, ", ": 10 images, ", " img/s"):
        check(words in ends[1][1], f"lines: node 1 has not shown {words!r}: {ends[1][1]}")
    check(": 20 images, " not in ends[1][1] and "train loss" not in ends[1][1], f"lines: node 1 shows node 0's: {ends[1][1]}")
    check(": 20 images, " in ends[0][1] and ": 14 images, " not in ends[0][1], f"lines: node 0 shows {ends[0][1]}")
    ends = fleet(2, [*args, "--quiet"], folder)
    check(ends[1][1] == "", f"--quiet: node 1 has printed {ends[1][1]}")
    ports = unused_ports(2)
    first = start(0, ports, [*args, "--epochs", "40"], folder)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    nodes = ",".join(f"127.0.0.1:{p}" for p in ports)
    with subprocess.Popen([CONVOY, *args, "--epochs", "40", "--nodes", nodes, "--node", "1"], stdout=subprocess.PIPE, stderr=slave,
                          env={**os.environ, "TERM": "xterm"}) as second:
        os.close(slave)
        seen = b""
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        code = second.wait()
    os.close(master)
    all_done(end([first]), "the node beside the terminal")
    text = re.sub(r"\033\[[0-9]*[A-Z]", "", seen.decode(errors="replace"))
    bars = [line for line in re.split(r"[\r\n]+", text) if re.match(r"epoch \d+/40 .*\d+ %.* img/s", line)]
    check(code == 0 and bars, f"terminal: exit {code}, no bar with a rate in {text}")
    rates = [float(rate) for rate in re.findall(r"epoch \d+/40 .*?(\d+) img/s", text)]
    of_devices = [float(rate) for rate in re.findall(r"0:0#[01] .*?(\d+) img/s", text)]
    ratio = statistics.median(rates or [0]) / (2 * statistics.median(of_devices or [1]))
    check(0.6 < ratio < 1.6, f"terminal: the bar's rate is {ratio:.2f} times that of this node's two devices: {text}")
    check(all(len(line) < 80 for line in re.split(r"[\r\n]+", text)[1:] if "img/s" in line), f"terminal: wider than 80 columns: {text}")


def await_text(folder, rank, words):
    begun = time.monotonic()
    while time.monotonic() - begun < LIMIT_S:
        with open(f"{folder}/node{rank}.txt", encoding="utf-8") as f:
            if words in f.read():
                return True
        time.sleep(0.02)
    return False


def await_port(port):
    """A connection, as soon as something listens there."""
    begun = time.monotonic()
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 5)
        except ConnectionRefusedError:
            if time.monotonic() - begun > LIMIT_S:
                raise
            time.sleep(0.02)


def test_fleet_outputs(at):
    """Files that node 0 writes for all: another node's own name for one is said, and is refused where node 0 has none. A launcher's process that is
    alone with convoy waits, and says for what."""
    args = [*BASE, "--devices", first_device(), "--max-steps", "2", "--quiet"]
    names = [at(f"{r}.safetensors") for r in range(2)]
    ports = unused_ports(2)
    ends = end([start(r, ports, [*args, "--save", names[r], "--trace", at(f"{r}.trace")], at()) for r in range(2)])
    check([code for code, _ in ends] == [0, 0] and os.path.exists(names[0]) and not os.path.exists(names[1]), f"two names: {ends}")
    check(f"--save {names[1]} is not written: only node 0 writes, to {names[0]}" in ends[1][1] and "--no-fleet" in ends[1][1] and "warning" not in ends[0][1], f"said: {ends}")
    check("--trace" not in ends[1][1] and os.path.exists(at("1.trace")), f"each node has a trace: {ends}")
    ports = unused_ports(2)
    ends = end([start(r, ports, [*args, *(["--save", at("x.st")] if r else [])], at()) for r in range(2)])
    check([code for code, _ in ends] == [2, 2], f"node 0 has no --save: {ends}")
    check("node 1" in ends[0][1] and f"has --save {at('x.st')}" in ends[0][1] and "expected the same options on all nodes" in ends[0][1], f"said by node 0: {ends}")
    ends = end([start(r, ports, [*args, *(["--save", at("y.st")] if r == 0 else [])], at()) for r in range(2)])
    check([code for code, _ in ends] == [0, 0] and "warning" not in ends[1][1] and os.path.exists(at("y.st")), f"node 1 needs none: {ends}")
    for mpirun in ("mpirun.openmpi", "mpirun.mpich"):
        if not shutil.which(mpirun):
            continue
        rank = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
        words = [mpirun, *(["--oversubscribe", "--allow-run-as-root"] if "open" in mpirun else []), "-n", "2", "sh", "-c"]
        alone = " ".join(map(str, [CONVOY, *args]))
        done = call([*words, f'if [ "{rank}" = 0 ]; then {alone} --fleet-wait 7; echo $? > {at(mpirun)}; exit 1; else sleep 12; fi'], timeout=LIMIT_S)
        if "plug-in" in done.stderr:
            continue
        # MPICH's mpiexec kills the others, and sometimes ends with their status: the process's own is read
        check(read(at(mpirun)) == "1\n" and done.returncode != 0 and "started 2 processes, and this one (0) waits for all others" in done.stderr, f"{mpirun}: said, with --quiet", done)
        check(done.stderr.count("--no-fleet: this process alone") == 2 and "not started within 7 s" in done.stderr, f"{mpirun}: what helps", done)
        done = call([*words, f'if [ "{rank}" = 0 ]; then {alone} --no-fleet; fi'], timeout=LIMIT_S)
        check(done.returncode == 0 and "train loss" in done.stdout, f"{mpirun}: --no-fleet", done)


def test_fleet_hostile(at):
    """Peers that are no nodes, at a node that waits and while the fleet trains: each is named by its address, and the run has its bits."""
    folder, device, rng = at(""), first_device(), random.Random(16)
    args = ["--shares", "40,24", "--max-steps", "40", "--epochs", "10"]
    truth(folder, "one", f"{device}*2", *args)
    key = f"{folder}/key"
    with open(key, "wb") as f:
        f.write(rng.randbytes(32))
    os.chmod(key, 0o600)
    mine = [*BASE, "--devices", device, *args, "--fleet-key", key, "--save", f"{folder}/hostile.safetensors", "--log", f"{folder}/hostile.jsonl"]
    ports = unused_ports(2)
    # one that sits where node 0 will be
    with socket.socket() as false_head:
        false_head.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        false_head.bind(("127.0.0.1", ports[0]))
        false_head.listen()
        second = start(1, ports, mine, folder)
        peer, _ = false_head.accept()
        peer.sendall(rng.randbytes(200))
        check(await_text(folder, 1, "is not the right one"), "node 1 does not say that node 0 is not the right one")
        peer.close()
    second[0].send_signal(signal.SIGINT)  # it would go on trying: it has to start anew here, for the order of what follows
    code, text = end([second])[0]
    check(code == 130, f"Ctrl-C while it waits: {code}, {text}")
    # such that come to node 0: bytes of all kinds, a half of a hello, a whole one and no proof, nothing
    first = start(0, ports, mine, folder)
    hello = b"CVYFLEET" + bytes([1, 0, 1, 0, 2, 0, 1, 0, 0, 0]) + bytes(14) + rng.randbytes(32)
    sent = [rng.randbytes(n) for n in (1, 63, 64, 100000)] + [hello[:10], hello, hello + rng.randbytes(32), b"GET / HTTP/1.1\r\n\r\n", b""]
    peers = []
    for data in sent:
        peer = await_port(ports[0])
        try:
            peer.sendall(data)
        except OSError:
            pass  # it has been refused already
        peers.append(peer)
    names = [f"127.0.0.1:{peer.getsockname()[1]}" for peer in peers]
    for name, data in zip(names, sent):
        check(await_text(folder, 0, f"refused {name} on this node's port: "), f"a peer that sends {data[:20]!r} is not refused by its name")
    for peer in peers:
        peer.close()
    silent = [await_port(ports[0]) for _ in range(40)]  # more than a node has places for
    second = start(1, ports, mine, folder)
    log, knocks, served = f"{folder}/hostile.jsonl", 0, 0
    while second[0].poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", ports[0]), 1) as peer:
                peer.sendall(rng.randbytes(64))
                served += os.path.exists(log) and os.path.getsize(log) > 2000
        except OSError:
            knocks += 1
        time.sleep(0.01)
    ends = end([first, second])
    for peer in silent:
        peer.close()
    all_done(ends, "among hostile peers")
    check(knocks > 0 and served == 0, f"{served} peers were let in while the fleet trained, {knocks} were not")
    same(f"{folder}/one.safetensors", f"{folder}/hostile.safetensors", "among hostile peers")
    check(losses(f"{folder}/one.jsonl") == losses(log), "among hostile peers: other losses")


def test_fleet_epochs(at):
    """LeNet, ten epochs of Fashion-MNIST on two nodes with a core each: accuracy, losses and weights of one machine."""
    folder, device = at(""), first_device()
    args = ["train", "--model", "lenet", "--data", "fashion-mnist", "--init", "he", "--lr", "0.05", "--momentum", "0.9", "--batch", "256", "--epochs", "10",
            "--conv-algo", "direct"]
    one = call([CONVOY, *args, "--devices", f"{device}/1+1", "--log", f"{folder}/one.jsonl", "--save", f"{folder}/one.safetensors"], timeout=RATES_LIMIT_S)
    if one.returncode == 2 and "dataset-fashion-mnist" in one.stderr:
        print("no Fashion-MNIST here: not tested")
        return
    check(one.returncode == 0, "one machine", one)
    ports = unused_ports(2)
    cores = sorted(os.sched_getaffinity(0))
    mine = [*args, "--devices", f"{device}/1", "--log", f"{folder}/two.jsonl", "--save", f"{folder}/two.safetensors"]
    started = []
    for r in range(2):
        started.append(start(r, ports, mine, folder))
        os.sched_setaffinity(started[r][0].pid, {cores[r % len(cores)]})
    all_done(end(started, RATES_LIMIT_S), "two nodes")
    same(f"{folder}/one.safetensors", f"{folder}/two.safetensors", "ten epochs")
    check(losses(f"{folder}/one.jsonl") == losses(f"{folder}/two.jsonl"), "ten epochs: other losses")
    accuracies = [[line["test_acc"] for line in lines_of(f"{folder}/{name}.jsonl", "test_acc")] for name in ("one", "two")]
    print(f"test accuracy by epoch, one machine {accuracies[0]}, two nodes {accuracies[1]}")
    check(len(accuracies[0]) == 10 and accuracies[0] == accuracies[1], f"accuracies: {accuracies}")


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


def test_fleet_left_out(at):
    """A node's device that fails at the start is left out there, and all train with the others, to the bits of one machine that has these."""
    folder, steps = at(""), [*BASE, "--max-steps", 3, "--split", "even"]
    expect(0, *steps, "--devices", "cpu*3", "--save", f"{folder}/one.st")
    for words in ("fail=1:build:0:-11", "fail=1:context:0:-6", "fail=0:buffer:0:-4"):
        ends = fleet(2, [*steps, "--devices", "cpu*2", "--save", f"{folder}/left.st"], folder, words=words)
        all_done(ends, words)
        check("is left out: " in ends[1][1] and "1 device is left: " in ends[1][1] and "is left out" not in ends[0][1], f"{words}: {ends}")
        same(f"{folder}/left.st", f"{folder}/one.st", words)


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
    texts = unlike(args, [*args, "--exchange", "bf16"], folder)
    check('exchange: "fp32" on node 0' in texts[0], f"nodes that differ: {texts}")
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
    folder, device = at(""), f"{first_device()}/1"  # a unit for the one core that each node has
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
            ends = end([network.start(r, args, folder, ("taskset", "-c", str(cores[r % len(cores)]))) for r in range(n)],
                       RATES_LIMIT_S)
        finally:
            network.close()
        all_done(ends, name)
        result = read_bench(path)
        check_bench(result, [32] * n)
        for node in result["nodes"][:-1]:
            link = node["to_next"]
            for key in ("up_mbit", "down_mbit", "both_up_mbit", "both_down_mbit"):  # less where other programs have the cores
                check(0.6 * mbit < link[key] < 1.05 * mbit, f"{name}: {key} is {link[key]}")
        off = result["predicted_ms"] / result["measured_ms"] - 1
        print(f"{name}: predicted {result['predicted_ms']:.0f} ms, measured {result['measured_ms']:.0f}, off by {100 * off:+.1f} %")
        check(abs(off) < 0.4, f"{name}: off by {100 * off:+.1f} %")


if __name__ == "__main__":
    main(globals())
