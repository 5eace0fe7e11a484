# SPDX-License-Identifier: MIT
"""A classifier with scikit-learn's protocol. scikit-learn is used where it is installed, and not needed."""
from __future__ import annotations

import inspect
from typing import Any, Dict, Optional, Sequence, Tuple, Union

import numpy as np

from . import arrays, errors, nn
from .network import Network
from .trainer import Trainer

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d, validate_data
    HAS_SKLEARN = True
except ImportError:  # not installed, or older than 1.6
    HAS_SKLEARN = False

    class NotFittedError(ValueError, AttributeError):  # type: ignore[no-redef]
        """The classifier has not been fitted."""

    class ClassifierMixin:  # type: ignore[no-redef]
        """What scikit-learn's class of this name gives."""

        def score(self, X: Any, y: Any) -> float:
            """The fraction of right predictions."""
            return float(np.mean(self.predict(X) == np.asarray(y)))  # type: ignore[attr-defined]

    class BaseEstimator:  # type: ignore[no-redef]
        """What scikit-learn's class of this name gives."""

        def get_params(self, deep: bool = True) -> Dict[str, Any]:
            """The settings by name."""
            return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

        def set_params(self, **params: Any) -> Any:
            """Changes settings. Raises ValueError: there is no such setting."""
            for name, value in params.items():
                if name not in self.get_params():
                    raise ValueError(f"{name} is not a setting of {type(self).__name__}; expected one of {', '.join(self.get_params())}")
                setattr(self, name, value)
            return self


LEAST_LENET = 20  # pixels of a side
HIDDEN = 64
LEVELS = 255


