# SPDX-License-Identifier: MIT
"""The settings of a run as `convoy train` stores them in checkpoints, so that either continues the other's run."""
from __future__ import annotations

import json
import os
from typing import Any, Dict, List

from . import options
from ._cffi import ffi, lib
from .data import Data
from .handles import text_of
from .settings import Settings


def _model(settings: Settings, net: Any) -> str:
    name = str(settings.model)
    if settings.network is None and not lib.cvy_onnx_is_file(os.fsencode(name)):
        return name
    return f"{os.path.basename(name)}, graph {lib.cvy_net_fingerprint(net):016x}"


def _schedule(settings: Settings, epochs: int) -> str:
    return f"{settings.schedule} to the end of epoch {epochs}" if settings.schedule in ("cosine", "linear") else settings.schedule


def _list(numbers: Any) -> str:
    return numbers if isinstance(numbers, str) else ",".join(f"{number:.9g}" for number in numbers)


def _pair(value: Any) -> str:
    return value if isinstance(value, str) else "/".join(_list(part) for part in value)


def _replicas(team: Any) -> List[Any]:
    found = []
    for i in range(lib.cvy_team_size(team)):
        info = ffi.new("cvy_replica_info *")
        if lib.cvy_team_replica(team, i, info):
            found.append(info)
    return found


def options_of(settings: Settings, data: Data, epochs: int) -> Dict[str, str]:
    """Words of the command line that mean the same, for `convoy train --resume`."""
    rule = settings._rule
    words: Dict[str, Any] = {"model": settings.model, "data": data.name, "devices": settings.selector, "batch": settings.batch, "epochs": epochs,
                             "lr": repr(rule["lr"]), "lr-schedule": settings.schedule, "warmup": settings.warmup, "optimizer": rule["name"],
                             "seed": settings.seed, "bn": settings.bn, "augment": settings.augment, "normalize": _pair(settings.normalize),
                             "init": None if settings.init_word == "file" else settings.init_word, "init-from": settings.init_from,
                             "init-skip": settings.init_skip, "freeze": settings.freeze, "lr-mult": settings.lr_mult,
                             "split": None if settings.split is None else _list(settings.split),
                             "shares": None if settings.shares is None else _list(settings.shares), "keep": settings.keep,
                             "checkpoint-every": settings.checkpoint_every, "exchange": settings.exchange, "math": settings.math,
                             "conv-algo": settings.conv_algo, "staleness": settings.staleness, "run-ahead": settings.run_ahead,
                             "label-smoothing": repr(settings.label_smoothing), "clip-norm": settings.clip_norm and repr(settings.clip_norm),
                             "on-device-loss": settings.on_device_loss, "verify-every": settings.verify_every or None}
    words.update({name: rule[name] for name in ("momentum", "eps") if name in rule})
    words.update({"weight-decay": rule.get("weight_decay"), "betas": _list(rule["betas"]) if "betas" in rule else None})
    flags = {"nesterov": rule.get("nesterov"), "decay-only-weights": settings.decay_only_weights, "no-shuffle": not settings.shuffle,
             "drop-last": settings.drop_last}
    return {**{name: str(value) for name, value in words.items() if value is not None}, **{name: "" for name, on in flags.items() if on}}


def settings_json(settings: Settings, epochs: int, net: Any, data: Data, team: Any) -> str:
    """The text of cvy_train_params.settings."""
    rule, replicas = settings._rule, _replicas(team)
    maths = {number: name for name, number in options.MATHS.items()}
    adam, auto = rule["name"] != "sgd", lib.cvy_team_split(team) == lib.CVY_SPLIT_AUTO
    kind, values = options.split(settings.split, settings.shares)
    c, h, w = data.shape
    val = f"{data.count('val')} + " if data.count("val") else ""
    record: Dict[str, Any] = {
        "batch": settings.batch,
        "augment": settings.augment,
        "bn": settings.bn,
        "conv_algo": settings.conv_algo,
        "classes": data.classes,
        "data": data.name,
        "data_shape": f"{data.count('train')} + {val}{data.count('test')} images {h}x{w}x{c}",
        "devices": [text_of(info.label) for info in replicas],
        "init": settings.init_from or settings.init_word,
        "lr": float(rule["lr"]),
        "lr_schedule": _schedule(settings, epochs),
        "math": settings.math,
        "math_used": [maths[info.math] for info in replicas] if settings.math == "tf32" else None,
        "model": _model(settings, net),
        "momentum": float(rule.get("momentum", 0)),
        "optimizer": rule["name"],
        "betas": _list(rule.get("betas", (0.9, 0.999))) if adam else None,
        "eps": float(rule.get("eps", 1e-8)) if adam else None,
        "decay_only_weights": settings.decay_only_weights or None,
        "freeze": settings.freeze,
        "lr_mult": settings.lr_mult,
        "init_skip": settings.init_skip,
        "init_rest": settings.init_word if settings.init_skip else None,
        "clip_norm": settings.clip_norm,
        "label_smoothing": settings.label_smoothing or None,
        "nesterov": bool(rule.get("nesterov", False)),
        "normalize": _pair(settings.normalize),
        "options": options_of(settings, data, epochs),
        "seed": settings.seed,
        "shares": None if auto else [info.share for info in replicas],
        "gray": "yes" if data.pictures["gray"] else "no",
        "png16": data.pictures["png16"],
        "exif": data.pictures["exif"],
        "size": data.pictures["size"],
        "val_split": f"{data.pictures['val_split']:.9g}",
        "shuffle": settings.shuffle,
        "split": "shares" if kind == lib.CVY_SPLIT_SHARES else values if values else "auto" if auto else "even",
        "staleness": settings.staleness or None,
        "exchange": "bf16" if settings.exchange == "bf16" else None,
        "drop_last": settings.drop_last or None,
        "warmup": str(settings.warmup),
        "weight_decay": float(rule.get("weight_decay", 0)),
    }
    return json.dumps(record)
