#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Peers behind the handshake of a fleet that send what no node sends, or nothing (hostile_peer.py): each is refused by its name, and the fleet
waits for the right node, or goes on without it; no node aborts, sends foreign memory, or floods its terminal.
test_cli_peers.py CONVOY GROUP   (groups: the functions named test_<group> below)
"""
import os
import re
import struct
import threading
import time

from cli import CONVOY, check, first_device, main, with_layer
from hostile_peer import (CONTROL, DEVICE, DOWN, UP, Node, Peer, agree, begin, frame, gather, gather_texts, mirror, on_threads, open_as_last, quietly,
                          standing)
from nodes import unused_ports

LIMIT_S = 150  # of what takes seconds on a machine that is free
LINES_MOST = 120  # of a node in a test, epochs left out
RUN = ["train", "--model", "lenet", "--data", "synthetic:512", "--batch", "64", "--no-eval", "--tune", "off", "--conv-algo", "direct"]


def text_of(node):
    """Without most of the epochs."""
    text = node.said().decode(errors="replace")
    return re.sub(r"(?m)^epoch [0-9]{2,}/.*\n", "", text)


def check_node(node, code, what, *words):
    """It ends so, has said these words, and has not said too much."""
    got = node.end(LIMIT_S)
    text = text_of(node)
    check(got == code, f"{what}: exit {got}, must be {code}: {text}")
    for word in words:
        check(word in text, f"{what}: {word!r} is not said: {text}")
    lines = text.count("\n") if node.lines < 5000 else node.lines
    check(lines < LINES_MOST, f"{what}: {node.lines} lines, {node.bytes} bytes")


def goes_on_waiting(what, args, come, *words):
    """Node 0 waits for node 1; come(peer) is a peer as node 1, which is refused with these words. Then the right node comes, and both train."""
    ports = unused_ports(2)
    mine = [*args, "--max-steps", "2"]
    first = Node(CONVOY, 0, ports, mine)
    peer = quietly(Peer, ports[0], 2, 1)
    quietly(come, peer)
    again = first.awaits(b"waits for the right nodes again", LIMIT_S)
    if peer:
        peer.close()
    check(again, f"{what}: node 0 does not wait again: {text_of(first)}")
    second = Node(CONVOY, 1, ports, mine)
    check_node(first, 0, what, f"node 1 (127.0.0.1:{ports[1]}) ", *words)
    check_node(second, 0, f"{what}: the right node")
    return first


def test_peers_opening(at):
    """In the opening: a node's own piece that comes back changed, lengths, counts, texts and settings that no node has, and silence."""
    args = [*RUN, "--devices", first_device()]
    foreign = []

    def leak(length):
        def come(peer):
            begin(peer)
            gather(peer, struct.pack("<i", 1))
            own = struct.unpack("<Q", peer.receive(UP))[0]
            peer.send(DOWN, struct.pack("<2Q", length, len(DEVICE)))
            came = peer.receive(UP, 20)
            foreign.append(len(came or b"") - own)
        return come

    back = "sends back changed messages of the nodes before it"
    for length in (65536, 60000000):
        goes_on_waiting(f"a text of {length} bytes", args, leak(length), back)
    check(all(n <= 0 for n in foreign), f"a peer got so many bytes of foreign memory: {foreign}")
    many = [*RUN, "--devices", f"{first_device()}*4"]
    goes_on_waiting("less devices", many, lambda peer: open_as_last(peer, counts=lambda all_: struct.pack("<i", 1) + all_[4:]), back)
    goes_on_waiting("more devices", args, lambda peer: open_as_last(peer, counts=lambda all_: struct.pack("<i", 512) + all_[4:]), back)
    goes_on_waiting("no devices", args, lambda peer: (begin(peer), gather(peer, struct.pack("<i", 0))), "has 0 devices: expected 1 to 512")

    def open_anew(peer):
        begin(peer)
        for _ in range(3):
            gather(peer, struct.pack("<i", 1))
            gather_texts(peer, DEVICE)
            gather(peer, b"\1")

    goes_on_waiting("opens anew without end", args, open_anew, "opens its devices again and has 1 of them; expected fewer than the previous 1")
    goes_on_waiting("a long text", args, lambda peer: (begin(peer), gather(peer, struct.pack("<i", 1)), gather(peer, struct.pack("<Q", 1 << 40))),
                    "has a text of 1099511627776 bytes")
    goes_on_waiting("a message of a wrong size", args, lambda peer: peer.send(DOWN, b"xyz"), "sent a message of 3 bytes where this node expects 16")
    args += ["--shares", "32,32"]  # by speed, they would measure the link first
    goes_on_waiting("other settings", args, lambda peer: open_as_last(peer, settings=b'{"lr":0.5}'), "has other settings than node 0, and is refused")
    goes_on_waiting("settings that are no JSON", args, lambda peer: open_as_last(peer, settings=b"{"), "sends a text that is not JSON")
    goes_on_waiting("settings that take much memory", args, lambda peer: open_as_last(peer, settings=b"[" + b"0," * (1 << 20) + b"0]"), "or too much of it")
    goes_on_waiting("no list of algorithms", args, lambda peer: open_as_last(peer, choices=b"{}"), "sends a text that is not a list")