class Classifier(ClassifierMixin, BaseEstimator):
    """A network with `fit`, `predict`, `predict_proba` and `score` of scikit-learn's classifiers, for pipelines, cross-validation and grid searches.

    X: pictures (N,H,W) or (N,H,W,C), or rows (N, features); with image_shape (H, W) or (H, W, C) the rows are pictures. Bytes and floats that are pixels/255 are
    taken as they are. Other numbers are divided into 256 levels between the least and the largest value of each feature (of pictures: of all pixels) in `fit`,
    since the library's data sets are bytes; what is outside of them later counts as the nearest one. y: labels of any kind, one for each sample.

    model: "auto" (LeNet for pictures of 20 pixels and more, else one hidden layer of 64), a name of `Trainer`, a network of `convoy.nn`, or a function that
    makes one of the number of classes. devices, batch, epochs, lr, optimizer, schedule, augment, init: as of `Trainer` and `Trainer.fit`. random_state: the
    seed of weights and order; None: 0.

    After `fit`: `classes_` (labels, sorted), `n_features_in_`, `history_`, `state_` (weights by name). A fitted classifier can be pickled."""

    def __init__(self, model: Any = "auto", *, image_shape: Optional[Sequence[int]] = None, devices: Any = "auto", batch: int = 64, epochs: int = 50, lr: float = 0.01,
                 optimizer: str = "adamw", schedule: str = "const", augment: str = "none", init: Optional[str] = None, random_state: Any = None) -> None:
        self.model, self.image_shape, self.devices, self.batch, self.epochs, self.lr = model, image_shape, devices, batch, epochs, lr
        self.optimizer, self.schedule, self.augment, self.init, self.random_state = optimizer, schedule, augment, init, random_state

    # ---- numbers ----

    def _checked(self, X: Any, y: Any = None, reset: bool = False) -> Tuple[np.ndarray, Optional[np.ndarray]]:
        """X as an array of finite numbers, with the number of features of `fit`; y as labels (N)."""
        whole = X if hasattr(X, "iloc") else np.asarray(X) if isinstance(X, (list, tuple)) else X
        rank = getattr(whole, "ndim", 2)
        if HAS_SKLEARN and rank not in (3, 4):
            if reset:
                found, y = validate_data(self, X, y, dtype="numeric")
            else:
                found = validate_data(self, X, dtype="numeric", reset=False)
            labels = y
        else:
            found, labels = np.asarray(X), None if y is None else np.asarray(y)
            if found.ndim not in (2, 3, 4) or found.dtype.kind not in "fiub" or not len(found):
                raise errors.ArgumentError(f"X of shape {found.shape} and type {found.dtype}; expected numbers (N,H,W), (N,H,W,C) or (N, features), and at least one sample")
            if found.dtype.kind == "f" and not np.isfinite(found).all():
                raise errors.ArgumentError("X contains NaN or infinity; expected finite numbers")
            features = int(np.prod(found.shape[1:]))
            if reset:
                self.n_features_in_ = features
            elif features != self.n_features_in_:
                raise errors.MismatchError(f"X has {features} features, but Classifier is expecting {self.n_features_in_} features as input")
        if labels is not None:
            if HAS_SKLEARN:
                labels = column_or_1d(labels, warn=True)
                check_classification_targets(labels)
            if labels.ndim != 1 or len(labels) != len(found):
                raise errors.ArgumentError(f"y of shape {labels.shape} for {len(found)} samples; expected one label for each")
        return found, labels

    def _pictures(self, X: np.ndarray) -> np.ndarray:
        """(N,H,W,C); rows of features have one row of pixels."""
        if X.ndim == 2:
            shape = (1, X.shape[1]) if self.image_shape is None else tuple(self.image_shape)
            if int(np.prod(shape)) != X.shape[1] or len(shape) not in (2, 3):
                raise errors.ArgumentError(f"image_shape: {self.image_shape}; X has {X.shape[1]} features; expected (height, width) or (height, width, channels) of as many")
            X = X.reshape(len(X), *shape)
        return X[..., np.newaxis] if X.ndim == 3 else X

    def _levels(self, X: np.ndarray, reset: bool) -> np.ndarray:
        """Bytes of pictures."""
        if reset:
            self._range = None
            if X.dtype != np.uint8:
                try:
                    return arrays.as_bytes(X, "NHWC")
                except errors.ArgumentError:
                    axes = 0 if X.shape[1] == 1 and X.shape[3] == 1 else None
                    low, high = X.min(axis=axes).astype(np.float64), X.max(axis=axes).astype(np.float64)
                    self._range = low, np.where(high > low, high - low, 1.0)
        if self._range is None:
            return arrays.as_bytes(X, "NHWC")
        low, width = self._range
        return np.clip(np.rint((X.astype(np.float64) - low) / width * LEVELS), 0, LEVELS).astype(np.uint8)

    # ---- the network ----

    def _network(self, shape: Tuple[int, ...], classes: int) -> Any:
        model = self.model
        if model == "auto":
            model = "lenet" if min(shape[:2]) >= LEAST_LENET else nn.Sequential(nn.Flatten(), nn.Linear(HIDDEN), nn.ReLU(), nn.Linear(classes))
        return model(classes) if callable(model) and not isinstance(model, Network) else model

    def _seed(self) -> int:
        state = self.random_state
        return 0 if state is None else int(state.randint(2**31 - 1)) if hasattr(state, "randint") else int(state)

    def _make(self, shape: Tuple[int, ...], seed: int) -> Trainer:
        network = self._network(shape, len(self.classes_))
        init = "he" if self.init is None and isinstance(network, str) and not network.endswith(".onnx") else self.init
        return Trainer(network, devices=self.devices, batch=self.batch, lr=self.lr, optimizer=self.optimizer, schedule=self.schedule, augment=self.augment, init=init, seed=seed,
                       normalize=self._scale, input_shape=(shape[2], shape[0], shape[1]), classes=len(self.classes_), layout="NHWC")

    def fit(self, X: Any, y: Any) -> "Classifier":
        """Trains on samples X with labels y. (`cvy_train`)"""
        if y is None:
            raise ValueError("This Classifier estimator requires y to be passed, but the target y is None")
        X, labels = self._checked(X, y, reset=True)
        assert labels is not None
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        pixels = self._levels(self._pictures(X), reset=True)
        self._shape = pixels.shape[1:]
        scaled = pixels.reshape(-1, pixels.shape[3]) / float(LEVELS)
        self._scale: Union[str, Tuple[Any, Any]] = (scaled.mean(axis=0).tolist(), np.maximum(scaled.std(axis=0), 1e-3).tolist()) if pixels.shape[3] <= 4 else "none"
        self._trainer: Optional[Trainer] = None
        self.state_: Dict[str, np.ndarray] = {}
        if len(self.classes_) > 1:
            self._trainer = self._make(self._shape, self._seed())
            self._trainer.fit((pixels, numbers), epochs=self.epochs, evaluate=False, quiet=True)
            self.state_ = self._trainer.state_dict()
            self.history_ = self._trainer.history
        return self

    def _ready(self) -> Trainer:
        """The trainer, which a pickled classifier lacks."""
        if self._trainer is None:
            self._trainer = self._make(self._shape, 0)
            self._trainer.load_state_dict(self.state_)
        return self._trainer

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (N, classes), in the order of `classes_`. (`cvy_team_forward`)"""
        if not hasattr(self, "classes_"):
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before using this estimator.")
        X, _ = self._checked(X)
        pixels = self._pictures(X)
        if pixels.shape[1:] != self._shape:
            raise errors.MismatchError(f"samples of shape {pixels.shape[1:]}; the classifier was fitted with {self._shape}")
        if len(self.classes_) == 1:
            return np.ones((len(pixels), 1))
        found = self._ready().predict(self._levels(pixels, reset=False)).astype(np.float64)
        return found / found.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each sample."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)] if hasattr(self, "classes_") else self.predict_proba(X)

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_trainer": None}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
