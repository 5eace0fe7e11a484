#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it: test_cli_predict.py CONVOY GROUP   (groups: the functions named test_<group> below)

Trained weights that say what they are, predictions, and the confusion of an evaluation. Exit 77 where a group needs a device and there
is none."""

import csv
import io
import json
import os
import subprocess

from cli import check, CONVOY, DEVICE, device_times, expect, facts_of, main, read, read_json, same, weights_header, write, write_idx


def pgm(path, pixels, side=28):
    with open(path, "wb") as f:
        f.write(b"P5\n%d %d\n255\n" % (side, side) + bytes(pixels))


def facts_of_file(at):
    """The network comes from the weights, a checkpoint or --init-from; what differs from it is refused with both values."""
    train = ["train", "--data", at("data"), "--devices", DEVICE, "--batch", 32, "--no-eval", "--quiet"]
    expect(0, *train, "--model", "lenet", "--init", "he", "--max-steps", 3, "--save", at("w.st"))
    expect(0, *train, "--model", "lenet", "--init", "he", "--max-steps", 3, "--save", at("again.st"))
    same(at("w.st"), at("again.st"), "the same weights and facts: other bytes")
    header, facts = weights_header(at("w.st")), facts_of(at("w.st"))
    check(facts == {"classes": 10, "input": [1, 28, 28], "model": "lenet"}, f"facts: {facts}")
    expect(0, *train, "--init-from", at("w.st"), "--max-steps", 1, "--momentum", 0.9, "--checkpoint", at("ck"))
    newest = at("ck", "step-0000000001.safetensors")
    test = ["eval", "--data", at("data"), "--devices", DEVICE, "--quiet", "--weights"]
    for file in (at("w.st"), newest):
        expect(0, *test, file, out="test acc")
    expect(0, *test, at("w.st"), "--model", "lenet", out="test acc")
    expect(2, *test, at("w.st"), "--model", "resnet18", err=("--model resnet18", "weights of lenet"))
    expect(2, *train, "--init-from", at("w.st"), "--model", "resnet18", err=("--model resnet18", "weights of lenet"))
    expect(2, *test, at("w.st"), "--data", "synthetic:64:20x20x1", err=("28x28x1", "20x20x1"))
    expect(2, *test, at("w.st"), "--classes", 11, err=("has 10 classes, data set", "has 11"))
    # a file of another program has no facts
    header.pop("__metadata__")
    text = json.dumps(header).encode()
    with open(at("w.st"), "rb") as f, open(at("bare.st"), "wb") as out:
        f.seek(int.from_bytes(f.read(8), "little"), 1)
        out.write(len(text).to_bytes(8, "little") + text + f.read())
    expect(2, *test, at("bare.st"), err=("--model NAME is missing", "bare.st"))
    expect(2, *train, "--init-from", at("bare.st"), err="--model NAME is missing")
    expect(0, *test, at("bare.st"), "--model", "lenet", out="test acc")
    predict = ["predict", "--weights", at("bare.st"), "--devices", DEVICE, "--quiet", at("data", "t10k-images-idx3-ubyte")]
    expect(2, *predict, err="--model NAME is missing")
    expect(2, *predict, "--model", "lenet", err=("--input is missing", "--input HxWxC and --classes N"))
    expect(2, *predict, "--model", "lenet", "--input", "28x28x1", "--classes", 9, err="'9.weight' has the shape (10,128)")
    expect(0, *predict, "--model", "lenet", "--input", "28x28x1", "--classes", 10, out="t10k-images-idx3-ubyte[0]")
    expect(2, *predict, "--weights", at("w.st"), "--input", "20x20x1", err=("--input 20x20x1", "has the input 28x28x1"))
    expect(2, *predict, "--weights", at("w.st"), "--classes", 9, err="has 10")


def predictions(at):
    n = 100
    images = at("data", "t10k-images-idx3-ubyte")
    with open(images, "rb") as f:
        pixels = f.read()[16:]
    os.makedirs(at("pics", "sub"))
    for i in range(6):
        pgm(at("pics", f"p{i}.pgm") if i < 4 else at("pics", "sub", f"p{i}.pgm"), pixels[784 * i : 784 * i + 784])
    predict = ["predict", "--weights", at("w.st"), "--devices", DEVICE, "--quiet"]
    expect(0, *predict, images, "--json", at("all.json"), "--csv", at("all.csv"), "--top", 10)
    found = read_json(read(at("all.json")))
    check(set(found) == {"predictions"} and len(found["predictions"]) == n, f"JSON: {set(found)}")
    for i, one in enumerate(found["predictions"]):
        top = one["top"]
        p = [t["probability"] for t in top]
        check(set(one) == {"file", "top"} and one["file"] == f"{images}[{i}]", f"prediction: {one}")
        check(sorted(t["class"] for t in top) == list(range(10)) and p == sorted(p, reverse=True) and abs(sum(p) - 1) < 1e-5, f"top: {top}")
    rows = list(csv.reader(io.StringIO(read(at("all.csv")))))
    check(rows[0] == ["file", "rank", "class", "probability"] and len(rows) == 1 + 10 * n, f"CSV: {rows[:2]}")
    check(rows[1][:3] == [f"{images}[0]", "1", str(found["predictions"][0]["top"][0]["class"])], f"CSV: {rows[1]}")
    # eval and predict agree on every picture
    done = read_json(expect(0, "eval", "--weights", at("w.st"), "--data", at("data"), "--devices", DEVICE, "--json", "-", "--confusion", at("m.csv")).stdout)
    matrix = [[0] * 10 for _ in range(10)]
    for i, one in enumerate(found["predictions"]):
        matrix[i % 10][one["top"][0]["class"]] += 1
    check(done["confusion"] == matrix, f"confusion: {done['confusion']}, of the predictions: {matrix}")
    check(sum(matrix[i][i] for i in range(10)) == done["correct"], "hits are the diagonal")
    for c, one in enumerate(done["classes"]):
        samples, answered = sum(matrix[c]), sum(row[c] for row in matrix)
        want = matrix[c][c] / answered if answered else None
        check(one["class"] == c and one["samples"] == samples and one["precision"] == want and one["recall"] == matrix[c][c] / samples, f"class: {one}")
    check(list(csv.reader(io.StringIO(read(at("m.csv"))))) == [["class", *map(str, range(10))]] + [[str(i), *map(str, row)] for i, row in enumerate(matrix)], "CSV of the matrix")
    shown = expect(0, "eval", "--weights", at("w.st"), "--data", at("data"), "--devices", DEVICE, "--confusion", "--quiet", out=("confusion: rows", "precision")).stdout
    check(max(map(len, shown.split("\n", 1)[1].splitlines())) <= 80, f"80 columns:\n{shown}")

    # what training held out, as the epoch's line had it
    split = ["--data", at("data"), "--val-split", 0.3, "--seed", 5, "--devices", DEVICE, "--quiet"]
    expect(0, "train", "--model", "lenet", *split, "--batch", 35, "--epochs", 1, "--lr", 0.1, "--save", at("v.st"), "--log", at("v.log"))
    logged = [one["val_acc"] for one in map(read_json, read(at("v.log")).splitlines()) if "val_acc" in one][-1]
    done = read_json(expect(0, "eval", "--weights", at("v.st"), *split, "--json", "-", "--confusion").stdout)
    check(done["images"] == 30 and done["val_acc"] == logged and "test_acc" not in done, f"held out: {done}, logged {logged}")
    check([one["samples"] for one in done["classes"]] == [3] * 10, "three of each class")
    expect(0, "eval", "--weights", at("v.st"), *split, out="val acc: ")
    split[3] = 1e-6
    expect(2, "eval", "--weights", at("v.st"), *split, err=("--val-split 1e-06", "larger fraction"))

    # a folder is the same pictures, whatever the team and the batch
    expect(0, *predict, at("pics"), "--json", at("pics.json"), "--batch", 4, "--devices", device_times(2))
    some = read_json(read(at("pics.json")))["predictions"]
    check([os.path.relpath(one["file"], at("pics")) for one in some] == ["p0.pgm", "p1.pgm", "p2.pgm", "p3.pgm", "sub/p4.pgm", "sub/p5.pgm"], f"folder: {some}")
    for one, other in zip(some, found["predictions"]):
        check(len(one["top"]) == 5 and abs(one["top"][0]["probability"] - other["top"][0]["probability"]) < 1e-5, f"{one} {other}")
    # names on stdin
    table = expect(0, *predict, "-", "--top", 2, input=f"{at('pics', 'p1.pgm')}\n\n{at('pics', 'p2.pgm')}\n").stdout.splitlines()
    check(len(table) == 5 and table[0].split() == ["picture", "class", "probability"] and max(map(len, table)) <= 80, f"table: {table}")

    # what cannot be read is named, the others are predicted
    pgm(at("pics", "cut.pgm"), [0] * 100)
    done = expect(1, *predict, at("pics"), at("none.pgm"), "--json", at("broken.json"),
                  err=("cut.pgm: it is cut off", "none.pgm", "2 of the pictures"))
    check(len(read_json(read(at("broken.json")))["predictions"]) == 6, "the others are predicted", done)
    os.mkdir(at("empty"))
    expect(1, *predict, at("empty"), err="has no pictures")
    expect(2, *predict, err="PICTURE is missing")
    expect(2, *predict, images, "--json", images, err="same file")
    expect(2, *predict, images, "--json", "-", "--csv", "-", err="expected one of them")
    expect(2, *predict, images, "--top", 0, err="--top 0")


def listed(*args, input, code=0):
    """The files that `predict --csv -` has, with a list of names (bytes) on stdin."""
    done = subprocess.run([CONVOY, *map(str, args), "--top", "1", "--csv", "-"], input=input, capture_output=True, timeout=120, check=False)
    check(done.returncode == code, f"list {input[:60]}: exit {done.returncode}, must be {code}: {done.stderr}")
    return [row["file"] for row in csv.DictReader(io.StringIO(done.stdout.decode()))], done.stderr.decode()


def test_predict_lists(at):
    """Lists of names as other programs print them; what a folder has beside pictures."""
    expect(0, "train", "--model", "lenet", "--data", "synthetic:64", "--devices", DEVICE, "--batch", 32, "--max-steps", 1, "--no-eval", "--quiet", "--save", at("w.st"))
    predict = ["predict", "--weights", at("w.st"), "--devices", DEVICE, "--quiet"]
    os.makedirs(at("pics", "sub"))
    names = [at("pics", name) for name in ("a.pgm", "b b.pgm", "c\nc.pgm", "sub/d.pgm")]
    for name in names:
        pgm(name, [7] * 784)
    plain = [name for name in names if "\n" not in name]
    shown = [name.replace("\n", r"\x0a") for name in names]
    for what, text, want in (
            ("find -print0", "".join(name + "\0" for name in names), shown),
            ("NUL bytes, none at the end", "\0".join(names[:2]), shown[:2]),
            ("lines", "".join(name + "\n" for name in plain), plain),
            ("lines of Windows, an empty one, none at the end", "\r\n\r\n".join(plain), plain),
            ("a byte order mark", "\ufeff" + "\r\n".join(plain) + "\r\n", plain)):
        check(listed(*predict, "-", input=text.encode())[0] == want, what)
    files, err = listed(*predict, "-", input="\ufeff".encode("utf-16-le") + "\n".join(plain).encode("utf-16-le"), code=1)
    check(not files and "UTF-16" in err, f"UTF-16: {files} {err}")
    files, err = listed(*predict, "-", input=b"\n", code=1)
    check(not files and "has no names" in err, f"an empty list: {files} {err}")
    files, err = listed(*predict, "-", input=(names[0] + "\0" + names[1] + "x\0").encode(), code=1)
    check(files == names[:1] and "1 of the pictures" in err, f"a name that is wrong: {files} {err}")

    for name in ("e.webp", "f.GIF", "g.txt"):
        write(at("pics", name), "x")
    pgm(at("pics", "h.jfif"), [7] * 784)
    os.symlink("..", at("pics", "sub", "up"))
    files, err = listed(*predict[:-1], at("pics"), input=b"")
    check(sorted(files) == sorted([*shown, at("pics", "h.jfif")]), f"a folder with a loop of links: {files}")
    for text in ("2 pictures of", "g.txt", "leads back", "none of JPEG"):
        check(text in err, f"{text}: {err}")
    check("2 pictures of" in listed(*predict, at("pics"), input=b"")[1], "a warning also with --quiet")
    os.makedirs(at("pics", *["x"] * 40))
    files, err = listed(*predict, at("pics"), input=b"", code=1)
    check(len(files) == 5 and "more than 32 deep" in err, f"a folder that lies too deep takes nothing from the others: {files} {err}")


def test_predict(at):
    os.mkdir(at("data"))
    write_idx(at("data"), 100)
    facts_of_file(at)
    predictions(at)


if __name__ == "__main__":
    main(globals())
