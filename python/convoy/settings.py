# SPDX-License-Identifier: MIT
"""The settings of a Trainer, and the structs of the library that hold them."""
from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import errors, options
from ._cffi import ffi, lib
from .devices import Device, selector
from .network import Network

LEAST_RATE = 2.0**-149  # the smallest float32; the library takes 0 for the default


@dataclass(eq=False, repr=False)
class Settings:
    """Words and numbers of `convoy train`'s options; see `Trainer`."""

    model: Union[str, "os.PathLike[str]", Network]
    devices: Union[str, Device, Sequence[Union[str, Device]]] = "auto"
    batch: int = 256
    optimizer: Union[str, options.Optimizer] = "sgd"
    lr: Optional[float] = None
    momentum: Optional[float] = None
    nesterov: Optional[bool] = None
    weight_decay: Optional[float] = None
    betas: Optional[Tuple[float, float]] = None
    eps: Optional[float] = None
    decay_only_weights: bool = False
    clip_norm: Optional[float] = None
    label_smoothing: float = 0.0
    schedule: str = "const"
    warmup: Union[int, str] = 0
    init: Optional[str] = None
    init_from: Union[None, str, "os.PathLike[str]"] = None
    init_skip: Optional[str] = None
    freeze: Optional[str] = None
    lr_mult: Optional[str] = None
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    bn: str = "device"
    split: Union[None, str, Sequence[float]] = None
    shares: Union[None, str, Sequence[int]] = None
    augment: str = "none"
    normalize: Union[str, Tuple[Sequence[float], Sequence[float]]] = "none"
    run_ahead: int = 1
    staleness: int = 0
    exchange: str = "fp32"
    recompute: bool = False
    conv_algo: str = "auto"
    math: str = "fp32"
    tune: str = "cached"
    bucket_mib: float = 0.0
    allow_nan: bool = False
    log_grad_norm: bool = False
    on_device_loss: str = "continue"
    device_timeout: float = 60.0
    verify_every: int = 0
    checkpoint: Union[None, str, "os.PathLike[str]"] = None
    checkpoint_every: Union[None, int, str] = None
    keep: int = 2
    resume: bool = False
    input_shape: Optional[Tuple[int, int, int]] = None
    classes: int = 0
    layout: Optional[str] = None

    def __post_init__(self) -> None:
        self.network = self.model if isinstance(self.model, Network) else None
        self.model = os.fspath(self.model)
        for name in ("checkpoint", "init_from"):
            value = getattr(self, name)
            setattr(self, name, None if value is None else os.fspath(value))
        self._rule = self._update_rule()
        if self.init_skip is not None and self.init_from is None:
            raise errors.ArgumentError("init_skip needs init_from: it names tensors that are not loaded from there")
        if self.resume and self.checkpoint is None:
            raise errors.ArgumentError("resume needs checkpoint: the folder to resume from")
        self._team_members()
        self._train_members()
        options.split(self.split, self.shares)
        options.whole("classes", self.classes, 0, lib.CVY_MAX_CLASSES)
        if self.input_shape is not None:
            self.input_shape = options.shape("input_shape", self.input_shape)
        self._fixed = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).__dataclass_fields__ and "_fixed" in vars(self):
            raise errors.ArgumentError(f"{name}: the settings of a trainer do not change; make a new one, with init_from or load_state_dict for the weights")
        super().__setattr__(name, value)

    def _update_rule(self) -> Dict[str, Any]:
        """Words and numbers of the optimiser: name, lr, and what it has of the others."""
        own = {name: getattr(self, name) for name in ("momentum", "nesterov", "weight_decay", "betas", "eps") if getattr(self, name) is not None}
        if isinstance(self.optimizer, options.Optimizer):
            if own:
                raise errors.ArgumentError(f"{', '.join(own)}: set in optimizer={self.optimizer!r}, not beside it")
            own = dict(vars(self.optimizer))
            rate, name = own.pop("lr"), self.optimizer.name
        else:
            rate, name = 0.1, self.optimizer
        options.word("optimizer", name, options.OPTIMIZERS)
        unknown = [word for word in own if word in (("betas", "eps") if name == "sgd" else ("momentum", "nesterov"))]
        if unknown:
            raise errors.ArgumentError(f"{', '.join(unknown)}: the optimizer {name} does not have this")
        return {"name": name, **own, "lr": options.real("lr", rate if self.lr is None else self.lr, 0, 1e6)}

    @property
    def selector(self) -> str:
        """The text of `--devices`."""
        return selector(self.devices)

    @property
    def init_word(self) -> str:
        if self.network is not None and self.init is None:
            return self.network.init
        return self.init if self.init is not None else "file" if lib.cvy_onnx_is_file(os.fsencode(self.model)) else "d2l"

    @property
    def schedules(self) -> bool:
        """The learning rate changes."""
        return self.schedule != "const" or options.steps("warmup", self.warmup, 0)[0] > 0

    def input_members(self) -> Dict[str, Any]:
        """Members of cvy_input_params."""
        return {**options.normalize(self.normalize), "augment": options.augment(self.augment), "seed": options.whole("seed", self.seed, 0, 2**63 - 1)}

    def _team_members(self) -> Dict[str, Any]:
        rule = self._rule
        members: Dict[str, Any] = {
            "batch": options.whole("batch", self.batch, 1, 1 << 24),
            "input": self.input_members(),
            "optimizer": options.OPTIMIZERS[rule["name"]],
            "weight_decay": options.real("weight_decay", rule.get("weight_decay", 0), 0, 1e6),
            "momentum": options.real("momentum", rule.get("momentum", 0), 0, 1),
            "nesterov": bool(rule.get("nesterov", False)),
            "label_smoothing": options.real("label_smoothing", self.label_smoothing, 0, 1),
            "decay_only_weights": self.decay_only_weights,
            "clip_norm": 0.0 if self.clip_norm is None else options.real("clip_norm", self.clip_norm, 1e-20, 1e30),
            "grad_norm": self.log_grad_norm,
            "run_ahead": options.whole("run_ahead", self.run_ahead, 0, lib.CVY_RUN_AHEAD_MOST) or lib.CVY_RUN_AHEAD_NONE,
            "staleness": options.whole("staleness", self.staleness, 0, 1),
            "exchange": options.word("exchange", self.exchange, options.EXCHANGES),
            "recompute": self.recompute,
            "bucket_mib": options.real("bucket_mib", self.bucket_mib, 0, 4096),
            "allow_nan": self.allow_nan,
            "device_timeout_s": options.real("device_timeout", self.device_timeout, 0, 1e6) or -1.0,
            "tune": options.word("tune", self.tune, options.TUNES),
            "math": options.word("math", self.math, options.MATHS),
            **options.bn(self.bn),
        }
        if options.word("on_device_loss", self.on_device_loss, {"continue": 0, "stop": 1}):
            members.update(fault_stops=True, all_open=True)
        if "betas" in rule:
            members["betas"] = options.betas(rule["betas"])
        if "eps" in rule:
            members["eps"] = options.real("eps", rule["eps"], 1e-20, 1)
        if self.init is not None:
            options.word("init", self.init, options.INITS)
        return members

    def team_params(self, samples: int, stop: Any) -> Tuple[Any, List[Any]]:
        """(cvy_team_params *, memory that it borrows). samples: of the training set, 0: not known."""
        kind, values = options.split(self.split, self.shares)
        kept = [ffi.new("double[]", values), stop]
        members = {**self._team_members(), "samples": samples, "split": kind, "stop": stop}
        if values:
            members["split_values"] = kept[0]
        for name in ("freeze", "lr_mult", "conv_algo"):
            if getattr(self, name) is not None:
                kept.append(ffi.new("char[]", getattr(self, name).encode()))
                members[name] = kept[-1]
        return ffi.new("cvy_team_params *", members), kept

    def init_params(self) -> Any:
        return ffi.new("cvy_init_params *", {"kind": options.INITS[self.init_word], "seed": self.seed})

    def _train_members(self) -> Dict[str, Any]:
        every, epochs = (0, False) if self.checkpoint_every is None else options.steps("checkpoint_every", self.checkpoint_every, 1)
        return {"lr": max(self._rule["lr"], LEAST_RATE), "schedule": options.schedule(self.schedule, self.warmup), "seed": self.seed,
                "no_shuffle": not self.shuffle, "drop_last": self.drop_last, "verify_every": options.whole("verify_every", self.verify_every, 0),
                "checkpoint_every": every, "checkpoint_epochs": epochs, "keep": options.whole("keep", self.keep, 1, 1000000), "resume": self.resume}

    def train_params(self, **more: Any) -> Tuple[Any, List[Any]]:
        """(cvy_train_params *, memory that it borrows)."""
        kept: List[Any] = []
        members = {**self._train_members(), **more}
        for name, text in (("checkpoint_dir", self.checkpoint), ("save_best", members.pop("save_best", None)), ("settings", members.pop("settings", None))):
            if text is not None:
                kept.append(ffi.new("char[]", os.fsencode(text)))
                members[name] = kept[-1]
        return ffi.new("cvy_train_params *", members), kept
