# SPDX-License-Identifier: MIT
"""Trainer: one network on a team of devices (convoy/team.h, convoy/train.h)."""
from __future__ import annotations

import json
import os
import sys
import tempfile
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import arrays, errors, options, tensors
from ._cffi import ffi, lib
from .batch_run import epoch_line, event_text
from .batches import Batches, are_batches
from .core import Core
from .data import SETS, Data, Pair, data_from_arrays, load_data, only
from .handles import logger, note_devices, text_of
from .history import EpochResult, EvalResult, FitResult, History, StepResult
from .record import settings_json
from .stepping import Stepping
from .views import Views

Source = Union[str, "os.PathLike[str]", Data, Pair, Batches]


@dataclass(frozen=True)
class Replica:
    """A device of the team (`cvy_replica_info`)."""

    label: str  #: "0:0 NVIDIA H200"
    share: int  #: images of a whole batch
    micro_batch: int  #: images of a pass; less than the share where memory is short
    device_bytes: int  #: allocated on the device
    compute_units: int
    driver: str
    lost_step: Optional[int]  #: the step in which it was lost; None: it is not


class Callback:
    """Base of objects for `Trainer.fit(callbacks=…)`. All are called on the thread of `fit`. A true result, or an exception, which `fit` then raises,
    ends the run after the steps under way."""

    def on_step(self, result: StepResult) -> Optional[bool]:
        """After each step."""

    def on_epoch(self, result: EpochResult) -> Optional[bool]:
        """After each epoch and its evaluation."""

    def on_event(self, step: int, text: str) -> None:
        """New shares, or a lost device, before the first step that it concerns."""


class _Run:
    """A call of fit: what the library's callbacks need."""

    def __init__(self, history: History, callbacks: Sequence[Callback], first_epoch: int, epochs: int, quiet: bool) -> None:
        self.history, self.callbacks, self.first_epoch, self.epochs, self.quiet = history, callbacks, first_epoch, epochs, quiet
        self.failure: Optional[BaseException] = None
        self.last_step = -1
        self.labels: List[str] = []

    def tell(self, name: str, result: Any) -> bool:
        self.history._add(result)
        wants_stop = [getattr(callback, name)(result) for callback in self.callbacks]
        return any(wants_stop)


def _known(value: float) -> Optional[float]:
    return value if value >= 0 else None


def _guarded(user: Any, work: Callable[[_Run], bool]) -> int:
    run: _Run = ffi.from_handle(user)
    try:
        return int(bool(work(run)) or run.failure is not None)
    except BaseException as failure:  # it must not pass through C; fit raises it
        run.failure = run.failure or failure
        return 1


@ffi.def_extern(name="convoy_on_step", error=1)
def _on_step(user: Any, step: Any, epoch: int, steps_per_epoch: int, lr: float) -> int:
    def work(run: _Run) -> bool:
        run.last_step = step.step
        return run.tell("on_step", StepResult(step.step, run.first_epoch + epoch, step.loss, lr, step.images, step.correct, step.ms,
                                              tuple(step.shares[i] for i in range(len(run.labels))), _known(step.grad_norm)))
    return _guarded(user, work)


@ffi.def_extern(name="convoy_on_epoch", error=1)
def _on_epoch(user: Any, epoch: Any) -> int:
    def work(run: _Run) -> bool:
        result = EpochResult(run.first_epoch + epoch.epoch, epoch.train_loss, _known(epoch.train_acc), _known(epoch.val_acc), _known(epoch.test_acc), epoch.seconds)
        if not run.quiet:
            print(epoch_line(result, run.first_epoch + run.epochs), file=sys.stderr, flush=True)
        return run.tell("on_epoch", result)
    return _guarded(user, work)


@ffi.def_extern(name="convoy_on_event")
def _on_event(user: Any, event: Any, epoch: int) -> None:
    def work(run: _Run) -> bool:
        for callback in run.callbacks:
            callback.on_event(event.step, event_text(event))
        return False
    _guarded(user, work)


