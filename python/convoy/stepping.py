# SPDX-License-Identifier: MIT
"""The part of Trainer that works on batches of arrays: single steps, whole runs over a loader, evaluation, and parameters by name."""
from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np

from . import arrays, errors, parameters
from ._cffi import ffi, lib
from .batch_run import BatchRun, as_float32
from .batches import Batch, Batches, Pair, are_batches, once
from .history import EvalResult, FitResult, History, StepResult
from .settings import Settings


class Stepping(Settings):
    """Base of Trainer."""

    _core: Any
    _open: Callable[..., Any]
    _shape: Optional[arrays.Shape]
    _n_classes: int
    _replicas: Callable[[], List[Any]]
    history: History
    result: Optional[FitResult]
    _steps: int
    _fits: int
    _record: Optional[Dict[str, Any]]
    _trains_on_batches = False  # it had no data set

    # ---- one batch ----

    def _take_as_they_are(self, what: str) -> None:
        for name, plain in (("normalize", "none"), ("augment", "none")):
            if getattr(self, name) not in (plain, None):
                raise errors.ArgumentError(f"{what}: {name}={getattr(self, name)!r} is for data sets; floats of a batch are the network's input as they are: normalise and "
                                           "augment where the batches are made")

    def _open_for(self, batch: Batch) -> Any:
        team = self._open(batch.shape, 0)
        if not self._trains_on_batches and self._core.data is None:
            core, (channels, height, width) = self._core, self._shape or batch.shape
            name = ffi.new("char[]", os.fsencode(self.model))
            graph = lib.cvy_net_fingerprint(core.net.pointer) if lib.cvy_onnx_is_file(name) else 0
            core.log.call(lib.cvy_team_describe, team, ffi.new("cvy_model_info *", {
                "model": name, "graph": graph, "channels": channels, "height": height, "width": width, "classes": self._n_classes}))
            self._trains_on_batches = True
        return team

    def _begin_step(self, x: Any, y: Any, lr: float, epoch: int) -> None:
        batch = Batch(x, y, self.layout, self._shape)
        team = self._open_for(batch)
        lib.cvy_team_set_epoch(team, epoch)
        self._core.log.call(lib.cvy_team_step_batch, team, batch.pointer, lr)

    def _finished_steps(self, wait: bool, epoch: int, rate_of: Callable[[int], float]) -> List[StepResult]:
        """Results that are there; with `wait` those of all steps."""
        core, out, got, found = self._core, ffi.new("cvy_step_result *"), ffi.new("bool *"), []
        while core.team is not None:
            core.log.call(lib.cvy_team_take, core.team.pointer, wait, out, got)
            if not got[0]:
                break
            shares = tuple(out.shares[i] for i in range(lib.cvy_team_size(core.team.pointer)))
            found.append(StepResult(out.step, epoch, out.loss, rate_of(out.step), out.images, out.correct, out.ms, shares, out.grad_norm if out.grad_norm >= 0 else None))
            self._steps = out.step + 1
        return found

    def step(self, x: Any, y: Any, lr: Optional[float] = None) -> StepResult:
        """One step of training on a batch, and its result.

        x: float32 (N,C,H,W), (N,H,W,C) or (N,H,W), the network's input as it is, copied once whatever its strides; other floats are converted, bytes become
        pixels/255. y: N class numbers. Arrays, or PyTorch's tensors. N: at most `batch`. lr: the trainer's where it is None, which needs a constant one.
        (`cvy_team_step_batch`) Raises ArgumentError: a label out of range, too many images; MismatchError: images of another size; NotFiniteError: the loss."""
        with self._core.using("step", alone=True):
            self._take_as_they_are("step")
            if lr is None and self.schedules:
                raise errors.ArgumentError(f"step: schedule={self.schedule!r} (warmup {self.warmup}) belongs to fit; give the step's lr")
            rate = as_float32(self._train_members()["lr"] if lr is None else lr)
            epoch = len(self.history["epoch"])
            self._begin_step(x, y, rate, epoch)
            done = self._finished_steps(True, epoch, lambda number: rate)[-1]
            self.history._add(done)
            return done

    # ---- evaluation ----

    def _evaluate_batches(self, source: Union[Pair, Batches]) -> EvalResult:
        """Of a pair of arrays, or of batches."""
        parts = []
        for x, y in once(source) if are_batches(source) else [source]:
            out, batch = ffi.new("cvy_eval_result *"), Batch(x, y, self.layout, self._shape)
            self._core.log.call(lib.cvy_team_evaluate_batch, self._open_for(batch), batch.pointer, ffi.NULL, out)
            parts.append(EvalResult(out.accuracy, out.loss, out.images, out.correct, out.seconds))
        if len(parts) == 1:
            return parts[0]
        if not parts:
            raise errors.ArgumentError("evaluate: there is no batch; expected at least one")
        images, correct = sum(part.images for part in parts), sum(part.correct for part in parts)
        return EvalResult(correct / images, sum(part.loss * part.images for part in parts) / images, images, correct, sum(part.seconds for part in parts))

    def _fit_batches(self, train: Batches, **words: Any) -> FitResult:
        self._take_as_they_are("fit")
        run = BatchRun(self, train, **words)
        self._finished_steps(True, 0, lambda number: 0.0)  # of a run that an exception ended
        self.result = run.run()
        self._record = {"model": self.model, "devices": list(self.result.labels), "batch": self.batch, "epochs": run.epochs}
        self._fits += 1
        if self.network is not None:
            self.network.take_weights(self)  # type: ignore[arg-type]  # the whole Trainer
        return self.result

    # ---- parameters ----

    def _ready_team(self) -> Any:
        return self._open(None, 0)

    def parameter_names(self) -> Tuple[str, ...]:
        """Names of all parameters, as in PyTorch's state_dict."""
        with self._core.using("parameter_names"):
            return tuple(parameters.shapes(self._ready_team()))

    def parameter(self, name: str, device: int = 0) -> np.ndarray:
        """A copy of a parameter's values on a device, float32 with PyTorch's layout: convolutions (K,C,R,S), linear layers (out,in). (`cvy_team_param_get`)"""
        with self._core.using("parameter"):
            return parameters.get(self._core.log, self._ready_team(), name, device)

    def set_parameter(self, name: str, values: Any) -> None:
        """Sets a parameter on all devices; steps and the optimiser's state go on. (`cvy_team_param_set`) Raises MismatchError: another shape; NotFiniteError."""
        with self._core.using("set_parameter", alone=True):
            parameters.put(self._core.log, self._ready_team(), name, values)

    def gradient(self, name: str) -> np.ndarray:
        """A parameter's gradient in the last step, of the mean loss over the whole batch, before clipping and weight decay. (`cvy_team_grad_get`)
        Raises ArgumentError: there was no step, or the parameter is frozen; DeviceError: a device with a part of it is lost."""
        with self._core.using("gradient", alone=True):
            return parameters.gradient(self._core.log, self._ready_team(), name)
