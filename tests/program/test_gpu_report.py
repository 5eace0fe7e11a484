#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/gpu-report: what it writes of steps that crash, hang, are wrong or are not done in time: test_gpu_report.py CONVOY GROUP

faults, stages, stopped, torch: with stand-ins for the programs, which need no device. dry, dry_all: stages on PoCL in the shape of a GPU, within
their limits. layer: a crash and a hang of the real program, with the test layer's dump."""
import json
import os
import signal
import subprocess
import sys
import tarfile
import time

from cli import CONVOY, DEVICE, LAYER, ROOT, call, check, main, need_device, read, write

TOOL = os.path.join(ROOT, "tools", "gpu-report")
BUILD = os.path.dirname(os.path.dirname(CONVOY))

# A program convoy that does at once what it is asked for, or what $FAULT says: "WORDS=crash|hang|wrong|silent", the first words of its command.
FAKE_CONVOY = r"""#!{python}
import json, os, signal, sys, time
words = sys.argv[1:]
for fault in filter(None, os.environ.get("FAULT", "").split(";")):
    what, _, how = fault.partition("=")
    if " ".join(words).startswith(what):
        if how == "crash": print("about to release", flush=True); os.kill(os.getpid(), signal.SIGSEGV)
        if how == "hang": print("compiling conv2d_backward", flush=True); time.sleep(1000)
        if how == "wrong": print("  FAILED conv2d n=2 c=3: element 7 is 1.5, must be 2.25"); sys.exit(1)
        if how == "silent": sys.exit(0)
def option(name):
    return words[words.index(name) + 1] if name in words else None
device = dict(id="0:0", usable=True, kind="GPU", name="Stand-in", vendor="NVIDIA", platform_name="NVIDIA CUDA", driver="1")
cpu = dict(device, id="1:0", kind="CPU", vendor="pocl", platform_name="pocl")
peaks = dict(fma_gflops=10, read_gbs=1, write_gbs=1, copy_gbs=1, to_device_gbs=1, to_host_gbs=1, launch_us=1)
row = dict(chosen=True, of_roofline=0.5, ms=1, count=1, flops=1, operation="conv2d", shape="s", **{"pass": "fwd"})
n = len((option("--devices") or "0:0").replace("*2", ",").split(","))
train = dict(img_s=100, step_ms=10, gflops=1, fraction_of_peak=0.1, peak_mib=50, devices=[dict(share=8, math=option("--math") or "fp32", peaks=peaks, rows=[row])] * n,
             team=[dict(exchange_ms=1, bucket_bytes=1 << 20)])
if words[0] == "--version": print("convoy 9.9")
elif words[0] == "devices":
    if option("--json"): json.dump(dict(devices=[device, cpu]), open(option("--json"), "w"))
elif words[0] == "selftest": print("0:0 Stand-in: passed, 3 shapes, 0 wrong, 9 kernels run, 0.1 s")
elif words[0] == "train":
    with open(option("--log"), "w") as f: print(json.dumps(dict(end=dict(steps=5, images_per_second=7, test_acc=0.9))), file=f)
elif words[0] == "bench" and option("--json") not in (None, "/dev/null"):
    if os.path.isdir(os.environ.get("CUDA_CACHE_PATH", "")) or not os.makedirs(os.environ["CUDA_CACHE_PATH"]):
        open(os.path.join(os.environ["CUDA_CACHE_PATH"], words[1]), "w").write("machine code")
    json.dump(train, open(option("--json"), "w"))
"""
FAKE_TEST = "#!/bin/sh\n{}\n"
GOOD = "echo '[  PASSED  ] 4 test(s).'"
WRONG = """echo 'dx: relative error 0.3 in row 2: 0.148 is 1.25, must be 1.5, off 2 bounds
  device: 0:0 Stand-in (simt)
  case:   conv2d n=2 h=7 w=7
  seed:   1
  repeat: CVY_TEST_SEED=1 test_conv2d --case x' >&2
exit 1"""


