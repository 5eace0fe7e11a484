#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The commands of README.md and doc/*.md: test_cli_pages.py CONVOY GROUP   (groups: the functions named test_<group> below)

pages_listed: each command is run by one of the groups below, or page_commands.NOT_RUN has the reason; each option of convoy that a page names is
one. pages_run, pages_fleet: the commands, with what the pages promise. What a command is and what it is run with: page_commands.py."""
import json
import os
import re
import shutil
import subprocess

import page_commands as pages
from cli import CONVOY, ROOT, call, check, expect, main, read
from nodes import unused_ports

FASHION = ("/usr/share/datasets/fashion-mnist", "train-images-idx3-ubyte.gz")


def fleet_commands():
    return [command for commands, *_ in pages.FLEETS for command in commands]


def is_verb(command):
    """`convoy bench conv`, `convoy train --help`: named, not to be run as it stands."""
    return re.fullmatch(r"convoy (?:bench )?[a-z]+(?: --help)?", command) is not None


def is_usage(command):
    return command.endswith("[options]") or command.endswith("[options] PICTURE...")


def test_pages_listed(at):
    """No command of a page is left over, no row of the tables, and no option that a page names is missing in the program."""
    found, blocks = {}, {}
    for page in pages.pages():
        commands, others = pages.commands(page)
        for command, _ in commands:
            found.setdefault(" ".join(command.split()), page)
        for lines in others:
            blocks.setdefault(" ".join(lines[0].split()) or " ".join(lines[1].split()), page)
    check(len(found) > 60 and len(blocks) > 8, f"commands are found: {len(found)}, {len(blocks)}")
    used = set()
    for command, page in found.items():
        keys = [key for key in (pages.row(pages.RUN, command), pages.row(pages.NOT_RUN, command)) if key] + [c for c in fleet_commands() if c == command]
        used.update(keys)
        check(len(keys) == 1 or (not keys and (is_verb(command) or is_usage(command))), f"{page}: neither run nor listed with a reason, or both: {command}")
    other = "convoy bench fleet --nodes pc1,pc2 --node 1 --model resnet18 --batch 256"      # "on pc2 with --node 1"
    for key in [*pages.RUN, *pages.NOT_RUN, *fleet_commands()]:
        check(key in used or key == other, f"page_commands.py: no page has {key}")
    for first, page in blocks.items():
        check(any(first.startswith(key.strip()) for key in pages.BLOCKS), f"{page}: a block that is neither a command nor in BLOCKS: {first}")
    for key in pages.BLOCKS:
        check(any(first.startswith(key.strip()) for first in blocks) or key == ">>> ", f"page_commands.py: no page has the block {key}")
    check_options(found)


def check_options(found):
    helps = {}

    def help_of(verb):
        if verb not in helps:
            done = call([CONVOY, *verb.split(), "--help"])
            helps[verb] = set(re.findall(r"(--[a-z][a-z0-9-]*)", done.stdout)) if done.returncode == 0 else None
        return helps[verb]

    for command, page in found.items():
        verb, options = pages.options_of(command) or ("", [])
        if not verb or verb == "help":
            continue
        known = help_of(verb)
        check(known is not None, f"{page}: {command}: no such verb")
        for option in options:
            check(known is None or option in known, f"{page}: {command}: convoy {verb} has no {option}")
    for verb in ("train", "eval", "predict", "data", "net", "export", "report", "selftest", "tune", "devices",
                 *("bench " + kind for kind in ("peak", "conv", "ops", "plan", "train", "exchange", "scaling", "fleet"))):
        check(help_of(verb), f"convoy {verb} --help")
    everything = set().union(*(options or () for options in helps.values())) | {"--help", "--version", "--markdown", "--man"} | pages.FOREIGN_OPTIONS
    for tool in ("quickstart", "check", "gpu-report", "kernel-check", "compare/torch", "compare/error", "compare/accuracy"):
        everything |= set(re.findall(r"(--[a-z][a-z0-9-]+)", read(os.path.join(ROOT, "tools", tool))))
    for page in pages.pages():
        for span in re.findall(r"(?<!`)`([^`]+)`", pages.parts(page)[0]):
            for option in re.findall(r"^(--[a-z][a-z0-9-]+)", span):
                check(option in everything, f"{page}: `{span}`: nothing has {option}")


def write_ppm(path, size, value):
    with open(path, "wb") as f:
        f.write(b"P6 %d %d 255\n" % (size, size) + bytes((value + i * 7) % 256 for i in range(size * size * 3)))


def prepare(at):
    """What the commands find in their folder: pictures, weights, networks, logs, a run to go on with."""
    for folder, classes, size in (("pets", ("cat", "dog"), 64), ("DIR", ("cat", "dog"), 28)):
        for label, name in enumerate(classes):
            os.makedirs(at(folder, "train", name))
            for i in range(8):
                write_ppm(at(folder, "train", name, f"{i}.ppm"), size, 90 * label + i)
    for part in ("train", "test"):
        for label in range(3):
            os.makedirs(at("pictures", part, f"kind{label}"))
            for i in range(4):
                write_ppm(at("pictures", part, f"kind{label}", f"{i}.ppm"), 64, 80 * label + i)
    with open(at("photo.pgm"), "wb") as f:
        f.write(b"P5 28 28 255\n" + bytes(i % 251 for i in range(784)))
    more = ["--quiet", "--devices", "0:0"]
    expect(0, "train", "--model", "lenet", "--data", "pictures", "--size", "64x64", "--batch", 12, "--max-steps", 1, "--no-eval", "--save", "w.st", *more, cwd=at())
    expect(0, "export", "--weights", "w.st", "--out", "net.onnx", cwd=at())
    expect(0, "train", "--model", "lenet", "--data", "synthetic:64", "--batch", 32, "--max-steps", 1, "--no-eval", "--save", "v.st", *more, cwd=at())
    expect(0, "export", "--weights", "v.st", "--out", "F.onnx", cwd=at())
    write_resnet(at("resnet18.onnx"))
    for name in ("a.jsonl", "b.jsonl"):
        expect(0, "train", "--model", "lenet", "--data", "synthetic:64", "--batch", 32, "--epochs", 1, "--log", name, *more, cwd=at())
    expect(0, "train", "--model", "lenet", "--data", "synthetic:64", "--batch", 32, "--epochs", 2, "--max-steps", 1, "--checkpoint", "checkpoints", *more, cwd=at())
    expect(0, "bench", "ops", "--model", "lenet", "--batch", 8, "--op", "linear", "--time", 0.01, "--json", "old.json", *more, cwd=at())
    old = json.loads(read(at("old.json")))

    def faster(value, key=""):
        """Every time of the old result becomes a hundredth."""
        if isinstance(value, dict):
            return {name: faster(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [faster(inner, key) for inner in value]
        return value / 100 if isinstance(value, float) and re.search(r"(^|_)(ms|us|ns|sec|s)$|time", key) else value
    with open(at("old.json"), "w", encoding="utf-8") as f:
        json.dump(faster(old), f)


def write_resnet(path):
    """A small network with the names of torchvision's ResNet: conv1, bn1, layer1.0, fc."""
    import onnx_file

    def tensor(name, *shape):
        n = 1
        for d in shape:
            n *= d
        return onnx_file.tensor(name, shape, [1.0 if name.endswith(("bn1.weight", "var")) else ((i * 37) % 101 - 50) / 500 for i in range(n)])
    pads, norm = {"pads": [1, 1, 1, 1]}, "{0}.weight {0}.bias {0}.running_mean {0}.running_var"
    nodes = [onnx_file.node("Conv", "x conv1.weight", "a", kernel_shape=[3, 3], **pads),
             onnx_file.node("BatchNormalization", "a " + norm.format("bn1"), "b", training_mode=1),
             onnx_file.node("Relu", "b", "c"),
             onnx_file.node("Conv", "c layer1.0.conv1.weight", "d", kernel_shape=[3, 3], **pads),
             onnx_file.node("Relu", "d", "e"),
             onnx_file.node("GlobalAveragePool", "e", "f"),
             onnx_file.node("Flatten", "f", "g", axis=1),
             onnx_file.node("Gemm", "g fc.weight fc.bias", "y", transB=1)]
    tensors = [tensor("conv1.weight", 8, 3, 3, 3), *(tensor(f"bn1.{n}", 8) for n in ("weight", "bias", "running_mean", "running_var")),
               tensor("layer1.0.conv1.weight", 8, 8, 3, 3), tensor("fc.weight", 2, 8), tensor("fc.bias", 2)]
    onnx_file.write(path, [3, 28, 28], nodes, tensors)


