#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training steps of torchvision's networks beside PyTorch's: compare_onnx_steps.py CONVOY [NETWORK...]

Each network is exported untrained, with dropout and stochastic depth 0, and takes three steps of SGD with momentum on the same pictures: in PyTorch in float64, in
PyTorch in float32, and in Convoy on one device and on its two halves (sub-devices) with batch normalisation over groups, which PyTorch is made to compute, too.
Compared: the losses, what each weight and running value has changed by, parameter counts; and the state that Convoy saves is loaded with strict=True.
Bounds: of the first loss 1e-5, of later ones 1e-3, of a tensor's change 2e-2 (relative L2), or four times what PyTorch's float32 is off by, if that is larger.
Rounding puts a value on the other side of a ReLU's kink now and then, and untrained deep networks enlarge that by orders of magnitude in three steps, in float32 of
any make: so there are several networks and pictures by seeds, the middle one of Convoy's errors counts, and the largest of PyTorch's. CVY_TEST_SEEDS=N [3].
Exit 77 without torch, torchvision, onnx or a device."""
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import warnings

try:
    import numpy as np
    import onnx  # noqa: F401 the exporter needs it
    import torch
    import torchvision  # noqa: F401
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools", "compare"))
import safetensors_file                                 # noqa: E402
import torch_networks as networks                       # noqa: E402

CONVOY = sys.argv[1]
DEVICE = os.environ.get("CVY_TEST_DEVICE", "auto")
STEPS, RATE, MOMENTUM = 3, 0.001, 0.9
FIRST_LOSS, LATER_LOSS, CHANGE, OWN = 1e-5, 1e-3, 2e-2, 4
# A tensor's change is compared where it is more than this part of the weight's size: a bias in front of a batch normalisation changes by rounding alone.
NOTHING = 1e-6


def batch_of(name):
    return 2 if name in networks.LARGE else 8


def group_norm(module, group):
    """Batch normalisation over groups of samples in a row; running values move by the mean of what the groups say."""
    def forward(x):
        parts = x.split(group)
        means, variances = zip(*[(p.mean((0, 2, 3)), p.var((0, 2, 3), unbiased=True)) for p in parts])
        with torch.no_grad():
            for running, values in ((module.running_mean, means), (module.running_var, variances)):
                running += module.momentum * (sum(v * len(p) for v, p in zip(values, parts)) / len(x) - running)
        return torch.cat([torch.nn.functional.batch_norm(p, None, None, module.weight, module.bias, True, 0, module.eps) for p in parts])
    module.forward = forward


def load(net, state):
    whole = net.state_dict()                            # with the versions of its modules, which mnasnet asks for
    whole.update(state)
    net.load_state_dict(whole, strict=True)


def numbers(state):
    return {key: value.double().numpy().copy() for key, value in state.items()}


def torch_steps(name, start, pixels, labels, dtype, group):
    """(losses, state after)"""
    net = networks.make(name, dropout=False)
    load(net, start)
    net.to(dtype)
    if group:
        for module in net.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                group_norm(module, group)
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=MOMENTUM)
    losses = []
    for x, y in zip(torch.tensor(pixels.transpose(0, 3, 1, 2).copy()).to(dtype).div(255).chunk(STEPS), torch.tensor(labels).chunk(STEPS)):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, numbers(net.state_dict())


def convoy_steps(file, at, devices, batch, group):
    save, log = at("after.safetensors"), at("log.jsonl")
    networks.run(CONVOY, "train", "--model", file, "--data", at("data"), "--classes", networks.CLASSES, "--batch", batch, "--epochs", 1, "--lr", RATE, "--momentum", MOMENTUM,
                 "--no-shuffle", "--no-eval", "--devices", devices, "--split", "even", "--save", save, "--log", log, "--quiet", *(["--bn", f"ghost:{group}"] if group else []))
    with open(log, encoding="utf-8") as f:
        losses = [line["loss"] for line in map(json.loads, f) if "step" in line and "loss" in line]
    os.remove(log)
    return losses, safetensors_file.read(save)[0]


def errors_of(losses, state, want_losses, before, want):
    """(of the first loss, of the worst later one, of the middle tensor, of the worst tensor, its name)"""
    loss = [abs(a - b) / abs(b) for a, b in zip(losses, want_losses)]
    errors = []
    for key, value in want.items():
        change = np.linalg.norm(value - before[key])
        if key.endswith("num_batches_tracked") or change <= NOTHING * (np.linalg.norm(before[key]) + 1e-3):
            continue
        errors.append((np.linalg.norm(state[key].astype(np.float64) - value) / change, key))
    errors.sort()
    return loss[0], max(loss[1:]), errors[len(errors) // 2][0], *errors[-1]


def compare(name, seed, at):
    side, batch = networks.side_of(name), batch_of(name)
    net = networks.make(name, dropout=False, seed=seed)
    networks.export(net, side, at("net.onnx"))          # which runs the network once and moves its running values
    start, before = {key: value.clone() for key, value in net.state_dict().items()}, numbers(net.state_dict())
    random = np.random.default_rng(seed)
    pixels, labels = random.integers(0, 256, (STEPS * batch, side, side, 3), dtype=np.uint8), random.integers(0, networks.CLASSES, STEPS * batch)
    os.makedirs(at("data"))
    for part in ("train", "t10k"):
        with open(at(f"data/{part}-images-idx4-ubyte"), "wb") as f:
            f.write(struct.pack(">5I", 0x804, *pixels.shape) + pixels.tobytes())
        with open(at(f"data/{part}-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">2I", 0x801, len(labels)) + labels.astype(np.uint8).tobytes())
    listed = networks.run(CONVOY, "net", at("net.onnx"))
    params = sum(p.numel() for p in net.parameters())
    if f"\n{params} parameters in " not in listed:
        raise RuntimeError(f"`convoy net` does not say {params} parameters")
    rows = []
    for devices, group in ((DEVICE, None), (DEVICE + "/=2", batch // 2)):
        want_losses, want = torch_steps(name, start, pixels, labels, torch.float64, group)
        losses, state = torch_steps(name, start, pixels, labels, torch.float32, group)
        own = errors_of(losses, state, want_losses, before, want)
        losses, state = convoy_steps(at("net.onnx"), at, devices, batch, group)
        if len(losses) != STEPS or set(state) != set(want):
            raise RuntimeError(f"{devices}: {len(losses)} steps, tensors of one side alone {sorted(set(state) ^ set(want))[:5]}")
        rows.append((errors_of(losses, state, want_losses, before, want), own))
        load(net, {key: torch.from_numpy(value) for key, value in state.items()})
    return rows


def judge(seeds):
    """What is wrong with the errors of one network on one team, and a line about them."""
    found = [statistics.median(row[k] for row, _ in seeds) for k in range(4)]
    own = [max(row[k] for _, row in seeds) for k in range(4)]
    wrong = []
    for what, e, bound, o in zip(("first loss", "later losses", "middle tensor", f"worst tensor ({seeds[0][0][4]})"), found, (FIRST_LOSS, LATER_LOSS, CHANGE, CHANGE), own):
        if not e <= max(bound, OWN * o):
            wrong.append(f"{what} {e:.1e}, at most {max(bound, OWN * o):.1e}")
    return wrong, "losses {:.1e} {:.1e}, tensors {:.1e} {:.1e}".format(*found) + " (float32 {:.1e} {:.1e}, {:.1e} {:.1e})".format(*own)


def main():
    warnings.filterwarnings("ignore")
    failed = 0
    if subprocess.run([CONVOY, "devices"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        print("skipped: no device")
        return 77
    for name in sys.argv[2:] or networks.NETWORKS:
        start = time.monotonic()
        try:
            seeds = []
            for seed in range(int(os.environ.get("CVY_TEST_SEEDS", "3"))):
                with tempfile.TemporaryDirectory() as folder:
                    seeds.append(compare(name, seed, lambda file, folder=folder: os.path.join(folder, file)))
            (wrong, whole), (wrong_halves, halves) = judge([rows[0] for rows in seeds]), judge([rows[1] for rows in seeds])
            wrong, text = wrong + wrong_halves, f"one device: {whole}; halves: {halves}"
        except RuntimeError as e:
            wrong, text = [str(e)[:500]], ""
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok    '} {name}: {'; '.join(wrong + [text])}  {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
