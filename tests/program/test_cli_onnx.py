#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""README.md's lines for PyTorch's user: test_cli_onnx.py CONVOY GROUP   (groups: the functions named test_<group> below)

Exit 77 where a group needs a device, or PyTorch, and there is none."""
import importlib.util
import json
import math
import os
import random
import re
import shlex
import struct
import sys
import types
import warnings

from cli import check, DEVICE, expect, main, read, read_bytes, ROOT

sys.path.insert(0, os.path.join(ROOT, "tools", "compare"))
import onnx_file             # noqa: E402


def write_pictures(folder):
    """Three classes that differ in brightness: 120 pictures each for training, 12 for test."""
    for part in ("train", "test"):
        for kind in range(3):
            os.makedirs(os.path.join(folder, part, f"kind{kind}"))
            for i in range(120 if part == "train" else 12):
                with open(os.path.join(folder, part, f"kind{kind}", f"{i}.ppm"), "wb") as f:
                    f.write(b"P6\n64 64\n255\n" + bytes(i % 12 * 5 + kind * 80 + (k * (i + 3) >> 4) % 16 for k in range(64 * 64 * 3)))


def page_lines():
    """[(program, text)…]: lines of Python with those that go on, and commands."""
    block = re.search(r"## Your own network.*?```\n(.*?)```", read(os.path.join(ROOT, "README.md")), re.S).group(1)
    return [("convoy" if line.startswith("$ ") else "python", line.replace(">>> ", "", 1).replace("$ ", "", 1))
            for line in re.sub(r"\n\.\.\. +", " ", block).splitlines()]


def test_onnx_readme(at):
    """As it stands in the page, but for the devices."""
    try:
        import torch
        import torchvision              # noqa: F401
    except ImportError as e:
        print(f"skipped: {e}")
        sys.exit(77)
    if importlib.util.find_spec("safetensors") is None:     # tools/safetensors_file reads the same format
        import safetensors_file
        package, part = types.ModuleType("safetensors"), types.ModuleType("safetensors.torch")
        part.load_file = lambda file: {name: torch.from_numpy(values) for name, values in safetensors_file.read(file)[0].items()}
        package.torch = part
        sys.modules.update({"safetensors": package, "safetensors.torch": part})
    write_pictures(at("pictures"))
    os.chdir(at(""))
    warnings.filterwarnings("ignore")       # of the exporter
    torch.manual_seed(1)
    names, lines = {}, page_lines()
    check([program for program, _ in lines].count("convoy") == 2, f"README.md: {lines}")
    for program, line in lines:
        if program == "python":
            exec(line, names)           # pylint: disable=exec-used
        elif line.startswith("convoy train"):
            train_page(line)
        else:
            expect(0, *shlex.split(line)[1:])
    check(not names["net"].training, "README.md: the network is for inference at the end")


def page_words(line):
    words = shlex.split(line)[1:]
    words[words.index("--devices") + 1] = DEVICE
    return words


def train_page(line):
    """Runs README's training in the current folder; it must learn."""
    done = expect(0, *page_words(line))
    check("warning" not in done.stderr, "README.md's example without a warning", done)
    accuracy = re.search(r"^test acc: ([\d.]+)", done.stdout, re.M)
    check(accuracy and float(accuracy.group(1)) >= 0.9, "README.md's example learns", done)


