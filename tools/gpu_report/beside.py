# SPDX-License-Identifier: MIT
"""Convoy and PyTorch in turns: rows of `bench train`, and of one PyTorch process (torch_side.py) that is asked for one row after another and keeps
quiet in between. A row that fails or hangs is a row with its reason; the process is started anew and the next row asked for."""
import json
import os
import select
import signal
import subprocess
import time

from . import reading
from .process import Done, kill
from .runner import Step

SIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_side.py")
MATHS = ("fp32", "tf32", "bf16")
LAYOUTS = ("nhwc", "nchw")
# Networks of 224x224 pixels, as files: (name, batch on a card).
PICTURES = [("resnet50", 64), ("mobilenet_v2", 64), ("densenet121", 64), ("vgg11_bn", 64), ("resnext50_32x4d", 64)]


class TorchSide:
    def __init__(self, python, device, library_path, log):
        """device: cuda or cpu; library_path: $LD_LIBRARY_PATH as this program found it."""
        self.python, self.device, self.log, self.child, self.hello = python, device, log, None, None
        self.env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.env.pop("LD_LIBRARY_PATH", None)
        if library_path:
            self.env["LD_LIBRARY_PATH"] = library_path
        self.waiting = b""

    def start(self, until):
        self.waiting = b""
        with open(self.log, "ab") as errors:
            self.child = subprocess.Popen([self.python, SIDE, "--device", self.device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                          env=self.env, start_new_session=True)
        lines, why = self.read(until)
        self.hello = lines[-1] if lines and not why else None
        return why

    def read(self, until):
        """Lines up to one with "done": (lines, why there is no such line)."""
        lines, fd = [], self.child.stdout.fileno()
        while True:
            while b"\n" in self.waiting:
                line, _, self.waiting = self.waiting.partition(b"\n")
                try:
                    lines.append(json.loads(line))
                except ValueError:                       # a library printed something
                    continue
                if isinstance(lines[-1], dict) and "done" in lines[-1]:
                    return lines, None
            if time.time() >= until:
                return lines, "hung"
            if not select.select([fd], [], [], max(0, min(1, until - time.time())))[0]:
                continue
            got = os.read(fd, 65536)
            if not got:
                return lines, "died"
            self.waiting += got

    def end(self):
        """The exit status: of a signal -N."""
        child, self.child = self.child, None
        if not child:
            return 0
        child.stdin.close()
        try:
            child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            kill(child.pid, signal.SIGABRT)              # Python's faulthandler prints where it is
            time.sleep(0.5)
            kill(child.pid, signal.SIGKILL)
        code = child.wait()
        child.stdout.close()
        return code

    def ask(self, request, log, limit_s):
        """(Done, rows); the process is started where it is not running."""
        begin, lines, why, mark = time.time(), [], None, os.path.getsize(self.log) if os.path.exists(self.log) else 0
        try:
            if not self.child:
                why = self.start(begin + limit_s)
            if not why:
                self.child.stdin.write((json.dumps(request) + "\n").encode())
                self.child.stdin.flush()
                lines, why = self.read(begin + limit_s)
        except OSError as e:
            why = f"{type(e).__name__}: {e}"
        code = 0
        if why:
            code = self.end()
            number = -code if code < 0 else 0
            reason = f"not done after {limit_s:.0f} s" if why == "hung" else f"the process died ({reading.signal_name(number) if number else f'exit status {code}'})"
            lines.append({"failed": reason})
        rows = [line for line in lines if "done" not in line]
        with open(self.log, "rb") as f:
            f.seek(mark)
            text = "\n".join(map(json.dumps, rows)) + "\n" + f.read().decode("utf-8", "replace")
        with open(log, "w", encoding="utf-8") as f:
            f.write(text)
        number = -code if code < 0 and why != "hung" else 0
        return Done(128 + number if number else 1 if why else 0, number, why == "hung", time.time() - begin, text), rows


class Rates:
    """Steps that measure the networks; with PyTorch where it is asked for."""

    def __init__(self, c):
        self.c, gpu = c, c.device.gpu
        short = c.small or not gpu
        self.configurations = [("resnet18", 256, None), ("resnet18", 32, None), ("resnet18", 1024, None), ("lenet", 256, None)]
        if short:
            self.configurations = [("lenet", 32, None)] + ([] if c.small else [("resnet18", 32, None)])
        for name, batch in PICTURES:
            if name in c.networks and not c.small:
                self.configurations.append((name, batch if gpu else 2, c.networks[name]))
        self.steps = 2 if short else 20
        # TF32 and CUDA graphs are things of CUDA devices
        self.torch_maths = MATHS if gpu else ("fp32", "bf16")
        self.plain, self.compiling = (["eager", "graph"], ["compile", "compile-graph"]) if gpu else (["eager"], ["compile"])

    def arguments(self, network, batch, file, math):
        where = ["--model", file, "--input", "224x224x3"] if file else ["--model", network]
        return [*where, "--batch", batch, "--math", math, "--tune", "off"]

    def convoy(self, configuration, math, turn="", task="train"):
        network, batch, file = configuration
        name = f"bench train {network} {batch} {math}{' --inference' if task == 'eval' else ''}{turn}"

        def also(r):
            used = r["devices"][0].get("math", "fp32")
            if used == math:                             # on a device without matrix units tf32 is fp32
                self.c.runner.report.row(side="convoy", network=network, batch=batch, task=task, math=math, mode="shipped", layout="", img_s=r["img_s"],
                                         ms=r["step_ms"], mib=r["peak_mib"])
        more = ["--inference"] if task == "eval" else []
        more += ["--no-breakdown"] if turn or not self.c.device.gpu else []
        return self.c.bench(name, "networks", "train", *self.arguments(network, batch, file, math), "--steps", self.steps, *more, limit_s=90,
                            key=reading.of_train, also=also)

    def torch(self, configuration, math, layout, modes, task="train", limit_s=60):
        network, batch, _ = configuration
        c, name = self.c, f"PyTorch {network} {batch} {task} {math} {layout} {'+'.join(modes)}"
        request = {"network": network, "batch": batch, "task": task, "math": math, "layout": layout, "modes": modes, "steps": self.steps,
                   "seconds": 1.0 if c.device.gpu else 3.0}
        rows = []

        def ask(log, limit):
            done, rows[:] = c.torch.ask(request, log, limit)
            for r in rows:
                named = {"network": network, "batch": batch, "task": task, "math": math, "layout": layout, "mode": "+".join(modes), **r}
                c.runner.report.row(side="torch", **named)
            return done

        def key(_):
            if not any(r.get("img_s") for r in rows):
                raise reading.Wrong("; ".join(r["failed"] for r in rows if r.get("failed")) or "no row")
            return ", ".join(f"{r['mode']} {r['img_s']:.1f} img/s" if r.get("img_s") else f"{r['mode']} FAILED: {r['failed']}" for r in rows)
        return Step(name, "torch", ["torch_side.py", json.dumps(request)], self.c.limit(limit_s), key, least_s=10, shown=False, ask=ask)

    def torches(self, configuration, layout, modes, task="train", limit_s=60):
        return [self.torch(configuration, math, layout, modes, task, limit_s) for math in self.torch_maths] if self.c.torch else []

    @property
    def maths(self):
        return ("fp32", "tf32") if self.c.device.gpu else ("fp32",)

    def first(self, configurations):
        """Every network once, PyTorch between Convoy's two arithmetics."""
        steps = []
        for one in configurations:
            steps.append(self.convoy(one, "fp32"))
            steps += self.torches(one, "nhwc", self.plain)
            steps += [self.convoy(one, math) for math in self.maths[1:]]
        return steps

    def other_layout(self, configurations):
        """PyTorch's other layout, and Convoy again beside it."""
        steps = []
        for one in configurations if self.c.torch else []:
            steps += self.torches(one, "nchw", self.plain)
            steps += [self.convoy(one, math, ", again") for math in self.maths]
        return steps

    def compiled(self, configurations):
        steps = []
        for one in configurations if self.c.torch else []:
            for layout in LAYOUTS if one == self.configurations[0] else LAYOUTS[:1]:
                steps += self.torches(one, layout, self.compiling, limit_s=150)
            steps += [self.convoy(one, math, ", third time") for math in self.maths]
        return steps

    def evaluation(self):
        one = self.configurations[0]
        return [self.convoy(one, "fp32", task="eval"), *self.torches(one, "nhwc", self.plain, "eval")]

    def warm(self):
        """Compiles every network's kernels, many at a time, so that what measures finds them."""
        steps = []
        for one in self.configurations:
            for math in self.maths:
                network, batch, file = one
                steps.append(Step(f"warm {network} {batch} {math}", "warm",
                                  [self.c.convoy, "bench", "train", "--devices", self.c.device.id, "--quiet",
                                   *map(str, self.arguments(network, batch, file, math)), "--steps", "1", "--no-breakdown"], self.c.limit(60), shown=False))
        return steps


def start(c, library_path):
    """PyTorch's process for this run, or None with a step that says why not."""
    report, runner = c.runner.report, c.runner
    if report.has("PyTorch") and not any(s["name"] == "PyTorch" and s["state"] == "well" for s in report.steps):
        return None
    side = TorchSide(c.a.python, "cuda" if c.device.gpu else "cpu", library_path, runner.path("logs", "torch_process.txt"))
    begin, state = time.time(), "well"
    try:
        why = side.start(begin + max(1, min(c.limit(120), runner.left())))
    except OSError as e:
        why = str(e)
    hello = side.hello or {}
    if not why and c.device.gpu and not hello.get("cuda"):
        state, key = "skipped", "PyTorch sees no CUDA device"
    elif not why and c.device.gpu and not c.device.cuda_0:
        state, key = "skipped", f"PyTorch would take another device than {c.device.id}"
    elif why:
        state, key = "skipped", f"{c.a.python} does not run PyTorch ({why}): pip install torch numpy, and --python FILE names a Python that has it"
    else:
        key = f"PyTorch {hello['torch']} on {hello['device']}"
        report.fact(key)
    if state != "well" and side.child:
        side.end()
    log = side.log
    text = open(log, encoding="utf-8", errors="replace").read().splitlines()[-8:] if os.path.exists(log) else []
    report.add({"name": "PyTorch", "group": "torch", "state": state, "code": 0, "signal": 0, "seconds": time.time() - begin, "limit_s": 120,
                "commands": [f"{c.a.python} torch_side.py"], "log": runner.relative(log), "key": key, "telling": [], "evidence": [],
                "text": text if state != "well" else []})
    return side if state == "well" else None
