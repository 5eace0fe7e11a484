# SPDX-License-Identifier: MIT
"""ONNX files without ONNX's or PyTorch's packages: protobuf's fields by hand, as tests/onnx/onnx_bytes.h has them in C."""
import struct


def number(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(at, value):
    """A whole number, a text, or the bytes of a message."""
    if isinstance(value, int):
        return number(at << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(at << 3 | 2) + number(len(data)) + data


def tensor(name, shape, values):
    return b"".join(field(1, d) for d in shape) + field(2, 1) + field(8, name) + field(9, struct.pack(f"<{len(values)}f", *values))


def truth(name):
    """A tensor of one value, true."""
    return field(2, 9) + field(8, name) + field(9, b"\1")


def node(op, inputs, output, **attributes):
    """Attributes: whole numbers, lists of them, fractions, or the bytes of a tensor."""
    out = b"".join(field(1, i) for i in inputs.split()) + b"".join(field(2, o) for o in output.split()) + field(3, output.split()[0]) + field(4, op)
    for name, value in attributes.items():
        if isinstance(value, float):
            value = number(2 << 3 | 5) + struct.pack("<f", value)
        else:
            value = field(3, value) if isinstance(value, int) else field(5, value) if isinstance(value, bytes) else b"".join(field(8, v) for v in value)
        out += field(5, field(1, name) + value)
    return out


def constant(name, shape, values):
    return node("Constant", "", name, value=tensor("", shape, values))


def value(name, shape):
    dims = b"".join(field(1, field(1, d)) for d in shape)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))


def write(path, shape, nodes, tensors, producer="pytorch"):
    """A graph from "x", one sample of this shape, to "y"."""
    graph = b"".join(field(1, n) for n in nodes) + field(2, "graph") + b"".join(field(5, t) for t in tensors)
    graph += field(11, value("x", (1, *shape))) + field(12, value("y", (1, 1)))
    with open(path, "wb") as f:
        f.write(field(1, 8) + field(2, producer) + field(7, graph) + field(8, field(2, 17)))
