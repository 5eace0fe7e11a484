#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's modules in Convoy: torch_test.py CONVOY GROUP [NETWORK…]   (NETWORK: of the group torch_networks alone; CVY_TEST_SKIP: names that are left out)

Each network is made with random weights and running values. Compared with PyTorch in float64: the logits in evaluation mode, relative to the largest one;
the loss of the first step of SGD, and what the step changes, as one vector over all parameters (relative L2). PyTorch's own float32 error widens a bound
to four times itself, since a value on the other side of a ReLU's kink changes gradients of a deep network without a bound."""
import copy
import os
import sys
import tempfile
import time
import warnings
from collections import OrderedDict

import numpy as np

from python_test import main, raises

try:
    import onnx  # noqa: F401 the exporter needs it
    import torch
    from torch import nn
except ImportError as reason:
    print(f"skipped: {reason}")
    sys.exit(77)

import convoy  # noqa: E402

LOGITS, FIRST_LOSS, UPDATE, OWN = 1e-4, 1e-4, 2e-2, 4
RATE, MOMENTUM = 0.05, 0.9
CLASSES = 10


# ---- networks ----


class Block(nn.Module):
    """A residual block with squeeze and excitation."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 4, 1), nn.SiLU(), nn.Conv2d(4, channels, 1), nn.Sigmoid())

    def forward(self, x):
        y = self.norm(self.conv(x))
        return torch.relu(x + y * self.gate(y))


class Branches(nn.Module):
    """Branches of one input, and equal first values in several layers."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 8, 1), nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(3))  # all ones and zeros
        self.scale = nn.Parameter(torch.full((16, 1, 1), 0.5))
        self.fc = nn.Linear(16, CLASSES, bias=False)

    def forward(self, x):
        y = torch.cat([self.left(x), torch.nn.functional.max_pool2d(self.right(x), 3, 1, 1)], 1)
        for norm in self.norms:
            y = nn.functional.hardswish(norm(y))
        return self.fc((y * self.scale).mean((2, 3)))


