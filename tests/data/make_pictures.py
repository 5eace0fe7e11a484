#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes pictures/ and pictures.answers, which test_pictures reads. Needs numpy and Pillow; the tests do not: the files are
kept beside this script. Run it in its folder; it makes the same bytes with the same Pillow.

pictures.answers: what Pillow makes of each picture, in the order of torchvision's ImageFolder. For each setting a line
"SETTING H W C N", then N images of H*W*C bytes, one behind the other."""
import io
import os
import struct
import zlib

import numpy as np
from PIL import Image


def waves(h, w, c, shift=0):
    """A smooth picture with some structure."""
    y, x, k = np.meshgrid(np.arange(h), np.arange(w), np.arange(c), indexing="ij")
    v = 127 + 80 * np.sin((x + shift) * 0.7 + k) + 45 * np.cos(y * 0.9 - 2 * k + shift)
    return np.clip(np.round(v), 0, 255).astype(np.uint8)


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(rows_of, h, w, depth, kind, interlaced=False, before=(), behind=()):
    """rows_of(top, left, step_y, step_x): the packed rows of these pixels."""
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)] if interlaced else [(0, 0, 1, 1)]
    raw = b"".join(b"\0" + row for p in passes if p[0] < h and p[1] < w for row in rows_of(*p))
    head = struct.pack(">IIBBBBB", w, h, depth, kind, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(before) + chunk(b"IDAT", zlib.compress(raw, 9)) + b"".join(behind) + chunk(b"IEND", b"")


def samples(a, bytes_each=1):
    dtype = ">u2" if bytes_each == 2 else "u1"
    return lambda top, left, dy, dx: [row.astype(dtype).tobytes() for row in a[top::dy, left::dx]]


def bits(a, depth):
    """Rows of samples of less than a byte."""
    def rows(top, left, dy, dx):
        for row in a[top::dy, left::dx]:
            all = "".join(format(int(v), f"0{depth}b") for v in row)
            yield int(all.ljust(-len(all) % 8 + len(all), "0"), 2).to_bytes((len(all) + 7) // 8, "big")
    return rows


def jpeg(array, mode, **more):
    out = io.BytesIO()
    Image.fromarray(array, mode).save(out, "jpeg", **more)
    return out.getvalue()


wide16 = waves(9, 14, 3).astype(np.uint32) * 257 + 100
exif = Image.Exif()
exif[0x0112] = 6                                    # to be shown rotated
palette = np.arange(30, dtype=np.uint8).reshape(10, 3) * 8
files = {
    "train/jpeg/adobe-cmyk.jpg": jpeg(waves(11, 9, 4), "CMYK", quality=90),
    "train/jpeg/colour.jpg": jpeg(waves(13, 10, 3), "RGB", quality=85),
    "train/jpeg/exif-6.JPG": jpeg(waves(8, 12, 3, 2), "RGB", quality=85, exif=exif),
    "train/jpeg/gray.jpeg": jpeg(waves(12, 8, 1, 3)[..., 0], "L", quality=85),
    "train/jpeg/progressive.jpg": jpeg(waves(14, 17, 3, 4), "RGB", quality=80, progressive=True, subsampling=0),
    "train/png/alpha.png": png(samples(waves(10, 11, 4)), 10, 11, 8, 6),
    "train/png/animated.png": png(samples(waves(9, 9, 3, 5)), 9, 9, 8, 2, before=[chunk(b"acTL", struct.pack(">II", 2, 0)),
        chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 9, 9, 0, 0, 1, 10, 0, 0))], behind=[
        chunk(b"fcTL", struct.pack(">IIIIIHHBB", 1, 9, 9, 0, 0, 1, 10, 0, 0)),
        chunk(b"fdAT", struct.pack(">I", 2) + zlib.compress(b"".join(b"\0" + r.tobytes() for r in waves(9, 9, 3, 9)), 9))]),
    "train/png/deeper/gray-alpha.png": png(samples(waves(12, 9, 2)), 12, 9, 8, 4),
    "train/png/deeper/interlaced.png": png(samples(waves(13, 11, 3, 6)), 13, 11, 8, 2, interlaced=True),
    "train/png/gray-1.png": png(bits(waves(9, 13, 1)[..., 0] > 127, 1), 9, 13, 1, 0),
    "train/png/gray-16.png": png(samples(waves(10, 10, 1).astype(np.uint32) * 3, 2), 10, 10, 16, 0),
    "train/png/gray-4.png": png(bits(waves(9, 13, 1, 7)[..., 0] >> 4, 4), 9, 13, 4, 0, interlaced=True),
    "train/png/palette.png": png(bits(waves(11, 9, 1)[..., 0] * 9 // 255, 4), 11, 9, 4, 3, before=[
        chunk(b"PLTE", palette.tobytes()), chunk(b"tRNS", bytes([0, 128, 255]))]),
    "train/png/wide.png": png(samples(wide16, 2), 9, 14, 16, 2, before=[chunk(b"gAMA", struct.pack(">I", 45455))]),
    "test/jpeg/small.jpg": jpeg(waves(3, 40, 3), "RGB", quality=85),
    "test/png/tall.png": png(samples(np.random.default_rng(1).integers(0, 256, (60, 4, 3))), 60, 4, 8, 2),  # columns first and rows first: other bytes
}
for path, data in files.items():
    os.makedirs(os.path.dirname("pictures/" + path), exist_ok=True)
    with open("pictures/" + path, "wb") as f:
        f.write(data)
with open("pictures/train/png/notes.txt", "w") as f:
    f.write("no picture\n")


def order(part):
    """As ImageFolder finds them."""
    for name in sorted(os.listdir("pictures/" + part)):
        for root, _, names in sorted(os.walk(f"pictures/{part}/{name}")):
            yield from (os.path.join(root, n) for n in sorted(names) if n.lower().endswith((".jpg", ".jpeg", ".png")))


def fit(im, size):
    """torchvision's Resize and CenterCrop."""
    if isinstance(size, tuple):
        return im.resize((size[1], size[0]), Image.BILINEAR)
    w, h = im.size
    long = int(size * max(w, h) / min(w, h))
    im = im.resize((size, long) if w <= h else (long, size), Image.BILINEAR)
    left, top = int(round((im.size[0] - size) / 2.0)), int(round((im.size[1] - size) / 2.0))
    return im.crop((left, top, left + size, top + size))


with open("pictures.answers", "wb") as f:
    for size, gray in [(6, False), (16, False), ((5, 7), False), ((20, 3), False), (9, True)]:
        images = []
        for path in [*order("train"), *order("test")]:
            im = Image.open(path).convert("RGB")
            images.append(np.asarray(fit(im.convert("L") if gray else im, size)))
        h, w = images[0].shape[:2]
        setting = "x".join(map(str, size)) if isinstance(size, tuple) else str(size)
        f.write(f"{setting}{'-gray' if gray else ''} {h} {w} {1 if gray else 3} {len(images)}\n".encode())
        f.write(b"".join(i.tobytes() for i in images))