@dataclass(eq=False, repr=False)
class Trainer(Views, Stepping):
    """Trains a network on one or more devices.

    The arguments are the options of `convoy train` (doc/reference.md), with the same words and defaults:

    model: "lenet", "resnet18", "resnet34", "resnet50", the name of an ONNX file, or a network of `from_torch` or `convoy.nn`.
    devices: "auto" (GPUs, else the CPU), "all", "gpu", "cpu", "0:0", "0:0/1+1" (parts of a CPU), …; or devices of `convoy.devices()`.
    batch: images of a step on all devices together.
    optimizer: "sgd", "adam", "adamw", with lr, momentum, nesterov, weight_decay, betas, eps; or `SGD(…)`, `Adam(…)`, `AdamW(…)`.
    schedule: "const", "cosine", "linear", "step:N,G"; warmup: steps, or "2e" for epochs.
    init: "d2l", "he", "xavier", "torch" (an ONNX file has its own); init_from: a weights file; init_skip, freeze, lr_mult: globs of names.
    seed: of weights, shuffling, augmentation. bn: "device", "sync", "ghost:G". split: "even", "auto", weights; shares: images of each device.
    augment: "flip,crop:4,…"; normalize: "none", "dataset", "imagenet", or (means, deviations). x = (byte / 255 - mean) / deviation.
    checkpoint: a folder; checkpoint_every: steps, or "1e"; resume: continues from the newest checkpoint there.
    input_shape (channels, height, width) and classes: needed only before `fit` where neither data nor an ONNX file has them. layout: "NCHW" or "NHWC"
    of 4-dimensional arrays, where both could be meant.

    The devices are opened, and kernels compiled, at the first call that needs them. One thread at a time works with a trainer; others wait. The GIL is
    released meanwhile. Close it with `close` or a `with` block; garbage collection and the interpreter's end close it, too. With the same settings,
    weights are the bits of the program's. (`cvy_team_create`, `cvy_train`)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._core = Core()
        self._closer = weakref.finalize(self, self._core.close)
        self._fits = self._steps = 0
        self.history = History()
        self.result: Optional[FitResult] = None

    # ---- life ----

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *what: Any) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._core.closed

    def close(self) -> None:
        """Frees devices and memory. A call under way in another thread ends after its step. Further calls do nothing."""
        if self._core.lock.acquire(blocking=False):
            try:
                if self._core.running:
                    raise errors.ArgumentError(f"close was called from a callback of {self._core.running}, which has the team")
            finally:
                self._core.lock.release()
        self._closer()

    def stop(self) -> None:
        """Ends `fit` after the steps under way, and an evaluation soon. From any thread, also from a callback. (`cvy_stop_request`)"""
        lib.cvy_stop_request(self._core.stop)

    # ---- the team ----

    def _open(self, shape: Optional[arrays.Shape], classes: int, samples: int = 0, resumed: Any = ffi.NULL) -> Any:
        """The team, which is created if there is none, with its first weights unless a checkpoint has them."""
        core = self._core
        if core.team is None:
            note_devices()
            try:
                if core.net is None:
                    self._open_net(shape, classes)
                core.open_devices(self.selector.encode())
                if lib.cvy_devices_fell_back_to_cpu(core.devices.pointer):
                    logger.info("devices=\"auto\": there is no GPU; running on %s", text_of(lib.cvy_devices_label(core.devices.pointer, 0)))
                params, kept = self.team_params(samples, core.stop)
                resume_values = None
                if resumed != ffi.NULL:
                    resume_values = ffi.new("cvy_resume_values *", lib.cvy_checkpoint_resume_values(resumed))
                    params.resume = resume_values
                core.open_team(params, kept)
                if resumed == ffi.NULL:
                    self._first_weights()
            except BaseException:
                core.drop_team()
                raise
        return core.team.pointer

    def _open_net(self, shape: Optional[arrays.Shape], classes: int) -> None:
        """Where the shape is not known, an ONNX file's own."""
        if self.input_shape is not None:
            shape = self.input_shape if shape is None else shape
            if tuple(shape) != tuple(self.input_shape):
                raise errors.MismatchError(f"images of {shape} (channels, height, width); input_shape is {tuple(self.input_shape)}")
        classes = self.classes or classes
        if self.network is not None:
            self._core.take_net(self.network.hold_net(shape, classes))
            return
        if not lib.cvy_onnx_is_file(os.fsencode(self.model)) and (shape is None or not classes):
            raise errors.ArgumentError(f"the input of {self.model} is not known before fit: give input_shape=(channels, height, width) and classes")
        self._core.open_net(os.fsencode(self.model), *(shape or (0, 0, 0)), classes)

    def _first_weights(self) -> None:
        core, path = self._core, self.init_from
        if self.network is not None and path is None and self.init is None:
            path = self.network.first_weights
        if path is None or self.init_skip is not None:
            core.log.call(lib.cvy_team_init, core.team.pointer, self.init_params())
        if path is not None and self.init_skip is not None:
            core.log.call(lib.cvy_team_load_except, core.team.pointer, os.fsencode(path), self.init_skip.encode())
        elif path is not None:
            core.log.call(lib.cvy_team_load, core.team.pointer, os.fsencode(path))

    @property
    def _shape(self) -> Optional[arrays.Shape]:
        """Channels, height and width of the network's input, if known."""
        if self._core.net is None:
            return self.input_shape
        numbers = [ffi.new("int *") for _ in range(3)]
        lib.cvy_net_shape(self._core.net.pointer, 0, *numbers)
        return numbers[0][0], numbers[1][0], numbers[2][0]

    @property
    def _n_classes(self) -> int:
        return lib.cvy_net_classes(self._core.net.pointer) if self._core.net else self.classes

    @property
    def replicas(self) -> List[Replica]:
        """The devices of the team with their shares; empty before the team is created."""
        with self._core.using("replicas"):
            return self._replicas()

    def _replicas(self) -> List[Replica]:
        found, info = [], ffi.new("cvy_replica_info *")
        team = self._core.team
        for i in range(lib.cvy_team_size(team.pointer) if team else 0):
            if lib.cvy_team_replica(team.pointer, i, info):
                found.append(Replica(text_of(info.label) or "", info.share, info.micro_batch, info.device_bytes, info.compute_units, text_of(info.driver) or "",
                                     None if info.lost_step < 0 else info.lost_step))
        return found

    # ---- training ----

    def _data(self, train: Source, val: Union[None, float, Pair], test: Optional[Pair]) -> Data:
        if isinstance(train, Data):
            if val is not None or test is not None:
                raise errors.ArgumentError("val and test belong to arrays: a Data object has its own sets")
            return train
        if isinstance(train, (str, os.PathLike)):
            if test is not None or not (val is None or isinstance(val, (int, float))):
                raise errors.ArgumentError(f"val and test as arrays belong to training arrays; for {train} expected val as a fraction")
            return load_data(train, classes=self.classes, seed=self.seed, val_split=val or 0.0)
        return data_from_arrays(train, val, test, classes=self.classes, seed=self.seed, layout=self.layout, shape=self._shape)

    def _checkpoint(self) -> Any:
        """The checkpoint to resume from, as a pointer to close; points to NULL without one."""
        out = ffi.new("cvy_checkpoint **")
        if self.resume and self._core.team is None:
            self._core.log.call(lib.cvy_checkpoint_open, os.fsencode(str(self.checkpoint)), out)
        return out

    def fit(self, train: Source, val: Union[None, float, Pair] = None, test: Optional[Pair] = None, *, epochs: int = 10, max_steps: Optional[int] = None,
            evaluate: bool = True, callbacks: Sequence[Callback] = (), save_best: Union[None, str, "os.PathLike[str]"] = None, patience: int = 0,
            precise_bn: int = 0, quiet: bool = False) -> FitResult:
        """Trains for `epochs` passes over the training images, or `max_steps` steps.

        train: (images, labels), "fashion-mnist", a folder, "synthetic:N", an object of `load_data`, or batches. Images: arrays (N,H,W), (N,C,H,W) or (N,H,W,C) of
        bytes, or of floats that are pixels/255; labels: whole numbers (N). Batches: an iterable of pairs (x, y) as `step` takes them, such as a DataLoader,
        a generator (one pass: epochs=1 or max_steps), or a function that makes one; val and test are then pairs or batches of such values, and a schedule
        needs len(train). val: a pair, or the fraction of each training class that is held out; test: a pair.
        After each epoch the validation set is evaluated, or without one the test set (evaluate=False: neither). save_best, patience, precise_bn: as the
        options of `convoy train`. quiet: no line per epoch on stderr.

        Ctrl-C ends the run after the steps under way: a checkpoint is written if there is a folder, KeyboardInterrupt follows, and the trainer can
        continue. A second call trains the same weights further: it draws other orders of the images, and needs a constant learning rate.
        Returns the result, whose text is the book's line; epochs and steps are in `history`. (`cvy_train`, `cvy_team_step_batch`)
        Raises ArgumentError, MismatchError (images that do not fit, another run's checkpoint), NotFiniteError (the loss), DeviceError (the last device failed),
        FileError (a checkpoint could not be written)."""
        for name, value, least in (("epochs", epochs, 1), ("patience", patience, 0), ("precise_bn", precise_bn, 0)):
            options.whole(name, value, least, 1000000)
        if max_steps is not None:
            options.whole("max_steps", max_steps, 1, 10**15)
        with self._core.using("fit", alone=True) as keys:
            if self._fits and self.schedules:
                raise errors.ArgumentError(f"schedule: {self.schedule!r} (warmup {self.warmup}) ended with the first call of fit; a further one needs a constant rate")
            check = keys.check if keys else lambda: None
            if are_batches(train):
                return self._fit_batches(train, val=val, test=test, epochs=epochs, max_steps=max_steps, evaluate=evaluate, callbacks=callbacks, save_best=save_best,
                                         patience=patience, precise_bn=precise_bn, quiet=quiet, check=check)
            data = self._data(train, val, test)
            check()
            opened = self._checkpoint()
            try:
                team = self._open(data.shape, data.classes, data.count(), opened[0])
                check()
                self._attach(data)
                record = settings_json(self, epochs, self._core.net.pointer, data, team)
                self._record = json.loads(record)
                run = _Run(self.history, callbacks, len(self.history["epoch"]), epochs, quiet)
                run.labels = [replica.label for replica in self._replicas()]
                handle = ffi.new_handle(run)
                params, kept = self.train_params(
                    epochs=epochs, max_steps=0 if max_steps is None else self._steps + max_steps, no_eval=not evaluate, patience=patience, precise_bn=precise_bn,
                    save_best=None if save_best is None else os.fspath(save_best), settings=record, on_step=lib.convoy_on_step, on_epoch=lib.convoy_on_epoch,
                    on_event=lib.convoy_on_event, user=handle, stop=self._core.stop, opened=opened[0])
                params.seed += self._fits
                result = self._train(params, data, run)
                if self.network is not None:
                    self.network.take_weights(self)
                return result
            finally:
                with self._core.log.used():
                    lib.cvy_checkpoint_close(opened)

    def _train(self, params: Any, data: Data, run: _Run) -> FitResult:
        core, out = self._core, ffi.new("cvy_train_result *")
        with core.log.used():
            status = lib.cvy_train(core.team.pointer, data._struct, params, out)
        self._fits += 1
        self._steps = max(self._steps, run.last_step + 1, out.steps)
        if run.failure is not None:
            core.log.deliver()
            raise run.failure
        if status == lib.CVY_E_INTERRUPTED:
            core.log.deliver()
        else:
            core.log.check(status)
        self.result = FitResult(out.steps, out.epochs_done, _known(out.test_acc), _known(out.val_acc), out.best_epoch if out.best_epoch >= 0 else None,
                                out.best_acc if out.best_epoch >= 0 else None, bool(out.out_of_patience), out.sec_per_epoch, out.start_seconds,
                                out.images_per_second, bool(out.already_finished), status == lib.CVY_E_INTERRUPTED,
                                tuple(replica.label for replica in self._replicas()))
        return self.result

    def _attach(self, data: Data) -> None:
        """Attaches a training set, and notes in the team what weights files say of the network."""
        core, pictures = self._core, data.pictures
        core.attach(data)
        team, net, own = core.team.pointer, core.net.pointer, data._struct
        given, name = lib.cvy_team_input(team), ffi.new("char[]", os.fsencode(self.model))
        info = ffi.new("cvy_model_info *", {
            "model": name, "graph": lib.cvy_net_fingerprint(net) if lib.cvy_onnx_is_file(name) else 0, "channels": own.c, "height": own.h, "width": own.w,
            "classes": self._n_classes if own.classes < self._n_classes and own.class_names == ffi.NULL else own.classes, "class_names": own.class_names,
            "size_h": pictures["size_h"], "size_w": pictures["size_w"], "gray": pictures["gray"], "png16_scale": pictures["png16"] == "scale",
            "exif_rotate": pictures["exif"] == "rotate", "n_channels": given.n_channels, "mean": list(given.mean), "deviation": list(given.deviation)})
        core.log.call(lib.cvy_team_describe, team, info)
        self._trains_on_batches = False

    # ---- using the weights ----

    def evaluate(self, data: Union[None, Source] = None, which: str = "test") -> EvalResult:
        """Accuracy and mean loss of the weights.

        data: (images, labels), a name or folder as for `fit`, an object of `load_data`, batches, or None for the data of the last `fit`.
        Where the trainer works on batches alone, a pair is one of them. which: "test", "val" or "train", of data that have several sets.
        (`cvy_team_evaluate`, `cvy_team_evaluate_batch`) Raises ArgumentError: no such set; StoppedError after `stop`."""
        core = self._core
        options.word("which", which, SETS)
        with core.using("evaluate", alone=data is not None):
            if are_batches(data) or (self._trains_on_batches and isinstance(data, (tuple, list))):
                return self._evaluate_batches(data)
            if data is None:
                if core.data is None:
                    raise errors.ArgumentError("evaluate: no data yet; expected (images, labels), a name, or a call of fit before")
                return self._measure(core.data.pointer, which)
            if isinstance(data, (tuple, list)):
                own, which = data_from_arrays(None, None, data, classes=self._n_classes, layout=self.layout, shape=self._shape), "test"
            else:
                whole = self._data(data, None, None)
                if whole.count(which) == 0:
                    raise errors.ArgumentError(f"which: {which!r}: {whole} has no such images")
                own = only(whole, which)
            self._open(own.shape, own.classes)
            before = core.data.hold() if core.data else None
            try:
                core.attach(own)
                return self._measure(own._struct, "test")
            finally:
                if before is not None:
                    core.attach_handle(before)

    def _measure(self, data: Any, which: str) -> EvalResult:
        if getattr(data, which).n == 0:
            raise errors.ArgumentError(f"which: {which!r}: the data set {text_of(data.name)} has no such images")
        out = ffi.new("cvy_eval_result *")
        self._core.log.call(lib.cvy_team_evaluate, self._core.team.pointer, SETS[which], out)
        return EvalResult(out.accuracy, out.loss, out.images, out.correct, out.seconds)

    def predict(self, images: Any, logits: bool = False) -> np.ndarray:
        """Probabilities float32 (N, classes) of images (N,H,W), (N,C,H,W) or (N,H,W,C); with `logits` the network's outputs.

        Bytes are normalised as in training; floats are pixels/255 and are normalised, too. (`cvy_team_split_and_load`, `cvy_team_forward`)"""
        core = self._core
        with core.using("predict"):
            view = arrays.channels_last(images, self.layout, self._shape)
            n, h, w, c = view.shape
            team = self._open((c, h, w), 0)
            if self._shape != (c, h, w):
                raise errors.MismatchError(f"images of {c}x{h}x{w} (channels, height, width); the network takes {'x'.join(map(str, self._shape or ()))}")
            given = lib.cvy_team_input(team)
            channels = given.n_channels
            normalise = (np.array(list(given.mean)[:channels], np.float32), np.array(list(given.deviation)[:channels], np.float32)) if channels else None
            out = np.empty((n, self._n_classes), np.float32)
            for at in range(0, n, self.batch):
                self._forward(team, arrays.as_floats(view[at:at + self.batch], normalise), out[at:at + self.batch])
                if lib.cvy_stop_requested(core.stop):
                    raise errors.StoppedError("predict was stopped")
        return out if logits else _softmax(out)

    def _forward(self, team: Any, x: np.ndarray, out: np.ndarray) -> None:
        """Logits of at most a batch, split among the devices."""
        n_devices, at, log = lib.cvy_team_size(team), 0, self._core.log
        shards = ffi.new("cvy_tensor *[]", n_devices)
        result = ffi.new("cvy_tensor **")
        log.call(lib.cvy_team_split_and_load, team, ffi.from_buffer("float[]", x), len(x), shards)
        try:
            for i in range(n_devices):
                if shards[i] == ffi.NULL:
                    continue
                size = ffi.new("int *")
                lib.cvy_tensor_shape(shards[i], size, ffi.NULL, ffi.NULL, ffi.NULL, ffi.NULL)
                log.call(lib.cvy_team_forward, team, shards[i], result)
                part = out[at:at + size[0]]
                log.call(lib.cvy_tensor_read, result[0], ffi.from_buffer("float[]", part), part.size)
                lib.cvy_tensor_destroy(result)
                at += size[0]
        finally:
            lib.cvy_tensor_destroy(result)
            for i in range(n_devices):
                lib.cvy_tensor_destroy(shards + i)

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the weights as a safetensors file with PyTorch's names and layouts, as `convoy train --save` does. (`cvy_team_save`)"""
        with self._core.using("save"):
            self._core.log.call(lib.cvy_team_save, self._open(None, 0), os.fsencode(path))

    def load(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Takes the weights of a safetensors file; the optimiser starts anew. (`cvy_team_load`) Raises MismatchError: tensors of another network; nothing has
        changed then."""
        with self._core.using("load", alone=True):
            self._core.log.call(lib.cvy_team_load, self._open(None, 0), os.fsencode(path))

    def state_dict(self) -> Dict[str, np.ndarray]:
        """Copies of all weights and running values with PyTorch's names and layouts: convolutions (K,C,R,S), linear layers (out,in), float32;
        num_batches_tracked int64. `torch_net.load_state_dict({name: torch.from_numpy(a) for name, a in run.state_dict().items()})`."""
        with tempfile.TemporaryDirectory(prefix="convoy-") as folder:
            path = os.path.join(folder, "state.safetensors")
            self.save(path)
            return tensors.read(path)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes arrays, or PyTorch's tensors on the CPU, by name, all of the network's; the optimiser starts anew. Raises MismatchError: names or shapes that do not
        fit, each named; nothing has changed then."""
        with tempfile.TemporaryDirectory(prefix="convoy-") as folder:
            path = os.path.join(folder, "state.safetensors")
            tensors.write(path, state)
            self.load(path)

    def __repr__(self) -> str:
        where = "closed" if self.closed else ", ".join(f"{r.label}: {r.share}" for r in self._replicas()) or f"devices {self.selector}, not opened yet"
        return f"Trainer({self.model}, batch {self.batch}, {self._steps} steps, [{where}])"


def _softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    x = np.exp(x - x.max(axis=1, keepdims=True))
    return (x / x.sum(axis=1, keepdims=True)).astype(np.float32)
