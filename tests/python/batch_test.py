#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trainer on batches of arrays, and parameters and gradients by name: batch_test.py CONVOY GROUP."""
import os
import signal
import threading

import numpy as np

from python_test import main, raises

import convoy  # noqa: E402
from convoy import batches  # noqa: E402

DATA = "synthetic:320"
LENET = {"batch": 64, "lr": 0.05, "momentum": 0.9, "init": "he", "seed": 3, "devices": "0:0"}
READY = {"input_shape": (1, 28, 28), "classes": 10}


def lenet(**more):
    return convoy.Trainer("lenet", **{**LENET, **READY, **more})


def images_of(which="train"):
    """Floats (N,C,H,W), pixels/255 as the devices compute them, and labels."""
    images, labels = convoy.load_data(DATA, seed=3).arrays(which)
    return images.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255), labels


def in_batches(x, y, size=64):
    return [(x[at:at + size], y[at:at + size]) for at in range(0, len(x), size)]


def bytes_of(path):
    with open(path, "rb") as f:
        return f.read()


def same_bits(folder, **settings):
    """A run over a data set, and over batches of its images in the same order: the files byte for byte, and what the runs say."""
    set_file, batch_file = os.path.join(folder, "set.safetensors"), os.path.join(folder, "batch.safetensors")
    x, y = images_of()
    test = images_of("test")
    with lenet(shuffle=False, **settings) as run:
        run.fit(convoy.load_data(DATA, seed=3), epochs=2, quiet=True)
        want = run.history.steps, run.evaluate()
        run.save(set_file)
    with lenet(**settings) as run:
        result = run.fit(in_batches(x, y), test=test, epochs=2, quiet=True)
        for name in ("step", "epoch", "loss", "lr", "correct", "images", "shares"):
            assert run.history.steps[name] == want[0][name], name
        assert result.test_acc == want[1].accuracy and result.steps == 10 and result.epochs_done == 2 and not result.stopped, result
        assert run.evaluate([test]).loss == want[1].loss
        run.save(batch_file)
    assert bytes_of(set_file) == bytes_of(batch_file), f"{settings}: other bytes than with the data set"
    with convoy.Model(batch_file, devices="0:0") as model:
        found = model.predict(test[0])
        assert (found.argmax(axis=1) == test[1]).sum() == want[1].correct
        assert np.array_equal(model.predict(test[0], raw=True), found), "raw floats that are pixels/255 have other probabilities"
        raises(convoy.ArgumentError, "floats are pixels/255", model.predict, 2 * test[0] - 1)
        assert not np.array_equal(model.predict(2 * test[0] - 1, raw=True), found)
        raises(convoy.MismatchError, "the network takes 1x28x28", model.predict, test[0][:, :, 1:], raw=True)


def test_batch_bits(folder):
    same_bits(folder)
    same_bits(folder, schedule="cosine", warmup=2, run_ahead=2)
    if any("can be split" in device.abilities for device in convoy.devices()):
        same_bits(folder, devices="0:0/1+1", shares=(40, 24), run_ahead=0)


def test_steps(folder):
    """Single steps: any strides, types and layouts give the bits of dense floats; the caller's memory is free afterwards."""
    x, y = images_of()
    wide = np.full((64, 2, 28, 57), np.nan, np.float32)
    wide[:, :1, :, 1::2] = x[:64, :, ::-1]
    views = [x[:64], np.ascontiguousarray(x[:64].transpose(0, 2, 3, 1)), x[:64, 0], wide[:, :1, ::-1, 1::2], x[:64].astype(np.float64),
             np.rint(x[:64] * 255).astype(np.uint8)]
    assert all(np.shares_memory(batches.as_images(view, None, (1, 28, 28)), view) for view in views[:4]), "a batch of floats is copied in Python"
    found = []
    for view in views:
        with lenet() as run:
            given = view.copy() if view is views[0] else view
            first = run.step(given, y[:64])
            if given is not view:
                given[:] = np.nan
            second = run.step(x[64:100], y[64:100].astype(np.uint8), lr=0.01)
            assert (first.step, first.images, first.lr, second.step, second.images, second.lr) == (0, 64, np.float32(0.05), 1, 36, np.float32(0.01)), (first, second)
            assert run.history.steps["loss"] == [first.loss, second.loss] and first.epoch == 0
            found.append((first.loss, second.loss, run.state_dict()["0.weight"].tobytes()))
    assert all(one == found[0] for one in found[1:]), [one[:2] for one in found]
    with lenet(schedule="cosine") as run:
        raises(convoy.ArgumentError, "give the step's lr", run.step, x[:4], y[:4])
        assert run.step(x[:4], y[:4], lr=0.1).images == 4


