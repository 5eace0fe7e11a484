#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it: test_cli_report.py CONVOY GROUP   (groups: the functions named test_<group> below)

The best epoch, the page of --report, and `convoy report`."""

import base64
import csv
import html
import json
import math
import os
import random
import re
import signal
import struct
import subprocess
import time
import zlib

from cli import CONVOY, LENET, SMALL, check, expect, lines_of, main, read, device_times, read_bytes, run, same, write, write_idx


def step(n, epoch, loss=1.0, **more):
    return json.dumps({"epoch": epoch, "step": n, "loss": loss, "lr": 0.1, "images": 64, "correct": 32, "shares": [64], "ms": 2.0, **more})


def epoch(n, **more):
    return json.dumps({"epoch": n, "train_loss": 0.5, "train_acc": 0.25, "test_acc": 0.75, "sec": 1.0, **more})


def head(**options):
    return json.dumps({"run": {"version": "0", "seed": 0, "devices": ["0:0 <b>&\"x"], "shares": [64], "settings": {
        "model": "lenet", "data": "<script>alert(1)</script>", "lr": 0.1, "options": options}}})


def check_page(text, what):
    """One file: nothing from elsewhere, no script, all tags that need it closed."""
    check("<script" not in text and "http:" not in text and "https:" not in text and "url(" not in text, f"{what}: nothing from elsewhere")
    check(text.startswith("<!DOCTYPE html>") and text.endswith("</body></html>\n"), f"{what}: whole")
    for tag in ("div", "table", "figure", "svg", "p", "pre", "details", "span", "h1", "h2"):
        check(text.count(f"<{tag}>") + text.count(f"<{tag} ") == text.count(f"</{tag}>"), f"{what}: {tag} is closed")
    check(not re.search(r'[>" (]-?(nan|inf)[<" ,)]', text), f"{what}: no NaN")


def records_of(path):
    """The events of a file for TensorBoard."""
    data, records, place = read_bytes(path), [], 0
    while place < len(data):
        size = struct.unpack_from("<Q", data, place)[0]
        records.append(data[place + 12 : place + 12 + size])
        place += size + 16
    check(place == len(data), "whole records")
    return records


def test_report_extremes(at):
    """Numbers that only a log of somebody else has: the page is made in an instant, and stays small."""
    numbers = ["-1.7e308", "1.7976931348623157e308", "5e-324", "1e12", "1000000000000.0001", "4611686018427387903", "0", "-0.0", "3.4e38"]
    for n, (first, second) in enumerate((a, b) for a in numbers for b in numbers if a <= b):
        lines = [head()] + [f'{{"epoch":0,"step":{k + 4611686018427387900 * (n % 2)},"loss":{v},"lr":{v},"grad_norm":{v},"ms":{v},"images":9223372036854775807,"shares":[1e308]}}'
                            for k, v in enumerate((first, second, first))]
        lines += ['{"epoch":2147483646,"train_loss":-1e308,"train_acc":0,"test_acc":5e-324}', '{"end":{"sec_per_epoch":1e308,"times":{"devices":[{"computing_ms":1e308,"exchanging_ms":1e308}]}}}']
        write(at("log"), "\n".join(lines))
        expect(0, "report", at("log"), at("log"), "--out", at("two.html"), "--csv", at("r.csv"), "--tensorboard", at("tb"), timeout=20)
        expect(0, "report", at("log"), "--out", at("r.html"), timeout=20)
        for page in (read(at("r.html")), read(at("two.html"))):
            check_page(page, f"{first}, {second}")
            check(len(page) < 60000 and not re.search(r"[\d]{40}|[:\"]-?(inf|nan)", page), f"{first}, {second}: numbers of a page")
        for row in records_of(at("tb", "log", "events.out.tfevents.0.convoy")):
            check(math.isfinite(struct.unpack("<d", row[1:9])[0]), "the time of an event")
            check(not any(b"\x15" + struct.pack("<f", sign * math.inf) in row for sign in (1, -1)), "a value that float32 lacks")
        with open(at("r.csv"), newline="", encoding="utf-8") as f:
            check(all(row["ms"] == "" or 0 <= float(row["ms"]) < 4e12 for row in csv.DictReader(f)), f"{first}, {second}: the time of a step")


def test_report_made(at):
    """From logs made by hand: killed, resumed, with text that must be escaped, with lines that are none."""
    write(at("a.jsonl"), "\n".join([head(model="lenet", data="a b'c"), step(0, 0, 3), step(1, 0, None), epoch(0), step(2, 1), step(3, 1),
                                    head(model="lenet"), step(2, 1, 0.5, grad_norm=7, images=5, shares=[5]), epoch(1, val_acc=0.9, test_acc=None, best=True),
                                    '{"epoch":2,"st']))
    write(at("b, c.jsonl"), step(0, 0) + "\n" + epoch(0) + '\n{"end":{"interrupted":false,"sec_per_epoch":1.5,"times":null}}\n')
    logs = [at("a.jsonl"), at("b, c.jsonl")]
    expect(0, "report", *logs, "--out", at("r.html"), "--csv", at("r.csv"), "--tensorboard", at("tb"), err=("1 line", "left out"))
    page = read(at("r.html"))
    check_page(page, "two runs")
    check("alert(1)" in page and "&lt;script&gt;" in page and "&lt;b&gt;&amp;&quot;x" in page, "text is escaped")
    check("--data 'a b" not in page and "--model lenet" in page, "the options are those of the newest part")
    check('<td class="n">64' in page and '<td class="n">5<' not in page, "shares of a whole batch, not of an epoch's short last one")
    check("norm of the gradient" in page and 'http-equiv="refresh"' not in page, "curves; the page stands still")
    with open(at("r.csv"), newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    check([(r["run"], r["step"], r["loss"]) for r in rows] == [(logs[0], "0", "3"), (logs[0], "1", ""), (logs[0], "2", "0.5"), (logs[1], "0", "1")],
          f"a step that came again counts once: {rows}")
    check([(r["val_acc"], r["test_acc"]) for r in rows] == [("", ""), ("", "0.75"), ("0.9", ""), ("", "0.75")], "epochs in their last steps")
    check(sorted(os.listdir(at("tb"))) == ["a", "b, c"], "a folder for each run")
    # names that lead out of the folder, or that a spreadsheet takes for a formula
    os.mkdir(at("names"))
    for name in ("..jsonl", "...jsonl", "=1+1.jsonl", "-2.jsonl", "@a, b.jsonl", "a=1.jsonl"):
        write(at("names", name), step(0, 0))
    for name in ("..jsonl", "...jsonl"):
        expect(2, "report", at("names", name), "--csv", at("no.csv"), "--tensorboard", at("tb2"), err=("expected another name of the log", name))
        check(not os.path.exists(at("no.csv")) and not os.path.exists(at("tb2")), f"{name}: something is written")
        expect(0, "report", at("names", name), "--csv", at("yes.csv"))
    expect(0, "report", "=1+1.jsonl", "--csv", "r.csv", "--", "-2.jsonl", "@a, b.jsonl", "a=1.jsonl", cwd=at("names"))
    first = [line.rsplit(",0,0,1,", 1)[0] for line in read(at("names", "r.csv")).splitlines()[1:]]
    check(first == ['"\'=1+1.jsonl"', '"\'-2.jsonl"', '"\'@a, b.jsonl"', "a=1.jsonl"], f"cells that begin as formulas do: {first}")
    data, records = read_bytes(at("tb/a/events.out.tfevents.0.convoy")), records_of(at("tb/a/events.out.tfevents.0.convoy"))
    check(records[0].endswith(b"brain.Event:2") and len(records) > 8, f"events: {len(records)}")
    check(struct.pack("<f", 0.5) in records[-7] or any(b"\x0a\x04loss\x15" + struct.pack("<f", 0.5) in r for r in records), "the loss")
    # CRC-32C of eight bytes 0, masked: known from RFC 3720's polynomial by a loop of its own
    def crc(text):
        value = 0xFFFFFFFF
        for byte in text:
            value ^= byte
            for _ in range(8):
                value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        value ^= 0xFFFFFFFF
        return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
    check(struct.unpack_from("<I", data, 8)[0] == crc(data[:8]), "checksum of a length")
    check(struct.unpack_from("<I", data, 12 + len(records[0]))[0] == crc(records[0]), "checksum of an event")
    expect(2, "report", "--out", at("x.html"), err="LOG is missing")
    expect(2, "report", at("a.jsonl"), err="nothing to write")
    expect(2, "report", at("a.jsonl"), "--out", at("a.jsonl"), err="the same file")
    expect(1, "report", at("none.jsonl"), "--out", at("x.html"), err="none.jsonl")
    expect(1, "report", at("r.html"), "--out", at("x.html"), err="not a log of convoy train")
    expect(1, "report", at("a.jsonl"), "--out", at("no/folder/x.html"), err="no/folder/x.html")
    check(not os.path.exists(at("x.html")), "nothing is written then")


def test_report_random(at):
    """A log with random bytes changed, and values of wrong kinds, never ends the program badly."""
    rng = random.Random(17)
    whole = "\n".join([head(), *(step(i, i // 3) for i in range(9)), epoch(2), '{"end":{"times":{"devices":[{"idle_ms":1}]}}}']) + "\n"
    values = ["null", "-1", "1e308", "[]", "{}", '"x"', "true", "9223372036854775807", "-1e-320", "[[[]]]"]
    for i in range(60):
        text = bytearray(whole.encode())
        if i % 2:
            for _ in range(rng.randrange(1, 30)):
                text[rng.randrange(len(text))] = rng.randrange(256)
        else:
            text = re.sub(rb"(?<=:)[-\d.]+|(?<=:)\{|(?<=:)\[\d+\]", lambda m: rng.choice(values).encode() if rng.random() < 0.3 else m[0], bytes(text))
        with open(at("f.jsonl"), "wb") as f:
            f.write(text[:rng.randrange(len(text))] if i % 3 == 0 else text)
        done = run("report", at("f.jsonl"), "--out", at("f.html"), "--csv", at("f.csv"), "--tensorboard", at("ft"))
        if done.returncode not in (0, 1):
            check(False, f"log {i}: exit {done.returncode}", done)
        elif done.returncode == 0:
            check_page(read(at("f.html")), f"log {i}")


def test_best(at):
    done = expect(0, "train", *SMALL, "--epochs", 12, "--lr", 0.2, "--patience", 2, "--save-best", at("best.st"), "--log", at("a.jsonl"),
                  "--save", at("last.st"), "--report", at("a.html"), "--plot", at("a.svg"), err=("no validation set", "--patience 2", "best: epoch "))
    lines = lines_of(at("a.jsonl"))
    epochs = [line for line in lines if "train_loss" in line]
    steps = [line for line in lines if "step" in line]
    for e in epochs:
        mine = [s for s in steps if s["epoch"] == e["epoch"]]
        check(e["train_acc"] == sum(s["correct"] for s in mine) / sum(s["images"] for s in mine), f"train acc: {e}")
    accs = [e["test_acc"] for e in epochs]
    best = accs.index(max(accs))
    check(len(accs) == best + 3 and [e["epoch"] for e in epochs if e.get("best")][-1] == best, f"ends two epochs after the best: {accs}", done)
    check(lines[-1]["end"]["best_epoch"] == best and lines[-1]["end"]["best_acc"] == accs[best], f"end: {lines[-1]}")
    expect(0, "train", *SMALL, "--epochs", best + 1, "--lr", 0.2, "--save", at("short.st"), "-q")
    same(at("best.st"), at("short.st"), "the best epoch's weights")
    page = read(at("a.html"))
    check_page(page, "the page of a run")
    check("finished" in page and "refresh" not in page and f"{accs[best]:.4f}" in page and html.escape("--lr 0.2") in page, "what it tells")
    for wrong in (["--no-eval"], ["--no-sync"]):
        expect(2, "train", *SMALL, "--patience", 1, *wrong, err="needs an accuracy to choose the best epoch")
    expect(2, "train", *SMALL, "--save", at("x"), "--save-best", at("x"), err="the same file")


def test_report_live(at):
    """The page renews itself while a run goes on, and is whole after a kill; a resumed run has all of its steps on it."""
    words = [*SMALL, "--epochs", 200, "--checkpoint", at("c"), "--checkpoint-every", "1e", "--log", at("a.jsonl"), "--report", at("a.html")]
    child = subprocess.Popen([CONVOY, "train", *map(str, words)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until = time.time() + 100
    while time.time() < until and child.poll() is None:
        if os.path.exists(at("a.html")) and "epochs</span>" in read(at("a.html")):
            break
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    page = read(at("a.html"))
    check_page(page, "after a kill")
    check('http-equiv="refresh"' in page and "running" in page, "it goes on, as far as the page knows")
    last = max(line["epoch"] for line in map(json.loads, filter(lambda t: t.endswith("}"), read(at("a.jsonl")).split("\n"))) if "train_loss" in line)
    expect(0, "train", *words, "--resume", "--epochs", last + 2)
    page = read(at("a.html"))
    check_page(page, "resumed")
    check(f"<b>{last + 2}</b><span>epochs" in page and f"<b>{10 * (last + 2)}</b><span>steps" in page, "all steps and epochs")
    expect(0, "report", at("a.jsonl"), "--out", at("b.html"))
    check("Predictions for " in page, "the predictions")
    cut = lambda text: re.sub(r"<h1>.*?</p>|<section>.*?</section>\n", "", text, flags=re.S)  # the log has no answers
    check(cut(read(at("b.html"))) == cut(page), "the same from the log")


def png_pixels(data):
    """Height, width and bytes of a PNG with 8 bits a channel, read by the rules of the format."""
    check(data[:8] == b"\x89PNG\r\n\x1a\n", "a PNG")
    chunks, at = {}, 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        content = data[at + 8:at + 8 + size]
        check(struct.unpack_from(">I", data, at + 8 + size)[0] == zlib.crc32(kind + content), f"checksum of {kind}")
        chunks[kind] = content
        at += 12 + size
    w, h, bits, colours = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    check(bits == 8 and b"IEND" in chunks, "whole")
    each = 3 if colours == 2 else 1
    raw, rows, before = zlib.decompress(chunks[b"IDAT"]), [], bytes(w * each)
    for y in range(h):
        row = bytearray(raw[y * (w * each + 1) + 1:(y + 1) * (w * each + 1)])
        check(raw[y * (w * each + 1)] == 4, "the filter")
        for i in range(len(row)):
            a, b, c = row[i - each] if i >= each else 0, before[i], before[i - each] if i >= each else 0
            p = a + b - c
            row[i] = row[i] + min((a, b, c), key=lambda v: abs(p - v)) & 255  # of equal ones the first, as the format wants it
        rows.append(bytes(row))
        before = rows[-1]
    return h, w, b"".join(rows)


def write_coloured(folder):
    """A data set of 200 images of 5x4 pixels with 3 channels in 4 classes, and 150 for testing; returns those."""
    rng = random.Random(3)
    os.makedirs(folder)
    for part, n in (("train", 200), ("t10k", 150)):
        pixels, labels = rng.randbytes(n * 60), bytes(rng.randrange(4) for _ in range(n))
        with open(os.path.join(folder, f"{part}-images-idx4-ubyte"), "wb") as f:
            f.write(struct.pack(">5I", 0x804, n, 5, 4, 3) + pixels)
        with open(os.path.join(folder, f"{part}-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">2I", 0x801, n) + labels)
    return pixels, labels


def numbers(page, of):
    """The numbers of the answers to a set, row by row: those of a row's cells."""
    section = re.search(rf"<section>\n<h2>Predictions for \d+ {of} images.*?</section>", page, re.S)[0]
    matrix = re.search(r'<table class="matrix">.*?</table>', section, re.S)
    rows = re.findall(r"<tr><th class=\"r\">.*?</tr>", matrix[0], re.S) if matrix else []
    cells = [[0 if cell == "·" else int(cell) for cell in re.findall(r"<td[^>]*>([\d·]+)", row)] for row in rows]
    return section, cells


