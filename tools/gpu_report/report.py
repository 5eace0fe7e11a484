# SPDX-License-Identifier: MIT
"""The report: Markdown for a reader, the same as JSON for --resume, and an archive with the whole output of every step. All are written anew
after every step, aside and then renamed, so that an interrupted run leaves what it has."""
import datetime
import json
import os
import threading
import time

from . import pack, table

GOOD, CUT = ("well", "skipped"), ("no time",)
LINES_KEPT = 60                                  # of the output of a step that measures; all of it is in the archive
TEST_GROUPS = ("tests", "golden")


def write_file(path, text):
    with open(path + ".part", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(path + ".part", path)


def fenced(lines):
    return ["```", *[line.replace("```", "'''") for line in lines], "```"]


class Report:
    def __init__(self, path, folder, earlier, stage):
        """folder: of logs/, dumps/ and results/, which go into the archive."""
        self.path, self.begin, self.stage = path, time.time(), stage
        self.stem = os.path.splitext(path)[0]
        self.facts, self.rows = earlier.get("facts", []), earlier.get("rows", [])
        self.steps = [s for s in earlier.get("steps", []) if s["state"] not in CUT and s["state"] != "interrupted"]
        self.minutes = earlier.get("minutes", 0)
        self.left_out = []
        self.ended = ""
        self.archive = pack.Archive(self.stem + ".tar.xz", folder)
        self.lock = threading.RLock()

    def has(self, name):
        with self.lock:
            return any(s["name"] == name for s in self.steps)

    def forget(self, keep):
        """Steps that --only names are done again unless they went well."""
        self.steps = [s for s in self.steps if keep(s) or s["state"] in GOOD]

    def fact(self, text):
        with self.lock:
            if text not in self.facts:
                self.facts.append(text)

    def add(self, step):
        with self.lock:
            self.steps = [s for s in self.steps if s["name"] != step["name"]] + [step]
            print(f"{step['state']:8} {step['name']} ({step['seconds']:.0f} s){': ' + step['key'] if step['key'] else ''}", flush=True)
            self.write()

    def row(self, **values):
        with self.lock:
            self.rows.append(values)

    def leave_out(self, name):
        with self.lock:
            if name not in self.left_out:
                self.left_out.append(name)
                print(f"left out {name}: not enough time", flush=True)

    def bad(self):
        return [s for s in self.steps if s["state"] not in GOOD + CUT]

    def not_run(self):
        return [s["name"] for s in self.steps if s["state"] in CUT] + self.left_out

    def verdict(self):
        count = {state: sum(s["state"] == state for s in self.steps) for state in ("well", "skipped", "wrong", "crashed", "hung", "no time")}
        count["not begun"] = len(self.left_out)
        names = {"no time": "cut short"}
        return ", ".join(f"{n} {names.get(state, state)}" for state, n in count.items() if n) or "nothing was done"

    # ---- Markdown ----

    def head(self):
        verdict = f"**{self.verdict()}.**"
        lines = [f"# Convoy on a GPU: {self.stage}", "", verdict + (f" {self.ended}" if self.ended else ""), ""]
        lines += [f"- {fact}" for fact in self.facts]
        minutes = self.minutes + (time.time() - self.begin) / 60
        return lines + [f"- {datetime.datetime.now().strftime('%Y-%m-%d %H:%M')}, {minutes:.1f} minutes; whole outputs and dumps: "
                        f"`{os.path.basename(self.archive.path)}`"]

    def trouble(self):
        lines = []
        for s in self.bad():
            lines += ["", f"### {s['name']}: {s['state']}", "", f"{s['key']} ({s['seconds']:.1f} s, output: `{s['log']}`)", ""]
            lines += fenced([f"$ {c}" for c in s["commands"]] + s["telling"])
            for e in s["evidence"]:
                lines += ["", f"{e['title']}" + (f" (`{e['file']}`)" if e["file"] else "")]
                lines += ["", *fenced(e["lines"])] if e["lines"] else []
        return ["", "## What is not well", *lines] if lines else []

    def unfinished(self):
        skipped = [f"- skipped: {s['name']}: {s['key']}" for s in self.steps if s["state"] == "skipped" and s["group"] not in TEST_GROUPS]
        if not self.not_run():
            return ["", "## What has not run", "", *skipped] if skipped else []
        lines = ["", "## What has not run", "", *(skipped + [""] if skipped else []), f"For lack of time; `--resume {os.path.basename(self.stem)}.json` does only this.", ""]
        lines += [f"- {s['name']}: {s['key']}" for s in self.steps if s["state"] in CUT]
        return lines + ([f"- not begun: {', '.join(self.left_out)}"] if self.left_out else [])

    def figures(self):
        lines = ["", "## Figures", "", "| step | result |", "|---|---|"]
        found = [s for s in self.steps if s["group"] not in TEST_GROUPS + ("system", "devices", "build", "warm", "torch") and s["state"] == "well" and s["key"]]
        return lines + [f"| {s['name']} | {s['key'].replace('|', '/')} |" for s in found] if found else []

    def tests(self):
        found = [s for s in self.steps if s["group"] in TEST_GROUPS]
        if not found:
            return []
        lines = ["", "## Tests", ""]
        for state in ("well", "skipped", "wrong", "crashed", "hung", "no time"):
            some = [s for s in found if s["state"] == state]
            if state == "skipped":
                lines += [f"- skipped: {s['name'][5:]}: {s['key']}" for s in some]
            elif some:
                lines.append(f"- {len(some)} {state}: " + " ".join(s["name"][5:] for s in some))
        return lines

    def all_steps(self):
        lines = ["", "## All steps", "", "| step | result | seconds | limit | output |", "|---|---|---|---|---|"]
        return lines + [f"| {s['name']} | {s['state']} | {s['seconds']:.1f} | {s['limit_s']:.0f} | {s['log']} |" for s in self.steps]

    def outputs(self):
        lines = []
        for s in self.steps:
            if not s["text"] or s["group"] in TEST_GROUPS:
                continue
            lines += ["", f"### {s['name']}", "", *fenced([f"$ {c}" for c in s["commands"]] + s["text"])]
        return ["", "## Outputs", *lines] if lines else []

    def write(self, now=False):
        with self.lock:
            parts = [self.head(), self.trouble(), self.unfinished(), table.lines(self.rows), self.figures(), self.tests(), self.all_steps(), self.outputs()]
            state = {"stage": self.stage, "facts": self.facts, "minutes": self.minutes + (time.time() - self.begin) / 60, "steps": self.steps,
                     "rows": self.rows, "left_out": self.left_out}
            write_file(self.path, "\n".join(line for part in parts for line in part) + "\n")
            write_file(self.stem + ".json", json.dumps(state, indent=1))
            self.archive.write([self.path, self.stem + ".json"], now)
