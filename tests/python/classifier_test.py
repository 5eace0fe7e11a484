#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""convoy.Classifier: classifier_test.py CONVOY GROUP.

classifier: without scikit-learn, too. classifier_checks: scikit-learn's check_estimator, all of whose checks pass or are in NOT_APPLICABLE with the reason."""
import pickle
import sys

import numpy as np

from python_test import main, raises

import convoy  # noqa: E402

# Check → why it does not apply.
NOT_APPLICABLE = {}


def blobs(n, classes, features, seed=0):
    """(X, y) of normal distributions far apart."""
    draw = np.random.RandomState(seed)
    centres, y = draw.uniform(-4, 4, (classes, features)), draw.randint(0, classes, n)
    return centres[y] + draw.normal(0, 0.5, (n, features)), y


def has_device():
    return any(device.usable for device in convoy.devices())


def use(Classifier):
    """The protocol."""
    X, y = blobs(200, 3, 6)
    names = np.array(["cat", "dog", "ant"])
    model = Classifier(devices="0:0", epochs=20)
    assert model.get_params()["epochs"] == 20 and model.set_params(epochs=30) is model and model.epochs == 30
    raises(ValueError, "nothing", model.set_params, nothing=1)
    raises(ValueError, "not fitted", model.predict, X)
    assert model.fit(X, names[y]) is model
    assert list(model.classes_) == ["ant", "cat", "dog"] and model.n_features_in_ == 6 and model.score(X, names[y]) > 0.95
    p = model.predict_proba(X)
    assert p.shape == (200, 3) and np.allclose(p.sum(axis=1), 1) and (model.classes_[p.argmax(axis=1)] == model.predict(X)).all()
    assert len(model.history_["epoch"]) == 30 and {"1.weight", "3.bias"} <= set(model.state_)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(X), p) and again.get_params()["epochs"] == 30
    same = Classifier(devices="0:0", epochs=30).fit(X, names[y])
    other = Classifier(devices="0:0", epochs=30, random_state=5).fit(X, names[y])
    assert np.array_equal(same.predict_proba(X), p) and not np.array_equal(other.predict_proba(X), p)
    raises(ValueError, "features", model.predict, X[:, :5])
    assert (Classifier(devices="0:0").fit(X, np.full(200, 7)).predict(X[:4]) == 7).all()
    # pictures: of bytes, of floats, in rows
    draw = np.random.RandomState(1)
    y = draw.randint(0, 2, 60)
    pictures = draw.randint(0, 80, (60, 8, 10, 3)).astype(np.uint8)
    pictures[y == 1, 2:6, :, 0] += 150
    from convoy import nn
    make = lambda classes: nn.Sequential(nn.Conv2d(8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(), nn.Flatten(), nn.Linear(classes))
    fitted = Classifier(make, devices="0:0", batch=20, epochs=40).fit(pictures, y)
    assert fitted.score(pictures, y) > 0.95 and fitted.n_features_in_ == 240 and fitted.state_["0.weight"].shape == (8, 3, 3, 3)
    assert np.array_equal(fitted.predict_proba(pictures.astype(np.float32) / 255), fitted.predict_proba(pictures))
    rows = Classifier(make, image_shape=(8, 10, 3), devices="0:0", batch=20, epochs=40).fit(pictures.reshape(60, -1), y)
    assert np.array_equal(rows.predict_proba(pictures.reshape(60, -1)), fitted.predict_proba(pictures))
    gray = Classifier("lenet", devices="0:0", batch=20, epochs=2, augment="flip").fit(np.repeat(np.repeat(pictures[..., 0], 3, axis=1), 3, axis=2), y)
    assert gray.state_["0.weight"].shape == (20, 1, 3, 3)
    raises(ValueError, "image_shape", Classifier(image_shape=(7, 7), devices="0:0").fit, pictures.reshape(60, -1), y)
    raises(ValueError, "8, 10, 3", fitted.predict, pictures.transpose(0, 2, 1, 3))
    raises(ValueError, "one label", Classifier(devices="0:0").fit, pictures, y[:-1])
    wrong = pictures / 255.0
    wrong[3, 2, 1, 0] = np.nan
    raises(ValueError, "NaN", Classifier(devices="0:0").fit, wrong, y)


def test_classifier(folder):
    """With scikit-learn, if it is there, and without."""
    if not has_device():
        return 77
    from convoy import classifier
    use(convoy.Classifier)
    if classifier.HAS_SKLEARN:
        from sklearn.base import clone
        from sklearn.model_selection import GridSearchCV, cross_val_score
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        X, y = blobs(90, 3, 4)
        assert clone(convoy.Classifier(lr=0.02)).lr == 0.02
        assert cross_val_score(make_pipeline(StandardScaler(), convoy.Classifier(devices="0:0", epochs=20)), X, y, cv=2).min() > 0.9
        search = GridSearchCV(convoy.Classifier(devices="0:0", epochs=10), {"lr": [1e-6, 0.02]}, cv=2).fit(X, y)
        assert search.best_params_ == {"lr": 0.02}, search.best_params_
        # as in a Python without it
        for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"] + ["convoy.classifier"]:
            del sys.modules[name]
        sys.modules["sklearn"] = None
        use(convoy.Classifier)
        del sys.modules["sklearn"], sys.modules["convoy.classifier"]
    return 0


def test_classifier_checks(folder):
    """scikit-learn's own checks."""
    if not has_device():
        return 77
    from convoy import classifier
    if not classifier.HAS_SKLEARN:
        print("skipped: no scikit-learn 1.6")
        return 77
    from sklearn.utils.estimator_checks import check_estimator
    rows = check_estimator(convoy.Classifier(devices="0:0", epochs=30), expected_failed_checks=NOT_APPLICABLE, on_fail=None, on_skip=None)
    bad = [row for row in rows if row["status"] == "failed"]
    for row in rows:
        if row["status"] != "passed":
            print(row["status"], row["check_name"], repr(row["exception"])[:300])
    print(f"{sum(row['status'] == 'passed' for row in rows)} of {len(rows)} checks passed")
    assert not bad and len(rows) > 40, [row["check_name"] for row in bad]
    used = {row["check_name"] for row in rows if row["status"] == "xfail"}
    assert used == set(NOT_APPLICABLE), f"these pass: {set(NOT_APPLICABLE) - used}"
    return 0


if __name__ == "__main__":
    main(globals())
