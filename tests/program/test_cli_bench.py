#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it: test_cli_bench.py CONVOY GROUP   (groups: the functions named test_<group> below)

convoy bench and the tools that use it. Exit 77 where a group needs a device and there is none."""

import json
import os
import re
import sys
import time

from cli import (call, check, CONVOY, DEVICE, device_times, expect, first_device, LAYER, NO_DEVICE, read, read_json, ROOT,
                  main, with_layer, write, wrong_kernels)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data"))
from make_measured import measured

FAST = ["--time", "0.02", "--devices", DEVICE, "--quiet"]


def bench(word, *args, code=0, **kw):
    """The JSON of convoy bench; stdout holds nothing else."""
    done = expect(code, "bench", word, *FAST, *args, "--json", **kw)
    result = read_json(done.stdout)
    check(result["word"] == word and result["version"] and len(result["devices"]) >= 1, "frame of the JSON", done)
    return result


def check_peaks(device, names):
    for name in names.split():
        check(device["peaks"].get(name, 0) > 0, f"peak {name} of {device['device']}: {device['peaks']}")


def test_bench(at):
    """What can be asked, and the fields of the answers."""
    for device in bench("peak")["devices"]:
        check_peaks(device, "fma_gflops read_gbs write_gbs copy_gbs to_device_gbs to_host_gbs launch_us round_trip_us open_ms close_ms")
        p = device["peaks"]
        check(p["launch_us"] <= p["round_trip_us"] * 1.5, f"a launch costs less than a launch and its end: {p}")
        check(p["open_ms"] < 1e4 and p["close_ms"] < 1e4, f"opening takes milliseconds: {p}")
    table = expect(0, "bench", "peak", *FAST, out=("GFLOP/s", "copy", "open   close\n")).stdout
    check(max(map(len, table.splitlines())) <= 120, f"table of 120 columns: {table}")
    expect(1 if DEVICE == "auto" else 2, "bench", "peak", *FAST, env=NO_DEVICE, err="evice")


def check_math(devices, tf32, done):
    """Each device computes in what was asked for, or has said that it cannot."""
    for device in devices:
        math = "tf32" if tf32 and f"{device['device']}: no TF32 here" not in done.stderr else "fp32"
        check(device["math"] == math, f"products of {device['device']} use {math}", done)


def plan(card, batch, *more):
    done = expect(0, "bench", "plan", "--as", card, "--batch", str(batch), *more, "--json", env=NO_DEVICE)
    result = json.loads(done.stdout)
    check(result["word"] == "plan" and result["version"] and result["batch"] == batch, "frame of the JSON", done)
    return result


OFF_MOST = 0.01  # a choice of the planner beside the fastest algorithm, measured


def check_measured_plan(at):
    """The constants of the H200 are what its measured table gives, and the plan with them takes what is fastest there, or winograd4_fused, which
    has not been measured and is expected to be faster than all that have, or thin_simt, likewise."""
    path, table = at("h200.json"), os.path.join(ROOT, "tests", "data", "operations_h200.csv")
    result = measured(table)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f)
    known, fitted = plan("h200", 256), plan("h200", 256, "--measured", path)
    check(fitted["constants"] == known["constants"], f"constants of cards.c: {known['constants']}, fitted: {fitted['constants']}")
    fit = fitted["fit"]
    check(fit["rows"] >= 100 and fit["rows"] + fit["left_out"] == sum(len(d["rows"]) for d in result["devices"]), f"rows that were used: {fit}")
    check(fit["middle_error"] <= 0.1, f"expected times beside measured ones: {fit}")
    times = {}
    for row in result["devices"][0]["rows"]:
        if row["operation"] == "conv2d":
            times.setdefault((row["shape"].partition("f")[0], row["pass"]), {})[row["algorithm"]] = row["ms"]
    names = {"forward": "forward", "backward": "backward_weights", "backward_data": "backward_data"}
    taken, best, seen, estimated, thin = 0, 0, set(), set(), set()
    for row in known["passes"]:
        if row["operation"] != "conv2d":
            continue
        key = row["shape"].partition("f")[0], names[row["pass"]]
        least = min(times[key].values())
        seen.add(key)
        if row["algorithm"] == "thin_simt":
            check(row["expected_ms"] < 0.5 * least, f"{key}: thin_simt is expected to take {row['expected_ms']} ms, measured best {least}")
            thin.add(key)
            continue
        if row["algorithm"] == "winograd4_fused":
            check(row["expected_ms"] < 0.9 * least, f"{key}: winograd4_fused is expected to take {row['expected_ms']} ms, measured best {least}")
            estimated.add(key)
            continue
        mine = times[key][row["algorithm"]]
        check(mine <= (1 + OFF_MOST) * least, f"{key}: {row['algorithm']} takes {mine} ms, measured best {least}")
        taken, best = taken + mine, best + least
    check(thin == {("n256h28w28c1k64r3s1p1", "backward_weights")}, f"layers that thin_simt takes: {thin}")
    check(len(estimated) == 2, f"layers that winograd4_fused takes: {estimated}")
    check(seen == set(times) and taken <= (1 + OFF_MOST) * best, f"all measured layers, {taken} ms, best {best}")
    # two gradients of x of which estimates have the order wrong
    ways = {name: {(row["shape"].partition("f")[0], row["pass"]): row for row in plan("h200", 256, "--conv-algo", name + ",direct")["passes"]
                   if row["operation"] == "conv2d"} for name in ("winograd4", "winograd2_fused")}
    for shape in ("n256h28w28c64k64r3s1p1", "n256h14w14c128k128r3s1p1"):
        four, fused = (ways[name][shape, "backward_data"] for name in ("winograd4", "winograd2_fused"))
        check(four["algorithm"] == "winograd4_simt" and fused["algorithm"] == "winograd2_fused", f"algorithms of {shape}")
        check(four["expected_ms"] < fused["expected_ms"], f"{shape}: winograd4 {four['expected_ms']}, fused {fused['expected_ms']}")
    for text, words in (("{}", "no row"), ("[", "line 1"), ('{"devices": [{"rows": [{"operation": "conv2d"}]}]}', "no row")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        expect(2, "bench", "plan", "--as", "h200", "--measured", path, env=NO_DEVICE, err=words)
    expect(1, "bench", "plan", "--as", "h200", "--measured", path + ".not", env=NO_DEVICE, err="h200.json.not")


def test_step_plan(at):
    """A training step on cards that are not here: what the planner does with it."""
    for card in "h200 h100 a100 rtx3060 rx6800 rx7900xtx arc-a770".split():
        one = plan(card, 32)
        check(one == plan(card, 32), f"the same plan again: {card}")
        steps, passes = one["steps"], one["passes"]
        check(len(steps) == one["launches"] == sum(row["launches"] for row in passes), f"launches of {card}: {one['launches']}")
        total = sum(row["expected_ms"] for row in steps)
        check(abs(total - one["expected_ms"]) < 1e-9 * total and all(row["expected_ms"] > 0 for row in steps), f"times of {card}: {total}")
        for name in "conv2d linear".split():
            mine = sum(row["launches"] for row in passes if row["operation"] == name)
            check(mine == one["conv_launches" if name == "conv2d" else "linear_launches"], f"launches of {name} on {card}: {mine}")
    for batch, most in ((256, 420), (32, 300)):
        h100 = plan("h100", batch)
        check(h100["launches"] <= most, f"launches of a step with {batch} images: {h100['launches']}")
        convs = [row for row in h100["passes"] if row["operation"] == "conv2d"]
        check(min(row["expected_ms"] for row in h100["steps"]) >= 0.003, "each launch costs 3 us at least")
        check(h100["conv_launches"] <= 200, f"launches of convolutions: {h100['conv_launches']}")
        # launches that add up parts are worth their time
        parts = [row for row in convs if row["parts"] > 1]
        check(parts and all(row["expected_ms"] < row["whole_ms"] for row in parts), f"parts that take longer than whole sums: {parts}")
        check(all(row["expected_ms"] <= row["whole_ms"] * (1 + 1e-9) for row in convs if row["filter"] == [1, 1]), "1x1: the shorter of whole and cut")
        # the first layer's sums are 9 products deep: there is nothing to cut
        fills = [(row["fill"], row["layer"], row["pass"]) for row in convs if row["filter"] == [3, 3] and (row["layer"], row["pass"]) != ("conv2d '0'", "forward")]
        check(min(fills)[0] >= 0.7, f"3x3 convolutions fill the card: {min(fills)}")
    check_measured_plan(at)
    for more in ([], ["--launches"]):
        table = expect(0, "bench", "plan", "--as", "h100", *more, env=NO_DEVICE, out=("launches a step", "groups")).stdout
        check(max(map(len, table.splitlines())) <= 120, f"table of 120 columns: {table}")


ROW = "operation pass shape count algorithm tile chosen tuned samples ms ms_low ms_high wall_ms event_ms flops bytes gflops gbs"
ROW = set((ROW + " of_peak of_roofline bound error error_bound").split())


PASSES = {"forward", "backward_data", "backward_weights"}


def check_row(row):
    check(set(row) - {"change"} == ROW, f"fields of a row: {sorted(row)}")
    check(0 < row["ms_low"] <= row["ms"] <= row["ms_high"] and row["wall_ms"] > 0 and row["samples"] > 0, f"times: {row}")
    check(0 <= row["error"] <= (row["error_bound"] or 1e-5), f"error: {row}")
    # the direct count, and figures that follow from others
    if row["operation"] == "conv2d":
        n, h, w, c, k, r, s, p = (int(v) for v in re.fullmatch(r"n(\d+)h(\d+)w(\d+)c(\d+)k(\d+)r(\d+)s(\d+)p(\d+)", row["shape"]).groups())
        out = ((h + 2 * p - r) // s + 1) * ((w + 2 * p - r) // s + 1)
        check(row["flops"] == 2 * n * out * k * r * r * c, f"operations: {row}")
        check(row["bytes"] == 4 * (n * h * w * c + n * out * k + r * r * c * k), f"bytes: {row}")
    if row["operation"] == "convpool":  # the mask has a byte for each value behind the pool
        n, h, w, c, k, r, _, p = (int(v) for v in re.fullmatch(r"n(\d+)h(\d+)w(\d+)c(\d+)k(\d+)r(\d+)s(\d+)p(\d+)", row["shape"]).groups())
        out = (h + 2 * p - r + 1) * (w + 2 * p - r + 1)
        x, y, weights = 4 * n * h * w * c, 5 * n * ((h + 2 * p - r + 1) // 2) * ((w + 2 * p - r + 1) // 2) * k, 4 * r * r * c * k
        check(row["flops"] == 2 * n * out * k * r * r * c, f"operations: {row}")
        check(row["bytes"] == x + y + weights, f"bytes: {row}")
    check(abs(row["gbs"] * row["ms"] * 1e6 / row["bytes"] - 1) < 1e-6, f"gbs: {row}")
    check(abs(row["gflops"] * row["ms"] * 1e6 - row["flops"]) <= 1e-6 * row["flops"], f"gflops: {row}")


def test_bench_ops(at):
    """Rows of convolutions and of all operations; the comparison with an older file."""
    shape = ["--shape", "n3h9w7c20k33r3s1p1"]
    device = bench("conv", *shape)["devices"][0]
    check_peaks(device, "fma_gflops read_gbs write_gbs copy_gbs")
    rows = device["rows"]
    for row in rows:
        check_row(row)
    for name in PASSES:
        mine = [row for row in rows if row["pass"] == name]
        check(sum(row["chosen"] for row in mine) == 1, f"one row of {name} is what auto takes: {mine}")
        check(sum(row["algorithm"].startswith(("direct", "columns", "panels")) for row in mine) == 1, f"{name} by direct, once: {mine}")
    one = bench("conv", *shape, "--pass", "bwd-data", "--algo", "direct")["devices"][0]["rows"]
    check([row["pass"] for row in one] == ["backward_data"], f"one pass, one algorithm: {one}")
    automatic = bench("conv", *shape, "--algo", "auto", "--pass", "fwd")["devices"][0]["rows"]
    check(len(automatic) == 1 and automatic[0]["chosen"], f"what auto takes: {automatic}")
    check(device["math"] == "fp32", f"what products use: {device['math']}")
    quick = [*shape, "--pass", "fwd", "--algo", "auto", "--math", "tf32"]
    emulated = {"CVY_FORCE_MATRIX": "nvidia-emulated", "CVY_FORCE_SHAPE": "simt"}
    for here in ({}, emulated):  # with what matrix units there are, and with what stands for them
        done = expect(0, "bench", "conv", *FAST, *quick, "--json", env=here)
        check_math(json.loads(done.stdout)["devices"], True, done)
    more = bench("conv", *shape, "--tiles", "all", "--algo", "direct")["devices"][0]["rows"]
    check({row["pass"] for row in more} == PASSES, "all tiles of direct")

    net = bench("ops", "--model", "lenet", "--batch", "4", "--algo", "auto")["devices"][0]["rows"]
    for row in net:
        check_row(row)
    there = {row["operation"] for row in net}
    fused = "convpool" in there  # CPUs do convolution, ReLU and pool in one
    check(there == {"relu", "linear", "softmax_xent", "update", "norm", "gather", *(("convpool",) if fused else ("conv2d", "pool2d"))},
          f"operations of lenet: {there}")
    one = bench("ops", "--model", "lenet", "--batch", "4", "--op", "convpool")["devices"][0]["rows"]
    first, second = "n4h28w28c1k20r3s1p0", "n4h13w13c20k50r5s1p0"
    want = [(first, "forward"), (first, "backward_weights"), (second, "forward"), (second, "backward_data"), (second, "backward_weights")]
    check([(row["shape"], row["pass"]) for row in one] == (want if fused else []), f"--op convpool: {one}")
    for model, op in (("resnet18", "convpool"), ("lenet", "add")):
        expect(0, "bench", "ops", *FAST, "--model", model, "--op", op, err=f"no {op} in {model}")
    for more in (["--op", "conv2d", "--algo", "auto"], ["--op", "pool2d"], ["--algo", "direct", "--pass", "fwd", "--op", "conv2d"]):
        rows = bench("ops", "--model", "lenet", "--batch", "4", *more)["devices"][0]["rows"]
        check({row["operation"] for row in rows} == {more[1] if more[0] == "--op" else "conv2d"}, f"{more} by themselves: {rows}")
    norm = bench("ops", "--op", "batchnorm", "--batch", "2")["devices"][0]["rows"]
    check({row["operation"] for row in norm} == {"batchnorm"}, "--op batchnorm")
    check({row["pass"] for row in norm} == {"inference", "forward", "backward"}, "passes of batchnorm")
    check(sum(row["count"] for row in norm if row["pass"] == "forward") == 17, f"resnet18 has 17 batchnorms: {norm}")
    for batch, bound in (("16", None), ("2", 1)):  # the last images are of one pixel
        small = bench("ops", "--model", "resnet34", "--op", "batchnorm", "--batch", batch)["devices"][0]["rows"]
        check([row["error_bound"] for row in small if "h1w1" in row["shape"] and row["pass"] == "backward"][0] == bound, f"batch {batch}: {small}")
    conv = bench("conv", "--batch", "1", "--pass", "bwd-data", "--algo", "auto")["devices"][0]["rows"]
    check(sum(row["count"] for row in conv if row["chosen"]) == 19, "20 convolutions; the first one has no data gradient")
    table = expect(0, "bench", "ops", *FAST, "--model", "lenet", "--batch", "2", "--algo", "auto", out=("together", "% roof", "x peak")).stdout
    check(max(map(len, table.splitlines())) <= 120, f"table of 120 columns: {table}")

    old = at("old.json")
    command = ["bench", "conv", *FAST, *shape, "--pass", "fwd", "--algo", "direct"]
    expect(0, *command, "--json", old)
    compare = ["--baseline", old, "--max-slowdown"]
    expect(0, *command, *compare, "1000%", out="vs old")
    faster = read_json(read(old))
    for row in faster["devices"][0]["rows"]:
        row["ms"] /= 1000
    write(old, json.dumps(faster))
    expect(1, *command, *compare, "50%", err=("slower by", "n3h9w7c20k33r3s1p1 forward ", "1 of 1 rows"))
    faster["devices"][0]["rows"][0]["shape"] = "other"
    write(old, json.dumps(faster))
    expect(2, *command, *compare, "50%", err="none of the measured rows")
    expect(1, *command, "--baseline", at("none"), err="none")
    expect(0, *command, "--dump-build", err=("program conv2d_direct", "-cl-std=CL1.2"))
    # a wrong kernel: its error is in the row, and in words
    broken = wrong_kernels(at("cl"), ("eltwise.cl", r"y\[i\] = cvy_relu\(x\[i\]\);", "y[i] = cvy_relu(1.01f * x[i]);"),
                           ("conv2d/convpool.clh", r"bit\(c, 4\.0f\)", "bit(b, 4.0f)"))
    relu = ["--model", "lenet", "--op", "relu", "--batch", "2"]
    rows = bench("ops", *relu, code=1, env=broken)["devices"][0]["rows"]
    check(all((row["error"] > 5e-3) == (row["pass"] == "forward") for row in rows), f"errors of a wrong relu: {rows}")
    expect(1, "bench", "ops", *FAST, *relu, env=broken, err=("relu", "forward", "is wrong"))
    if fused:  # a wrong mask is forward's mistake
        masked = ["--model", "lenet", "--op", "convpool", "--batch", "2", "--pass", "fwd"]
        rows = bench("ops", *masked, code=1, env=broken, timeout=280)["devices"][0]["rows"]
        check(len(rows) == 2 and all(row["error"] > 1e-2 for row in rows), f"errors of a wrong mask: {rows}")


TRAIN = "version word devices model batch inference recompute steps img_s img_s_best step_ms step_ms_low step_ms_high gflops peak_gflops"
TRAIN = set((TRAIN + " input fraction_of_peak peak_mib device_mib process_mib profiled_step_ms conv_choices").split())


def bench_train(*args, **kw):
    done = expect(0, "bench", "train", "--devices", DEVICE, "--quiet", "--model", "lenet", *args, "--json", **kw)
    result = read_json(done.stdout)
    check(set(result) == TRAIN, f"fields: {sorted(set(result) ^ TRAIN)}", done)
    check(abs(result["img_s"] * result["step_ms"] / 1e3 / result["batch"] - 1) < 1e-6, "img_s", done)
    check(abs(result["gflops"] / result["peak_gflops"] / result["fraction_of_peak"] - 1) < 1e-6, "fraction", done)
    check(result["img_s_best"] >= result["img_s"] and result["peak_mib"] > 5, "best step, memory", done)
    check_math(result["devices"], "tf32" in args, done)
    return result


def test_bench_train(at):
    """A step's parts add up to it; the exchange alone."""
    # 3 % where the machine is quiet and the network is large; where it is not, other programs run between kernels
    mostly_kernels = lambda result: all(d["kernels_ms"] > 0.7 * result["profiled_step_ms"] for d in result["devices"])
    for _ in range(5):
        result = bench_train("--batch", "256", "--steps", "3")
        if mostly_kernels(result):
            break
    check(mostly_kernels(result), f"most of a step is kernels: {result}")
    check(abs(result["gflops"] / result["img_s"] / 0.01326 - 1) < 1e-3, "lenet has 13.26 MFLOP per trained image")
    for device in result["devices"]:
        families = {f["name"]: f["ms"] for f in device["families"]}
        fused = "convpool forward" in families  # CPUs do convolution, ReLU and pool in one
        for name in (*(f"{'convpool' if fused else 'conv2d'} {pass_}" for pass_ in ("forward", "backward_data", "backward_weights")),
                     *(() if fused else ("pool2d backward",)), "linear forward", "relu backward", "loss", "gather", "update"):
            check(families.get(name, 0) > 0, f"time of {name}: {families}")
        layers = {layer["name"]: layer for layer in device["layers"]}
        check(layers["conv2d '0'"]["backward_data_ms"] == 0, "nobody wants the data gradient of the first layer")
        check(all(layers[name][pass_] > 0 for name in ("conv2d '3'", "linear '7'", "linear '9'")
                  for pass_ in ("forward_ms", "backward_ms", "backward_data_ms")), f"times of layers: {layers}")
        kernels = device["kernels_ms"]
        outside = sum(families.get(name, 0) for name in ("loss", "gather", "update", "other"))
        check(abs(sum(families.values()) - kernels) < 1e-6 * kernels, "families add up to the kernels")
        check(abs(sum(v["ms"] for v in layers.values()) + outside - kernels) < 1e-6 * kernels, "layers add up to the kernels")
        check(abs(kernels + device["between_ms"] - result["profiled_step_ms"]) < 1e-6 * kernels, "and these to the step")
    result = bench_train("--batch", "32", "--steps", "1", "--inference", "--no-breakdown")
    check(result["inference"] and result["profiled_step_ms"] is None and "layers" not in result["devices"][0], "rate alone")
    check(abs(result["gflops"] / result["img_s"] / 0.0045007 - 1) < 1e-3, "forward of lenet is 4.5 MFLOP")
    result = bench_train("--batch", "32", "--steps", "1", "--conv-algo", "direct", "--no-breakdown")
    chosen = [algo for layers in result["conv_choices"] for layer in layers.values() for algo in layer if algo]
    check(chosen and all(str(algo).startswith("direct") for algo in chosen), f"--conv-algo direct: {result['conv_choices']}")
    bench_train("--batch", "32", "--steps", "1", "--no-breakdown", "--math", "tf32")
    result = bench_train("--batch", "32", "--steps", "1", "--input", "32x32x3", "--augment", "crop:4,flip,jitter:0.2,0.2,0.2,0.05")
    check(result["input"] == "32x32x3" and abs(result["gflops"] / result["img_s"] / 0.02106 - 1) < 1e-3, "larger images, in colour")
    table = expect(0, "bench", "train", "--devices", DEVICE, "--quiet", "--model", "lenet", "--steps", "1",
                   out=("img/s", "x the FMA peak", "between kernels", "conv2d '3'")).stdout
    check(max(map(len, table.splitlines())) <= 120, f"table of 120 columns: {table}")

    # more than one device could index, but each share fits: it is memory that ends it here
    done = expect(1, "bench", "train", "--devices", device_times(2), "--model", "resnet18", "--batch", "43000",
                  env={"CVY_MEMORY_LIMIT_MIB": "1"}, err="at a time need")
    check("2^31" not in done.stderr, "shares are what must fit", done)

    result = bench("exchange", "--model", "lenet", "--buckets", "0.125,64")
    check(result["gradient_bytes"] > 4 * 129068, "lenet's gradients")
    kinds = ["fp32", "bf16"]
    want = [(kind, n) for n in (-(-result["gradient_bytes"] // 131072), 1) for kind in kinds]
    check([(row["exchange"], row["buckets"]) for row in result["team"]] == want, f"{result['team']}")
    check(result["host_copy_gbs"] > 0 and all(row["update_gbs"] > 0 and row["update_ms"] > 0 for row in result["team"]), f"{result}")
    for device in result["devices"]:
        check([row["exchange"] for row in device["rows"]] == 2 * kinds and all(row["to_device_gbs"] > 0 for row in device["rows"]), f"{device}")
        check(all((row["pack_ms"] or 0) > 0 if row["exchange"] == "bf16" else row["pack_ms"] is None for row in device["rows"]), f"{device}")
    # what crosses lies in pinned memory, as in training: a driver takes other memory in small pieces, and blocks
    staged = bench("exchange", "--model", "lenet", "--buckets", "1", env={"CVY_FORCE_STAGING": "1", **with_layer("no-pageable")})["devices"][0]
    check(not staged["mapped"] and len(staged["rows"]) == 2, f"{staged}")
    for row, size in zip(staged["rows"], (4, 2)):  # half of the bytes cross
        crossed = row["to_host_gbs"] * row["to_host_ms"] * 1e6
        check(abs(crossed / (row["bucket_bytes"] / 4 * size) - 1) < 1e-6, f"{row}")


def test_bench_exchange(at):
    """Uploads go on beside everything else: the exchange takes as long as one way of all buckets, and the other of one.

    The layer's delays use no core, and a transfer of memory that is not pinned blocks, as with NVIDIA's driver."""
    links = {"CVY_FORCE_STAGING": "1", **with_layer("block-pageable,link=all:0.004")}
    for tries in range(3):  # a busy machine wakes threads late
        done = expect(0, "bench", "exchange", "--devices", device_times(2), "--quiet", "--time", 0.2, "--model", "lenet", "--buckets", "0.1,0.2",
                      "--json", env=links)
        result = read_json(done.stdout)
        slow = []
        for i, team in enumerate(result["team"]):
            rows = [device["rows"][i] for device in result["devices"]]
            n = result["gradient_bytes"] / team["bucket_bytes"]  # the last one is a part of one
            ways = [(row["to_host_ms"], row["to_device_ms"]) for row in rows]
            alone = max(n * max(way) + min(way) for way in ways) + team["update_ms"] + sum(row["pack_ms"] or 0 for row in rows)
            if team["exchange_ms_low"] > 1.15 * alone:
                slow.append(f"{team} takes more than 1.15 x {alone:.1f} ms, copies and sum alone: {rows}")
        if not slow:
            break
    check(not slow, "\n".join(slow))
    for one in result["fastest"]:
        same = [row for row in result["team"] if row["exchange"] == one["exchange"]]
        best = min(same, key=lambda row: row["exchange_ms"])
        check(abs(one["bucket_mib"] * (1 << 20) - best["bucket_bytes"]) < 1, f"{one}")
        check((one["bucket_ms"] is None) == (best["buckets"] == max(row["buckets"] for row in same)), f"{one} {same}")
    check([one["exchange"] for one in result["fastest"]] == ["fp32", "bf16"], f"{result['fastest']}")


def test_bench_scaling(at):
    """Devices alone and together: what the figures must be to each other."""
    model = ["--model", "lenet", "--steps", 3, "--extrapolate", 16, "--limit", 600, "--devices", device_times(3)]
    out = at("scaling.json")
    done = expect(0, "bench", "scaling", *model, "--batch", 96, "--json", out, env={"CVY_NO_TUNE": "0"},
                  out=("strong: the same batch", "the same cores as ", "adding ", "Prediction for devices like "))
    result = read_json(read(out))
    check(result["word"] == "scaling" and result["batch"] == 96, f"{result}")
    for words in ("round 1 of 2: measuring device 1 of 3 alone", "round 2 of 2: measuring 3 devices together"):
        check(words in done.stderr, f"what is measured: {words}", done)
    check(done.stderr.count("convoy tune") <= 1, "of many teams one says what could be faster", done)
    check(all(d["math"] == "fp32" for d in result["devices"]), "what products use")
    check([d["shares_cores_with"] is None for d in result["devices"]] == [True, False, False], f"replicas share cores: {result}")
    check([p["share"] for p in result["devices"][0]["alone"]] == [32, 48, 96], f"shares that come up: {result['devices'][0]}")
    check([t["devices"] for t in result["teams"]] == [1, 2, 3], "every team")
    check([t["weak"]["batch"] for t in result["teams"]] == [32, 64, 96], "the same share per device")
    first = result["teams"][0]
    check(first["verdict"] is None and first["transfer_ms"] == 0 and first["strong"]["exposed_ms"] == 0, f"one alone: {first}")
    for t in result["teams"][1:]:
        check(t["verdict"].startswith("adding ") and re.search(r"\d\.\d\dx", t["verdict"]), f"{t}")
        check(t["host_ms"] > 0 and t["transfer_ms"] > 0 and t["verdict"] in done.stdout, f"{t}")
        for m in (t["strong"], t["weak"]):
            exchange = t["host_ms"] + t["transfer_ms"]
            check(abs(m["compute_by_exchange"] * exchange / m["compute_ms"] - 1) < 1e-6, f"{m}")
            check(abs(m["compute_ms"] + m["exposed_ms"] - m["predicted_ms"]) < 1e-6, f"{m}")
            check(m["limit"] in ("compute", "exchange", "imbalance", "host", "shared cores") and m["efficiency"] > 0, f"{m}")
    check([e["devices"] for e in result["extrapolated"]] == [2, 4, 8, 16], f"{result['extrapolated']}")
    check(result["teams"][2]["strong"] == {**result["teams"][2]["weak"]}, "the whole team is both")
    one = json.loads(expect(0, "bench", "scaling", "--quiet", "--devices", DEVICE, "--model", "lenet", "--steps", 1, "--rounds", 1, "--batch", 16,
                            "--json").stdout)
    check(len(one["teams"]) == 1 and one["extrapolated"] == [], f"{one}")
    expect(2, "bench", "scaling", *model, "--batch", 5, err="--batch 5 for 3 devices; expected 2 or more images for each device")


def test_bench_scaling_slow(at):
    """A device 40 times slower than the other takes fewer images, and the whole has an end."""
    halves = f"{first_device()}/1+1"
    devices = read_json(expect(0, "devices", "--json").stdout)["devices"]
    if not any(d["id"] == first_device() and d["kind"] == "CPU" and d["compute_units"] > 1 for d in devices):
        print("no CPU of two cores, which could be divided")
        sys.exit(77)
    begin = time.monotonic()
    done = expect(0, "bench", "scaling", "--model", "lenet", "--batch", 2048, "--steps", 2, "--devices", halves, "--limit", 5, "--json",
                  env=with_layer("slow=/1:40"), err="images would take about", timeout=280)
    check(re.search(r"measuring device 2 of 2 .* with 8 images", done.stderr), "what is measured", done)
    seconds = time.monotonic() - begin
    result = json.loads(done.stdout)
    fast, slow = result["devices"]
    check(fast["most"] is None or fast["most"] > 3 * slow["most"], f"{fast} {slow}")
    check(slow["most"] < 1024 and [p["share"] for p in slow["alone"]] == [slow["most"]], f"{slow}")
    # the layer slows launches down by at least as much as it is asked to: 2 s are aimed at, by the time of a few images
    check(slow["alone"][0]["ms"] < 6000, f"a step is bounded: {slow}")
    pair = result["teams"][1]
    check(pair["strong"]["batch"] == 2 * slow["most"] == pair["weak"]["batch"], f"the team takes as many of each: {pair}")
    check("is not worth it" in pair["verdict"], f"{pair['verdict']}")
    check(seconds < 150, f"the whole took {seconds:.0f} s")


def tool(name, *args, code=0, err="", out="", **kw):
    done = call([sys.executable, os.path.join(ROOT, "tools", name), *args], timeout=280, **kw)
    there = all(text in done.stdout for text in ([out] if isinstance(out, str) else out))
    check(done.returncode == code and err in done.stderr and there, f"{name}: exit {code}, {err!r}, {out!r}", done)
    return done


FAKE_TORCH = """#!{python}
# Stands for a Python with PyTorch: the version, or a line of torch_baseline.py.
import os, sys
if sys.argv[1] == "-c":
    print("9.9", os.environ.get("FAKE_CUDA", "False"))
elif "compile" in sys.argv:
    sys.exit("no compiler")
elif "--amp" in sys.argv and "FAKE_NO_AMP" not in os.environ:
    print("task=train model=lenet mode=eager img_s=" + ("400" if "nchw" in sys.argv else "300"), "img_s_median=" + ("360" if "nchw" in sys.argv else "270"),
          "gflops=1 peak_mib=50 amp=bf16")
else:
    print("task=train model=lenet mode=eager layout=" + sys.argv[sys.argv.index("--layout") + 1],
          "img_s=" + ("200" if "nhwc" in sys.argv else "100"), "img_s_median=" + ("180" if "nhwc" in sys.argv else "90"),
          "gflops=1 peak_mib=70")
"""


FAKE_CONVOY = """#!{python}
# Stands for convoy on a machine with several GPUs: notes what it is asked for.
import json, os, sys
gpu = lambda id, vendor, name: dict(id=id, usable=True, kind="GPU", vendor=vendor, platform_name=vendor, name=name)
gpus = [gpu("1:0", "Some vendor", "Some card"), gpu("2:0", "NVIDIA Corporation", "H100"), gpu("2:1", "NVIDIA Corporation", "H200")]
cpu = dict(gpu("0:0", "GenuineIntel", "A CPU"), kind="CPU")
word = " ".join(sys.argv[1:3])
if word.startswith("devices"):
    print(json.dumps(dict(devices=[cpu] + gpus[:int(os.environ["FAKE_GPUS"])])))
elif sys.argv[1] == "bench":
    print(sys.argv[sys.argv.index("--devices") + 1], file=open(os.environ["FAKE_NOTES"], "a"))
    print(json.dumps(dict(img_s=100, gflops=1, peak_mib=50, devices=[dict(peaks=dict(fma_gflops=10))])))
else:
    print("convoy 9.9")
"""


def test_compare_torch(at):
    """One GPU beside one GPU; a file that cannot be written is found before the first round. No device is used."""
    python, convoy, notes, result = (at(name) for name in ("python", "convoy", "notes", "result.json"))
    for path, text in [(python, FAKE_TORCH), (convoy, FAKE_CONVOY)]:
        write(path, text.replace("{python}", sys.executable), 0o755)
    compare = ["compare/torch", "--python", python, "--convoy", convoy, "--model", "lenet", "--task", "train", "--rounds", "1"]
    here = {"FAKE_CUDA": "True", "FAKE_NOTES": notes}
    for gpus, taken in [("3", "2:0 H100"), ("1", "1:0 Some card")]:
        tool(*compare, "--device", "cuda", "--json", result, env={**here, "FAKE_GPUS": gpus}, out=f"on {taken}, convolutions")
        check(set(read(notes).split()) == {taken.split()[0]}, f"every measurement on {taken}")
        os.remove(notes)
        check(read_json(read(result))["devices"] == taken.split()[0], "the device is in the file")
    # autocast has columns, a best way and a ratio of its own
    done = tool(*compare, "--device", "cuda", "--amp", "--rounds", "2", "--json", result, env={**here, "FAKE_GPUS": "1"}, out="bf16 autocast")
    r = read_json(read(result))["results"][0]
    check(r["torch_img_s"] == 180 and r["torch_amp_img_s"] == 360 and r["torch_amp_mib"] == 50, "the rates of both", done)
    check(abs(r["ratio"] / r["ratio_amp"] - 2) < 1e-9 and f"{r['ratio']:.2f}" in done.stdout and f"{r['ratio_amp']:.2f}" in done.stdout, "the ratios of both", done)
    check([[x[who]["layout"] for who in ("torch", "torch_amp")] for x in r["rounds"]] == [["nhwc", "nchw"]] * 2, "the best way of each", done)
    check([len(x["torch_amp_all"]) for x in r["rounds"]] == [2, 1], "only the best one after the first round", done)
    done = tool(*compare, "--device", "cuda", "--amp", env={**here, "FAKE_GPUS": "1", "FAKE_NO_AMP": "1"}, code=1, err="autocast is off, wanted bf16")
    os.remove(notes)
    tool(*compare, "--device", "cuda", "--devices", "gpu", env={**here, "FAKE_GPUS": "3"}, out="on gpu, convolutions")
    os.remove(notes)
    tool(*compare, "--device", "cuda", env={**here, "FAKE_GPUS": "0"}, code=2, err="Convoy finds no GPU")
    for path in (at("no", "such"), at()):
        done = tool(*compare, "--json", path, env=here, code=2, err=f"compare/torch: --json {path}: cannot be written: ")
        check("Traceback" not in done.stderr, "a message alone", done)
    os.remove(result)
    tool(*compare, "--json", result, "--device", "cuda", env={**here, "FAKE_GPUS": "0"}, code=2)
    check(not os.path.exists(notes) and not os.path.exists(result), "nothing was measured, nothing is left behind")


def test_bench_tools(at):
    """compare/torch and gpu-report, with a stand-in for PyTorch."""
    python, result, report = (at(name) for name in ("python", "result.json", "report.md"))
    write(python, FAKE_TORCH.format(python=sys.executable), 0o755)
    tool("compare/torch", "--rounds", "0", "--convoy", CONVOY, code=2, err="--rounds 0: expected a whole number from 1")
    tool("compare/torch", "--convoy", at("none"), code=2, err="there is no program convoy")
    tool("compare/torch", "--convoy", CONVOY, "--python", "/bin/false", code=2, err="pip install torch numpy")
    tool("compare/torch", "--convoy", CONVOY, "--python", python, "--device", "cuda", code=2, err="no CUDA device")
    done = tool("compare/torch", "--convoy", CONVOY, "--python", python, "--model", "lenet", "--rounds", "2", "--steps", "1",
                "--batch", "16", "--devices", DEVICE, "--json", result, out="middle", err="compile nchw")
    both = read_json(read(result))["results"]
    check([r["task"] for r in both] == ["train", "eval"], "training and evaluation", done)
    for r in both:
        check(r["torch_img_s"] == 180 and [x["torch"]["layout"] for x in r["rounds"]] == ["nhwc"] * 2, "best way of PyTorch", done)
        check([len(x["torch_all"]) for x in r["rounds"]] == [2, 1], "only the best one after the first round", done)
        check(abs(r["ratio"] * 180 / r["convoy_img_s"] - 1) < 1e-9 and r["convoy_mib"] > 5, "ratio", done)

    # what it writes of steps that are not well: test_gpu_report.py
    tool("gpu-report", "--only", "nothing", code=2, err="the groups are: system build")
    build, caches = os.path.dirname(os.path.dirname(CONVOY)), at("caches")
    os.makedirs(caches)
    here = ["--device", "cpu" if DEVICE == "auto" else DEVICE, "--quick", "--build", build, "--caches", caches, "--out", report]
    done = tool("gpu-report", *here, "--only", "system", "peak", "exchange")
    text = read(report)
    for words in ("| bench peak | ", "| bench exchange | ", "GFLOP/s, read", "$ uname -a"):
        check(words in text, f"the report has {words!r}: {text}")
    check("not well" not in done.stdout and "What has not run" not in text, "all went well", done)
    tool("gpu-report", *here, "--only", "peak", code=1, out="not well: devices, devices in words", env=NO_DEVICE)
    check("Nothing else was done: no device" in read(report), "without a device nothing else is done")

    # a build in one file, on a machine that has nothing else; little time, and the rest later
    few, packed, later, networks = (at(name) for name in ("build", "packed.tar.xz", "later.md", "networks"))
    os.makedirs(os.path.join(few, "meson-info"))
    os.makedirs(os.path.join(few, "tools"))
    os.makedirs(os.path.join(few, "tests"))
    os.makedirs(networks)
    os.symlink(CONVOY, os.path.join(few, "tools", "convoy"))
    some = [t for t in read_json(read(os.path.join(build, "meson-info", "intro-tests.json"))) if t["name"] in ("update", "cache", "split")]   # cache: compiled with a path; split: needs no device
    write(os.path.join(few, "meson-info", "intro-tests.json"), json.dumps(some))
    tool("gpu-report", "--build", few, "--pack", packed, out=[", 1 tests, libraries ", "no test layer"])
    tool("gpu-report", "--build", few, "--pack", packed, "--data-dir", at(), code=1, err="expected the four files of Fashion-MNIST")
    tool("gpu-report", "--build", few, "--pack", packed, "--networks", networks, code=1, err="expected .onnx files")
    write(os.path.join(networks, "resnet50.onnx"), "nothing")
    os.symlink(LAYER, os.path.join(few, "tests", "test_layer.so"))
    tool("gpu-report", "--build", few, "--pack", packed, "--data-dir", os.path.join(ROOT, "tests", "data", "idx-plain"), "--networks", networks,
         out=["the data set", "networks resnet50", "the test layer"])
    there = [*here[:3], "--build", packed, "--caches", caches, "--stage", "contact", "--only", "peak", "tests", "--out"]
    tool("gpu-report", *there, report, "--limit", "3", out=["for lack of time: ", "test update", "bench peak"])
    tool("gpu-report", *there, later, "--resume", report.replace(".md", ".json"), out=" well")
    text = read(later)
    for words in ("| bench peak | ", "- 1 well: update", "built elsewhere (packed.tar.xz"):
        check(words in text and "What has not run" not in text, f"the later report has {words!r}: {text}")
    check(text.count("| devices | well |") == 1, "devices are asked anew")
    write(packed, "nothing")
    tool("gpu-report", *there, report, code=2, err="packed.tar.xz")


def test_compare_bits(at):
    """tools/compare/bits says of two programs whether what they train is the same."""
    few = ["--steps", 2, "--device", first_device(), "--only", "lenet-one"]
    tool("compare/bits", CONVOY, code=2, err="expected two programs")
    tool("compare/bits", CONVOY, CONVOY, "--only", "nothing", code=2, err="no case has this in its name")
    tool("compare/bits", CONVOY, CONVOY, *few, "--only", "lenet-fleet", out=("lenet-one            equal", "lenet-fleet          equal", "2 cases, 0 unlike"))
    other, broken = at("other"), at("broken")
    write(other, f'#!/bin/sh\nexec {CONVOY} "$@" --freeze 0\n', 0o755)
    write(broken, "#!/bin/sh\necho no such thing >&2\nexit 1\n", 0o755)
    tool("compare/bits", CONVOY, other, *few, code=1, out=("differs in ", " 0.weight", "1 cases, 1 unlike"))
    tool("compare/bits", CONVOY, broken, *few, code=1, out=f"{broken} fails: no such thing")
    tool("compare/bits", broken, broken, *few, code=1, out=("left out: no such thing", "0 cases"))


if __name__ == "__main__":
    main(globals(), without_device=("compare_torch",))
