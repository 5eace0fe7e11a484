#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Networks of Keras as ONNX files, with Keras's float64 answers: make_keras_nets.py FOLDER BACKEND [NETWORK...]

BACKEND is tensorflow (whose files tf2onnx writes) or torch. For each NETWORK (no name: the small ones) FOLDER/keras-BACKEND-NETWORK.onnx, by Keras's
`model.export(…, format="onnx")`, and FOLDER/keras-BACKEND-NETWORK.safetensors: `x` (samples, channels, height, width), `labels` of zeros, and `logits`, what the
network gives in front of its last softmax. Names of keras.applications are networks, too, whose logits a device gives within `bound`. Values are rounded to float32.

    python3 make_keras_nets.py onnx tensorflow    (made tests/data/onnx/keras-*; needs keras, tensorflow-cpu, tf2onnx and onnx, or torch)
    python3 make_keras_nets.py onnx torch
"""
import os
import sys

FOLDER, os.environ["KERAS_BACKEND"] = sys.argv[1:3]
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import keras                        # noqa: E402
import numpy as np                  # noqa: E402
from keras import layers as L       # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "compare"))
import safetensors_file             # noqa: E402

SAMPLES, CLASSES = 4, 5


def sequential():
    """Batch normalisation in front of an activation and behind one, SAME with stride 2, which pads below and right alone."""
    return [keras.Input((12, 13, 3)), L.Conv2D(8, 3, padding="same", activation="relu"), L.BatchNormalization(), L.MaxPooling2D(),
            L.Conv2D(16, 3, strides=2, padding="same", use_bias=False), L.BatchNormalization(), L.ReLU(6.0), L.DepthwiseConv2D(3, padding="same"),
            L.GlobalAveragePooling2D(), L.Dropout(0.3), L.Dense(12, activation="relu"), L.Dense(CLASSES)]


def flattened():
    """One channel, and a matrix of pixels that lie with their channels behind."""
    return [keras.Input((12, 10, 1)), L.Conv2D(4, 3, activation="sigmoid", padding="same"), L.AveragePooling2D(2), L.Conv2D(6, 3, activation="tanh"), L.Flatten(),
            L.Dense(10, activation="relu"), L.Dense(CLASSES)]


def functional():
    """Sums and products of two branches, concatenation, squeeze-and-excite, zeros around a convolution with stride 2."""
    image = keras.Input((10, 9, 3))
    x = L.Conv2D(8, 3, padding="same")(image)
    x = L.Add()([x, L.SeparableConv2D(8, 3, padding="same", activation="swish")(x)])
    x = L.Concatenate()([x, L.Conv2D(8, 1, activation="relu")(x)])
    s = L.GlobalAveragePooling2D(keepdims=True)(x)
    x = L.Multiply()([x, L.Conv2D(16, 1, activation="hard_sigmoid")(s)])
    x = L.Conv2D(12, 3, strides=2, use_bias=False)(L.ZeroPadding2D(1)(x))
    x = L.LeakyReLU(negative_slope=0.2)(L.BatchNormalization()(x))
    s = L.Reshape((1, 1, 12))(L.GlobalAveragePooling2D()(x))
    x = L.Multiply()([x, L.Conv2D(12, 1, activation="sigmoid")(s)])
    return image, L.Dense(CLASSES)(L.GlobalAveragePooling2D()(x))


def side_of(name):
    return 96 if name in ("Xception", "InceptionV3") else 64


def build(name):
    """The network without its softmax."""
    small = {"sequential": sequential, "flattened": flattened, "functional": functional}.get(name)
    if small is functional:
        return keras.Model(*functional())
    if small:
        return keras.Sequential(small())
    more = {"include_preprocessing": False} if name.startswith("MobileNetV3") else {}
    return getattr(keras.applications, name)(input_shape=(side_of(name), side_of(name), 3), weights=None, classes=CLASSES, classifier_activation=None, **more)


def make(name):
    keras.utils.set_random_seed(len(name))
    random = np.random.default_rng(len(name))
    net = build(name)
    values = [w if w.ndim > 1 else random.uniform(0.5, 1.5, w.shape) if "variance" in v.path or "gamma" in v.path else random.normal(0, 0.2, w.shape)
              for v, w in zip(net.weights, net.get_weights()) if "seed" not in v.path]
    places = [i for i, v in enumerate(net.weights) if "seed" not in v.path]
    x = random.uniform(0, 1, (SAMPLES, *net.input_shape[1:]))
    keras.backend.set_floatx("float64")
    exact = build(name)
    keras.backend.set_floatx("float32")
    for model in (net, exact):
        for i, value in zip(places, values):
            model.weights[i].assign(value.astype(np.float32))
    x = x.astype(np.float32)
    logits = np.asarray(exact.predict(x.astype(np.float64), verbose=0))
    whole = keras.Model(net.inputs, L.Softmax()(net.outputs[0]))
    whole.predict(x, verbose=0)
    base = os.path.join(FOLDER, f"keras-{os.environ['KERAS_BACKEND']}-{name}")
    whole.export(base + ".onnx", format="onnx", verbose=False)
    answers = {"x": np.ascontiguousarray(x.transpose(0, 3, 1, 2)), "labels": np.zeros(SAMPLES, np.int64), "logits": logits.astype(np.float32)}
    if hasattr(keras.applications, name):       # the file's folded batch normalisation is of float32
        answers["bound"] = np.full(1, 1e-4, np.float32)
    safetensors_file.write(base + ".safetensors", answers)
    print(f"keras-{os.environ['KERAS_BACKEND']}-{name}: {net.count_params()} parameters, logits {np.abs(logits).max():.3g} at most", flush=True)


os.makedirs(FOLDER, exist_ok=True)
for one in sys.argv[3:] or ("sequential", "flattened", "functional"):
    make(one)
