# SPDX-License-Identifier: MIT
"""What the tests of the program share (test_cli*.py): how it is run, what is expected of it. Python's own modules only."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

CONVOY = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "convoy"
LAYER = os.path.join(os.path.dirname(os.path.dirname(CONVOY)), "tests", "test_layer.so")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEVICE = os.environ.get("CVY_TEST_DEVICE", "auto")
LENET = ["--model", "lenet", "--data", "synthetic:640", "--devices", DEVICE]
# 640 images in batches of 64: 10 steps per epoch
SMALL = LENET + ["--batch", "64", "--init", "he"]
# A folder without OpenCL drivers: where a test must not get as far as using a device
NO_DEVICE = {"OCL_ICD_VENDORS": os.path.join(ROOT, "tests", "examples")}
failures = 0
# nohup and background jobs of a script ignore these signals, and the program would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)


def call(words, env=None, stdout=subprocess.PIPE, timeout=120, **more):
    return subprocess.run(list(map(str, words)), stdout=stdout, stderr=subprocess.PIPE, text=True, errors="replace", timeout=timeout,
                          env={**os.environ, **(env or {})}, **more)


def run(*args, **more):
    return call([CONVOY, *args], **more)


def check(ok, what, done=None):
    global failures
    if ok:
        return
    failures += 1
    print("FAILED:", what)
    if done is not None:
        print("  command:", " ".join(done.args[1:]), "\n  exit:", done.returncode, "\n  stdout:", done.stdout, "\n  stderr:", done.stderr)


def expect(code, *args, err=(), out=(), **kw):
    """Runs, checks exit status (None: any) and that each text is in stderr or stdout."""
    done = run(*args, **kw)
    check(code is None or done.returncode == code, f"exit {done.returncode}, must be {code}", done)
    for text in [err] if isinstance(err, str) else err:
        check(text in done.stderr, f"stderr lacks {text!r}", done)
    for text in [out] if isinstance(out, str) else out:
        check(text in done.stdout, f"stdout lacks {text!r}", done)
    return done


def need_device():
    done = run("devices")
    if "No usable OpenCL device" in done.stderr:
        print("no usable OpenCL device")
        sys.exit(77)
    check(done.returncode == 0, "devices", done)


def first_device():
    """One device's name for the selector, as run lines have it."""
    devices = json.loads(expect(0, "devices", "--json", "-").stdout)["devices"]
    return next(d["id"] for d in devices if d["usable"]) if DEVICE == "auto" else DEVICE


def device_times(n):
    """The selector of n replicas of one device."""
    return f"{first_device()}*{n}"


def with_layer(words):
    """Environment in which the test layer (tests/support/layer.c) does what the words say."""
    return {"OPENCL_LAYERS": LAYER, "CVY_LAYER": words}


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def read_bytes(path):
    with open(path, "rb") as f:
        return f.read()


def read_json(text):
    return json.loads(text, parse_constant=lambda name: 1 / 0)  # NaN and Infinity are no JSON


def lines_of(path):
    with open(path, encoding="utf-8") as f:
        return [read_json(line) for line in f]


def write(path, text, mode=None):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    if mode is not None:
        os.chmod(path, mode)


def wrong_kernels(folder, *changes):
    """Environment with a copy of the kernels in which (file, pattern, text) are changed."""
    shutil.copytree(os.path.join(ROOT, "cl"), folder)
    for file, pattern, text in changes:
        path = os.path.join(folder, file)
        changed, n = re.subn(pattern, text, read(path))
        check(n > 0, f"{file} has {pattern} to change")
        write(path, changed)
    return {"CVY_CL_DIR": folder}


def same(one, other, what, done=None):
    """Two files hold the same bytes."""
    check(read_bytes(one) == read_bytes(other), f"{what}: {one} and {other} differ", done)


def weights_header(path):
    """Of a safetensors file: {name: {"dtype", …}}, and "__metadata__"."""
    with open(path, "rb") as f:
        return json.loads(f.read(int.from_bytes(f.read(8), "little")))


def facts_of(path):
    """What a weights file says of its network."""
    return json.loads(weights_header(path)["__metadata__"]["convoy"])


def write_idx(dir, n):
    """n training and n test images of 28x28, in ten classes."""
    for name, head, body in [("images-idx3", [0x803, n, 28, 28], [i * 7 % 251 for i in range(n * 784)]),
                             ("labels-idx1", [0x801, n], [i % 10 for i in range(n)])]:
        for part in ("train", "t10k"):
            with open(os.path.join(dir, f"{part}-{name}-ubyte"), "wb") as f:
                f.write(b"".join(v.to_bytes(4, "big") for v in head) + bytes(body))


def main(tests, without_device=()):
    """Runs the group that the command line names, tests["test_<group>"], with a function for paths in an empty folder. All but these
    groups need a device."""
    group = sys.argv[2]
    if group not in without_device:
        need_device()
    with tempfile.TemporaryDirectory() as dir:
        tests["test_" + group](lambda *names: os.path.join(os.path.realpath(dir), *names))
    sys.exit(1 if failures else 0)
