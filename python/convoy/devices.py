# SPDX-License-Identifier: MIT
"""The OpenCL devices of this machine (convoy/device.h)."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, List, Sequence, Union

from . import errors
from ._cffi import ffi, lib
from .handles import note_devices, text_of, thread_log

_KINDS = {lib.CVY_DEVICE_CPU: "CPU", lib.CVY_DEVICE_GPU: "GPU", lib.CVY_DEVICE_OTHER: "other"}


def _size(n_bytes: int) -> str:
    for unit, name, digits in ((30, "GiB", 1), (20, "MiB", 0)):
        if n_bytes >= 1 << unit:
            return f"{n_bytes / (1 << unit):.{digits}f} {name}"
    return f"{n_bytes / 1024:.0f} KiB"


@dataclass(frozen=True)
class Device:
    """A device as its driver reports it (`cvy_device_info`). `str(device)` is its selector, "0:0"; `repr` is its line of `convoy devices`."""

    platform: int  #: numbered as by clinfo
    index: int  #: in its platform; -1: the platform is broken or empty
    kind: str  #: "CPU", "GPU" or "other"
    name: str
    vendor: str
    driver: str
    platform_name: str
    compute_units: int
    global_bytes: int
    usable: bool
    reason: str  #: why it is not usable, or what it lacks; else ""
    abilities: str  #: "float16, fp64, unified memory, can be split"
    same_as: str  #: selector of the device that this one duplicates or shares cores with; else ""
    duplicate: bool  #: `same_as` is the same device through another driver
    name_width: int = field(default=0, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.platform}:{self.index}" if self.index >= 0 else str(self.platform)

    def __repr__(self) -> str:
        number = str(self)
        if not self.usable:
            where = f"platform {self.platform_name}" if self.index < 0 else f"{self.name} ({self.platform_name})"
            return f"- {number:<4} {where}: {self.reason}"
        line = (f"{number:<6} {self.kind:<5} {self.name:<{self.name_width}} {self.compute_units:4d} units {_size(self.global_bytes):>9}  "
                f"{self.abilities} [{self.platform_name}]")
        if self.same_as:
            line += f"; {'the same device as' if self.duplicate else 'same cores as'} {self.same_as}"
        return line + (f"; {self.reason}" if self.reason else "")


class Devices(List[Device]):
    """A list of devices, whose `repr` is the table of `convoy devices`."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "no OpenCL device; `python -m convoy devices` prints what is probably missing"


def _abilities(info: Any) -> str:
    named = (("fp16", info.has_fp16), ("fp64", info.has_fp64), ("sub-groups", info.has_subgroups), ("unified memory", info.host_unified),
             ("can be split", info.can_partition_by_counts))
    width = [f"float{info.float_vector_width}"] if info.float_vector_width > 1 else []
    return ", ".join(width + [name for name, there in named if there])


def devices() -> Devices:
    """All devices of this machine, broken ones with the reason; an empty list without a platform. Opens the drivers (`cvy_device_list_create`)."""
    note_devices()
    log, out = thread_log(), ffi.new("cvy_device_list **")
    log.call(lib.cvy_device_list_create, out)
    try:
        items = [out[0].items[i] for i in range(out[0].n)]
        number = lambda info: f"{info.platform}:{info.index}" if info.index >= 0 else str(info.platform)
        names = [text_of(info.name) or "" for info in items]
        width = max((len(name) for name, info in zip(names, items) if info.usable), default=0)
        width = max(width, 4)
        return Devices(Device(platform=info.platform, index=info.index, kind=_KINDS[info.kind], name=name, vendor=text_of(info.vendor) or "",
                              driver=text_of(info.driver) or "", platform_name=text_of(info.platform_name) or "", compute_units=info.compute_units,
                              global_bytes=info.global_bytes, usable=bool(info.usable), reason=text_of(info.reason) or "", abilities=_abilities(info),
                              same_as=number(items[info.same_as]) if info.same_as >= 0 else "", duplicate=bool(info.duplicate), name_width=width)
                       for info, name in zip(items, names))
    finally:
        with log.used():
            lib.cvy_device_list_destroy(out)


def missing() -> str:
    """What is probably missing for a device: drivers that are registered and broken, cards without one, the package to install; "": nothing is.
    (`cvy_device_missing_drivers`, `cvy_device_advice`)"""
    note_devices()
    log, out, text = thread_log(), ffi.new("cvy_device_list **"), ffi.new("char[]", 4096)
    log.call(lib.cvy_device_list_create, out)
    try:
        with log.used():
            hidden = lib.cvy_device_missing_drivers(out[0], text, 4096)
            lines = (text_of(text) or "").strip()
            if not hidden and not any(out[0].items[i].usable for i in range(out[0].n)):
                lib.cvy_device_advice(text, 4096)
                lines = "\n".join(part for part in (lines, (text_of(text) or "").strip()) if part)
        log.deliver()
        return lines
    finally:
        with log.used():
            lib.cvy_device_list_destroy(out)


def named(call: Callable[[], None]) -> None:
    """Runs a call that selects devices. Its NoDeviceError says what is probably missing, if no device is usable at all."""
    try:
        call()
    except errors.NoDeviceError as failure:
        if any(device.usable for device in devices()):
            raise
        raise errors.NoDeviceError("\n".join(part for part in (str(failure), missing()) if part)) from None


def selector(chosen: Union[str, Device, Sequence[Union[str, Device]]]) -> str:
    """The text of `--devices` for a text, a device, or a list of them."""
    if isinstance(chosen, (str, Device)):
        return str(chosen)
    terms = [str(one) for one in chosen]
    if not terms:
        raise errors.ArgumentError("devices: an empty list; expected a selector such as \"all\" or \"0:0/1+1\", or devices of convoy.devices()")
    return ",".join(terms)
