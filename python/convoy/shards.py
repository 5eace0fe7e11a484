# SPDX-License-Identifier: MIT
"""Batches that are divided among devices, and results that lie there (convoy/tensor.h)."""
from __future__ import annotations

import weakref
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from . import arrays, errors
from ._cffi import ffi, lib
from .core import Core
from .devices import selector
from .handles import Handle


class Tensor:
    """Activations on one device of a team: float32 (N, classes) of logits. `asnumpy()` or `numpy.asarray` copies them to the host and waits.

    When the trainer is closed, or its device is lost, they are lost, too. (`cvy_tensor_read`)"""

    def __init__(self, core: Core, pointer: Any, device: str) -> None:
        self._core, self.device = core, device
        self._handle = Handle(pointer, lib.cvy_tensor_destroy, core.log, [core.team])
        weakref.finalize(self, self._handle.drop)
        sizes = [ffi.new("int *") for _ in range(4)]
        lib.cvy_tensor_shape(pointer, *sizes, ffi.NULL)
        self.shape: Tuple[int, int] = (sizes[0][0], sizes[1][0] * sizes[2][0] * sizes[3][0])

    def asnumpy(self) -> np.ndarray:
        """A copy on the host."""
        out = np.empty(self.shape, np.float32)
        with self._core.using("asnumpy"):
            self._core.log.call(lib.cvy_tensor_read, self._handle.pointer, ffi.from_buffer("float[]", out), out.size)
        return out

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        return self.asnumpy().astype(dtype or np.float32, copy=False)

    def __repr__(self) -> str:
        return f"{self.asnumpy()!r}\n<Tensor {self.shape[0]}x{self.shape[1]} on {self.device}>"


def _drop(parts: List[Optional[Handle]]) -> None:
    while parts:
        part = parts.pop()
        if part is not None:
            part.drop()


class _Batch:
    """A whole batch on the host, and its parts on the devices of the team that used it last."""

    def __init__(self, x: np.ndarray, devices: List[str]) -> None:
        self.x, self.devices = x, devices
        self.core: Any = lambda: None  # weak
        self.parts: List[Optional[Handle]] = []
        weakref.finalize(self, _drop, self.parts)

    def load(self, core: Core) -> None:
        """Divides the batch among the team's devices, unless that was done."""
        if self.core() is core and self.parts:
            return
        _drop(self.parts)
        n = lib.cvy_team_size(core.team.pointer)
        if n != len(self.devices):
            raise errors.ArgumentError(f"a batch for {len(self.devices)} devices; the network is on {n}")
        shards = ffi.new("cvy_tensor *[]", n)
        x = arrays.as_floats(arrays.channels_last(self.x), None)
        core.log.call(lib.cvy_team_split_and_load, core.team.pointer, ffi.from_buffer("float[]", x), len(x), shards)
        self.parts[:] = [None if shards[i] == ffi.NULL else Handle(shards[i], lib.cvy_tensor_destroy, core.log, [core.team]) for i in range(n)]
        self.core = weakref.ref(core)


class Shard:
    """Device `index`'s part of a batch: `net(shard)` computes on that device. `asnumpy()` is the part as the caller gave it."""

    def __init__(self, batch: _Batch, index: int, begin: int, end: int) -> None:
        self._batch, self.index, self._range = batch, index, slice(begin, end)

    @property
    def shape(self) -> Tuple[int, ...]:
        return self._batch.x[self._range].shape

    @property
    def device(self) -> str:
        return self._batch.devices[self.index]

    def asnumpy(self) -> np.ndarray:
        """A view of the caller's array."""
        return self._batch.x[self._range]

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        return self.asnumpy().astype(dtype or self._batch.x.dtype, copy=False)

    def __repr__(self) -> str:
        return f"<Shard {'x'.join(map(str, self.shape))} for {self.device}>"

    def forward(self, core: Core) -> Tensor:
        """Logits, on the device. (`cvy_team_forward`)"""
        self._batch.load(core)
        part, out = self._batch.parts[self.index], ffi.new("cvy_tensor **")
        if part is None:
            raise errors.ArgumentError(f"device {self.index} ({self.device}) has no part of this batch of {len(self._batch.x)}")
        size = ffi.new("int *")
        lib.cvy_tensor_shape(part.pointer, size, ffi.NULL, ffi.NULL, ffi.NULL, ffi.NULL)
        if size[0] != self.shape[0]:
            raise errors.MismatchError(f"{self!r}: the team gives this device {size[0]} of {len(self._batch.x)} samples; expected an even split")
        core.log.call(lib.cvy_team_forward, core.team.pointer, part.pointer, out)
        return Tensor(core, out[0], self.device)


def split_and_load(x: Any, devices: Sequence[Any]) -> List[Shard]:
    """Divides a batch (N,C,H,W) evenly among devices; the first ones get one more. The parts are loaded when a network that lies on these devices first
    uses one of them. Floats are taken as they are."""
    whole, names = np.asarray(x), [selector(device) for device in devices]
    if not names or whole.ndim < 3:
        raise errors.ArgumentError(f"split_and_load: an array of shape {whole.shape} for {len(names)} devices; expected (N,C,H,W), and at least one device")
    batch, at, shards = _Batch(whole, names), 0, []
    for i in range(len(names)):
        n = len(whole) // len(names) + (i < len(whole) % len(names))
        shards.append(Shard(batch, i, at, at + n))
        at += n
    return shards