class Centred(nn.Module):
    """Buffers that are used, and dropout."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.48, 0.45, 0.4]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.23, 0.22, 0.21]).view(1, 3, 1, 1))
        self.body = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.BatchNorm2d(12, affine=False), nn.LeakyReLU(0.1), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                                  nn.Linear(48, 20), nn.BatchNorm1d(20), nn.ReLU6(), nn.Dropout(0.0), nn.Linear(20, CLASSES))

    def forward(self, x):
        return self.body((x - self.mean) / self.std)


class Same(nn.Module):
    """A convolution of stride 2 with TensorFlow's padding, which is computed from the size of its input."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, 2)

    def forward(self, x):
        def need(n):
            if torch.is_tensor(n):  # while it is traced
                return torch.clamp(((n / 2).ceil() - 1) * 2 + 3 - n, min=0)
            return max((-(-n // 2) - 1) * 2 + 3 - n, 0)
        down, right = (need(n) for n in x.size()[-2:])
        return self.conv(nn.functional.pad(x, [right // 2, right - right // 2, down // 2, down - down // 2]))


class Shuffle(nn.Module):
    """A channel shuffle, as people write it."""

    def forward(self, x):
        n, c, h, w = x.shape
        return x.view(n, 4, c // 4, h, w).transpose(1, 2).reshape(n, c, h, w)


SMALL = {
    "plain": lambda: nn.Sequential(nn.Conv2d(3, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(576, CLASSES)),
    "blocks": lambda: nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), Block(16), nn.MaxPool2d(3, 2, 1), Block(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES)),
    "branches": Branches,
    "centred": Centred,
    "padded": lambda: nn.Sequential(Same(3, 8), nn.ReLU(), Same(8, 16), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES)),
    "depthwise": lambda: nn.Sequential(nn.Conv2d(3, 16, 3, padding="same"), nn.BatchNorm2d(16), nn.GELU(), nn.Conv2d(16, 16, 3, 2, 1, groups=16), nn.BatchNorm2d(16),
                                       nn.Hardswish(), Shuffle(), nn.Conv2d(16, 24, 1, groups=4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, CLASSES)),
}
VISION = {name: 64 for name in ("resnet18", "resnet34", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small", "mnasnet0_5",
                                "densenet121", "googlenet", "efficientnet_b0", "regnet_x_400mf", "regnet_y_400mf", "shufflenet_v2_x0_5")}
VISION.update(vgg11_bn=224, alexnet=224)
TIMM = {name: 64 for name in ("resnet26d", "resnet14t", "seresnet18", "res2net50_26w_4s", "mobilenetv2_050", "mobilenetv3_small_050", "mobilenetv3_large_075", "efficientnet_lite0", "mixnet_s",
                              "tf_efficientnet_b0", "tf_mobilenetv3_small_075",
                              "mnasnet_050", "semnasnet_075", "fbnetc_100", "spnasnet_100", "ghostnet_050", "regnetx_002", "regnety_002", "dla34",
                              "dla46_c", "resnetv2_50", "selecsls42b", "tinynet_e", "lcnet_035", "cspresnet50", "cspdarknet53", "vovnet39a", "ese_vovnet19b_dw", "hardcorenas_a",
                              "gernet_s", "mobilenetv4_conv_small", "darknet17", "repvgg_a0")}


def make(name, seed=7):
    """(module, shape of an image): a network without layers that draw, with running values that are not 0 and 1."""
    torch.manual_seed(seed)
    kind, plain = name.split(":") if ":" in name else ("", name)
    if kind == "timm":
        import timm
        module, side = timm.create_model(plain, pretrained=False, num_classes=CLASSES), TIMM[plain]
    elif kind == "torchvision":
        import torchvision
        more = {"googlenet": {"aux_logits": False, "init_weights": False}, "efficientnet_b0": {"stochastic_depth_prob": 0.0}}.get(plain, {})
        module, side = getattr(torchvision.models, plain)(weights=None, num_classes=CLASSES, **more), VISION[plain]
    else:
        module, side = SMALL[plain](), 32
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if getattr(part, "drop_prob", None):
            part.drop_prob = 0.0
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.8, 1.2)
            part.num_batches_tracked.fill_(5)
    return module, (3, side, side)


def copies(module):
    """All that may change: tensors, and what is set of each module and parameter."""
    return ({name: value.clone() for name, value in module.state_dict().items()}, [m.training for m in module.modules()],
            [(p.requires_grad, p.device, p.dtype, p.data_ptr()) for p in module.parameters()], torch.get_rng_state())


def same(a, b):
    return set(a[0]) == set(b[0]) and all(torch.equal(value, b[0][name]) for name, value in a[0].items()) and a[1:3] == b[1:3] and torch.equal(a[3], b[3])


# ---- comparisons ----


def far(found, wanted):
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-30))


def logits_of(module, x, dtype):
    with torch.no_grad():
        return copy.deepcopy(module).to(dtype).eval()(torch.from_numpy(x).to(dtype)).double().numpy()


def step_of(module, pixels, labels, dtype):
    """(loss, state after a step)"""
    net = copy.deepcopy(module).to(dtype).train()
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=MOMENTUM)
    loss = nn.functional.cross_entropy(net(torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()).to(dtype) / 255), torch.from_numpy(labels))
    loss.backward()
    optimizer.step()
    return loss.item(), {name: value.double().numpy() for name, value in net.state_dict().items()}


def update_error(found, wanted, before):
    """Of all parameters and running values together."""
    names = [name for name, value in wanted.items() if value.ndim and not np.array_equal(value, before[name])]
    change = sum(((wanted[name] - before[name]) ** 2).sum() for name in names)
    return float((sum(((found[name] - wanted[name]) ** 2).sum() for name in names) / change) ** 0.5)


