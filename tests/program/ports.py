# SPDX-License-Identifier: MIT
"""Ports of this machine for tests of fleets."""
import socket


def unused_ports(n):
    """n TCP ports that nobody listens on: all are held at once, so that no two are the same, and let go."""
    held = [socket.socket() for _ in range(n)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports
