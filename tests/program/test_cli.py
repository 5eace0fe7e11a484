#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it: test_cli.py CONVOY GROUP   (groups: the functions named test_<group> below)

What every verb has in common, and devices, selftest. Exit 77 where a group needs a device and there is none."""

import fcntl
import glob
import json
import os
import re
import shutil
import struct
import sys

from cli import (call, check, CONVOY, DEVICE, device_times, expect, LENET, need_device, NO_DEVICE, read, read_bytes, read_json, ROOT, run,
                 SMALL, main, write, write_idx, wrong_kernels)


def no_tensors(path):
    """A weights file whose header is read before devices are looked for."""
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", 2) + b"{}")


def test_errors(at):
    """Wrong use: exit 2, nothing on stdout; first what was wrong, with the option and the value; then where help is."""
    base = ["--model", "lenet", "--data", "synthetic"]
    table = [
        # option, value, what the message must say beside both
        ("--model", "vgg", "resnet18, lenet, resnet34"),
        ("--batch", "0", "from 1"),
        ("--batch", "-1", "from 1"),
        ("--batch", "1.5", "whole"),
        ("--batch", "12x", "whole"),
        ("--batch", " 12", "whole"),
        ("--batch", "99999999999999999999", "whole"),
        ("--epochs", "0", "from 1"),
        ("--lr", "0", "above 0"),
        ("--lr", "-0.1", "above 0"),
        ("--lr", "nan", "above 0"),
        ("--lr", "inf", "above 0"),
        ("--lr", "0.1x", "above 0"),
        ("--lr", "0x1", "above 0"),
        ("--momentum", "1.5", "from 0 to 1"),
        ("--weight-decay", "-1", "from 0"),
        ("--seed", "-1", "from 0 to 9.2e18"),
        ("--seed", "18446744073709551615", "from 0 to 9.2e18"),
        ("--data-dir", "somewhere", "only for fashion-mnist"),
        ("--init", "zero", "d2l, he, xavier or torch"),
        ("--optimizer", "rmsprop", "sgd, adam or adamw"),
        ("--betas", "0.9", "expected B1,B2"),
        ("--betas", "0.9,1", "from 0 to below 1"),
        ("--eps", "0", "from 1e-20 to 1"),
        ("--label-smoothing", "1.5", "from 0 to 1"),
        ("--clip-norm", "0", "from 1e-20"),
        ("--split", "automatic", "auto"),
        ("--split", "0,0", "above 0"),
        ("--split", "1,,2", "weights"),
        ("--split", "odd", "even"),
        ("--shares", "1,x", "whole numbers"),
        ("--shares", "100,100", "256"),
        ("--bn", "synch", "device, sync, or ghost:G"),
        ("--bn", "ghost:0", "1 or more"),
        ("--bn", "ghost", "ghost:G"),
        ("--staleness", "2", "from 0 to 1"),
        ("--exchange", "fp16", "bf16"),
        ("--lr-schedule", "poly", "step:N,G"),
        ("--lr-schedule", "step:3e", "step:N,G"),
        ("--lr-schedule", "step:0,0.1", "step:N,G"),
        ("--lr-schedule", "step:3,0", "step:N,G"),
        ("--lr-schedule", "step:3,0.1,2", "step:N,G"),
        ("--warmup", "1.5e", "0 or more"),
        ("--warmup", "-1", "0 or more"),
        ("--bucket-mib", "0", "auto, or a size from 0.001 to 4096 MiB"),
        ("--run-ahead", "3", "from 0 to 2"),
        ("--max-steps", "0", "from 1"),
        ("--verify-every", "0", "from 1"),
        ("--keep", "0", "from 1"),
        ("--checkpoint-every", "0", "1 or more"),
        ("--checkpoint-every", "e", "Ne"),
        ("--classes", "65536", "65535"),
        ("--save", "", "empty"),
        ("--log", "-", "file"),
        ("--tune", "slow", "cached, off or quick"),
        ("--conv-algo", "fast", "direct, winograd2"),
        ("--math", "bf16", "fp32 or tf32"),
        ("--math", "", "fp32 or tf32"),
        ("--conv-algo", "direct,", "direct, winograd2"),
        ("--conv-algo", "auto,direct", "direct, winograd2"),
        ("--conv-algo", "gemm,direct,gemm", "twice"),
        ("--normalize", "imagnet", "expected none, dataset, imagenet, or M,.../S,..."),
        ("--normalize", "0.5", "expected none, dataset, imagenet, or M,.../S,..."),
        ("--normalize", "0.5,0.5/0.1", "2 means and 1 deviations; expected one of each"),
        ("--normalize", "0.5/0", "a deviation from 1e-6"),
        ("--augment", "flop", "expected none, or a list of flip"),
        ("--augment", "flip,", "expected none, or a list of flip"),
        ("--augment", "flip:2", "flip takes no number"),
        ("--augment", "flip,crop:4,flip", "flip twice"),
        ("--augment", "crop", "expected crop:N"),
        ("--augment", "crop:0", "expected crop:N"),
        ("--augment", "crop:4,5", "expected crop:N"),
        ("--augment", "resized-crop:0.8", "expected resized-crop:A-B"),
        ("--augment", "resized-crop:0.8-0.5", "A not above B"),
        ("--augment", "crop:4,resized-crop:0.5-1", "expected one of them"),
        ("--augment", "jitter:0.2,0.2,0.2", "expected jitter:B,C,S,H"),
        ("--augment", "jitter:0.2,0.2,0.2,0.6,cutout:3", "hue from 0 to 0.5"),
        ("--augment", "jitter:0,0,0,0", "four zeros has no effect"),
        ("--augment", "cutout:x", "expected cutout:N"),
    ]
    for option, value, says in table:
        done = expect(2, "train", *base, option, value, err=(option, value, says, "convoy train --help"), env=NO_DEVICE)
        check(done.stdout == "", "wrong use writes nothing to stdout", done)
        check(done.stderr.startswith("convoy train: " + option), "the reason comes first", done)
    with open(at("m.h5"), "wb") as f:
        f.write(b"\x89HDF\r\n\x1a\n" + bytes(200))
    write(at("m.pb"), "\x08\x01\x12")
    for args, says in [
        (["train", "--model", at("m.h5"), *base[2:]], f"--model {at('m.h5')}: it is an HDF5 file"),
        (["net", at("m.pb")], f"{at('m.pb')}: expected resnet18"),
        (["train"], "--model NAME is missing"),
        (["train", "--model", "lenet"], "--data DATA is missing"),
        (["train", *base, "stray"], "'stray'"),
        (["train", *base, "--ephocs", "3"], "did you mean --epochs?"),
        (["train", *base, "--no"], "ambiguous; expected --no-"),
        (["train", *base, "--batch-size", "3"], "--batch-size: no such option; did you mean --batch?"),
        (["train", *base, "--learning-rate", "3"], "; did you mean --lr?"),
        (["train", *base, "--wd", "3"], "; did you mean --weight-decay?"),
        (["train", *base, "--gpus", "3"], "; did you mean --devices?"),
        (["train", *base, "--batch_size", "3"], "--batch_size: no such option; did you mean --batch?"),
        (["train", *base, "--learning_rate=3"], "--learning_rate: no such option; did you mean --lr?"),
        (["tune", "--data", "x"], "tune: --data: no such option\nHelp: "),
        (["train", *base, "--l2", "3"], "--l2: no such option; did you mean --weight-decay?"),
        (["train", *base, "--mixup", "3"], "--mixup: no such option\n"),
        (["train", *base, "--tz", "3"], "--tz: no such option\n"),
        (["train", *base, "-x"], "-x: no such option"),
        (["train", *base, "--quiet=1"], "takes no value"),
        (["train", *base, "--batch"], "value is missing"),
        (["train", *base, "--trace"], "the value is missing"),
        (["train", *base, "--trace", "t.json", "--no-times"], "expected one of them"),
        (["train", *base, "--trace-events", "5"], "--trace F is missing"),
        (["train", *base, "--trace", "t.json", "--trace-events", "0"], "--trace-events 0: expected a whole number"),
        (["train", *base, "--trace", "t.json", "--log", "t.json"], "are the same file"),
        (["train", *base, "--resume"], "--checkpoint DIR is missing"),
        (["train", *base, "--keep", "3"], "--checkpoint DIR is missing"),
        (["train", *base, "--nesterov"], "momentum above 0"),
        (["train", *base, "--betas", "0.9,0.99"], "--betas needs adam or adamw"),
        (["train", *base, "--eps", "0.1"], "--eps needs adam or adamw"),
        (["train", *base, "--optimizer", "adam", "--momentum", "0.9"], "expected --betas"),
        (["train", *base, "--decay-only-weights"], "without --weight-decay"),
        (["train", *base, "--init-skip", "fc"], "--init-from F is missing"),
        (["train", *base, "--no-sync", "--clip-norm", "1"], "--no-sync with --clip-norm 1"),
        (["train", *base, "--shares", "256", "--split", "even"], "one of them"),
        (["train", *base, "--no-sync", "--save", "x"], "--no-sync with --save x"),
        (["train", *base, "--no-sync", "--checkpoint", "x"], "--no-sync with --checkpoint x"),
        (["train", *base, "--no-sync", "--plot", "x"], "--no-sync with --plot x"),
        (["train", *base, "--no-sync", "--no-overlap"], "one of them"),
        (["train", *base, "--save", "x", "--log", "x"], "two names"),
        (["train", *base, "--save", "x", "--log", "./x"], "two names"),
        (["train", *base, "--plot", "x//y", "--checkpoint", os.path.abspath("x/y") + "/"], "two names"),
        (["eval", "--weights", "a.st", *LENET, "--json", "./a.st"], "two names"),
        (["eval", "--weights", "a.st", *LENET, "--data-dir", "somewhere"], "only for fashion-mnist"),
        (["train", *base, "--init", "he", "--init-from", "x"], "one of them"),
        (["eval", "--data", "synthetic"], "--weights F is missing"),
        (["tune", "--show", "--clear"], "one of them"),
        (["tune", "--budget", "soon"], "as 60 or 60s"),
        (["tune", "--budget", "0"], "as 60 or 60s"),
        (["tune", "--model", "vgg"], "resnet18, lenet, resnet34"),
        (["tune", "--math", "fast"], "fp32 or tf32"),
        (["devices", "0:0"], "'0:0'"),
        (["selftest", "--devices"], "value is missing"),
    ]:
        expect(2, *args, err=(says, f"convoy {args[0]} --help"), env=NO_DEVICE)
    for args, says in [
        (["frobnicate"], "'frobnicate': expected a verb: devices, train, eval, predict, data, net, export, report, selftest, bench or tune\n"),
        (["trian"], "or tune; did you mean train?"),
        (["self"], "did you mean selftest?"),
        (["help", "dvices"], "did you mean devices?"),
        (["--version", "extra"], "'extra': expected nothing after --version"),
    ]:
        done = expect(2, *args, err=(says, f"Help: {CONVOY} --help"), env=NO_DEVICE)
        check(done.stdout == "", "wrong use writes nothing to stdout", done)
    for args, says in [
        (["bench"], "a word is missing"),
        (["bench", "peek"], "'peek': expected a word: peak, conv, ops, plan, train, exchange, scaling or fleet; did you mean peak?"),
        (["bench", "peak", "--time", "0"], "--time 0: expected a number from 0.001"),
        (["bench", "peak", "conv"], "'conv'"),
        (["bench", "plan"], "--as NAME is missing"),
        (["bench", "plan", "--as", "h101"], "--as h101: expected h200, h100, a100"),
        (["bench", "peak", "--math", "tf32"], "peaks are of float32"),
        (["bench", "exchange", "--math", "tf32"], "the exchange has no products"),
        (["bench", "conv", "--math", "bf16"], "--math bf16: expected fp32 or tf32"),
        (["bench", "peak", "--devices", ""], "the value is empty"),
        (["bench", "conv", "--shape", "n1h4c1k1"], "'r' is missing"),
        (["bench", "conv", "--shape", "n1h4c1k1r0"], "'r0': expected a number from 1"),
        (["bench", "conv", "--shape", "n1h4c1k1r3x"], "at 'x': expected letters"),
        (["bench", "conv", "--shape", "n1h4c1k1r3n2"], "at 'n2': expected letters"),
        (["bench", "conv", "--shape", "n1h4c1k1r3", "--model", "lenet"], "--model and --shape"),
        (["bench", "conv", "--pass", "back"], "--pass back: expected fwd, bwd-data, bwd-weights or all"),
        (["bench", "conv", "--algo", "fast"], "--algo fast: expected all, auto, or a list of direct"),
        (["bench", "conv", "--algo", "direct,direct"], "--algo direct,direct: expected all, auto"),
        (["bench", "conv", "--max-slowdown", "5%"], "--baseline F"),
        (["bench", "conv", "--max-slowdown", "x%"], "--max-slowdown x%: expected a percentage"),
        (["bench", "conv", "--op", "relu"], "--op: no such option"),
        (["bench", "ops", "--op", "conv3d"], "--op conv3d: expected conv2d"),
        (["bench", "ops", "--shape", "n1"], "--shape: no such option"),
        (["bench", "train", "--steps", "0"], "--steps 0: expected a whole number from 1"),
        (["bench", "train", "--conv-algo", "fast"], "--conv-algo fast"),
        (["bench", "train", "--model", "vgg"], "--model vgg: expected resnet18, lenet, resnet34"),
        (["bench", "exchange", "--buckets", "1,x"], "--buckets 1,x: expected sizes"),
        (["bench", "exchange", "--buckets", "0"], "--buckets 0: expected sizes"),
        (["bench", "ops", "--baseline", os.path.join(ROOT, "README.md")], "expected a file of convoy bench"),
    ]:
        done = expect(2, *args, err=(says, f"Help: {CONVOY} bench"), env=NO_DEVICE)
        check(done.stdout == "", "wrong use writes nothing to stdout", done)
    done = expect(2, err="usage: convoy VERB")
    check(done.stdout == "", "no verb: usage on stderr only", done)


def test_help(at):
    expect(0, "--version", out="convoy ")
    for args in (["--help"], ["-h"], ["help"]):
        done = expect(0, *args, out=("devices", "train", "eval", "data", "selftest", "bench"))
        check(done.stderr == "", "help goes to stdout", done)
        check(max(map(len, done.stdout.split("convoy is not on PATH")[0].splitlines())) <= 80, "80 columns", done)
    check(max(map(len, run("bench", "--help").stdout.split("convoy is not on PATH")[0].splitlines())) <= 80, "bench: 80 columns")
    wanted = {
        "devices": "json",
        "selftest": "devices model input classes json quiet",
        "bench peak": "time devices json quiet",
        "bench train": "model input batch steps inference recompute normalize augment conv-algo tune math no-breakdown devices json quiet",
        "bench exchange": "model buckets time devices json quiet",
        "bench scaling": "model batch steps rounds extrapolate limit conv-algo math tune devices json quiet",
        "bench fleet": "model batch shares exchange steps rounds conv-algo math tune nodes node port fleet-key fleet-wait no-fleet devices json quiet",
        "predict": "weights model input classes normalize exif png16 devices batch conv-algo math top json csv quiet",
        "data": "data-dir classes size gray exif png16 val-split no-data-cache strict normalize augment seed sheet json quiet",
        "report": "out csv tensorboard",
        "eval": "weights model data data-dir classes size gray exif png16 val-split no-data-cache strict normalize seed devices batch conv-algo math json confusion quiet nodes node port fleet-key fleet-wait no-fleet",
        "bench conv": "model batch shape pass algo tiles tune math time baseline max-slowdown dump-build devices json quiet",
        "bench ops": "model batch op pass algo tiles tune math time baseline max-slowdown dump-build devices json quiet",
        "tune": "devices model input classes batch math budget show clear json quiet",
        "train": "model data data-dir classes size gray exif png16 val-split no-data-cache strict normalize augment batch epochs lr init init-from init-skip freeze lr-mult optimizer betas eps momentum nesterov weight-decay decay-only-weights label-smoothing clip-norm log-grad-norm seed "
        "no-shuffle drop-last split shares conv-algo math tune bn run-ahead on-device-loss device-timeout staleness exchange bucket-mib recompute no-overlap no-sync lr-schedule warmup max-steps no-eval save save-best patience precise-bn checkpoint checkpoint-every "
        "keep resume verify-every log plot report trace trace-events no-times allow-nan quiet devices nodes node port fleet-key fleet-wait no-fleet",
    }
    for verb, names in wanted.items():
        done = expect(0, *verb.split(), "--help", out=f"usage: convoy {verb}")
        check(done.stderr == "" and run(*verb.split(), "-h").stdout == done.stdout, "-h is --help, on stdout", done)
        check(run("help", *verb.split()).stdout == done.stdout, f"convoy help {verb} is convoy {verb} --help")
        check("(null)" not in done.stdout, f"{verb} --help prints what is not there", done)
        entries = re.findall(r"^  (?:-\w, |    )--([\w-]+)(.*?)(?=^ {2,6}-|^\S|^$|\Z)", done.stdout, re.M | re.S)
        check(
            set(names.split()) == {name for name, _ in entries} - {"help"},
            f"options of {verb}: {sorted(name for name, _ in entries)}",
        )
        for name, text in entries:
            flat = " ".join(text.split())
            check(
                re.search(r"\[[^\[\]]+; (default: .+|required)\]$", flat),
                f"{verb} --{name}: no unit and default in {flat!r}",
            )
            if name == "help": continue
            wrong = run(*verb.split(), f"--{name}", "no/such", env=NO_DEVICE)
            check("(null)" not in wrong.stderr, f"{verb} --{name}: a message prints what is not there", wrong)
            choices = re.search(rf"--{name} no/such: expected ([a-z0-9-]+(?:, [a-z0-9-]+)* or [a-z0-9-]+)$", wrong.stderr, re.M)
            for choice in re.split(", | or ", choices[1]) if choices else []:
                check(re.search(rf"(?<![\w-]){choice}(?![\w-])", flat), f"{verb} --{name}: the help does not name {choice}")
        text = done.stdout.split("convoy is not on PATH")[0]   # the path behind it is as long as it is
        check(max(map(len, text.splitlines())) <= 80, f"{verb} --help: lines are too long", done)


def test_called(at):
    """Commands in messages are those that a shell would find."""
    folder, name = os.path.split(CONVOY)
    place = os.path.relpath(CONVOY, "/tmp")
    here = lambda *words, path="/usr/bin": call(words, executable=CONVOY, cwd="/tmp", env={**NO_DEVICE, "PATH": path})
    for program, path, wanted in ((CONVOY, "/usr/bin", CONVOY), (place, "/usr/bin", place), (CONVOY, f"/usr/bin:{folder}", name),
                                  (name, f"/usr/bin:{folder}", name)):
        done = here(program, "train", path=path)
        check(f"\nHelp: {wanted} train --help\n" in done.stderr, f"{program} with PATH={path}", done)
        done = here(program, "--help", path=path)
        check(("convoy is not on PATH; its path is\n  " + program in done.stdout) == (wanted != "convoy"), f"{program}", done)
    write(at(name), "#!/bin/sh\n", 0o755)   # another program of that name
    done = here(CONVOY, "train", path=f"{at()}:{folder}")
    check(f"\nHelp: {CONVOY} train --help\n" in done.stderr, "another one is found first", done)
    text = here(CONVOY, "train", "--help").stdout
    first = text.split("Other options")[0]
    check(re.findall(r"--([a-z-]+)", first.split("Basic options")[1])[:6] == ["model", "data", "devices", "batch", "epochs", "lr"], first)
    check("Multiple GPUs" in first and len(first.splitlines()) < 60, f"the first part is a screen or two: {first}")
    check(text.count("--model NAME") == 2, "an option stands in one part (and in the usage line)")


def test_outputs(at):
    """Files that cannot be written are found before any work, and nothing is left behind."""
    folder = at("folder")
    os.mkdir(folder)
    for option in ("--save", "--log", "--plot"):
        expect(1, "train", *SMALL, option, at("no/such"), err=(option, "no/such", "No such file"), env=NO_DEVICE)
        expect(1, "train", *SMALL, option, folder, err=(option, "folder"), env=NO_DEVICE)
    expect(
        1,
        "train",
        *SMALL,
        "--save",
        at("good"),
        "--plot",
        at("good.svg"),
        "--checkpoint",
        folder,
        "--log",
        at("no/such"),
        env=NO_DEVICE,
    )
    done = expect(1, "train", *SMALL, "--save", "/dev/null", "--checkpoint", at("new/ck"), env=NO_DEVICE)
    check("no usable OpenCL device" in done.stderr, "a device is written directly", done)
    expect(1, "train", *SMALL, "--checkpoint", "/dev/null/x", err=("--checkpoint", "/dev/null/x"), env=NO_DEVICE)
    for verb in (["devices"], ["eval", "--weights", "w", *LENET]):
        expect(1, *verb, "--json", at("no/such"), err=("--json", "no/such"), env=NO_DEVICE)
    check(os.listdir(at()) == ["folder"] and not os.listdir(folder), f"left behind: {os.listdir(at())}")
    # two names of one file: by a link, and by one to what is not there yet
    for target in ("folder", "later"):
        os.symlink(target, at("to-" + target))
    write(at("a"), "kept")
    os.link(at("a"), at("b"))
    for one, two in [("to-folder/x", "folder/x"), ("to-later", "later"), ("a", "b")]:
        expect(2, "train", *SMALL, "--log", at(one), "--plot", at(two), err="two names", env=NO_DEVICE)
    expect(2, "eval", *LENET, "--weights", at("a"), "--json", at("b"), err="two names", env=NO_DEVICE)
    expect(2, "train", *SMALL[:-2], "--init-from", at("a"), "--log", at("b"), err="two names", env=NO_DEVICE)
    expect(1, "train", *SMALL[:-2], "--init-from", at("a"), "--save", at("b"), err="no usable OpenCL device", env=NO_DEVICE)   # going on with a file
    # an input is looked at before the devices are
    for option in ("--init-from", "--weights"):
        verb = ["train", *SMALL[:-2]] if option == "--init-from" else ["eval", *LENET]
        expect(1, *verb, option, at("none"), err=("none", "No such file"), env=NO_DEVICE)
        os.mkfifo(at("pipe"))
        expect(1, *verb, option, at("pipe"), err="a pipe, not a regular file", env=NO_DEVICE, timeout=20)
        os.remove(at("pipe"))
    # what would be lost: a file of the data set, a checkpoint, a baseline
    os.mkdir(at("data"))
    write_idx(at("data"), 4)
    idx = at("data/train-labels-idx1-ubyte")
    os.link(idx, at("hard"))
    os.symlink("data", at("soft"))
    os.mkdir(at("ck"))
    write(at("elsewhere"), "\0" * 8 + '{"__metadata__":{"convoy_checkpoint":"3"}}')
    for option in ("--save", "--plot", "--log", "--trace"):
        for name in ("hard", "soft/t10k-images-idx3-ubyte"):
            expect(2, "train", "--model", "lenet", "--data", at("data"), option, at(name), err=("two names", option, at(name)), env=NO_DEVICE)
        expect(2, "train", *SMALL, option, at("elsewhere"), err=(option, "is a checkpoint"), env=NO_DEVICE)
        expect(2, "train", *SMALL, "--checkpoint", at("ck"), option, at("ck/../ck/step-0000000001.safetensors"), err=(option, "step-"), env=NO_DEVICE)
    no_tensors(at("w"))
    expect(2, "eval", *LENET[:2], "--data", at("data"), "--weights", at("w"), "--json", idx, err="two names", env=NO_DEVICE)
    expect(2, "bench", "ops", "--baseline", at("a"), "--json", at("b"), err="two names", env=NO_DEVICE)
    check(len(read_bytes(idx)) == 12 and os.listdir(at("ck")) == [], "nothing was written")
    os.mkfifo(at("data/t10k-labels-idx1-ubyte.gz"))
    os.remove(at("data/t10k-labels-idx1-ubyte"))
    expect(1, "train", "--model", "lenet", "--data", at("data"), err="a pipe, not a regular file", env=NO_DEVICE, timeout=20)
    done = expect(1, "train", *SMALL, "--log", at("a"), "--plot", at("folder/a"), env=NO_DEVICE)
    check("two names" not in done.stderr, "two files of one name", done)
    os.mkdir(at("refused"))
    test_outputs_refused(lambda *names: at("refused", *names))
    for args in (["--version"], ["--help"], ["help", "train"], ["bench", "--help"], ["bench", "peak", "-h"], ["devices", "--json"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = run(*args, stdout=full, env=NO_DEVICE)
        check(done.returncode == 1 and "stdout: cannot be written: No space left" in done.stderr, "a full disk is not success", done)
        # a reader who closes the pipe: enough of a help text, not of a result
        reader, writer = os.pipe()
        os.close(reader)
        done = run(*args, stdout=writer, env=NO_DEVICE)
        os.close(writer)
        if "--json" in args: check(done.returncode == 1 and "stdout: cannot be written: Broken pipe" in done.stderr, "a reader who is gone", done)
        elif "--version" not in args: check(done.returncode == 0 and done.stderr == "", "a reader of help who is gone", done)


def test_outputs_refused(at):
    """A pipe that nobody reads, a name too long for the file system, a folder's name, a working folder that is gone; what
    another run writes."""
    os.mkfifo(at("pipe"))
    outputs = ["--save", "--log", "--plot", "--trace"]
    for option in outputs:
        expect(1, "train", *SMALL, option, at("pipe"), err=(option, "without a reader"), env=NO_DEVICE, timeout=20)
        expect(1, "train", *SMALL, option, at("new/"), err=(option, "expected a file name"), env=NO_DEVICE)
    for option in outputs[::2]:
        expect(1, "train", *SMALL, option, at("n" * 256), err=(option, "name too long"), env=NO_DEVICE)
    expect(1, "bench", "ops", "--baseline", at("pipe"), err="a pipe, not a regular file", env=NO_DEVICE, timeout=20)
    expect(1, "devices", "--json", at("pipe"), err="without a reader", env=NO_DEVICE, timeout=20)
    os.remove(at("pipe"))
    expect(1, "train", *SMALL, "--log", at("log"), "--trace", at("trace"), "--checkpoint", at("a/b"), env=NO_DEVICE)
    check(os.listdir(at()) == [], f"a run that did not begin left {os.listdir(at())}")
    for option in (*outputs, "--checkpoint"):
        gone = 'cd "$1" && mkdir gone && cd gone && rmdir ../gone && shift && exec "$@"'
        done = call(["sh", "-c", gone, "sh", at(), CONVOY, "train", *SMALL, option, "w"], timeout=20, env=NO_DEVICE)
        check(done.returncode == 1 and option in done.stderr, f"{option} in a folder that is gone", done)
    os.mkdir(at("ck"))
    for option, name in [("--log", "log"), ("--trace", "trace"), ("--checkpoint", "ck")]:
        fd = os.open(at(name), os.O_RDONLY if name == "ck" else os.O_RDONLY | os.O_CREAT)
        fcntl.flock(fd, fcntl.LOCK_EX)
        expect(2, "train", *SMALL, option, at(name), err=(option, at(name), f"process {os.getpid()}"), env=NO_DEVICE)
        os.close(fd)


def test_environment(at):
    """What code is loaded from is not taken from the environment by a program with more rights than its caller."""
    if os.geteuid() != 0 or os.statvfs(at()).f_flag & os.ST_NOSUID:
        print("only root can make a program for another user, where the file system lets it")
        sys.exit(77)
    os.chmod(at(), 0o755)
    copy = at("convoy")
    shutil.copy(CONVOY, copy)
    for owner, told in [(0, True), (65534, False)]:
        os.chown(copy, owner, owner)
        os.chmod(copy, 0o4755)
        done = call([copy, "devices"], env={**NO_DEVICE, "CVY_CLBLAST": "none"})
        check(("CVY_CLBLAST=none" in done.stdout) == told and "CLBlast" in done.stdout, f"CVY_CLBLAST as user {owner}", done)
    for name, value, says in [("CVY_FORCE_STAGING", "yes", "CVY_FORCE_STAGING is 'yes'; expected 0 or 1"), ("CVY_FORCE_SHAPE", "round", "expected cpu or simt"),
                              ("CVY_FORCE_MATRIX", "intel", "expected nvidia, amd"),
                              ("CVY_MEMORY_LIMIT_MIB", "512,256", "'512,256'; expected one whole number from 1 to 1073741824"),
                              ("CVY_MEMORY_LIMIT_MIB", "0", "expected one whole number")]:
        need_device()
        done = run("train", *SMALL, "--devices", device_times(4), "--max-steps", 1, "--no-eval", env={name: value})
        check(done.stderr.count(says) == 1, f"{name}={value} is told once", done)
        check(done.returncode == (0 if value == "yes" else 2), f"{name}={value} is refused", done)
    # four devices that fail for one reason: one error line
    for env, args in [({"CVY_MEMORY_LIMIT_MIB": "1"}, []), ({}, ["--conv-algo", "fft"])]:
        done = run("train", *SMALL, "--devices", device_times(4), *args, env=env)
        check(done.returncode != 0 and done.stderr.count("convoy: error: ") == 1 and "the same error on 3 other devices" in done.stderr, "one cause", done)


def test_quickstart(at):
    """Paths among its arguments are those of the caller's folder, wherever the source tree lies. Nothing is installed or built."""
    for folder in ("tree/tools/setup", "tree/build/release/tools", "bin", "elsewhere"):
        os.makedirs(at(folder))
    for name in ("quickstart", "setup/common"):
        shutil.copy(os.path.join(ROOT, "tools", name), at("tree/tools", name))
    wanted = " ".join(re.findall(r'^PACKAGES_(?:BUILD|EXTRA|MPI|PYTHON)="([^"]*)"', read(at("tree/tools/setup/common")), re.M)).split() + ["pocl-opencl-icd", "python3-pip"]
    scripts = {"bin/dpkg-query": "".join(f"echo 'installed {name} '\n" for name in wanted), "bin/apt-get": "exit 1\n", "bin/ninja": "exit 0\n", "bin/pkg-config": '[ "$2" = ompi-c ]\n',
               "tree/build/release/tools/convoy": 'printf "%s\\n" "$PWD" "$@"\n'}
    for name, text in scripts.items():
        write(at(name), "#!/bin/sh\n" + text, 0o755)
    for name, text in {"build.ninja": "", ".options": "--buildtype=release -Dtests=false\n"}.items():
        write(at("tree/build/release", name), text)
    env = {"PATH": at("bin") + os.pathsep + os.environ["PATH"]}
    mine = ["--model", "lenet", "--data", "my data"]
    for folder, script, program in [("elsewhere", "../tree/tools/quickstart", at("tree/build/release/tools/convoy")),
                                    ("elsewhere", at("tree/tools/quickstart"), at("tree/build/release/tools/convoy")),
                                    ("tree", "tools/quickstart", "build/release/tools/convoy")]:
        done = call([script, *mine], cwd=at(folder), env=env)
        check(done.returncode == 0 and done.stdout.splitlines() == [at(folder), "train", *mine], f"from {folder}", done)
        check(done.stderr == f"{program} train --model lenet --data my data\n", "what is run is named", done)
        done = call([script, "--setup-only"], cwd=at(folder), env=env)
        check(done.returncode == 0 and done.stdout == program + "\n", "the program's path", done)
    # one MPI of the two is here, and its plug-in was built: the build folder stays as it is configured
    write(at("tree/build/release/libconvoy-openmpi.so"), "")
    done = call([at("tree/tools/quickstart"), "--mpi", "--setup-only"], env=env)
    check(done.returncode == 0 and done.stderr.startswith("built;"), "nothing is configured anew", done)
    # the Python package: a virtual environment that is there gets it anew, over the build; nothing but its Python's path on stdout
    os.makedirs(at("tree/build/meson-python/mesonpy"))
    os.makedirs(at("tree/build/venv/bin"))
    write(at("tree/build/venv/bin/python"), "#!/bin/sh\nexit 1\n", 0o755)
    write(at("tree/build/venv/bin/pip"), '#!/bin/sh\nprintf "%s\\n" "$CONVOY_BUILD" "$PYTHONPATH" "$@" >"${0%/*}/said"\nexit ${PIP_STATUS:-0}\n', 0o755)
    done = call(["../tree/tools/quickstart", "--python"], cwd=at("elsewhere"), env=env)
    check(done.returncode == 0 and done.stdout == at("tree/build/venv/bin/python") + "\n", "the path of Python", done)
    said = read(at("tree/build/venv/bin/said")).splitlines()
    check(said[:3] == [at("tree/build/release"), at("tree/build/meson-python"), "install"] and "--no-index" in said and said[-1] == "./python", f"pip: {said}", done)
    done = call([at("tree/tools/quickstart"), "--python"], env={**env, "PIP_STATUS": "1"})
    check(done.returncode == 1 and "the Python package was not installed" in done.stderr and not done.stdout, "pip fails", done)
    for word in ("--setup-only", "--python"):
        done = call([at("tree/tools/quickstart"), word, "--model", "lenet"], env=env)
        check(done.returncode == 2 and f"'--model' after {word}" in done.stderr, "there is nothing to train", done)


