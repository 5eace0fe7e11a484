#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Known answers for whole training steps, computed by PyTorch in float64.

golden.json was made by this script and is what an independent implementation must reproduce.
Needs: torch, numpy, and Fashion-MNIST from Debian's package dataset-fashion-mnist.

Weights are given by a formula, so that no file of them is needed.  Parameter tensor number t
(counted from 0 in the order of `params` in golden.json, PyTorch's names and layouts: convolution
(K,C,R,S), linear (out,in)), element i in row-major order of that layout:

    z    = splitmix64(t * 2**32 + i)                      # the state is used once, as a hash
    u    = (z >> 11) * 2**-53                             # in [0,1)
    w[i] = bound * (2*u - 1)
    bound: convolution / linear weight sqrt(6 / fan_in); bias 0.1; BN weight: 1 + 0.1*(2*u-1); BN bias 0.1
    each weight is computed in double and rounded to float32; so is each pixel, float32(p) / float32(255)

    splitmix64(x): x += 0x9E3779B97F4A7C15; x = (x ^ x>>30) * 0xBF58476D1CE4E5B9;
                   x = (x ^ x>>27) * 0x94D049BB133111EB; return x ^ x>>31       (all mod 2**64)

Batches: step s uses training images [s*B, (s+1)*B) of the training file in file order, pixels / 255.

A tensor is stored as its l2 norm, 4 elements, and 32 projections  p_k = sum_i s_k(i) * t[i],  s_k(i) = +1 or -1 by the lowest bit
of splitmix64((1000 + k) * 2**32 + i) (1 means -1). sqrt(mean_k (p_k - q_k)**2) of two tensors estimates the l2 norm of their
difference: divide by l2 for a relative error of the whole tensor. The gradient of a bias in front of BN is zero: compare with that of the BN bias.

Loss: mean over the batch of softmax cross-entropy.  Update: plain SGD, lr from the case.
A case with `split` trains as data-parallel replicas do: each share is normalised with its own
statistics (bn=device), gradients are sums over all samples / B.  With bn=sync the statistics are those
of the whole batch (the same as no split); with bn=ghost:G those of each consecutive group of G samples.
Running statistics (momentum 0.1, unbiased variance, as PyTorch): for shares or groups, each share
(group) makes its own update from the same old value, and the result is their mean weighted by samples.

