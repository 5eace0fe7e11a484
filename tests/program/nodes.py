# SPDX-License-Identifier: MIT
"""Fleets for tests of the program (test_cli_fleet.py, test_cli_lost.py): nodes are processes on this machine, which meet over TCP on
loopback or in network namespaces, or are started by an MPI. The truth is one process with all the devices: same weights file, same losses,
byte for byte."""
import json
import os
import shlex
import shutil
import signal
import subprocess
import time

from cli import CONVOY, LAYER, LENET, call, check, expect
from ports import unused_ports

# The convolutions' algorithm is given: the choice would depend on what else runs.
BASE = ["train", *LENET[:2], "--data", "synthetic:700", "--batch", "64", "--momentum", "0.9", "--seed", "3", "--conv-algo", "direct",
        "--tune", "off", "--no-eval"]
LIMIT_S = 120
STEPS, SHARES = 60, [24, 20, 20]  # of fleets that lose one of three nodes


def start(rank, ports, args, folder, words=""):
    """words: of the layer under the driver (tests/support/layer.c)."""
    nodes = ",".join(f"127.0.0.1:{p}" for p in ports)
    out = open(os.path.join(folder, f"node{rank}.txt"), "w+")
    env = {**os.environ, "OPENCL_LAYERS": LAYER, "CVY_LAYER": words} if words else None
    return subprocess.Popen([CONVOY, *map(str, args), "--nodes", nodes, "--node", str(rank)], stdout=out, stderr=subprocess.STDOUT, text=True,
                            env=env), out


def end(started, limit_s=LIMIT_S):
    """Exit statuses and texts, by rank."""
    ends = []
    for process, out in started:
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = "hangs"
        out.seek(0)
        ends.append((code, out.read()))
        out.close()
    return ends


def await_log(log, size=3000):
    """Until the file has more than so many bytes."""
    begun = time.monotonic()
    while time.monotonic() - begun < LIMIT_S and not (os.path.exists(log) and os.path.getsize(log) > size):
        time.sleep(0.005)


def fleet(n, args, folder, ports=None, words=""):
    """words: of the layer under the last node's driver."""
    ports = ports or unused_ports(n)
    return end([start(r, ports, args, folder, words if r == n - 1 else "") for r in range(n)])


def unlike(first, second, folder):
    """Node 1 is about to do something else than node 0: it ends with 2, and node 0 waits for a right one, until Ctrl-C. Their texts."""
    ports = unused_ports(2)
    started = [start(0, ports, first, folder), start(1, ports, second, folder)]
    code, other = end(started[1:])[0]
    begun, text = time.monotonic(), ""
    while "waits for the right nodes again" not in text and time.monotonic() - begun < LIMIT_S and started[0][0].poll() is None:
        time.sleep(0.05)
        with open(os.path.join(folder, "node0.txt"), encoding="utf-8") as f:
            text = f.read()
    started[0][0].send_signal(signal.SIGINT)
    ends = [*end(started[:1]), (code, other)]
    check(ends[0][0] == 130 and code == 2, f"nodes that differ: exit {ends[0][0]} and {code}, must be 130, by Ctrl-C, and 2: {ends}")
    # it may have left by itself before it is refused (test_cli_peers.py has one that stays)
    check(f"on node 1 (127.0.0.1:{ports[1]})" in text, f"node 1 is not named: {text}")
    return text, other


def lines_of(path, key):
    """The log's lines that have this key."""
    with open(path, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f if line.endswith("\n")]
    return [d for d in lines if key in d]


def losses(path):
    return [(d["step"], d["loss"], d["correct"], d["shares"]) for d in lines_of(path, "step")]


def all_done(ends, what):
    for r, (code, text) in enumerate(ends):
        check(code == 0, f"{what}: node {r} ends with {code}: {text}")


def truth(folder, name, devices, *args):
    files = ["--log", f"{folder}/{name}.jsonl", "--save", f"{folder}/{name}.safetensors"]
    expect(0, *BASE, "--devices", devices, *args, *files, timeout=LIMIT_S)


def run_mpirun(words, args, name, disturb):
    """Exit status and text of the program under mpirun. disturb(mpirun, mark) is called at once; the processes' command lines have the mark."""
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    mark = args[args.index("--log") + 1]
    with open(name, "w+", encoding="utf-8") as out:
        mpirun = subprocess.Popen([*map(str, words), CONVOY, *map(str, args)], stdout=out, stderr=subprocess.STDOUT, text=True, env=env)
        disturb(mpirun, mark)
        try:
            code = mpirun.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            for pid in pids_by_rank(mark).values():
                os.kill(pid, signal.SIGKILL)
            mpirun.kill()
            mpirun.wait()
            code = "hangs"
        out.seek(0)
        return code, out.read()


def pids_by_rank(mark):
    """Processes that Open MPI's mpirun has started, and that have this word in their command line."""
    pids = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            with open(f"/proc/{pid}/environ", "rb") as f:
                env = dict(word.split(b"=", 1) for word in f.read().split(b"\0") if b"=" in word)
            rank = env.get(b"OMPI_COMM_WORLD_RANK")
            if rank is not None and mark.encode() in words and words[0] == CONVOY.encode():
                pids[int(rank)] = int(pid)
        except (OSError, ValueError):
            continue
    return pids


def kill_rank(victim):
    """For run_mpirun."""
    def kill(_, mark):
        pid = pids_by_rank(mark).get(victim)
        if pid:
            os.kill(pid, signal.SIGKILL)
    return kill


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

    def mpirun(self, words, args, folder):
        """mpirun on the first node, one process on each: words in front of the program's, which begin with mpirun's path. Its process and output."""
        agent = os.path.join(folder, "agent")
        with open(agent, "w", encoding="utf-8") as f:  # for ssh; machines have names of their own
            cases = "\n".join(f"{address}) ns={name};;" for address, name in zip(self.addresses, self.names))
            f.write(f'#!/bin/sh\ncase $1 in\n{cases}\nesac\nshift\nexec ip netns exec $ns unshare -u sh -c "hostname $ns; $*"\n')
        os.chmod(agent, 0o700)
        hosts = ",".join(f"{address}:1" for address in self.addresses)
        run = shlex.join([*words, "--prtemca", "plm_ssh_agent", agent, "--host", hosts, "-np", str(len(self.names)), CONVOY, *map(str, args)])
        env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        out = open(os.path.join(folder, "mpirun.txt"), "w+")
        return subprocess.Popen(["ip", "netns", "exec", self.names[0], "unshare", "-u", "sh", "-c", f"hostname {self.names[0]}; exec {run}"],
                                stdout=out, stderr=subprocess.STDOUT, text=True, env=env), out

    def pids(self, rank):
        """Of this program's processes on a node."""
        pids = []
        for pid in self.ip("netns", "pids", self.names[rank]).stdout.split():
            try:
                if os.path.samefile(f"/proc/{pid}/exe", CONVOY):
                    pids.append(int(pid))
            except OSError:
                continue  # it has ended
        return pids

    def end_all(self):
        for name in self.names:
            for pid in self.ip("netns", "pids", name).stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except OSError:
                    continue

    def cut(self, rank):
        self.ip("link", "set", f"{self.names[rank]}o", "down")

    def close(self):
        for name in self.names:
            call(["ip", "netns", "del", name])
        call(["ip", "link", "del", self.bridge])
