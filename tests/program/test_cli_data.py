#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program and what it reads: test_cli_data.py CONVOY GROUP   (groups: the functions named test_<group> below)

Labels, weights and data sets as people have them. Exit 77 where a group needs a device and there is none."""

import json
import math
import os
import re
import struct
import shutil
import subprocess
import sys
import tempfile
import time
import zlib

from cli import check, CONVOY, expect, facts_of, first_device, lines_of, read, read_json, ROOT, same, main

SIDE = 28


def write_set(dir, labels, wide):
    """A folder of idx files: an image of one brightness per label, labels of one byte or of two."""
    for part in ("train", "t10k"):
        with open(os.path.join(dir, part + "-images-idx3-ubyte"), "wb") as f:
            f.write(struct.pack(">4B3I", 0, 0, 8, 3, len(labels), SIDE, SIDE))
            f.write(b"".join(bytes([label % 251]) * (SIDE * SIDE) for label in labels))
        with open(os.path.join(dir, part + "-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">4BI", 0, 0, 0x0B if wide else 8, 1, len(labels)))
            f.write(struct.pack(f">{len(labels)}{'H' if wide else 'B'}", *labels))


def test_classes(at):
    """More classes than a byte tells apart: trained, gone on with, evaluated, from every source of data."""
    device, two = first_device(), first_device() + "*2"
    lenet = ["--model", "lenet", "--devices", device]
    for name, labels, wide in [("wide", [i * 37 % 990 for i in range(63)] + [999], True), ("few", [i % 10 for i in range(64)], False)]:
        os.mkdir(at(name))
        write_set(at(name), labels, wide)
    small = [*lenet, "--batch", 32, "--init", "he", "--lr", 0.02]
    # 16-bit labels; without --classes: the largest + 1
    expect(0, "train", *small, "--data", at("wide"), "--epochs", 1, "--save", at("w.st"), "--log", at("log"), err="1000 classes")
    check(lines_of(at("log"))[0]["run"]["data"]["classes"] == 1000, "the log's number of classes")
    # the same in two parts, the same bits
    for steps in (1, 2):
        expect(0, "train", *small, "--data", at("wide"), "--epochs", 1, "--max-steps", steps, "--checkpoint", at("ck"), "--resume",
               "--save", at("parts.st"))
    same(at("w.st"), at("parts.st"), "resumed with 1000 classes: other weights")
    # weights of 1000 outputs beside data of ten labels
    few = ["--data", at("few"), "--classes", 1000]
    expect(0, "eval", *lenet, *few, "--weights", at("w.st"), out="test acc")
    expect(0, "train", *lenet, "--batch", 32, *few, "--init-from", at("w.st"), "--max-steps", 1, out="test acc")
    expect(0, "eval", *lenet, "--data", at("few"), "--weights", at("w.st"), out="test acc")  # their file says how many
    tensors = read_weights(at("w.st"))
    write_weights(at("bare.st"), tensors)
    expect(2, "eval", *lenet, "--data", at("few"), "--weights", at("bare.st"), err="'9.weight' has the shape (1000,128)")
    # a label that is too large: file and index
    expect(1, "train", *small, "--data", at("wide"), "--classes", 999, "--max-steps", 1,
           err=("train-labels-idx1-ubyte", "image 63 (offset 134) is 999", "999 classes"))
    # one device or two, resident or streamed: the same images with the same labels
    many = [*small[2:], "--model", "lenet", "--data", "synthetic:40000", "--classes", 300, "--batch", 21, "--max-steps", 4, "--no-eval",
            "--augment", "flip,crop:4"]
    expect(0, "train", *many, "--save", at("resident.st"))
    expect(0, "train", *many, "--save", at("streamed.st"), err="does not fit in memory with the network",
           env={"CVY_MEMORY_LIMIT_MIB": "28"})
    same(at("resident.st"), at("streamed.st"), "streamed with 300 classes: other weights")
    many[many.index("--devices") + 1] = two
    expect(0, "train", *many, "--split", "even", "--verify-every", 1, out="train loss: 5.")
    # as many as there can be
    most = ["--data", "synthetic:8", "--classes", 65535]
    expect(0, "train", *small, *most, "--max-steps", 1, "--batch", 4, "--no-eval", "--save", at("most.st"), out="train loss: 11.")
    expect(0, "eval", *lenet, *most, "--batch", 4, "--weights", at("most.st"), out="test acc")


def read_weights(path):
    """{name: [dtype, shape, bytes]} of a safetensors file."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {name: [t["dtype"], t["shape"], data[slice(*t["data_offsets"])]] for name, t in header.items() if name != "__metadata__"}