def compare(name, devices="auto", batch=8):
    """One network from end to end: (what is wrong, a line of numbers)."""
    module, shape = make(name)
    batch = 4 if shape[1] > 96 else batch
    before = copies(module)
    model = convoy.from_torch(module, shape, devices=devices)
    assert same(before, copies(module)), "the module was changed"
    start = module.state_dict()
    assert list(model.state_dict()) == list(start) and all(torch.equal(value, start[key]) and value.dtype == start[key].dtype for key, value in model.state_dict().items())
    draw, wrong = np.random.RandomState(3), []
    pixels, labels = draw.randint(0, 256, (batch, *shape[1:], 3)).astype(np.uint8), draw.randint(0, CLASSES, batch)
    numbers = {key: value.double().numpy() for key, value in start.items()}
    with convoy.Trainer(model, devices=devices, batch=batch, lr=RATE, momentum=MOMENTUM, shuffle=False, tune="off") as run:
        state = run.state_dict()
        assert set(state) == set(start) and all(np.array_equal(state[key], value.numpy()) and state[key].shape == tuple(value.shape) for key, value in start.items()), "a tensor did not arrive"
        x = draw.normal(size=(2, *shape)).astype(np.float32)
        wanted = logits_of(module, x, torch.float64)
        off, own = far(run.predict(x, logits=True), wanted), far(logits_of(module, x, torch.float32), wanted)
        if not off <= max(LOGITS, OWN * own):
            wrong.append(f"logits {off:.1e}, float32 {own:.1e}")
        run.fit((pixels, labels), epochs=1, max_steps=1, evaluate=False, quiet=True)
        loss = run.history.steps["loss"][0]
    want_loss, want = step_of(module, pixels, labels, torch.float64)
    own_loss, own_state = step_of(module, pixels, labels, torch.float32)
    found = model.state_dict()
    e_loss, e_own_loss = abs(loss - want_loss) / want_loss, abs(own_loss - want_loss) / want_loss
    e, e_own = update_error({key: value.double().numpy() for key, value in found.items()}, want, numbers), update_error(own_state, want, numbers)
    if not e_loss <= max(FIRST_LOSS, OWN * e_own_loss):
        wrong.append(f"loss {e_loss:.1e}, float32 {e_own_loss:.1e}")
    if not e <= max(UPDATE, OWN * e_own):
        wrong.append(f"update {e:.1e}, float32 {e_own:.1e}")
    counts = {key: int(value) for key, value in found.items() if key.endswith("num_batches_tracked")}
    if any(count != int(want[key]) for key, count in counts.items()):
        wrong.append(f"num_batches_tracked {sorted(set(counts.values()))}")
    other, _ = make(name, seed=8)
    other.load_state_dict(found, strict=True)
    assert all(torch.equal(value, found[key]) for key, value in other.state_dict().items())
    model.close()
    return wrong, f"logits {off:.1e} ({own:.1e}), loss {e_loss:.1e} ({e_own_loss:.1e}), update {e:.1e} ({e_own:.1e})"


def compare_all(names):
    failed, most = [], []
    for name in names:
        begin = time.monotonic()
        try:
            wrong, text = compare(name)
        except Exception as failure:
            wrong, text = [f"{type(failure).__name__}: {failure}"[:400]], ""
        failed += [name] if wrong else []
        most.append(name)
        print(f"{'FAILED' if wrong else 'ok    '} {name}: {'; '.join([*wrong, text])}  {time.monotonic() - begin:.0f} s", flush=True)
    print(f"{len(most) - len(failed)} of {len(most)} networks")
    return failed


def has_device():
    return any(device.usable for device in convoy.devices())


# ---- groups ----


def test_torch_small(folder):
    """The small networks."""
    if not has_device():
        return 77
    assert not compare_all(SMALL)
    return 0


def test_torch_networks(folder):
    """The networks of torchvision and timm that are there."""
    if not has_device():
        return 77
    names = []
    for package, networks in (("torchvision", VISION), ("timm", TIMM)):
        try:
            __import__(package)
            names += [f"{package}:{name}" for name in networks]
        except ImportError as reason:
            print(f"without {package}'s networks: {reason}")
    chosen = [name for name in names if name.split(":")[1] in sys.argv[3:] or not sys.argv[3:]]
    chosen = [name for name in chosen if name not in os.environ.get("CVY_TEST_SKIP", "").split()]
    if not chosen:
        return 77
    assert not compare_all(chosen)
    return 0


