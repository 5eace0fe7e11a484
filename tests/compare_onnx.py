#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torchvision's networks there and back: compare_onnx.py CONVOY [NETWORK...]

Each network is exported by torch.onnx.export in training form and trained for two steps by `convoy train --model net.onnx`. Its state is loaded by PyTorch with
load_state_dict(strict=True); the probabilities of six pictures by `convoy predict` and those of the file that `convoy export` writes, computed by onnxruntime,
must be PyTorch's in float64 within 1e-4 of the largest, and onnx.checker must take that file. Exit 77 without torch, torchvision, onnx, onnxruntime, Pillow or a device."""
import json
import os
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnx
    import onnxruntime
    import torch
    import torchvision
    from PIL import Image
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools"))
import safetensors_file                                 # noqa: E402

CONVOY = sys.argv[1]
DEVICE = os.environ.get("CVY_TEST_DEVICE", "auto")
MOST = 1e-4
LARGE = {"alexnet", "vgg11_bn"}                         # their adaptive pools cannot be exported for smaller pictures
OPTIONS = {"googlenet": {"aux_logits": False, "init_weights": False}, "efficientnet_b0": {"stochastic_depth_prob": 0.0}}
NETWORKS = sys.argv[2:] or ["resnet34", "resnet50", "resnext50_32x4d", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5", "densenet121", "googlenet",
                            "efficientnet_b0", "regnet_y_400mf", "alexnet", "vgg11_bn"]


def convoy(*args):
    done = subprocess.run([CONVOY, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"convoy {' '.join(map(str, args))}: exit {done.returncode}: {done.stderr}")


def compare(name, at):
    side = 224 if name in LARGE else 64
    torch.manual_seed(0)
    net = getattr(torchvision.models, name)(weights=None, num_classes=10, **OPTIONS.get(name, {}))
    torch.onnx.export(net, torch.randn(2, 3, side, side), at("net.onnx"), training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, dynamo=False,
                      opset_version=17)
    convoy("train", "--model", at("net.onnx"), "--data", f"synthetic:16:{side}x{side}x3", "--classes", 10, "--batch", 8, "--max-steps", 2, "--lr", 0.01,
           "--no-eval", "--save", at("w.safetensors"), "--devices", DEVICE, "--quiet")
    state, own = safetensors_file.read(at("w.safetensors"))[0], net.state_dict()
    assert set(own) == set(state), f"names: {sorted(set(own) ^ set(state))}"
    own.update({key: torch.from_numpy(values) for key, values in state.items()})   # keeps the versions of modules
    net.load_state_dict(own, strict=True)
    net.eval().double()
    pixels = np.random.default_rng(0).integers(0, 256, (6, side, side, 3), dtype=np.uint8)
    files = [at(f"{i}.png") for i in range(len(pixels))]
    for file, picture in zip(files, pixels):
        Image.fromarray(picture).save(file)
    x = pixels.transpose(0, 3, 1, 2) / 255.0
    with torch.no_grad():
        want = torch.softmax(net(torch.tensor(x)), 1).numpy()
    convoy("predict", "--weights", at("w.safetensors"), "--model", at("net.onnx"), "--top", 10, "--json", at("p.json"), "--devices", DEVICE, "--quiet", *files)
    got = np.zeros_like(want)
    with open(at("p.json"), encoding="utf-8") as f:
        for row, prediction in zip(got, json.load(f)["predictions"]):
            for answer in prediction["top"]:
                row[int(answer["class"])] = answer["probability"]
    convoy("export", "--weights", at("w.safetensors"), "--model", at("net.onnx"), "--out", at("back.onnx"), "--softmax")
    onnx.checker.check_model(at("back.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(at("back.onnx"), providers=["CPUExecutionProvider"])
    back = session.run(None, {session.get_inputs()[0].name: x.astype(np.float32)})[0]
    return [float(np.abs(found - want).max() / want.max()) for found in (got, back)]


def main():
    warnings.filterwarnings("ignore")
    failed = 0
    if subprocess.run([CONVOY, "devices"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        print("skipped: no device")
        return 77
    for name in NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                errors = compare(name, lambda file: os.path.join(folder, file))
                good, text = max(errors) <= MOST, "convoy {:.1e}, its export in onnxruntime {:.1e}".format(*errors)
            except (RuntimeError, AssertionError) as e:
                good, text = False, str(e)[:500]
        failed += not good
        print(f"{'ok    ' if good else 'FAILED'} {name}: {text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
