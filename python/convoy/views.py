# SPDX-License-Identifier: MIT
"""What a Trainer shows: a figure, a page for the browser, and its form in a notebook."""
from __future__ import annotations

import html
import json
import math
import os
import tempfile
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import errors, program
from ._cffi import ffi, lib
from .history import History

COLOURS = {"loss": "#4269d0", "train": "#efb118", "val": "#3ca951", "test": "#ff725c"}
WIDTH, HEIGHT, LEFT, BELOW, ABOVE = 340, 190, 44, 26, 22  # pixels of a chart
MOST_POINTS = 300

Curve = Tuple[str, List[float], List[float]]  # name, x, y


# ---- curves ----


def _losses(history: History) -> List[Curve]:
    """The loss of each step."""
    return [("loss", [float(n) for n in history.steps["step"]], list(history.steps["loss"]))]


def _accuracies(history: History) -> List[Curve]:
    """The accuracies that were measured, by the number of finished epochs."""
    curves = []
    for name in ("train", "val", "test"):
        found = [(epoch + 1.0, value) for epoch, value in zip(history["epoch"], history[f"{name}_acc"]) if value is not None]
        if found:
            curves.append((name, [x for x, _ in found], [y for _, y in found]))
    return curves


def _thinned(curve: Curve) -> Curve:
    """At most MOST_POINTS points, each the mean of those around it; what is not finite is left out."""
    name, xs, ys = curve
    known = [(x, y) for x, y in zip(xs, ys) if math.isfinite(y)]
    each = max(1, -(-len(known) // MOST_POINTS))
    groups = [known[i:i + each] for i in range(0, len(known), each)]
    return name, [g[-1][0] for g in groups], [sum(y for _, y in g) / len(g) for g in groups]


# ---- SVG ----


def _ticks(low: float, high: float) -> List[float]:
    """Two to six round numbers from low to high."""
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    while (high - low) / step > 5:
        step *= 2 if round(step / 10.0 ** math.floor(math.log10(step))) != 2 else 2.5
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _span(values: Sequence[float]) -> Tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def chart(title: str, x_title: str, curves: Sequence[Curve]) -> str:
    """A chart as SVG; "" without a point."""
    curves = [c for c in map(_thinned, curves) if c[1]]
    if not curves:
        return ""
    (x0, x1), (y0, y1) = (_span([value for curve in curves for value in curve[k]]) for k in (1, 2))
    across, up = WIDTH - LEFT - 10, HEIGHT - BELOW - ABOVE
    px = lambda x: LEFT + (x - x0) / (x1 - x0) * across
    py = lambda y: ABOVE + (y1 - y) / (y1 - y0) * up
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
             f'<text x="{LEFT}" y="13" fill="currentColor">{html.escape(title)}</text>']
    for y in _ticks(y0, y1):
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{py(y):.1f}" y2="{py(y):.1f}" stroke="#8884"/>'
                     f'<text x="{LEFT - 5}" y="{py(y) + 4:.1f}" text-anchor="end" fill="currentColor">{y:.4g}</text>')
    for x in _ticks(x0, x1):
        parts.append(f'<text x="{px(x):.1f}" y="{HEIGHT - 10}" text-anchor="middle" fill="currentColor">{x:.4g}</text>')
    parts.append(f'<text x="{WIDTH - 10}" y="{HEIGHT - 1}" text-anchor="end" fill="currentColor" font-size="9">{html.escape(x_title)}</text>')
    at = WIDTH - 10
    for name, xs, ys in reversed(curves):
        points = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in zip(xs, ys))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.5"/>' if len(xs) > 1 else
                     f'<circle cx="{px(xs[0]):.1f}" cy="{py(ys[0]):.1f}" r="3" fill="{COLOURS[name]}"/>')
        if len(curves) > 1:
            parts.append(f'<text x="{at}" y="13" text-anchor="end" fill="{COLOURS[name]}">{name}</text>')
            at -= 8 * len(name) + 4
    return "".join(parts) + "</svg>"


# ---- the log of a run ----


