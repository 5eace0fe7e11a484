#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes golden_optimizers.json: PyTorch's float64 answers for 50 steps of small networks with each optimiser.

Networks: lenet is D2L's; small is conv1 (3x3, pad 1, no bias, 2 to 6), bn1, ReLU, conv2 (likewise, 6 to 8), bn2, ReLU, average pool 2x2, fc
(10 outputs), on 2x8x8 images. Weights are those of make_golden.py's formula. There are 40 images of bytes: byte i of all, in
(image, row, column, channel) order, is splitmix64((900 << 32) + i) >> 56, image k has label k % 10. Step s takes the images
8*(s % 5) ... 8*(s % 5) + 7, as bytes / 255.
A case's "error" is how far PyTorch's own float32 is from float64: of the losses (relative, the largest), of the gradient's norms
where they are there, and of all weights at the end (relative L2, the largest of all tensors).

    python3 make_golden_optimizers.py golden_optimizers.json      (needs torch and numpy)
"""
import json
import sys

import numpy as np
import torch
from torch import nn

from make_golden import digest, fill, lenet, splitmix64

torch.set_num_threads(1)
STEPS, BATCH, IMAGES = 50, 8, 40


def small():
    net = nn.Sequential()
    for name, layer in (("conv1", nn.Conv2d(2, 6, 3, padding=1, bias=False)), ("bn1", nn.BatchNorm2d(6)), ("relu1", nn.ReLU()),
                        ("conv2", nn.Conv2d(6, 8, 3, padding=1, bias=False)), ("bn2", nn.BatchNorm2d(8)), ("relu2", nn.ReLU()),
                        ("pool", nn.AvgPool2d(2)), ("flat", nn.Flatten()), ("fc", nn.Linear(128, 10))):
        net.add_module(name, layer)
    return net


def is_weight(module, name):
    return name == "weight" and isinstance(module, (nn.Conv2d, nn.Linear))


def groups(net, case):
    """One group of parameters for each, with its rate and decay."""
    out = []
    for path, module in net.named_modules():
        for name, p in module.named_parameters(recurse=False):
            decay = case.get("weight_decay", 0)
            if case.get("decay_only_weights") and not is_weight(module, name):
                decay = 0
            out.append({"params": [p], "lr": case["lr"] * case.get("lr_mult", {}).get(path, 1), "weight_decay": decay})
            p.requires_grad_(path not in case.get("freeze", []))
    return [g for g in out if g["params"][0].requires_grad]


def run(case, dtype):
    side, channels = (28, 1) if case["net"] == "lenet" else (8, 2)
    net = lenet() if case["net"] == "lenet" else small()
    fill(net)
    net = net.to(dtype)
    n = IMAGES * side * side * channels
    pixels = (splitmix64(np.uint64(900 << 32) + np.arange(n, dtype=np.uint64)) >> np.uint64(56)).astype(np.float64) / 255
    x = torch.from_numpy(pixels.reshape(IMAGES, side, side, channels)).permute(0, 3, 1, 2).to(dtype)
    y = torch.arange(IMAGES) % 10
    loss_fn = nn.CrossEntropyLoss(label_smoothing=case.get("label_smoothing", 0.0))
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[case["optimizer"]]
    more = ({"momentum": case.get("momentum", 0)} if case["optimizer"] == "sgd"
            else {"betas": tuple(case.get("betas", (0.9, 0.999))), "eps": case.get("eps", 1e-8)})
    optimizer = kind(groups(net, case), lr=case["lr"], **more)
    trained = [p for p in net.parameters() if p.requires_grad]
    losses, norms = [], []
    net.train()
    for path, module in net.named_modules():
        if path in case.get("freeze", []):
            module.eval()
    for s in range(STEPS):
        at = BATCH * (s % (IMAGES // BATCH))
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(net(x[at:at + BATCH]), y[at:at + BATCH])
        loss.backward()
        if "clip_norm" in case:
            norms.append(nn.utils.clip_grad_norm_(trained, case["clip_norm"]).item())
        optimizer.step()
        losses.append(loss.item())
    return net, losses, norms


def distance(a, b):
    a, b = np.array(a), np.array(b)
    return float(np.max(np.abs(a - b) / np.abs(a))) if len(a) else 0.0


def main():
    cases = [
        {"name": "adam", "net": "lenet", "optimizer": "adam", "lr": 0.001, "weight_decay": 0.01},
        {"name": "adamw", "net": "lenet", "optimizer": "adamw", "lr": 0.001, "weight_decay": 0.1, "betas": [0.8, 0.99],
         "eps": 1e-4, "decay_only_weights": True, "label_smoothing": 0.1},
        {"name": "clip", "net": "lenet", "optimizer": "sgd", "lr": 0.01, "momentum": 0.5, "clip_norm": 0.5,
         "lr_mult": {"9": 2, "0": 0.1}},
        {"name": "adam-clip", "net": "small", "optimizer": "adam", "lr": 0.003, "clip_norm": 0.3},
        {"name": "freeze", "net": "small", "optimizer": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01,
         "freeze": ["bn1"]},
        {"name": "trunk", "net": "small", "optimizer": "adamw", "lr": 0.003, "freeze": ["conv1", "bn1"]},
    ]
    out = []
    for case in cases:
        net, losses, norms = run(case, torch.float64)
        again, losses32, norms32 = run(case, torch.float32)
        both = [(p.detach(), q.detach().double()) for p, q in zip(net.parameters(), again.parameters())]
        out.append({**case, "params": [[n, list(p.shape)] for n, p in net.named_parameters()], "losses": losses,
                    "norms": norms, "weights": [digest(p) for p in net.parameters()],
                    "running": [[n, b.tolist()] for n, b in net.named_buffers() if b.is_floating_point()],
                    "error": {"losses": distance(losses, losses32), "norms": distance(norms, norms32),
                              "weights": max(((p - q).norm() / p.norm()).item() for p, q in both)}})
    with open(sys.argv[1], "w", encoding="ascii") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")
    for case in out:
        print(case["name"], case["losses"][0], case["losses"][-1], case["error"])


if __name__ == "__main__":
    main()