def settings(at):
    """What SUBSTITUTIONS' names stand for here, and the environment of the commands."""
    os.makedirs(at("bin"))
    os.symlink(CONVOY, at("bin", "convoy"))
    splits = "can be split" in expect(0, "devices").stdout
    here = os.path.exists(os.path.join(*FASHION))
    values = {"fashion": "synthetic:64", "parts": "0:0/1+1" if splits else "0:0*2", "root": ROOT}
    return values, here, {**os.environ, "PATH": at("bin") + os.pathsep + os.environ["PATH"]}


def as_run(command, how, values, fashion=False):
    for old, new in how.put:
        check(old in command, f"page_commands.py: {command} has no {old}")
        command = command.replace(old, new)
    for old, new in pages.SUBSTITUTIONS:
        command = command.replace(old, new)
    for name, value in values.items():
        command = command.replace("{" + name + "}", "fashion-mnist" if name == "fashion" and fashion else value)
    return f"{command} {how.more}".strip()


def test_pages_run(at):
    """In the order of the table, in one folder: later ones take what earlier ones have written."""
    values, fashion, env = settings(at)
    prepare(at)
    written = {}
    for page in pages.pages():
        for command, _ in pages.commands(page)[0]:
            command = " ".join(command.split())
            written.setdefault(pages.row(pages.RUN, command), command)
    order = sorted(pages.RUN, key=lambda key: "--save pretrained" not in key)            # weights for the commands that begin with them
    for key in order:
        how = pages.RUN[key]
        if key not in written:
            check(False, f"no page has {key}")
            continue
        run = as_run(written[key], how, values, fashion and how.then is pages.learned)
        done = subprocess.run(["sh", "-c", run], cwd=at(), env=env, text=True, errors="replace", capture_output=True, timeout=300)
        check(done.returncode == how.code, f"exit {done.returncode}, must be {how.code}: {run}", done)
        for where, text, wanted in (("stdout", done.stdout, how.out), ("stderr", done.stderr, how.err)):
            for pattern in wanted:
                check(re.search(pattern, text, re.M), f"{where} lacks what the page promises, {pattern}: {run}", done)
        wrong = how.then(done, at()) if how.then and done.returncode == how.code else None
        check(not wrong, f"{run}: {wrong}", done)
    shown = expect(0, "devices").stdout
    for pattern in pages.DEVICE_LINES:
        check(re.search(pattern, shown, re.M), f"convoy devices lacks what the pages show, {pattern}: {shown}")


