#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How often a ReLU falls on the other side of its kink, and where: compare_onnx_kinks.py CONVOY [--seeds N] [--algos 'A B'] [--show] [NETWORK...]

Each untrained network takes one step on six pictures of 64x64, in PyTorch in float64 and float32 and in Convoy with each algorithm (`auto` is what the program takes by itself).
Convoy's gradients are (weights before - weights after) / rate with a rate of 2^19, at which the rounding of the weights does not count. Printed: for each seed the relative
error of the whole gradient, and for each algorithm how many steps have one on the other side: an error of more than twenty times the network's least one, or 3e-4.
--show proves it: of the inputs of all ReLUs those nearest to 0 are put on the other side, one after the other, in float64; the error that is left says whether these units alone
explain Convoy's gradient. Each is printed with its layer, sample, channel, row and column, its value in float64, and the root mean square of its layer.
Exit 77 without torch, torchvision, onnx, timm (for its networks) or a device."""
import argparse
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnx  # noqa: F401 the exporter needs it
    import torch
    import torchvision
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools", "compare"))
import safetensors_file                                 # noqa: E402
import torch_networks as networks                       # noqa: E402

NETWORKS = ["resnet18", "resnet34", "mobilenet_v2", "mnasnet0_5", "regnet_y_400mf", "squeezenet1_1", "repvgg_a0", "repvgg_b0", "seresnet18", "resnet26d"]
SIDE, BATCH, RATE, FLIPPED, MOST, CANDIDATES = 64, 6, 2.0 ** 19, 20, 3e-4, 64
DEVICE = os.environ.get("CVY_TEST_DEVICE", "auto")


def make(name, seed):
    if hasattr(torchvision.models, name):
        return networks.make(name, dropout=False, seed=seed)
    import timm
    torch.manual_seed(seed)
    return timm.create_model(name, num_classes=networks.CLASSES)


class Relu(torch.autograd.Function):
    """Derivative 1 where the input is in (0, most); at `turned` places it is the other one."""
    @staticmethod
    def forward(ctx, x, most, turned):
        inside = (x > 0) & (x < most)
        for place in turned:
            inside.view(-1)[place] ^= True
        ctx.save_for_backward(inside)
        return x.clamp(0, most)

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None, None


def watch(net, turned, seen):
    """Makes the ReLUs of the network Relus; seen gets [(name, input…)]. turned: {name: places}."""
    for name, module in net.named_modules():
        if isinstance(module, (torch.nn.ReLU, torch.nn.ReLU6)):
            most = 6.0 if isinstance(module, torch.nn.ReLU6) else float("inf")

            def forward(x, name=name, most=most, calls=[0]):
                key = (name, calls[0])                  # a module may be used several times
                calls[0] += 1
                seen.append((key, x.detach(), most))
                return Relu.apply(x, most, turned.get(key, ()))
            module.forward = forward


def torch_gradient(name, seed, start, x, labels, dtype, turned=None, seen=None):
    net = make(name, seed)
    whole = net.state_dict()                            # with the versions of its modules, which mnasnet asks for
    whole.update(start)
    net.load_state_dict(whole)
    net.to(dtype).train()
    if turned is not None:
        watch(net, turned, seen)
    torch.nn.functional.cross_entropy(net(x.to(dtype)), labels).backward()
    return {key: p.grad.double().numpy() for key, p in net.named_parameters()}


def flat(gradient, keys):
    return np.concatenate([gradient[key].ravel() for key in keys])


def convoy_gradient(convoy, at, algo, before):
    for file in ("after.safetensors", "log.jsonl"):
        if os.path.exists(at(file)):
            os.remove(at(file))
    networks.run(convoy, "train", "--model", at("net.onnx"), "--data", at("data"), "--classes", networks.CLASSES, "--batch", BATCH, "--epochs", 1, "--lr", RATE, "--no-shuffle",
                 "--no-eval", "--devices", DEVICE, "--save", at("after.safetensors"), "--quiet", *(["--conv-algo", algo] if algo != "auto" else []))
    after, _ = safetensors_file.read(at("after.safetensors"))
    return {key: (value - after[key].astype(np.float64)) / RATE for key, value in before.items()}


def explain(case, keys, want, got, error):
    """Prints the units that explain the gradient `got`, one after the other."""
    seen = []
    torch_gradient(*case, torch.float64, {}, seen)
    near = []
    for key, x, most in seen:
        scale = x.square().mean().sqrt().item()
        for kink in (0.0,) if most == float("inf") else (0.0, most):
            distance = (x - kink).abs().view(-1)
            for place in torch.topk(-distance, min(4, distance.numel())).indices.tolist():
                near.append((distance[place].item() / scale, key, place, x.view(-1)[place].item() - kink, scale, tuple(x.shape)))
    near.sort()
    effects = [flat(torch_gradient(*case, torch.float64, {key: (place,)}, []), keys) - want for _, key, place, _, _, _ in near[:CANDIDATES]]
    rest, size = got - want, np.linalg.norm(want)
    for _ in range(6):
        best = min(range(len(effects)), key=lambda k: np.linalg.norm(rest - effects[k]))
        left = np.linalg.norm(rest - effects[best]) / size
        if left > 0.7 * np.linalg.norm(rest) / size:
            break
        rest = rest - effects[best]
        _, (layer, call), place, value, scale, shape = near[best]
        print(f"      {layer}{f' (call {call})' if call else ''} {shape}: unit {tuple(map(int, np.unravel_index(place, shape)))} is {value:.2e} off the kink in float64, rms {scale:.2e}; "
              f"on the other side: error {error:.1e} -> {left:.1e}", flush=True)
        error = left
    return error


def one_step(convoy, name, seed, algos, at):
    """{algorithm: (error, gradient)}, and what explain needs."""
    net = make(name, seed)
    networks.export(net, SIDE, at("net.onnx"))
    start = {key: value.clone() for key, value in net.state_dict().items()}
    random = np.random.default_rng(seed)
    pixels, labels = random.integers(0, 256, (BATCH, SIDE, SIDE, 3), dtype=np.uint8), random.integers(0, networks.CLASSES, BATCH)
    os.makedirs(at("data"))
    for part in ("train", "t10k"):
        with open(at(f"data/{part}-images-idx4-ubyte"), "wb") as f:
            f.write(struct.pack(">5I", 0x804, *pixels.shape) + pixels.tobytes())
        with open(at(f"data/{part}-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">2I", 0x801, len(labels)) + labels.astype(np.uint8).tobytes())
    x = torch.tensor(pixels.transpose(0, 3, 1, 2).copy()).double().div(255)
    case = (name, seed, start, x, torch.tensor(labels))
    exact = torch_gradient(*case, torch.float64)
    keys, before = list(exact), {key: start[key].double().numpy() for key in exact}
    want = flat(exact, keys)
    found = {}
    for algo in ["torch", *algos]:
        got = flat(torch_gradient(*case, torch.float32) if algo == "torch" else convoy_gradient(convoy, at, algo, before), keys)
        found[algo] = (np.linalg.norm(got - want) / np.linalg.norm(want), got)
    return found, (case, keys, want)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("convoy")
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--seeds", type=int, default=5, help="steps of each network (5)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--algos", default="auto direct winograd2,direct", help="values of --conv-algo, and auto, with spaces between")
    parser.add_argument("--show", action="store_true", help="show the units that are on the other side")
    a = parser.parse_intermixed_args()
    warnings.filterwarnings("ignore")
    if subprocess.run([a.convoy, "devices"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        print("skipped: no device")
        return 77
    counts, steps = {}, 0
    for name in a.networks:
        rows = []
        for seed in range(a.first_seed, a.first_seed + a.seeds):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    rows.append(one_step(a.convoy, name, seed, a.algos.split(), lambda file, folder=folder: os.path.join(folder, file)))
                except ImportError as e:
                    print(f"skipped: {e}")
                    return 77
            print(f"  {name} seed {seed}: " + "  ".join(f"{algo} {error:.1e}" for algo, (error, _) in rows[-1][0].items()), flush=True)
        steps += len(rows)
        bound = min(FLIPPED * min(error for found, _ in rows for error, _ in found.values()), MOST)
        of_net = {algo: sum(found[algo][0] > bound for found, _ in rows) for algo in rows[0][0]}
        for algo, n in of_net.items():
            counts[algo] = counts.get(algo, 0) + n
        without = {algo: [found[algo][0] for found, _ in rows if found[algo][0] <= bound] for algo in of_net}
        print(f"{name}: on the other side in " + ", ".join(f"{n} of {len(rows)} {algo}" for algo, n in of_net.items()) + "; error without: " +
              ", ".join(f"{algo} {statistics.median(e):.1e}" if e else f"{algo} -" for algo, e in without.items()), flush=True)
        for seed, (found, (case, keys, want)) in enumerate(rows, a.first_seed):
            for algo, (error, got) in found.items():
                if a.show and error > bound:
                    print(f"    seed {seed}, {algo}:")
                    explain(case, keys, want, got, error)
    print("all: " + ", ".join(f"{algo} {n} of {steps} ({n / steps:.0%})" for algo, n in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
