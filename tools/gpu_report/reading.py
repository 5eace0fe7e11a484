# SPDX-License-Identifier: MIT
"""What a reader has to see of a step's output: lines that say what failed, and one line with its figures."""
import json
import re
import signal

MOST_LINES = 24
# A failed test's report (tests/support/check.c), selftest's, cmocka's, the program's own; crash reports of the C library and of sanitizers.
FAILED = re.compile(r"FAILED|case: |device: |repeat: |seed: |must be|, not |relative|error:|Error\b|gave CVY_|alive at the end|Assertion|assert|wrong|"
                    r"terminate called|free\(\)|corrupt|AddressSanitizer|CL_[A-Z_]{6,}|cannot|could not")
NOISE = re.compile(r"^\[ +(?:RUN|OK|PASSED) |\d+ warnings? generated|^\[=+\]")


def cut(line, most=300):
    return line if len(line) <= most else line[:most] + " …"


def telling(text, most=MOST_LINES):
    """Lines of a failed step that say why: those that match, with the first ones kept, and the last lines of all."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not NOISE.search(line)]
    last = set(range(max(0, len(lines) - 4), len(lines)))
    if not lines:
        return ["(no output)"]
    chosen = [i for i, line in enumerate(lines) if FAILED.search(line)]
    kept = sorted(set(chosen[:most - 4]) | last)
    shown, before = [], -1
    for i in kept:
        if i > before + 1:
            shown.append("…")
        shown.append(cut(lines[i]))
        before = i
    return shown


def of_dump(text):
    """The part of a dump of the test layer (tests/support/layer_dump.c) that says most: what ended the program, the last launch with its build, the last
    calls, those that have not returned, and the frames of the crashed thread, else of all."""
    parts, head = [], []
    for line in text.splitlines():
        if line.startswith(("--- ", "=== ")):
            head = [line]
            parts.append(head)
        elif line.strip():
            head.append(line)
    named = next((i for i, part in enumerate(parts) if part[0].startswith("--- the same frames with names")), len(parts))
    shown = []
    for part in parts[:named]:
        if part[0].startswith("=== convoy"):
            shown += part[:1]
        elif part[0].startswith("--- the last launch"):
            shown += part[:16]
        elif part[0].startswith(("--- the last OpenCL calls", "--- calls that")):
            shown += part[:1] + part[1:][-10:]
    # threads in a call first: their numbers stand in its line
    busy = {m[1] for part in parts if part[0].startswith("--- calls that") for m in re.finditer(r" thread (\d+) ", "\n".join(part))}
    threads = [part for part in parts[named + 1:] if part[0].startswith(("--- thread", "--- crashed thread")) and " layer-" not in part[0]]
    crashed = [part for part in threads if part[0].startswith("--- crashed")]
    for part in crashed or sorted(threads, key=lambda part: part[0].split()[2] not in busy):
        shown += part[:1] + [line for line in part[1:] if not WAITING.search(line)][:14]
    return [cut(line, 220) for line in shown if line][:90]


# Frames of every thread that waits, and of the handler that takes the backtrace.
WAITING = re.compile(r"^#\d+ .*(?:futex|pthread_cond|\bclone3?\b|start_thread|__libc_start)|\((?:on_trace|clone3?|start_thread|_start|__libc_start\w*|pthread_cond_\w+)"
                     r"\+|^\S*/libc\.so\.6\(\+0x")


def of_threads(text, most=60, each=10):
    """Threads of a hanging program, as process.py or gdb writes them."""
    lines, frames = [], 0
    for line in text.splitlines():
        if line.startswith("#"):
            frames += 1
            if frames <= each and not WAITING.search(line):
                lines.append(cut(line, 160))
                continue
            frames -= WAITING.search(line) is not None
        elif re.match(r"--- |thread |Thread |gdb: ", line):
            frames = 0
            lines.append(cut(line, 160))
    return lines[:most] + ([f"… {len(lines) - most} lines …"] if len(lines) > most else [])


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Wrong(Exception):
    """A step whose exit status is 0 and which is not well all the same."""


def load(path):
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError) as e:
        raise Wrong(f"exit status 0, but its result cannot be read: {e}") from None


# ---- figures in one line, of the JSON that the program writes ----

def of_peak(result):
    p = result["devices"][0]["peaks"]
    return (f"{p['fma_gflops']:.0f} GFLOP/s, read {p['read_gbs']:.0f}, write {p['write_gbs']:.0f}, copy {p['copy_gbs']:.0f} GB/s, "
            f"to the device {p['to_device_gbs']:.1f}, to the host {p['to_host_gbs']:.1f} GB/s, launch {p['launch_us']:.1f} us")


def of_rows(result):
    rows = [r for r in result["devices"][0]["rows"] if r["chosen"]]
    worst = min(rows, key=lambda r: r["of_roofline"])
    ms, flops = sum(r["ms"] * r["count"] for r in rows), sum(r["flops"] * r["count"] for r in rows)
    peak = result["devices"][0]["peaks"]["fma_gflops"]
    return (f"{ms:.2f} ms as auto chooses, {flops / ms / 1e6:.0f} GFLOP/s = {flops / ms / 1e6 / peak:.2f} x peak; furthest from "
            f"its roofline: {worst['operation']} {worst['shape']} {worst['pass']}, {100 * worst['of_roofline']:.0f} %")


def of_train(r):
    shares = " + ".join(str(d["share"]) for d in r["devices"]) if len(r["devices"]) > 1 else ""
    math = r["devices"][0].get("math", "fp32")
    return (f"{r['img_s']:.1f} img/s, {r['step_ms']:.2f} ms a step, {math}, {r['gflops']:.0f} GFLOP/s = {r['fraction_of_peak']:.2f} x peak, "
            f"{r['peak_mib']:.0f} MiB{', images ' + shares if shares else ''}")


def of_exchange(r):
    best = min(r["team"], key=lambda row: row["exchange_ms"])
    return f"{best['exchange_ms']:.2f} ms with buckets of {best['bucket_bytes'] / 2**20:.2f} MiB"


def of_log(path, data):
    """A training's log: it must have its end."""
    try:
        with open(path, encoding="utf-8") as f:
            lines = [json.loads(line) for line in f if line.strip()]
    except (OSError, ValueError) as e:
        raise Wrong(f"exit status 0, but the log cannot be read: {e}") from None
    end = next((line for line in lines if "end" in line), None)
    if not end:
        raise Wrong(f"exit status 0, but the log has no end ({len(lines)} lines)")
    end = end["end"]
    start = [line["start"] for line in lines if "start" in line]
    first = f"; first forward pass after {start[0]['first_forward_sec']:.2f} s" if start and start[0]["first_forward_sec"] else ""
    accuracy = [line["test_acc"] for line in lines if line.get("test_acc") is not None]
    best = f", test accuracy {accuracy[-1]:.4f}, best {max(accuracy):.4f}" if accuracy else ""
    rate = f", {end['images_per_second']:.0f} img/s" if end["images_per_second"] else ""
    return f"{data}: {end['steps']} steps{rate}{best}{first}"


def of_selftest(text):
    found = re.findall(r"^(?:\S+ .*): (\w+, \d+ shapes, .*)$", text, re.M)
    if not found:
        raise Wrong("exit status 0, but it printed no result")
    return "; ".join(found)[:200]


def of_test(text):
    count = sum(int(n) for n in re.findall(r"^\[  PASSED  \] (\d+) test", text, re.M))
    if not count:
        raise Wrong("exit status 0, but it ran no test")
    return f"{count} passed"


def of_registers(text):
    used, spills = ([int(n) for n in re.findall(p, text)] for p in (r"Used (\d+) registers", r"(\d+) bytes spill stores"))
    return f"{len(used)} kernels, {max(used)} registers at most, {sum(n > 0 for n in spills)} spill" if used else "the compiler prints nothing of registers"
