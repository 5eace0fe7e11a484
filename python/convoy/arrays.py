# SPDX-License-Identifier: MIT
"""Images and labels as the library takes them: bytes (N,H,W,C) and 16-bit labels, in C order."""
from __future__ import annotations

from typing import Any, Optional, Tuple

import numpy as np

from . import errors

Shape = Tuple[int, int, int]  # channels, height, width
MOST_CHANNELS = 4  # of images whose layout is not named
EXACT = 1e-6  # floats that differ by less from k/255 are the byte k
MOST_LABEL = 65534
PIECE = 1 << 22  # values that are converted at a time


def _layout_of(shape: Tuple[int, ...], layout: Optional[str], wanted: Optional[Shape]) -> str:
    if layout is not None:
        if layout not in ("NCHW", "NHWC"):
            raise errors.ArgumentError(f"layout: {layout!r} is not one of NCHW, NHWC")
        return layout
    if wanted:
        fits = [name for name, (c, h, w) in (("NCHW", shape[1:]), ("NHWC", (shape[3], *shape[1:3]))) if (c, h, w) == wanted]
        if len(fits) == 1:
            return fits[0]
    first, last = shape[1] <= MOST_CHANNELS, shape[3] <= MOST_CHANNELS
    if first == last:
        raise errors.ArgumentError(f"images of shape {shape}: the channels may be dimension 1 or 3; expected layout=\"NCHW\" or layout=\"NHWC\"")
    return "NCHW" if first else "NHWC"


def channels_last(images: Any, layout: Optional[str] = None, wanted: Optional[Shape] = None) -> np.ndarray:
    """A view (N,H,W,C) of images (N,H,W), (N,C,H,W) or (N,H,W,C). `wanted`: the network's channels, height and width, to tell layouts apart."""
    array = np.asarray(images)
    if array.ndim == 3:
        return array[:, :, :, np.newaxis]
    if array.ndim != 4:
        raise errors.ArgumentError(f"images of shape {array.shape}; expected (N,H,W), (N,C,H,W) or (N,H,W,C)")
    return array.transpose(0, 2, 3, 1) if _layout_of(array.shape, layout, wanted) == "NCHW" else array


def _bytes_of_floats(piece: np.ndarray, first: int) -> np.ndarray:
    levels = np.rint(piece * 255.0)
    off = ~(np.abs(levels / 255.0 - piece) <= EXACT) | (levels < 0) | (levels > 255)
    if off.any():
        at = np.argwhere(off)[0]
        raise errors.ArgumentError(f"image {first + at[0]} has the value {piece[tuple(at)]:.9g}; floats are pixels/255, k/255 with k from 0 to 255. "
                                   "Hand over unnormalised images, as bytes or pixels/255, and normalise by the argument normalize")
    return levels.astype(np.uint8)


def _bytes_of_ints(piece: np.ndarray, first: int) -> np.ndarray:
    off = (piece < 0) | (piece > 255)
    if off.any():
        at = np.argwhere(off)[0]
        raise errors.ArgumentError(f"image {first + at[0]} has the value {piece[tuple(at)]}; expected whole numbers from 0 to 255")
    return piece.astype(np.uint8)


def as_bytes(images: Any, layout: Optional[str] = None, wanted: Optional[Shape] = None) -> np.ndarray:
    """uint8 (N,H,W,C) in C order, without a copy where the images are that already. Floats must be pixels/255."""
    array = channels_last(images, layout, wanted)
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    kinds = {"f": _bytes_of_floats, "i": _bytes_of_ints, "u": _bytes_of_ints, "b": _bytes_of_ints}
    if array.dtype.kind not in kinds:
        raise errors.ArgumentError(f"images of type {array.dtype}; expected uint8, other whole numbers from 0 to 255, or floats")
    out = np.empty(array.shape, np.uint8)
    n = max(1, PIECE // max(1, array[:1].size))
    for at in range(0, len(array), n):
        piece = array[at:at + n]
        out[at:at + n] = kinds[array.dtype.kind](piece.astype(np.int64) if array.dtype.kind == "b" else piece, at)
    return out


def as_floats(images: np.ndarray, normalise: Optional[Tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """float32 (N,H,W,C) as the devices compute it from bytes: pixels / 255, minus mean, divided by deviation."""
    values = images.astype(np.float32) / np.float32(255) if images.dtype.kind in "iub" else images.astype(np.float32)
    if normalise:
        values = (values - normalise[0]) / normalise[1]
    return np.ascontiguousarray(values, np.float32)


def as_labels(labels: Any, n: int) -> np.ndarray:
    """uint16 (N)."""
    array = np.asarray(labels)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise errors.ArgumentError(f"labels of shape {array.shape} and type {array.dtype} for {n} images; expected one whole number for each")
    if n and not (0 <= array.min() and array.max() <= MOST_LABEL):
        raise errors.ArgumentError(f"labels from {array.min()} to {array.max()}; expected 0 to {MOST_LABEL}")
    return np.ascontiguousarray(array, np.uint16)
