#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Networks that PyTorch's exporters change on the way, with PyTorch's float64 answers: make_exporter_nets.py FOLDER

FOLDER/torch-NAME.onnx and .safetensors, whose answers make_onnx_nets.py describes, of
    zeros     the default export: biases of zeros are dropped, equal filters and biases of two layers are written once
    shared    the default export: equal scales, shifts, means and variances of five normalisations are written once
    folded    the default export: two normalisations are folded into convolutions; its answers are those of inference alone
    frozen    the export for training of a network that keeps two of its normalisations in evaluation, as backbones of detectors do

    python3 make_exporter_nets.py onnx    (made tests/data/onnx/torch-*; needs torch 2.9 or later, onnx, onnxscript and numpy)
"""
import contextlib
import copy
import io
import logging
import os
import sys
import warnings

import onnx
import torch
from torch import nn

from make_onnx_nets import answers, SAMPLES
import safetensors_file

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
TRAINING = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False, "dynamo": False}
NOTES = ("pkg.torch.onnx.fx_node", "pkg.torch.onnx.name_scopes", "pkg.onnxscript.rewriter.rule_name")


class Zeros(nn.Module):
    """The third convolution begins as a copy of the second."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 5)
        self.third = copy.deepcopy(self.second)
        for layer in (self.first, self.head):
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(torch.sigmoid(self.third(x)).mean((2, 3)))


class Shared(nn.Module):
    """As DenseNet has them: nothing can be folded where a pool or a concatenation is in front."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 6, 3, padding=1), nn.Linear(24, 5)
        self.blocks = nn.ModuleList(nn.ModuleDict({"norm": nn.BatchNorm2d(c), "conv": nn.Conv2d(c, 6, 1, bias=False)}) for c in (6, 12, 18))
        self.pool, self.last, self.again = nn.MaxPool2d(2), nn.BatchNorm2d(24), nn.BatchNorm2d(6)

    def forward(self, x):
        x = torch.sigmoid(self.again(self.pool(self.stem(x))))
        for block in self.blocks:
            x = torch.cat([x, block["conv"](torch.relu(block["norm"](x)))], 1)
        return self.head(torch.relu(self.last(self.pool(x))).mean((2, 3)))


class Folded(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Frozen(nn.Module):
    """Fixed ones in front of a convolution, and behind a sum's ReLU; the others see the batch."""

    def __init__(self):
        super().__init__()
        self.stem, self.fixed, self.conv, self.moving = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.side, self.sidenorm, self.last = nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def train(self, mode=True):
        super().train(mode)
        for norm in (self.fixed, self.sidenorm):
            norm.eval()
        return self

    def forward(self, x):
        x = torch.relu(self.fixed(self.stem(x)))
        x = torch.relu(self.sidenorm(self.side(x)) + self.moving(self.conv(x)))
        return self.head(torch.tanh(self.last(x)).mean((2, 3)))


def draw_norms(net):
    """Values that no network begins with."""
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.uniform_(m.weight, 0.5, 1.5)
            nn.init.normal_(m.bias, 0, 0.3)
            m.running_mean.normal_(0, 0.3)
            m.running_var.uniform_(0.5, 1.5)
    return net


def without_traces(path):
    """The exporter notes the lines of Python, too."""
    model = onnx.load(path)
    for node in model.graph.node:
        kept = [p for p in node.metadata_props if p.key in NOTES]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)


def make(folder, name, net, **export):
    x, labels = torch.randn(SAMPLES, 3, 11, 10), torch.randint(0, 5, (SAMPLES,))
    at = os.path.join(folder, f"torch-{name}")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        torch.onnx.export(net.train(), (x,), at + ".onnx", **export)
    if not export.get("training"):
        without_traces(at + ".onnx")
    values = answers(net, x, labels)
    if name == "folded":
        values = {key: values[key] for key in ("x", "labels", "logits")}
    safetensors_file.write(at + ".safetensors", values)


def main():
    folder, default = sys.argv[1], {"external_data": False, "verbose": False}
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(3)
    make(folder, "zeros", Zeros(), **default)
    make(folder, "shared", Shared(), **default)
    make(folder, "folded", draw_norms(Folded()), **default)
    make(folder, "frozen", draw_norms(Frozen()), **TRAINING)


if __name__ == "__main__":
    main()
