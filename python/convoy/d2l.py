# SPDX-License-Identifier: MIT
"""Names of "Concise Implementation for Multiple GPUs" of Dive into Deep Learning, for its readers:

    from convoy import d2l
    devices = d2l.try_all_gpus()
    net = d2l.resnet18(10)
    net.initialize(init=convoy.init.Normal(sigma=0.01), ctx=devices)
    x_shards = convoy.split_and_load(x, devices)
    net(x_shards[0]), net[0].weight.data(devices[0])[0]
    d2l.train(net, num_gpus=1, batch_size=256, lr=0.1)

Without a GPU the devices are parts of the CPU or the CPU as a whole, which the functions log as a warning."""
from __future__ import annotations

import time
from typing import Any, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import errors
from ._cffi import ffi, lib
from .data import Data, load_data
from .devices import Device, devices, selector
from .handles import logger
from .history import FitResult
from .init import Initializer, Normal
from .shards import Shard, Tensor, split_and_load
from .trainer import Callback, Trainer

Place = Union[str, Device]


def _gpus() -> List[Device]:
    """Usable GPUs, each once."""
    return [device for device in devices() if device.usable and device.kind == "GPU" and not device.duplicate]


def _cpu() -> Device:
    found = [device for device in devices() if device.usable and device.kind == "CPU" and not device.same_as]
    if not found:
        raise errors.NoDeviceError("no usable OpenCL device: `python -m convoy devices` prints what is probably missing")
    logger.warning("there is no such GPU: using the CPU, %s %s", found[0], found[0].name)
    return found[0]


def try_gpu(i: int = 0) -> Device:
    """GPU number i, or the CPU if there is none."""
    gpus = _gpus()
    return gpus[i] if i < len(gpus) else _cpu()


def try_all_gpus() -> List[Device]:
    """All GPUs, or the CPU if there is none."""
    return _gpus() or [_cpu()]


class Timer:
    """Times of several runs, in seconds."""

    def __init__(self) -> None:
        self.times: List[float] = []
        self.start()

    def start(self) -> None:
        """Begins a measurement."""
        self._began = time.perf_counter()

    def stop(self) -> float:
        """Ends the measurement; its seconds."""
        self.times.append(time.perf_counter() - self._began)
        return self.times[-1]

    def sum(self) -> float:
        """Of all measurements."""
        return sum(self.times)

    def avg(self) -> float:
        """Mean of all measurements."""
        return sum(self.times) / len(self.times)


