#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trainer against the program, and what is done with the weights: train_test.py CONVOY GROUP."""
import contextlib
import io
import json
import logging
import math
import os
import re
import subprocess
import sys
import threading

import numpy as np

from python_test import CONVOY, ROOT, main, raises

import convoy  # noqa: E402

DATA, STEPS = "synthetic:320", 6
LENET = {"batch": 64, "lr": 0.05, "momentum": 0.9, "init": "he", "seed": 3}
WORDS = ["--model", "lenet", "--data", DATA, "--batch", "64", "--lr", "0.05", "--momentum", "0.9", "--init", "he", "--seed", "3", "--quiet"]


def program(*words):
    done = subprocess.run([CONVOY, *words], capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout


def bytes_of(path):
    with open(path, "rb") as f:
        return f.read()


def has_device():
    return any(device.usable for device in convoy.devices())


def lenet(**more):
    return convoy.Trainer("lenet", **{"devices": "0:0", **LENET, **more})


def same_bits(folder, devices, words=(), settings=None, data=DATA, model="lenet"):
    """The files of the program and of a Trainer, byte for byte."""
    theirs, ours = os.path.join(folder, "program.safetensors"), os.path.join(folder, "python.safetensors")
    program("train", *WORDS, "--devices", devices, "--epochs", "2", "--save", theirs, *words)
    with lenet(devices=devices, **(settings or {})) as run:
        run.fit(data, epochs=2, quiet=True)
        run.save(ours)
    assert bytes_of(theirs) == bytes_of(ours), f"{devices} {words}: other bytes than the program's"
    return ours


def test_bits(folder):
    same_bits(folder, "0:0")
    whole = convoy.load_data(DATA, seed=3)
    same_bits(folder, "0:0", data=whole)
    images, labels = whole.arrays()
    floats = images.transpose(0, 3, 1, 2).astype(np.float32) / 255
    # arrays: another name of the data set, which weights files do not have
    same_bits(folder, "0:0", data=(floats, labels))


def test_bits_parts(folder):
    if not any("can be split" in device.abilities for device in convoy.devices()):
        return 77
    same_bits(folder, "0:0/1+1")
    same_bits(folder, "0:0/1+1", ["--augment", "flip,crop:2", "--normalize", "dataset", "--lr-schedule", "cosine", "--warmup", "1e", "--optimizer", "adamw",
                                  "--momentum", "0", "--weight-decay", "0.01", "--lr", "0.002", "--shares", "40,24", "--label-smoothing", "0.1"],
              {"augment": "flip,crop:2", "normalize": "dataset", "schedule": "cosine", "warmup": "1e", "momentum": None, "lr": None,
               "optimizer": convoy.AdamW(0.002, weight_decay=0.01), "shares": (40, 24), "label_smoothing": 0.1})
    return 0


def test_resume(folder):
    """A run that was begun by one and ended by the other has the bits of a whole one."""
    path = lambda *names: os.path.join(folder, *names)
    program("train", *WORDS, "--devices", "0:0", "--epochs", "3", "--save", path("whole"))
    # begun in Python, ended by the program
    with lenet(checkpoint=path("a"), checkpoint_every="1e") as run:
        assert run.fit(DATA, epochs=3, max_steps=7, quiet=True).steps == 7
    program("train", "--resume", "--checkpoint", path("a"), "--save", path("a.safetensors"), "--quiet")
    assert bytes_of(path("a.safetensors")) == bytes_of(path("whole"))
    # begun by the program, ended in Python
    program("train", *WORDS, "--devices", "0:0", "--epochs", "3", "--max-steps", "7", "--checkpoint", path("b"))
    raises(convoy.ArgumentError, "resume", lenet(checkpoint=path("b")).fit, DATA, epochs=3, quiet=True)
    with lenet(checkpoint=path("b"), resume=True) as run:
        result = run.fit(DATA, epochs=3, quiet=True)
        assert result.steps == 15 and run.history.steps["step"] == list(range(7, 15))
        run.save(path("b.safetensors"))
    assert bytes_of(path("b.safetensors")) == bytes_of(path("whole"))
    raises(convoy.MismatchError, "momentum: 0.9 in the checkpoint, 0", lenet(checkpoint=path("b"), resume=True, momentum=0.0).fit, DATA, epochs=3, quiet=True)


def test_weights(folder):
    """fit, evaluate, predict, state_dict and their relations."""
    whole = convoy.load_data("synthetic:640", seed=3)
    images, labels = whole.arrays()
    test_images, test_labels = whole.arrays("test")
    with lenet(normalize="dataset") as run:
        result = run.fit((images, labels), test=(test_images, test_labels), epochs=4, quiet=True)
        assert run.history["epoch"] == [0, 1, 2, 3] and run.history["train_loss"][-1] < 0.8 * run.history["train_loss"][0], run.history
        assert len(run.history.steps["loss"]) == 40 == result.steps and all(map(math.isfinite, run.history.steps["loss"]))
        assert run.history["test_acc"][-1] == result.test_acc and result.val_acc is None and f"test acc: {result.test_acc:.2f}, " in str(result)
        attached, alone = run.evaluate(), run.evaluate((test_images, test_labels))
        assert (attached.loss, attached.correct, attached.images) == (alone.loss, alone.correct, len(test_labels)), (attached, alone)
        named = run.evaluate(whole)
        assert (named.loss, named.correct) == (attached.loss, attached.correct)
        assert run.evaluate(which="train").accuracy > 0.3
        again = run.evaluate()
        assert (again.loss, again.correct) == (attached.loss, attached.correct), "an evaluation of other data changed the trainer"
        raises(convoy.ArgumentError, "val", run.evaluate, which="val")
        probabilities = run.predict(test_images)
        assert probabilities.shape == (len(test_labels), 10) and np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
        assert (probabilities.argmax(axis=1) == test_labels).sum() == attached.correct
        loss = -np.log(probabilities[np.arange(len(test_labels)), test_labels].astype(np.float64)).mean()
        assert abs(loss - attached.loss) < 1e-5, (loss, attached.loss)
        floats = run.predict(test_images.transpose(0, 3, 1, 2).astype(np.float32) / 255)
        assert (floats == probabilities).all()
        logits = run.predict(test_images[:5], logits=True)
        pixels = whole.arrays()[0] / np.float32(255)
        x = (test_images[:5].transpose(0, 3, 1, 2) / 255 - pixels.mean(dtype=np.float64)) / pixels.std(dtype=np.float64)
        assert np.abs(logits - lenet_in_double(run.state_dict(), x)).max() < 1e-4 * np.abs(logits).max(), "logits differ from their definition"
        assert (logits.argmax(axis=1) == probabilities[:5].argmax(axis=1)).all() and not np.allclose(logits.sum(axis=1), 1)
        raises(convoy.MismatchError, "1x28x28", run.predict, np.zeros((2, 5, 5), np.uint8))
        state = run.state_dict()
        assert {name: (a.shape, str(a.dtype)) for name, a in state.items()} == {
            "0.weight": ((20, 1, 3, 3), "float32"), "0.bias": ((20,), "float32"), "3.weight": ((50, 20, 5, 5), "float32"), "3.bias": ((50,), "float32"),
            "7.weight": ((128, 800), "float32"), "7.bias": ((128,), "float32"), "9.weight": ((10, 128), "float32"), "9.bias": ((10,), "float32")}
        run.save(os.path.join(folder, "w.safetensors"))
    # a fresh trainer with these weights gives the same answers; the order of the dictionary does not matter
    with lenet(normalize="dataset", input_shape=(1, 28, 28), classes=10) as other:
        before = other.state_dict()
        assert not np.array_equal(before["0.weight"], state["0.weight"])
        raises(convoy.MismatchError, "9.bias", other.load_state_dict, {name: a for name, a in state.items() if name != "9.bias"})
        raises(convoy.MismatchError, "0.weight", other.load_state_dict, {**state, "0.weight": state["0.weight"][:, :, :2]})
        assert all(np.array_equal(a, before[name]) for name, a in other.state_dict().items()), "a refused dictionary changed the weights"
        other.load_state_dict(dict(reversed(state.items())))
        assert all(np.array_equal(a, state[name]) for name, a in other.state_dict().items())
    with convoy.Trainer("lenet", devices="0:0", batch=64, init_from=os.path.join(folder, "w.safetensors"), input_shape=(1, 28, 28), classes=10, normalize=((0.5,), (0.25,))) as third:
        assert all(np.array_equal(a, state[name]) for name, a in third.state_dict().items())
    raises(convoy.ArgumentError, "input_shape", lenet().state_dict)
    line = program("eval", "--weights", os.path.join(folder, "w.safetensors"), "--data", "synthetic:640", "--seed", "3", "--devices", "0:0", "--quiet")
    assert f"({attached.correct} of {attached.images})" in line, line


def test_model(folder):
    """A trained network in a file: the numbers of the program, from arrays and from pictures."""
    path = os.path.join(folder, "w.safetensors")
    with lenet() as run:
        run.fit(DATA, epochs=1, quiet=True)
        run.save(path)
        images, labels = convoy.load_data(DATA, seed=3).arrays("test")
        accuracy = run.evaluate().correct
    pictures = []
    for i in range(3):
        pictures.append(os.path.join(folder, f"{i}.pgm"))
        with open(pictures[-1], "wb") as f:
            f.write(b"P5 28 28 255\n" + images[i].tobytes())
    with convoy.Model(path, devices="0:0", batch=7) as model:
        assert model.shape == (1, 28, 28) and model.classes == 10 and model.class_names is None and model.labels[0].startswith("0:0 ")
        found = model.predict(images)
        assert found.shape == (len(images), 10) and (found.argmax(axis=1) == labels).sum() == accuracy
        assert np.array_equal(model.predict(images.transpose(0, 3, 1, 2).astype(np.float64) / 255), found)
        read = model.read(pictures)
        assert np.array_equal(read, images[:3])
        program("predict", "--weights", path, *pictures, "--devices", "0:0", "--batch", "7", "--top", "10", "--json", os.path.join(folder, "p.json"), "--quiet")
        with open(os.path.join(folder, "p.json"), encoding="utf-8") as f:
            theirs = [{row["class"]: row["probability"] for row in one["top"]} for one in json.load(f)["predictions"]]
        ours = model.predict(read)
        assert all(f"{ours[i][c]:.6g}" == f"{p:.6g}" for i, one in enumerate(theirs) for c, p in one.items()), (theirs, ours)
        raises(convoy.MismatchError, "1x28x28", model.predict, np.zeros((1, 5, 5), np.uint8))
        raises(convoy.FileError, "none.pgm", model.read, [os.path.join(folder, "none.pgm")])
        raises(convoy.FormatError, "w.safetensors", model.read, [path])
        wanted, answers = model.predict(images), []
        threads = [threading.Thread(target=lambda: answers.append(model.predict(images))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 3 and all(np.array_equal(one, wanted) for one in answers)
    raises(convoy.ClosedError, "closed", model.predict, images)
    raises(convoy.ClosedError, "closed", lambda: model.shape)
    raises(convoy.FileError, "none", convoy.Model, os.path.join(folder, "none.safetensors"))


def lenet_in_double(state, x):
    """Logits of LeNet from its definition, in double: x (N,1,28,28)."""
    w = {name: a.astype(np.float64) for name, a in state.items()}

    def convolution(x, name):
        kernel = w[name + ".weight"]
        windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2:], axis=(2, 3))
        return np.einsum("nchwrs,kcrs->nkhw", windows, kernel) + w[name + ".bias"][:, None, None]

    def pool(x):
        n, c, height, width = x.shape
        return x[:, :, :height // 2 * 2, :width // 2 * 2].reshape(n, c, height // 2, 2, width // 2, 2).mean(axis=(3, 5))

    x = pool(np.maximum(convolution(x.astype(np.float64), "0"), 0))
    x = pool(np.maximum(convolution(x, "3"), 0)).reshape(len(x), -1)
    x = np.maximum(x @ w["7.weight"].T + w["7.bias"], 0)
    return x @ w["9.weight"].T + w["9.bias"]


def test_d2l(folder):
    """The names of the book's section."""
    from convoy import d2l
    found = d2l.try_all_gpus()
    assert found and all(device.usable for device in found) and d2l.try_gpu(0) == found[0] and d2l.try_gpu(1000).kind == "CPU"
    parts = "0:0/1+1" if any("can be split" in device.abilities for device in convoy.devices()) else "0:0*2"
    net, x = d2l.lenet(10), np.random.RandomState(2).uniform(size=(5, 1, 28, 28)).astype(np.float32)
    raises(RuntimeError, "initialize", net, convoy.split_and_load(x, ["0:0"])[0])
    raises(RuntimeError, "initialize", net[0].weight.data)
    net.initialize(init=convoy.init.He(), ctx=[parts])
    raises(convoy.ArgumentError, "force_reinit", net.initialize, ctx=[parts])
    devices = net.devices
    assert len(devices) == 2
    shards = convoy.split_and_load(x, devices)
    assert [shard.shape for shard in shards] == [(3, 1, 28, 28), (2, 1, 28, 28)] and np.array_equal(np.concatenate(shards), x)
    logits = np.concatenate([net(shards[0]).asnumpy(), np.asarray(net(shards[1]))])
    state = net.trainer.state_dict()
    assert np.abs(logits - lenet_in_double(state, x)).max() < 1e-4 * np.abs(logits).max(), "logits differ from their definition"
    assert np.array_equal(logits, net.trainer.predict(x, logits=True))
    assert "on " + devices[0] in repr(net(shards[0])) and "3x10" in repr(net(shards[0]))
    for device in devices:
        assert np.array_equal(net[0].weight.data(device), state["0.weight"]) and np.array_equal(net["9"].bias.data(device), state["9.bias"])
    raises(RuntimeError, "0.weight is not initialised on 9:9", net[0].weight.data, "9:9")
    raises(convoy.ArgumentError, "5.weight", net[5].weight.data)
    raises(convoy.ArgumentError, "for 3 devices; the network is on 2", net, convoy.split_and_load(x, ["a", "b", "c"])[0])
    xs, ys = d2l.split_batch(x, np.arange(5), devices)
    assert [len(y) for y in ys] == [3, 2] and ys[1].tolist() == [3, 4] and xs[1].shape == (2, 1, 28, 28)
    kept = net(shards[0])
    # training: the bits of the program, and the book's line
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        result = d2l.train(net, num_gpus=2, batch_size=64, lr=0.1, num_epochs=2, data=DATA, devices=[parts])
    assert re.fullmatch(r"test acc: \d\.\d\d, \d+\.\d sec/epoch on \[0:0\S+ .*, 0:0\S+ .*\]\n", said.getvalue()), said.getvalue()
    raises(convoy.ClosedError, "closed", kept.asnumpy)
    program("train", "--model", "lenet", "--data", DATA, "--batch", "64", "--lr", "0.1", "--devices", parts, "--split", "even", "--epochs", "2", "--quiet",
            "--save", os.path.join(folder, "program"))
    net.trainer.save(os.path.join(folder, "python"))
    assert bytes_of(os.path.join(folder, "program")) == bytes_of(os.path.join(folder, "python"))
    batches = d2l.Batches(convoy.load_data(DATA), "test", 10, False)
    assert abs(d2l.evaluate_accuracy_gpus(net, batches) - result.test_acc) < 1e-12
    assert len(list(batches)) == len(batches) and next(iter(batches))[0].shape == (10, 1, 28, 28)
    shuffled = d2l.Batches(convoy.load_data(DATA), "train", 64, True)
    first, second = [np.concatenate([y for _, y in shuffled]) for _ in range(2)]
    assert not np.array_equal(first, second) and np.array_equal(np.sort(first), np.sort(second))
    timer = d2l.Timer()
    assert timer.stop() >= 0 and timer.sum() == timer.avg() == timer.times[0]
    raises(convoy.ArgumentError, "sigma", convoy.init.Normal, 0.02)


def test_batchnorm(folder):
    """A network with running values: they are in state_dict, and two trainers are equal after load_state_dict."""
    data = convoy.load_data("synthetic:32", seed=1)
    with convoy.Trainer("resnet18", devices="0:0", batch=16, lr=0.05, classes=10) as run:
        run.fit(data, epochs=1, max_steps=1, evaluate=False, quiet=True)
        state = run.state_dict()
        wanted = run.predict(data.arrays()[0][:4])
        assert len([name for name in state if name.endswith("running_var")]) == 17 and state["1.num_batches_tracked"] == 1
        run.load_state_dict(state)
        assert np.array_equal(run.predict(data.arrays()[0][:4]), wanted)


class Noting(convoy.Callback):
    def __init__(self, stop_at=None, fail_at=None):
        self.steps, self.epochs, self.stop_at, self.fail_at = [], [], stop_at, fail_at

    def on_step(self, result):
        self.steps.append(result)
        if result.step == self.fail_at:
            raise KeyError("from a callback")
        return result.step == self.stop_at

    def on_epoch(self, result):
        self.epochs.append(result)


def test_callbacks(folder):
    """Callbacks see every step and epoch; a true result ends the run, an exception is raised by fit; the trainer can go on."""
    run, noting = lenet(), Noting()
    run.fit(DATA, epochs=2, callbacks=[noting], quiet=True)
    assert [r.step for r in noting.steps] == list(range(10)) and [r.epoch for r in noting.epochs] == [0, 1]
    assert all(r.shares == (64,) and r.images == 64 and abs(r.lr - 0.05) < 1e-7 for r in noting.steps)
    stopping = Noting(stop_at=12)
    result = run.fit(DATA, epochs=5, callbacks=[stopping], quiet=True)
    assert result.stopped and 13 <= result.steps <= 15 and [r.step for r in stopping.steps] == list(range(10, result.steps)), result
    raises(KeyError, "from a callback", run.fit, DATA, epochs=5, callbacks=[Noting(fail_at=result.steps + 1)], quiet=True)
    steps = len(run.history.steps["step"])
    assert run.fit(DATA, epochs=1, quiet=True).steps == steps + 5 and run.history.steps["step"] == list(range(steps + 5))
    seen = []

    class Using(convoy.Callback):
        def on_epoch(self, result):
            seen.append(run.state_dict()["0.bias"])
            seen.append(run.predict(np.zeros((3, 28, 28), np.uint8)))
            raises(convoy.ArgumentError, "callback of fit", run.fit, DATA)
            raises(convoy.ArgumentError, "callback of fit", run.close)
            raises(convoy.ArgumentError, "callback of fit", run.evaluate, (np.zeros((3, 28, 28), np.uint8), [0, 1, 2]))

    run.fit(DATA, epochs=2, callbacks=[Using()], quiet=True)
    assert len(seen) == 4 and not np.array_equal(seen[0], seen[2])
    raises(convoy.ArgumentError, "schedule", lambda: (lambda r: (r.fit(DATA, epochs=1, quiet=True), r.fit(DATA, epochs=1, quiet=True)))(lenet(schedule="cosine")))
    run.close()
    run.close()
    raises(convoy.ClosedError, "closed", run.evaluate)
    assert "closed" in repr(run)


def test_messages(folder):
    """Each exception has the text of its own call, in two threads at once; warnings go to the logger "convoy"."""
    found = []

    def fail(name, count):
        for i in range(count):
            try:
                convoy.load_data(f"synthetic:{name}{i}")
            except convoy.Error as error:
                found.append((f"{name}{i}", str(error)))

    threads = [threading.Thread(target=fail, args=(name, 50)) for name in ("north", "south")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 100
    wrong = [(name, text) for name, text in found if name not in text or ("north" in text) == ("south" in text)]
    assert not wrong, wrong[:3]

    def learn(devices, out):
        try:
            lenet(devices=devices).fit(DATA, epochs=1, quiet=True)
        except convoy.Error as error:
            out.append(error)

    one, two = [], []
    threads = [threading.Thread(target=learn, args=("9:7", one)), threading.Thread(target=learn, args=("nothing-like-this", two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "9:7" in str(one[0]) and "nothing" not in str(one[0]) and isinstance(one[0], convoy.NoDeviceError), one
    assert "nothing-like-this" in str(two[0]) and "9:7" not in str(two[0]), two
    records = []

    class Keep(logging.Handler):
        def emit(self, record):
            records.append(record)

    keep = Keep()
    logging.getLogger("convoy").addHandler(keep)
    convoy.data_from_arrays((np.zeros((4, 2, 2), np.uint8), [0, 1, 0, 1]), test=(np.zeros((1, 2, 2), np.uint8), [5]))
    said = [record.getMessage() for record in records if record.levelno == logging.WARNING]
    assert len(said) == 1 and "1 label of the test images does not occur among the training images, the first is 5" in said[0], said
    logging.getLogger("convoy").removeHandler(keep)
    with lenet(lr=1e6) as run:
        error = raises(convoy.NotFiniteError, "loss", run.fit, DATA, epochs=3, quiet=True)
        assert "learning rate" in str(error), error


def test_devices(folder):
    """repr is the table of `convoy devices`; a device, or a list, selects it."""
    found = convoy.devices()
    printed = program("devices").splitlines()
    assert repr(found).splitlines() == printed[:len(found)], (repr(found), printed)
    usable = next(device for device in found if device.usable)
    with lenet(devices=usable) as run, lenet(devices=[usable]) as other:
        assert run.replicas == []
        run.fit(DATA, epochs=1, max_steps=1, evaluate=False, quiet=True)
        assert run.replicas[0].label.startswith(f"{usable} ") and run.replicas[0].share == 64 and str(run.replicas[0].label) in repr(run)
        assert other.selector == str(usable)
    raises(convoy.NoDeviceError, "9:9", lenet(devices="9:9").fit, DATA, quiet=True)
    raises(convoy.ArgumentError, "empty", lenet(devices=[]).fit, DATA, quiet=True)


def test_page(folder):
    """The programs of doc/python.md and README.md run as they stand."""
    programs = []
    for page in ("doc/python.md", "README.md"):
        with open(os.path.join(ROOT, page), encoding="utf-8") as f:
            programs += re.findall(r"^```python\n(.*?)^```", f.read(), re.M | re.S)
    assert len(programs) >= 2
    if not any("can be split" in device.abilities for device in convoy.devices()):
        programs = [text.replace("0:0/1+1", "0:0*2") for text in programs]
    for text in programs:
        done = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0 and "test acc: " in done.stdout, done
    assert os.path.exists(os.path.join(folder, "w.safetensors"))


def test_onnx(folder):
    """A network from an ONNX file, with its weights."""
    path = os.path.join(folder, "net.onnx")
    with lenet() as run:
        run.fit(DATA, epochs=1, quiet=True)
        run.save(os.path.join(folder, "w.safetensors"))
        images = convoy.load_data(DATA, seed=3).arrays("test")[0]
        wanted = run.predict(images)
    done = subprocess.run([CONVOY, "export", "--weights", os.path.join(folder, "w.safetensors"), "--out", path], capture_output=True, text=True)
    if "without" in done.stderr and done.returncode:
        return 77
    assert done.returncode == 0, done
    with convoy.Trainer(path, devices="0:0", batch=64) as run:
        assert np.allclose(run.predict(images), wanted, atol=1e-5)
        run.fit(DATA, epochs=1, quiet=True)
    return 0


if __name__ == "__main__":
    if not has_device():
        print("skipped: no usable OpenCL device")
        raise SystemExit(77)
    main(globals())
