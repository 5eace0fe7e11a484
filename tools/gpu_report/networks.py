# SPDX-License-Identifier: MIT
"""The networks that are measured, in PyTorch: the book's two, and five of torchvision's by hand with the same names of parameters, so that a machine
without torchvision measures the same work. tools/compare/export-networks writes the five for Convoy."""
import collections

import torch
from torch import nn

import torch_baseline

COLOURED = (3, 224, 224)
CLASSES = 1000


def conv(c_in, c_out, size, stride=1, padding=None, groups=1):
    return nn.Conv2d(c_in, c_out, size, stride, (size - 1) // 2 if padding is None else padding, groups=groups, bias=False)


# ---- residual networks ----

class Bottleneck(nn.Module):
    def __init__(self, c_in, width, c_out, stride, groups):
        super().__init__()
        self.conv1, self.bn1 = conv(c_in, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride, groups=groups), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, c_out, 1), nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(conv(c_in, c_out, 1, stride), nn.BatchNorm2d(c_out)) if stride != 1 or c_in != c_out else None

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + (self.downsample(x) if self.downsample is not None else x))


class ResNet(nn.Module):
    def __init__(self, blocks=(3, 4, 6, 3), groups=1, width_per_group=64):
        super().__init__()
        self.conv1, self.bn1, self.relu = conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        c_in = 64
        for i, count in enumerate(blocks):
            plain = 64 << i
            layer = []
            for j in range(count):
                layer.append(Bottleneck(c_in, plain * width_per_group // 64 * groups, 4 * plain, 2 if i and not j else 1, groups))
                c_in = 4 * plain
            self.add_module(f"layer{i + 1}", nn.Sequential(*layer))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(c_in, CLASSES)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


# ---- MobileNetV2 ----

def conv_bn(c_in, c_out, size, stride=1, groups=1):
    return nn.Sequential(conv(c_in, c_out, size, stride, groups=groups), nn.BatchNorm2d(c_out), nn.ReLU6(inplace=True))


class Inverted(nn.Module):
    def __init__(self, c_in, c_out, stride, expand):
        super().__init__()
        hidden = c_in * expand
        self.residual = stride == 1 and c_in == c_out
        layers = [conv_bn(c_in, hidden, 1)] if expand != 1 else []
        self.conv = nn.Sequential(*layers, conv_bn(hidden, hidden, 3, stride, hidden), conv(hidden, c_out, 1), nn.BatchNorm2d(c_out))

    def forward(self, x):
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    # expansion, channels, how many, stride of the first
    STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self):
        super().__init__()
        layers, c_in = [conv_bn(3, 32, 3, 2)], 32
        for expand, c_out, count, stride in self.STAGES:
            for j in range(count):
                layers.append(Inverted(c_in, c_out, 1 if j else stride, expand))
                c_in = c_out
        self.features = nn.Sequential(*layers, conv_bn(c_in, 1280, 1))
        # torchvision's dropout of 0.2 is left out: Convoy's side must do the same work
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(1280, CLASSES))

    def forward(self, x):
        return self.classifier(torch.flatten(nn.functional.adaptive_avg_pool2d(self.features(x), 1), 1))


# ---- DenseNet-121 ----

class DenseLayer(nn.Module):
    def __init__(self, c_in, growth):
        super().__init__()
        self.norm1, self.relu1, self.conv1 = nn.BatchNorm2d(c_in), nn.ReLU(inplace=True), conv(c_in, 4 * growth, 1)
        self.norm2, self.relu2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True), conv(4 * growth, growth, 3)

    def forward(self, x):
        return self.conv2(self.relu2(self.norm2(self.conv1(self.relu1(self.norm1(x))))))


class DenseBlock(nn.ModuleDict):
    def __init__(self, count, c_in, growth):
        super().__init__({f"denselayer{i + 1}": DenseLayer(c_in + i * growth, growth) for i in range(count)})

    def forward(self, x):
        parts = [x]
        for layer in self.values():
            parts.append(layer(torch.cat(parts, 1)))
        return torch.cat(parts, 1)


class DenseNet121(nn.Module):
    def __init__(self, growth=32, blocks=(6, 12, 24, 16)):
        super().__init__()
        c, layers = 64, collections.OrderedDict(conv0=conv(3, 64, 7, 2), norm0=nn.BatchNorm2d(64), relu0=nn.ReLU(inplace=True), pool0=nn.MaxPool2d(3, 2, 1))
        for i, count in enumerate(blocks):
            layers[f"denseblock{i + 1}"] = DenseBlock(count, c, growth)
            c += count * growth
            if i < len(blocks) - 1:
                layers[f"transition{i + 1}"] = nn.Sequential(collections.OrderedDict(
                    norm=nn.BatchNorm2d(c), relu=nn.ReLU(inplace=True), conv=conv(c, c // 2, 1), pool=nn.AvgPool2d(2, 2)))
                c //= 2
        layers["norm5"] = nn.BatchNorm2d(c)
        self.features, self.classifier = nn.Sequential(layers), nn.Linear(c, CLASSES)

    def forward(self, x):
        x = nn.functional.relu(self.features(x), inplace=True)
        return self.classifier(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


# ---- VGG-11 ----

class Vgg11Bn(nn.Module):
    def __init__(self):
        super().__init__()
        layers, c_in = [], 3
        for c in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
            layers += [nn.Conv2d(c_in, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU(inplace=True)] if c else [nn.MaxPool2d(2, 2)]
            c_in = c or c_in
        self.features = nn.Sequential(*layers)
        # Identity in place of dropout, as above
        self.classifier = nn.Sequential(nn.Linear(512 * 49, 4096), nn.ReLU(True), nn.Identity(), nn.Linear(4096, 4096), nn.ReLU(True), nn.Identity(),
                                        nn.Linear(4096, CLASSES))

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


BY_HAND = {
    "resnet50": ResNet,
    "resnext50_32x4d": lambda: ResNet(groups=32, width_per_group=4),
    "mobilenet_v2": MobileNetV2,
    "densenet121": DenseNet121,
    "vgg11_bn": Vgg11Bn,
}


def build(name):
    """(network, shape of an image, classes)"""
    book = {"resnet18": torch_baseline.resnet18, "lenet": torch_baseline.lenet}
    if name in book:
        return book[name](), (1, 28, 28), 10
    return BY_HAND[name](), COLOURED, CLASSES