def test_wrong(folder):
    """What a batch may not be; the trainer goes on."""
    x, y = images_of()
    with lenet() as run:
        raises(convoy.ArgumentError, "expected 1 to 64, the team's batch", run.step, x[:65], y[:65])
        raises(convoy.ArgumentError, "a batch of 0 images", run.step, x[:0], y[:0])
        raises(convoy.MismatchError, "images of 1x27x28 (channels, height, width); the network takes 1x28x28", run.step, x[:4, :, 1:], y[:4])
        raises(convoy.ArgumentError, "expected (4,), one class number for each", run.step, x[:4], y[:3])
        raises(convoy.ArgumentError, "labels of shape (4, 1)", run.step, x[:4], y[:4, None])
        raises(convoy.ArgumentError, "label 10 of image 1 of the batch; expected 0 to 9", run.step, x[:3], [1, 10, 2])
        raises(convoy.ArgumentError, f"label {2**40} of image 2", run.step, x[:3], [1, 2, 2**40])
        raises(convoy.ArgumentError, "label 1 is nan; expected whole numbers", run.step, x[:3], [1.0, np.nan, 2.0])
        raises(convoy.ArgumentError, "labels of type float64; expected whole numbers", run.step, x[:3], [1.0, 3.0, 2.0])
        raises(convoy.ArgumentError, "type int64; expected float32", run.step, np.ones((4, 1, 28, 28), np.int64), y[:4])
        raises(convoy.ArgumentError, "a batch of type float; expected a pair", run.fit, iter([1.0]), epochs=1, quiet=True)
        raises(convoy.ArgumentError, "train gives no batch", run.fit, iter([]), epochs=1, quiet=True)
        raises(convoy.ArgumentError, "gives its batches once", run.fit, iter(in_batches(x, y)), quiet=True)
        raises(convoy.ArgumentError, "precise_bn", run.fit, in_batches(x, y), precise_bn=2, quiet=True)
        raises(convoy.ArgumentError, "val: 0.1 beside batches", run.fit, in_batches(x, y), val=0.1, quiet=True)
        raises(ZeroDivisionError, "", run.fit, (1 / 0 for _ in range(3)), epochs=1, quiet=True)
        bad = x[:8].copy()
        bad[3, 0, 5, 5] = np.nan
        assert run.step(x[:8], y[:8]).step == 0
        raises(convoy.NotFiniteError, "the loss of step 1 is nan", run.step, bad, y[:8])
    with lenet(schedule="cosine") as run:
        raises(convoy.ArgumentError, "needs the number of batches", run.fit, iter(in_batches(x, y)), epochs=1, quiet=True)
    with lenet(normalize="dataset") as run:
        raises(convoy.ArgumentError, "normalize='dataset' is for data sets", run.step, x[:4], y[:4])
    with lenet(augment="flip") as run:
        raises(convoy.ArgumentError, "augment='flip' is for data sets", run.fit, in_batches(x, y), quiet=True)
    with lenet(checkpoint=folder) as run:
        raises(convoy.ArgumentError, "checkpoint", run.fit, in_batches(x, y), quiet=True)
    with convoy.Trainer("lenet", **LENET) as run:
        raises(convoy.ArgumentError, "classes", run.step, x[:4], y[:4])


class Recorder(convoy.Callback):
    """Stops after so many steps, or epochs."""

    def __init__(self, steps=0, epochs=0):
        self.steps, self.epochs, self.seen, self.run = steps, epochs, [], None

    def on_step(self, result):
        self.seen.append(result.step)
        return len(self.seen) == self.steps

    def on_epoch(self, result):
        self.epochs -= 1
        return self.epochs == 0


