# SPDX-License-Identifier: MIT
"""Files of weights (https://github.com/huggingface/safetensors), as far as Convoy writes them: float32 and int64. Needs numpy."""
import json
import struct

import numpy as np

KINDS = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8")}


def read(path):
    """Name → array, and the file's __metadata__ (name → text)."""
    with open(path, "rb") as f:
        header, blob = json.loads(f.read(struct.unpack("<Q", f.read(8))[0])), f.read()
    metadata = header.pop("__metadata__", {})
    return {name: np.frombuffer(blob[slice(*t["data_offsets"])], KINDS[t["dtype"]]).reshape(t["shape"]).copy() for name, t in header.items()}, metadata


def write(path, arrays):
    header, blobs, at = {}, [], 0
    for name, array in arrays.items():
        kind = "F32" if np.issubdtype(array.dtype, np.floating) else "I64"
        blobs.append(array.astype(KINDS[kind]).tobytes())
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(blobs[-1])]}
        at += len(blobs[-1])
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
