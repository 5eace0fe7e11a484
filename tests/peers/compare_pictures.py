#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pictures that nobody here made, by Convoy and by Pillow: compare_pictures.py LIBCONVOY.so [FOLDER…]

Takes the JPEGs and PNGs of the FOLDERs, else those of Python's packages (scikit-image, scikit-learn and matplotlib bring some) and of
/usr/share, and compares every pixel of both at several sizes, and classes and order with torchvision's ImageFolder where it is there.
Exit 77 without Pillow and numpy, or without pictures."""
import ctypes
import os
import sys
import tempfile
import warnings

try:
    import numpy as np
    from PIL import Image
except ImportError:
    print("skipped: Pillow and numpy are not here")
    sys.exit(77)
try:
    from torchvision.datasets import ImageFolder
except ImportError:
    ImageFolder = None

MOST = 400                                              # pictures
SIZES = [(32, False), (64, False), (224, False), (37, True), ((50, 31), False), ((31, 50), True), (7, False)]


class Samples(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int), ("images", ctypes.c_void_p), ("labels", ctypes.c_void_p)]


class Data(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 256), *((name, ctypes.c_int) for name in ("h", "w", "c", "classes", "folders")), ("train", Samples),
                ("val", Samples), ("test", Samples), ("names", ctypes.POINTER(ctypes.c_char_p)), ("content", ctypes.c_uint64)]


class Params(ctypes.Structure):
    _fields_ = [("dir", ctypes.c_char_p), ("classes", ctypes.c_int), ("seed", ctypes.c_uint64), ("size_h", ctypes.c_int),
                ("size_w", ctypes.c_int), ("gray", ctypes.c_bool), ("png16_scale", ctypes.c_bool), ("val_split", ctypes.c_double), ("no_cache", ctypes.c_bool),
                ("strict", ctypes.c_bool), ("look", ctypes.c_bool)]


def load(lib, folder, size, gray):
    h, w = size if isinstance(size, tuple) else (-1, size)
    data, why, broken = ctypes.POINTER(Data)(), ctypes.c_char_p(), {}
    if lib.cvy_data_load(os.fsencode(folder), ctypes.byref(Params(size_h=h, size_w=w, gray=gray, no_cache=True)), ctypes.byref(data)):
        sys.exit(f"{folder}: not loaded")
    d = data.contents
    shape = (d.train.n, d.h, d.w, d.c)
    images = np.ctypeslib.as_array((ctypes.c_uint8 * int(np.prod(shape))).from_address(d.train.images)).reshape(shape).copy()
    labels = list((ctypes.c_uint16 * d.train.n).from_address(d.train.labels))
    names = [os.fsdecode(d.names[k]) for k in range(d.classes)]
    while path := lib.cvy_data_broken(data, len(broken), ctypes.byref(why)):
        broken[os.fsdecode(path)] = why.value.decode(errors="replace")
    lib.cvy_data_destroy(ctypes.byref(data))
    return images, labels, names, broken


def fit(image, size):
    """torchvision's Resize and CenterCrop."""
    if isinstance(size, tuple):
        return image.resize((size[1], size[0]), Image.BILINEAR)
    w, h = image.size
    long = int(size * max(w, h) / min(w, h))
    image = image.resize((size, long) if w <= h else (long, size), Image.BILINEAR)
    left, top = int(round((image.size[0] - size) / 2.0)), int(round((image.size[1] - size) / 2.0))
    return image.crop((left, top, left + size, top + size))


def find(folders):
    """{class: [path…]}"""
    packages = [os.path.join(p, name) for p in sys.path for name in ("skimage", "sklearn", "matplotlib", "torchvision")]
    classes, count = {}, 0
    for folder in folders or [*packages, "/usr/share"]:
        for where, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                path = os.path.join(where, name)
                if name.lower().endswith((".jpg", ".jpeg", ".png")) and os.path.isfile(path) and count < MOST:
                    classes.setdefault(os.path.basename(folder), []).append(path)
                    count += 1
    return classes


def opened(path):
    try:
        return Image.open(path).convert("RGB")
    except Exception as error:                          # Pillow raises several kinds
        return str(error)


def main():
    warnings.simplefilter("ignore")
    lib = ctypes.CDLL(os.path.abspath(sys.argv[1]))
    lib.cvy_data_broken.restype = ctypes.c_char_p
    found, faults, exact, compared = find(sys.argv[2:]), 0, 0, 0
    if not found:
        print("skipped: no pictures here")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as root:
        for name, paths in found.items():
            os.makedirs(os.path.join(root, name))
            for i, path in enumerate(paths):
                os.symlink(os.path.abspath(path), os.path.join(root, name, f"{i:04d}{os.path.splitext(path)[1]}"))
        listed = [(os.path.join(root, name, f), k) for k, name in enumerate(sorted(found)) for f in sorted(os.listdir(os.path.join(root, name)))]
        if ImageFolder:
            folder = ImageFolder(root)
            if folder.samples != listed or folder.classes != sorted(found):
                sys.exit("the list of pictures is not ImageFolder's")
        for size, gray in SIZES:
            images, labels, names, broken = load(lib, root, size, gray)
            at = worst = 0
            faults += names != sorted(found)
            for path, label in listed:
                short, image = os.path.relpath(path, root), opened(path)
                if short in broken:
                    if not isinstance(image, str):
                        print(f"{os.readlink(path)}: broken for Convoy alone: {broken[short]}")
                        faults += 1
                    continue
                if not isinstance(image, str):          # Pillow is stricter with text chunks of PNG
                    want = np.asarray(fit(image.convert("L") if gray else image, size)).reshape(images.shape[1:])
                    error = int(np.abs(want.astype(int) - images[at]).max())
                    if error > 1 or labels[at] != label:
                        print(f"{os.readlink(path)} at {size}: {error} off, class {labels[at]}")
                        faults += 1
                    worst, exact, compared = max(worst, error), exact + (error == 0), compared + 1
                at += 1
            faults += at != len(images)
            print(f"size {size}{' gray' if gray else ''}: {at} pictures, {len(broken)} broken, at most {worst} off")
    print(f"{exact} of {compared} are the same bytes; {faults} faults")
    sys.exit(1 if faults else 0)


main()