def test_pages_fleet(at):
    """Each fleet of the pages, its nodes on this machine."""
    values, _, env = settings(at)
    key = next(command for command in pages.RUN if "fleet.key" in command)
    subprocess.run(["sh", "-ec", key], cwd=at(), env=env, check=True, timeout=60)
    for commands, put, more, promise in pages.FLEETS:
        ports = unused_ports(len(commands))
        nodes = ",".join(f"127.0.0.1:{port}" for port in ports)
        names = re.search(r"--nodes (\S+)", commands[0]).group(1)
        started = []
        for command in commands:
            run = as_run(command, pages.Run(more=more, put=(*put, (names, nodes))), values)
            started.append(subprocess.Popen(["sh", "-c", "exec " + run], cwd=at(), env=env, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        ends = []
        for process in started:
            try:
                ends.append((*process.communicate(timeout=200), process.returncode))
            except subprocess.TimeoutExpired:
                process.kill()
                ends.append((*process.communicate(), "hangs"))
        check(all(code == 0 for _, _, code in ends), f"{commands[0]}: {ends}")
        check(re.search(promise, ends[0][0], re.M), f"{commands[0]}: node 0 lacks what the page promises, {promise}: {ends[0]}")
        check(all(out == "" for out, _, _ in ends[1:]), f"{commands[0]}: node 0 prints, others do not: {ends}")


main(globals(), without_device=("pages_listed",))
