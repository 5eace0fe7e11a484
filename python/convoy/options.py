# SPDX-License-Identifier: MIT
"""The words of `convoy train`'s options, as values of the library's structs. A wrong one is an ArgumentError with the accepted values."""
from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import errors
from ._cffi import lib

OPTIMIZERS = {"sgd": lib.CVY_OPTIMIZER_SGD, "adam": lib.CVY_OPTIMIZER_ADAM, "adamw": lib.CVY_OPTIMIZER_ADAMW}
INITS = {"d2l": lib.CVY_INIT_D2L, "he": lib.CVY_INIT_HE, "xavier": lib.CVY_INIT_XAVIER, "torch": lib.CVY_INIT_TORCH, "file": lib.CVY_INIT_NET}
TUNES = {"cached": lib.CVY_TUNE_CACHED, "off": lib.CVY_TUNE_OFF, "quick": lib.CVY_TUNE_QUICK}
EXCHANGES = {"fp32": lib.CVY_EXCHANGE_FP32, "bf16": lib.CVY_EXCHANGE_BF16}
MATHS = {"fp32": lib.CVY_MATH_FP32, "tf32": lib.CVY_MATH_TF32}
SCHEDULES = {"const": lib.CVY_LR_CONST, "cosine": lib.CVY_LR_COSINE, "linear": lib.CVY_LR_LINEAR}
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
MOST_PIXELS = 1 << 14


class Optimizer:
    """An update rule with its settings; `name` is the word of `--optimizer`."""

    name = "sgd"
    lr: float


@dataclass(frozen=True)
class SGD(Optimizer):
    """torch.optim.SGD with dampening 0."""

    lr: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    name = "sgd"


@dataclass(frozen=True)
class Adam(Optimizer):
    """torch.optim.Adam without amsgrad: weight decay is an L2 penalty."""

    lr: float = 1e-3
    betas: Tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    name = "adam"


@dataclass(frozen=True)
class AdamW(Optimizer):
    """torch.optim.AdamW without amsgrad: decoupled weight decay."""

    lr: float = 1e-3
    betas: Tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    name = "adamw"


def wrong(option: str, value: Any, expected: str) -> errors.ArgumentError:
    return errors.ArgumentError(f"{option}: {value!r}; expected {expected}")


def word(option: str, value: Any, known: Dict[str, int]) -> int:
    if value not in known:
        raise errors.ArgumentError(f"{option}: {value!r} is not one of {', '.join(known)}")
    return known[value]


def whole(option: str, value: Any, least: int, most: int = 2**31 - 1) -> int:
    try:
        number = value.__index__()
    except AttributeError:
        raise wrong(option, value, f"a whole number from {least} to {most}") from None
    if isinstance(value, bool) or not least <= number <= most:
        raise wrong(option, value, f"a whole number from {least} to {most}")
    return number


