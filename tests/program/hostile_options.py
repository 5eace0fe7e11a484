#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/program/hostile.py: the options of every verb, read from the program's help, and right, edge and wrong values for them."""

import collections
import re
import subprocess

# ---- the options, from the help -------------------------------------------------------------------------------------

Option = collections.namedtuple("Option", "name letter word optional note kind choices")
ROW = re.compile(r"^ {1,8}(?:-(\w), )?--([\w-]+)(?: (\[?)([A-Z][^\s\]]*)\]?)?(?:\s{2,}.*)?$")


def kind_of(name, word, note):
    """What values an option takes: its placeholder and what stands in the brackets behind its help tell."""
    before = note.split(";")[0]
    if not word:
        return "flag", []
    if name == "data":
        return "data", []
    if "file" in before.split(",")[0]:
        return ("input" if name in ("weights", "init-from", "baseline") else "output"), []
    if before.startswith("folder"):
        return ("folder" if name.startswith("checkpoint") else "input_folder"), []
    if word == "SEL":
        return "selector", []
    if word in ("N", "K"):
        return "whole", []
    if word in ("X", "S", "P"):
        return "real", []
    if word == "N|Ne":
        return "every", []
    if word.endswith("...") or word == "LIST":
        return "list", [c for c in re.split(r", | or ", before) if re.fullmatch(r"[a-z0-9]+", c)]
    return "choice", [c for c in re.split(r", | or ", before) if re.fullmatch(r"[a-z0-9]+", c)]


def read_options(help_text):
    """The rows of one verb's help."""
    rows, row, text = [], None, ""
    for line in help_text.splitlines() + ["end"]:
        found = ROW.match(line)
        if row and (found or not line.startswith(" " * 20)):
            note = (re.findall(r"\[([^\[\]]*)\]\s*$", text) or [""])[0]
            letter, name, optional, word = row
            rows.append(Option(name, letter, word, bool(optional), note, *kind_of(name, word, note)))
            row = None
        if found:
            row, text = found.groups(), line
        elif row:
            text += " " + line.strip()
    return rows


def read_verbs(convoy):
    """{("train",): [Option…], ("bench", "peak"): […], …}"""
    show = lambda *words: subprocess.run([convoy, *words], capture_output=True, text=True, timeout=60).stdout
    names = lambda text: re.findall(r"^  ([a-z]\w*)  +\S", text, re.M)
    verbs = {}
    for verb in names(show("--help")):
        rows = read_options(show(verb, "--help"))
        for more in ("--help-all", "--help=all"):  # where the help has two parts
            if more in show(verb, "--help"):
                rows = read_options(show(verb, more))
        words = [] if rows else names(show(verb, "--help"))
        if rows:
            verbs[(verb,)] = rows
        for word in words:
            verbs[(verb, word)] = read_options(show(verb, word, "--help"))
    return verbs


# ---- values ---------------------------------------------------------------------------------------------------------

