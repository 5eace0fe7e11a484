# SPDX-License-Identifier: MIT
"""Batches of arrays or tensors as the library takes them (convoy/batch.h): float32 in place, with any strides."""
from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple, Union

import numpy as np

from . import arrays, errors
from ._cffi import ffi, lib
from .data import Data

Pair = Tuple[Any, Any]  # images and labels
Batches = Union[Iterable[Pair], Callable[[], Iterable[Pair]]]
DIMENSIONS = (0, 3, 1, 2)  # of (N,H,W,C), in the order of cvy_batch.strides


def _is_batch(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and getattr(value[0], "ndim", 0) >= 3


def are_batches(source: Any) -> bool:
    """True for what gives batches (x, y): an iterable, a generator, a DataLoader, a list of pairs, a function that returns one of these. Not a pair of arrays."""
    if isinstance(source, (str, os.PathLike, Data, np.ndarray)) or source is None:
        return False
    if isinstance(source, (tuple, list)):
        return len(source) > 0 and all(_is_batch(one) for one in source)
    return hasattr(source, "__iter__") or hasattr(source, "__next__") or callable(source)


def once(source: Batches) -> Iterator[Pair]:
    """One pass over the batches."""
    made = source() if callable(source) and not hasattr(source, "__iter__") else source
    for one in made:  # type: ignore[union-attr]
        if not isinstance(one, (tuple, list)) or len(one) != 2:
            raise errors.ArgumentError(f"a batch of type {type(one).__name__}{f' of {len(one)}' if isinstance(one, (tuple, list)) else ''}; expected a pair (images, labels)")
        yield one[0], one[1]


def is_exhausted_by_one_pass(source: Any) -> bool:
    """A generator, or another iterator."""
    return hasattr(source, "__next__")


def plain(value: Any) -> np.ndarray:
    """An array over the memory of an array or a tensor; a tensor on a GPU is copied to the host."""
    for name in ("detach", "cpu"):
        if hasattr(value, name):
            value = getattr(value, name)()
    return np.asarray(value)


def as_images(value: Any, layout: Optional[str], wanted: Optional[arrays.Shape]) -> np.ndarray:
    """float32 (N,H,W,C) with any strides, over the caller's memory where that is float32. Bytes become pixels/255."""
    view = arrays.channels_last(plain(value), layout, wanted)
    if view.dtype == np.uint8:
        view = view.astype(np.float32) / np.float32(255)
    elif view.dtype.kind != "f":
        raise errors.ArgumentError(f"a batch of images of type {view.dtype}; expected float32, the network's input as it is, or uint8, pixels that become pixels/255")
    view = view.astype(np.float32, copy=False)
    whole = view.flags.aligned and all(stride % view.itemsize == 0 for stride in view.strides)
    return view if whole else view.copy()


def as_labels(value: Any, n: int) -> np.ndarray:
    """int32 (N)."""
    labels = plain(value)
    if labels.shape != (n,):
        raise errors.ArgumentError(f"labels of shape {labels.shape} for {n} images; expected ({n},), one class number for each")
    if labels.dtype.kind not in "iu":
        off = np.flatnonzero(~(labels == np.floor(labels))) if labels.dtype.kind == "f" else []
        first = f": label {off[0]} is {labels[off[0]]:g}" if len(off) else ""
        raise errors.ArgumentError(f"labels of type {labels.dtype}{first}; expected whole numbers")
    bounds = np.iinfo(np.int32)
    off = np.flatnonzero((labels < bounds.min) | (labels > bounds.max))
    if len(off):
        raise errors.ArgumentError(f"label {labels[off[0]]} of image {off[0]} of the batch; expected the number of a class")
    return np.ascontiguousarray(labels, np.int32)


class Batch:
    """A cvy_batch over arrays, which it keeps. labels None: without."""

    def __init__(self, images: Any, labels: Any, layout: Optional[str], wanted: Optional[arrays.Shape]) -> None:
        self.images = as_images(images, layout, wanted)
        n, height, width, channels = self.images.shape
        self.n, self.shape = n, (channels, height, width)
        self.labels = None if labels is None else as_labels(labels, n)
        self._strides = ffi.new("ptrdiff_t[4]", [self.images.strides[d] for d in DIMENSIONS])
        self.pointer = ffi.new("cvy_batch *", {
            "n": n, "channels": channels, "height": height, "width": width, "images": ffi.cast("float *", self.images.ctypes.data), "layout": lib.CVY_BATCH_NHWC,
            "strides": self._strides, "labels": ffi.NULL if self.labels is None else ffi.from_buffer("int32_t[]", self.labels)})