def test_peers_silent(at):
    """A peer that gives nothing but signs of life: in the opening, in a step, and in a meeting."""
    folder, device = at(""), first_device()
    args = [*RUN, "--devices", device, "--shares", "64,0", "--epochs", "2000"]
    ports = unused_ports(2)
    node = Node(CONVOY, 0, ports, [*args, "--fleet-wait", "12"])
    peer = Peer(ports[0], 2, 1)
    begun = time.monotonic()
    check_node(node, 1, "signs of life in the opening", f"has waited 10 s for node 1 (127.0.0.1:{ports[1]})",
               f"node 1 (127.0.0.1:{ports[1]}) gives signs of life, but has not sent what this node waits for for 12 s")
    check(time.monotonic() - begun < 60, "--fleet-wait does not limit the opening")
    peer.close()
    # a device of node 0 that fails makes the nodes meet
    two = [word.replace(device, f"{device}*2") if word == device else "32,32,0" if word == "64,0" else word for word in args]
    for what, said, mine, env in (("a step", "sent what this node waits for", args, {}),
                                  ("a meeting", "agreed with the others on the next round", two, with_layer("fail=0:launch:400:-36"))):
        ports = unused_ports(2)
        node = Node(CONVOY, 0, ports, [*mine, "--device-timeout", "2", "--save", f"{folder}/saved"], env)
        peer = Peer(ports[0], 2, 1)
        open_as_last(peer)
        on_threads((mirror, peer, 60 if what == "a step" else None))
        word = f"node 1 (127.0.0.1:{ports[1]}) gives signs of life, but has not {said}".encode()
        check(node.awaits(word, LIMIT_S), f"{what}: no limit: {text_of(node)}")
        check(node.awaits(b"this node continues alone", LIMIT_S), f"{what}: the fleet does not go on")
        check(node.awaits(b"epoch 15/", LIMIT_S), f"{what}: no epoch comes any more")
        node.process.send_signal(2)
        check_node(node, 130, what)
        check(os.path.exists(f"{folder}/saved"), f"{what}: nothing is saved")
        os.remove(f"{folder}/saved")
        peer.close()


# name: the message, and the reason why its sender is refused (None: it goes on without node 0, and is lost by that)
ALL = (1 << 64) - 1
CONTROLS = {
    "short": (b"x", "sent a message of 1 bytes where this node expects 104"),
    "long": (standing() + b"x", "sent a message of 105 bytes where this node expects 104"),
    "magic": (standing(magic=0), "sent a control message that is not a standing"),
    "done less": (standing(done=-1), "with impossible progress"),
    "done more": (standing(done=1 << 40), "with impossible progress"),
    "round wraps": (standing(0xffffffff), "of a round that no node is in"),
    "round far ahead": (standing(5000), "of a round far ahead of the others"),
    "not itself": (standing(view=0b01), "of a view in which it is not itself"),
    "unknown nodes": (standing(view=ALL), "with nodes that the fleet does not have"),
    "ended: the receiver": (standing(ended=0b01), "by which it has ended itself, or this node has"),
    "ended: itself": (standing(ended=0b10), "by which it has ended itself, or this node has"),
    "stops": (standing(stops=77), "with an unknown reason for the end of the run"),
    "devices": (standing(devices=b"\xff" * 64), "with devices that it does not have"),
    "out": (standing(view=0b10), None),
}


def test_peers_control(at):
    """One control message, while the fleet trains: the peer is lost, and node 0 goes on and ends in order."""
    folder, args = at(""), [*RUN, "--devices", first_device(), "--shares", "64,0", "--epochs", "2000"]
    for name, (message, why) in CONTROLS.items():
        ports = unused_ports(2)
        node = Node(CONVOY, 0, ports, [*args, "--save", f"{folder}/saved"])
        peer = Peer(ports[0], 2, 1)
        open_as_last(peer)
        on_threads((mirror, peer), (agree, peer))
        check(node.awaits(b"epoch 2/", LIMIT_S), f"{name}: no epoch came: {text_of(node)}")
        peer.send_raw(frame(CONTROL, message))
        if why:
            lost = f"node 1 (127.0.0.1:{ports[1]}) ".encode()
            check(node.awaits(why.encode(), 30), f"{name}: {why!r} is not said: {text_of(node)}")
            check(node.awaits(lost, 1), f"{name}: the peer is not named")
        check(node.awaits(b"this node continues alone", 30), f"{name}: node 0 does not go on: {text_of(node)}")
        lines = node.lines
        time.sleep(1)
        check(node.process.poll() is None and node.lines - lines < 100, f"{name}: {node.lines - lines} lines in a second")
        node.process.send_signal(2)
        check_node(node, 130, name)
        check(os.path.exists(f"{folder}/saved"), f"{name}: nothing is saved")
        os.remove(f"{folder}/saved")
        peer.close()