def fake_build(at, tests):
    """A folder as a build has it: name of a test → shell commands."""
    folder = at("build")
    for sub in ("meson-info", "tools", "tests"):
        os.makedirs(os.path.join(folder, sub), exist_ok=True)
    write(os.path.join(folder, "tools", "convoy"), FAKE_CONVOY.replace("{python}", sys.executable), 0o755)
    listed = []
    for name, commands in tests.items():
        path = os.path.join(folder, "tests", "test_" + name)
        write(path, FAKE_TEST.format(commands), 0o755)
        listed.append({"name": name, "cmd": [path], "env": {"CVY_NO_TUNE": "1"}, "suite": ["convoy:kernel"], "depends": [], "priority": 0})
    write(os.path.join(folder, "meson-info", "intro-tests.json"), json.dumps(listed))
    write(os.path.join(folder, "build.ninja"), "rule none\n  command = true\nbuild all: phony\n")
    return folder


def report(at, *args, code=0, env=None, name="report.md", timeout=200):
    """(Markdown, JSON, names in the archive)"""
    out = at(name)
    begin = time.time()
    done = call([TOOL, "--out", out, *args], env={"FAULT": "", **(env or {})}, timeout=timeout)
    check(done.returncode == code, f"exit {done.returncode}, must be {code}", done)
    check("Traceback" not in done.stderr, "no mistake of its own", done)
    if not os.path.exists(out):
        return "", {}, [], time.time() - begin
    with tarfile.open(out.replace(".md", ".tar.xz")) as tar:
        names = tar.getnames()
    return read(out), json.loads(read(out.replace(".md", ".json"))), names, time.time() - begin


def states(found):
    return {s["name"]: s["state"] for s in found["steps"]}


def has(text, *words):
    for word in words:
        check(word in text, f"the report has {word!r}:\n{text}")


def lacks(text, *words):
    for word in words:
        check(word not in text, f"the report must not have {word!r}:\n{text}")


def test_faults(at):
    """A crash, a hang, a wrong result, a slow compile: each is named, none is well, and the steps behind them run."""
    build = fake_build(at, {"eltwise": GOOD, "launch": "kill -SEGV $$", "conv2d": WRONG, "update": "echo compiling; sleep 1000", "linear": "exit 0",
                            "reduce": "echo 'no Fashion-MNIST: in /x' >&2; exit 77"})
    faults = "train=crash;bench peak=hang"
    text, found, names, seconds = report(at, "--stage", "contact", "--build", build, "--patience", "0.08", code=1, env={"FAULT": faults})
    want = {"selftest": "well", "test eltwise": "well", "test launch": "crashed", "test conv2d": "wrong", "test update": "hung", "test linear": "wrong",
            "test reduce": "skipped", "a short training": "crashed", "bench peak": "hung"}
    check(want.items() <= states(found).items(), f"states: {states(found)}")
    has(text, "SIGSEGV after", "exit status 139", "about to release", "case:   conv2d n=2 h=7 w=7", "1.25, must be 1.5", "compiling conv2d_backward", "not done after its",
        "it ran no test", "skipped: reduce: no Fashion-MNIST: in /x", "1 well: eltwise", "No backtrace: the test layer is not there", "2 hung")
    for word in ("system call", "thread"):
        has(text, word)                          # of what hangs, where it waits
    check({"report/logs/test_conv2d.txt", "report/logs/bench_peak.txt", "report.json", "report.md"} <= set(names), f"archive: {names}")
    check(seconds < 60, f"{seconds:.0f} s")

    # an exit status of 0 is not enough
    text, found, *_ = report(at, "--only", "train", "peak", "selftest", "--build", build, code=1, env={"FAULT": "train=silent;bench peak=silent;selftest=wrong"})
    check({"a short training": "wrong", "bench peak": "wrong", "selftest": "wrong"}.items() <= states(found).items(), f"states: {states(found)}")
    has(text, "the log cannot be read", "its result cannot be read", "element 7 is 1.5, must be 2.25")
    # nor is a step that failed in an earlier run done again without being named
    again = ["--build", build, "--resume", at("report.json")]
    text, found, *_ = report(at, "--stage", "contact", *again, "--patience", "0.08", code=1, name="more.md")
    check(states(found)["a short training"] == "wrong" and states(found)["test eltwise"] == "well", f"states: {states(found)}")
    text, found, *_ = report(at, "--only", "train", "peak", *again, code=1, name="more.md")
    check(states(found)["a short training"] == "well" and states(found)["selftest"] == "wrong", f"states: {states(found)}")