def write_weights(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def changed(tensors, name, values):
    """The tensors, with other values at the beginning of one: {position: value}."""
    all = list(floats(tensors[name][2]))
    for at, value in values.items():
        all[at] = value
    return {**tensors, name: ["F32", tensors[name][1], struct.pack(f"<{len(all)}f", *all)]}


def as_type(tensors, dtype):
    """F32 → F64, F16 or BF16 (cut off); others stay."""
    pack = {
        "F64": lambda x: struct.pack(f"<{len(x)}d", *x),
        "F16": lambda x: struct.pack(f"<{len(x)}e", *x),
        "BF16": lambda x: b"".join(struct.pack("<f", v)[2:] for v in x),
    }[dtype]
    return {name: [dtype, t[1], pack(floats(t[2]))] if t[0] == "F32" else t for name, t in tensors.items()}


def test_weights(at):
    """Weights of other types, and weights or rates that lead out of float32."""
    base = ["--data", "synthetic:180:16x16x1", "--batch", 16, "--devices", first_device() + "*2"]
    lenet, resnet = ["--model", "lenet", *base], ["--model", "resnet18", *base]
    evaluate = lambda code, model, file, **more: expect(code, "eval", *model, "--weights", at(file), "--json", "-", **more)
    expect(0, "train", *lenet, "--init", "he", "--max-steps", 2, "--no-eval", "--save", at("w.st"))
    tensors = read_weights(at("w.st"))
    right = json.loads(evaluate(0, lenet, "w.st").stdout)
    for dtype, most in (("F64", 0), ("F16", 1e-3), ("BF16", 2e-2)):
        write_weights(at(dtype), as_type(tensors, dtype))
        done = evaluate(0, lenet, dtype, err=f"{len(tensors)} tensors of type {dtype} converted to float32")
        check(done.stderr.count("converted") == 1, "said once", done)
        loss = json.loads(done.stdout)["loss"]
        check(abs(loss - right["loss"]) <= most, f"{dtype}: loss {loss}, must be {right['loss']} within {most}", done)
    train = ["train", *lenet, "--max-steps", 1, "--no-eval", "--init-from"]
    expect(0, *train, at("F16"), err="converted to float32")
    wide = as_type(tensors, "F64")
    wide["0.bias"][2] = struct.pack("<d", -1e300) + wide["0.bias"][2][8:]
    write_weights(at("wide"), wide)
    evaluate(1, lenet, "wide", err=("value 0 of tensor '0.bias' is -1e+300", "float32"))

    # not finite in the file: refused before training, named by eval
    write_weights(at("nan"), changed(tensors, "3.weight", {7: math.nan, 9: math.inf}))
    expect(1, *train, at("nan"), err=("2 values are not finite", "'3.weight' (nan at 7)", "--allow-nan"))
    expect(0, *train, at("nan"), "--allow-nan", err="'3.weight' (nan at 7)")
    done = evaluate(1, lenet, "nan", err="the loss of the test images is not finite: tensor '3.weight'")
    check(json.loads(done.stdout)["loss"] is None, "the result is there all the same", done)
    # finite, but the network overflows: the layer, and not the learning rate
    write_weights(at("large"), changed(changed(tensors, "7.bias", {i: 3e38 for i in range(20)}), "9.weight", {i: 1e3 for i in range(20)}))
    evaluate(1, lenet, "large", err="linear '9' is the first layer with an output that is not finite, on images 0 to")
    done = expect(1, *train, at("large"), err=("step 0 is", "the initial weights overflow"))
    check("learning rate" not in done.stderr, "not blamed on the learning rate", done)
    expect(0, "train", *resnet, "--max-steps", 1, "--no-eval", "--save", at("r.st"))
    tensors = read_weights(at("r.st"))
    name = next(name for name in tensors if name.endswith("running_var"))
    write_weights(at("huge"), changed(changed(tensors, name.replace("running_var", "weight"), {0: 3e38}), name, {0: 1e-30}))
    evaluate(1, resnet, "huge", err="batchnorm '1' is the first layer with an output that is not")
    # a rate that is above 0 in a double
    for rate in ("1e-38", "1e-300"):
        done = expect(0, "train", *lenet, "--lr", rate, "--max-steps", 2, "--no-eval", "--log", at("log" + rate), err="--lr " + rate)
        check(0 < lines_of(at("log" + rate))[1]["lr"] < 1.2e-38, f"the rate of --lr {rate}", done)


def peak_mib(*args):
    """(exit status, stderr, MiB of memory that the program had at its peak)"""
    with tempfile.TemporaryFile() as err:
        env = {key: value for key, value in os.environ.items() if key != "MALLOC_PERTURB_"}   # it touches what is only reserved
        process = subprocess.Popen([CONVOY, *map(str, args)], stdout=subprocess.DEVNULL, stderr=err, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        return process.returncode, err.read().decode(errors="replace"), usage.ru_maxrss >> 10


def test_sizes(at):
    """What cannot be trained on is refused before memory is taken for its images."""
    for model, data, text in [
        ("lenet", "20:11000x11000x1", "lenet cannot be built for 1x11000x11000 pixels"),
        ("lenet", "1:32768x32768x1", "input of a network: 1x32768x32768"),
        ("resnet18", "20:8000x8000x1", "conv2d '0': one sample of its output, 64x8000x8000, is more than 2^31 values"),
        ("lenet", "1000000000:65536x65536x3", "GiB of memory"),
    ]:
        for devices in (first_device(), first_device() + "*2"):
            code, err, mib = peak_mib("train", "--model", model, "--data", "synthetic:" + data, "--devices", devices, "--max-steps", 1)
            check(code == 2 and text in err, f"{data}: exit {code}, {err}")
            check(mib < 400, f"{data}: {mib} MiB at the peak")


PICTURES = os.path.join(ROOT, "tests", "data", "pictures")


def test_pictures(at):
    """Folders of pictures: looked at, trained on, resumed, evaluated; broken ones; the decoded copy."""
    libraries = expect(0, "--version").stdout
    if "no JPEG" in libraries or "no PNG" in libraries:
        print("skipped: this convoy was built without libjpeg or libpng")
        sys.exit(77)
    env = {"XDG_CACHE_HOME": at("cache")}
    os.mkdir(at("cache"))
    shutil.copytree(PICTURES, at("pics"))
    # a look: sizes as they are, without the decoded copy
    done = expect(0, "data", at("pics"), env=env, out=("2 classes", "jpeg            5           1\n", "notes.txt",
                                                       "height of the files: 3 to 60, median 11; width: 4 to 40"))
    check("broken" not in done.stdout and not os.path.exists(at("cache/convoy/data")), "nothing is broken, nothing is kept", done)
    with open(os.fsencode(at("pics/train/png/broken")) + b"\xff.png", "wb") as f:
        f.write(b"GIF89a")
    done = expect(0, "data", at("pics"), "--json", "-", "--size", "16x12", "--val-split", "0.3", env=env)
    facts = read_json(done.stdout)
    check((facts["height"], facts["width"], facts["channels"], facts["class_names"]) == (16, 12, 3, ["jpeg", "png"]), "sizes and names", done)
    check([facts["sets"][s]["of_class"] for s in ("training", "validation", "test")] == [[3, 6], [2, 3], [1, 1]], "images of a class", done)
    check([b["why"] for b in facts["pictures"]["broken"]] == ["it is a GIF file; JPEG, PNG, PGM and PPM are read"], "the broken picture", done)
    check(len(facts["mean"]) == 3 and all(0.3 < m < 0.7 for m in facts["mean"]), "moments", done)
    expect(1, "data", at("pics"), "--strict", env=env, out="broken, left out: 1")
    expect(2, "data", env=env, err="SRC is missing")
    expect(2, "data", at("pics"), at("pics"), env=env, err="expected an option")
    expect(2, "data", at("none"), env=env, err="No such file")
    expect(2, "data", at("pics"), "--size", "0x5", env=env, err="expected N, the shorter side, or HxW")

    # trained on: decoded, from the copy, in memory, streamed, on two devices as on one
    device, two = first_device(), first_device() + "*2"
    base = ["train", "--model", "lenet", "--data", at("pics"), "--size", 28, "--batch", 6, "--init", "he", "--epochs", 2]
    one = [*base, "--devices", device]
    expect(0, *one, "--save", at("a"), "--log", at("log"), env=env, err=("14 train + 2 test images 28x28x3, 2 classes", "is left out: it is a GIF"), out="test acc")
    run = lines_of(at("log"))[0]["run"]
    check(run["data"]["val"] == 0 and run["settings"]["size"] == "28" and run["settings"]["gray"] == "no", f"the log: {run}")
    copies = os.listdir(at("cache/convoy/data"))
    check(len(copies) == 1 or len(copies) == 2, f"copies: {copies}")
    for name, more, limit in (("b", [], None), ("c", ["--no-data-cache"], None), ("d", [], "28")):
        expect(0, *one, *more, "--save", at(name), env={**env, **({"CVY_MEMORY_LIMIT_MIB": limit} if limit else {})})
        same(at("a"), at(name), f"{name}: other weights")
    expect(0, *base, "--devices", two, "--split", "even", "--verify-every", 1, env=env, out="test acc")
    expect(1, *one, "--strict", env=env, err="is broken: it is a GIF")
    expect(2, *[w for w in one if w not in ("--size", 28)], env=env, err=("pictures have different sizes", "adobe-cmyk.jpg has 11x9", "--size"))
    expect(0, "eval", "--model", "lenet", "--weights", at("a"), "--data", at("pics"), "--size", 28, "--devices", device, env=env, out="of 2)")

    # resumed: size, gray and val-split are the checkpoint's; others, and other pictures, are refused
    part = [*one, "--gray", "--val-split", 0.2, "--seed", 3, "--checkpoint", at("ck")]
    expect(0, *part, "--max-steps", 2, env=env, err="11 train + 3 val + 2 test images 28x28x1")
    expect(2, "train", "--checkpoint", at("ck"), "--resume", "--size", 32, env=env, err='size: "28" in the checkpoint, "32" now')
    expect(2, "train", "--checkpoint", at("ck"), "--resume", "--val-split", 0.3, env=env, err='val_split: "0.2" in the checkpoint, "0.3" now')
    expect(0, *[w for w in part if w not in ("--checkpoint", at("ck"))], "--save", at("whole"), env=env)
    shutil.copytree(at("ck"), at("ck2"))
    expect(0, "train", "--checkpoint", at("ck"), "--resume", "--save", at("parts"), env=env)
    same(at("whole"), at("parts"), "resumed: other weights")
    shutil.copy(at("pics/train/png/wide.png"), at("pics/train/png/alpha.png"))
    expect(2, "train", "--checkpoint", at("ck2"), "--resume", env=env, err="data_content")

    # two class folders that have changed places: names, sizes and times of all files are those of the copy
    for name, shade in (("a", 40), ("b", 200)):
        os.makedirs(at("places", "train", name))
        for i in range(6):
            with open(at("places", "train", name, f"{i}.ppm"), "wb") as f:
                f.write(b"P6 28 28 255\n" + bytes([shade + i]) * (28 * 28 * 3))
            os.utime(at("places", "train", name, f"{i}.ppm"), (1000, 1000))
    shutil.copytree(at("places/train"), at("places/test"))
    places = [at("places") if word == at("pics") else word for word in one]
    expect(0, *places, "--lr", 0.05, "--epochs", 20, "--checkpoint", at("ck3"), "--save", at("before"), env=env, out="test acc: 1.00")
    for part in ("train", "test"):
        for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
            os.rename(at("places", part, old), at("places", part, new))
    expect(2, *places, "--lr", 0.05, "--epochs", 21, "--checkpoint", at("ck3"), "--resume", env=env, err="data_content")
    expect(0, "eval", "--model", "lenet", "--weights", at("before"), "--data", at("places"), "--size", 28, "--devices", device, env=env,
           out="test acc: 0.00")

    # classes alone: no test set
    expect(0, *[at("pics/train") if w == at("pics") else w for w in one], env=env, out="train loss", err="14 train images 28x28x3")
    expect(2, "eval", "--model", "lenet", "--weights", at("a"), "--data", at("pics/train"), "--size", 28, "--devices", device, env=env,
           err=("has no test samples", "test/CLASS/"))
    # no room for a copy: memory, with a warning
    os.mkdir(at("small"))
    expect(0, *one, "--save", at("e"), env={"XDG_CACHE_HOME": "/proc"})
    # a newer seed chooses other pictures; idx and synthetic data can be resized, too
    expect(0, "data", "synthetic:60:8x8x3", "--size", "5", "--gray", "--val-split", 0.5, env=env, out="images 5x5x1")
    check("pictures: lib" in expect(0, "--version").stdout, "the libraries")


def png(path, rows, depth=8, extra=()):
    """A gray PNG of these rows of values; extra: (name, body) of chunks before its pixels."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    lines = b"".join(b"\0" + struct.pack(f">{len(row)}{'H' if depth == 16 else 'B'}", *row) for row in rows)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), depth, 0, 0, 0, 0)) +
                b"".join(chunk(*one) for one in extra) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def png16(path, value, n=28):
    """A gray PNG with 16 bits of each pixel, all of one value."""
    png(path, [[value] * n] * n, depth=16)


def test_copy_cut(at):
    """The decoded copy becomes shorter under a run: an error that names it, the newest state is kept, and --resume goes on."""
    device = first_device()
    for name, shade in (("a", 40), ("b", 200)):
        os.makedirs(at("pics", "train", name))
        for i in range(1500):
            with open(at("pics", "train", name, f"{i}.ppm"), "wb") as f:
                f.write(b"P6 28 28 255\n" + bytes([shade + i % 50]) * (28 * 28 * 3))
    env = {"XDG_CACHE_HOME": at("cache"), "CVY_MEMORY_LIMIT_MIB": "8"}
    for name, devices in (("lone", device), ("two", device + "*2")):
        train = ["train", "--model", "lenet", "--init", "he", "--data", at("pics"), "--size", 28, "--batch", 16, "--devices", devices,
                 "--epochs", 2000, "--lr", 0.01, "--no-eval", "--checkpoint", at(name), "--checkpoint-every", 4, "--log", at(name + ".log")]
        with open(at("err"), "w") as err:
            process = subprocess.Popen([CONVOY, *map(str, train)], env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=err)
        for _ in range(1200):
            if process.poll() is not None or (os.path.isdir(at(name)) and any(f.startswith("step-") for f in os.listdir(at(name)))):
                break
            time.sleep(0.1)
        copies = os.listdir(at("cache/convoy/data"))
        check(len(copies) == 1 and process.poll() is None, f"the run goes on and has a copy: {copies} {read(at('err'))}")
        copy = at("cache/convoy/data", copies[0])
        size = os.path.getsize(copy)
        os.truncate(copy, 8192)
        check(process.wait(120) == 1, f"exit {process.returncode}: {read(at('err'))}")
        said = read(at("err"))
        check("does not fit in memory with the network" in said, f"batch by batch: {said}")
        check(f"{copy} became shorter while it was in use: 8192 of {size} bytes are left" in said and "resume with --resume" in said, said)
        step = int(re.search(r"error after step (\d+); checkpoint in", said).group(1))
        check(os.path.exists(at(name, f"step-{step:010}.safetensors")), f"step {step}: {os.listdir(at(name))}")
        check(lines_of(at(name + ".log"))[-1]["error"]["code"] == "CVY_E_IO", "the log's last line")
        expect(0, *train, "--resume", "--max-steps", step + 2, env=env)
        shutil.rmtree(at("cache"))


def swap_copies(at):
    """Of two copies of decoded pictures: the key is in a copy, its name alone is no reason to take it."""
    one, other = (at("cache", "convoy", "data", name) for name in os.listdir(at("cache", "convoy", "data")))
    for a, b in ((one, at("aside")), (other, one), (at("aside"), other)):
        os.rename(a, b)


def test_png16(at):
    """16-bit gray PNGs: cut off at 255 as Pillow does it, with one warning, or scaled; the copy, the weights, eval and predict keep to it."""
    env = {"XDG_CACHE_HOME": at("cache")}
    for part in ("train", "test"):
        for i in range(8):
            for name, value in (("dark", 0x4000), ("light", 0xC000)):
                png16(at("data", part, name, f"{i}.png"), value + i)
    white = "values above 255 become white"
    data = ["data", at("data"), "--gray", "--size", 28, "--json", "-"]
    for _ in range(2):  # the second time from the copy
        done = expect(0, *data, env=env, err=("32 pictures of", white, "--png16 scale", "train/dark/0.png"))
        check(done.stderr.count("warning") == 1 and read_json(done.stdout)["mean"] == [1.0], "white", done)
        done = expect(0, *data, "--png16", "scale", env=env)
        check("warning" not in done.stderr and abs(read_json(done.stdout)["mean"][0] - (64 + 191) / 510) < 1e-6, "0 to 65535 as 0 to 255, rounded", done)
    check(len(os.listdir(at("cache", "convoy", "data"))) == 2, f"a copy of each: {os.listdir(at('cache', 'convoy', 'data'))}")
    swap_copies(at)
    for words, mean in (([], 1.0), (["--png16", "scale"], (64 + 191) / 510)):
        check(abs(read_json(expect(0, *data, *words, env=env).stdout)["mean"][0] - mean) < 1e-6, f"copies under each other's names {words}")
    done = expect(0, "data", at("data"), "--no-data-cache", "--size", 28, env=env, err=white)
    check(done.stderr.count("warning") == 1, "one warning", done)
    # values that fit are the same either way
    png16(at("small", "a", "1.png"), 200)
    done = expect(0, "data", at("small"), "--json", "-", env=env)
    check("white" not in done.stderr and abs(read_json(done.stdout)["mean"][0] - 200 / 255) < 1e-9, "200 stays 200", done)

    lenet = ["--devices", first_device(), "--quiet"]
    train = ["train", "--model", "lenet", "--data", at("data"), "--size", 28, "--gray", "--batch", 8, "--lr", 0.05, "--epochs", 40, "--init", "he", *lenet]
    expect(0, *train, "--png16", "scale", "--save", at("s.st"), "--checkpoint", at("ck"), "--log", at("log"), env=env)
    check(lines_of(at("log"))[0]["run"]["settings"]["png16"] == "scale", "the log")
    check(facts_of(at("s.st"))["png16"] == "scale", f"facts: {facts_of(at('s.st'))}")
    done = expect(0, "eval", "--weights", at("s.st"), "--data", at("data"), *lenet, "--json", "-", env=env)
    check(read_json(done.stdout)["correct"] == 16 and white not in done.stderr, "eval as trained", done)
    predict = ["predict", *lenet, "--top", 1, "--json", "-"]
    done = expect(0, *predict, "--weights", at("s.st"), at("data", "test"), env=env)
    found = read_json(done.stdout)["predictions"]
    check(all(one["top"][0]["class"] == one["file"].split("/")[-2] for one in found) and white not in done.stderr, "predict as trained", done)
    expect(2, *predict, "--weights", at("s.st"), at("data"), "--png16", "clip", err="was trained with --png16 scale", env=env)
    # a run that goes on takes it from the checkpoint, and does not change it
    expect(0, *train, "--png16", "scale", "--epochs", 41, "--checkpoint", at("ck"), "--resume", env=env)
    expect(0, "train", "--checkpoint", at("ck"), "--resume", "--epochs", 42, *lenet, "--save", at("r.st"), env=env)
    expect(2, *train, "--png16", "clip", "--epochs", 43, "--checkpoint", at("ck"), "--resume", err="png16", env=env)
    # clipped, all are the same: said, once each
    done = expect(0, *train, "--save", at("c.st"), env=env, err=white)
    check(done.stderr.count(white) == 1, "one warning", done)
    done = expect(0, *predict, "--weights", at("c.st"), at("data", "test"), env=env, err=(white, "test/dark/0.png"))
    check(done.stderr.count(white) == 1, "the first is named", done)
    done = expect(0, *predict, "--weights", at("c.st"), "--png16", "scale", at("data", "test"), env=env)
    check(white not in done.stderr, "asked for", done)


def exif(orientation):
    """A TIFF file with nothing but an orientation."""
    return b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 274, 3, 1, orientation, 0, 0)


def arrow(path, upright, orientation):
    """A gray PNG of the upright rows as a camera held this way stores them."""
    rows = upright
    if orientation in (5, 6, 7, 8):  # the file's rows are columns of the upright picture
        rows = [list(column) for column in zip(*rows)]
    if orientation in (3, 4, 6, 7):  # the first row is at the bottom, or on the right
        rows = rows[::-1]
    if orientation in (2, 3, 7, 8):  # the first column is on the right, or at the bottom
        rows = [row[::-1] for row in rows]
    png(path, rows, extra=[(b"eXIf", exif(orientation))] if orientation > 1 else [])


def test_exif(at):
    """Pictures that EXIF turns: as they lie in the file, with one warning, or upright; the copy, the weights, eval, predict and --resume keep to it."""
    env = {"XDG_CACHE_HOME": at("cache")}
    for k in range(8):
        for name, bright in (("down", range(30, 40)), ("up", range(0, 10))):  # 40 x 28: the bright rows tell the classes apart
            rows = [[255 if y in bright else (y + 3 * x + k) % 64 for x in range(28)] for y in range(40)]
            for part in ("train", "test"):
                arrow(at("data", part, name, f"{k}.png"), rows, k + 1)
    turned = "EXIF, which is ignored"
    data = ["data", at("data"), "--gray", "--json", "-"]
    sizes = ["--size", "40x28"]
    for _ in range(2):  # the second time from the copy
        done = expect(0, *data, *sizes, env=env, err=("28 pictures of", turned, "--exif rotate", "train/down/1.png"))
        check(done.stderr.count("warning") == 1, "one warning", done)
        done = expect(0, *data, *sizes, "--exif", "rotate", env=env, err=("28 pictures of", "turned upright"))
        check("warning" not in done.stderr, "asked for", done)
    check(len(os.listdir(at("cache", "convoy", "data"))) == 2, f"a copy of each: {os.listdir(at('cache', 'convoy', 'data'))}")
    swap_copies(at)
    means = [read_json(expect(0, *data, *sizes, "--exif", word, *more, env=env).stdout)["mean"]
             for word in ("ignore", "rotate") for more in ([], ["--no-data-cache"])]
    check(means[0] == means[1] and means[2] == means[3] and means[0] != means[2], f"copies under each other's names: {means}")
    lenet = ["--devices", first_device(), "--quiet"]
    # upright, all have one size, which the headers do not
    expect(2, "train", "--model", "lenet", "--data", at("data"), "--gray", "--max-steps", 1, *lenet, env=env, err="different sizes")
    expect(0, "train", "--model", "lenet", "--data", at("data"), "--gray", "--exif", "rotate", "--max-steps", 1, "--batch", 8, *lenet, env=env)
    train = ["train", "--model", "lenet", "--data", at("data"), "--size", "28", "--gray", "--batch", 8, "--lr", 0.05, "--epochs", 40, "--init", "he", *lenet]
    expect(0, *train, "--exif", "rotate", "--save", at("r.st"), "--checkpoint", at("ck"), "--log", at("log"), env=env)
    check(lines_of(at("log"))[0]["run"]["settings"]["exif"] == "rotate", "the log")
    check(facts_of(at("r.st"))["exif"] == "rotate", f"facts: {facts_of(at('r.st'))}")
    done = expect(0, "eval", "--weights", at("r.st"), "--data", at("data"), *lenet, "--json", "-", env=env)
    check(read_json(done.stdout)["correct"] == 16 and turned not in done.stderr, "eval as trained", done)
    predict = ["predict", *lenet, "--top", 2, "--json", "-"]
    done = expect(0, *predict, "--weights", at("r.st"), at("data", "test"), env=env)
    found = read_json(done.stdout)["predictions"]
    check(all(one["top"][0]["class"] == one["file"].split("/")[-2] for one in found) and turned not in done.stderr, "predict as trained", done)
    expect(2, *predict, "--weights", at("r.st"), at("data"), "--exif", "ignore", err="was trained with --exif rotate", env=env)
    expect(0, "train", "--checkpoint", at("ck"), "--resume", "--epochs", 41, *lenet, env=env)
    expect(2, *train, "--exif", "ignore", "--epochs", 43, "--checkpoint", at("ck"), "--resume", err="exif", env=env)
    # every orientation is the upright picture, bit for bit; a JPEG's is read, too
    rows = [[(7 * x + 11 * y) % 256 for x in range(28)] for y in range(28)]
    for k in range(8):
        arrow(at("same", f"{k + 1}.png"), rows, k + 1)
    found = read_json(expect(0, *predict, "--weights", at("r.st"), at("same"), env=env).stdout)["predictions"]
    check(len({json.dumps(one["top"]) for one in found}) == 1 and len(found) == 8, f"eight orientations: {found}")
    expect(0, *train, "--epochs", 1, "--save", at("i.st"), env=env)
    done = expect(0, *predict, "--weights", at("i.st"), at("same"), env=env, err=("its EXIF says, which is ignored", "same/2.png"))
    check(done.stderr.count("warning") == 1, "the first is named", done)
    expect(0, *predict, "--weights", at("i.st"), os.path.join(ROOT, "tests/data/pictures/train/jpeg/exif-6.JPG"), env=env, err="exif-6.JPG is turned or mirrored")


if __name__ == "__main__":
    main(globals())
