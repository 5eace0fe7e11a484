# SPDX-License-Identifier: MIT
"""Shares of a team over the steps of a run, from its log (`convoy train --log`)."""
import json

from svg_drawing import Drawing

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 880, 64, 640, 120, 336
COLOURS = ("blue", "orange", "green", "purple")


def read_log(text):
    """(labels of the devices, [(epoch, step, shares)…] of whole batches, settings)"""
    lines = [json.loads(line) for line in text.splitlines()]
    run = next(line["run"] for line in lines if "run" in line)
    steps = [line for line in lines if "shares" in line and "step" in line]
    whole = max(line["images"] for line in steps)
    return run["devices"], [(line["epoch"], line["step"], line["shares"]) for line in steps if line["images"] == whole], run["settings"]


def stretches(steps):
    """[(first step, last step, shares)…] with equal shares."""
    found = []
    for _, step, shares in steps:
        if found and found[-1][2] == shares:
            found[-1][1] = step
        else:
            found.append([step, step, shares])
    return found


def make(text, cause):
    """The picture; cause: the lines that say what the devices are."""
    devices, steps, settings = read_log(text)
    batch, last = sum(steps[0][2]), steps[-1][1]
    x_of = lambda step: LEFT + (RIGHT - LEFT) * step / (last + 1)
    y_of = lambda images: BOTTOM - (BOTTOM - TOP) * images / batch
    out = Drawing(WIDTH, "Shares of a team of unlike devices, step by step")
    out.text(20, 32, "Shares of a team of unlike devices, step by step", 20, bold=True)
    for i, line in enumerate(cause):
        out.text(20, 54 + 18 * i, line, 14, "soft")
    parts = stretches(steps)
    below = [0] * len(parts)
    for device, label in enumerate(devices):
        upper, lower = [], []
        for i, (first, end, shares) in enumerate(parts):
            end = parts[i + 1][0] if i + 1 < len(parts) else end + 1
            y, base = y_of(below[i] + shares[device]), y_of(below[i])
            upper.append(f"{x_of(first):.1f} {y:.1f}L{x_of(end):.1f} {y:.1f}")
            lower.append(f"{x_of(end):.1f} {base:.1f}L{x_of(first):.1f} {base:.1f}")
        out.area("M" + "L".join(upper) + "L" + "L".join(reversed(lower)) + "z", COLOURS[device % len(COLOURS)])
        for i, (first, end, shares) in enumerate(parts):
            if i == len(parts) - 1:
                middle = y_of(below[i] + shares[device] / 2)
                out.text(RIGHT + 14, middle, f"device {device} ({label.split(' ', 1)[0]})", 14, bold=True)
                out.text(RIGHT + 14, middle + 18, f"first {parts[0][2][device]}, last {shares[device]} images", 13, "soft")
            below[i] += shares[device]
    for images in range(0, batch + 1, batch // 4):
        out.text(LEFT - 8, y_of(images) + 5, str(images), 13, "soft", "end")
        out.path(f"M{LEFT - 4} {y_of(images):.1f}H{LEFT}", "line")
    for step in range(0, last + 1, 100):
        out.path(f"M{x_of(step):.1f} {BOTTOM}V{BOTTOM + 5}", "line")
        out.text(x_of(step), BOTTOM + 20, str(step), 13, "soft", "middle")
    what = f"{settings['model']} on {settings['data']}, {settings['epochs']} epochs, batch {batch}, --split {settings['split']}"
    out.text((LEFT + RIGHT) / 2, BOTTOM + 42, f"step ({what})", 13, "soft", "middle")
    out.text(20, TOP - 14, "images of a batch", 13, "soft")
    return out.finish(BOTTOM + 62)
