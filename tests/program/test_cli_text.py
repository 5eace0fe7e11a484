#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Text from outside in what the program prints and writes: test_cli_text.py CONVOY GROUP   (groups: the functions named test_<group> below)

Names of classes and files that are not UTF-8, or hold control characters. Exit 77 where a group needs a device and there is none."""

import csv
import io
import json
import os
import re
import struct
import subprocess
import zlib

from cli import CONVOY, DEVICE, check, expect, facts_of, main, NO_DEVICE, read_bytes, read_json

# in a terminal: C0, C1 (in UTF-8: a CSI of one character), the direction of writing; then a byte that is no UTF-8
ODD = b"odd\x1b[31m\xc2\x9b31m\xe2\x80\xae\xe2\x81\xa6\xe9"
SHOWN = r"odd\x1b[31m\xc2\x9b31m\xe2\x80\xae\xe2\x81\xa6\xe9"
RAW = ("\x1b", "\x9b", "\u202e", "\u2066")


def png(path, rgb, n=28):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", n, n, 8, 2, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress((b"\0" + bytes(rgb) * n) * n)) + chunk(b"IEND", b""))


def folder(path, names):
    """A data set whose classes have these names (bytes)."""
    for k, name in enumerate(names):
        for part, many in ((b"train", 6), (b"test", 3)):
            for i in range(many):
                png(os.path.join(os.fsencode(path), part, name, b"%d.png" % i), (200 * (k == 0), 200 * (k == 1), 200 * (k == 2)))


def bytes_of(*args, code=0, **more):
    """stdout and stderr, which must be UTF-8."""
    done = subprocess.run([CONVOY, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False, **more)
    check(done.returncode == code, f"{args}: exit {done.returncode}, must be {code}: {done.stderr}")
    return utf8(done.stdout, args), utf8(done.stderr, args)


def utf8(text, what):
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        check(False, f"{what}: {error}")
        return text.decode(errors="replace")


def no_raw(text, what):
    check(not any(c in text for c in RAW), f"{what}: a control character gets through: {text!r}")


def test_class_names(at):
    """Classes whose folders are named in another encoding: they stay apart everywhere, and weights of others are refused."""
    gbk = [name.encode("gbk") for name in "\u72d7\u7f8a\u9a6c"]
    names = sorted("".join(rf"\x{c:02x}" for c in name) for name in gbk)
    check(r"\xb9\xb7" in names, "dog in GBK")
    folder(at("pets"), gbk)
    folder(at("birds"), [name.encode("gbk") for name in "\u9e21\u9e45\u9e1f"])
    shape = ["--devices", DEVICE, "--quiet"]
    train = ["train", "--model", "lenet", "--size", "28", "--gray", "--batch", "6", *shape, "--data"]
    out, err = bytes_of("data", at("pets"))
    check(all(f"\n{name} " in out for name in names) and err.count("warning") == 1 and "3 class names are not plain UTF-8" in err, f"table: {out} {err}")
    check(read_json(bytes_of("data", at("pets"), "--json", "-")[0])["class_names"] == names, "data --json")
    check([bytes(int(c, 16) for c in name.split(r"\x")[1:]) for name in names] == sorted(gbk), "they read back")
    _, err = bytes_of(*train, at("pets"), "--epochs", "1", "--save", at("w.st"), "--report", at("page.html"), "--log", at("log"))
    check(err.count("warning") == 1, f"one warning: {err}")
    check(facts_of(at("w.st"))["class_names"] == names, f"names of the weights file: {facts_of(at('w.st'))}")
    page = utf8(read_bytes(at("page.html")), "page")
    check(all(name in page for name in names), "names in the page")
    weights = ["--weights", at("w.st"), *shape]
    _, err = bytes_of("eval", *weights, "--data", at("birds"), code=2)
    check(r"is '\xb9\xb7'" in err and r"it is '\xb6\xec'" in err, f"weights of other classes: {err}")
    out, _ = bytes_of("eval", *weights, "--data", at("pets"), "--confusion", at("m.csv"), "--json", at("e.json"))
    rows = list(csv.reader(io.StringIO(utf8(read_bytes(at("m.csv")), "CSV"))))
    check(rows[0] == ["class", *names] and [row[0] for row in rows[1:]] == names, f"matrix: {rows}")
    check([one["class"] for one in read_json(utf8(read_bytes(at("e.json")), "JSON"))["classes"]] == names, "eval --json")
    for file in (b"caf\xe9.png", b"caf\xea.png", b"caf\xe8.png"):
        png(os.path.join(os.fsencode(at("pics")), file), (9, 9, 9))
    files = [os.path.join(at("pics"), "caf" + end + ".png") for end in (r"\xe8", r"\xe9", r"\xea")]
    out, _ = bytes_of("predict", *weights, at("pics"), "--csv", "-")
    rows = list(csv.DictReader(io.StringIO(out)))
    check([row["file"] for row in rows[::3]] == files and {row["class"] for row in rows} == set(names), f"predict --csv: {out}")
    found = read_json(bytes_of("predict", *weights, at("pics"), "--json", "-")[0])["predictions"]
    check([one["file"] for one in found] == files and {t["class"] for one in found for t in one["top"]} == set(names), f"predict --json: {found}")
    out, _ = bytes_of("predict", *weights, at("pics"))
    check(all(name in out for name in names), f"table: {out}")

    # names as long as a file system has them, alike in all but the last byte
    long = [b"n" * 254 + end for end in (b"a", b"b")]
    folder(at("long"), long)
    expect(0, *train, at("long"), "--max-steps", 1, "--save", at("l.st"))
    check(facts_of(at("l.st"))["class_names"] == [name.decode() for name in long], "long names are whole")
    folder(at("other"), [b"n" * 254 + end for end in (b"a", b"c")])
    bytes_of("eval", "--weights", at("l.st"), "--data", at("other"), *shape, code=2)
    folder(at("wide"), [b"\xe9" * 255, b"\xe9" * 254 + b"x"])
    expect(0, *train, at("wide"), "--max-steps", 1, "--save", at("l.st"))
    check(facts_of(at("l.st"))["class_names"][0] == r"\xe9" * 254 + "x", "each byte of the longest name as four")


def test_subset(at):
    """Folders for a part of a network's classes: a label is a folder's place, so they are refused where nothing says which classes they are."""
    shape = ["--devices", DEVICE, "--quiet"]
    names = [b"bird", b"cat", b"dog", b"horse"]
    folder(at("four"), names)
    folder(at("two"), names[2:])
    folder(at("first"), names[:2])
    lenet = ["train", "--model", "lenet", "--batch", 6, "--max-steps", 2, *shape]
    size = ["--size", 28, "--gray"]
    expect(0, *lenet, "--data", at("four"), *size, "--save", at("named.st"))
    expect(0, *lenet, "--data", "synthetic:60", "--classes", 4, "--save", at("numbers.st"))
    expect(0, "export", "--weights", at("numbers.st"), "--out", at("net.onnx"))
    tensors = read_bytes(at("numbers.st"))
    header = json.loads(tensors[8 : 8 + int.from_bytes(tensors[:8], "little")])
    header.pop("__metadata__")
    text = json.dumps(header).encode()
    with open(at("bare.st"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + tensors[8 + int.from_bytes(tensors[:8], "little") :])
    which = "without names; expected a folder for each class"
    for data in ("two", "first"):
        for words in ([], ["--classes", 4]):
            one = ["eval", *shape, "--data", at(data), *size, *words]
            expect(2, *one, "--weights", at("numbers.st"), err=(which, "a folder for each class"))
            expect(2, *one, "--model", at("net.onnx"), err="folder for each")
            expect(2, *one, "--weights", at("bare.st"), "--model", "lenet", err=which if words else "'9.weight' has the shape")
            if data == "two":
                expect(2, *one, "--weights", at("named.st"), err=("is 'bird'", "it is 'dog'", "a folder for each class"))
            else:
                expect(0, *one, "--weights", at("named.st"), out="of 6)")
    for name in names[:2]:  # what the messages say helps
        for part in ("train", "test"):
            os.makedirs(at("two", part, name.decode()))
    for words in (["--weights", at("named.st")], ["--weights", at("numbers.st")], ["--model", at("net.onnx")]):
        done = expect(0, "eval", *shape, "--data", at("two"), *size, *words, "--json", "-", "--confusion")
        check([one["samples"] for one in read_json(done.stdout)["classes"]] == [0, 0, 3, 3], f"{words}: labels are places among all folders")
    # labels that are numbers may be those of a part
    expect(0, "eval", *shape, "--data", "synthetic:60", "--classes", 4, "--model", at("net.onnx"), out="test acc")


def test_plain(at):
    """What needs no device: names that are shown alike are refused, and nothing of a name or a log gets raw to a terminal, a page, CSV or JSON."""
    folder(at("alike"), [b"\xb9\xb7", rb"\xb9\xb7"])
    _, err = bytes_of("data", at("alike"), code=1)
    check(r"two classes are shown as '\xb9\xb7'" in err, f"alike: {err}")
    folder(at("digits"), [b"3", b"7"])
    _, err = bytes_of("data", at("digits"), "--classes", "10", code=1)
    check("two classes are shown as '3'" in err and "without a folder" in err, f"a folder named as another class's number: {err}")
    folder(at("odd"), [ODD, b"b"])
    broken = os.path.join(os.fsencode(at("odd")), b"train", b"b", ODD + b".png")
    with open(broken, "wb") as f:
        f.write(b"no picture")
    out, err = bytes_of("data", at("odd"))
    no_raw(out + err, "data")
    check(out.count(SHOWN) == 2, f"a class and a broken file: {out}")
    out, err = bytes_of("data", at("odd"), "--json", "-")
    no_raw(out + err, "data --json")
    found = read_json(out)
    check(found["class_names"] == ["b", SHOWN], f"classes: {found['class_names']}")
    check(found["pictures"]["broken"][0]["file"].endswith(SHOWN.replace(r"\x1b", "\x1b") + ".png"), f"JSON has an escape of its own for C0: {found['pictures']}")
    # CIFAR's names
    os.mkdir(at("cifar"))
    for name in ("data_batch_1.bin", "test_batch.bin"):
        with open(at("cifar", name), "wb") as f:
            f.write(b"".join(bytes([k]) + bytes(3072) for k in range(2)))
    for lines, want in ((b"a\n" + ODD + b"\n", ["a", SHOWN]), (b"same\nsame\n", None)):
        with open(at("cifar", "batches.meta.txt"), "wb") as f:
            f.write(lines)
        out, err = bytes_of("data", at("cifar"), "--json", "-")
        check(read_json(out)["class_names"] == want and "warning" in err, f"names of CIFAR: {out} {err}")
    # messages and usage
    for args, code in ((["data", ODD], 2), (["train", b"--lr", ODD], 2), (["report", ODD, "--out", at("x.html")], 1)):
        _, err = bytes_of(*args, code=code, env={**os.environ, **NO_DEVICE})
        no_raw(err, args)
        check(SHOWN in err, f"{args}: {err}")
    # a log that somebody else has written
    evil = ODD[:-1].decode()
    head = {"run": {"version": "0", "devices": [evil], "drivers": [evil], "shares": [64], "settings": {
        "model": evil, "data": evil, "lr": 0.1, "seed": [evil], "options": {"data": evil + "'\\", "lr": "0.1", "model": "\u72d7 it's"}}}}
    lines = [head, {"epoch": 0, "step": 0, "loss": 1, "lr": 0.1, "images": 64, "correct": 3, "shares": [64], "ms": 2},
             {"device_lost": {"label": evil, "step": 0, "reason": evil}}, {"error": {"code": evil, "message": evil}}]
    log = os.path.join(os.fsencode(at()), ODD + b".jsonl")
    for path in (log, os.fsencode(at("b.jsonl"))):
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(map(json.dumps, lines)))
    for logs in ([log], [log, at("b.jsonl")]):
        _, err = bytes_of("report", *logs, "--out", at("page.html"), "--csv", at("r.csv"), "--tensorboard", at("tb"))
        page, table = utf8(read_bytes(at("page.html")), "page"), utf8(read_bytes(at("r.csv")), "CSV")
        no_raw(page + table + err, "report")
        check(not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufffe\uffff]", page + table), "page and CSV are plain")
        check(list(csv.DictReader(io.StringIO(table)))[0]["run"].endswith(SHOWN + ".jsonl"), f"CSV: {table}")
    check(r"--model &#39;" + "\u72d7" + r" it&#39;\&#39;&#39;s&#39;" in page, "quoted as a shell reads it")
    data = re.search(r"--data (\$&#39;.*?&#39;) --lr", page).group(1).replace("&#39;", "'")
    told = subprocess.run(["bash", "-c", f"printf %s {data}"], stdout=subprocess.PIPE, check=True).stdout
    check(told == (evil + "'\\").encode(), f"the command of a name that is not plain reads back: {data}, {told}")


if __name__ == "__main__":
    main(globals(), without_device=("plain",))
