#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""convoy.nn: networks of one's own. nn_test.py CONVOY GROUP. (Beside the same layers of PyTorch: torch_test.py, layers.)"""
import os
import subprocess

import numpy as np

from python_test import CONVOY, main, raises

import convoy  # noqa: E402
from convoy import nn  # noqa: E402

LENET = nn.Sequential(nn.Conv2d(20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(50, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128), nn.ReLU(), nn.Linear(10))
SETTINGS = {"devices": "0:0", "batch": 64, "lr": 0.05, "momentum": 0.9, "init": "he", "seed": 3}


def test_nn_shapes(folder):
    """Shapes and names follow; what does not fit is named with the layer and the shape. No device is opened."""
    text = LENET.summary((1, 28, 28))
    assert text.splitlines()[0].split() == ["0", "Conv2d(20,", "3)", "20x26x26", "(channels,", "height,", "width)"] and text.endswith("129068 parameters"), text
    assert "6  Flatten()" in text and "800 values" in text, text
    net = nn.Sequential(nn.Conv2d(8, 3, stride=2, padding=1), nn.Residual(nn.Sequential(nn.Conv2d(16, 3, padding=1, bias=False), nn.BatchNorm2d(momentum=0.01)), nn.Conv2d(16, 1)),
                        nn.Concat(nn.Conv2d(4, 1), nn.MaxPool2d(3, 1, 1)), nn.Gate(nn.Sequential(nn.AdaptiveAvgPool2d(), nn.Conv2d(20, 1), nn.Sigmoid())), nn.Dropout(0.1),
                        nn.AdaptiveAvgPool2d(), nn.Flatten(), nn.Linear(3))
    rows = {line.split()[0]: line for line in net.summary((3, 9, 9)).splitlines()}
    assert {"0", "1.body.0", "1.body.1", "1.shortcut", "1", "2.0", "2.1", "2", "3.body.0", "3.body.1", "3", "7"} <= set(rows), rows
    assert "20x5x5" in rows["2"] and "20x1x1" in rows["3.body.1"] and "20x5x5" in rows["3"] and "BatchNorm2d(momentum=0.01)" in rows["1.body.1"]
    with convoy.Trainer(net, input_shape=(3, 9, 9), classes=3) as run:  # the network alone
        run._open_net(None, 0)
        from convoy.network import held
        found = held(run._core.net.pointer)
        assert list(found.trained) == ["0.weight", "0.bias", "1.body.0.weight", "1.body.1.weight", "1.body.1.bias", "1.shortcut.weight", "1.shortcut.bias", "2.0.weight", "2.0.bias",
                                       "3.body.1.weight", "3.body.1.bias", "7.weight", "7.bias"], list(found.trained)
        assert found.trained["1.body.0.weight"] == (16, 8, 3, 3) and found.trained["7.weight"] == (3, 20) and found.running["1.body.1.running_var"] == (16,)
    assert repr(net[1]) == "Residual(Sequential(Conv2d(16, 3, padding=1, bias=False), BatchNorm2d(momentum=0.01)), Conv2d(16, 1))" and len(net) == 8
    assert eval(repr(net), vars(nn)).summary((3, 9, 9)) == net.summary((3, 9, 9))
    assert nn.Sequential({"a": nn.Conv2d(4, 3), "pool": nn.AdaptiveAvgPool2d()}).summary((1, 5, 5)).startswith("a     Conv2d(4, 3)")
    assert "4x7x8" in nn.Sequential(nn.Conv2d(4, 3, padding=(1, 0, 0, 2)), nn.AdaptiveAvgPool2d()).summary((1, 8, 8))  # above, left, below, right
    classes = nn.AdaptiveAvgPool2d()
    for network, shape, words in (
            (nn.Sequential(nn.Conv2d(8, 5), nn.Conv2d(8, 7)), (3, 8, 8), ("layer 1, Conv2d(8, 7), on 8x4x4", "does not fit")),
            (nn.Sequential(nn.Conv2d(8, 3, groups=2)), (3, 8, 8), ("layer 0", "3x8x8", "groups")),
            (nn.Sequential(nn.Sequential(nn.ReLU(), nn.Linear(4))), (3, 8, 8), ("layer 0.1, Linear(4), on 3x8x8", "Flatten")),
            (nn.Sequential(nn.Flatten(), nn.Conv2d(8, 1)), (3, 8, 8), ("layer 1", "192 values", "in front of Flatten")),
            (nn.Sequential(nn.Residual(nn.Conv2d(8, 3)), classes), (3, 8, 8), ("layer 0", "body makes 8x6x6", "shortcut 3x8x8", "Conv2d(channels, 1, stride)")),
            (nn.Sequential(nn.Gate(nn.Conv2d(3, 3)), classes), (3, 8, 8), ("layer 0", "channels x 1 x 1")),
            (nn.Sequential(nn.Concat(nn.Conv2d(8, 3), nn.ReLU()), classes), (3, 8, 8), ("layer 0", "8x6x6", "3x8x8", "equal height and width")),
            (nn.Sequential(nn.Conv2d(8, 3)), (3, 8, 8), ("ends with 8x6x6", "one value for each class")),
            (nn.Sequential(nn.Dropout(1.0), classes), (3, 8, 8), ("layer 0, Dropout(p=1.0)", "below 1")),
            (nn.Sequential(nn.BatchNorm2d(momentum=0), classes), (3, 8, 8), ("layer 0", "momentum 0")),
            (nn.Sequential(nn.Flatten(), nn.BatchNorm1d(), nn.Linear(2)), (3, 8, 8), ("layer 1", "no channels")),
            (nn.Sequential(nn.AdaptiveAvgPool2d(3), classes), (3, 8, 8), ("layer 0", "does not divide")),
            (nn.Sequential(nn.Slice(2, 2), classes), (3, 8, 8), ("layer 0", "must lie inside")),
            (nn.Sequential(nn.ChannelShuffle(2), classes), (3, 8, 8), ("layer 0", "must divide")),
            (nn.Sequential(nn.MaxPool2d(2, padding=2), classes), (3, 8, 8), ("layer 0, MaxPool2d(2, padding=2)", "on 3x8x8")),
            (nn.Sequential(nn.Conv2d("x", 3), classes), (3, 8, 8), ("layer 0", "filters: 'x'")),
            (nn.Sequential(nn.Conv2d(3, 3, padding="sam"), classes), (3, 8, 8), ("layer 0", "'sam'", '"same"')),
            (nn.Sequential(nn.Slice(0, "two"), classes), (3, 8, 8), ("layer 0", "Slice(0, 'two')")),
            (nn.Sequential(nn.GELU("none of these"), classes), (3, 8, 8), ("layer 0", "approximate"))):
        for word in words:
            raises(convoy.ArgumentError, word, network.summary, shape)
    raises(convoy.ArgumentError, "with brackets: ReLU()", nn.Sequential, nn.Conv2d(8, 3), nn.ReLU)
    raises(convoy.ArgumentError, "body", nn.Residual, None)
    raises(convoy.ArgumentError, "Concat", nn.Concat)
    raises(convoy.ArgumentError, "input_shape", convoy.Trainer(LENET).state_dict)


def test_nn_bits(folder):
    """LeNet written by its layers has the bits of the built-in one, and its checkpoints go on."""
    if not any(device.usable for device in convoy.devices()):
        return 77
    data = convoy.load_data("synthetic:320", seed=3)
    states, networks = [], []
    for model in ("lenet", LENET):
        with convoy.Trainer(model, **SETTINGS) as run:
            run.fit(data, epochs=2, quiet=True)
            states.append(run.state_dict())
            run.save(os.path.join(folder, "w.safetensors"))
            networks.append(run.predict(data.arrays("test")[0]))
    assert list(states[0]) == list(states[1]) and all(np.array_equal(a, states[1][name]) for name, a in states[0].items())
    # a checkpoint belongs to its network
    path = os.path.join(folder, "ck")
    with convoy.Trainer(LENET, checkpoint=path, checkpoint_every="1e", **SETTINGS) as run:
        run.fit(data, epochs=2, max_steps=5, quiet=True)
    other = nn.Sequential(*[nn.Tanh() if isinstance(layer, nn.ReLU) else layer for layer in LENET.layers.values()])
    raises(convoy.MismatchError, "model", convoy.Trainer(other, checkpoint=path, resume=True, **SETTINGS).fit, data, epochs=2, quiet=True)
    with convoy.Trainer(LENET, checkpoint=path, resume=True, **SETTINGS) as run:
        run.fit(data, epochs=2, quiet=True)
        assert all(np.array_equal(a, states[0][name]) for name, a in run.state_dict().items())
    # as an ONNX file
    LENET.export(os.path.join(folder, "net.onnx"), os.path.join(folder, "w.safetensors"), (1, 28, 28))
    with convoy.Model(os.path.join(folder, "net.onnx"), "0:0") as model:
        assert np.abs(model.predict(data.arrays("test")[0]) - networks[1]).max() < 1e-5
    done = subprocess.run([CONVOY, "net", os.path.join(folder, "net.onnx")], capture_output=True, text=True)
    assert "129068 parameters" in done.stdout, done
    raises(convoy.MismatchError, "10 outputs", convoy.Trainer(LENET, devices="0:0").fit, (data.arrays()[0], data.arrays()[1] + 5), quiet=True)
    return 0


if __name__ == "__main__":
    main(globals())
