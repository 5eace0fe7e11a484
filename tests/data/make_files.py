#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the small files that test_safetensors, test_weights and test_dataset read. Needs numpy and the safetensors
package; the tests do not: the files are kept beside this script. Run it in its folder; it makes the same bytes every
time."""
import gzip
import os
import struct

import numpy as np
from safetensors.numpy import save_file

# What the reference implementation of the format writes, several types, an empty tensor, metadata.
save_file({
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3) / 2,
    "i64 scalar": np.array(-7, dtype=np.int64),
    "u8": np.arange(5, dtype=np.uint8),
    "empty": np.zeros((0, 4), dtype=np.float32),
    "grün": np.array([1.5], dtype=np.float16),
}, "reference.safetensors", metadata={"who": "python"})

# The state_dict of Sequential(Conv2d(2, 3, (3, 2)), BatchNorm2d(3), ReLU(), Flatten(), Linear(3 * 2 * 3, 4)) on 2x4x4
# images, names "0", "1" and "fc". Tensor number t holds 100 t + 0, 1, 2, … in PyTorch's order.
shapes = [("0.weight", (3, 2, 3, 2)), ("0.bias", (3,)), ("1.weight", (3,)), ("1.bias", (3,)),
          ("1.running_mean", (3,)), ("1.running_var", (3,)), ("1.num_batches_tracked", ()), ("fc.weight", (4, 18)),
          ("fc.bias", (4,))]
tensors = {}
for t, (name, shape) in enumerate(shapes):
    if name.endswith("tracked"):
        tensors[name] = np.array(11, dtype=np.int64)
    else:
        tensors[name] = (100 * t + np.arange(np.prod(shape, dtype=int))).astype(np.float32).reshape(shape)
save_file(tensors, "tiny_net.safetensors")


def idx(array):
    head = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(">%dI" % array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


# Images whose byte at flat position i is (i * 7 + first) mod 256; labels 0, 1, 2, 0, 1, …
def sets(folder, shape, ending, write):
    os.makedirs(folder, exist_ok=True)
    rank = len(shape) + 1
    for name, n, first in (("train", 5, 1), ("t10k", 3, 2)):
        pixels = (np.arange(n * int(np.prod(shape))) * 7 + first) % 256
        write(f"{folder}/{name}-images-idx{rank}-ubyte{ending}", idx(pixels.reshape((n,) + shape)))
        write(f"{folder}/{name}-labels-idx1-ubyte{ending}", idx(np.arange(n) % 3))


def plain(path, content):
    with open(path, "wb") as f:
        f.write(content)


def packed(path, content):
    half = len(content) // 2                    # two members, as `cat a.gz b.gz` makes them
    plain(path, gzip.compress(content[:half], 9, mtime=0) + gzip.compress(content[half:], 9, mtime=0))


sets("idx-plain", (2, 3), "", plain)
sets("idx-packed", (2, 3, 3), ".gz", packed)
