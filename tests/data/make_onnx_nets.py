#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random networks of PyTorch as ONNX files, with PyTorch's float64 answers: make_onnx_nets.py FOLDER FIRST COUNT [MOST]

For each seed from FIRST on that gives a network of at most MOST parameters, COUNT of them: FOLDER/net-SEED.onnx and FOLDER/net-SEED.safetensors, and a line that
says what it is. The answers: `x` (samples, channels, height, width), `labels`, `logits` of inference, and of a training step `loss` (the mean over the samples), the
gradient of each parameter (`grad.NAME`), and what each batch normalisation saw (`mean.NAME`, `var.NAME`, unbiased). Values are rounded to float32.

    python3 make_onnx_nets.py onnx 0 10 5000      (made tests/data/onnx; needs torch, onnx and numpy)
"""
import os
import random
import sys
import warnings

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "compare"))
import safetensors_file  # noqa: E402

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
SAMPLES = 6
ACTIVATIONS = [nn.ReLU, nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.Sigmoid, nn.Tanh, nn.Hardsigmoid, nn.Hardswish, nn.SiLU, nn.GELU]


class Net(nn.Module):
    """Nodes in the order in which they are computed: (what to call, the nodes that it takes). Node 0 is the input."""

    def __init__(self, seed):
        super().__init__()
        self.random = random.Random(seed)
        self.parts, self.nodes, self.text = nn.ModuleDict(), [], []
        self.shape = [(self.random.choice([1, 3, 8]), self.random.randint(6, 12), self.random.randint(6, 12))]
        self.classes, self.unused = self.random.randint(3, 10), set()
        self.add(self.conv, 0)
        for _ in range(self.random.randint(3, 12)):
            self.grow()
        self.end()

    def add(self, make, *inputs, **more):
        """Makes a node of others and computes its shape. Returns its number."""
        name, call = make(*inputs, **more)
        if isinstance(call, nn.Module):
            label = f"m{len(self.nodes)}"
            self.parts[label] = call
            self.nodes.append((label, inputs))
        else:
            self.nodes.append((call, inputs))
        with torch.no_grad():
            values = [torch.zeros(2, *self.shape[i]) for i in inputs]
            self.shape.append(tuple((self.parts[label] if isinstance(call, nn.Module) else call)(*values).shape[1:]))
        self.unused -= set(inputs)
        self.unused.add(len(self.nodes))
        self.text.append(f"{len(self.nodes)}={name}({','.join(map(str, inputs))})")
        return len(self.nodes)

    def conv(self, x, filters=None, kernel=None, stride=None):
        c, h, w = self.shape[x]
        filters = filters or self.random.choice([8, 16, 24, 32])
        kernel = kernel or self.random.choice([1, 3, 3, 5])
        dilation = self.random.choice([1, 1, 2]) if kernel == 3 and min(h, w) > 4 else 1
        stride = stride or (self.random.choice([1, 1, 2]) if min(h, w) > 3 else 1)
        groups = self.random.choice([g for g in (1, 1, 1, 2, 4, 8) if c % g == 0 and filters % g == 0])
        if kernel > 1 and self.random.random() < 0.3:
            filters, groups = c * self.random.choice([1, 1, 2]), c
        bias, pad = self.random.random() < 0.5, dilation * (kernel // 2)
        conv = nn.Conv2d(c, filters, kernel, stride, pad, dilation, groups, bias)
        if kernel == 3 and self.random.random() < 0.2:  # zeros on two sides only
            conv.padding, conv = (0, 0), nn.Sequential(nn.ZeroPad2d((0, 2 * pad, 0, 2 * pad)), conv)
        return f"conv{kernel}s{stride}d{dilation}g{groups}{'b' if bias else ''}", conv

    def norm(self, x):
        norm = nn.BatchNorm2d(self.shape[x][0], eps=self.random.choice([1e-5, 1e-3]), momentum=self.random.choice([0.1, 0.01]))
        nn.init.normal_(norm.weight, 1, 0.2)
        nn.init.normal_(norm.bias, 0, 0.2)
        return "norm", norm

    def activation(self, _):
        kind = self.random.choice(ACTIVATIONS)
        return kind.__name__, kind()

    def pool(self, x):
        kernel, ceil = self.random.choice([2, 3]), self.random.random() < 0.5
        pad, stride = self.random.randint(0, kernel // 2), self.random.randint(1, kernel)
        if self.random.random() < 0.5:
            return f"max{kernel}s{stride}p{pad}{'c' if ceil else ''}", nn.MaxPool2d(kernel, stride, pad, ceil_mode=ceil)
        counts = self.random.random() < 0.5
        return f"avg{kernel}s{stride}p{pad}{'c' if ceil else ''}{'n' if counts else ''}", nn.AvgPool2d(kernel, stride, pad, ceil, counts)

    def grow(self):
        x = self.random.choice([len(self.nodes)] * 3 + list(range(1, len(self.nodes) + 1)))
        c, h, w = self.shape[x]
        kind = self.random.choice(["conv", "conv", "block", "block", "activation", "pool", "residual", "concat", "squeeze"])
        if kind == "conv":
            self.add(self.conv, x)
        elif kind == "block":
            y = self.add(self.conv, x)
            if self.shape[y][1] * self.shape[y][2] >= 4:
                y = self.add(self.norm, y)
            self.add(self.activation, y)
        elif kind == "activation":
            self.add(self.activation, x)
        elif kind == "pool" and min(h, w) >= 4:
            self.add(self.pool, x)
        elif kind == "residual":
            y = self.add(self.activation, self.add(self.conv, x, filters=c, kernel=1, stride=1))
            self.add(lambda a, b: ("add", torch.add), y, x)
        elif kind == "concat":
            others = [i for i in range(1, len(self.shape)) if self.shape[i][1:] == (h, w)]
            inputs = [self.random.choice(others) for _ in range(self.random.randint(1, 2))] + [x]
            if sum(self.shape[i][0] for i in inputs) <= 64:
                self.add(lambda *_: ("cat", lambda *v: torch.cat(v, 1)), *inputs)
        elif kind == "squeeze":
            y = self.add(self.conv, self.mean(x), filters=8, kernel=1, stride=1)
            y = self.add(self.conv, self.add(self.activation, y), filters=c, kernel=1, stride=1)
            y = self.add(lambda _: ("Sigmoid", nn.Sigmoid()), y)
            self.add(lambda a, b: ("mul", torch.mul), x, y)

    def mean(self, x):
        if self.random.random() < 0.5:
            return self.add(lambda _: ("global", nn.AdaptiveAvgPool2d(1)), x)
        return self.add(lambda _: ("mean", lambda v: v.mean((2, 3), keepdim=True)), x)

    def end(self):
        """What nobody has read becomes one row of features."""
        features = [self.mean(x) for x in sorted(self.unused - {len(self.nodes)})]
        last = len(self.nodes) if not features else max(x for x in self.unused if x not in features)
        if self.shape[last][1:] != (1, 1) and (features or self.random.random() < 0.5):
            last = self.mean(last)
        if features:
            last = self.add(lambda *_: ("cat", lambda *v: torch.cat(v, 1)), *features, last)
        last = self.add(lambda _: ("flatten", nn.Flatten()), last)
        size = self.shape[last][0]
        if self.random.random() < 0.3:
            last = self.add(lambda _: ("linear", nn.Linear(size, 16)), last)
            last, size = self.add(lambda _: ("ReLU", nn.ReLU()), last), 16
        self.add(lambda _: ("linear", nn.Linear(size, self.classes, self.random.random() < 0.8)), last)

    def forward(self, x):
        values = [x]
        for call, inputs in self.nodes:
            values.append((self.parts[call] if isinstance(call, str) else call)(*[values[i] for i in inputs]))
        return values[-1]


def answers(net, x, labels):
    """As the text above says, in float64."""
    net.double().eval()
    with torch.no_grad():
        out = {"x": x, "labels": labels, "logits": net(x.double())}
    seen = {}
    for name, module in net.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_pre_hook(lambda module, args, name=name: seen.update({name: args[0].detach()}))
    net.train()
    loss = functional.cross_entropy(net(x.double()), labels)
    loss.backward()
    out["loss"] = loss.detach().reshape(1)
    out.update({f"grad.{name}": p.grad for name, p in net.named_parameters()})
    for name, value in seen.items():
        out[f"mean.{name}"], out[f"var.{name}"] = value.mean((0, 2, 3)), value.var((0, 2, 3), unbiased=True)
    return {name: value.numpy() for name, value in out.items()}


def main():
    folder, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    most = int(sys.argv[4]) if len(sys.argv) > 4 else 1 << 30
    os.makedirs(folder, exist_ok=True)
    seed = first
    while count > 0:
        torch.manual_seed(seed)
        net = Net(seed)
        if sum(p.numel() for p in net.parameters()) <= most:
            x, labels = torch.randn(SAMPLES, *net.shape[0]), torch.randint(0, net.classes, (SAMPLES,))
            at = os.path.join(folder, f"net-{seed}")
            torch.onnx.export(net, x, at + ".onnx", training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, dynamo=False, opset_version=13 + seed % 8)
            safetensors_file.write(at + ".safetensors", answers(net, x, labels))
            print(f"net-{seed}: {net.shape[0]} {' '.join(net.text)}", flush=True)
            count -= 1
        seed += 1


if __name__ == "__main__":
    main()
