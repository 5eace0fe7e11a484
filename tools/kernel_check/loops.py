# SPDX-License-Identifier: MIT
"""Innermost loops in assembly: a loop reaches from a label to the last branch back to it, and is innermost if it holds no other loop."""
import re


def innermost(lines, label, branch):
    """The lines of each innermost loop. `label` and `branch` are regular expressions, whose first group is the label."""
    labels, ends = {}, {}
    for number, line in enumerate(lines):
        if m := re.match(label, line):
            labels[m.group(1)] = number
        elif (m := re.search(branch, line)) and m.group(1) in labels:
            ends[labels[m.group(1)]] = number
    loops = list(ends.items())
    return [lines[begin:end + 1] for begin, end in loops
            if not any((b, e) != (begin, end) and begin <= b and e <= end for b, e in loops)]


def fmas_of(body, fma):
    return sum(weight * len(re.findall(text, line)) for line in body for text, weight in fma)


def count_own(bodies, fma, own):
    """Accesses to memory of the item's own in the innermost loop with the most multiply-adds, in all of them where none has any."""
    most = max((fmas_of(body, fma) for body in bodies), default=0)
    return sum(bool(re.search(own, line)) for body in bodies if fmas_of(body, fma) == most for line in body)


def count(bodies, fma, load):
    """(multiply-adds, loads) of the body with the most multiply-adds among those with loads; None if none has any. `fma`: pairs of a regular
    expression and what one such instruction counts."""
    best = None
    for body in bodies:
        fmas = fmas_of(body, fma)
        loads = sum(bool(re.search(load, line)) for line in body)
        if loads and (best is None or fmas > best[0]):
            best = (fmas, loads)
    return best
