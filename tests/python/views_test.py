#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Figures, pages and forms in a notebook: views_test.py CONVOY GROUP."""
import os
import re
import sys
import xml.etree.ElementTree

import numpy as np

from python_test import main, raises

import convoy  # noqa: E402
from convoy import history, program, views  # noqa: E402


def numbers_of(svg):
    return [[tuple(map(float, point.split(","))) for point in points.split()] for points in re.findall(r'<polyline points="([^"]*)"', svg)]


def test_views_charts(folder):
    """Curves as SVG: points lie where their values are; a curve of any length stays small. No device is opened."""
    xs, ys = list(range(11)), [10.0 - x for x in range(11)]
    svg = views.chart("loss <of> steps", "step", [("loss", xs, ys)])
    xml.etree.ElementTree.fromstring(svg)
    (points,) = numbers_of(svg)
    left, right = views.LEFT, views.WIDTH - 10
    assert points[0] == (left, views.ABOVE) and points[-1] == (right, views.HEIGHT - views.BELOW) and abs(points[5][0] - (left + right) / 2) < 0.06 and "&lt;of&gt;" in svg
    assert re.findall(r'text-anchor="end" fill="currentColor">(\d+)<', svg) == ["0", "2", "4", "6", "8", "10"], svg
    both = views.chart("accuracy", "epoch", [("train", [1, 2], [0.1, 0.9]), ("test", [1, 2], [0.5, 0.6])])
    assert len(numbers_of(both)) == 2 and ">train</text>" in both and ">test</text>" in both
    assert "circle" in views.chart("accuracy", "epoch", [("test", [1], [0.5])]) and views.chart("loss", "step", [("loss", [1], [float("nan")])]) == ""
    long = views.chart("loss", "step", [("loss", list(range(100000)), [float(i % 7) for i in range(100000)])])
    assert len(long) < 20000 and all(2 < y < 4 for _, _, ys in [views._thinned(("loss", list(range(100000)), [float(i % 7) for i in range(100000)]))] for y in ys)
    for low, high in ((0, 1), (0.913, 0.914), (1e-9, 3e-9), (-5, 1e6), (2.3, 2.30001)):
        ticks = views._ticks(low, high)
        assert 2 <= len(ticks) <= 6 and all(low - 1e-9 * high <= tick <= high * (1 + 1e-9) + 1e-12 for tick in ticks), (low, high, ticks)
    run = convoy.Trainer("lenet")
    raises(convoy.ArgumentError, "no step yet", run.plot)
    raises(convoy.ArgumentError, "no step yet", run.report, os.path.join(folder, "r.html"))
    assert run._repr_html_().startswith("<div><pre>Trainer(lenet") and "<svg" not in run._repr_html_()


def test_views(folder):
    """A run: its form in a notebook, its figure, its page, and its log as the program reads it."""
    if not any(device.usable for device in convoy.devices()):
        return 77
    path = lambda name: os.path.join(folder, name)
    with convoy.Trainer("lenet", devices="0:0*2", batch=32, shares=(24, 8), lr=0.05, init="he") as run, convoy.Trainer("lenet", devices="0:0", batch=32) as other:
        result = run.fit("synthetic:160", val=0.2, epochs=2, quiet=True)
        other.fit("synthetic:160", epochs=1, quiet=True, evaluate=False)
        shown = run._repr_html_()
        xml.etree.ElementTree.fromstring(shown)
        assert shown.count("<svg") == 2 and "<td>24</td><td>75%</td>" in shown and "<td>8</td><td>25%</td>" in shown and result.labels[1] in shown
        run.report(path("r.html")), run.report(path("both.html"), other)
        with open(path("r.html"), encoding="utf-8") as f:
            page = f.read()
        assert "--shares 24,8" in page and '<td class="n">24' in page and result.labels[0] in page and "lenet" in page, page[:2000]
        with open(path("both.html"), encoding="utf-8") as f:
            assert "lenet-1" in f.read()
        raises(convoy.FileError, "report ended with 1", run.report, path("no/folder.html"))
        views.write_log(path("log.jsonl"), run)
        program.call("report", path("log.jsonl"), "--csv", path("r.csv"))
        with open(path("r.csv"), encoding="utf-8") as f:
            rows = [line.split(",") for line in f.read().splitlines()]
        assert [float(row[3]) for row in rows[1:]] == [float(f"{loss:.15g}") for loss in run.history.steps["loss"]] and len(rows) == 9, rows
        assert abs(float(rows[-1][11]) - run.history["val_acc"][-1]) < 1e-9 and rows[1][11] == ""
        run.history.steps["loss"][0] = float("nan")
        views.write_log(path("nan.jsonl"), run)
        program.call("report", path("nan.jsonl"), "--out", path("nan.html"))
        assert "nan" not in run._repr_html_()
        try:
            import matplotlib
        except ImportError:
            raises(convoy.UnsupportedError, "matplotlib", run.plot)
            return 0
        matplotlib.use("Agg")
        figure = run.plot()
        lines = [line for axis in figure.axes for line in axis.lines]
        assert [len(line.get_xdata()) for line in lines] == [8, 2, 2, 1] and np.array_equal(lines[2].get_ydata(), run.history["val_acc"]), [len(line.get_xdata()) for line in lines]
        figure.savefig(path("plot.svg"))
        assert other.plot(figure.axes) is figure
    assert "closed" in run._repr_html_() and run._repr_html_().count("<svg") == 2  # a closed one still shows what it did
    return 0


def test_views_missing(folder):
    """Without the program the page's error says so."""
    before = program.find
    program.find = lambda: None
    try:
        raises(convoy.UnsupportedError, "build it with tools/quickstart", program.call, "report")
    finally:
        program.find = before
    assert isinstance(history.History(), dict) and sys.modules["convoy.views"] is views


if __name__ == "__main__":
    main(globals())