# Refused by every option that takes a number.
NO_NUMBER = [
    "", "-1", "nan", "-nan", "inf", "0x10", "1e400", "9" * 40, " 1", "1 ", "1,,5", "٣", "1e", "--", "one", "1;2", "1\n", "+", "1" * 4000,
]
NO_WORD = ["", "nonsense", "ÄÖ", " even", "a" * 5000, "%s%n", "-1", ",", "auto,", "\n"]
EDGES = {
    "whole": ["0", "1", "2", "007", "2147483647", "2147483648", "4294967297", "9223372036854775807"],
    "real": ["0", "1", "1e-38", "1e-300", "1e6", "1e30", ".5", "1."],
    "every": ["0", "1", "1e", "2147483647e", "99999999"],
}
# Where any value would take long, or where only few are right. Anything else: by kind.
SMALL = {
    "model": ["lenet"], "batch": ["8", "16", "32", "64"], "epochs": ["1", "2"], "max-steps": ["1", "2", "3"], "lr": ["0.05", "1e-3"],
    "classes": ["0", "10"], "seed": ["0", "7", "9200000000000000000"], "momentum": ["0.9", "0"], "weight-decay": ["1e-4"],
    "keep": ["1", "3"], "device-timeout": ["60", "0", "30.5"], "run-ahead": ["0", "1", "2"], "staleness": ["0", "1"],
    "bucket-mib": ["auto", "0.01", "1", "4096"], "tune": ["cached", "off"], "math": ["fp32", "tf32"],
    "conv-algo": ["auto", "winograd2,direct"], "bn": ["device", "sync", "ghost:8"],
    "lr-schedule": ["const", "cosine", "linear", "step:1,0.5", "step:1e,2"], "warmup": ["0", "2", "1e"],
    "checkpoint-every": ["1", "2", "1e"], "split": ["even", "1", "1,1", "3,1"], "shares": ["32", "16,16", "24,8"],
    "verify-every": ["1", "2"], "trace-events": ["1", "100", "1000000"], "time": ["0.01"], "budget": ["0.2", "1s"], "steps": ["1"],
    "rounds": ["1"], "extrapolate": ["2", "16"], "buckets": ["1", "0.25,1"], "shape": ["n2h8w8c4k8r3s1p1"], "op": ["relu", "update"],
    "pass": ["fwd"], "algo": ["direct"], "tiles": ["default"], "max-slowdown": ["1000%"], "init": ["d2l", "he", "xavier", "torch"], "optimizer": ["sgd", "adam", "adamw"],
    "betas": ["0.9,0.999", "0,0.5"], "eps": ["1e-8", "0.1"], "label-smoothing": ["0", "0.1", "1"], "clip-norm": ["0.5", "1e30"],
    "init-skip": ["9", "9.*"], "freeze": ["0", "0,3", "[03]"], "lr-mult": ["9=10", "*.bias=0,3=2"],
    "size": ["28", "28x28", "32"], "png16": ["clip", "scale"], "exif": ["ignore", "rotate"], "val-split": ["0.1", "0.5"], "exchange": ["fp32", "bf16"], "on-device-loss": ["continue", "stop"],
}
NO_EDGES = {"time", "budget", "steps", "rounds", "model", "classes"}  # would run for hours
COSTLY = {
    ("selftest",), ("bench", "peak"), ("bench", "ops"), ("bench", "conv"), ("bench", "train"), ("bench", "exchange"),
    ("bench", "scaling"),
}
SELECTORS = [
    "nonsense", "99:0", "0:99", "0:", ":", "0:0,", "0:0*0", "0:0*-1", "0:0*99999999999", "0:0/0", "0:0/999+999", "0:0/=0", "0:0,0:0",
    "auto*", "*2",
]
PATHS_OUT = [
    "out", "o u t", "ö", "./-x", "there", "link", "newline\nname", "n" * 240, "sub/x", "missing/x", "folder", "fifo", "dangling", "loop",
    "plain/x", "newdir/", "socket", "/dev/full", "/dev/null", "/proc/x", "", "n" * 300, "-", "data/train-labels-idx1-ubyte", "weights.st",
    "w" * 5000,
]
PATHS_OUT_GOOD = ["out", "o u t", "ö", "./-x", "there", "link", "newline\nname"]
PATHS_IN_BAD = [
    "missing", "folder", "fifo", "plain", "empty", "dangling", "loop", "socket", "/dev/full", "/dev/null", "/dev/zero", "",
    "/proc/self/mem", "n" * 300, "newline\nname",
]
DATA_BAD = [
    "synthetic:0", "synthetic:-5", "synthetic:", "synthetic:64:", "synthetic:64:28x28", "synthetic:1:32768x32768x1", "synthetic:64:1x1x1",
    "synthetic:64:0x28x1", "synthetic:99999999999999999999", "synthetic:1:28x28x999999", "SYNTHETIC", "fifo", "plain", "folder",
    "missing", "", "/dev/zero",
]


class Values:
    """Draws values; what it draws wrong on purpose stands in `wrong` as (option, value)."""

    def __init__(self, rng, stage):
        self.rng, self.stage, self.wrong = rng, stage, []

    def right(self, option):
        pick = self.rng.choice
        if option.name in SMALL:
            return pick(SMALL[option.name])
        return {
            "whole": lambda: pick(["1", "2"]), "real": lambda: pick(["0", "0.5"]), "every": lambda: pick(["1", "1e"]),
            "output": lambda: option.name + "." + pick(PATHS_OUT_GOOD).replace("./-x", "x"), "folder": lambda: option.name + ".d",
            "data": lambda: pick(["synthetic:64", "synthetic:64:28x28x1", "data"]),
            "input": lambda: "base.json" if option.name == "baseline" else "weights.st", "input_folder": lambda: "data",
            "selector": lambda: pick(self.stage.teams), "list": lambda: pick(option.choices or ["1"]),
            "choice": lambda: pick(option.choices or ["x"]),
        }[option.kind]()

    def edge(self, option):
        """Right or wrong: the program decides, and is to say why."""
        pick = self.rng.choice
        if option.kind in EDGES and option.name not in NO_EDGES:
            return pick(EDGES[option.kind])
        return {
            "output": lambda: pick(PATHS_OUT), "folder": lambda: pick(PATHS_OUT), "data": lambda: pick(DATA_BAD),
            "input": lambda: pick(PATHS_IN_BAD), "input_folder": lambda: pick(PATHS_IN_BAD), "selector": lambda: pick(SELECTORS),
        }.get(option.kind, lambda: self.right(option))()

    def refused(self, option):
        """A value that is wrong use for certain; None if there is none of this kind."""
        pool = {
            "whole": NO_NUMBER + ["1.5", "1e3"], "real": NO_NUMBER, "every": NO_NUMBER + ["1.5", "e"], "list": NO_WORD, "choice": NO_WORD,
            "output": [""], "input": [""], "folder": [""], "input_folder": [""], "selector": ["", "nonsense"], "data": [""],
        }.get(option.kind)
        if not pool or option.name == "shape":
            return None
        value = self.rng.choice(pool)
        self.wrong.append((option, value))
        return value

    def words(self, option, value):
        if option.kind == "flag":
            return ["-" + option.letter if option.letter and self.rng.random() < 0.5 else "--" + option.name]
        if option.optional or value.startswith("-") or self.rng.random() < 0.3:
            return [f"--{option.name}={value}"]
        return ["-" + option.letter if option.letter and self.rng.random() < 0.5 else "--" + option.name, value]
