# SPDX-License-Identifier: MIT
"""First weights, as the book names them; `kind` is the word of `--init`. Biases are 0, except with Torch."""
from __future__ import annotations

from dataclasses import dataclass

from . import errors


class Initializer:
    """Base of the classes below."""

    kind = "d2l"


@dataclass(frozen=True)
class Normal(Initializer):
    """N(0, sigma²); the library has sigma 0.01, the book's."""

    sigma: float = 0.01
    kind = "d2l"

    def __post_init__(self) -> None:
        if self.sigma != 0.01:
            raise errors.ArgumentError(f"sigma: {self.sigma}; expected 0.01, or another initializer (He, Xavier, Torch), or load_state_dict")


@dataclass(frozen=True)
class He(Initializer):
    """N(0, 2/fan_in)."""

    kind = "he"


@dataclass(frozen=True)
class Xavier(Initializer):
    """Uniform in ±sqrt(6/(fan_in + fan_out))."""

    kind = "xavier"


@dataclass(frozen=True)
class Torch(Initializer):
    """PyTorch's defaults of Conv2d and Linear."""

    kind = "torch"