def log_lines(history: History, record: Mapping[str, Any], result: Any) -> Iterator[Dict[str, Any]]:
    """The lines of `convoy train --log` that tell of a run: its settings, steps and epochs, its end."""
    yield {"run": {"version": ffi.string(lib.cvy_version()).decode(), "seed": record.get("seed", 0), "devices": record.get("devices", []),
                   "shares": list(history.steps["shares"][0]) if history.steps["shares"] else [], "settings": record}}
    epochs = {epoch: i for i, epoch in enumerate(history["epoch"])}
    steps = history.steps
    for i, epoch in enumerate(steps["epoch"]):
        yield {name: list(values[i]) if name == "shares" else values[i] for name, values in steps.items() if values[i] is not None}
        if epoch in epochs and (i + 1 == len(steps["epoch"]) or steps["epoch"][i + 1] != epoch):
            row = epochs[epoch]
            yield {"sec" if name == "seconds" else name: values[row] for name, values in history.items()}
    if result is not None:
        yield {"end": {"interrupted": result.stopped, "test_acc": result.test_acc, "val_acc": result.val_acc, "sec_per_epoch": result.sec_per_epoch}}


def write_log(path: str, run: "Views") -> None:
    """A file that `convoy report` takes. What is not finite becomes null."""
    def finite(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if isinstance(value, Mapping):
            return {key: finite(inner) for key, inner in value.items()}
        return [finite(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    with open(path, "w", encoding="utf-8") as f:
        for line in log_lines(run.history, run._record or {}, run.result):
            f.write(json.dumps(finite(line)) + "\n")


class Views:
    """What a Trainer shows of its runs; base of Trainer."""

    history: History
    result: Any
    _record: Optional[Dict[str, Any]] = None  # settings of the last fit, as its checkpoints have them

    def plot(self, axes: Any = None) -> Any:
        """Loss by step and accuracies by epoch as matplotlib's Figure. axes: two of matplotlib's axes to draw on instead of a new figure.
        Raises UnsupportedError without matplotlib, ArgumentError before the first step."""
        self._check_steps("plot")
        try:
            from matplotlib import pyplot
        except ImportError as reason:
            raise errors.UnsupportedError(f"plot needs the package matplotlib, which cannot be imported ({reason}): pip install matplotlib") from reason
        if axes is None:
            _, axes = pyplot.subplots(1, 2, figsize=(9, 3), layout="constrained")
        for axis, title, x_title, curves in zip(axes, ("loss", "accuracy"), ("step", "epoch"), (_losses(self.history), _accuracies(self.history))):
            for name, xs, ys in curves:
                axis.plot(xs, ys, label=name, color=COLOURS[name], linewidth=1, marker="o" if len(xs) < 2 else None)
            axis.set(title=title, xlabel=x_title)
            axis.grid(alpha=0.3)
            if len(curves) > 1:
                axis.legend()
        return axes[0].figure

    def report(self, path: Union[str, "os.PathLike[str]"], *others: "Views") -> None:
        """Writes the page of `convoy report` for the browser: curves, shares of the devices, settings, command. others: trainers whose runs are beside it.
        Raises ArgumentError before the first step; FileError: the page could not be written; UnsupportedError: the program is not there."""
        runs = (self, *others)
        for run in runs:
            run._check_steps("report")
        with tempfile.TemporaryDirectory(prefix="convoy-") as folder:
            logs = []
            for i, run in enumerate(runs):
                model = os.path.basename(str((run._record or {}).get("model", "run"))).split(",")[0] or "run"
                logs.append(os.path.join(folder, f"{model}-{i + 1}.jsonl" if others else f"{model}.jsonl"))
                write_log(logs[-1], run)
            program.call("report", *logs, "--out", os.fspath(path))

    def _check_steps(self, what: str) -> None:
        if not self.history.steps["step"]:
            raise errors.ArgumentError(f"{what}: no step yet; expected a call of fit before")

    def _repr_html_(self) -> str:
        """In a notebook: curves, and devices with their shares."""
        charts = chart("loss", "step", _losses(self.history)) + chart("accuracy", "epoch", _accuracies(self.history))
        whole = max(self.history.steps["images"], default=0)  # the last step of an epoch may have less
        shares = next((row for row in reversed(self.history.steps["shares"]) if sum(row) == whole), ())
        labels = (self._record or {}).get("devices", [])
        rows = "".join(f"<tr><td style='text-align:left'>{html.escape(label)}</td><td>{share}</td><td>{share / whole:.0%}</td></tr>" for label, share in zip(labels, shares))
        table = f"<table><tr><th>device</th><th>images</th><th>share</th></tr>{rows}</table>" if rows else ""
        return f"<div><pre>{html.escape(repr(self))}</pre>{charts}{table}</div>"
