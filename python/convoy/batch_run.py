# SPDX-License-Identifier: MIT
"""A run of Trainer.fit over batches of arrays: what cvy_train does with a data set (convoy/train.h), step by step."""
from __future__ import annotations

import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from . import errors
from ._cffi import ffi, lib
from .batches import Batches, are_batches, is_exhausted_by_one_pass, once
from .handles import text_of
from .history import EpochResult, FitResult, StepResult


def event_text(event: Any) -> str:
    """What a cvy_team_event says, for people."""
    if event.kind == lib.CVY_TEAM_SHARES_CHANGED:
        return text_of(event.of.shares.text) or ""
    if event.kind == lib.CVY_TEAM_DEVICE_LOST:
        return f"{text_of(event.of.lost.label)} is lost: {text_of(event.of.lost.reason)}"
    return f"node {text_of(event.of.node.name)} is lost: {text_of(event.of.node.reason)}"


def epoch_line(result: EpochResult, epochs: int) -> str:
    """An epoch's line on stderr."""
    measured = "".join(f", {name} acc {value:.4f}" for name, value in (("train", result.train_acc), ("val", result.val_acc), ("test", result.test_acc)) if value is not None)
    return f"epoch {result.epoch + 1}/{epochs}: loss {result.train_loss:.4f}{measured}, {result.seconds:.1f} s"


def as_float32(lr: float) -> float:
    """The rate that the library uses."""
    return float(ffi.cast("float", lr))


