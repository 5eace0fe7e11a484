# SPDX-License-Identifier: MIT
"""Exceptions: one class for each code of `cvy_status` (convoy/status.h), all below `Error`.

The text of an exception is what the library logged for this call (value, place, accepted values), else the code's general text."""
from __future__ import annotations

import builtins
from typing import Dict, Type

from ._cffi import ffi, lib


class Error(Exception):
    """Base of all exceptions of this package. `status` is the library's code, such as -7, and 0 where no call of the library failed."""

    symbol = "CVY_OK"
    status = 0
    _classes: Dict[int, Type["Error"]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "symbol" in cls.__dict__:
            cls.status = getattr(lib, cls.symbol)
            Error._classes[cls.status] = cls


class ArgumentError(Error, ValueError):
    """CVY_E_ARGUMENT: a wrong argument; the text has the value and what is accepted."""

    symbol = "CVY_E_ARGUMENT"


class HostMemoryError(Error, builtins.MemoryError):
    """CVY_E_MEMORY: out of host memory."""

    symbol = "CVY_E_MEMORY"


class DeviceMemoryError(Error, builtins.MemoryError):
    """CVY_E_DEVICE_MEMORY: not even one sample fits into a device's memory."""

    symbol = "CVY_E_DEVICE_MEMORY"


class DeviceError(Error, RuntimeError):
    """CVY_E_DEVICE: an OpenCL call failed, or the last device did."""

    symbol = "CVY_E_DEVICE"


class BuildError(Error, RuntimeError):
    """CVY_E_BUILD: an OpenCL kernel did not compile."""

    symbol = "CVY_E_BUILD"


class NoDeviceError(Error, LookupError):
    """CVY_E_NO_DEVICE: no device fits the selector; the text lists those that are there."""

    symbol = "CVY_E_NO_DEVICE"


class FileError(Error, OSError):
    """CVY_E_IO: a file could not be read or written."""

    symbol = "CVY_E_IO"


class FormatError(Error, ValueError):
    """CVY_E_FORMAT: the content of a file is wrong; the text has the place."""

    symbol = "CVY_E_FORMAT"


class UnsupportedError(Error, NotImplementedError):
    """CVY_E_UNSUPPORTED: this build, or this network, does not support it."""

    symbol = "CVY_E_UNSUPPORTED"


class StoppedError(Error):
    """CVY_E_INTERRUPTED: `Trainer.stop` ended the call. After Ctrl-C the call raises KeyboardInterrupt instead."""

    symbol = "CVY_E_INTERRUPTED"


class NotFiniteError(Error, ArithmeticError):
    """CVY_E_NOT_FINITE: a loss or a weight is NaN or infinite."""

    symbol = "CVY_E_NOT_FINITE"


class DivergedError(Error, RuntimeError):
    """CVY_E_DIVERGED: devices do not hold the same weights (`verify_every`)."""

    symbol = "CVY_E_DIVERGED"


class MismatchError(Error, ValueError):
    """CVY_E_MISMATCH: shapes, names or settings of another network or run."""

    symbol = "CVY_E_MISMATCH"


class ForkedError(Error, RuntimeError):
    """This process is a fork of one that had opened devices: threads of drivers and teams do not survive a fork."""


class NotInitializedError(Error, RuntimeError):
    """A network has no weights on this device."""


class ClosedError(Error, ValueError):
    """The object was closed."""


def of_status(status: int, text: str) -> Error:
    """The exception of a code, with `text` or else the code's general text."""
    return Error._classes.get(status, Error)(text or ffi.string(lib.cvy_status_text(status)).decode())