def real(option: str, value: Any, least: float, most: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise wrong(option, value, f"a number from {least:g} to {most:g}") from None
    if not least <= number <= most:
        raise wrong(option, value, f"a number from {least:g} to {most:g}")
    return number


def shape(option: str, value: Any) -> Tuple[int, int, int]:
    try:
        channels, height, width = value
    except (TypeError, ValueError):
        raise wrong(option, value, "(channels, height, width)") from None
    return whole(option, channels, 1, 65536), whole(option, height, 1, 65536), whole(option, width, 1, 65536)


def _floats(text: str) -> List[float]:
    """Numbers between commas; empty: not numbers."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return []
    return numbers if all(math.isfinite(number) for number in numbers) else []


def steps(option: str, value: Union[int, str], least: int) -> Tuple[int, bool]:
    """(n, in epochs) of 100, "100" or "2e"."""
    found = re.fullmatch(r"(\d{1,10})(e?)", str(value))
    if not found or not least <= int(found.group(1)) < 2**31:
        raise wrong(option, value, f"N (steps) or \"Ne\" (epochs) with a whole number N of {least} or more")
    return int(found.group(1)), bool(found.group(2))


def schedule(value: str, warmup: Union[int, str]) -> Dict[str, Any]:
    """Members of cvy_lr_schedule."""
    rise, rise_epochs = steps("warmup", warmup, 0)
    members = {"warmup": rise, "warmup_epochs": rise_epochs}
    if value in SCHEDULES:
        return {"kind": SCHEDULES[value], **members}
    found = re.fullmatch(r"step:(\d+e?),(.+)", str(value))
    gamma = _floats(found.group(2)) if found else []
    if not found or len(gamma) != 1 or not 1e-6 < gamma[0] <= 1e6:
        raise wrong("schedule", value, "const, cosine, linear, or step:N,G or step:Ne,G: times G (above 1e-6, at most 1e6) every N steps or epochs")
    every, epochs = steps("schedule", found.group(1), 1)
    return {"kind": lib.CVY_LR_STEP, "every": every, "every_epochs": epochs, "gamma": gamma[0], **members}


def bn(value: str) -> Dict[str, Any]:
    """Members bn and ghost of cvy_team_params."""
    found = re.fullmatch(r"ghost:(\d{1,9})", str(value))
    if found and 1 <= int(found.group(1)) <= 1 << 24:
        return {"bn": lib.CVY_BN_GHOST, "ghost": int(found.group(1))}
    if value in ("device", "sync"):
        return {"bn": lib.CVY_BN_SYNC if value == "sync" else lib.CVY_BN_DEVICE}
    raise wrong("bn", value, "device, sync, or ghost:G with a whole number G of 1 or more (images in a group)")


def split(how: Union[None, str, Sequence[float]], shares: Union[None, str, Sequence[int]]) -> Tuple[int, List[float]]:
    """(cvy_split_kind, split_values)."""
    if shares is not None:
        numbers = _floats(shares) if isinstance(shares, str) else [float(n) for n in shares]
        if how is not None:
            raise errors.ArgumentError("split and shares exclude each other; expected one of them")
        if not numbers or any(n < 0 or n != int(n) for n in numbers):
            raise wrong("shares", shares, "a whole number of images for each device; their sum is batch")
        return lib.CVY_SPLIT_SHARES, numbers
    if how is None:
        return lib.CVY_SPLIT_UNLIKE, []
    if how in ("even", "auto"):
        return (lib.CVY_SPLIT_EVEN if how == "even" else lib.CVY_SPLIT_AUTO), []
    numbers = _floats(how) if isinstance(how, str) else [float(n) for n in how]
    if not numbers or any(n < 0 for n in numbers) or sum(numbers) == 0:
        raise wrong("split", how, "even, auto, or weights: numbers of 0 or more, one for each device, not all 0")
    return lib.CVY_SPLIT_WEIGHTS, numbers


def betas(value: Sequence[float]) -> Tuple[float, float]:
    try:
        one, two = (float(number) for number in value)
    except (TypeError, ValueError):
        one = two = -1.0
    if not (0 <= one < 1 and 0 <= two < 1 and one + two > 0):
        raise wrong("betas", value, "two numbers from 0 to below 1, not both 0")
    return one, two


def normalize(value: Union[str, Tuple[Sequence[float], Sequence[float]]]) -> Dict[str, Any]:
    """Members n_channels, mean, deviation and of_data of cvy_input_params."""
    expected = "none, dataset, imagenet, or means and deviations of all channels: ((0.5,), (0.25,)) or \"0.5/0.25\""
    if value in ("none", "dataset"):
        return {"of_data": value == "dataset"}
    if value == "imagenet":
        mean, deviation = [list(numbers) for numbers in IMAGENET]
    elif isinstance(value, str):
        parts = value.split("/")
        if len(parts) != 2:
            raise wrong("normalize", value, expected)
        mean, deviation = [_floats(part) for part in parts]
    else:
        try:
            mean, deviation = [[float(number) for number in part] for part in value]
        except (TypeError, ValueError):
            raise wrong("normalize", value, expected) from None
    if not mean or len(mean) != len(deviation) or len(mean) > lib.CVY_INPUT_CHANNELS_MOST:
        raise wrong("normalize", value, expected)
    if any(abs(m) > 1e6 for m in mean) or any(not 1e-6 <= d <= 1e6 for d in deviation):
        raise wrong("normalize", value, "means from -1e6 to 1e6 and deviations from 1e-6 to 1e6")
    return {"n_channels": len(mean), "mean": mean, "deviation": deviation}


def _pixels(name: str, text: Optional[str]) -> int:
    number = re.fullmatch(r"\d{1,5}", text or "")
    if not number or not 1 <= int(number.group()) <= MOST_PIXELS:
        raise wrong("augment", f"{name}:{text or ''}", f"{name}:N with a whole number N from 1 to {MOST_PIXELS} pixels")
    return int(number.group())


def _augment_item(name: str, text: Optional[str]) -> Dict[str, Any]:
    if name == "flip" and text is None:
        return {"flip": True}
    if name in ("crop", "cutout"):
        return {name: _pixels(name, text)}
    if name == "resized-crop":
        ends = re.fullmatch(r"(.+?(?<![eE]))-(.+)", text or "")
        numbers = _floats(ends.group(1)) + _floats(ends.group(2)) if ends else []
        if len(numbers) != 2 or not 1e-6 <= numbers[0] <= numbers[1] <= 1:
            raise wrong("augment", f"{name}:{text}", "resized-crop:A-B with fractions A and B of the area, from 1e-6 to 1, A not above B")
        return {"resized_crop": numbers}
    if name == "jitter":
        numbers = _floats(text or "")
        if len(numbers) != 4 or not all(0 <= n <= (0.5 if i == 3 else 1) for i, n in enumerate(numbers)) or sum(numbers) == 0:
            raise wrong("augment", f"{name}:{text}", "jitter:B,C,S,H: brightness, contrast and saturation from 0 to 1, hue from 0 to 0.5, not all 0")
        return {"jitter": numbers}
    raise wrong("augment", name if text is None else f"{name}:{text}",
                "none, or a list of flip, crop:N, resized-crop:A-B, jitter:B,C,S,H and cutout:N, separated by commas")


def augment(value: str) -> Dict[str, Any]:
    """Members of cvy_augment for "flip,crop:4"."""
    members: Dict[str, Any] = {}
    if value in ("none", "", None):
        return members
    for item in re.split(r",(?![\d.+-])", value):
        name, colon, text = item.partition(":")
        found = _augment_item(name, text if colon else None)
        if found.keys() & members.keys():
            raise errors.ArgumentError(f"augment: {name} twice; expected it once")
        members.update(found)
    if "crop" in members and "resized_crop" in members:
        raise errors.ArgumentError("augment: crop and resized-crop exclude each other; expected one of them")
    return members
