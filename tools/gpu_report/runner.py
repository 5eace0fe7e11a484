# SPDX-License-Identifier: MIT
"""Runs steps: those that compile and check many at a time, those that measure alone. A step that dies is written down with what ended it, is run
once more with the test layer, which writes the last OpenCL calls and backtraces, and the next step goes on."""
import concurrent.futures
import dataclasses
import os
import re
import threading
import time
import typing

from . import process, reading, symbols

GROUP_S = 5            # a step is not begun with less time left, unless it says otherwise
SPARE_S = 8            # of --limit: to end what runs, to write the report and to pack the caches


@dataclasses.dataclass
class Step:
    name: str
    group: str                                   # what --only names
    command: list
    limit_s: float
    key: typing.Callable = None                  # text → a line of figures; raises reading.Wrong and the like if it is not what it should be
    env: dict = dataclasses.field(default_factory=dict)
    least_s: float = GROUP_S                     # with less time left it is not begun
    priority: int = 0
    shown: bool = True                           # its output stands in the report
    ask: typing.Callable = None                  # instead of command: (log, limit_s) → Done, of a program that goes on running


def slug(name):
    return re.sub(r"[^A-Za-z0-9.+-]+", "_", name).strip("_")


def shown(command, env):
    return " ".join([f"{k}={v}" for k, v in env.items()] + [str(c) for c in command])