def test_stages(at):
    """All stages with their figures; caches are taken along; little time, and the rest later; a device that is not there."""
    build = fake_build(at, {"eltwise": GOOD, "golden": GOOD, "update": GOOD})
    text, found, names, _ = report(at, "--build", build, "--quick")
    check(set(states(found).values()) == {"well"}, f"states: {states(found)}")
    has(text, "| bench train, device and CPU | 100.0 img/s", "images 8 + 8", "| a short training |", "nvidia 0.0 MB: report.caches.tar.xz", "3 well: ")
    check(any(n.startswith("report/results/") for n in names) and not any("safetensors" in n for n in names), f"archive: {names}")
    text, found, *_ = report(at, "--build", build, "--quick", "--stage", "speed", "--caches", at("report.caches.tar.xz"), name="second.md")
    has(text, "kernel caches at the start: convoy 0 files, nvidia ")
    text, found, _, seconds = report(at, "--build", build, "--stage", "contact", "--limit", "16", env={"FAULT": "selftest=hang"}, name="short.md")
    check(states(found)["selftest"] == "no time" and seconds < 22, f"{seconds:.0f} s, states: {states(found)}")
    has(text, "## What has not run", "- selftest: ended after", "not begun: ")
    text, found, *_ = report(at, "--build", build, "--stage", "contact", "--resume", at("short.json"), name="later.md")
    check(states(found)["selftest"] == "well" and states(found)["bench peak"] == "well", f"states: {states(found)}")
    lacks(text, "What has not run")
    text, found, *_ = report(at, "--build", build, "--device", "7:0", code=1, name="none.md")
    has(text, "NO DEVICE 7:0; there are: 0:0 Stand-in", "Nothing else was done")
    for words, why in ((["--caches", TOOL], "--caches"), (["--limit", "0"], "--limit 0: expected a number above 0"), (["--only", "nothing"], "the groups are: system"),
                       (["--networks", at()], "expected .onnx files"), (["--resume", TOOL], "--resume")):
        done = call([TOOL, "--build", build, "--out", at("wrong.md"), *words])
        check(done.returncode == 2 and why in done.stderr and "Traceback" not in done.stderr, f"{words}: {why}", done)


def test_stopped(at):
    """A signal, and no time for anything: what is there by then is written, and --resume goes on."""
    build = fake_build(at, {"eltwise": GOOD, "update": "sleep 1000"})
    child = subprocess.Popen([TOOL, "--build", build, "--stage", "contact", "--out", at("cut.md")], env={**os.environ, "FAULT": ""}, stdout=subprocess.DEVNULL)
    until = time.time() + 60
    while time.time() < until and not (os.path.exists(at("cut.json")) and "test eltwise" in read(at("cut.json"))):
        time.sleep(0.1)
    names = []
    while time.time() < until and "cut/logs/test_eltwise.txt" not in names:
        with tarfile.open(at("cut.tar.xz")) as tar:      # as it is while it runs
            names = tar.getnames()
    check("cut/logs/test_eltwise.txt" in names, f"what has ended is soon in the archive: {names}")
    child.send_signal(signal.SIGTERM)
    check(child.wait(timeout=30) == 1, f"exit status {child.returncode}")
    has(read(at("cut.md")), "Interrupted (SIGTERM)", "1 well: eltwise")
    check("test update" not in states(json.loads(read(at("cut.json")))), "what was stopped is not written down as ended")


FAKE_SIDE = r"""#!{python}
import json, os, signal, sys, time
print(json.dumps(dict(done=True, torch="2.99", cuda=True, device="Stand-in")), flush=True)
for line in sys.stdin:
    r = json.loads(line)
    if r["math"] == "tf32" and r["layout"] == "nhwc" and r["modes"][0] == "eager": os.kill(os.getpid(), signal.SIGSEGV)
    if r["math"] == "bf16" and r["layout"] == "nchw" and r["modes"][0] == "eager": time.sleep(1000)
    for mode in r["modes"]:
        row = dict(mode=mode, img_s=200 if mode == "graph" else 50, ms=1, mib=10)
        print(json.dumps(dict(mode=mode, failed="no compiler here") if "compile" in mode else row), flush=True)
    print(json.dumps(dict(done=True)), flush=True)
"""