def write_mobile(path, seed):
    """Of the kind of README's network: a convolution, two inverted residual blocks, dropout; batch normalisations with PyTorch's momentum of 0.01."""
    o, draw = onnx_file, random.Random(seed)
    tensors, nodes = [], []

    def filters(name, shape, fan_in):
        tensors.append(o.tensor(name, shape, [draw.gauss(0, (2 / fan_in) ** 0.5) for _ in range(math.prod(shape))]))
        return name

    def conv(x, name, channels, k, r, stride=1, group=1, act="HardSwish"):
        filters(f"{name}.0.weight", (k, channels // group, r, r), channels // group * r * r)
        for part, first in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            tensors.append(o.tensor(f"{name}.1.{part}", (k,), [first] * k))
        nodes.append(o.node("Conv", f"{x} {name}.0.weight", f"{name}.c", group=group, strides=[stride] * 2, pads=[r // 2] * 4))
        nodes.append(o.node("BatchNormalization", " ".join([f"{name}.c", *(f"{name}.1.{part}" for part in ("weight", "bias", "running_mean", "running_var"))]),
                            f"{name}.b {name}.m {name}.v", momentum=0.99, epsilon=0.001, training_mode=1))
        if act:
            nodes.append(o.node(act, f"{name}.b", f"{name}.a"))
        return f"{name}.a" if act else f"{name}.b"

    x = conv("x", "first", 3, 16, 3, stride=2)
    for name in ("one", "two"):
        wide = conv(conv(x, f"{name}.expand", 16, 32, 1), f"{name}.depth", 32, 32, 3, group=32)
        nodes.append(o.node("Add", f"{x} {conv(wide, f'{name}.narrow', 32, 16, 1, act=None)}", f"{name}.sum"))
        x = f"{name}.sum"
    x = conv(x, "last", 16, 64, 1, stride=2)
    tensors += [o.tensor("ratio", (), [0.2]), o.truth("training")]
    nodes += [o.node("GlobalAveragePool", x, "pool"), o.node("Flatten", "pool", "flat"), o.node("Dropout", "flat ratio training", "drop"),
              o.node("Gemm", f"drop {filters('fc.weight', (3, 64), 64)} fc.bias", "y", transB=1)]
    tensors.append(o.tensor("fc.bias", (3,), [0.0] * 3))
    o.write(path, (3, 64, 64), nodes, tensors)


def test_onnx_example(at):
    """Without PyTorch: README's command trains a network of the kind of its example from any first weights, and without --precise-bn it is warned about."""
    write_pictures(at("pictures"))
    os.chdir(at(""))
    line = [text for program, text in page_lines() if program == "convoy" and text.startswith("convoy train")][0]
    for seed in range(2):
        write_mobile("net.onnx", seed)
        train_page(line)
    words = page_words(line)
    at_option = words.index("--precise-bn")
    done = expect(0, *words[:at_option], *words[at_option + 2:], "--epochs", 2, err="--precise-bn 100 recomputes them")
    accuracy = float(re.search(r"^test acc: ([\d.]+)", done.stdout, re.M).group(1))
    check(accuracy < 0.9, "the running values of 24 steps have arrived", done)


def test_onnx_there_and_back(at):
    """Without PyTorch: a network that `convoy export` writes is one that every command takes."""
    data = ["--data", "synthetic:64:28x28x1", "--devices", DEVICE, "--quiet"]
    expect(0, "train", "--model", "lenet", *data, "--batch", 32, "--max-steps", 1, "--no-eval", "--save", at("w.st"))
    expect(0, "export", "--weights", at("w.st"), "--out", at("net.onnx"), "--softmax")
    expect(0, "net", at("net.onnx"), out=("conv2d", "linear"))
    expect(0, "train", "--model", at("net.onnx"), *data, "--batch", 32, "--max-steps", 1, "--no-eval", "--save", at("v.st"))
    expect(0, "eval", "--weights", at("v.st"), "--model", at("net.onnx"), *data, out="test acc")
    expect(0, "export", "--weights", at("v.st"), "--model", at("net.onnx"), "--out", at("back.onnx"))
    expect(1, "train", "--model", at("absent.onnx"), *data, err="absent.onnx")
    # predictions by the values in the file are those of the weights; pictures are fitted and become gray
    with open(at("p.ppm"), "wb") as f:
        f.write(b"P6\n40 30\n255\n" + bytes(i * 7 % 251 for i in range(40 * 30 * 3)))
    predict = ["predict", "--devices", DEVICE, "--quiet", "--json", "-", at("p.ppm")]
    expect(0, "train", "--init-from", at("w.st"), "--model", "lenet", *data, "--size", 28, "--gray", "--batch", 32, "--max-steps", 1, "--lr", 1e-30, "--no-eval",
           "--save", at("sized.st"))
    expect(0, "export", "--weights", at("sized.st"), "--out", at("sized.onnx"))
    want = expect(0, *predict, "--weights", at("sized.st")).stdout
    check(expect(0, *predict, "--model", at("sized.onnx")).stdout == want, "predictions of the ONNX file")
    check(expect(0, *predict, "--model", at("sized.onnx"), "--normalize", "0.5/0.25").stdout != want, "normalised pictures")
    expect(2, *predict, "--model", at("sized.onnx"), "--normalize", "dataset", err="predict has no data set")
    expect(2, *predict, "--model", at("sized.onnx"), "--input", "20x20x1", err=("1x28x28", "1x20x20"))
    expect(2, *predict, "--weights", at("sized.st"), "--normalize", "0.5/0.25", err="has the normalisation of its training")


def read_weights(path):
    """{name: (shape, values)}"""
    data = read_bytes(path)
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {name: t for name, t in json.loads(data[8:8 + size]).items() if name != "__metadata__"}
    parts = {name: data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]] for name, t in tensors.items()}
    return {name: (tuple(t["shape"]), struct.unpack(f"<{len(parts[name]) // 4}f", parts[name])) for name, t in tensors.items()}


def numbers(n, begin, step):
    return [begin + step * (i * 7 % 13) for i in range(n)]


def write_doubtful(path, end="", outputs=10):
    """Pictures by mean and deviation, a normalisation without factors, blur, a factor for each channel; `end`: operators behind the logits."""
    o = onnx_file
    tensors = [o.tensor("n.mean", (3, 1, 1), [0.5, 0.4, 0.3]), o.tensor("n.std", (3, 1, 1), [0.2, 0.3, 0.25]), o.tensor("a.weight", (16, 3, 3, 3), numbers(432, -0.3, 0.05)),
               o.tensor("b.running_mean", (16,), [0.0] * 16), o.tensor("b.running_var", (16,), [1.0] * 16), o.tensor("c.filt", (16, 1, 3, 3), [1 / 9] * 144),
               o.tensor("s.gamma", (16, 1, 1), numbers(16, 0.4, 0.1)), o.tensor("f.weight", (outputs, 16), numbers(16 * outputs, -0.5, 0.08)),
               o.tensor("f.bias", (outputs,), numbers(outputs, -0.1, 0.02))]
    nodes = [o.node("Sub", "x n.mean", "d"), o.node("Div", "d n.std", "n"), o.node("Conv", "n a.weight", "a"), o.constant("/b/one", (16,), [1.0] * 16),
             o.constant("/b/zero", (16,), [0.0] * 16), o.node("BatchNormalization", "a /b/one /b/zero b.running_mean b.running_var", "b"), o.node("Relu", "b", "r"),
             o.node("Conv", "r c.filt", "c", group=16, strides=[2, 2]), o.node("Mul", "c s.gamma", "s"), o.node("GlobalAveragePool", "s", "p"), o.node("Flatten", "p", "q")]
    at = "z0"
    nodes.append(o.node("Gemm", "q f.weight f.bias", at if end else "y", transB=1))
    for i, op in enumerate(end.split()):
        to = "y" if i + 1 == len(end.split()) else f"z{i + 1}"
        nodes.append(o.node(op, at, to, **({} if op == "Sigmoid" else {"axis": 1})))
        at = to
    o.write(path, (3, 12, 12), nodes, tensors)


def test_onnx_constants(at):
    """What is a constant stays; what is a parameter has its own name and shape; a run that goes on is the same run."""
    net, data = at("net.onnx"), ["--data", "synthetic:64:12x12x3", "--devices", DEVICE, "--quiet", "--batch", 16, "--no-eval"]
    write_doubtful(net)
    listed = expect(0, "net", net).stdout
    for line in ("618 parameters in 4 tensors", "constants taken as fixed, not trained: n.mean (3x1x1), n.std (3x1x1), /b/one (16), /b/zero (16), c.filt (16x1x3x3)\n",
                 "constants taken as parameters: s.gamma (16x1x1)\n"):
        check(line in listed, f"convoy net lacks {line!r} in {listed}")
    expect(0, "train", "--model", net, *data, "--max-steps", 4, "--save", at("w.st"))
    tensors = read_weights(at("w.st"))
    want = {"n.mean": (3, 1, 1), "n.std": (3, 1, 1), "a.weight": (16, 3, 3, 3), "b.running_mean": (16,), "b.running_var": (16,), "b.num_batches_tracked": (), "c.filt": (16, 1, 3, 3),
            "s.gamma": (16, 1, 1), "f.weight": (10, 16), "f.bias": (10,)}
    check({name: shape for name, (shape, _) in tensors.items()} == want, f"names and shapes: {tensors}")
    check(all(abs(v - 1 / 9) < 1e-7 for v in tensors["c.filt"][1]) and abs(tensors["n.std"][1][1] - 0.3) < 1e-7, "constants have changed")
    check(any(abs(v - w) > 1e-6 for v, w in zip(tensors["s.gamma"][1], numbers(16, 0.4, 0.1))), "the factor is as it was")
    # in two parts, and with a factor that is left alone
    expect(0, "train", "--model", net, *data, "--max-steps", 2, "--checkpoint", at("points"), "--momentum", 0.9)
    expect(0, "train", "--model", net, *data, "--max-steps", 4, "--checkpoint", at("points"), "--resume", "--momentum", 0.9, "--save", at("two.st"))
    expect(0, "train", "--model", net, *data, "--max-steps", 4, "--momentum", 0.9, "--save", at("one.st"))
    check(read_bytes(at("one.st")) == read_bytes(at("two.st")), "a run in two parts has other weights")
    expect(0, "train", "--model", net, *data, "--max-steps", 2, "--freeze", "s.gamma", "--save", at("f.st"))
    check(all(abs(v - w) < 1e-7 for v, w in zip(read_weights(at("f.st"))["s.gamma"][1], numbers(16, 0.4, 0.1))), "--freeze s.gamma")
    expect(0, "train", "--model", net, *data, "--max-steps", 1, "--init-from", at("one.st"), "--lr-mult", "s.gamma=0.1")
    expect(0, "export", "--weights", at("w.st"), "--out", at("back.onnx"))
    again = expect(0, "net", at("back.onnx")).stdout
    check("618 parameters in 4 tensors" in again and "s.gamma (16x1x1)" not in again.split("fixed")[1].split("\n")[0], f"the export: {again}")


def test_onnx_ends(at):
    """convoy predict gives what the file gives; several classes at once are neither trained nor evaluated."""
    net, data = at("net.onnx"), ["--data", "synthetic:64:12x12x3", "--devices", DEVICE, "--quiet", "--batch", 16]
    with open(at("p.ppm"), "wb") as f:
        f.write(b"P6\n12 12\n255\n" + bytes(i * 7 % 251 for i in range(12 * 12 * 3)))

    def predicted(end, outputs=10):
        write_doubtful(net, end, outputs)
        done = expect(0, "predict", "--devices", DEVICE, "--quiet", "--top", 10, "--json", "-", "--model", net, at("p.ppm"))
        top = json.loads(done.stdout)["predictions"][0]["top"]
        return [p for _, p in sorted((t["class"], t["probability"]) for t in top)]

    def near(got, want, what):
        check(len(got) == len(want) and all(abs(a - b) < 1e-5 for a, b in zip(got, want)), f"{what}: {got}, not {want}")

    def soft(x):
        return [math.exp(v) / sum(math.exp(w) for w in x) for v in x]

    once = predicted("")
    near(predicted("Softmax"), once, "Softmax")
    near(predicted("LogSoftmax"), once, "LogSoftmax")
    near(predicted("Softmax Softmax"), soft(once), "two Softmax")
    each = predicted("Sigmoid")
    near(soft([math.log(p / (1 - p)) for p in each]), once, "Sigmoid")
    for verb in ("train", "eval"):
        expect(2, verb, "--model", net, *data, err="ends in a Sigmoid of its 10 outputs")
    one = predicted("Sigmoid", 1)
    check(len(one) == 2 and abs(sum(one) - 1) < 1e-6 and 0.01 < one[1] < 0.99, f"one Sigmoid: {one}")
    near(predicted("", 1), one, "one output")
    write_doubtful(net, "Softmax", 1)
    expect(2, "predict", "--devices", DEVICE, "--model", net, at("p.ppm"), err="a softmax of one number")
    for end, outputs, op in (("Softmax", 10, b"Softmax"), ("LogSoftmax", 10, b"LogSoftmax"), ("Sigmoid", 1, b"Sigmoid"), ("", 1, None)):
        write_doubtful(net, end, outputs)
        more = ["--classes", 2] if outputs == 1 else []
        expect(0, "train", "--model", net, *data, *more, "--max-steps", 1, "--no-eval", "--save", at("w.st"))
        for option, wanted in (([], op), (["--softmax"], b"Softmax"), (["--logits"], None)):
            expect(0, "export", "--weights", at("w.st"), "--out", at("back.onnx"), *option)
            found = [name for name in (b"LogSoftmax", b"Softmax", b"Sigmoid") if b"\x22" + bytes([len(name)]) + name in read_bytes(at("back.onnx"))]
            check(found == ([wanted] if wanted else []), f"export {option} of {end!r}: {found}")
    expect(2, "export", "--weights", at("w.st"), "--out", at("back.onnx"), "--softmax", "--logits", err="expected one of them")


def test_onnx_caveat(at):
    """A file whose batch normalisations PyTorch's exporter has folded: training it is warned about, or refused; the rest is not."""
    folded, whole = (os.path.join(ROOT, "tests", "data", "onnx", f"torch-{name}.onnx") for name in ("folded", "frozen"))
    data = ["--data", "synthetic:64:11x10x3", "--classes", 5, "--devices", DEVICE, "--quiet"]
    train = ["train", *data, "--batch", 16, "--max-steps", 1, "--no-eval", "--model"]
    said = ("2 batch normalisations", "body.1, body.4", "dynamo=False)")
    for words in (["net", folded], [*train, folded, "--save", at("w.st")], ["bench", "train", "--batch", 16, "--devices", DEVICE, "--model", folded]):
        expect(0, *words, err=("warning: ", *said))
    for words in (["net", folded], [*train, folded]):
        expect(2, *words, "--strict", err=("error: --strict: ", *said))
    line = re.search(r"torch\.onnx\.export\(.*?dynamo=False\)", expect(0, "net", folded).stderr).group(0)
    page = " ".join(text for program, text in page_lines() if program == "python")
    for argument in re.findall(r"\w+=[\w.]+", line):
        check(argument in page or argument.startswith("training="), f"README.md exports without {argument}, which the program names")
    for words in (["net", whole], [*train, whole, "--save", at("v.st")], ["net", whole, "--strict"]):
        check("warning" not in expect(0, *words).stderr, f"{words}: a warning for a network that is whole")
    with open(at("p.ppm"), "wb") as f:
        f.write(b"P6\n10 11\n255\n" + bytes(i * 7 % 251 for i in range(10 * 11 * 3)))
    for words in (["eval", "--model", folded, *data, "--strict"], ["predict", "--model", folded, "--devices", DEVICE, "--quiet", at("p.ppm")],
                  ["export", "--weights", at("w.st"), "--model", folded, "--out", at("out.onnx")]):
        check("normalisation" not in expect(0, *words).stderr, f"{words}: predictions need no warning")


if __name__ == "__main__":
    if "no ONNX" in expect(0, "--version").stdout:
        print("skipped: this convoy was built without protobuf-c")
        sys.exit(77)
    main(globals())
