#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""1,000 random networks of PyTorch's, by ONNX: compare_random_nets.py TEST_ONNX_STEP

tests/data/make_onnx_nets.py makes them, from CVY_TEST_SEED on [0], CVY_TEST_NETS of them [1000]; test_onnx_step imports each, computes logits and a training step in
double, and compares with PyTorch's float64; the first tenth goes to the devices, too. Exit 77 without torch or onnx."""
import os
import subprocess
import sys
import tempfile

try:
    import numpy  # noqa: F401
    import onnx  # noqa: F401
    import torch  # noqa: F401
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)
MAKE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "make_onnx_nets.py")


def main():
    nets, seed = int(os.environ.get("CVY_TEST_NETS", "1000")), os.environ.get("CVY_TEST_SEED", "0")
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run([sys.executable, MAKE, folder, seed, str(nets)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if made.returncode:
            print(f"{MAKE}: exit {made.returncode}")
            return 1
        env = dict(os.environ, CVY_TEST_ONNX=folder, CVY_TEST_ONNX_DEVICE=str((nets + 9) // 10))
        env.pop("CVY_TEST_SEED", None)
        done = subprocess.run([sys.argv[1]], env=env)
    if done.returncode not in (0, 77):                  # what the networks are
        print(made.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