def test_torch_contract(folder):
    """What cannot arrive as it is is named; what arrives keeps name, shape, value and kind. No device is opened."""
    for name in SMALL:
        for training in (True, False):
            module, shape = make(name)
            module.train(training)
            for p in list(module.parameters())[:2]:
                p.requires_grad_(False)
            before = copies(module)
            with convoy.from_torch(module, shape) as model:
                assert same(before, copies(module)), f"{name}: the module was changed"
                assert model.shape == shape and model.classes == CLASSES and f"{len(before[0])} tensors" in repr(model)
                state = model.state_dict()
                assert list(state) == list(before[0]) and all(torch.equal(value, before[0][key]) for key, value in state.items())
                module.load_state_dict(state, strict=True)
            raises(convoy.ClosedError, "closed", model.state_dict)
    # half precision, and weights of zeros and of equal values
    half = SMALL["plain"]().half()
    nn.init.zeros_(half[0].bias), nn.init.zeros_(half[3].bias), nn.init.constant_(half[3].weight, 0.25), nn.init.constant_(half[7].weight, 0.25)
    with convoy.from_torch(half, (3, 32, 32)) as model:
        assert torch.equal(model.state_dict()["3.weight"], half[3].weight.float()) and half[3].weight.dtype == torch.float16

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused, self.fc = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3), nn.Linear(8, 4)
            self.register_buffer("table", torch.zeros(3))

        def forward(self, x):
            return self.fc(self.used(x).mean((2, 3)))

    error = raises(convoy.UnsupportedError, "unused.weight", convoy.from_torch, Odd(), (3, 16, 16))
    assert "unused.bias" in str(error) and "table" in str(error) and "3 would not arrive" in str(error) and "used.weight is" not in str(error).replace("unused.weight is", ""), error
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3)), nn.Flatten(), nn.Linear(8 * 14 * 14, 4))
    raises(convoy.UnsupportedError, "Sequential: node '/0/weight/weight.0/ReduceL2' (ReduceL2): operator not supported", convoy.from_torch, normed, (3, 16, 16))
    shared = nn.Conv2d(8, 8, 3, padding=1)
    raises(convoy.UnsupportedError, "share", convoy.from_torch, nn.Sequential(nn.Conv2d(3, 8, 1), shared, nn.ReLU(), shared, nn.Flatten(), nn.Linear(8 * 64, 4)), (3, 8, 8))
    raises(convoy.UnsupportedError, "3 outputs", convoy.from_torch, nn.Sequential(nn.Flatten(2), nn.LSTM(64, 4)), (3, 8, 8))
    raises(convoy.UnsupportedError, "exporter", convoy.from_torch, nn.Sequential(nn.Linear(5, 4)), (3, 8, 8))
    with tempfile.TemporaryFile() as said:  # the exporter prints the graph of a module that it cannot export, past sys.stdout
        kept = os.dup(1)
        os.dup2(said.fileno(), 1)
        try:
            raises(convoy.UnsupportedError, "channel_shuffle", convoy.from_torch, nn.Sequential(nn.ChannelShuffle(3), nn.Flatten(), nn.Linear(192, 4)), (3, 8, 8))
        finally:
            os.dup2(kept, 1), os.close(kept)
        assert said.seek(0, os.SEEK_END) == 0, "the exporter's graph was printed"
    raises(convoy.UnsupportedError, "0.weight", convoy.from_torch, nn.Sequential(nn.LazyConv2d(4, 3)), (3, 8, 8))
    raises(convoy.ArgumentError, "torch.nn.Module", convoy.from_torch, "net", (3, 8, 8))
    raises(convoy.ArgumentError, "input_shape", convoy.from_torch, SMALL["plain"](), (32, 32))
    raises(convoy.ArgumentError, "wraps", convoy.from_torch, nn.DataParallel(SMALL["plain"]()), (3, 32, 32))
    raises(convoy.ArgumentError, ".onnx", convoy.from_torch, SMALL["plain"](), (3, 32, 32), file=os.path.join(folder, "net"))


