# SPDX-License-Identifier: MIT
"""Convoy: trains convolutional networks on all the OpenCL devices of a machine at once, whatever their vendors.

    import convoy
    convoy.devices()                                             # as `convoy devices` prints them
    run = convoy.Trainer("lenet", devices="all", batch=256, lr=0.05, momentum=0.9, init="he")
    print(run.fit("fashion-mnist", epochs=1))                    # or (images, labels): numpy arrays of bytes, or of pixels/255
    run.predict(images); run.state_dict(); run.save("w.safetensors"); run.history
    convoy.Model("w.safetensors", devices="cpu").predict(images)

`python -m convoy …` is the program. `convoy._lib` has all functions of the C API, `convoy._ffi` its types."""
try:
    from ._cffi import ffi as _ffi, lib as _lib
except ImportError as reason:
    if "libOpenCL" not in str(reason):
        raise
    raise ImportError(f"{reason}: OpenCL's loader is missing. Debian and Ubuntu: apt install ocl-icd-libopencl1, and a driver: pocl-opencl-icd for the processor; "
                      "a graphics card has its vendor's") from reason
from . import d2l, init, nn
from .built import VERSION as __version__
from .data import Data, data_from_arrays, load_data
from .devices import Device, Devices, devices
from .errors import (ArgumentError, BuildError, ClosedError, DeviceError, DeviceMemoryError, DivergedError, Error, FileError, ForkedError, FormatError,
                     HostMemoryError, MismatchError, NoDeviceError, NotFiniteError, NotInitializedError, StoppedError, UnsupportedError)
from .history import EpochResult, EvalResult, FitResult, History, StepResult
from .model import Model
from .options import SGD, Adam, AdamW
from .shards import Shard, Tensor, split_and_load
from .torch_model import TorchModel, from_torch
from .trainer import Callback, Replica, Trainer

if _lib.cvy_api_version() // 10000 != _lib.CVY_API_VERSION_MAJOR or _lib.cvy_api_version() < _lib.CVY_API_VERSION:
    raise ImportError(f"this package was built for libconvoy {_lib.CVY_API_VERSION_MAJOR}.{_lib.CVY_API_VERSION_MINOR}.{_lib.CVY_API_VERSION_PATCH}, and "
                      f"{_ffi.string(_lib.cvy_version()).decode()} was found: build it again with `pip install ./python`")



def __getattr__(name: str) -> object:
    """Classifier is imported when it is first used: it imports scikit-learn where that is installed."""
    if name == "Classifier":
        from .classifier import Classifier
        return Classifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Adam", "AdamW", "ArgumentError", "BuildError", "Callback", "Classifier", "ClosedError", "Data", "Device", "DeviceError", "DeviceMemoryError", "Devices",
           "DivergedError", "EpochResult", "Error", "EvalResult", "FileError", "FitResult", "ForkedError", "FormatError", "History", "HostMemoryError",
           "MismatchError", "Model", "NoDeviceError", "NotFiniteError", "NotInitializedError", "Replica", "SGD", "Shard", "StepResult", "StoppedError", "Tensor",
           "TorchModel", "Trainer", "UnsupportedError", "d2l", "data_from_arrays", "devices", "from_torch", "init", "load_data", "nn", "split_and_load"]
