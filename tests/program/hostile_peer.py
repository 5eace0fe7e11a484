# SPDX-License-Identifier: MIT
"""A hostile node of a fleet, for test_cli_peers.py: it speaks the TCP protocol (doc/fleet.md, "Frames") well enough to be in, as the last node
and without samples, and does what it likes. Handshake without a key; nodes of the program, whose output is counted and cut. Python's own
modules only; all traffic is on 127.0.0.1."""
import os
import queue
import socket
import struct
import subprocess
import threading
import time

START, DATA, CONTROL, CREDIT, PING, BYE, CUT = range(1, 8)
UP, DOWN = 0, 1
WINDOW, PIECE, MESSAGE = 4 << 20, 256 << 10, 4096
DEVICE = b'[{"label":"0:0 peer","units":1,"driver":"peer"}]'
KEPT = 16 << 10  # of the output, at its begin and at its end


def frame(kind, body=b"", stream=0, first=False, value=0, number=0):
    return struct.pack("<4BIIIQ", kind, stream, first, 0, number, len(body), 0, value) + body


def standing(number=1, view=0b11, ended=0, done=0, stops=0, devices=b"\1", magic=0x43564131):
    """As src/fleet/standing.h has it."""
    return struct.pack("<IIQQqB64s7x", magic, number, view, ended, done, stops, devices)