def test_torch_use(folder):
    """Predictions before and after training, a file that is kept, fixed normalisations, several trainers."""
    if not has_device():
        return 77
    module, shape = make("blocks")
    path = os.path.join(folder, "net.onnx")
    draw = np.random.RandomState(1)
    pixels, labels = draw.randint(0, 256, (32, 32, 32, 3)).astype(np.uint8), draw.randint(0, 4, 32)
    x = pixels.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    softmax = lambda a: np.exp(a - a.max(1, keepdims=True)) / np.exp(a - a.max(1, keepdims=True)).sum(1, keepdims=True)
    with convoy.from_torch(module, shape, file=path, devices="0:0", batch=16) as model:
        assert np.abs(model.predict(pixels) - softmax(logits_of(module, x, torch.float64))).max() < 1e-5
        with convoy.Trainer(model, devices="0:0", batch=16, lr=0.05, normalize="dataset", checkpoint=os.path.join(folder, "ck")) as run:
            run.fit((pixels, labels), epochs=2, quiet=True, evaluate=False)  # fewer classes than outputs
            run.save(os.path.join(folder, "w.safetensors"))
            probabilities = run.predict(pixels)
        assert np.abs(model.predict(pixels) - probabilities).max() < 1e-5, "predictions have other weights, or another normalisation"
        assert int(model.state_dict()["1.norm.num_batches_tracked"]) == 5 + 4
        module.load_state_dict(model.state_dict())
        mean, std = x.mean((0, 2, 3), dtype=np.float64)[:, None, None], x.std((0, 2, 3), dtype=np.float64)[:, None, None]
        assert np.abs(probabilities - softmax(logits_of(module, ((x - mean) / std).astype(np.float32), torch.float64))).max() < 1e-4
        # the next trainer goes on with these weights; another one with `init` does not
        with convoy.Trainer(model, devices="0:0", batch=16) as run, convoy.Trainer(model, devices="0:0", batch=16, init="he") as fresh:
            assert np.array_equal(run.state_dict()["6.weight"], module[6].weight.detach().numpy())
            assert not np.array_equal(fresh.state_dict()["6.weight"], run.state_dict()["6.weight"])
        with convoy.Trainer(model, devices="0:0", batch=16, lr=0.05, normalize="dataset", checkpoint=os.path.join(folder, "ck"), resume=True) as run:
            assert run.fit((pixels, labels), epochs=2, quiet=True, evaluate=False).already_finished
        raises(convoy.MismatchError, "3x32x32", convoy.Trainer(model, devices="0:0").fit, (pixels[:, :16], labels))
        raises(convoy.MismatchError, "10 outputs", convoy.Trainer(model, devices="0:0").fit, (pixels, labels + 9))
        model.save(os.path.join(folder, "s.safetensors"))
    with convoy.Model(os.path.join(folder, "w.safetensors"), "0:0") as later:
        assert np.abs(later.predict(pixels) - probabilities).max() < 1e-5
    from convoy import tensors
    assert set(tensors.read(os.path.join(folder, "s.safetensors"))) == set(module.state_dict())
    # a normalisation in evaluation mode beside others in training mode is fixed
    module, _ = make("blocks")
    module.train()
    module[1].norm.eval()
    with convoy.from_torch(module, shape) as model, convoy.Trainer(model, devices="0:0", batch=16, lr=0.05) as run:
        before = {name: value.clone() for name, value in module.state_dict().items()}
        run.fit((pixels, labels), epochs=1, quiet=True, evaluate=False)
        after = model.state_dict()
        assert torch.equal(after["1.norm.running_mean"], before["1.norm.running_mean"]) and not torch.equal(after["1.norm.weight"], before["1.norm.weight"])
        assert not torch.equal(after["3.norm.running_mean"], before["3.norm.running_mean"])
        assert int(after["1.norm.num_batches_tracked"]) == 5 and int(after["3.norm.num_batches_tracked"]) == 7
    return 0