class BatchRun:
    """trainer: a Trainer whose lock is held; the other arguments are those of `Trainer.fit`. check: raises KeyboardInterrupt after Ctrl-C."""

    def __init__(self, trainer: Any, train: Batches, *, val: Any, test: Any, epochs: int, max_steps: Optional[int], evaluate: bool, callbacks: Sequence[Any],
                 save_best: Union[None, str, "os.PathLike[str]"], patience: int, precise_bn: int, quiet: bool, check: Callable[[], None]) -> None:
        self.trainer, self.train, self.callbacks, self.quiet, self.check = trainer, train, callbacks, quiet, check
        self.sets = {name: source for name, source in (("val", val), ("test", test)) if source is not None} if evaluate else {}
        self.epochs, self.max_steps, self.save_best, self.patience = epochs, max_steps, save_best, patience
        self.first_epoch, self.first_step = len(trainer.history["epoch"]), trainer._steps
        self._check(val, test, precise_bn)
        self.rate = self._rates()
        self.begun = 0  # steps of this run
        self.ended = self.stopped = False  # by max_steps or the end of a generator; by the caller
        self.loss, self.images, self.correct = 0.0, 0, 0  # of the epoch
        self.seconds: List[float] = []  # of each epoch
        self.first_ms: List[float] = []  # of the first two steps
        self.all_images = self.full_epochs = 0
        self.accuracies: Dict[str, Optional[float]] = {"val": None, "test": None}  # the newest
        self.best_epoch, self.best, self.without_better = -1, -1.0, 0

    def _check(self, val: Any, test: Any, precise_bn: int) -> None:
        trainer, kind = self.trainer, type(self.train).__name__
        if trainer.checkpoint is not None or precise_bn:
            raise errors.ArgumentError(f"{'precise_bn' if precise_bn else 'checkpoint'}: needs a data set, which batches are not; save writes the weights, and save_best "
                                       "those of the best epoch")
        if is_exhausted_by_one_pass(self.train) and self.epochs > 1 and self.max_steps is None:
            raise errors.ArgumentError(f"epochs: {self.epochs} of a {kind}, which gives its batches once; expected epochs=1, max_steps, a list, a DataLoader, or the function "
                                       "that makes the generator")
        for name, source in (("val", val), ("test", test)):
            if source is not None and not are_batches(source) and not (isinstance(source, (tuple, list)) and len(source) == 2):
                raise errors.ArgumentError(f"{name}: {source!r} beside batches; expected a pair (images, labels), or batches")
        if trainer.schedules and not hasattr(self.train, "__len__"):
            raise errors.ArgumentError(f"schedule: {trainer.schedule!r} (warmup {trainer.warmup}) needs the number of batches, len(train), which a {kind} does not have")

    def _rates(self) -> Callable[[int], float]:
        """The learning rate of a step, by its number in the trainer."""
        members = self.trainer._train_members()
        lr = as_float32(members["lr"])
        if not self.trainer.schedules:
            return lambda number: lr
        steps = len(self.train)  # type: ignore[arg-type]
        schedule = ffi.new("cvy_lr_schedule *", members["schedule"])
        self.trainer._core.log.call(lib.cvy_lr_check, schedule, steps, steps * self.epochs)
        return lambda number: lib.cvy_lr_at(schedule, lr, min(number - self.first_step, steps * self.epochs - 1), steps, steps * self.epochs)

    # ---- steps ----

    def _tell(self, name: str, result: Any) -> None:
        self.trainer.history._add(result)
        wants_stop = [getattr(callback, name)(result) for callback in self.callbacks]
        self.stopped = self.stopped or any(wants_stop)

    def _count(self, epoch: int, wait: bool) -> None:
        """Takes finished steps; with `wait` all of them."""
        event, trainer = ffi.new("cvy_team_event *"), self.trainer
        results: List[StepResult] = trainer._finished_steps(wait, epoch, self.rate)
        while trainer._core.team is not None and lib.cvy_team_next_event(trainer._core.team.pointer, event):
            for callback in self.callbacks:
                callback.on_event(event.step, event_text(event))
        for result in results:
            self.loss += result.loss * result.images
            self.images += result.images
            self.correct += result.correct
            self.first_ms += [result.ms] if len(self.first_ms) < 2 else []
            self._tell("on_step", result)

    def _is_asked_to_stop(self) -> bool:
        self.stopped = self.stopped or bool(lib.cvy_stop_requested(self.trainer._core.stop))
        return self.stopped

    def _train_epoch(self, epoch: int) -> None:
        trainer, began, before = self.trainer, time.perf_counter(), self.begun
        self.loss, self.images, self.correct = 0.0, 0, 0
        for x, y in once(self.train):
            if self._is_asked_to_stop():
                break
            trainer._begin_step(x, y, self.rate(self.first_step + self.begun), epoch)
            self.begun += 1
            self._count(epoch, wait=False)
            self.ended = self.begun == self.max_steps
            if self.ended or self.stopped:
                break
        else:
            self.full_epochs += 1
            self.ended = self.ended or is_exhausted_by_one_pass(self.train)
        if self.begun == before and not self.stopped:
            raise errors.ArgumentError("train gives no batch; expected pairs (images, labels)")
        self._count(epoch, wait=True)
        self.seconds.append(time.perf_counter() - began)
        self.all_images += self.images

    # ---- epochs ----

    def _measure(self, last: bool) -> Dict[str, Optional[float]]:
        """Accuracies: of the validation set after each epoch, of the test set likewise or, beside a validation set, after the last one."""
        found: Dict[str, Optional[float]] = {"val": None, "test": None}
        try:
            for name, source in self.sets.items():
                if not self._is_asked_to_stop() and (name == "val" or "val" not in self.sets or last):
                    found[name] = self.accuracies[name] = self.trainer._evaluate_batches(source).accuracy
        except errors.StoppedError:
            self.stopped = True
        return found

    def _judge(self, epoch: int, accuracy: Optional[float]) -> None:
        if accuracy is None:
            return
        self.without_better += 1
        if accuracy <= self.best:
            return
        self.best_epoch, self.best, self.without_better = epoch, accuracy, 0
        if self.save_best is not None:
            core = self.trainer._core
            core.log.call(lib.cvy_team_save, core.team.pointer, os.fsencode(self.save_best))

    @property
    def _out_of_patience(self) -> bool:
        return bool(self.patience and self.without_better >= self.patience)

    def run(self) -> FitResult:
        """The whole run."""
        for epoch in range(self.first_epoch, self.first_epoch + self.epochs):
            self._train_epoch(epoch)
            self.check()
            if self.images == 0:
                break
            found = self._measure(self.ended or self.stopped or epoch + 1 == self.first_epoch + self.epochs)
            result = EpochResult(epoch, self.loss / self.images, self.correct / self.images, found["val"], found["test"], self.seconds[-1])
            self._judge(epoch, found["val" if "val" in self.sets else "test"])
            if not self.quiet:
                print(epoch_line(result, self.first_epoch + self.epochs), file=sys.stderr, flush=True)
            self._tell("on_epoch", result)
            if self.ended or self._is_asked_to_stop() or self._out_of_patience:
                break
        return self._result()

    def _result(self) -> FitResult:
        start = max(0.0, self.first_ms[0] - self.first_ms[1]) / 1e3 if len(self.first_ms) == 2 else 0.0
        trained = sum(self.seconds) - start
        judged = self.best_epoch >= 0 and (self.save_best is not None or self.patience > 0)
        return FitResult(
            steps=self.trainer._steps, epochs_done=self.full_epochs, test_acc=self.accuracies["test"], val_acc=self.accuracies["val"],
            best_epoch=self.best_epoch if judged else None, best_acc=self.best if judged else None, out_of_patience=self._out_of_patience,
            sec_per_epoch=trained / self.full_epochs if self.full_epochs == len(self.seconds) else 0.0, start_seconds=start,
            images_per_second=self.all_images / trained if trained > 0 else 0.0, already_finished=False, stopped=self.stopped,
            labels=tuple(replica.label for replica in self.trainer._replicas()))
