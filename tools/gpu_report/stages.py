# SPDX-License-Identifier: MIT
"""What each stage does, in the order of what it is worth: contact (does it work at all?), numbers (is it right?), speed (how fast?)."""
import glob
import os
import platform
import re
import shutil
import subprocess

from . import beside, pack, reading
from .process import ROOT, execute, read
from .runner import Step

STAGES = ("contact", "numbers", "speed")
GROUPS = ("system", "build", "devices", "selftest", "tests", "golden", "train", "peak", "epochs", "warm", "networks", "team", "exchange", "torch", "tune",
          "ops", "conv", "registers")
QUICK_TESTS = ("eltwise", "launch", "update", "softmax_xent", "linear")
# With them a test of every kind: launches, each family of kernels, whole steps, a team, a training.
CONTACT_TESTS = ("batchnorm", "conv2d", "conv2d_winograd_simt", "pool2d", "reduce", "step", "train", "team", "same_training")
GOLDEN = ("golden", "golden_team", "golden_optimizers")
DEBIAN_DATA = "/usr/share/datasets/fashion-mnist"


class Context:
    """What steps are made of: programs, the device, data, networks, and how much is to be done."""

    def __init__(self, a, build, programs, networks, runner):
        self.a, self.build, self.programs, self.networks, self.runner = a, build, programs, networks, runner
        self.convoy = os.path.join(build, "tools", "convoy")
        self.device = None
        self.small = a.quick                     # sizes for a card else; a CPU gets small ones
        self.torch = None

    def result(self, name):
        return self.runner.path("results", name + ".json")

    def limit(self, seconds):
        """A limit of a step: what a card needs, with room; a CPU gets more."""
        return seconds * (self.a.patience or (1 if self.device.gpu else 6))

    def bench(self, name, group, word, *args, limit_s=60, devices=None, key=None, least_s=8, also=None):
        path = self.result(re.sub(r"[^A-Za-z0-9.+-]+", "_", name))

        def figures(_):
            result = reading.load(path)
            said = key(result)
            if also:
                also(result)
            return said
        return Step(name, group, [self.convoy, "bench", word, "--devices", devices or self.device.id, "--quiet", *map(str, args), "--json", path],
                    self.limit(limit_s), figures, least_s=least_s)

    @property
    def time(self):
        return ["--time", "0.03" if self.small else "0.3"]


# ---- before any stage ----

def commit():
    """The source tree's, as words behind the version; nothing where git is not there or the tree has no history."""
    try:
        found = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f", source tree at {found.stdout.strip()}" if found.returncode == 0 else ""


# Lines of lscpu and ldconfig that matter here.
CHOSEN = {"lscpu": "Model name|^CPU\\(s\\)|L[23] cache|NUMA node", "ldconfig": "opencl|nvidia|libcuda"}


def system(report, runner):
    if report.has("system"):
        return
    commands = [["uname", "-a"], ["nvidia-smi"], ["rocm-smi"], ["lscpu"], ["clinfo", "-l"], ["ldconfig", "-p"]]
    text, tried = "", []
    for command in commands:
        if not shutil.which(command[0]):
            continue
        done = execute(command, runner.path("logs", "system_part.txt"), limit_s=max(1, min(20, runner.left())))
        out = done.text
        if command[0] in CHOSEN:
            out = "\n".join(line for line in out.splitlines() if re.search(CHOSEN[command[0]], line, re.I))
        tried.append(" ".join(command) + (f"   (exit status {done.code})" if done.code else ""))
        text += f"--- {' '.join(command)}\n{out}\n"
    for icd in sorted(glob.glob("/etc/OpenCL/vendors/*")):
        text += f"--- {icd}\n{read(icd)}\n"
    with open(runner.path("logs", "system.txt"), "w", encoding="utf-8") as f:
        f.write(text)
    os.remove(runner.path("logs", "system_part.txt"))
    report.add({"name": "system", "group": "system", "state": "well", "code": 0, "signal": 0, "seconds": 0.0, "limit_s": 20, "commands": tried,
                "log": runner.relative(runner.path("logs", "system.txt")), "key": platform.platform(), "telling": [], "evidence": [],
                "text": text.splitlines()[:120]})


