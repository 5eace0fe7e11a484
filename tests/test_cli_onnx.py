#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""README.md's lines for PyTorch's user: test_cli_onnx.py CONVOY GROUP   (groups: the functions named test_<group> below)

Exit 77 where a group needs a device, or PyTorch, and there is none."""
import importlib.util
import os
import re
import shlex
import sys
import types
import warnings

from cli import check, DEVICE, expect, main, read, ROOT

sys.path.insert(0, os.path.join(ROOT, "tools"))

def write_pictures(folder):
    """Three classes of twelve pictures each, for training and test."""
    for part in ("train", "test"):
        for kind in range(3):
            os.makedirs(os.path.join(folder, part, f"kind{kind}"))
            for i in range(12):
                with open(os.path.join(folder, part, f"kind{kind}", f"{i}.ppm"), "wb") as f:
                    f.write(b"P6\n64 64\n255\n" + bytes((i * 7 + kind * 80 + k % 3) % 256 for k in range(64 * 64 * 3)))


def page_lines():
    """[(program, text)…]: lines of Python with those that go on, and commands."""
    block = re.search(r"## Your own network.*?```\n(.*?)```", read(os.path.join(ROOT, "README.md")), re.S).group(1)
    return [("convoy" if line.startswith("$ ") else "python", line.replace(">>> ", "", 1).replace("$ ", "", 1))
            for line in re.sub(r"\n\.\.\. +", " ", block).splitlines()]


def test_onnx_readme(at):
    """As it stands in the page, but for the devices and the epochs."""
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
    names, lines = {}, page_lines()
    check([program for program, _ in lines].count("convoy") == 2, f"README.md: {lines}")
    for program, line in lines:
        if program == "python":
            exec(line, names)           # pylint: disable=exec-used
            continue
        words = shlex.split(line)[1:]
        if words[0] == "train":
            words[words.index("--devices") + 1] = DEVICE
            words += ["--epochs", "1", "--quiet"]
        expect(0, *words)
    check(not names["net"].training, "README.md: the network is for inference at the end")


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
    expect(2, *predict, "--model", at("sized.onnx"), "--normalize", "dataset", err="no data set here")
    expect(2, *predict, "--model", at("sized.onnx"), "--input", "20x20x1", err=("1x28x28", "1x20x20"))
    expect(2, *predict, "--weights", at("sized.st"), "--normalize", "0.5/0.25", err="says how its pictures were normalised")


if __name__ == "__main__":
    if "no ONNX" in expect(0, "--version").stdout:
        print("skipped: this convoy was built without protobuf-c")
        sys.exit(77)
    main(globals())
