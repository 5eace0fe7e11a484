#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Batches of the caller in a fleet: test_batch_fleet.py NODE whole|lost

whole: every node hands over the whole batch; weights and probabilities are those of steps on a data set, bit for bit, on all nodes.
lost:  a node ends between two steps; the other one goes on with the images that were the lost node's, as with a data set.
NODE is tests/batch_node."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "program"))
from ports import unused_ports  # noqa: E402

SECONDS = 120
STEPS = 5


def run(folder, kind, steps, device):
    """What each node has written: (weights, probabilities and loss), or None."""
    nodes = ",".join(f"127.0.0.1:{port}" for port in unused_ports(2))
    outs = [os.path.join(folder, f"{kind}{steps}-{rank}") for rank in range(2)]
    started = [subprocess.Popen([sys.argv[1], nodes, str(rank), device, kind, str(steps), outs[rank]]) for rank in range(2)]
    try:
        ends = [process.wait(timeout=SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
    assert ends == [0, 0], f"{kind}, {steps} steps: exit statuses {ends}"
    return [tuple(open(f"{out}.{part}", "rb").read() for part in "wp") if os.path.exists(out + ".w") else None for out in outs]


def main():
    steps = {"whole": STEPS, "lost": 0}[sys.argv[2]]
    device = os.environ.get("CVY_TEST_DEVICE", "0:0")
    with tempfile.TemporaryDirectory() as folder:
        of_set, of_batches = run(folder, "set", steps, device), run(folder, "batch", steps, device)
    assert of_batches[0] == of_set[0], "other weights or probabilities than with the data set"
    if steps:
        assert of_set[1] == of_set[0] and of_batches[1] == of_batches[0], "the nodes have not the same"
    else:
        assert of_set[1] is of_batches[1] is None
    print(f"{sys.argv[2]}: same bits on {2 if steps else 1} of 2 nodes")


main()
