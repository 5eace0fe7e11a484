# SPDX-License-Identifier: MIT
"""Predictions of a trained network in a file (convoy/model.h, convoy/picture.h)."""
from __future__ import annotations

import os
import threading
import weakref
from typing import Any, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import arrays, errors, options, parameters
from ._cffi import ffi, lib
from .batches import Batch
from .core import CLOSE_WAIT_S
from .devices import Device, named, selector
from .handles import Handle, Log, Owner, is_forked, note_devices, refuse_fork, text_of
from .interrupts import Interrupts


def _close(handle: Handle, lock: Any, stop: Any) -> None:
    """Also at the end of the interpreter, when another thread may still predict: a request to stop ends that."""
    if is_forked():
        return
    lib.cvy_stop_request(stop)
    if lock.acquire(timeout=CLOSE_WAIT_S):
        handle.drop()
        lock.release()


class Model(Owner):
    """A weights file, a checkpoint, or an ONNX file with weights, ready for predictions.

    path: the file. devices: as of `Trainer`. batch: images of a pass on all devices together. model: an ONNX file that replaces the one that the weights file
    names. The numbers are those of `convoy predict` and `convoy eval`. One thread at a time predicts; others wait. The GIL is released meanwhile. Ctrl-C ends
    a prediction soon. (`cvy_model_open`) Raises FileError, FormatError, MismatchError: another network; ArgumentError: the file does not name its network;
    NoDeviceError."""

    def __init__(self, path: Union[str, "os.PathLike[str]"], devices: Union[str, Device, Sequence[Union[str, Device]]] = "auto", *, batch: int = 256,
                 model: Union[None, str, "os.PathLike[str]"] = None, conv_algo: str = "auto", math: str = "fp32") -> None:
        super().__init__()
        note_devices()
        self.path = os.fspath(path)
        self._lock, self._stop, log, out = threading.Lock(), ffi.new("cvy_stop *"), Log(), ffi.new("cvy_model **")
        kept = [ffi.new("char[]", conv_algo.encode()), self._stop]
        members = {"batch": options.whole("batch", batch, 1, 1 << 24), "conv_algo": kept[0], "math": options.word("math", math, options.MATHS), "stop": self._stop}
        if model is not None:
            kept.append(ffi.new("char[]", os.fsencode(model)))
            members["model"] = kept[-1]
        params = ffi.new("cvy_model_params *", members)
        named(lambda: log.call(lib.cvy_model_open, os.fsencode(path), selector(devices).encode(), params, out))
        self._handle = Handle(out[0], lib.cvy_model_close, log)
        self._handle.borrowed = kept
        self._closers.append(weakref.finalize(self, _close, self._handle, self._lock, self._stop))

    @property
    def _info(self) -> Any:
        refuse_fork()
        if self.closed:
            raise errors.ClosedError("the model is closed")
        return lib.cvy_model_get_info(self._handle.pointer)

    @property
    def shape(self) -> arrays.Shape:
        """Channels, height, width of its images."""
        info = self._info
        return info.channels, info.height, info.width

    @property
    def classes(self) -> int:
        return self._info.classes

    @property
    def class_names(self) -> Optional[List[str]]:
        """None: classes are numbers."""
        info = self._info
        return None if info.class_names == ffi.NULL else [text_of(info.class_names[i]) or "" for i in range(info.classes)]

    @property
    def labels(self) -> List[str]:
        """Of its devices: "0:0 NVIDIA H200"."""
        self._info  # not closed
        devices = lib.cvy_model_devices(self._handle.pointer)
        return [text_of(lib.cvy_devices_label(devices, i)) or "" for i in range(lib.cvy_devices_count(devices))]

    def parameter(self, name: str, device: int = 0) -> np.ndarray:
        """A copy of a parameter's values, float32 with PyTorch's layout. (`cvy_team_param_get`) Raises ArgumentError, which names the parameters."""
        with self._lock:
            return parameters.get(self._handle.log, self._team, name, device)

    def set_parameter(self, name: str, values: Any) -> None:
        """Sets a parameter on all devices, for the predictions that follow; the file stays as it is. (`cvy_team_param_set`)"""
        with self._lock:
            parameters.put(self._handle.log, self._team, name, values)

    def parameter_names(self) -> Tuple[str, ...]:
        """Names of all parameters, as in PyTorch's state_dict."""
        with self._lock:
            return tuple(parameters.shapes(self._team))

    @property
    def _team(self) -> Any:
        self._info  # not closed
        return lib.cvy_model_team(self._handle.pointer)

    def read(self, paths: Sequence[Union[str, "os.PathLike[str]"]]) -> np.ndarray:
        """Pictures (JPEG, PNG, PGM, PPM) as bytes (N,H,W,C) of the network's size, resized as in training. (`cvy_picture_read`)
        Raises FileError, FormatError; the text names the file."""
        channels, height, width = self.shape
        pixels = np.empty((len(paths), height, width, channels), np.uint8)
        for i, path in enumerate(paths):
            self._handle.log.call(lib.cvy_picture_read, os.fsencode(path), self._info, ffi.from_buffer("uint8_t[]", pixels[i]))
        return pixels

    def predict(self, images: Any, layout: Optional[str] = None, raw: bool = False) -> np.ndarray:
        """Probabilities float32 (N, classes) of images: bytes, or floats that are pixels/255, (N,H,W), (N,C,H,W) or (N,H,W,C). raw: floats are the network's
        input as they are, for a network that was trained on batches. (`cvy_model_predict`, `cvy_team_evaluate_batch`)
        Raises MismatchError: images of another size; DeviceError: the last device failed."""
        if raw:
            return self._predict_raw(Batch(images, None, layout, self.shape))
        pixels = arrays.as_bytes(images, layout, self.shape)
        n, height, width, channels = pixels.shape
        if (channels, height, width) != self.shape:
            raise errors.MismatchError(f"images of {channels}x{height}x{width} (channels, height, width); the network takes {'x'.join(map(str, self.shape))}")
        out = np.empty((n, self.classes), np.float32)
        with self._lock:
            if self.closed:
                raise errors.ClosedError("the model is closed")
            lib.cvy_stop_withdraw(self._stop)
            with Interrupts(self._stop):
                self._handle.log.call(lib.cvy_model_predict, self._handle.pointer, ffi.from_buffer("uint8_t[]", pixels), n, ffi.from_buffer("float[]", out))
        return out

    def _predict_raw(self, batch: Batch) -> np.ndarray:
        out = np.empty((batch.n, self.classes), np.float32)
        with self._lock:
            team = self._team
            lib.cvy_stop_withdraw(self._stop)
            with Interrupts(self._stop):
                self._handle.log.call(lib.cvy_team_evaluate_batch, team, batch.pointer, ffi.from_buffer("float[]", out), ffi.NULL)
        return out

    def __repr__(self) -> str:
        if self.closed:
            return f"Model({self.path}, closed)"
        return f"Model({self.path}, {'x'.join(map(str, self.shape))} to {self.classes} classes, on [{', '.join(self.labels)}])"
