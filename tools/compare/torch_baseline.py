#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch on the same work as `convoy train`, to be timed beside it in one run.

Trains the networks that the project is about, on random Fashion-MNIST-shaped batches (with
--eval: runs them forward, without gradients), or one of torchvision's, and prints one line per configuration, each
run in a process of its own:

    task=train model=resnet18 device=cpu layout=nhwc mode=eager batch=256 img_s=.. img_s_median=.. gflops=.. peak_mib=..

img_s is from the fastest step, img_s_median from the median one; peak_mib is the process's resident peak,
on cuda the allocator's.
gflops is img_s x the model's multiply-adds x 2 (forward + both backwards, no data gradient
for the first convolution; with --eval forward alone): 2.734 GFLOP per trained image for
resnet18, so that it can be compared with a measured FMA peak.  With --amp forward and loss are under bf16 autocast, and
the line says amp=bf16.  Needs `pip install torch numpy`.  Examples:

    torch_baseline.py --model resnet18 --batch 256 --steps 3
    torch_baseline.py --model lenet --batch 256 --steps 200 --layout nchw --mode eager
    torch_baseline.py --device cuda --steps 50 --tf32 0
    torch_baseline.py --model mobilenet_v2 --size 64 --batch 32 --steps 5
    torch_baseline.py --model mobilenet_v2 --size 64 --export mobilenet_v2_64.onnx

Other names are torchvision's, with 1000 classes and coloured images of --size x --size (which needs torchvision);
their multiply-adds are counted by running them once. --export writes the network for `convoy train --model F` instead
(which needs onnx).
"""
import argparse
import resource
import statistics
import subprocess
import sys
import time

import torch
from torch import nn

GFLOP_PER_IMAGE = {
    "train": {"resnet18": 2.734, "lenet": 0.01326},
    "eval": {"resnet18": 0.9116, "lenet": 0.004501},
}


class Residual(nn.Module):
    def __init__(self, c_in, c_out, stride=1, project=False):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, padding=1, stride=stride)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1)
        self.conv3 = nn.Conv2d(c_in, c_out, 1, stride=stride) if project else None
        self.bn1 = nn.BatchNorm2d(c_out)
        self.bn2 = nn.BatchNorm2d(c_out)

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + (self.conv3(x) if self.conv3 is not None else x))


def resnet18(classes=10, channels=1):
    """D2L's variant; parameter names as in its state_dict."""
    net = nn.Sequential(nn.Conv2d(channels, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
    widths = [64, 64, 128, 256, 512]
    for i in range(4):
        first = i == 0
        net.add_module(f"resnet_block{i + 1}", nn.Sequential(
            Residual(widths[i], widths[i + 1], 1 if first else 2, not first),
            Residual(widths[i + 1], widths[i + 1])))
    net.add_module("global_avg_pool", nn.AdaptiveAvgPool2d(1))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(512, classes)))
    return net


def lenet(classes=10, channels=1):
    return nn.Sequential(
        nn.Conv2d(channels, 20, 3), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, classes))


def torchvision_model(name):
    import torchvision

    try:
        maker = torchvision.models.get_model_builder(name)
    except ValueError:
        sys.exit(f"torch_baseline: --model {name}: expected resnet18, lenet or a classifier of torchvision's, such as mobilenet_v2")
    # networks with a second head train like the others without it
    heads = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return maker(weights=None, **heads)


def gflop_of(net, x, train):
    """Multiply-adds of convolutions and linear layers, times 2, of one image, counted as GFLOP_PER_IMAGE is."""
    total, first = 0.0, [True]

    def count(layer, inputs, output):
        nonlocal total
        passes = (2 if first[0] else 3) if train else 1
        first[0] = False
        taps = layer.weight[0].numel() if isinstance(layer, nn.Conv2d) else layer.in_features
        total += passes * 2.0 * taps * output[0].numel() / 1e9

    hooks = [m.register_forward_hook(count) for m in net.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    training = net.training
    net.eval()
    with torch.no_grad():
        net(x[:1])
    net.train(training)
    for hook in hooks:
        hook.remove()
    return total


def export(net, x, path):
    torch.onnx.export(net, x, path, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, dynamo=False)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="resnet18", help="resnet18, lenet (the book's), or a torchvision name")
    p.add_argument("--size", type=int, default=64, help="pixels of a side, of torchvision's networks")
    p.add_argument("--export", metavar="F", help="write the network as ONNX there and do nothing else")
    p.add_argument("--device", default="cpu")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--layout", choices=["nchw", "nhwc"], nargs="+", default=["nchw", "nhwc"])
    p.add_argument("--mode", choices=["eager", "compile"], nargs="+", default=["eager", "compile"])
    p.add_argument("--eval", action="store_true")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--tf32", type=int, default=1)
    p.add_argument("--amp", action="store_true", help="bf16 autocast")
    a = p.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = bool(a.tf32)
    torch.backends.cuda.matmul.allow_tf32 = bool(a.tf32)
    build = {"resnet18": resnet18, "lenet": lenet}.get(a.model, lambda: torchvision_model(a.model))
    shape, classes = ((1, 28, 28), 10) if a.model in ("resnet18", "lenet") else ((3, a.size, a.size), 1000)
    if a.export:
        torch.manual_seed(0)
        export(build(), torch.rand(2, *shape), a.export)
        return
    sync = torch.cuda.synchronize if a.device.startswith("cuda") else (lambda: None)
    if len(a.layout) * len(a.mode) > 1:
        for layout in a.layout:
            for mode in a.mode:
                subprocess.run([sys.executable, *sys.argv, "--layout", layout, "--mode", mode], check=True)
        return
    layout, mode = a.layout[0], a.mode[0]
    torch.manual_seed(0)
    net = build().to(a.device)
    x = torch.rand(a.batch, *shape, device=a.device)
    y = torch.randint(0, classes, (a.batch,), device=a.device)
    task = "eval" if a.eval else "train"
    gflop = GFLOP_PER_IMAGE[task].get(a.model) or gflop_of(net, x, not a.eval)
    if layout == "nhwc":
        net = net.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    loss_fn = nn.CrossEntropyLoss()
    if a.eval:
        net.eval()
    fn = torch.compile(net) if mode == "compile" else net

    def autocast():
        return torch.autocast(a.device.split(":")[0], dtype=torch.bfloat16, enabled=a.amp)

    def evaluate():
        with torch.no_grad(), autocast():
            fn(x)

    def train():
        opt.zero_grad(set_to_none=True)
        with autocast():
            loss = loss_fn(fn(x), y)
        loss.backward()
        opt.step()

    step = evaluate if a.eval else train
    for _ in range(a.warmup):
        step()
    sync()
    # A GPU is given several steps at a time, so that it never waits for Python.
    together = min(10, a.steps) if a.device.startswith("cuda") else 1
    times = []
    for _ in range(a.steps // together):
        t = time.perf_counter()
        for _ in range(together):
            step()
        sync()
        times.append((time.perf_counter() - t) / together)
    rate, median = a.batch / min(times), a.batch / statistics.median(times)
    if a.device.startswith("cuda"):
        peak = torch.cuda.max_memory_allocated() / 2**20
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"task={task} model={a.model} device={a.device} layout={layout} mode={mode} batch={a.batch} img_s={rate:.1f} "
          f"img_s_median={median:.1f} gflops={rate * gflop:.1f} peak_mib={peak:.0f}" + (" amp=bf16" if a.amp else ""), flush=True)


if __name__ == "__main__":
    main()
