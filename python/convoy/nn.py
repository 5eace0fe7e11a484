# SPDX-License-Identifier: MIT
"""Networks of one's own, in the words of torch.nn, over the library's builder (convoy/net.h):

    net = nn.Sequential(nn.Conv2d(64, 3, padding=1), nn.BatchNorm2d(), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Residual(nn.Sequential(nn.Conv2d(64, 3, padding=1), nn.BatchNorm2d())), nn.ReLU(), nn.Flatten(), nn.Linear(10))
    run = convoy.Trainer(net, devices="all")

Layers have no number of inputs: shapes follow from the images. A description is constant; any number of trainers may share it. Parameters have the names that
torch.nn.Sequential gives them: "0.weight", "1.running_mean", "4.body.0.bias". First weights are those of PyTorch's Conv2d and Linear; `Trainer(init=…)`
chooses others. A wrong layer is an ArgumentError with its name, its settings and the shape of its input."""
from __future__ import annotations

import os
from dataclasses import MISSING, dataclass, fields
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import errors, options
from ._cffi import ffi, lib
from .handles import Handle, Log
from .network import Network, Shape, check_classes, export

Pair = Union[int, Tuple[int, int]]
Padding = Union[int, Tuple[int, int], Tuple[int, int, int, int], str]


@dataclass(frozen=True)
class Node:
    """A tensor of the network that is built. flat: Flatten or Linear made it, of one dimension for each sample."""

    index: int
    shape: Shape  #: channels, height, width
    flat: bool = False

    def __str__(self) -> str:
        c, h, w = self.shape
        return f"{c * h * w} values" if self.flat else f"{c}x{h}x{w} (channels, height, width)"


class Builder:
    """A cvy_net under construction. Layers call `add`, `fail`; each line of `rows` is (name, layer, output)."""

    def __init__(self, log: Log, net: Any) -> None:
        self.log, self.net = log, net
        self.rows: List[Tuple[str, "Layer", Node]] = []

    def fail(self, name: str, layer: "Layer", x: Node, reason: str) -> errors.ArgumentError:
        """The exception for a layer that cannot be built on x."""
        return errors.ArgumentError(f"layer {name or '(the network)'}, {layer!r}, on {x}: {reason}")

    def add(self, name: str, layer: "Layer", x: Node, function: Callable[..., int], *arguments: Any, flat: Optional[bool] = None) -> Node:
        """Calls a function of the builder, which returns a node."""
        try:
            with self.log.used():
                index = function(self.net, *arguments)
        except (TypeError, OverflowError) as wrong:
            raise self.fail(name, layer, x, str(wrong)) from None
        if index < 0:
            raise self.fail(name, layer, x, self.log.deliver(failed=True) or "the library refused it")
        sizes = [ffi.new("int *") for _ in range(3)]
        lib.cvy_net_shape(self.net, index, *sizes)
        return Node(index, (sizes[0][0], sizes[1][0], sizes[2][0]), x.flat if flat is None else flat)


class Layer:
    """Base of all layers. `Trainer` takes `Sequential`, and every other layer that ends with the classes."""

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """Adds the layer behind x. name: the prefix of its parameters' names."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """As it would be written, without settings that have their defaults."""
        said = []
        for f in fields(self):  # type: ignore[arg-type]  # each layer with settings is a dataclass
            value = getattr(self, f.name)
            if f.default is MISSING:
                said.append(repr(value))
            elif value != f.default:
                said.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(said)})"


def _place(builder: Builder, layer: Layer, x: Node, name: str) -> Node:
    """Builds a layer inside of another one. An error has the innermost layer's name."""
    try:
        made = layer.build(builder, x, name)
    except errors.ArgumentError as wrong:
        if str(wrong).startswith("layer "):
            raise
        raise builder.fail(name, layer, x, str(wrong)) from None
    if not isinstance(layer, Sequential):
        builder.rows.append((name, layer, made))
    return made


def _named(name: str, child: str) -> str:
    return f"{name}.{child}" if name else child


def _pair(what: str, value: Any, least: int) -> Tuple[int, int]:
    values = (value, value) if not isinstance(value, (tuple, list)) else tuple(value)
    if len(values) != 2:
        raise errors.ArgumentError(f"{what}: {value!r}; expected a whole number, or two: rows and columns")
    return options.whole(what, values[0], least, 65536), options.whole(what, values[1], least, 65536)


