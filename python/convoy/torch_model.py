# SPDX-License-Identifier: MIT
"""PyTorch's modules as networks of Convoy's, by the names of their state_dict."""
from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Set, Union

import numpy as np

from . import errors, options, tensors, torch_export, torch_fold
from ._cffi import ffi, lib
from .devices import Device
from .handles import Handle, Log, Owner
from .model import Model
from .network import Held, Network, Shape, check_classes, export, held, shape_of
from .torch_export import COUNT, some

if TYPE_CHECKING:
    from .trainer import Trainer


class TorchModel(Model, Network):
    """A PyTorch module as a network of Convoy's; `from_torch` makes it.

    `Trainer(model)` trains it, and each `fit` updates its weights. `predict` opens the devices when it is called first, with the weights of that time."""

    init = "file"

    def __init__(self, path: str, folder: str, net: Handle, state: Dict[str, np.ndarray], metadata: Any, devices: Any, batch: int) -> None:
        Owner.__init__(self)
        self.path, self.first_weights = path, os.path.join(folder, "weights.safetensors")
        self._metadata, self._places, self._batch = metadata, devices, batch
        self._opened: Optional[Model] = None
        self._guard = threading.RLock()  # of _opened, _state and the weights file
        self._net = self._own(net)
        weakref.finalize(self, shutil.rmtree, folder, True)
        self._counts = {name: value for name, value in state.items() if name.endswith(COUNT)}
        self._fixed_counts = {name + COUNT for name in held(net.pointer).fixed}
        self._start = max(map(int, self._counts.values()), default=0)  # as the library reads them
        self._trained = False
        self._state = dict(state)
        tensors.write(self.first_weights, self._state)

    def close(self) -> None:
        """Frees devices and memory. Further calls do nothing."""
        with self._guard:
            before, self._opened = self._opened, None
        if before is not None:
            before.close()
        super().close()

    def _need(self) -> Any:
        if self.closed:
            raise errors.ClosedError("the model is closed")
        return self._net.pointer

    # ---- the network of a Trainer ----

    def __fspath__(self) -> str:
        return self.path

    def hold_net(self, shape: Optional[Shape], classes: int) -> Handle:
        """See `Network`. Raises MismatchError: images of another size, or more classes."""
        if shape is not None and tuple(shape) != self.shape:
            raise errors.MismatchError(f"images of {'x'.join(map(str, shape))} (channels, height, width); the module was traced with {'x'.join(map(str, self.shape))}")
        check_classes("the module", self._need(), classes)
        return self._net.hold()

    def take_weights(self, trainer: "Trainer") -> None:
        """The weights of the trainer's devices become the model's."""
        with self._guard:
            before, self._opened = self._opened, None
            trainer.save(self.first_weights or "")
            found = tensors.read(self.first_weights or "")
            steps = max((int(value) for name, value in found.items() if name.endswith(COUNT)), default=0) - self._start
            found.update({name: np.asarray(value + (0 if name in self._fixed_counts else steps), value.dtype) for name, value in self._counts.items()})
            self._state = {name: found.get(name, value) for name, value in self._state.items()}
            self._trained = True
        if before is not None:
            before.close()

    # ---- what it holds ----

    @property
    def shape(self) -> Shape:
        """Channels, height, width of its images."""
        return shape_of(self._need())

    @property
    def classes(self) -> int:
        """Number of outputs."""
        return lib.cvy_net_classes(self._need())

    def state_dict(self) -> Any:
        """Copies of the weights as PyTorch's tensors, in the order of the module's: `module.load_state_dict(model.state_dict())`."""
        torch, _ = torch_export.packages()
        self._need()
        with self._guard:
            state = OrderedDict((name, torch.from_numpy(value.copy())) for name, value in self._state.items())
        if self._metadata is not None:
            state._metadata = self._metadata  # type: ignore[attr-defined]  # versions of modules, which torchvision's MNASNet asks for
        return state

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the weights as a safetensors file."""
        self._need()
        with self._guard:
            tensors.write(path, self._state)

    # ---- predictions ----

    def _predicting(self) -> Model:
        """The model on its devices, with the weights of now."""
        self._need()
        with self._guard:
            if self._opened is None:
                if self._trained:
                    self._opened = Model(self.first_weights or "", self._places, batch=self._batch, model=self.path)
                else:
                    self._opened = Model(self.path, self._places, batch=self._batch)
            return self._opened

    @property
    def class_names(self) -> Optional[List[str]]:
        """Of the data that it was trained with; None: classes are numbers."""
        return self._predicting().class_names

    @property
    def labels(self) -> List[str]:
        """Of its devices: "0:0 NVIDIA H200"."""
        return self._predicting().labels

    def read(self, paths: Sequence[Union[str, "os.PathLike[str]"]]) -> np.ndarray:
        """Pictures as bytes (N,H,W,C), as of `Model.read`."""
        return self._predicting().read(paths)

    def predict(self, images: Any, layout: Optional[str] = None) -> np.ndarray:
        """Probabilities float32 (N, classes), as of `Model.predict`."""
        return self._predicting().predict(images, layout)

    def __repr__(self) -> str:
        if self.closed:
            return "TorchModel(closed)"
        return f"TorchModel({'x'.join(map(str, self.shape))} to {self.classes} classes, {len(self._state)} tensors{', trained' if self._trained else ''})"


# ---- made of a module ----


def _misfits(found: Held, state: Mapping[str, np.ndarray], parameters: Set[str]) -> List[str]:
    """Entries of the state that the network lacks or has otherwise, with the reason."""
    there = {**found.constants, **found.running, **found.trained}
    reasons = []
    for name, value in state.items():
        if name not in there:
            reasons.append(f"{name} is not in the network")
        elif there[name] != value.shape:
            reasons.append(f"{name} has the shape {there[name]}, not {value.shape}")
        elif name in parameters and name not in found.trained:
            reasons.append(f"{name} would not be trained")
        elif name not in parameters and name in found.trained:
            reasons.append(f"{name} is a buffer and would be trained")
    surplus = [name for name in (*found.trained, *found.running) if name not in state]
    return reasons + [f"{name} is in the network, but not in state_dict()" for name in surplus]


def _import(log: Log, path: str, shape: Shape, out: Any) -> None:
    """Reads the file, and where it has nodes that are not supported once more with the sizes that it computes as numbers."""
    try:
        log.call(lib.cvy_onnx_import, os.fsencode(path), *shape, out)
    except errors.UnsupportedError:
        if not torch_fold.fold(path):
            raise
        try:
            log.call(lib.cvy_onnx_import, os.fsencode(path), *shape, out)
            return
        except errors.Error:
            pass
        raise


def _other_values(log: Log, net: Any, state: Mapping[str, np.ndarray], trained: Mapping[str, Any], folder: str) -> List[str]:
    """Parameters and running values that the finished network holds with other values than the state, by what it writes itself."""
    path = os.path.join(folder, "check.onnx")
    export(log, net, None, path)
    written = torch_export.values_of(path)
    os.remove(path)
    names = [name for name in state if name in trained or name.endswith(torch_export.RUNNING)]
    return [f"{name} has other values" for name in names if name not in written or not np.array_equal(written[name].reshape(-1), state[name].reshape(-1), equal_nan=True)]


def from_torch(module: Any, input_shape: Sequence[int] = (3, 64, 64), *, devices: Union[str, Device, Sequence[Union[str, Device]]] = "auto", batch: int = 256,
               file: Union[None, str, "os.PathLike[str]"] = None) -> TorchModel:
    """A PyTorch module as a network that `Trainer` trains and `Model.predict` uses, with the names, shapes and values of its state_dict.

    module: a classifier of images (N,C,H,W); it is copied, and left as it is. input_shape: channels, height, width. Batch normalisations stay; Dropout is
    kept, other layers that draw random numbers (stochastic depth) are left out with a warning. devices, batch: of predictions, as of `Model`. file: where
    the ONNX file is kept, which a later process needs for checkpoints and weights files of this network; None: a temporary one.

    After training, `module.load_state_dict(model.state_dict())` takes the weights back. Needs the packages torch and onnx. (`cvy_onnx_import`)
    Raises UnsupportedError: the module cannot be exported, has an operator that Convoy lacks, or a parameter or buffer that would not arrive as it is;
    each is named."""
    shape = options.shape("input_shape", input_shape)
    torch, _ = torch_export.packages()
    if not isinstance(module, torch.nn.Module):
        raise errors.ArgumentError(f"module: {type(module).__name__}; expected a torch.nn.Module")
    if isinstance(getattr(module, "_orig_mod", None), torch.nn.Module) or isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        raise errors.ArgumentError(f"module: {type(module).__name__} wraps another module; expected that one (module._orig_mod of torch.compile, else module.module)")
    options.whole("batch", batch, 1, 1 << 24)
    state = torch_export.state_of(module)
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    folder = tempfile.mkdtemp(prefix="convoy-")
    net: Optional[Handle] = None
    try:
        path = os.path.join(folder, "net.onnx") if file is None else os.fspath(file)
        if not path.endswith(".onnx"):
            raise errors.ArgumentError(f"file: {path!r}; expected a name that ends in .onnx")
        reasons = torch_export.export(module, state, shape, path)
        log, out = Log(), ffi.new("cvy_net **")
        try:
            _import(log, path, shape, out)
        except errors.Error as failure:
            text = str(failure).replace(path + ": ", "").replace(path, "the network")
            more = f"\nof {len(state)} entries of state_dict() {len(reasons)} would not arrive as they are: {some(reasons)}" if reasons else ""
            raise type(failure)(f"{type(module).__name__}: {text}{more}") from None
        net = Handle(out[0], lib.cvy_net_destroy, log)
        found = held(net.pointer)
        reasons += [reason for reason in _misfits(found, state, parameters) if reason.split(" ")[0] not in {known.split(" ")[0] for known in reasons}]
        reasons = reasons or _other_values(log, net.pointer, state, found.trained, folder)
        if reasons:
            raise errors.UnsupportedError(f"{type(module).__name__}: of {len(state)} entries of state_dict() {len(reasons)} would not arrive as they are: {some(reasons)}")
        return TorchModel(path, folder, net, state, getattr(module.state_dict(), "_metadata", None), devices, batch)
    except BaseException:
        if net is not None:
            net.drop()
        shutil.rmtree(folder, True)
        raise