def test_torch_layers(folder):
    """convoy.nn beside the same layers of torch.nn: names, shapes, logits."""
    from convoy import nn as own
    if not has_device():
        return 77

    class Residual(nn.Module):
        def __init__(self, body, shortcut=None, times=False):
            super().__init__()
            self.body, self.times = body, times
            if shortcut is not None:
                self.shortcut = shortcut

        def forward(self, x):
            other = self.shortcut(x) if hasattr(self, "shortcut") else x
            return self.body(x) * other if self.times else self.body(x) + other

    class Concat(nn.ModuleList):
        def forward(self, x):
            return torch.cat([branch(x) for branch in self], 1)

    class Slice(nn.Module):
        def forward(self, x):
            return x[:, 1:8:2]

    pairs = [
        (own.Sequential(own.Conv2d(12, 3, padding=1, stride=2, bias=False), own.BatchNorm2d(momentum=0.2), own.LeakyReLU(0.2),
                        own.Residual(own.Sequential(own.Conv2d(24, 3, padding="same", groups=4), own.BatchNorm2d(), own.SiLU()), own.Conv2d(24, 1)), own.ReLU6(),
                        own.Gate(own.Sequential(own.AdaptiveAvgPool2d(), own.Conv2d(24, 1), own.Hardsigmoid())), own.MaxPool2d(3, 2, 1), own.Flatten(), own.Linear(7)),
         nn.Sequential(nn.LazyConv2d(12, 3, padding=1, stride=2, bias=False), nn.LazyBatchNorm2d(momentum=0.2), nn.LeakyReLU(0.2),
                       Residual(nn.Sequential(nn.LazyConv2d(24, 3, padding="same", groups=4), nn.LazyBatchNorm2d(), nn.SiLU()), nn.LazyConv2d(24, 1)), nn.ReLU6(),
                       Residual(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.LazyConv2d(24, 1), nn.Hardsigmoid()), times=True), nn.MaxPool2d(3, 2, 1), nn.Flatten(), nn.LazyLinear(7))),
        (own.Sequential({"stem": own.Conv2d(8, (5, 3), padding=(2, 1), dilation=1), "act": own.GELU(), "many": own.Concat(own.Conv2d(4, 1), own.Sequential(own.Tanh(), own.Conv2d(4, 3, padding=1)),
                         own.AvgPool2d(3, 1, 1)), "some": own.Slice(1, 4, 2), "mix": own.ChannelShuffle(2), "pool": own.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
                         "act2": own.Hardswish(), "drop": own.Dropout(0.3), "grid": own.AdaptiveAvgPool2d(2), "flat": own.Flatten(), "fc": own.Linear(20, bias=False),
                         "norm": own.BatchNorm1d(), "act3": own.Sigmoid(), "out": own.Linear(5)}),
         nn.Sequential(OrderedDict(
             stem=nn.LazyConv2d(8, (5, 3), padding=(2, 1)), act=nn.GELU(), many=Concat([nn.LazyConv2d(4, 1), nn.Sequential(nn.Tanh(), nn.LazyConv2d(4, 3, padding=1)), nn.AvgPool2d(3, 1, 1)]),
             some=Slice(), mix=nn.ChannelShuffle(2), pool=nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), act2=nn.Hardswish(), drop=nn.Dropout(0.3),
             grid=nn.AdaptiveAvgPool2d(2), flat=nn.Flatten(), fc=nn.LazyLinear(20, bias=False), norm=nn.LazyBatchNorm1d(), act3=nn.Sigmoid(), out=nn.LazyLinear(5)))),
    ]
    x = np.random.RandomState(2).normal(size=(3, 3, 15, 15)).astype(np.float32)
    for ours, theirs in pairs:
        theirs.eval()(torch.from_numpy(x))
        for m in theirs.modules():
            if isinstance(m, nn.modules.batchnorm._BatchNorm):
                nn.init.uniform_(m.weight, 0.5, 1.5), nn.init.normal_(m.bias), m.running_mean.normal_(), m.running_var.uniform_(0.5, 2)
        with convoy.Trainer(ours, devices="0:0", batch=3, input_shape=(3, 15, 15), classes=5) as run:
            assert list(run.state_dict()) == list(theirs.state_dict()), (list(run.state_dict()), list(theirs.state_dict()))
            run.load_state_dict(theirs.state_dict())
            wanted = logits_of(theirs, x, torch.float64)
            assert far(run.predict(x, logits=True), wanted) < 1e-5, far(run.predict(x, logits=True), wanted)
    return 0


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(2)
    main(globals())
