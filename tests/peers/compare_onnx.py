#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torchvision's networks there and back: compare_onnx.py CONVOY TEST_ONNX_STEP [NETWORK...]

Each network is exported by torch.onnx.export, untrained, in the form for inference; a device's logits (test_onnx_step) must be onnxruntime's within 1e-4, relative
L2. Then it is exported in training form and trained for two steps by `convoy train --model net.onnx`. Its state is loaded by PyTorch with
load_state_dict(strict=True); the probabilities of six pictures by `convoy predict` and those of the file that `convoy export` writes, computed by onnxruntime, must be
PyTorch's in float64 within 1e-4 of the largest, and onnx.checker must take that file. What Convoy cannot take must be refused with the operators' names. Exit 77 without torch, torchvision, onnx, onnxruntime, Pillow or a device."""
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

    onnxruntime.set_default_logger_severity(3)
    import torch
    import torchvision  # noqa: F401
    from PIL import Image
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools", "compare"))
import safetensors_file                                 # noqa: E402
import torch_networks as networks                       # noqa: E402

CONVOY, TEST = sys.argv[1:3]
DEVICE = os.environ.get("CVY_TEST_DEVICE", "auto")
MOST = 1e-4


def predictions(at, *args):
    """Probabilities of the pictures by `convoy predict`."""
    networks.run(CONVOY, "predict", "--top", networks.CLASSES, "--json", at("p.json"), "--devices", DEVICE, "--quiet", *args)
    with open(at("p.json"), encoding="utf-8") as f:
        found = json.load(f)["predictions"]
    out = np.zeros((len(found), networks.CLASSES))
    for row, prediction in zip(out, found):
        for answer in prediction["top"]:
            row[int(answer["class"])] = answer["probability"]
    return out


def onnx_run(file, x):
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    source = session.get_inputs()[0]
    n = source.shape[0] if isinstance(source.shape[0], int) else len(x)  # PyTorch's exporter fixes the number of samples
    return np.concatenate([session.run(None, {source.name: x[at:at + n].astype(np.float32)})[0] for at in range(0, len(x), n)])


def untrained(net, side, x, at):
    """What test_onnx_step says against a device's logits of the network; "": nothing."""
    os.makedirs(at("untrained"))
    networks.export(net, side, at("untrained/net.onnx"), training=False)
    x = x.astype(np.float32)
    safetensors_file.write(at("untrained/net.safetensors"), {"x": x, "labels": np.zeros(len(x), np.int64), "logits": onnx_run(at("untrained/net.onnx"), x),
                                                             "bound": np.full(1, MOST, np.float32)})
    done = subprocess.run([TEST], env=dict(os.environ, CVY_TEST_ONNX=at("untrained")), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return "" if done.returncode == 0 else done.stdout


def refused(name, at):
    """What is wrong with how it is refused."""
    networks.export(networks.make(name), networks.side_of(name), at("net.onnx"))
    done = subprocess.run([CONVOY, "net", at("net.onnx")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return "" if done.returncode == 2 and "(Reshape)" in done.stderr else f"exit {done.returncode}: {done.stderr}"


def compare(name, at):
    side, net = networks.side_of(name), networks.make(name)
    pixels = np.random.default_rng(0).integers(0, 256, (6, side, side, 3), dtype=np.uint8)
    files = [at(f"{i}.png") for i in range(len(pixels))]
    for file, picture in zip(files, pixels):
        Image.fromarray(picture).save(file)
    x = pixels.transpose(0, 3, 1, 2) / 255.0
    wrong = untrained(net, side, x, at)
    assert not wrong, wrong
    networks.export(net, side, at("net.onnx"))
    networks.run(CONVOY, "train", "--model", at("net.onnx"), "--data", f"synthetic:16:{side}x{side}x3", "--classes", networks.CLASSES, "--batch", 8, "--max-steps", 2,
                 "--lr", 0.001, "--no-eval", "--save", at("w.safetensors"), "--devices", DEVICE, "--quiet")
    state, own = safetensors_file.read(at("w.safetensors"))[0], net.state_dict()
    assert set(own) == set(state), f"names: {sorted(set(own) ^ set(state))}"
    own.update({key: torch.from_numpy(values) for key, values in state.items()})   # keeps the versions of modules
    net.load_state_dict(own, strict=True)
    net.eval().double()
    with torch.no_grad():
        want = torch.softmax(net(torch.tensor(x)), 1).numpy()
    got = predictions(at, "--weights", at("w.safetensors"), "--model", at("net.onnx"), *files)
    networks.run(CONVOY, "export", "--weights", at("w.safetensors"), "--model", at("net.onnx"), "--out", at("back.onnx"), "--softmax")
    onnx.checker.check_model(at("back.onnx"), full_check=True)
    return [float(np.abs(a - want).max() / want.max()) for a in (got, onnx_run(at("back.onnx"), x))]


def main():
    warnings.filterwarnings("ignore")
    failed = 0
    if subprocess.run([CONVOY, "devices"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        print("skipped: no device")
        return 77
    for name in sys.argv[3:] or networks.NETWORKS + networks.REFUSED:
        with tempfile.TemporaryDirectory() as folder:
            if name in networks.REFUSED:
                wrong = refused(name, lambda file, folder=folder: os.path.join(folder, file))
                failed += bool(wrong)
                print(f"{'FAILED' if wrong else 'ok    '} {name}: {wrong or 'refused'}", flush=True)
                continue
            try:
                errors = compare(name, lambda file, folder=folder: os.path.join(folder, file))
                good, text = all(e <= MOST for e in errors), "trained {:.1e} from PyTorch, its export in onnxruntime {:.1e}".format(*errors)
            except (RuntimeError, AssertionError) as e:
                good, text = False, str(e)[:500]
        failed += not good
        print(f"{'ok    ' if good else 'FAILED'} {name}: {text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
