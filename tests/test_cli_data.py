#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program and what it reads: test_cli_data.py CONVOY GROUP   (groups: the functions named test_<group> below)

Labels, weights and data sets as people have them. Exit 77 where a group needs a device and there is none."""

import filecmp
import os
import struct
import tempfile

from cli import check, expect, first_device, lines_of, need_device, main

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


def test_classes():
    """More classes than a byte tells apart: trained, gone on with, evaluated, from every source of data."""
    need_device()
    with tempfile.TemporaryDirectory() as dir:
        at = lambda name: os.path.join(dir, name)
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
        check(filecmp.cmp(at("w.st"), at("parts.st"), False), "resumed with 1000 classes: other weights")
        # weights of 1000 outputs beside data of ten labels
        few = ["--data", at("few"), "--classes", 1000]
        expect(0, "eval", *lenet, *few, "--weights", at("w.st"), out="test acc")
        expect(0, "train", *lenet, "--batch", 32, *few, "--init-from", at("w.st"), "--max-steps", 1, out="test acc")
        expect(2, "eval", *lenet, "--data", at("few"), "--weights", at("w.st"), err="'9.weight' has the shape (1000,128)")
        # a label that is too large: file and index
        expect(1, "train", *small, "--data", at("wide"), "--classes", 999, "--max-steps", 1,
               err=("train-labels-idx1-ubyte", "image 63 (offset 134) is 999", "999 classes"))
        # one device or two, resident or streamed: the same images with the same labels
        many = [*small[2:], "--model", "lenet", "--data", "synthetic:40000", "--classes", 300, "--batch", 21, "--max-steps", 4, "--no-eval"]
        expect(0, "train", *many, "--save", at("resident.st"))
        expect(0, "train", *many, "--save", at("streamed.st"), err="does not fit beside the network",
               env={"CVY_MEMORY_LIMIT_MIB": "28"})
        check(filecmp.cmp(at("resident.st"), at("streamed.st"), False), "streamed with 300 classes: other weights")
        many[many.index("--devices") + 1] = two
        expect(0, "train", *many, "--split", "even", "--verify-every", 1, out="train loss: 5.")
        # as many as there can be
        most = ["--data", "synthetic:8", "--classes", 65535]
        expect(0, "train", *small, *most, "--max-steps", 1, "--batch", 4, "--no-eval", "--save", at("most.st"), out="train loss: 11.")
        expect(0, "eval", *lenet, *most, "--batch", 4, "--weights", at("most.st"), out="test acc")


if __name__ == "__main__":
    main(globals())
