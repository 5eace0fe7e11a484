#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the table of a card (operations_h200.csv) as `convoy bench ops --json` has it: make_measured.py TABLE.csv > FILE.json

    tests/data/make_measured.py tests/data/operations_h200.csv > h200.json
    convoy bench plan --as h200 --model resnet18 --batch 256 --measured h200.json
prints the constants of src/cl/devices/cards.c."""
import csv
import json
import sys


def measured(path):
    """Two devices: the rows in float32, and those with +tf32 behind the algorithm."""
    with open(path, encoding="utf-8") as f:
        lines = f.readlines()
    peaks = json.loads(next(line for line in lines if line.startswith("# peaks: ")).removeprefix("# peaks: "))
    devices = {math: {"device": "NVIDIA H200", "math": math, "peaks": peaks, "rows": []} for math in ("fp32", "tf32")}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        algorithm, _, math = row["algorithm"].partition("+")
        ms, gbs = float(row["ms"]), float(row["gbs"])
        devices[math or "fp32"]["rows"].append({
            "operation": row["operation"], "pass": row["pass"], "shape": row["shape"], "count": int(row["count"]), "algorithm": algorithm,
            "tile": "-", "chosen": row["chosen"] == "1", "ms": ms, "bytes": ms * gbs * 1e6})
    return {"word": "ops", "devices": list(devices.values())}


if __name__ == "__main__":
    json.dump(measured(sys.argv[1]), sys.stdout, indent=1)