class Node:
    """A node of the program. Its output is read to the end, however much it is."""

    def __init__(self, convoy, rank, ports, args, env=None):
        nodes = ",".join(f"127.0.0.1:{p}" for p in ports)
        self.process = subprocess.Popen([convoy, *map(str, args), "--nodes", nodes, "--node", str(rank)], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
        self.bytes, self.lines, self.first, self.last = 0, 0, b"", b""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while data := self.process.stdout.read1(1 << 16):
            self.bytes, self.lines = self.bytes + len(data), self.lines + data.count(b"\n")
            self.first, self.last = (self.first + data)[:KEPT], (self.last + data)[-KEPT:]

    def said(self):
        return self.first if self.bytes <= KEPT else self.first + b"\n[...]\n" + self.last

    def awaits(self, word, limit_s):
        """The output has this word within the limit, and while the process runs."""
        end = time.monotonic() + limit_s
        while word not in self.said() and time.monotonic() < end and self.reader.is_alive():
            time.sleep(0.02)
        return word in self.said()

    def end(self, limit_s):
        """Exit status; None: it was still there, and was killed."""
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
            self.process.kill()
            self.process.wait()
        self.reader.join(10)
        return code


def take(file, n):
    data = file.read(n)
    if len(data) < n:
        raise ConnectionError("the node has closed the connection")
    return data


class Peer:
    """A connection to node `to`, which takes this peer for node `rank` of `size`. OSError: it does not."""

    def __init__(self, port, size, rank, to=0, limit_s=60):
        end = time.monotonic() + limit_s
        while (s := socket.socket()).connect_ex(("127.0.0.1", port)) != 0:
            s.close()
            if time.monotonic() >= end:
                raise ConnectionRefusedError("the node does not listen")
            time.sleep(0.05)
        s.settimeout(limit_s)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # hello, proof without a key, START: nothing in them waits for the node's answer
        s.sendall(struct.pack("<8s5H14x", b"CVYFLEET", 1, 0, size, rank, to) + os.urandom(32) + bytes(32) + frame(START))
        self.socket, self.file, self.lock, self.change = s, s.makefile("rb"), threading.Lock(), threading.Condition()
        take(self.file, 96)
        s.settimeout(None)
        self.messages = {UP: queue.Queue(), DOWN: queue.Queue(), CONTROL: queue.Queue()}
        self.size, self.sent, self.limit, self.gone, self.round = size, [0, 0], [WINDOW, WINDOW], False, 0
        for do in (self.read, self.ping):
            threading.Thread(target=do, daemon=True).start()

    def close(self):
        self.gone = True
        self.socket.close()

    def send_raw(self, data):
        with self.lock:
            self.socket.sendall(data)

    def send(self, stream, data):
        """A message of UP or DOWN, in pieces, as far as the node has room."""
        number = self.round
        for at in range(0, max(len(data), 1), PIECE):
            piece = data[at:at + PIECE]
            cost = len(piece) + MESSAGE * (at == 0)
            with self.change:
                self.change.wait_for(lambda: self.gone or self.sent[stream] + cost <= self.limit[stream])
                self.sent[stream] += cost
            self.send_raw(frame(DATA, piece, stream, at == 0, len(data) - at, number))

    def receive(self, stream, limit_s=60):
        """The next whole message; None: the node has gone, or nothing came. What is sent from now on is of its round."""
        try:
            message = self.messages[stream].get(timeout=limit_s)
        except queue.Empty:
            return None
        if message is not None and stream != CONTROL:  # one left over from before a meeting: so is its answer
            self.round, message = message
        return message

    def ping(self):
        try:
            while not self.gone:
                self.send_raw(frame(PING))
                time.sleep(1)
        except OSError:
            pass

    def read(self):
        parts, cost, said = [b"", b""], [0, 0], [0, 0]
        try:
            while True:
                kind, stream, first, _, number, n, _, value = struct.unpack("<4BIIIQ", take(self.file, 24))
                body = take(self.file, n)
                if kind == DATA:
                    parts[stream] = body if first else parts[stream] + body
                    cost[stream] += n + MESSAGE * first
                    if n == value:
                        self.messages[stream].put((number, parts[stream]))
                    if cost[stream] - said[stream] > WINDOW // 4:
                        said[stream] = cost[stream]
                        self.send_raw(frame(CREDIT, stream=stream, value=cost[stream] + WINDOW))
                with self.change:
                    self.limit[stream] = value if kind == CREDIT else self.limit[stream]
                    self.change.notify_all()
                if kind == CONTROL:
                    self.messages[CONTROL].put(body)
                if kind in (BYE, CUT):
                    break
        except (OSError, ValueError):
            pass
        with self.change:
            self.gone = True
            self.change.notify_all()
        for waiting in self.messages.values():
            waiting.put(None)


# ---- what it does ----

def gather(peer, own, change=lambda everything: everything):
    """What the others have sent goes down to all, with this node's piece behind it. own: that piece, or made of what has come."""
    came = peer.receive(UP)
    if came is None:
        raise ConnectionError("the node has gone")
    peer.send(DOWN, change(came + (own(came) if callable(own) else own)))
    return came


def gather_texts(peer, own=None):
    """own: this node's text; None: that of node 0 once more."""
    lengths = gather(peer, (lambda came: came[:8]) if own is None else struct.pack("<Q", len(own)))
    n = struct.unpack("<Q", lengths[:8])[0]
    gather(peer, (lambda came: came[:n]) if own is None else own)


def begin(peer):
    """The files that the node writes: none."""
    gather_texts(peer, b"{}")


def open_as_last(peer, device=DEVICE, choices=b"[]", settings=None, counts=lambda everything: everything):
    """All that nodes tell each other before the first step. counts: changes the table of devices per node before it goes down."""
    as_before = lambda came: came[-(len(came) // (peer.size - 1)):]
    begin(peer)
    gather(peer, struct.pack("<i", 1), counts)
    gather_texts(peer, device)
    gather(peer, b"\0")                   # all its devices have been opened
    gather(peer, as_before)               # costs of an exchange
    gather(peer, b"\0")                   # and planned
    gather(peer, as_before)               # split, batch
    gather_texts(peer, choices)           # algorithms
    gather_texts(peer, settings)
    gather_texts(peer, b"no")             # does a node want the answers?


def mirror(peer, steps=None):
    """Steps: the sum of the others is the total. Returns after so many, or when the node has gone."""
    while steps != 0 and (message := peer.receive(UP, None)) is not None:
        if len(message) != 8:  # 8: the word that the head has the commit
            peer.send(DOWN, message)
        elif steps is not None:
            steps -= 1


def agree(peer):
    """Says of each standing the same as the node. Returns when the node has gone."""
    while (message := peer.receive(CONTROL, None)) is not None:
        peer.send_raw(frame(CONTROL, message))


def quietly(do, *args):
    try:
        return do(*args)
    except (OSError, TypeError):
        return None  # the node has gone, or never sent what this one waits for


def on_threads(*calls):
    for do, *args in calls:
        threading.Thread(target=quietly, args=[do, *args], daemon=True).start()