def test_nodevice(at):
    """No OpenCL at all: exit 1, why, and what to install."""
    has_usual = bool(glob.glob("/etc/OpenCL/vendors/*.icd"))
    why = "(OCL_ICD_VENDORS) has no .icd file" + ("; without the variable the " if has_usual else ": no OpenCL driver is installed.")
    advice = why if has_usual else "  any CPU      "  # the drivers that are there are not to be installed
    done = expect(1, "devices", err=("No usable OpenCL device. ", advice), out="missing: " + NO_DEVICE["OCL_ICD_VENDORS"] + " " + why, env=NO_DEVICE)
    check(("  any CPU      " in done.stderr) != has_usual, "advice to install where nothing is installed", done)
    both = call(["sh", "-c", f"'{CONVOY}' devices 2>&1"], env=NO_DEVICE).stdout
    check(both.index("missing: ") < both.index("No usable OpenCL device"), f"the reason comes before the advice: {both}")
    write(at("gone.icd"), "libconvoy-gone.so.1\n")
    dangling = {"OCL_ICD_VENDORS": at()}
    told = f"{at()}/gone.icd names a driver that cannot be loaded: libconvoy-gone.so.1: "
    expect(1, "devices", out="missing: " + told, env=dangling)
    expect(1, "train", *SMALL[:4], err="convoy: warning: " + told, env=dangling)
    done = expect(1, "devices", "--json", env=NO_DEVICE)
    check(json.loads(done.stdout)["devices"] == [], "an empty list", done)
    expect(1, "devices", out=f"missing: {at('nowhere')} (OCL_ICD_VENDORS) is not there", env={"OCL_ICD_VENDORS": at("nowhere")})
    expect(1, "train", *SMALL[:4], err=f"convoy: warning: {at('nowhere')} (OCL_ICD_VENDORS) is not there", env={"OCL_ICD_VENDORS": at("nowhere")})
    no_tensors(at("w"))
    for verb in (["train", *SMALL[:4]], ["eval", "--weights", at("w"), *LENET[:4]], ["selftest"], ["tune"]):
        done = expect(1, *verb, err=("no usable OpenCL device", why, advice), env=NO_DEVICE)
        check(done.stdout == "", "nothing on stdout", done)
        check(("  any CPU      " in done.stderr) != has_usual, "advice to install where nothing is installed", done)