def build_steps(c):
    """Set up and compile, where that is not done; none with a build from elsewhere."""
    steps = []
    if not os.path.exists(os.path.join(c.build, "build.ninja")):
        steps.append(Step("set up", "build", ["meson", "setup", c.build, "-Dbuildtype=release"], 600))
    return steps + [Step("build", "build", ["ninja", "-C", c.build], 1800, shown=False)]


# ---- tests ----

def test_step(c, name, limit_s):
    t, golden = c.programs[name], name in GOLDEN
    # CVY_TEST_SHAPE of a test's own goes first
    env = {"CVY_TEST_DEVICE": c.device.id, **({"CVY_TEST_SHAPE": "simt"} if c.device.simt else {}), **t["env"]}
    return Step(f"test {name}", "golden" if golden else "tests", t["cmd"], c.limit(limit_s), reading.of_test, env, shown=False,
                priority=t.get("priority", 0) + (10 if golden else 0))


def tests(c, names, limit_s):
    return [test_step(c, name, limit_s) for name in names if name in c.programs]


def selftest(c, name, *args, limit_s=120):
    return Step(name, "selftest", [c.convoy, "selftest", "--devices", c.device.id, *args], c.limit(limit_s), reading.of_selftest, priority=20)


# ---- stages ----

def data_folder():
    for folder in filter(None, [os.environ.get("CONVOY_DATA"), DEBIAN_DATA]):
        if glob.glob(os.path.join(glob.escape(folder), pack.DATA_FILES[0] + "*")):
            return folder
    return None


def train(c, name, group, model, more, limit_s):
    log = c.runner.path("results", re.sub(r"\W+", "_", name) + ".jsonl")
    data = "fashion-mnist" if data_folder() else "synthetic:6000"

    def key(_):
        return reading.of_log(log, data)
    return Step(name, group, [c.convoy, "train", "--model", model, "--data", data, "--devices", c.device.id, "--log", log, *more], c.limit(limit_s), key)


def contact(c):
    """(many at a time, alone)"""
    weights = os.path.join(c.runner.scratch, "contact.safetensors")
    small = c.small or not c.device.gpu
    many = tests(c, QUICK_TESTS + GOLDEN[:1] + (() if c.small else CONTACT_TESTS), 120) + [selftest(c, "selftest")]
    size = ["--max-steps", "5", "--batch", "32"] if small else ["--max-steps", "60", "--batch", "256"]
    alone = [train(c, "a short training", "train", "lenet" if small else "resnet18", [*size, "--no-eval", "--save", weights], 60),
             c.bench("bench peak", "peak", "peak", *c.time, key=reading.of_peak)]
    return many, alone


def numbers(c):
    rest = [n for suite in pack.SUITES for n, t in c.programs.items() if t["suite"] == suite and n not in GOLDEN + QUICK_TESTS]
    # last those with settings of another processor
    rest.sort(key=lambda n: len(c.programs[n]["env"]))
    many = tests(c, [*QUICK_TESTS, *GOLDEN[:1]] + ([] if c.small else [*GOLDEN[1:], *rest]), 180) + [selftest(c, "selftest")]
    if not c.small:
        many.append(selftest(c, "selftest resnet50", "--model", "resnet50", "--input", "64x64x3", limit_s=240))
    more = ["--max-steps", "3", "--batch", "32", "--no-eval"] if c.small else ["--epochs", "10", "--batch", "256"]
    # the book's run
    return many, [train(c, "ResNet-18, 10 epochs" + (" (shortened)" if c.small else ""), "epochs", "resnet18", [*more, "--lr", "0.1"], 240)]


