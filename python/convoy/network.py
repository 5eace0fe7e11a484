# SPDX-License-Identifier: MIT
"""Networks that a Trainer takes instead of a name: those of `convoy.from_torch` and of `convoy.nn`."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Optional, Set, Tuple

from . import errors
from ._cffi import ffi, lib
from .handles import Handle, Log, text_of

if TYPE_CHECKING:
    from .trainer import Trainer

Shape = Tuple[int, int, int]  # channels, height, width


class Network:
    """Base of networks that are described without a device. `Trainer(network)` trains one."""

    init = "torch"  #: the word of `--init` of a Trainer that has none
    first_weights: Optional[str] = None  #: a weights file, which a Trainer without `init` and `init_from` begins with

    def __fspath__(self) -> str:
        """The network's name in weights files and checkpoints."""
        raise NotImplementedError

    def hold_net(self, shape: Optional[Shape], classes: int) -> Handle:
        """The finished cvy_net, which the caller drops. shape: of the images, None: not known. classes: of the labels, 0: not known."""
        raise NotImplementedError

    def take_weights(self, trainer: "Trainer") -> None:
        """Called after each `Trainer.fit`."""


def check_classes(name: str, net: Any, classes: int) -> None:
    """Raises MismatchError for labels of more classes than the network has."""
    there = lib.cvy_net_classes(net)
    if classes > there:
        raise errors.MismatchError(f"{name} has {there} outputs, the data has {classes} classes; expected at most {there}")


class Held(NamedTuple):
    """Shapes of what a finished network holds, by the names of PyTorch's state_dict."""

    trained: Dict[str, Tuple[int, ...]]  #: parameters
    running: Dict[str, Tuple[int, ...]]  #: buffers of batch normalisations
    constants: Dict[str, Tuple[int, ...]]  #: other buffers, which are not trained
    fixed: Set[str]  #: batch normalisations whose running values training does not change


def held(net: Any) -> Held:
    """What the network holds. (`cvy_net_param`, `cvy_net_layer`, `cvy_net_constant`)"""
    found = Held({}, {}, {}, set())
    param, layer, constant = ffi.new("cvy_param_info *"), ffi.new("cvy_layer_info *"), ffi.new("cvy_constant_info *")
    for i in range(lib.cvy_net_param_count(net)):
        lib.cvy_net_param(net, i, param)
        if not param.fixed:
            found.trained[text_of(param.name) or ""] = tuple(param.dims[d] for d in range(param.rank))
    for i in range(lib.cvy_net_layer_count(net)):
        lib.cvy_net_layer(net, i, layer)
        kind, name = text_of(layer.kind), text_of(layer.name) or ""
        if kind == "fixed_batchnorm":
            found.fixed.add(name)
        if kind in ("batchnorm", "fixed_batchnorm"):
            found.running.update({f"{name}.running_mean": (layer.channels,), f"{name}.running_var": (layer.channels,), f"{name}.num_batches_tracked": ()})
    for i in range(lib.cvy_net_constant_count(net)):
        lib.cvy_net_constant(net, i, constant)
        if constant.fixed:
            found.constants[text_of(constant.name) or ""] = tuple(constant.dims[d] for d in range(constant.rank))
    return found


def shape_of(net: Any) -> Shape:
    """Channels, height, width of the network's input."""
    numbers = [ffi.new("int *") for _ in range(3)]
    lib.cvy_net_shape(net, 0, *numbers)
    return numbers[0][0], numbers[1][0], numbers[2][0]


def export(log: Log, net: Any, weights: Optional[str], path: str) -> None:
    """Writes an ONNX file in inference form. weights: a safetensors file, None: the network's initial values. (`cvy_onnx_export`)"""
    log.call(lib.cvy_onnx_export, net, ffi.NULL if weights is None else os.fsencode(weights), lib.CVY_ONNX_AS_READ, os.fsencode(path))
