# SPDX-License-Identifier: MIT
"""Results of steps, epochs and evaluations, and their history."""
from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple


@dataclass(frozen=True)
class StepResult:
    """A finished step (`cvy_step_result`)."""

    step: int  #: from 0
    epoch: int  #: from 0
    loss: float  #: mean over the batch
    lr: float
    images: int
    correct: int  #: predictions, with the weights before the step
    ms: float  #: from the end of the previous step
    shares: Tuple[int, ...]  #: images of each device
    grad_norm: Optional[float]  #: before it was clipped; None: not computed


@dataclass(frozen=True)
class EpochResult:
    """A finished epoch (`cvy_epoch_result`). Accuracies are from 0 to 1; None: not measured."""

    epoch: int  #: from 0
    train_loss: float
    train_acc: Optional[float]
    val_acc: Optional[float]
    test_acc: Optional[float]
    seconds: float  #: of training, without evaluation


@dataclass(frozen=True)
class EvalResult:
    """Accuracy and mean loss on labelled images (`cvy_eval_result`)."""

    accuracy: float
    loss: float
    images: int
    correct: int
    seconds: float


@dataclass(frozen=True)
class FitResult:
    """Outcome of `Trainer.fit` (`cvy_train_result`). Accuracies are from 0 to 1; None: not measured."""

    steps: int  #: of the whole run, resumed parts included
    epochs_done: int
    test_acc: Optional[float]
    val_acc: Optional[float]
    best_epoch: Optional[int]  #: with save_best or patience
    best_acc: Optional[float]
    out_of_patience: bool
    sec_per_epoch: float  #: mean over full epochs, without the start; 0: there was none
    start_seconds: float  #: in which drivers compiled kernels
    images_per_second: float
    already_finished: bool  #: a finished run was resumed: no step was left
    stopped: bool  #: by `Trainer.stop` or a callback
    labels: Tuple[str, ...]  #: of the devices

    def __str__(self) -> str:
        """The book's line."""
        accuracy = "not measured" if self.test_acc is None else f"{self.test_acc:.2f}"
        return f"test acc: {accuracy}, {self.sec_per_epoch:.1f} sec/epoch on [{', '.join(self.labels)}]"


class History(Dict[str, List[Any]]):
    """Columns of the epochs, so that `pandas.DataFrame(run.history)` is a table: epoch, train_loss, train_acc, val_acc, test_acc, seconds.
    `steps` has the columns of the steps."""

    def __init__(self) -> None:
        super().__init__((field.name, []) for field in dataclasses.fields(EpochResult))
        self.steps: Dict[str, List[Any]] = {field.name: [] for field in dataclasses.fields(StepResult)}

    def _add(self, result: Any) -> None:
        columns = self.steps if isinstance(result, StepResult) else self
        for field in dataclasses.fields(result):
            columns[field.name].append(getattr(result, field.name))