# ---- with a device ----


def test_devices(at):
    need_device()
    done = expect(0, "devices", out="--devices auto selects ")
    listed = [line for line in done.stdout.splitlines() if re.match(r"\d+:\d+ |- +\d", line)]
    data = json.loads(expect(0, "devices", "--json").stdout)
    check(len(listed) == len(data["devices"]), "as many lines as devices", done)
    for line, device in zip(listed, data["devices"]):
        check(line.startswith("-") != device["usable"] and device["id"] in line.split()[:2], f"{line!r} and {device}")
        check(device["usable"] or device["reason"] != "", f"a reason: {device}")
    check(data["auto"] and len(data["libraries"]) == 2 and re.match(r"\d+\.\d+", data["version"]), f"{data}")
    check(expect(0, "devices", "--json", at("d.json")).stdout == done.stdout, "--json F prints the table too")
    check(read_json(read(at("d.json"))) == data, "the same in the file")
    folder = os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors")
    if os.path.isdir(folder) and DEVICE == "auto":
        for path in glob.glob(os.path.join(folder, "*.icd")):
            shutil.copy(path, at())
        write(at("gone.icd"), "libconvoy-gone.so.1\n")
        dangling = {"OCL_ICD_VENDORS": at()}
        expect(0, "devices", out=f"missing: {at()}/gone.icd names a driver that cannot be loaded", env=dangling)
        done = expect(0, "train", *SMALL, "--max-steps", 1, "--no-eval", env=dangling)
        check("no GPU found" not in done.stderr or f"{CONVOY} devices lists possible reasons\n" in done.stderr, "where to look", done)
        done = expect(0, "train", *SMALL, "--max-steps", 1, "--no-eval", "--quiet", env=dangling)
        check(done.stderr == "", "quiet", done)
    if any("Portable Computing Language" in device["platform_name"] for device in data["devices"]):
        expect(None, "devices", out="missing: PoCL offers no device with POCL_DEVICES=nonsense: unset it", env={"POCL_DEVICES": "nonsense"})
        expect(None, "devices", out="missing: PoCL offers no device with POCL_DEVICES='' (set, but empty): unset it", env={"POCL_DEVICES": ""})
        expect(None, "devices", out="POCL_CACHE_DIR=/proc/none cannot be used: No such file", env={"POCL_CACHE_DIR": "/proc/none"})
    expect(2, "train", *SMALL[:4], "--devices", "99:0", err=("99:0", data["devices"][0]["id"]))
    expect(2, "train", *SMALL[:4], "--devices", "no such name", err="no such name")
    if not any(device["usable"] and device["kind"] == "GPU" for device in data["devices"]):
        for words in ("gpu", "nvidia"):
            expect(2, "train", *SMALL[:4], "--devices", words, err=(f"'{words}': ", "  NVIDIA GPU   ", "--devices cpu uses the CPU"))
        done = expect(2, "train", *SMALL[:4], "--devices", "99:0")
        check("NVIDIA GPU" not in done.stderr, "a slip is no wish for a GPU", done)
    expect(2, "train", *SMALL, "--shares", "32,32", err=("--shares 32,32", "2 numbers; expected 1"))


