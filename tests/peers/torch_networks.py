# SPDX-License-Identifier: MIT
"""torchvision's networks as the comparisons with PyTorch take them (compare_onnx.py, compare_onnx_steps.py)."""
import subprocess

import torch
import torchvision

# alexnet and the vggs: adaptive pools to 7x7 and 6x6 cannot be exported for smaller pictures, so there are fewer of them in a batch.
LARGE = ("alexnet", "vgg11_bn", "vgg16")
OPTIONS = {"googlenet": {"aux_logits": False, "init_weights": False}, "efficientnet_b0": {"stochastic_depth_prob": 0.0}}
NETWORKS = ["resnet18", "resnet34", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "vgg11_bn", "vgg16", "alexnet", "squeezenet1_1", "mobilenet_v2",
            "mobilenet_v3_small", "mnasnet0_5", "densenet121", "googlenet", "efficientnet_b0", "regnet_y_400mf"]
# These shuffle channels by Reshape and Transpose.
REFUSED = ["shufflenet_v2_x0_5"]
CLASSES = 10


def side_of(name):
    return 224 if name in LARGE else 64


def make(name, dropout=True, seed=0):
    """An untrained network of 10 classes, in training form."""
    torch.manual_seed(seed)
    net = getattr(torchvision.models, name)(weights=None, num_classes=CLASSES, **OPTIONS.get(name, {}))
    for module in net.modules():
        if not dropout and isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return net


def export(net, side, path, training=True):
    """As doc/training.md tells PyTorch's users to."""
    mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
    was = net.training
    torch.onnx.export(net, torch.randn(2, 3, side, side), path, training=mode, do_constant_folding=False, dynamo=False, opset_version=17)
    net.train(was)


def run(convoy, *args):
    """Standard output of `convoy args`; RuntimeError with what it said if it fails."""
    done = subprocess.run([convoy, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"convoy {' '.join(map(str, args))}: exit {done.returncode}: {done.stderr}")
    return done.stdout