def speed(c):
    gpu, rates = c.device.gpu, beside.Rates(c)
    many = [] if c.small or not gpu else rates.warm()
    model, first = ("lenet", rates.configurations[:1]) if c.small else ("resnet18", rates.configurations[:1])
    batch = "32" if c.small or not gpu else "256"
    team_batch = batch if c.small else str(2 * int(batch))
    steps = "2" if c.small or not gpu else "20"
    each = ["--model", model, "--steps", steps, "--batch", team_batch]
    alone = rates.first(first) + rates.other_layout(first)
    alone += [c.bench("bench train, two replicas", "team", "train", *each, devices=c.device.id + "*2", key=reading.of_train),
              c.bench("bench train, one device, the same batch", "team", "train", *each, key=reading.of_train)]
    if c.device.cpu:
        alone.append(c.bench("bench train, device and CPU", "team", "train", *each, devices=f"{c.device.id},{c.device.cpu}", key=reading.of_train))
    alone += [c.bench("bench exchange", "exchange", "exchange", *c.time, key=reading.of_exchange)]
    alone += rates.compiled(first)
    others = rates.configurations[1:]
    alone += rates.first(others) + rates.evaluation()
    alone += rates.other_layout(others)
    for math in ("fp32", "tf32") if gpu else ("fp32",):
        budget = 3 if c.small else 60
        alone.append(Step(f"tune --math {math}", "tune", [c.convoy, "tune", "--devices", c.device.id, "--model", model, "--batch", batch, "--math", math,
                                                           "--budget", str(budget), "--quiet"], c.limit(3 * budget + 30), least_s=30))
        alone.append(c.bench(f"bench train {model} {batch} {math}, tuned", "tune", "train", "--model", model, "--batch", batch, "--steps", steps, "--math", math,
                             key=reading.of_train))
    alone += [c.bench("bench ops", "ops", "ops", "--model", model, "--batch", batch, "--algo", "auto", *c.time, key=reading.of_rows, limit_s=120, least_s=15),
              c.bench("bench conv", "conv", "conv", "--model", model, "--batch", batch, *c.time, key=reading.of_rows, limit_s=180, least_s=30)]
    alone += rates.compiled(others)
    if c.device.nvidia:                          # the option is its compiler's
        alone.append(registers(c, model, batch))
    return many, alone


def registers(c, model, batch):
    """What NVIDIA's compiler prints of each kernel; tools/kernel-check reads the same from another compiler."""
    command = ('"$0" bench ops --devices "$2" --model "$3" --batch "$4" --algo auto --time 0.001 --dump-build --json /dev/null 2>"$1"; code=$?; '
               'grep -E "^build: program|ptxas|Function properties|bytes stack|Used" "$1"; exit $code')
    path = c.runner.path("logs", "registers.stderr.txt")
    return Step("registers", "registers", ["sh", "-c", command, c.convoy, path, c.device.id, model, batch], c.limit(120), reading.of_registers,
                {"CVY_BUILD_OPTIONS": "-cl-nv-verbose", "CVY_NO_CACHE": "1"}, least_s=20)


MAKE = {"contact": contact, "numbers": numbers, "speed": speed}
# of the time that is left, for what runs many at a time: the rest measures
SHARE = {"contact": 0.6, "numbers": 0.75, "speed": 0.2}


def run(c, stage, wanted, share=1.0):
    """share: of the time that is left, for this stage."""
    runner, end = c.runner, c.runner.end
    if end != float("inf"):
        runner.end = min(end, runner.end - (1 - share) * runner.left())
    many, alone = MAKE[stage](c)
    many, alone = ([s for s in steps if wanted(s.group)] for steps in (many, alone))
    if stage == "speed" and wanted("networks") and not c.small:
        missing = [name for name, _ in beside.PICTURES if name not in c.networks]
        if missing:
            runner.report.fact(f"networks left out, no .onnx files (--networks DIR, tools/compare/export-networks): {' '.join(missing)}")
    runner.together(many, SHARE[stage] if alone else 1.0)
    runner.alone(alone)
    runner.look_at_hung()
    runner.end = end