def test_first_try(at):
    """What `convoy help` offers for a first try succeeds, far above chance."""
    need_device()
    offered = re.search(r"Quick try:\n +convoy (.*)", run("help").stdout)[1].split()
    done = expect(0, *offered, "--devices", DEVICE, timeout=300)
    accuracy = re.search(r"^test acc: ([0-9.]+),", done.stdout, re.M)
    check(accuracy and float(accuracy[1]) >= 0.9, "a first try ends above 0.9", done)


def test_selftest(at):
    """Passes; and with a wrong kernel it fails and says which operation."""
    device = ["--devices", DEVICE]
    expect(2, "selftest", "--input", "28x28x1", err="--input and --classes need --model", env=NO_DEVICE)
    expect(2, "selftest", "--model", "vgg", err="expected resnet18, lenet", env=NO_DEVICE)
    own = json.loads(expect(0, "selftest", *device, "--model", "lenet", "--input", "3x20x20", "--classes", 7, "--json").stdout)
    check(own["passed"] and own["devices"][0]["shapes"] > 40, "the network that is named", own)
    expect(0, "selftest", *device, "--model", "resnet18", "--input", "8x8x1", out="passed")  # whose last images are of one pixel
    result = json.loads(expect(0, "selftest", *device, "--json").stdout)
    for d in result["devices"]:
        check(d["passed"] and d["shapes"] > 30 and d["kernels"] > 100 and 0 < d["worst_error_per_bound"] <= 1, f"{d}")
    broken = wrong_kernels(at("cl"), ("layers/softmax.cl", r"\bexp\(", "exp(1.0001f * "), ("compress.cl", r"bits \+ 0x7fffu", "bits + 0x3fffu"))
    done = expect(1, "selftest", *device, out=("FAILED softmax ", "bound", "FAILED compress "), env=broken)
    check("2 wrong" in done.stdout, "only these", done)


def test_selftest_card(at):
    """The same as on a graphics card: tests/meson.build sets CVY_FORCE_SHAPE and what else there is of one."""
    check(os.environ.get("CVY_FORCE_SHAPE") == "simt", "this group is for the suite `card`")
    device = ["--devices", DEVICE, "--model", "lenet", "--input", "28x28x1"]
    for d in json.loads(expect(0, "selftest", *device, "--json").stdout)["devices"]:
        check(d["passed"] and d["shapes"] > 30 and d["kernels"] > 100 and 0 < d["worst_error_per_bound"] <= 1, f"{d}")
    broken = wrong_kernels(at("cl"), ("layers/softmax.cl", r"\bexp\(", "exp(1.0001f * "))
    expect(1, "selftest", *device, out=("FAILED softmax ", "1 wrong"), env=broken)


if __name__ == "__main__":
    main(globals(), without_device=("errors", "help", "called", "outputs", "nodevice", "environment", "quickstart"))