def test_answers(at):
    """The page's answers are those of the weights that the run has saved; the pictures are the data set's bytes."""
    pixels, labels = write_coloured(at("set"))
    words = ["--model", "lenet", "--data", at("set"), "--size", "18x15", "--devices", device_times(2), "--batch", 50]
    expect(0, "train", *words, "--epochs", 2, "--save", at("w.st"), "--report", at("a.html"), "--log", at("a.jsonl"), "-q")
    page = read(at("a.html"))
    check_page(page, "with answers")
    section, cells = numbers(page, "test")
    expect(0, "eval", "--weights", at("w.st"), "--data", at("set"), "--devices", device_times(2), "--confusion", "--json", at("e.json"), "-q")
    told = json.loads(read(at("e.json")))
    check(cells == told["confusion"], f"the matrix {cells} is eval's {told['confusion']}")
    last = [line for line in lines_of(at("a.jsonl")) if "train_loss" in line][-1]
    check(f"({last['test_acc']:.4f})" in section and ", epoch 2</h2>" in section, "accuracy and epoch")
    found = re.findall(r'base64,([^"]*)"><figcaption><b>(\d)</b>.*?image (\d+)<', section, re.S)
    check(1 <= len(found) <= 24, f"{len(found)} pictures")
    for text, label, image in found:
        h, w, _ = png_pixels(base64.b64decode(text, validate=True))
        check((h, w) == (18, 15) and int(label) == labels[int(image)], f"picture {image}")
    # as the files have them: in the size of the network that can take it
    write_idx(at("."), 128)
    expect(0, "train", "--model", "lenet", "--data", at("."), "--batch", 64, "--epochs", 1, "--val-split", 0.3, "--report", at("b.html"), "-q")
    page = read(at("b.html"))
    check_page(page, "with a validation set")
    check("validation images" in page and page.index("validation images") < page.index("test images"), "both sets")
    section, cells = numbers(page, "test")
    for text, label, image in re.findall(r'base64,([^"]*)"><figcaption><b>(\d)</b>.*?image (\d+)<', section, re.S):
        want = bytes(i * 7 % 251 for i in range(int(image) * 784, int(image) * 784 + 784))
        check(png_pixels(base64.b64decode(text)) == (28, 28, want) and int(label) == int(image) % 10, f"picture {image}")
    # many classes: pairs in place of a matrix
    expect(0, "train", *LENET, "--classes", 60, "--batch", 64, "--max-steps", 1, "--report", at("c.html"), "-q")
    page = read(at("c.html"))
    check_page(page, "60 classes")
    check('class="matrix"' not in page and "predicted as" in page and "of 60 classes are confused" in page, "pairs")
    times = [int(n) for n in re.findall(r'<td class="n">(\d+)<td class="n">[\d.]+ %', page)]
    check(len(set(times)) > 1 and times == sorted(times, reverse=True), f"the pairs that are confused most come first: {times}")
    expect(0, "train", *LENET, "--batch", 64, "--max-steps", 1, "--no-eval", "--report", at("d.html"), "-q")
    check("<section>" not in read(at("d.html")), "nothing was evaluated")


if __name__ == "__main__":
    main(globals(), without_device=("report_made", "report_random", "report_extremes"))