def test_torch(at):
    """PyTorch in one process beside Convoy: the best way counts; a way that fails, a process that dies or hangs is a row with its reason."""
    build, python = fake_build(at, {"eltwise": GOOD}), at("python")
    write(python, FAKE_SIDE.replace("{python}", sys.executable), 0o755)
    text, found, *_ = report(at, "--build", build, "--quick", "--stage", "speed", "--torch", "--python", python, "--patience", "0.1", code=1)
    has(text, "| lenet | 32 | train | fp32 | 100 (3 rounds, ±0.0 %) | 50 | 200", "| graph nchw |", "**0.50**", "(3 rounds, ±0.0 %) (fp32)",
        "lenet 32 train fp32 compile nhwc: no compiler here", "the process died (SIGSEGV)", "lenet 32 train bf16 eager+graph nchw: not done after", "PyTorch 2.99 on Stand-in")
    got = states(found)
    check(got["PyTorch lenet 32 train tf32 nhwc eager+graph"] == "crashed" and got["PyTorch lenet 32 train bf16 nchw eager+graph"] == "hung" and
          got["PyTorch lenet 32 train fp32 nchw compile+compile-graph"] == "wrong" and got["bench train lenet 32 tf32, third time"] == "well", f"states: {got}")
    text, found, *_ = report(at, "--build", build, "--quick", "--only", "torch", "--torch", "--python", "/bin/false", name="none.md")
    has(text, "pip install torch numpy")


def dry(at, *stages):
    """Stages on PoCL in the shape of a GPU: each within its limit, and steps that ended are well."""
    need_device()
    caches = at("caches")
    os.makedirs(caches)
    for stage, limit in stages:
        text, found, names, seconds = report(at, "--device", "cpu" if DEVICE == "auto" else DEVICE, "--quick", "--stage", stage, "--limit", str(limit), "--build", BUILD,
                                             "--caches", caches, env={"CVY_FORCE_SHAPE": "simt"}, name=stage + ".md")
        check(seconds < limit + 5, f"{stage}: {seconds:.0f} s, limit {limit}")
        check(set(states(found).values()) <= {"well", "no time", "skipped"} and states(found)["devices"] == "well", f"{stage}: {states(found)}")
        check("devices in words" in states(found) and len(found["steps"]) + len(found["left_out"]) > 6, f"{stage}: {found['left_out']}")


def test_dry(at):
    dry(at, ("contact", 25))


def test_dry_all(at):
    dry(at, ("contact", 90), ("numbers", 60), ("speed", 120))


def test_layer(at):
    """The real program, killed by SIGSEGV (twice: LLVM's handler, which PoCL brings, returns from the first that is sent) and hanging: the report has
    the last calls and backtraces."""
    need_device()
    if b"dump-after" not in open(LAYER, "rb").read():
        print("the test layer does not write backtraces")
        sys.exit(77)
    build = fake_build(at, {"eltwise": GOOD})
    os.symlink(LAYER, os.path.join(build, "tests", "test_layer.so"))
    # bench peak is the real one: it is killed once it has begun, or hangs at its command 3; the rest is the stand-in
    wrapper = os.path.join(build, "tools", "convoy")
    os.rename(wrapper, wrapper + ".fake")
    write(wrapper, f"""#!/bin/sh
case "$1 $2" in
"bench peak") {CONVOY} bench peak --devices {DEVICE} --time 5 & p=$!; {{ sleep 6; kill -SEGV $p; sleep 3; kill -SEGV $p; }} 2>/dev/null & wait $p; exit $?;;
"train --model") OPENCL_LAYERS={LAYER} CVY_LAYER="hang=all:3,$CVY_LAYER" exec {CONVOY} train --model lenet --data synthetic:640 --devices {DEVICE} --max-steps 9 --no-eval;;
esac
exec {wrapper}.fake "$@"
""", 0o755)
    text, found, names, _ = report(at, "--only", "peak", "train", "--build", build, "--patience", "0.5", code=1, timeout=400)
    check(states(found)["bench peak"] == "crashed" and states(found)["a short training"] == "hung", f"states: {states(found)}")
    check({"report/dumps/bench_peak.txt", "report/dumps/a_short_training.txt"} <= set(names), f"archive: {names}")
    has(text, "Once more with the test layer: crashed, SIGSEGV", "Once more with the test layer: ", "--- crashed thread", "--- the last OpenCL calls", "bench_peak_main",
        "clFinish", "cvy_team_create", "Its threads at the limit")


if __name__ == "__main__":
    main(globals(), without_device=("faults", "stages", "stopped", "torch", "dry", "dry_all", "layer"))
