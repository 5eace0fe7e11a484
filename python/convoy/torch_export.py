# SPDX-License-Identifier: MIT
"""From a PyTorch module to an ONNX file that keeps its layers and the names of its state_dict.

The module is copied, and PyTorch's older exporter (dynamo=False) writes the copy; the newer one folds batch normalisations and writes equal tensors once.
In the file each tensor is then marked as the parameter or buffer that it is, by the newer exporter's metadata, which the library reads."""
from __future__ import annotations

import contextlib
import copy
import ctypes
import inspect
import io
import os
import sys
import tempfile
import warnings
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

from . import errors
from .handles import logger

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
COUNT = ".num_batches_tracked"
RUNNING = (".running_mean", ".running_var")
DRAWING = ("Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "DropPath", "StochasticDepth", "DropBlock2d")
OPSET = 17
MOST_NAMED = 8


def packages() -> Tuple[Any, Any]:
    """(torch, onnx)"""
    found = []
    for name in ("torch", "onnx"):
        try:
            found.append(__import__(name))
        except ImportError as reason:
            raise errors.UnsupportedError(f"convoy.from_torch needs the package {name}, which cannot be imported ({reason}): pip install torch onnx") from reason
    return found[0], found[1]


def some(names: Any) -> str:
    """The first names, for a message."""
    listed = list(names)
    return ", ".join(listed[:MOST_NAMED]) + (f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else "")


def state_of(module: Any) -> Dict[str, np.ndarray]:
    """Copies of the module's state_dict, floats as float32. Raises UnsupportedError: what is no tensor, or not initialised."""
    torch, _ = packages()
    state, wrong = {}, []
    for name, value in module.state_dict().items():
        if not torch.is_tensor(value) or isinstance(value, torch.nn.parameter.UninitializedTensorMixin) or value.is_complex() or value.is_meta:
            wrong.append(name)
            continue
        plain = value.detach().to("cpu")
        state[name] = (plain.float() if plain.is_floating_point() else plain).numpy().copy()
    if wrong:
        raise errors.UnsupportedError(f"state_dict() of {type(module).__name__}: {some(wrong)}: no tensors of numbers; expected real tensors with values (call a lazy module once)")
    return state


def _prepared(module: Any) -> Any:
    """A copy in float32 on the CPU. Normalisations are in evaluation mode, in which the exporter's run leaves them as they are, unless the module in
    training mode has some of both: those in evaluation mode are fixed. Of the other modules that act otherwise in training, Dropout alone is kept."""
    torch, _ = packages()
    try:
        copied = copy.deepcopy(module).to(device="cpu", dtype=torch.float32)
    except Exception as reason:
        raise errors.UnsupportedError(f"{type(module).__name__} cannot be copied: {reason}") from reason
    norms = [m for m in copied.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    mixed = copied.training and len({m.training for m in norms}) == 2
    left_out = set()
    for m in copied.modules():
        if type(m).__name__ in DRAWING and max(float(getattr(m, name, None) or 0) for name in ("p", "drop_prob")) > 0:
            left_out.add(type(m).__name__)
        m.training = m is copied or isinstance(m, torch.nn.Dropout) or (mixed and m.training and any(m is n for n in norms))
    if left_out:
        logger.warning("from_torch: %s: left out of training, as in evaluation; of layers that draw random numbers Dropout alone is supported", ", ".join(sorted(left_out)))
    return copied


@contextlib.contextmanager
def _unprinted() -> Iterator[None]:
    """If the block fails, the process's standard output of that time is dropped: PyTorch's exporter then prints its graph there, from C++."""
    def flush() -> None:
        if sys.stdout is not None:
            sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)

    flush()
    try:
        before = os.dup(1)
    except OSError:  # closed
        yield
        return
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 1)
        try:
            yield
        except BaseException:
            flush()
            kept.truncate(0)
            raise
        finally:
            flush()
            os.dup2(before, 1), os.close(before)
            kept.seek(0)
            for piece in iter(lambda: kept.read(1 << 16), b""):
                os.write(1, piece)


def _write(copied: Any, shape: Tuple[int, int, int], path: str) -> None:
    """Runs PyTorch's exporter. Global random numbers stay where they are."""
    torch, _ = packages()
    x = torch.rand((2, *shape), generator=torch.Generator().manual_seed(0))
    options: Dict[str, Any] = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False, "opset_version": OPSET, "input_names": ["x"],
                               "output_names": ["y"]}
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:  # older versions have only the older exporter
        options["dynamo"] = False
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _unprinted(), contextlib.redirect_stdout(io.StringIO()):
                torch.onnx.export(copied, (x,), path, **options)
        except Exception as reason:
            text = str(reason).strip().splitlines() or [type(reason).__name__]
            raise errors.UnsupportedError(f"{type(copied).__name__} on images of {'x'.join(map(str, shape))} (channels, height, width): PyTorch's exporter to ONNX: "
                                          f"{text[0][:300]}") from reason


def _mark(graph: Any, tensor: Any, kind: str, persistent: bool) -> None:
    """Says of a tensor that it is a PARAMETER or BUFFER."""
    info = next((v for v in graph.value_info if v.name == tensor.name), None) or graph.value_info.add()
    info.name = tensor.name
    info.type.tensor_type.elem_type = tensor.data_type
    info.type.tensor_type.ClearField("shape")
    info.type.tensor_type.shape.SetInParent()
    for n in tensor.dims:
        info.type.tensor_type.shape.dim.add(dim_value=n)
    info.metadata_props.add(key=KIND, value=kind)
    if kind == "BUFFER":
        info.metadata_props.add(key=PERSISTENT, value=str(persistent))


def export(module: Any, state: Dict[str, np.ndarray], shape: Tuple[int, int, int], path: str) -> List[str]:
    """Writes the ONNX file. state: of `state_of(module)`. Returns the reasons why entries of the state are not in the file as they are.
    Raises UnsupportedError: PyTorch cannot export the module."""
    _, onnx = packages()
    copied = _prepared(module)
    _write(copied, shape, path)
    model = onnx.load(path)
    graph, reasons = model.graph, []
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    parameters, buffers = dict(copied.named_parameters(remove_duplicate=False)), dict(copied.named_buffers(remove_duplicate=False))
    for name, tensor in tensors.items():
        if name in parameters or name in buffers:
            _mark(graph, tensor, "PARAMETER" if name in parameters else "BUFFER", name in state)
    for name, value in state.items():
        if name.endswith(COUNT):
            continue
        if name not in tensors:
            reasons.append(f"{name} is not in the file")
            continue
        written = onnx.numpy_helper.to_array(tensors[name])
        if written.shape != value.shape:
            reasons.append(f"{name} has the shape {written.shape} in the file, not {value.shape}")
        elif not np.array_equal(written, value, equal_nan=value.dtype.kind == "f"):
            if not name.endswith(RUNNING):
                reasons.append(f"{name} has other values in the file")
            tensors[name].CopyFrom(onnx.numpy_helper.from_array(value, name))  # the exporter's run moves the values of normalisations in training mode
    onnx.save(model, path)
    return reasons


def values_of(path: str) -> Dict[str, np.ndarray]:
    """All tensors of an ONNX file by name, those of Constant nodes, too."""
    _, onnx = packages()
    graph = onnx.load(path).graph
    found = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            found.update({node.output[0]: onnx.numpy_helper.to_array(a.t) for a in node.attribute if a.name == "value"})
    return found
