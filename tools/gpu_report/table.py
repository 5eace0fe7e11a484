# SPDX-License-Identifier: MIT
"""Rates of Convoy and PyTorch, side by side. A row: side (convoy, torch), network, batch, task, math, mode, layout, img_s, ms, mib, note; or
`failed`, the reason why there is no rate."""
import statistics

MATHS = ("fp32", "tf32", "bf16")


def middle(rows):
    return statistics.median(r["img_s"] for r in rows)


def rate(rows):
    """The middle of the rounds, and how far they lie apart."""
    if not rows:
        return "–"
    rates = [r["img_s"] for r in rows]
    apart = f" ({len(rates)} rounds, ±{50 * (max(rates) - min(rates)) / statistics.median(rates):.1f} %)" if len(rates) > 1 else ""
    return f"{statistics.median(rates):,.0f}{apart}"


def mib(rows):
    return f"{rows[0]['mib']:.0f}" if rows else "–"


def by(rows, *keys):
    found = {}
    for r in rows:
        found.setdefault(tuple(r.get(k) for k in keys), []).append(r)
    return found


def best_way(rows):
    """The way of PyTorch whose middle is highest: (mode, layout), its rows."""
    ways = by([r for r in rows if r.get("img_s")], "mode", "layout")
    return max(ways.items(), key=lambda way: middle(way[1])) if ways else (None, [])


def lines(rows):
    if not any(r["side"] == "torch" for r in rows):
        return []
    out = ["", "## Beside PyTorch", "", "Images a second, the middle of the rounds; ratio: Convoy / PyTorch's best way. bf16 has no row of Convoy's own: its best "
           "arithmetic stands there.", "",
           "| network | batch | task | math | Convoy | MiB | PyTorch | its best way | MiB | ratio |", "|---|---|---|---|---|---|---|---|---|---|"]
    failed, detail = [], []
    for (network, batch, task), some in by(rows, "network", "batch", "task").items():
        ours = by([r for r in some if r["side"] == "convoy" and r.get("img_s")], "math")
        best = max((r for r in ours.values()), key=middle, default=[])
        for math in MATHS:
            theirs = [r for r in some if r["side"] == "torch" and r["math"] == math]
            mine = ours.get((math,), [])
            stands = "" if mine or not best or math != "bf16" else f" ({best[0]['math']})"
            shown = mine or (best if math == "bf16" else [])
            if not theirs and not mine:
                continue
            way, rates = best_way(theirs)
            ratio = f"**{middle(shown) / middle(rates):.2f}**" if shown and rates else "–"
            out.append(f"| {network} | {batch} | {task} | {math} | {rate(shown)}{stands} | {mib(shown)} | {rate(rates)} | {' '.join(way) if way else '–'} | "
                       f"{mib(rates)} | {ratio} |")
            ways = by([r for r in theirs if r.get("img_s")], "mode", "layout")
            if ways:
                detail.append(f"- {network} {batch} {task} {math}: " + ", ".join(f"{m} {l} {middle(r):,.0f}" for (m, l), r in sorted(ways.items())))
            failed += [f"- {network} {batch} {task} {math} {r['mode']} {r['layout']}: {r['failed']}" for r in theirs if r.get("failed")]
    return out + ["", "All ways of PyTorch:", "", *detail] + (["", "Without a rate:", "", *dict.fromkeys(failed)] if failed else [])
