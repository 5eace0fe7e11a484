#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Predictions and confusion beside PyTorch's and scikit-learn's: compare_predictions.py CONVOY

Cuts 1,000 test pictures from photographs in Python's packages, trains both networks for a few steps, and gives the weights to PyTorch with load_state_dict.
`convoy predict` must give the probabilities that PyTorch gives for the same resized bytes, within 1e-5, and `convoy eval` the classes, confusion, precision and
recall that scikit-learn computes of these predictions. Exit 77 without torch, scikit-learn, scikit-image, Pillow or a device."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import torch
    from PIL import Image
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools", "compare"))
import safetensors_file                                 # noqa: E402
import torch_baseline                                   # noqa: E402 the networks

CONVOY = sys.argv[1]
DEVICE = os.environ.get("CVY_TEST_DEVICE", "auto")
PHOTOGRAPHS = ["astronaut.png", "chelsea.png", "coffee.png", "ihc.png", "rocket.jpg"]
EACH = {"train": 60, "test": 200}                       # pictures of a class
MOST = 1e-5


def convoy(*args):
    done = subprocess.run([CONVOY, *map(str, args), "--devices", DEVICE, "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"convoy {' '.join(map(str, args))}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def make_folder(root):
    """Windows of random sizes; class and picture by name."""
    spec = importlib.util.find_spec("skimage")
    paths = [os.path.join(os.path.dirname(spec.origin), "data", name) for name in PHOTOGRAPHS] if spec else []
    paths = [p for p in paths if os.path.isfile(p)]
    if len(paths) < len(PHOTOGRAPHS):
        print("skipped: scikit-image's photographs are not here")
        sys.exit(77)
    rng = np.random.default_rng(3)
    for path in paths:
        photograph = Image.open(path).convert("RGB")
        for part, n in EACH.items():
            folder = os.path.join(root, part, os.path.basename(path).split(".")[0])
            os.makedirs(folder)
            for i in range(n):
                w, h = rng.integers(24, 60, 2)
                left, top = rng.integers(0, photograph.size[0] - w), rng.integers(0, photograph.size[1] - h)
                photograph.crop((left, top, left + w, top + h)).save(os.path.join(folder, f"{i:03d}.png"))


def fit(image, size):
    """torchvision's Resize and CenterCrop."""
    w, h = image.size
    long = int(size * max(w, h) / min(w, h))
    image = image.resize((size, long) if w <= h else (long, size), Image.BILINEAR)
    left, top = int(round((image.size[0] - size) / 2.0)), int(round((image.size[1] - size) / 2.0))
    return image.crop((left, top, left + size, top + size))


def load(path):
    """The network with its weights, and the facts."""
    arrays, metadata = safetensors_file.read(path)
    facts, tensors = json.loads(metadata["convoy"]), {name: torch.from_numpy(values) for name, values in arrays.items()}
    net = getattr(torch_baseline, facts["model"])(facts["classes"], facts["input"][0])
    if facts["model"] == "lenet":
        net[7] = torch.nn.Linear(tensors["7.weight"].shape[1], 128)
    net.load_state_dict(tensors)
    return net.eval(), facts


def compare(root, model, size):
    weights = os.path.join(root, model + ".safetensors")
    convoy("train", "--model", model, "--data", os.path.join(root, "data"), "--size", size, "--normalize", "dataset", "--init", "he", "--lr", 0.02, "--batch", 32,
           "--momentum", 0.9, "--epochs", 2, "--no-eval", "--save", weights)
    net, facts = load(weights)
    found = json.loads(convoy("predict", "--weights", weights, os.path.join(root, "data", "test"), "--top", facts["classes"], "--json", "-"))["predictions"]
    names, worst = facts["class_names"], 0.0
    mean, deviation = np.array(facts["mean"]), np.array(facts["deviation"])
    true, mine, wanted = [], [], []
    for at in range(0, len(found), 100):
        x = np.stack([(np.asarray(fit(Image.open(one["file"]), size)) / 255 - mean) / deviation for one in found[at:at + 100]])
        with torch.no_grad():
            wanted += torch.softmax(net(torch.from_numpy(x).float().permute(0, 3, 1, 2)), 1)
    for one, want in zip(found, wanted):
        worst = max(worst, max(abs(t["probability"] - float(want[names.index(t["class"])])) for t in one["top"]))
        true.append(names.index(os.path.basename(os.path.dirname(one["file"]))))
        mine.append(names.index(one["top"][0]["class"]))
    done = json.loads(convoy("eval", "--weights", weights, "--data", os.path.join(root, "data"), "--json", "-", "--confusion"))
    matrix = confusion_matrix(true, mine, labels=range(len(names)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")                 # a class that was never the answer has no precision
        precision, recall, _, samples = precision_recall_fscore_support(true, mine, labels=range(len(names)), zero_division=0)
    # faults
    wrong = [] if worst <= MOST else [f"probabilities differ by {worst:.3g}"]
    wrong += [] if len(found) == sum(samples) == 1000 else [f"{len(found)} predictions"]
    wrong += [] if done["confusion"] == matrix.tolist() else [f"confusion {done['confusion']}, scikit-learn's {matrix.tolist()}"]
    for c, one in enumerate(done["classes"]):
        same = one["class"] == names[c] and one["samples"] == samples[c] and abs((one["precision"] or 0) - precision[c]) < 1e-12 and abs(one["recall"] - recall[c]) < 1e-12
        wrong += [] if same else [f"class {one}, scikit-learn's {precision[c]}, {recall[c]}, {samples[c]}"]
    print(f"{model}: {len(found)} pictures, probabilities at most {worst:.2g} apart, {done['correct']} right; {'; '.join(wrong) or 'confusion as scikit-learn'}")
    return bool(wrong)


def main():
    if json.loads(subprocess.run([CONVOY, "devices", "--json", "-"], stdout=subprocess.PIPE, text=True).stdout or '{"devices": []}')["devices"] == []:
        print("skipped: no device")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as root:
        os.environ["XDG_CACHE_HOME"] = os.path.join(root, "cache")
        make_folder(os.path.join(root, "data"))
        wrong = [compare(root, "lenet", 20), compare(root, "resnet18", 16)]
    sys.exit(1 if any(wrong) else 0)


main()
