# SPDX-License-Identifier: MIT
"""Speed beside PyTorch, from the tables of doc/results.md: a bar for each ratio of Convoy's rate to PyTorch's, also where Convoy is behind."""
import re
import statistics

from svg_drawing import Drawing

WIDTH, LEFT, RIGHT, BAR, ROW, MOST = 880, 366, 678, 13, 21, 3.0


def tables(text):
    """[(heading above it, words of the head, [cells of a row…])…]"""
    found, heading, rows = [], "", []
    for line in text.split("\n") + [""]:
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            found.append((heading, rows[0], rows[2:]))
            rows = []
    return found


def table(all_tables, heading, column):
    """The table below a heading that has this column."""
    for at, head, rows in all_tables:
        if at == heading and column in head:
            return head, rows
    raise SystemExit(f"doc/results.md: no table with a column '{column}' below '{heading}', which the picture is made from")


def numbers(cell):
    """Those of a cell, without what stands in brackets."""
    return [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?:\.\d+)?", re.sub(r"\(.*?\)", "", cell))]


def cpu_rows(all_tables):
    """[(network, ratios by rounds)…]"""
    found = []
    for heading in ("Speed compared with PyTorch", "Networks from ONNX files"):
        head, rows = table(all_tables, heading, "ratio of the rates, by rounds")
        for row in rows:
            cells = dict(zip(head, row))
            size = f", {cells['images']}" if "images" in cells else ""
            ratios = numbers(cells["ratio of the rates, by rounds"])
            if "PyTorch, img/s by rounds" in cells:
                rates = [numbers(cells[f"{who}, img/s by rounds"]) for who in ("Convoy", "PyTorch")]
                check_ratios(row[0], ratios, [a / b for a, b in zip(*rates)])
            found.append((f"{cells['network']}{size}, batch {cells['batch']}", ratios))
    return found


def check_ratios(name, told, made):
    """A slip of the page, in a rate or a ratio, must not become a picture."""
    if len(told) != len(made) or any(abs(a - b) > 0.03 * b for a, b in zip(told, made)):
        raise SystemExit(f"doc/results.md: {name}: the ratios {told} are not those of the rates, {[round(r, 2) for r in made]}")


def card_rows(all_tables):
    """[(network, [(PyTorch's arithmetic, ratio)…])…], no ratio where PyTorch was not measured"""
    last = "Convoy beside fp32, TF32, bf16"
    head, rows = table(all_tables, "On a graphics card", last)
    found, before = [], ""
    for row in rows:
        name = row[0]
        if name.startswith("the same, "):
            more = name[len("the same, "):]
            name = (re.sub(r", batch \d+", "", before) if more.startswith("batch") else before) + ", " + more
        else:
            before = name
        ratios = numbers(row[-1])
        if not ratios:      # several networks in a row: "A, B, 224x224, batch 64"
            *names, size, batch = name.split(", ")
            found += [(f"{one}, {size}, {batch}", []) for one in names]
            continue
        kinds = [("fp32", row[2]), ("TF32", row[3]), ("bf16", row[4])][:len(ratios)]
        check_ratios(name, ratios, [numbers(row[1])[0] / numbers(cell)[0] for _, cell in kinds])
        found.append((name, [(kind, ratio) for (kind, _), ratio in zip(kinds, ratios)]))
    return found


def card_name(text):
    found = re.search(r"^## On a graphics card\n+One ([\w ]+?) \(", text, re.M)
    if not found:
        raise SystemExit("doc/results.md: the section on a graphics card does not begin with 'One CARD (…'")
    return found.group(1)


def x_of(ratio):
    return LEFT + (RIGHT - LEFT) * ratio / MOST


def put_bar(out, y, ratios, label):
    middle = statistics.median(ratios)
    ahead = middle >= 1
    out.rect(LEFT, y, x_of(middle) - LEFT, BAR, "blue" if ahead else "orange")
    if min(ratios) < max(ratios):
        out.path(f"M{x_of(min(ratios)):.1f} {y + BAR / 2:.1f}H{x_of(max(ratios)):.1f}M{x_of(min(ratios)):.1f} {y + 3:.1f}V{y + BAR - 3:.1f}"
                 f"M{x_of(max(ratios)):.1f} {y + 3:.1f}V{y + BAR - 3:.1f}", "ink", 1.2)
        label = f"{label} ({min(ratios):.2f}–{max(ratios):.2f})".strip()
    out.text(max(x_of(max(ratios)), x_of(1)) + 8, y + BAR - 2, f"{middle:.2f} x {label}".rstrip(), 13)


def put_axis(out, top, bottom):
    for ratio in (0, 1, 2, 3):
        out.path(f"M{x_of(ratio):.1f} {top:.1f}V{bottom if ratio == 0 else top + 6:.1f}", "line")
        out.text(x_of(ratio), top - 6, "PyTorch = 1" if ratio == 1 else str(ratio), 12, "soft", "middle")


def make(text):
    """The picture from the text of doc/results.md."""
    all_tables = tables(text)
    out = Drawing(WIDTH, "Images a second, Convoy's by PyTorch's")
    out.text(20, 32, "Images a second beside PyTorch", 20, bold=True)
    out.text(20, 54, "Convoy's rate in fp32, divided by PyTorch's. Blue: Convoy is faster. Orange: PyTorch is faster.", 14, "soft")
    y = 92
    out.text(20, y, "CPU: two cores of a Zen 5, training", 15, bold=True)
    out.text(20, y + 17, "PyTorch in fp32, its fastest of eager and compiled.", 12, "soft")
    rows, top = cpu_rows(all_tables), y + 48
    put_axis(out, top, top + ROW * len(rows) + 6)
    y = top + 8
    for name, ratios in rows:
        out.text(LEFT - 10, y + BAR - 2, name, 13, anchor="end")
        put_bar(out, y, ratios, "")
        y += ROW
    out.path(f"M{x_of(1):.1f} {top:.1f}V{y - 6:.1f}", "ink", 1.5)
    head, speed = table(all_tables, "Speed compared with PyTorch", "PyTorch, bf16 autocast")
    if all(row[head.index("PyTorch, bf16 autocast")] == "not measured" for row in speed):
        out.text(LEFT - 10, y + BAR - 2, "all of them, PyTorch in bf16 autocast", 13, anchor="end")
        out.text(x_of(1) + 8, y + BAR - 2, "not measured in turns; doc/results.md has an estimate", 13, "soft")
        y += ROW
    y += 34
    out.text(20, y, f"Graphics card: {card_name(text)}, training unless said otherwise", 15, bold=True)
    out.text(20, y + 17, "PyTorch in fp32, TF32 and bf16, its fastest of eager and CUDA graph. Each rate was taken once: the ratios are rough.", 12, "soft")
    rows, top = card_rows(all_tables), y + 48
    put_axis(out, top, top + sum(ROW * max(len(bars), 1) + 6 for _, bars in rows))
    y = top + 8
    for name, bars in rows:
        out.text(LEFT - 10, y + BAR - 2, name, 13, anchor="end")
        for kind, ratio in bars:
            put_bar(out, y, [ratio], f"PyTorch in {kind}")
            y += ROW
        if not bars:
            out.text(x_of(1) + 8, y + BAR - 2, "PyTorch not measured", 13, "soft")
            y += ROW
        y += 6
    out.path(f"M{x_of(1):.1f} {top:.1f}V{y - 6:.1f}", "ink", 1.5)
    out.text(20, y + 22, "Bar: median of the rounds. Whiskers: minimum and maximum. Rates, and how they were measured: doc/results.md", 12, "soft")
    return out.finish(y + 38)