def test_loaders(folder):
    """Generators, functions that make them, and runs that end early."""
    x, y = images_of()
    pairs = in_batches(x, y)
    best = os.path.join(folder, "best.safetensors")
    with lenet() as run:
        seen = Recorder()
        result = run.fit((pair for pair in pairs), epochs=1, callbacks=[seen], quiet=True)
        assert (result.steps, result.epochs_done, result.stopped) == (5, 1, False) and seen.seen == [0, 1, 2, 3, 4], result
        result = run.fit(iter(pairs), max_steps=3, quiet=True)
        assert (result.steps, result.epochs_done) == (8, 0)
        result = run.fit(iter(pairs), max_steps=30, quiet=True)
        assert (result.steps, result.epochs_done) == (13, 1)
        result = run.fit(lambda: (pair for pair in pairs), val=pairs[:2], test=pairs[2], epochs=3, save_best=best, quiet=True)
        assert result.steps == 28 and result.best_acc == max(run.history["val_acc"][-3:]) and result.val_acc == run.history["val_acc"][-1]
        assert run.history["test_acc"][-3:-1] == [None, None] and run.history["test_acc"][-1] == result.test_acc is not None
        assert run.history["epoch"] == list(range(6)) and os.path.exists(best)
        result = run.fit(pairs, epochs=9, callbacks=[Recorder(steps=7)], quiet=True)
        assert result.stopped and 28 + 7 <= result.steps <= 28 + 7 + 1 and result.epochs_done == 1, result
        result = run.fit(pairs, epochs=9, callbacks=[Recorder(epochs=2)], quiet=True)
        assert result.stopped and result.epochs_done == 2
        steps = run.history.steps["step"]
        assert steps == list(range(len(steps))), "a step's result is lost, or comes twice"
        raises(convoy.ArgumentError, "from a callback of fit", run.fit, (run.step(*pair) for pair in pairs), epochs=1, quiet=True)

        before = len(steps)

        def stopping():
            for i, pair in enumerate(pairs):
                if i == 2:
                    thread = threading.Thread(target=run.stop)
                    thread.start()
                    thread.join()
                yield pair
        result = run.fit(stopping(), epochs=1, quiet=True)
        assert result.stopped and result.steps == before + 2, (result.steps, before)
        begun = len(steps)

        def endless():
            while True:
                if len(steps) == begun + 3:
                    os.kill(os.getpid(), signal.SIGINT)
                yield pairs[0]
        raises(KeyboardInterrupt, "", run.fit, endless(), epochs=1, quiet=True)
        assert begun + 3 <= len(steps) <= begun + 6, (begun, len(steps))
        assert run.step(*pairs[0]).step == len(steps) - 1, "a step's result is lost after Ctrl-C"
        whole, parts = run.evaluate((x, y)), run.evaluate(in_batches(x, y, 50))
        assert run.evaluate([(x, y)]).loss == whole.loss and run.evaluate((2 * x - 1, y)).loss != whole.loss
        assert (whole.images, whole.correct) == (parts.images, parts.correct) == (320, whole.correct) and abs(whole.loss - parts.loss) < 1e-6
    with lenet() as run:
        result = run.fit(pairs, val=(x[:1], (y[:1] + 1) % 10), epochs=20, patience=2, quiet=True)
        assert result.out_of_patience and result.epochs_done < 20, result


