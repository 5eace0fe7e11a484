# SPDX-License-Identifier: MIT
"""Parameters and gradients of a team by name, as arrays with PyTorch's layouts (convoy/team.h)."""
from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np

from . import errors
from ._cffi import ffi, lib
from .batches import plain
from .handles import Log, text_of

Shape = Tuple[int, ...]


def shapes(team: Any) -> Dict[str, Shape]:
    """Of all parameters, in PyTorch's order."""
    net, info, found = lib.cvy_team_net(team), ffi.new("cvy_param_info *"), {}
    for i in range(lib.cvy_net_param_count(net)):
        lib.cvy_net_param(net, i, info)
        found[text_of(info.name) or ""] = tuple(info.dims[d] for d in range(info.rank))
    return found


def shape_of(team: Any, name: str) -> Shape:
    known = shapes(team)
    if name not in known:
        raise errors.ArgumentError(f"the network has no parameter {name!r}; it has {', '.join(known)}")
    return known[name]


def get(log: Log, team: Any, name: str, device: int = 0) -> np.ndarray:
    """A copy of device `device`'s values."""
    out = np.empty(shape_of(team, name), np.float32)
    log.call(lib.cvy_team_param_get, team, device, name.encode(), ffi.from_buffer("float[]", out), out.size)
    return out


def put(log: Log, team: Any, name: str, values: Any) -> None:
    """Sets the values on all devices."""
    wanted, given = shape_of(team, name), plain(values)
    if given.shape != wanted:
        raise errors.MismatchError(f"values of shape {given.shape} for parameter {name!r}; expected {wanted}")
    if given.dtype.kind not in "fiu":
        raise errors.ArgumentError(f"values of type {given.dtype} for parameter {name!r}; expected float32")
    made = np.ascontiguousarray(given, np.float32)
    log.call(lib.cvy_team_param_set, team, name.encode(), ffi.from_buffer("float[]", made), made.size)


def gradient(log: Log, team: Any, name: str) -> np.ndarray:
    """Of the last step, summed over the devices."""
    out = np.empty(shape_of(team, name), np.float32)
    log.call(lib.cvy_team_grad_get, team, name.encode(), ffi.from_buffer("float[]", out), out.size)
    return out