def test_peers_third(at):
    """A word on a third node: node 2 says that node 1, which runs, has ended. All three go on."""
    args = [*RUN, "--devices", first_device(), "--shares", "32,32,0", "--max-steps", "200", "--epochs", "2000"]
    ports = unused_ports(3)
    nodes = [Node(CONVOY, rank, ports, args) for rank in range(2)]
    peers = [Peer(ports[rank], 3, 2, rank) for rank in range(2)]
    open_as_last(peers[1])
    on_threads((agree, peers[0]), (agree, peers[1]))
    mirror(peers[1], 60)
    check(nodes[0].awaits(b"epoch 7/", LIMIT_S), f"56 steps are not done: {text_of(nodes[0])}")
    time.sleep(2)  # until nodes 0 and 1 have done these 60 steps, too: the message is right but for one bit
    peers[0].send_raw(frame(CONTROL, standing(view=0b111, ended=0b010, done=60)))
    on_threads((mirror, peers[1]))
    check_node(nodes[0], 0, "node 0")
    check_node(nodes[1], 0, "node 1, of which a peer says that it has ended")
    texts = [node.said().decode(errors="replace") for node in nodes]
    check(not any(" is lost " in text or "refused" in text for text in texts), f"a node is lost: {texts[0]}{texts[1]}")


def test_peers_displace(at):
    """Strangers call themselves node 1, which has come, again and again: they are refused, in few lines, and the fleet trains."""
    args = [*RUN, "--devices", first_device(), "--shares", "32,16,16", "--max-steps", "3"]
    ports = unused_ports(3)
    nodes = [Node(CONVOY, rank, ports, args) for rank in (0, 1)]
    for node in nodes:
        check(node.awaits(b"of 3 waits for 127.0.0.1:%d\n" % ports[2], LIMIT_S), "nodes 0 and 1 have not met")
    end, times, stays = time.monotonic() + 4, [0], []

    def knock():
        while time.monotonic() < end:
            stranger = quietly(Peer, ports[0], 3, 1, 0, 2)
            times[0] += 1
            time.sleep(0.05)
            if stranger and not stranger.gone:
                stays.append(stranger)
            elif stranger:
                stranger.close()
    threads = [threading.Thread(target=knock) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    nodes.append(Node(CONVOY, 2, ports, args))
    for thread in threads:
        thread.join()
    for rank, node in enumerate(nodes):
        check_node(node, 0, f"node {rank} among {times[0]} strangers", *(["calls itself node 1 ("] if rank == 0 else []))
    check(times[0] > 10 and not stays, f"of {times[0]} strangers {len(stays)} have stayed")


STEERS = b"\x1b]0;title of a peer\x07\x1b[2J"  # sets the window's title, and clears the screen


def test_peers_labels(at):
    """Texts of a peer that steer a terminal, as JSON or as they are, reach no terminal: not at the start, in errors, or at the end."""
    log = at("log.jsonl")
    args = [*RUN, "--devices", first_device(), "--shares", "64,0", "--max-steps", "3", "--log", log]
    said = b"\\u001b]0;title of a peer\\u0007\\u001b[2J"
    for what, words in (("a label", {"device": b'[{"label":"0:0 ' + said + b'","units":1,"driver":"' + said + b'"}]'}),
                        ("no JSON for its devices", {"device": STEERS}), ("no list of algorithms", {"choices": STEERS}),
                        ("another setting", {"settings": b'{"lr":"' + said + b'"}'})):
        ports = unused_ports(2)
        node = Node(CONVOY, 0, ports, args)
        peer = Peer(ports[0], 2, 1)
        quietly(lambda: (open_as_last(peer, **words), mirror(peer)))
        if what != "a label":
            check(node.awaits(b"waits for the right nodes again", LIMIT_S), f"{what}: is not refused: {node.said()!r}")
            node.process.terminate()
        code = node.end(LIMIT_S)
        check(code == (0 if what == "a label" else 130), f"{what}: exit {code}: {node.said()!r}")
        text = node.said()
        check(b"title of a peer" in text, f"{what}: nothing of it is said: {text!r}")
        check(b"\x1b" not in text and b"\x07" not in text, f"{what}: control characters of a peer are printed: {text!r}")
        peer.close()
        if os.path.exists(log):
            os.remove(log)


if __name__ == "__main__":
    main(globals())
