# SPDX-License-Identifier: MIT
"""Data sets in host memory (convoy/data.h)."""
from __future__ import annotations

import os
from typing import Any, List, Optional, Tuple, Union

import numpy as np

from . import arrays, errors, options
from ._cffi import ffi, lib
from .handles import Handle, Log, Owner, text_of

Pair = Tuple[Any, Any]  # images and labels
PICTURES = {"size": "files", "size_h": 0, "size_w": 0, "gray": False, "png16": "clip", "exif": "ignore", "val_split": 0.0}
SETS = {"test": lib.CVY_SET_TEST, "train": lib.CVY_SET_TRAIN, "val": lib.CVY_SET_VAL}


class Data(Owner):
    """Images as bytes and labels: a training set, and perhaps a validation set and a test set. Made by `load_data` or `data_from_arrays`."""

    def __init__(self, pointer: Any, log: Log, **pictures: Any) -> None:
        super().__init__()
        self.pictures = {**PICTURES, **pictures}  # how pictures became images
        self._handle = self._own(Handle(pointer, lib.cvy_data_destroy, log))

    @property
    def _struct(self) -> Any:
        if self.closed:
            raise errors.ClosedError("the data set is closed")
        return self._handle.pointer

    @property
    def name(self) -> str:
        return text_of(self._struct.name) or ""

    @property
    def shape(self) -> Tuple[int, int, int]:
        """Channels, height, width."""
        return self._struct.c, self._struct.h, self._struct.w

    @property
    def classes(self) -> int:
        return self._struct.classes

    @property
    def class_names(self) -> Optional[List[str]]:
        """None: classes are numbers."""
        names = self._struct.class_names
        return None if names == ffi.NULL else [text_of(names[i]) or "" for i in range(self.classes)]

    def count(self, which: str = "train") -> int:
        """Number of samples of "train", "val" or "test"."""
        return self._set(which).n

    def arrays(self, which: str = "train") -> Tuple[np.ndarray, np.ndarray]:
        """Copies of a set's images, uint8 (N,H,W,C), and labels, int64 (N)."""
        samples, (c, h, w) = self._set(which), self.shape
        n = samples.n
        images = np.frombuffer(ffi.buffer(samples.images, n * h * w * c), np.uint8) if n else np.empty(0, np.uint8)
        labels = np.frombuffer(ffi.buffer(samples.labels, 2 * n), np.uint16) if n else np.empty(0, np.uint16)
        return images.reshape(n, h, w, c).copy(), labels.astype(np.int64)

    def _set(self, which: str) -> Any:
        if which not in SETS:
            raise errors.ArgumentError(f"set: {which!r} is not one of {', '.join(SETS)}")
        return getattr(self._struct, which)

    def __repr__(self) -> str:
        if self.closed:
            return "Data(closed)"
        c, h, w = self.shape
        counts = ", ".join(f"{self.count(which)} {which}" for which in ("train", "val", "test") if self.count(which))
        return f"Data({self.name}: {counts} images {h}x{w}x{c}, {self.classes} classes)"


def load_data(name: Union[str, "os.PathLike[str]"], *, dir: Optional[str] = None, classes: int = 0, seed: int = 0, size: Union[None, int, Tuple[int, int]] = None,
              gray: bool = False, png16: str = "clip", exif: str = "ignore", val_split: float = 0.0, cache: bool = True, strict: bool = False) -> Data:
    """Loads "fashion-mnist", a folder (idx files, CIFAR's binary files, or pictures in train/CLASS and test/CLASS), or "synthetic[:N[:HxWxC]]".

    dir: folder of fashion-mnist, searched first. size: N resizes the shorter side and crops the centre, (H, W) resizes. val_split: fraction of each class
    of the training images, chosen by seed, that becomes the validation set. The options are those of `convoy train`. (`cvy_data_load`)
    Raises FileError (the text lists the folders searched), FormatError, ArgumentError, HostMemoryError."""
    log, out, params = Log(), ffi.new("cvy_data **"), ffi.new("cvy_data_params *")
    folder = ffi.NULL if dir is None else ffi.new("char[]", os.fsencode(dir))
    params.dir, params.classes, params.seed, params.gray = folder, classes, seed, gray
    params.size_h, params.size_w = (0, 0) if size is None else (-1, size) if isinstance(size, int) else size
    options.word("png16", png16, {"clip": 0, "scale": 1}), options.word("exif", exif, {"ignore": 0, "rotate": 1})
    params.png16_scale, params.exif_rotate = png16 == "scale", exif == "rotate"
    params.val_split, params.no_cache, params.strict = val_split, not cache, strict
    log.call(lib.cvy_data_load, os.fsencode(name), params, out)
    text = "files" if size is None else str(size) if isinstance(size, int) else f"{size[0]}x{size[1]}"
    return Data(out[0], log, size=text, size_h=params.size_h, size_w=params.size_w, gray=gray, png16=png16, exif=exif, val_split=val_split)