class Batches:
    """Batches (X, y) of a data set: X float32 (N,C,H,W), pixels/255; y int64. `data` is the data set. With shuffle each iteration has another order, the
    one in which a Trainer with this seed trains. (`cvy_sampler_order`)"""

    def __init__(self, data: Data, which: str, batch_size: int, shuffle: bool, seed: int = 0) -> None:
        self.data, self.which, self.batch_size, self.shuffle, self.seed = data, which, batch_size, shuffle, seed
        self._epoch = 0

    def __len__(self) -> int:
        return -(-self.data.count(self.which) // self.batch_size)

    def __iter__(self) -> Any:
        images, labels = self.data.arrays(self.which)
        order = np.empty(len(labels), np.int32)
        lib.cvy_sampler_order(self.seed, self._epoch, not self.shuffle, len(labels), ffi.from_buffer("int32_t[]", order))
        self._epoch += self.shuffle
        for at in range(0, len(labels), self.batch_size):
            chosen = order[at:at + self.batch_size]
            yield np.ascontiguousarray(images[chosen].transpose(0, 3, 1, 2)).astype(np.float32) / np.float32(255), labels[chosen]


def load_data_fashion_mnist(batch_size: int, resize: Optional[int] = None) -> Tuple[Batches, Batches]:
    """Training and test batches of Fashion-MNIST; resize: the new height and width in pixels."""
    data = load_data("fashion-mnist", size=None if resize is None else (resize, resize))
    return Batches(data, "train", batch_size, True), Batches(data, "test", batch_size, False)


def split_batch(X: Any, y: Any, devices: Sequence[Place]) -> Tuple[List[Shard], List[np.ndarray]]:
    """X as shards for the devices, and y in the same parts."""
    shards = split_and_load(X, devices)
    ends = np.cumsum([shard.shape[0] for shard in shards])
    return shards, np.split(np.asarray(y), ends[:-1])


class Parameter:
    """A layer's weight or bias; each device has a copy."""

    def __init__(self, net: "Net", name: str) -> None:
        self._net, self.name = net, name

    def data(self, device: Optional[Place] = None) -> np.ndarray:
        """A copy of the device's values, in PyTorch's layout. device None: the first one. Raises a RuntimeError for a device on which the network is not
        initialised. (`cvy_team_param_get`)"""
        return self._net._parameter(self.name, device)


class Layer:
    """Layer `prefix` of a network."""

    def __init__(self, net: "Net", prefix: str) -> None:
        self.weight, self.bias = Parameter(net, prefix + ".weight"), Parameter(net, prefix + ".bias")


class Net:
    """A network of the book. `initialize` puts it on devices; `net(shard)` computes logits there; `net[0].weight` is a parameter."""

    def __init__(self, model: str, num_classes: int, in_channels: int, size: int) -> None:
        self.model, self.num_classes, self.input_shape = model, num_classes, (in_channels, size, size)
        self.trainer: Optional[Trainer] = None
        self._places: List[str] = []

    def initialize(self, init: Initializer = Normal(), ctx: Union[None, Place, Sequence[Place]] = None, force_reinit: bool = False, **settings: Any) -> None:
        """Draws the weights once and copies them to the devices of ctx (None: `try_all_gpus`). settings: of the `Trainer`. Raises ArgumentError: it is
        initialised already, and not force_reinit."""
        if self.trainer is not None and not force_reinit:
            raise errors.ArgumentError("the network is initialised already; force_reinit=True draws new weights")
        places = try_all_gpus() if ctx is None else [ctx] if isinstance(ctx, (str, Device)) else list(ctx)
        trainer = Trainer(self.model, devices=places, split="even", init=init.kind, input_shape=self.input_shape, classes=self.num_classes, **settings)
        with trainer._core.using("initialize"):
            trainer._open(None, 0)
        if self.trainer is not None:
            self.trainer.close()
        self.trainer = trainer
        self._places = [selector(place) for place in places]

    @property
    def devices(self) -> List[str]:
        """Selectors of the devices, such as "0:0", or "0:0/0" and "0:0/1" of a CPU that was divided."""
        return [replica.label.split(" ")[0] for replica in self._ready().replicas]

    def _ready(self) -> Trainer:
        if self.trainer is None:
            raise errors.NotInitializedError("the network is not initialised: call initialize first")
        return self.trainer

    def __call__(self, shard: Shard) -> Tensor:
        core = self._ready()._core
        with core.using("forward"):
            return shard.forward(core)

    def __getitem__(self, i: Union[int, str]) -> Layer:
        return Layer(self, str(i))

    def _parameter(self, name: str, device: Optional[Place]) -> np.ndarray:
        trainer = self._ready()
        place = self._places[0] if device is None else selector(device)
        labels = self.devices
        if place not in self._places and place not in labels:
            raise errors.NotInitializedError(f"parameter {name} is not initialised on {place}; it is on {', '.join(labels)}")
        at = labels.index(place) if place in labels else self._places.index(place)
        core, info = trainer._core, ffi.new("cvy_param_info *")
        with core.using("data"):
            for i in range(lib.cvy_net_param_count(core.net.pointer)):
                lib.cvy_net_param(core.net.pointer, i, info)
                if ffi.string(info.name).decode() == name:
                    out = np.empty(tuple(info.dims[d] for d in range(info.rank)), np.float32)
                    core.log.call(lib.cvy_team_param_get, core.team.pointer, at, name.encode(), ffi.from_buffer("float[]", out), out.size)
                    return out
        raise errors.ArgumentError(f"{self.model} has no parameter {name}")

    def __repr__(self) -> str:
        return f"Net({self.model}, {self.num_classes} classes, {self.trainer or 'not initialised'})"


def resnet18(num_classes: int, in_channels: int = 1, size: int = 28) -> Net:
    """The book's ResNet-18, for images of size x size pixels."""
    return Net("resnet18", num_classes, in_channels, size)


def lenet(num_classes: int = 10, in_channels: int = 1, size: int = 28) -> Net:
    """The LeNet of "Training on Multiple GPUs"."""
    return Net("lenet", num_classes, in_channels, size)


def evaluate_accuracy_gpus(net: Net, data_iter: Batches) -> float:
    """Accuracy on the batches' data set, from 0 to 1, on all devices of the network."""
    return net._ready().evaluate(data_iter.data, which=data_iter.which).accuracy


def train(net: Net, num_gpus: int, batch_size: int, lr: float, num_epochs: int = 10, *, data: Union[str, Data] = "fashion-mnist",
          devices: Union[None, Place, Sequence[Place]] = None, init: Initializer = Normal(), callbacks: Sequence[Callback] = (), **settings: Any) -> FitResult:
    """The book's function: new weights on num_gpus GPUs, num_epochs epochs of SGD, the test accuracy after each, and the book's line at the end.

    devices: instead of GPUs 0 to num_gpus - 1, such as ["0:0/1+1"] for two halves of a CPU. settings: of `Trainer`. The weights are the bits of
    `convoy train --split even` with these settings."""
    if devices is None:
        devices = [try_gpu(i) for i in range(num_gpus)]
    net.initialize(init, devices, force_reinit=True, batch=batch_size, lr=lr, **settings)
    result = net._ready().fit(data, epochs=num_epochs, callbacks=callbacks)
    print(result)
    return result