def test_names(folder):
    """Parameters and gradients by name: a step of SGD by hand, and predictions with other values."""
    x, y = images_of()
    path = os.path.join(folder, "w.safetensors")
    with lenet(momentum=0) as run:
        assert run.parameter_names() == ("0.weight", "0.bias", "3.weight", "3.bias", "7.weight", "7.bias", "9.weight", "9.bias")
        raises(convoy.ArgumentError, "no step", run.gradient, "0.weight")
        before = {name: run.parameter(name) for name in run.parameter_names()}
        run.step(x[:64], y[:64])
        state = run.state_dict()
        for name, values in before.items():
            gradient = run.gradient(name)
            after = run.parameter(name)
            assert gradient.shape == values.shape and np.abs(gradient).max() > 0 and after.tobytes() == state[name].tobytes()
            assert np.abs(after.astype(np.float64) - (values.astype(np.float64) - float(np.float32(0.05)) * gradient.astype(np.float64))).max() <= 1e-7 * max(1, np.abs(values).max())
        for name, values in before.items():
            run.set_parameter(name, values)
        assert all(np.array_equal(run.parameter(name), values) for name, values in before.items())
        assert all(np.array_equal(run.state_dict()[name], values) for name, values in before.items())
        again = run.step(x[:64], y[:64])
        assert again.step == 1 and again.loss == run.history.steps["loss"][0], "other parameters than those that were set"
        run.set_parameter("9.bias", np.arange(10))
        assert run.parameter("9.bias").tolist() == list(range(10))
        raises(convoy.ArgumentError, "no parameter '9.bais'; it has 0.weight", run.parameter, "9.bais")
        raises(convoy.ArgumentError, "no parameter '9.bais'", run.gradient, "9.bais")
        raises(convoy.MismatchError, "values of shape (9,) for parameter '9.bias'; expected (10,)", run.set_parameter, "9.bias", np.zeros(9))
        raises(convoy.ArgumentError, "type <U1", run.set_parameter, "9.bias", np.full(10, "x"))
        raises(convoy.NotFiniteError, "value 3 for parameter '9.bias' is nan", run.set_parameter, "9.bias", [0, 0, 0, np.nan, 0, 0, 0, 0, 0, 0])
        run.save(path)
    with convoy.Model(path, devices="0:0") as model:
        assert model.parameter("9.bias").tolist() == list(range(10)) and "7.weight" in model.parameter_names()
        model.set_parameter("9.bias", [0, 0, 0, 0, 1e6, 0, 0, 0, 0, 0])
        assert (model.predict(x[:7]).argmax(axis=1) == 4).all()
        raises(convoy.MismatchError, "expected (10,)", model.set_parameter, "9.bias", [1.0])
    raises(convoy.ClosedError, "closed", model.parameter, "9.bias")


def test_batch_networks(folder):
    """A network of convoy.nn on batches: its weights are those that a file has, and the run's page and curves are there."""
    net = convoy.nn.Sequential(convoy.nn.Conv2d(4, 3, padding=1), convoy.nn.ReLU(), convoy.nn.Flatten(), convoy.nn.Linear(10))
    x, y = images_of()
    page = os.path.join(folder, "r.html")
    with convoy.Trainer(net, devices="0:0", batch=64, lr=0.05, classes=10) as run:
        result = run.fit(in_batches(x, y), epochs=2, quiet=True)
        assert result.steps == 10 and run.history.steps["loss"][-1] < run.history.steps["loss"][0], run.history.steps["loss"]
        run.report(page)
        assert result.labels[0] in run._repr_html_()
    with open(page, encoding="utf-8") as f:
        text = f.read()
    assert "Sequential" in text and result.labels[0] in text


def test_torch_batches(folder):
    """A DataLoader's batches, and tensors as values."""
    try:
        import onnx  # noqa: F401
        import torch
    except ImportError:
        print("skipped: there is no PyTorch, or no onnx")
        return 77
    x, y = images_of()
    data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    with lenet() as run:
        loaders = [torch.utils.data.DataLoader(data, batch_size=size) for size in (64, 100)]
        result = run.fit(loaders[0], val=loaders[1], epochs=2, quiet=True)
        assert result.steps == 10 and result.val_acc is not None
        loss = run.history.steps["loss"]
        values = torch.nn.Parameter(torch.zeros(10))
        run.set_parameter("9.bias", values)
        assert not run.parameter("9.bias").any()
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 26 * 26, 10))
    with convoy.from_torch(module, (1, 28, 28), devices="0:0") as model, convoy.Trainer(model, devices="0:0", batch=64, lr=0.01) as run:
        run.fit(in_batches(x, y)[:2], epochs=1, quiet=True)
        assert np.array_equal(model.state_dict()["0.weight"], run.parameter("0.weight")), "a run over batches leaves the model as it was"
        assert not np.array_equal(run.parameter("0.weight"), module[0].weight.detach().numpy())
    with lenet() as run:
        run.fit(in_batches(x, y), epochs=2, quiet=True)
        assert run.history.steps["loss"] == loss
    return 0


if __name__ == "__main__":
    main(globals())
