# SPDX-License-Identifier: MIT
"""Named arrays in safetensors files: an 8-byte length, a JSON header, and the tensors' bytes."""
from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping

import numpy as np

from . import errors

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1"}
NAMES = {np.dtype(code): name for name, code in TYPES.items()}


def read(path: "os.PathLike[str] | str") -> Dict[str, np.ndarray]:
    """All tensors of a file, in the order of their bytes. Types that numpy lacks (BF16) are an UnsupportedError."""
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        body = f.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, row in sorted(header.items(), key=lambda item: item[1]["data_offsets"][0]):
        if row["dtype"] not in TYPES:
            raise errors.UnsupportedError(f"{path}: tensor {name} has the type {row['dtype']}; expected one of {', '.join(TYPES)}")
        begin, end = row["data_offsets"]
        tensors[name] = np.frombuffer(body[begin:end], TYPES[row["dtype"]]).reshape(row["shape"]).copy()
    return tensors


def write(path: "os.PathLike[str] | str", tensors: Mapping[str, Any]) -> None:
    """Writes arrays, or what numpy makes arrays of (tensors of PyTorch on the CPU)."""
    header: Dict[str, Any] = {}
    parts, at = [], 0
    for name, value in tensors.items():
        array = np.asarray(value.detach() if hasattr(value, "detach") else value)
        array = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        if array.dtype not in NAMES:
            raise errors.ArgumentError(f"tensor {name} has the type {array.dtype}; expected one of {', '.join(str(t) for t in NAMES)}")
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        parts.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.writelines(parts)