def _padding(value: Any, kernel: Tuple[int, int], dilation: Tuple[int, int], stride: Tuple[int, int]) -> Tuple[Tuple[int, int], Tuple[int, int]]:
    """((rows above, columns left), more of them below and right)"""
    if value == "valid":
        return (0, 0), (0, 0)
    if value == "same":
        if stride != (1, 1):
            raise errors.ArgumentError(f"padding: 'same' with stride {stride}; expected stride 1")
        whole = [(k - 1) * d for k, d in zip(kernel, dilation)]
        return (whole[0] // 2, whole[1] // 2), (whole[0] % 2, whole[1] % 2)
    if isinstance(value, (tuple, list)) and len(value) == 4:
        top, left, bottom, right = (options.whole("padding", n, 0, 65536) for n in value)
        return (top, left), (bottom - top, right - left)
    if isinstance(value, str):
        raise errors.ArgumentError(f"padding: {value!r}; expected \"same\", \"valid\", a whole number, (rows, columns), or (above, left, below, right)")
    return _pair("padding", value, 0), (0, 0)


def _pixels(builder: Builder, layer: Layer, x: Node, name: str) -> None:
    """Refuses a row of values."""
    if x.flat:
        raise builder.fail(name, layer, x, "it needs channels, rows and columns, in front of Flatten and Linear")


# ---- layers with parameters ----


@dataclass(frozen=True, repr=False)
class Conv2d(Layer):
    """A convolution with `filters` outputs. padding: a number, (rows, columns), (above, left, below, right), "same" or "valid". (`cvy_net_conv2d`)"""

    filters: int
    kernel_size: Pair
    stride: Pair = 1
    padding: Padding = 0
    dilation: Pair = 1
    groups: int = 1
    bias: bool = True

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        _pixels(builder, self, x, name)
        kernel, stride, dilation = (_pair(what, getattr(self, what), 1) for what in ("kernel_size", "stride", "dilation"))
        pad, more = _padding(self.padding, kernel, dilation, stride)
        filters, groups = options.whole("filters", self.filters, 1, 65536), options.whole("groups", self.groups, 1, 65536)
        spec = ffi.new("cvy_conv2d_spec *", {"filters": filters, "kernel": kernel, "stride": stride, "pad": pad, "no_bias": not self.bias,
                                             "groups": groups, "dilation": dilation, "pad_more": more})
        return builder.add(name, self, x, lib.cvy_net_conv2d, x.index, name.encode(), spec)


@dataclass(frozen=True, repr=False)
class BatchNorm2d(Layer):
    """Batch normalisation. fixed: training uses the running values and does not change them. (`cvy_net_batchnorm`)"""

    eps: float = 1e-5
    momentum: float = 0.1
    fixed: bool = False

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        if x.flat and x.shape[1:] != (1, 1):
            raise builder.fail(name, self, x, "values of several pixels in a row have no channels; expected it in front of Flatten, or behind Linear")
        spec = ffi.new("cvy_batchnorm_spec *", {"eps": self.eps, "momentum": self.momentum, "fixed": self.fixed})
        if not (self.eps > 0 and 0 < self.momentum <= 1):  # the builder takes 0 for the default
            raise builder.fail(name, self, x, f"eps {self.eps}, momentum {self.momentum}; expected eps above 0, and momentum above 0 and at most 1")
        return builder.add(name, self, x, lib.cvy_net_batchnorm, x.index, name.encode(), spec)


@dataclass(frozen=True, repr=False)
class BatchNorm1d(BatchNorm2d):
    """`BatchNorm2d` behind Linear."""


@dataclass(frozen=True, repr=False)
class Linear(Layer):
    """Fully connected, behind Flatten where the images have several pixels. (`cvy_net_linear`)"""

    outputs: int
    bias: bool = True

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        if not x.flat and x.shape[1:] != (1, 1):
            raise builder.fail(name, self, x, "it takes a row of values; expected Flatten in front of it")
        outputs = options.whole("outputs", self.outputs, 1, 65536)
        return builder.add(name, self, x, lib.cvy_net_linear, x.index, name.encode(), outputs, not self.bias, flat=True)


# ---- functions of each value ----


class _Activation(Layer):
    """Base of the activations."""

    def _numbers(self) -> Tuple[int, float, float]:
        """(kind, a, b) of cvy_net_activation"""
        raise NotImplementedError

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        return builder.add(name, self, x, lib.cvy_net_activation, x.index, *self._numbers())


def _activation(name: str, text: str, kind: int, a: float = 0.0, b: float = 0.0) -> Any:
    """The class of an activation without settings."""
    made = type(name, (_Activation,), {"__doc__": f"{text} (`cvy_net_activation`)", "_numbers": lambda self: (kind, a, b), "__module__": __name__})
    return dataclass(frozen=True, repr=False)(made)


ReLU = _activation("ReLU", "max(x, 0)", lib.CVY_ACTIVATION_RELU)
ReLU6 = _activation("ReLU6", "min(max(x, 0), 6)", lib.CVY_ACTIVATION_CLIP, 0, 6)
Sigmoid = _activation("Sigmoid", "1 / (1 + exp(-x))", lib.CVY_ACTIVATION_SIGMOID)
Tanh = _activation("Tanh", "tanh(x)", lib.CVY_ACTIVATION_TANH)
Hardsigmoid = _activation("Hardsigmoid", "min(max(x/6 + 1/2, 0), 1)", lib.CVY_ACTIVATION_HARD_SIGMOID, 1 / 6, 0.5)
Hardswish = _activation("Hardswish", "x * min(max(x/6 + 1/2, 0), 1)", lib.CVY_ACTIVATION_HARD_SWISH)
SiLU = _activation("SiLU", "x / (1 + exp(-x))", lib.CVY_ACTIVATION_SILU)


@dataclass(frozen=True, repr=False)
class LeakyReLU(_Activation):
    """x above 0, else negative_slope * x. (`cvy_net_activation`)"""

    negative_slope: float = 0.01

    def _numbers(self) -> Tuple[int, float, float]:
        return lib.CVY_ACTIVATION_LEAKY_RELU, self.negative_slope, 0.0


@dataclass(frozen=True, repr=False)
class Hardtanh(_Activation):
    """min(max(x, min_val), max_val); either may be infinite. (`cvy_net_activation`)"""

    min_val: float = -1.0
    max_val: float = 1.0

    def _numbers(self) -> Tuple[int, float, float]:
        return lib.CVY_ACTIVATION_CLIP, self.min_val, self.max_val


@dataclass(frozen=True, repr=False)
class GELU(_Activation):
    """x * P(X <= x) of a normal distribution. approximate: "none", or "tanh". (`cvy_net_activation`)"""

    approximate: str = "none"

    def _numbers(self) -> Tuple[int, float, float]:
        return options.word("approximate", self.approximate, {"none": lib.CVY_ACTIVATION_GELU, "tanh": lib.CVY_ACTIVATION_GELU_TANH}), 0.0, 0.0


@dataclass(frozen=True, repr=False)
class Dropout(Layer):
    """In training each value is 0 with probability p, else x / (1 - p). (`cvy_net_dropout`)"""

    p: float = 0.5

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        return builder.add(name, self, x, lib.cvy_net_dropout, x.index, self.p)


@dataclass(frozen=True, repr=False)
class Softmax(Layer):
    """Over the channels. Training takes logits: a network to be trained does not end with it. (`cvy_net_softmax`)"""

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        if x.flat and x.shape[1:] != (1, 1):
            raise builder.fail(name, self, x, "values of several pixels in a row have no channels")
        return builder.add(name, self, x, lib.cvy_net_softmax, x.index)


@dataclass(frozen=True, repr=False)
class Identity(Layer):
    """x"""

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        return x


@dataclass(frozen=True, repr=False)
class Flatten(Layer):
    """Channels, rows and columns become one row of values, in this order."""

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        return Node(x.index, x.shape, True)


# ---- windows and channels ----


@dataclass(frozen=True, repr=False)
class _Pool(Layer):
    """Base of the pools."""

    kernel_size: Pair
    stride: Optional[Pair] = None
    padding: Padding = 0
    ceil_mode: bool = False

    def _spec(self, builder: Builder, x: Node, name: str, **more: Any) -> Any:
        _pixels(builder, self, x, name)
        kernel = _pair("kernel_size", self.kernel_size, 1)
        stride = kernel if self.stride is None else _pair("stride", self.stride, 1)
        pad, pad_more = _padding(self.padding, kernel, (1, 1), stride)
        return ffi.new("cvy_pool2d_spec *", {"kernel": kernel, "stride": stride, "pad": pad, "pad_more": pad_more, "ceil_mode": self.ceil_mode, **more})


@dataclass(frozen=True, repr=False)
class MaxPool2d(_Pool):
    """The maximum of each window; stride None: the window's size. (`cvy_net_maxpool`)"""

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        return builder.add(name, self, x, lib.cvy_net_maxpool, x.index, self._spec(builder, x, name))


@dataclass(frozen=True, repr=False)
class AvgPool2d(_Pool):
    """The mean of each window; stride None: the window's size. (`cvy_net_avgpool`)"""

    count_include_pad: bool = True

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        return builder.add(name, self, x, lib.cvy_net_avgpool, x.index, self._spec(builder, x, name, exclude_pad=not self.count_include_pad))


@dataclass(frozen=True, repr=False)
class AdaptiveAvgPool2d(Layer):
    """Means of equal windows, so many that output_size comes out, which divides the input's size. (`cvy_net_global_avgpool`, `cvy_net_avgpool`)"""

    output_size: Pair = 1

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        _pixels(builder, self, x, name)
        wanted = _pair("output_size", self.output_size, 1)
        if wanted == (1, 1):
            return builder.add(name, self, x, lib.cvy_net_global_avgpool, x.index)
        if any(have % want for have, want in zip(x.shape[1:], wanted)):
            raise builder.fail(name, self, x, f"an output of {wanted[0]}x{wanted[1]} does not divide the input; expected a divisor of each")
        return builder.add(name, self, x, lib.cvy_net_avgpool, x.index, ffi.new("cvy_pool2d_spec *", {"kernel": [h // n for h, n in zip(x.shape[1:], wanted)]}))


@dataclass(frozen=True, repr=False)
class Slice(Layer):
    """Channels first, first + step, …, `count` of them. (`cvy_net_slice`)"""

    first: int
    count: int
    step: int = 1

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        _pixels(builder, self, x, name)
        return builder.add(name, self, x, lib.cvy_net_slice, x.index, self.first, self.count, self.step)


@dataclass(frozen=True, repr=False)
class ChannelShuffle(Layer):
    """Channel g * (channels / groups) + i becomes channel i * groups + g. (`cvy_net_shuffle`)"""

    groups: int

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        _pixels(builder, self, x, name)
        return builder.add(name, self, x, lib.cvy_net_shuffle, x.index, self.groups)


# ---- several layers ----


class _Whole(Layer, Network):
    """Base of layers that a Trainer takes."""

    init = "torch"

    def __fspath__(self) -> str:
        return type(self).__name__

    def _built(self, shape: Shape) -> Tuple[Handle, Builder]:
        """The finished network, and how it was built."""
        log, out = Log(), ffi.new("cvy_net **")
        log.call(lib.cvy_net_create, *options.shape("input_shape", shape), out)
        net = Handle(out[0], lib.cvy_net_destroy, log)
        try:
            builder = Builder(log, net.pointer)
            last = _place(builder, self, Node(0, (shape[0], shape[1], shape[2])), "")
            if last.shape[1:] != (1, 1):
                raise errors.ArgumentError(f"the network ends with {last}; expected one value for each class: Flatten and Linear, or a global pool, at the end")
            log.call(lib.cvy_net_finish, net.pointer, last.index)
        except BaseException:
            net.drop()
            raise
        return net, builder

    def hold_net(self, shape: Optional[Shape], classes: int) -> Handle:
        """See `Network`. Raises ArgumentError: a layer that does not fit."""
        if shape is None:
            raise errors.ArgumentError("the network's input is not known before fit: give input_shape=(channels, height, width)")
        net, _ = self._built(shape)
        try:
            check_classes("the network", net.pointer, classes)
        except BaseException:
            net.drop()
            raise
        return net

    def summary(self, input_shape: Sequence[int]) -> str:
        """A table of the layers with their outputs, for images of (channels, height, width)."""
        net, builder = self._built(options.shape("input_shape", input_shape))
        try:
            total = sum(_elements(net.pointer))
        finally:
            net.drop()
        rows = [(name or "(all)", type(layer).__name__ if isinstance(layer, _Whole) else repr(layer), str(node)) for name, layer, node in builder.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(2)]
        return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows) + f"\n{total} parameters"

    def export(self, path: Union[str, "os.PathLike[str]"], weights: Union[str, "os.PathLike[str]"], input_shape: Sequence[int]) -> None:
        """Writes the network with the weights of a file of `Trainer.save` as an ONNX file, which `Model` and `convoy predict` take. (`cvy_onnx_export`)"""
        net, _ = self._built(options.shape("input_shape", input_shape))
        try:
            export(net.log, net.pointer, os.fspath(weights), os.fspath(path))
        finally:
            net.drop()


def _elements(net: Any) -> List[int]:
    """Numbers of each trained parameter."""
    info, found = ffi.new("cvy_param_info *"), []
    for i in range(lib.cvy_net_param_count(net)):
        lib.cvy_net_param(net, i, info)
        found += [] if info.fixed else [info.elems]
    return found


class Sequential(_Whole):
    """Layers one behind the other: `Sequential(a, b)`, or with names `Sequential({"conv1": a, "relu": b})`."""

    def __init__(self, *layers: Union[Layer, Mapping[str, Layer]]) -> None:
        named = dict(layers[0]) if len(layers) == 1 and isinstance(layers[0], Mapping) else {str(i): layer for i, layer in enumerate(layers)}
        for name, layer in named.items():
            if not isinstance(layer, Layer):
                raise errors.ArgumentError(f"layer {name}: {layer!r}; expected a layer of convoy.nn" + (", with brackets: ReLU()" if isinstance(layer, type) else ""))
        self.layers: Dict[str, Layer] = named

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        for child, layer in self.layers.items():
            x = _place(builder, layer, x, _named(name, child))
        return x

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, i: Union[int, str]) -> Layer:
        return self.layers[i] if isinstance(i, str) else list(self.layers.values())[i]

    def __repr__(self) -> str:
        plain = list(self.layers) == [str(i) for i in range(len(self.layers))]
        return f"Sequential({', '.join(map(repr, self.layers.values())) if plain else repr(self.layers)})"


class _Pairs(_Whole):
    """Base of sums and products of two branches. A shortcut None is the input itself."""

    _function: Any
    _words: Tuple[str, str] = ("body", "shortcut")

    def __init__(self, body: Layer, shortcut: Optional[Layer] = None) -> None:
        for name, layer in zip(self._words, (body, shortcut)):
            if not isinstance(layer, Layer) and not (layer is None and name == self._words[1]):
                raise errors.ArgumentError(f"{type(self).__name__}: {name} {layer!r}; expected a layer of convoy.nn")
        self.body, self.shortcut = body, shortcut

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        ends = []
        for child, layer in zip(self._words, (self.body, self.shortcut)):
            ends.append(x if layer is None else _place(builder, layer, x, _named(name, child)))
        body, other = ends
        single = any(end.shape[1:] == (1, 1) for end in ends)
        if body.flat != other.flat or body.shape[0] != other.shape[0] or (body.shape != other.shape and not single):
            raise builder.fail(name, self, x, f"{self._words[0]} makes {body}, {self._words[1]} {other}; expected equal shapes" + (
                "; a shortcut such as Conv2d(channels, 1, stride) makes them equal" if isinstance(self, Residual) else ", or channels x 1 x 1"))
        return builder.add(name, self, x, type(self)._function, body.index, other.index, flat=body.flat)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.body!r}{'' if self.shortcut is None else f', {self.shortcut!r}'})"


class Residual(_Pairs):
    """body(x) + shortcut(x); without a shortcut body(x) + x. Names: "NAME.body.0.weight", "NAME.shortcut.weight". (`cvy_net_add`)"""

    _function = lib.cvy_net_add


class Gate(_Pairs):
    """body(x) * shortcut(x); without a shortcut body(x) * x. A body that ends with one pixel weights channels (squeeze and excitation). (`cvy_net_mul`)"""

    _function = lib.cvy_net_mul


class Concat(_Whole):
    """The channels of several branches of one input, in their order. Names: "NAME.0.weight", "NAME.1.0.weight". (`cvy_net_concat`)"""

    def __init__(self, *branches: Layer) -> None:
        if not branches or not all(isinstance(branch, Layer) for branch in branches):
            raise errors.ArgumentError(f"Concat: {branches!r}; expected one or more layers of convoy.nn")
        self.branches = branches

    def build(self, builder: Builder, x: Node, name: str) -> Node:
        """See `Layer.build`."""
        ends = [_place(builder, branch, x, _named(name, str(i))) for i, branch in enumerate(self.branches)]
        if len({(end.flat, end.shape[1:]) for end in ends}) > 1 or (ends[0].flat and ends[0].shape[1:] != (1, 1)):
            raise builder.fail(name, self, x, f"its branches make {', '.join(map(str, ends))}; expected equal height and width")
        return builder.add(name, self, x, lib.cvy_net_concat, ffi.new("cvy_node[]", [end.index for end in ends]), len(ends))

    def __repr__(self) -> str:
        return f"Concat({', '.join(map(repr, self.branches))})"