def _samples(images: np.ndarray, labels: np.ndarray) -> Any:
    return ffi.new("cvy_samples *", {"n": len(images), "images": ffi.from_buffer("uint8_t[]", images), "labels": ffi.from_buffer("uint16_t[]", labels)})


def only(data: Data, which: str) -> Data:
    """A data set of one set's samples, as its test set: attached to a team, it leaves the training set's normalisation."""
    log, out = data._handle.log, ffi.new("cvy_data **")
    c, h, w = data.shape
    log.call(lib.cvy_data_from_sets, h, w, c, data.classes, ffi.NULL, ffi.NULL, ffi.addressof(data._struct, which), out)
    return Data(out[0], log)


def hold_out(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """True for this fraction of each class, chosen by seed."""
    held = np.zeros(len(labels), bool)
    draw = np.random.RandomState(seed % 2**32)
    for label in np.unique(labels):
        where = np.flatnonzero(labels == label)
        held[draw.permutation(where)[:int(round(fraction * len(where)))]] = True
    return held


def data_from_arrays(train: Optional[Pair], val: Union[None, float, Pair] = None, test: Optional[Pair] = None, *, classes: int = 0, seed: int = 0,
                     layout: Optional[str] = None, shape: Optional[arrays.Shape] = None) -> Data:
    """A data set of pairs (images, labels), which are copied. Images: (N,H,W), (N,C,H,W) or (N,H,W,C), bytes or floats that are pixels/255; labels: (N).

    train None: only `test`, for evaluations. val: a pair, or the fraction of each training class that becomes the validation set, chosen by seed. classes: 0 for the largest label + 1.
    layout: "NCHW" or "NHWC"; needed where both could be meant. shape: channels, height, width of the network, if known. (`cvy_data_from_sets`)
    Raises ArgumentError: shapes or values that do not fit; FormatError: a label of `classes` or more."""
    def converted(pair: Any) -> Tuple[np.ndarray, np.ndarray]:
        try:
            images, labels = pair
        except (TypeError, ValueError):
            raise errors.ArgumentError("expected a pair (images, labels)") from None
        images = arrays.as_bytes(images, layout, shape)
        return images, arrays.as_labels(labels, len(images))

    images, labels = converted(train if train is not None else test)
    if train is None:
        pairs = [(images[:0], labels[:0])] * 2
    elif isinstance(val, (int, float)) and not isinstance(val, bool):
        if not 0 <= val < 1:
            raise errors.ArgumentError(f"val: {val}; expected a fraction of the training images from 0 to below 1, or a pair (images, labels)")
        held = hold_out(labels, val, seed)
        pairs = [(images[~held], labels[~held]), (images[held], labels[held])]
    else:
        pairs = [(images, labels), converted(val) if val is not None else (images[:0], labels[:0])]
    pairs.append(converted(test) if test is not None else (images[:0], labels[:0]))
    for other, _ in pairs[1:]:
        if other.shape[1:] != images.shape[1:]:
            raise errors.ArgumentError(f"images of {other.shape[1:]} beside training images of {images.shape[1:]} (height, width, channels)")
    log, out = Log(), ffi.new("cvy_data **")
    sets = [_samples(*pair) for pair in pairs]
    log.call(lib.cvy_data_from_sets, *images.shape[1:], classes, *sets, out)
    return Data(out[0], log)