class Runner:
    def __init__(self, report, folder, limit_s, layer, layer_when):
        """layer: the file of the test layer, or None; layer_when: crash (a step that died runs once more with it), always, never."""
        self.report, self.folder, self.layer, self.layer_when = report, folder, layer, layer_when
        self.end = report.begin + limit_s - min(SPARE_S, limit_s / 4) if limit_s else float("inf")
        self.scratch = os.path.join(os.path.dirname(folder), "scratch")      # files that nobody reads
        os.makedirs(self.scratch, exist_ok=True)
        self.hung = []                           # to be run once more with the layer, when the stage has measured
        self.names, self.lock = symbols.Names(), threading.Lock()
        self.stopped = False
        for name in ("logs", "dumps", "results"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        # many: each compiles on a core and waits for the device most of the time; two cores are left for the driver and this program
        self.workers = max(1, min(14, (os.cpu_count() or 1) - 2))

    def left(self, until=None):
        return min(self.end, until or self.end) - time.time()

    def path(self, kind, name):
        return os.path.join(self.folder, kind, name)

    def relative(self, path):
        return os.path.relpath(path, os.path.dirname(self.folder))

    def look_s(self, limit_s):
        """How long a step that reaches its limit may be looked at: not into the time that ending takes."""
        return max(1, min(20, self.left() - limit_s))

    def command(self, step, env):
        """Without the folder that is removed at the end."""
        return shown(step.command, env).replace(os.path.dirname(self.folder) + os.sep, "")

    # ---- the test layer ----

    def with_layer(self, step, name, limit_s):
        dump = self.path("dumps", name + ".txt")
        words = [step.env.get("CVY_LAYER", os.environ.get("CVY_LAYER")), f"calls={dump}", f"dump-after={max(1, limit_s - 4):.0f}"]
        layers = [p for p in os.environ.get("OPENCL_LAYERS", "").split(":") if p and os.path.basename(p) != os.path.basename(self.layer)]
        return dump, {"OPENCL_LAYERS": ":".join([self.layer] + layers), "CVY_LAYER": ",".join(filter(None, words))}

    def dumped(self, dump, title):
        if not os.path.exists(dump):
            return {"title": title + ": the test layer wrote no dump", "file": "", "lines": []}
        text = self.names.add(process.read(dump))
        with open(dump, "w", encoding="utf-8") as f:
            f.write(text)
        return {"title": title + ": the test layer's dump, in parts", "file": self.relative(dump), "lines": reading.of_dump(text)}

    def once_more(self, step, state, limit_s):
        """What the test layer finds out about a step that died: for the report."""
        if not self.layer or self.layer_when != "crash" or step.ask:
            reason = "the test layer is not there" if not self.layer else "--layer never" if self.layer_when == "never" else ""
            return [{"title": f"No backtrace: {reason}", "file": "", "lines": []}] if reason and not step.ask else []
        if limit_s < GROUP_S:
            return [{"title": "No backtrace: no time to run it once more with the test layer", "file": "", "lines": []}]
        name = slug(step.name)
        dump, env = self.with_layer(step, name, limit_s)
        log = self.path("logs", name + ".again.txt")
        done = process.execute(step.command, log, {**step.env, **env}, limit_s, self.look_s(limit_s))
        now, why = self.state_of(done, step, limit_s)
        title = f"Once more with the test layer: {now}" + (f", {why}" if why else "")
        if now in ("well", "skipped"):
            title += f" (not {state} this time; `--layer always --only {step.group}` runs all of the group with it)"
        return [{**self.dumped(dump, title), **({} if os.path.exists(dump) else {"file": self.relative(log), "lines": reading.telling(done.text)})}]

    # ---- one step ----

    @staticmethod
    def state_of(done, step, limit_s):
        """State, and why."""
        if done.late:
            if limit_s < step.limit_s:
                return "no time", f"ended after {limit_s:.0f} of its {step.limit_s:.0f} s, for lack of time"
            return "hung", f"not done after its {step.limit_s:.0f} s"
        if done.signal:
            return "crashed", f"{reading.signal_name(done.signal)} after {done.seconds:.1f} s, exit status {done.code}"
        if done.code == 77:
            lines = done.text.strip().splitlines()
            return "skipped", lines[-1][:200] if lines else ""
        if done.code != 0:
            return "wrong", f"exit status {done.code}" if done.code != process.NO_PROGRAM else f"not started: {done.text.strip()[:200]}"
        try:
            return "well", step.key(done.text) if step.key else ""
        except reading.Wrong as e:
            return "wrong", str(e)
        except (ValueError, KeyError, IndexError, OSError, TypeError, ZeroDivisionError) as e:
            return "wrong", f"exit status 0, but the result is not understood: {type(e).__name__}: {e}"

    def one(self, step, until=None):
        if self.stopped or self.report.has(step.name):
            return
        left = self.left(until)
        if left < step.least_s:
            return self.report.leave_out(step.name)
        limit_s, name, dump, env = min(step.limit_s, left), slug(step.name), None, dict(step.env)
        log = self.path("logs", name + ".txt")
        if self.layer and self.layer_when == "always" and not step.ask:
            dump, more = self.with_layer(step, name, limit_s)
            env.update(more)
        done = step.ask(log, limit_s) if step.ask else process.execute(step.command, log, env, limit_s, self.look_s(limit_s))
        if self.stopped:
            return
        state, why = self.state_of(done, step, limit_s)
        entry = {"name": step.name, "group": step.group, "state": state, "code": done.code, "signal": done.signal, "seconds": done.seconds,
                 "limit_s": limit_s, "commands": [self.command(step, env)], "log": self.relative(log), "key": why, "telling": [], "evidence": [],
                 "text": []}
        if state not in ("well", "skipped"):
            entry["telling"] = reading.telling(self.names.add(done.text))
        elif step.shown and state == "well":
            lines = done.text.rstrip().splitlines()
            entry["text"] = lines if len(lines) <= 60 else lines[:30] + [f"… {len(lines) - 60} lines …"] + lines[-30:]
        if done.where and state in ("hung", "no time"):
            path = self.path("dumps", name + ".threads.txt")
            with open(path, "w", encoding="utf-8") as f:
                f.write(done.where)
            entry["evidence"].append({"title": "Its threads at the limit", "file": self.relative(path), "lines": reading.of_threads(done.where)})
        if dump and state in ("crashed", "hung", "no time"):
            entry["evidence"].append(self.dumped(dump, "With the test layer"))
        self.report.add(entry)
        if state == "crashed":
            entry["evidence"] += self.once_more(step, state, min(step.limit_s, self.left(until), max(30, 3 * done.seconds + 10)))
            self.report.add(entry) if entry["evidence"] else None
        elif state == "hung":
            with self.lock:
                self.hung.append((step, entry))

    # ---- many ----

    def in_pool(self, function, items):
        pool = concurrent.futures.ThreadPoolExecutor(self.workers)
        futures = [pool.submit(function, item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:                            # a signal: what runs is ended, or the pool would wait for it
            self.stop()
            raise
        finally:
            pool.shutdown(wait=True)

    def together(self, steps, share=1.0):
        """Many at a time, within a share of the time that is left."""
        until = time.time() + share * self.left() if self.left() != float("inf") else None
        # long ones first, so that none is waited for at the end; with few cores in the order of what they are worth
        steps = sorted(steps, key=lambda s: -s.priority if self.workers >= 8 else 0)
        self.in_pool(lambda step: self.one(step, until), steps)

    def alone(self, steps):
        for step in steps:
            self.one(step)

    def look_at_hung(self):
        """Steps that hung, once more with the test layer: many at a time, after what is measured."""
        waiting, self.hung = self.hung, []

        def one(pair):
            step, entry = pair
            if self.stopped:
                return
            entry["evidence"] += self.once_more(step, "hung", min(step.limit_s, self.left()))
            self.report.add(entry)
        self.in_pool(one, waiting)

    def stop(self):
        self.stopped = True
        process.stop_all()
