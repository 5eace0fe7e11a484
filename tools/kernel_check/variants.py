# SPDX-License-Identifier: MIT
"""tests/data/kernel_variants.txt: the variants that the program can choose, one per line, and the excuses from rules."""
import re
from typing import NamedTuple

from .rules import RULES
from .source import kernel_files
from .targets import GPUS, TARGETS


class Row(NamedTuple):
    """`hot`: all kernels of it (True), none (False) or those with these names; `only`: the targets that it is for"""
    file: str
    kind: str
    hot: object
    only: tuple
    defines: tuple

    def is_hot(self, kernel):
        return self.hot is True or (self.hot is not False and kernel in self.hot)


class Excuse(NamedTuple):
    """A kernel that breaks a rule on these targets, in rows with these defines, for a reason."""
    line: int
    file: str
    kernel: str
    targets: tuple
    rule: str
    defines: tuple
    reason: str

    def covers(self, row, target):
        return row.file == self.file and target in self.targets and set(self.defines) <= set(row.defines)


def read_targets(text):
    """"sm_80,sm_90": these; "-pvc": all but this. None if there is one that is unknown."""
    if not text:
        return tuple(GPUS)
    names = text.split(",")
    left_out = {name[1:] for name in names if name.startswith("-")}
    if left_out and len(left_out) == len(names) and left_out <= set(GPUS):
        return tuple(name for name in GPUS if name not in left_out)
    return tuple(name for name in GPUS if name in names) if set(names) <= set(GPUS) else None


def read_row(words):
    """A Row, or what is wrong with it."""
    file, kind, defines = words[0], (words + [""])[1], words[2:]
    kind, _, only = kind.partition("@")
    if not re.fullmatch(r"hot(:\w+(,\w+)*)?|cold|cpu", kind):
        return f"'{kind}' is to be hot, hot:KERNEL,…, cold or cpu"
    if any(not re.fullmatch(r"[A-Za-z_]\w*=\S+", d) for d in defines):
        return f"defines are to be NAME=VALUE: {' '.join(defines)}"
    targets = read_targets(only)
    if targets is None or (only and kind == "cpu"):
        return f"'@{only}' is to name targets, or those that are left out with a - each, behind hot or cold: {', '.join(GPUS)}"
    hot = set(kind.split(":")[1].split(",")) if ":" in kind else kind == "hot"
    return Row(file, kind, frozenset(hot) if isinstance(hot, set) else hot, ("x86-64",) if kind == "cpu" else targets, tuple(defines))


def read_excuse(number, words, reason):
    """An Excuse, or what is wrong with it."""
    if len(words) < 3:
        return "an excuse is to be !FILE:KERNEL TARGET,… RULE NAME=VALUE… # reason"
    file, _, kernel = words[0][1:].partition(":")
    targets = read_targets(words[1])
    if not kernel or targets is None or words[2] not in RULES:
        return f"an excuse is to be !FILE:KERNEL TARGET,… RULE NAME=VALUE… # reason, with a rule of {', '.join(RULES)}, a target of {', '.join(GPUS)}"
    if not reason:
        return "an excuse is to give its reason behind #"
    return Excuse(number, file, kernel, targets, words[2], tuple(words[3:]), reason)


def read(path, cl_dir):
    """Rows, excuses, and sentences about lines that are wrong."""
    rows, excuses, faults = [], [], []
    files = kernel_files(cl_dir)
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            text, _, reason = line.partition("#")
            words = text.split()
            if not words:
                continue
            made = read_excuse(number, words, reason.strip()) if words[0].startswith("!") else read_row(words)
            if not isinstance(made, str) and made.file not in files:
                made = f"there is no cl/{made.file}.cl"
            if isinstance(made, str):
                faults.append(f"{path}:{number}: {made}")
            else:
                (excuses if isinstance(made, Excuse) else rows).append(made)
    return rows, excuses, faults


def alone(rows):
    """The jobs that compile each file with the defaults of its parameters."""
    jobs = []
    for file in sorted({row.file for row in rows}):
        shapes = {row.kind == "cpu" for row in rows if row.file == file}
        jobs.append((Row(file, "cold", False, tuple(GPUS), ()), "x86-64" if shapes == {True} else "gfx1100"))
    return jobs


def jobs(rows, full):
    """Pairs of row and target. Without `full`, rows that are hot are compiled for DEFAULT_HOT, of each vendor's pair one row for the one and the
    next row for the other; the others for DEFAULT_COLD; a row that is for none of them is compiled for the first that it is for."""
    pairs, taken = [], dict.fromkeys(DEFAULT_HOT, 0)
    for row in rows:
        chosen = row.only
        if not full and row.hot:
            chosen = []
            for names in DEFAULT_HOT:
                can = [name for name in names if name in row.only]
                if can:
                    chosen.append(can[taken[names] % len(can)])
                    taken[names] += 1
        elif not full:
            chosen = [name for name in row.only if name in DEFAULT_COLD]
        pairs += [(row, name) for name in chosen or row.only[:1]]
    return pairs + [pair for pair in alone(rows) if not any(row.file == pair[0].file and not row.defines and name == pair[1] for row, name in pairs)]


# Of each vendor those that refused most: Arc reports no memory, pvc wants 16 items, sm_90 and gfx1030 are short of registers.
DEFAULT_HOT = (("acm-g10", "pvc"), ("gfx1030", "gfx90a"), ("sm_90", "sm_75"), ("x86-64",))
DEFAULT_COLD = ("gfx1030", "x86-64")
assert {name for names in DEFAULT_HOT for name in names} | set(DEFAULT_COLD) <= set(TARGETS)
