#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes augment.bin: what torchvision makes of pictures with the parameters that Convoy draws, and normalize.bin: what
its ToTensor and Normalize make of every byte. Needs numpy, Pillow and torchvision; test_augment does not: the files are
kept beside this script. Run it in its folder; it makes the same bytes every time.

Parameters are drawn here a third time, from the text of src/ops/gather/gather.h, and given to torchvision's functions for
Pillow's images; hue goes to the function for tensors, since Pillow keeps hues in 8 bits. The file is the pictures'
bytes, one case after the other (CASES; test_augment.c has the same list), SAMPLES of each.

normalize.bin: for each of NORMALIZED an image of 256 pixels, whose channel c of pixel i is the byte (i + 85 c) % 256, as
float32, channels last."""
import math

import numpy as np
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import functional as F

SAMPLES, FIRST, EPOCH, SEED = 12, 1000, 3, 0x0123456789ABCDEF
M32 = 0xFFFFFFFF
# height, width, channels, flip, crop, resized crop, jitter, cutout
CASES = [
    (14, 11, 3, True, 0, None, None, 0),
    (12, 13, 1, True, 4, None, None, 0),
    (16, 12, 3, True, 0, (0.64, 1.0), None, 0),
    (13, 17, 1, False, 0, (0.08, 1.0), None, 0),
    (12, 12, 3, False, 0, None, (0.4, 0.3, 0.5, 0), 0),
    (12, 12, 1, False, 0, None, (0.4, 0.7, 0, 0), 0),
    (12, 12, 3, False, 0, None, (0, 0, 0, 0.5), 0),
    (14, 14, 3, True, 2, None, (0.2, 0.2, 0.2, 0), 6),
]
# means, deviations; the first ImageNet's
NORMALIZED = [((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ((0.25, 0.5, 0.75), (0.1, 1, 3)), ((0.286,), (0.353,))]


def philox(counter, key):
    """Philox4x32-10 (Salmon and others, SC11)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & M32, (a >> 32) ^ c[3] ^ k[1], a & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def below(word, n):
    return word * n >> 32


def around(word, most):
    return below(word, 2 * most + 1) - most


def picture(h, w, c):
    """Smooth, with noise and plain parts."""
    y, x, ch = np.mgrid[0:h, 0:w, 0:c]
    noise = (np.arange(h * w * c) * 2654435761 >> 7) % 256
    smooth = (x * 37 + y * 23 + ch * 71) % 256
    mix = np.where((x + y) % 3 == 0, noise.reshape(h, w, c), smooth)
    mix[: h // 4, : w // 4] = 200
    return mix.astype(np.uint8)


def pil(a):
    return Image.fromarray(a if a.shape[2] == 3 else a[:, :, 0])


def array(image):
    a = np.asarray(image)
    return a if a.ndim == 3 else a[:, :, None]


def permutation(number):
    left, order = [0, 1, 2, 3], []
    for size in (6, 2, 1, 1):
        order.append(left.pop(number // size))
        number %= size
    return order


def window(draw, h, w, part):
    one = 1 << 30
    least, most = (round(float(np.float32(p)) * one) for p in part)
    for attempt in range(3, 13):
        words = draw(attempt)
        area = h * w * (least + below(words[0], most - least + 1)) / one
        ratio = math.exp(around(words[1], round(math.log(4 / 3) * one)) / one)
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < width <= w and 0 < height <= h:
            return below(words[2], h - height + 1), below(words[3], w - width + 1), height, width
    if w / h < 3 / 4:
        height, width = round(w / (3 / 4)), w
    elif w / h > 4 / 3:
        height, width = h, round(h * (4 / 3))
    else:
        height, width = h, w
    return (h - height) // 2, (w - width) // 2, height, width


def jitter(image, draw, order, most):
    for k in order:
        unit = 1 << (16 if k == 3 else 14)
        by = around(draw(1)[k], round(float(np.float32(most[k])) * unit))
        if most[k] == 0:
            continue
        if k == 3:
            tensor = torch.from_numpy(array(image).copy()).permute(2, 0, 1)
            image = pil(F.adjust_hue(tensor, by / unit).permute(1, 2, 0).numpy())
        else:
            image = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation)[k](image, 1 + by / unit)
    return image


def augmented(case, sample):
    h, w, c, flip, crop, part, most, cutout = case

    def draw(i):
        return philox((sample, i, 5, EPOCH), (SEED & M32, SEED >> 32))
    image, words = pil(picture(h, w, c)), draw(0)
    if part:
        image = F.resized_crop(image, *window(draw, h, w, part), (h, w))
    elif crop:
        top, left = around(words[1], crop) + crop, around(words[2], crop) + crop
        image = F.crop(F.pad(image, crop), top, left, h, w)
    if flip and words[0] >> 31:
        image = F.hflip(image)
    if most:
        image = jitter(image, draw, permutation(below(words[3], 24)), most)
    out = array(image).copy()
    if cutout:
        top, left = below(draw(2)[0], h) - cutout // 2, below(draw(2)[1], w) - cutout // 2
        out[max(top, 0):max(top + cutout, 0), max(left, 0):max(left + cutout, 0)] = 0
    return out.tobytes()


with open("augment.bin", "wb") as f:
    for case in CASES:
        for sample in range(FIRST, FIRST + SAMPLES):
            f.write(augmented(case, sample))
with open("normalize.bin", "wb") as f:
    for mean, deviation in NORMALIZED:
        channel = [np.roll(np.arange(256), -85 * c) for c in range(len(mean))]
        steps = transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, deviation)])
        f.write(steps(np.stack(channel, axis=-1)[None].astype(np.uint8)).permute(1, 2, 0).contiguous().numpy().tobytes())
