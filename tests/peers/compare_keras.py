#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Networks of keras.applications through ONNX: compare_keras.py CONVOY TEST_ONNX_STEP [NETWORK...]

tests/data/make_keras_nets.py exports each by Keras, with TensorFlow (tf2onnx) and with PyTorch behind it. A device's logits (test_onnx_step) must be those of Keras in
float64 within 1e-4, relative L2; `convoy train` takes two steps from the file, and `convoy export` writes what onnx.checker takes. Exit 77 without keras, or
without a backend and an exporter of it."""
import importlib.util
import os
import subprocess
import sys
import tempfile

if any(importlib.util.find_spec(name) is None for name in ("keras", "onnx", "numpy")):
    print("skipped: keras, onnx or numpy is not installed")
    sys.exit(77)
import onnx     # noqa: E402

CONVOY, TEST = sys.argv[1:3]
HERE = os.path.dirname(os.path.abspath(__file__))
DEVICE = os.environ.get("CVY_TEST_DEVICE", "auto")
NETWORKS = sys.argv[3:] or ["sequential", "flattened", "functional", "MobileNet", "MobileNetV2", "MobileNetV3Small", "ResNet50", "DenseNet121", "VGG16", "Xception",
                           "InceptionV3", "MobileNetV3Large", "ResNet50V2"]
NEEDED = {"tensorflow": ("tensorflow", "tf2onnx"), "torch": ("torch", "onnxscript")}
NO_EXPORT = {("torch", "Xception")}     # PyTorch's exporter fails there


def trained(base):
    """What is wrong with two steps from the file and the export of what they gave; "": nothing."""
    weights, back = base + ".trained.safetensors", base + ".back.onnx"
    size = onnx.load(base + ".onnx", load_external_data=False).graph.input[0].type.tensor_type.shape.dim
    shape = "x".join(str(d.dim_value) for d in size[1:])
    for args in (("train", "--model", base + ".onnx", "--data", f"synthetic:16:{shape}", "--classes", "5", "--batch", "8", "--max-steps", "2", "--no-eval", "--quiet",
                  "--devices", DEVICE, "--save", weights), ("export", "--weights", weights, "--model", base + ".onnx", "--out", back)):
        done = subprocess.run([CONVOY, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            return f"convoy {args[0]}: exit {done.returncode}: {done.stdout}"
    onnx.checker.check_model(back, full_check=True)
    return ""


def main():
    faults, ran = 0, 0
    for backend, needed in NEEDED.items():
        if any(importlib.util.find_spec(name) is None for name in needed):
            print(f"{backend}: left out, {' and '.join(needed)} are not installed")
            continue
        for name in (n for n in NETWORKS if (backend, n) not in NO_EXPORT):
            with tempfile.TemporaryDirectory() as folder:
                made = subprocess.run([sys.executable, os.path.join(os.path.dirname(HERE), "data", "make_keras_nets.py"), folder, backend, name], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True)
                said = made.stdout if made.returncode else ""
                if not said:
                    done = subprocess.run([TEST], env=dict(os.environ, CVY_TEST_ONNX=folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    said = done.stdout if done.returncode else trained(os.path.join(folder, f"keras-{backend}-{name}"))
                print(f"{backend:10} {name:20} {'WRONG' if said else 'ok'}", flush=True)
                if said:
                    print(said[-3000:])
                faults += bool(said)
                ran += 1
    if not ran:
        sys.exit(77)
    sys.exit(1 if faults else 0)


main()