`torch_fp32` in each case is PyTorch's own float32 result for the same work: the size of error that is
ordinary. Biases of convolutions in front of a BN have a true gradient of zero (rel. error set to 0 there).
"""
import gzip
import json
import math
import struct
import sys

import numpy as np
import torch
from torch import nn

sys.path.insert(0, sys.path[0] + "/../../tools/compare")
from torch_baseline import lenet, resnet18  # noqa: E402

DATA = "/usr/share/datasets/fashion-mnist/"
PROJECTIONS = 32
PIXEL = (np.arange(256, dtype=np.float32) / np.float32(255)).astype(np.float64)


def splitmix64(x):
    x = (x + np.uint64(0x9E3779B97F4A7C15))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def read_idx(name):
    raw = gzip.open(DATA + name).read()
    rank = raw[3]
    dims = struct.unpack(">" + "I" * rank, raw[4:4 + 4 * rank])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(dims)


def fill(net):
    bn_weights = {id(m.weight) for m in net.modules() if isinstance(m, nn.BatchNorm2d)}
    for t, p in enumerate(net.parameters()):
        with np.errstate(over="ignore"):
            z = splitmix64(np.arange(p.numel(), dtype=np.uint64) + np.uint64(t << 32))
        u = 2 * ((z >> np.uint64(11)).astype(np.float64) * 2.0 ** -53) - 1
        if id(p) in bn_weights:
            v = 1 + 0.1 * u
        elif p.dim() == 1:
            v = 0.1 * u
        else:
            v = math.sqrt(6 / (p.numel() // p.shape[0])) * u
        p.data = torch.from_numpy(v.astype(np.float32).astype(np.float64).reshape(tuple(p.shape)))


def shares_of(case, batch):
    if case["bn"].startswith("ghost:"):
        g = int(case["bn"].split(":")[1])
        return [g] * (batch // g) + ([batch % g] if batch % g else [])
    if case["bn"] == "sync" or not case.get("split"):
        return [batch]
    return case["split"]


def signs(k, n):
    with np.errstate(over="ignore"):
        z = splitmix64(np.arange(n, dtype=np.uint64) + np.uint64((1000 + k) << 32))
    return torch.from_numpy(1.0 - 2.0 * (z & np.uint64(1)).astype(np.float64))


def digest(t):
    f = t.detach().double().reshape(-1)
    pick = [(k * 7919) % f.numel() for k in range(4)]
    proj = [(signs(k, f.numel()) * f).sum().item() for k in range(PROJECTIONS)]
    return {"l2": f.norm().item(), "at": pick, "values": [f[k].item() for k in pick], "projections": proj}


def run(case, images, labels, test_images, dtype=torch.float64):
    net = {"lenet": lenet, "resnet18": resnet18}[case["model"]]()
    fill(net)
    net = net.to(dtype)
    batch, lr = case["batch"], case["lr"]
    loss_fn = nn.CrossEntropyLoss(reduction="sum")
    out = {**case, "params": [[n, list(p.shape)] for n, p in net.named_parameters()], "losses": []}
    for s in range(case["steps"]):
        x = torch.from_numpy(PIXEL[images[s * batch:(s + 1) * batch]]).unsqueeze(1).to(dtype)
        y = torch.from_numpy(labels[s * batch:(s + 1) * batch].astype(np.int64))
        net.train()
        net.zero_grad(set_to_none=True)
        old = {n: b.clone() for n, b in net.named_buffers()}
        mean = {n: torch.zeros_like(b) for n, b in old.items() if b.is_floating_point()}
        total, at = 0.0, 0
        for n in shares_of(case, batch):
            for name, b in net.named_buffers():
                b.copy_(old[name])
            loss = loss_fn(net(x[at:at + n]), y[at:at + n]) / batch
            loss.backward()
            total += loss.item()
            for name, b in net.named_buffers():
                if name in mean:
                    mean[name] += b * (n / batch)
            at += n
        for name, b in net.named_buffers():
            if name in mean:
                b.copy_(mean[name])
        out["losses"].append(total)
        if s == 0:
            out["grad_tensors"] = [p.grad.double().clone() for p in net.parameters()]
            out["grads"] = [digest(p.grad) for p in net.parameters()]
        with torch.no_grad():
            for p in net.parameters():
                p -= lr * p.grad
    out["weights"] = [digest(p) for p in net.parameters()]
    out["buffers"] = [[n, digest(b)] for n, b in net.named_buffers() if b.is_floating_point()]
    net.eval()
    with torch.no_grad():
        x = torch.from_numpy(PIXEL[test_images[:4]]).unsqueeze(1).to(dtype)
        out["eval_logits"] = net(x).tolist()
    return out


def lines_of(value, depth=0):
    """JSON with one tensor a line: cases and what they list are broken, what lies deeper stands in its line."""
    named = isinstance(value, dict)
    if depth > 2 or not (named or isinstance(value, list) and any(isinstance(v, (list, dict)) for v in value)):
        return json.dumps(value)
    inner = [(json.dumps(k) + ": " if named else "") + lines_of(v, depth + 1) for k, v in (value.items() if named else enumerate(value))]
    opening, closing = "{}" if named else "[]"
    return opening + "\n" + ",\n".join(" " * (depth + 1) + line for line in inner) + "\n" + " " * depth + closing


def main():
    images, labels = read_idx("train-images-idx3-ubyte.gz"), read_idx("train-labels-idx1-ubyte.gz")
    test_images = read_idx("t10k-images-idx3-ubyte.gz")
    cases = [
        {"name": "lenet-1", "model": "lenet", "batch": 32, "steps": 3, "lr": 0.1, "bn": "device"},
        {"name": "resnet18-1", "model": "resnet18", "batch": 16, "steps": 2, "lr": 0.002, "bn": "device"},
        {"name": "resnet18-split", "model": "resnet18", "batch": 16, "steps": 2, "lr": 0.002, "bn": "device", "split": [10, 6]},
        {"name": "resnet18-ghost", "model": "resnet18", "batch": 16, "steps": 2, "lr": 0.002, "bn": "ghost:4"},
    ]
    if len(sys.argv) > 2:
        cases = json.load(open(sys.argv[2]))
    result = []
    for c in cases:
        exact = run(c, images, labels, test_images)
        single = run(c, images, labels, test_images, torch.float32)
        rel = [((a - b).norm() / b.norm()).item() if b.norm() > 1e-9 else 0.0
               for a, b in zip(single.pop("grad_tensors"), exact.pop("grad_tensors"))]
        exact["torch_fp32"] = {"grad_rel_error": rel, "losses": single["losses"],
                               "eval_logits": single["eval_logits"]}
        result.append(exact)
    with open(sys.argv[1] if len(sys.argv) > 1 else "golden.json", "w") as f:
        f.write(lines_of(result) + "\n")
    for r in result:
        rel = sorted(r["torch_fp32"]["grad_rel_error"])
        print(r["name"], r["losses"], r["torch_fp32"]["losses"], "fp32 grad rel error: median %.1e max %.1e" % (rel[len(rel) // 2], rel[-1]))


if __name__ == "__main__":
    main()
