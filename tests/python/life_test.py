#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ends of all kinds: Ctrl-C, closing in any order, the interpreter's end, threads, forks: life_test.py CONVOY GROUP."""
import gc
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref

import numpy as np

from python_test import main, raises

import convoy  # noqa: E402
from convoy import interrupts  # noqa: E402

DATA = "synthetic:320"
BEGIN = f"""import convoy, numpy as np, os, signal, sys, threading, time
def lenet(**more): return convoy.Trainer("lenet", **{{"devices": "0:0", "batch": 64, "init": "he", "lr": 0.05, **more}})
DATA = {DATA!r}
"""


def lenet(**more):
    return convoy.Trainer("lenet", **{"devices": "0:0", "batch": 64, "init": "he", "lr": 0.05, **more})


def run_script(text, code=0, timeout=600):
    """Runs a script in a process of its own; its output."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", BEGIN + text], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == code, f"exit {done.returncode}, expected {code}\n{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class InterruptAt(convoy.Callback):
    """Sends SIGINT to this process at a step."""

    def __init__(self, step):
        self.at, self.last = step, -1

    def on_step(self, result):
        self.last = result.step
        if result.step == self.at:
            os.kill(os.getpid(), signal.SIGINT)


def test_interrupts(folder):
    """Ctrl-C ends a run after the steps under way, with a checkpoint; the trainer goes on, the handlers are the previous ones."""
    path = os.path.join(folder, "ck")
    # a call without callbacks: it waits 20 s for another machine
    lib, ffi = convoy._lib, convoy._ffi
    stop, fleet, begin = ffi.new("cvy_stop *"), ffi.new("cvy_fleet **"), time.monotonic()
    nodes = ffi.new("char[]", f"127.0.0.1:{unused_port()},127.0.0.1:{unused_port()}".encode())
    params = ffi.new("cvy_fleet_params *", {"nodes": nodes, "wait_seconds": 20, "stop": stop})
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with interrupts.Interrupts(stop):
            assert lib.cvy_fleet_meet(params, fleet) == lib.CVY_E_INTERRUPTED
        raise AssertionError("no KeyboardInterrupt")
    except KeyboardInterrupt:
        assert time.monotonic() - begin < 15, "the call waited to its end"
    before, fds = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    run, at = lenet(checkpoint=path), InterruptAt(3)
    raises(KeyboardInterrupt, "", run.fit, DATA, epochs=1000, callbacks=[at], quiet=True)
    assert 3 <= at.last <= 5 and run.history.steps["step"] == list(range(at.last + 1))
    assert any(name.endswith(".safetensors") for name in os.listdir(path)), os.listdir(path)
    assert signal.getsignal(signal.SIGINT) is before and signal.set_wakeup_fd(-1) == -1 and fds == -1
    assert not [thread for thread in threading.enumerate() if thread.name == "convoy-interrupts"]
    assert 0 <= run.evaluate().accuracy <= 1
    run.close()
    # while no callback runs: the main thread is in an evaluation or a step when the signal comes
    with lenet(batch=16) as run:
        timer = threading.Timer(0, lambda: None)

        class Later(convoy.Callback):
            def on_step(self, result):
                nonlocal timer
                if result.step == 0:
                    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
                    timer.start()

        raises(KeyboardInterrupt, "", run.fit, "synthetic:3000", epochs=1000, callbacks=[Later()], quiet=True)
        timer.join()
        # a handler of the program's own is called; without an exception in it the result is returned
        called = []
        signal.signal(signal.SIGINT, lambda number, frame: called.append(number))
        result = run.fit(DATA, epochs=1000, callbacks=[InterruptAt(len(run.history.steps["step"]) + 2)], quiet=True)
        assert called == [signal.SIGINT] and result.stopped
        signal.signal(signal.SIGINT, before)
    # in another thread Ctrl-C is the main thread's; stop ends the run
    with lenet() as run:
        started, results = threading.Event(), []

        class Started(convoy.Callback):
            def on_step(self, result):
                started.set()

        thread = threading.Thread(target=lambda: results.append(run.fit(DATA, epochs=100000, callbacks=[Started()], quiet=True)))
        thread.start()
        started.wait()
        run.stop()
        thread.join()
        assert results[0].stopped and results[0].steps < 500000


def test_signal(folder):
    """As a terminal does it: SIGINT from outside at a random moment ends the process as Python ends it."""
    text = BEGIN + "run = lenet()\nprint('ready', flush=True)\ntry:\n  run.fit(DATA, epochs=1000000, quiet=True)\nexcept KeyboardInterrupt:\n  print('interrupted', flush=True)\n" \
                   "print(len(run.state_dict()), flush=True)\n"
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(random.uniform(1, 3))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (0, "interrupted\n8\n"), (process.returncode, out, err)


def test_gil(folder):
    """Another thread runs while a step is computed."""
    with lenet(batch=320) as run:
        run.fit(DATA, epochs=1, quiet=True)
        counted, ends, longest = 0, threading.Event(), 0.0

        def count():
            nonlocal counted, longest
            while not ends.is_set():
                begin = time.monotonic()
                time.sleep(0.001)
                counted, longest = counted + 1, max(longest, time.monotonic() - begin)

        thread = threading.Thread(target=count)
        thread.start()
        begin = time.monotonic()
        run.fit(DATA, epochs=5, quiet=True)
        seconds = time.monotonic() - begin
        ends.set()
        thread.join()
        assert counted > 5 and longest < max(0.5 * seconds, 0.5), (counted, longest, seconds)


def test_exit(folder):
    """The interpreter's end closes what is open, whatever the order, also while another thread trains."""
    run_script("run = lenet(); run.fit(DATA, epochs=1, quiet=True)")
    run_script("data = convoy.load_data(DATA); a = lenet(); b = lenet(); b.fit(data, epochs=1, quiet=True); a.fit(data, epochs=1, quiet=True); data.close()")
    run_script("run = lenet(); run.fit(DATA, epochs=1, quiet=True); run.me = run; circle = [run]; circle.append(circle)")
    run_script("import atexit\nrun = lenet()\natexit.register(lambda: run.fit(DATA, epochs=1, quiet=True))\n")
    run_script("run = lenet(); run.fit(DATA, epochs=1, quiet=True); sys.exit(3)", code=3)
    run_script("run = lenet(); run.fit(DATA, epochs=1, quiet=True); raise KeyError('end')", code=1)
    run_script(f"""
run = lenet(input_shape=(1, 28, 28), classes=10)
run.fit(DATA, epochs=1, quiet=True)
run.save({os.path.join(folder, "w.safetensors")!r})
model = convoy.Model({os.path.join(folder, "w.safetensors")!r}, devices="0:0")
begun, images = threading.Event(), np.zeros((500, 28, 28), np.uint8)
def predict():
    while True:
        model.predict(images)
        begun.set()
threading.Thread(target=predict, daemon=True).start()
begun.wait()
""")
    out = run_script("""
import atexit
atexit.register(lambda: print("closed:", run.closed))  # runs behind the package's own function
run = lenet()
begun = threading.Event()
class Begun(convoy.Callback):
    def on_step(self, result): begun.set()
def train():
    run.fit(DATA, epochs=1000000, callbacks=[Begun()], quiet=True)
    print("ended")
threading.Thread(target=train, daemon=True).start()
begun.wait()
print("leaving", flush=True)
""")
    assert "leaving" in out and "ended" in out.replace("closed: True", "") , out


def test_ahead(folder):
    """Processes of the program compile kernels before the first step."""
    if len(os.sched_getaffinity(0)) < 2:
        print("skipped: one core")
        return 77
    text = """totals = lambda: convoy._lib.cvy_launch_get_totals()
lenet(batch=32).fit("synthetic:32", epochs=1, max_steps=1, evaluate=False, quiet=True)
print(totals().ahead, totals().ahead_done)
"""
    caches = {name: os.path.join(folder, name) for name in ("POCL_CACHE_DIR", "XDG_CACHE_HOME")}
    for path in caches.values():
        os.makedirs(path)
    os.environ.update(caches)
    os.environ.pop("POCL_KERNEL_CACHE", None)
    asked, done = map(int, run_script(text).split())
    if asked == 0 and "Portable Computing Language" not in repr(convoy.devices()):
        return 77
    assert asked == done > 5, (asked, done)
    assert run_script(text).split() == ["0", "0"], "compiled again"
    return 0


def test_collected(folder):
    """Garbage collection closes trainers and data sets, in circles, too; a closed data set lives as long as a team has it."""
    data = convoy.load_data(DATA)
    run = lenet()
    run.fit(data, epochs=1, quiet=True)
    data.close()
    raises(convoy.ClosedError, "closed", run.fit, data, quiet=True)
    assert run.evaluate().images > 0
    core = weakref.ref(run._core)
    team = run._core.team
    run.me = run
    del run, data
    gc.collect()
    assert core() is None and team.pointer == convoy._ffi.NULL
    # 300 calls in random order on a few objects
    draw, open_runs = random.Random(5), []
    images = np.zeros((8, 28, 28), np.uint8)
    for _ in range(300):
        what = draw.choice(("new", "fit", "evaluate", "predict", "state", "close", "forget", "wrong", "fail"))
        if what == "new" and len(open_runs) < 3:
            open_runs.append(lenet(input_shape=(1, 28, 28), classes=10))
        if not open_runs:
            continue
        run = draw.choice(open_runs)
        try:
            if what == "fit":
                run.fit((images, range(8)) if draw.random() < 0.5 else DATA, epochs=1, max_steps=1, evaluate=draw.random() < 0.5, quiet=True)
            elif what == "evaluate":
                run.evaluate((images, list(range(8))))
            elif what == "predict":
                run.predict(images)
            elif what == "state":
                run.load_state_dict(run.state_dict())
            elif what == "close":
                run.close()
            elif what == "forget":
                open_runs.remove(run)
                run = None
                gc.collect()
            elif what == "wrong":
                raises((convoy.MismatchError, convoy.ClosedError), "", run.predict, images[:, :5])
            elif what == "fail":
                raises((ZeroDivisionError, convoy.ClosedError), "", run.fit, DATA, epochs=1, quiet=True, callbacks=[Failing()])
        except convoy.ClosedError:
            open_runs.remove(run)
    for run in open_runs:
        run.close()


class Failing(convoy.Callback):
    def on_step(self, result):
        return 1 // 0


def child_of_fork(queue):
    try:
        convoy.devices()
        queue.put("worked")
    except convoy.ForkedError as error:
        queue.put(str(error))


def test_fork(folder):
    """A forked child is refused with the reason, and ends; the parent goes on. A child of spawn works."""
    fork = multiprocessing.get_context("fork")
    early = fork.SimpleQueue()
    child = fork.Process(target=child_of_fork, args=(early,))
    child.start()
    assert early.get() == "worked"  # before this process has opened a device
    child.join()
    run = lenet()
    run.fit(DATA, epochs=1, quiet=True)
    late = fork.SimpleQueue()
    child = fork.Process(target=child_of_fork, args=(late,))
    child.start()
    text = late.get()
    child.join()
    assert "spawn" in text and "forked" in text and child.exitcode == 0, (text, child.exitcode)
    for action in ("run.predict(np.zeros((1, 28, 28), np.uint8))", "run.close()", "run.fit(DATA)", "run.state_dict()"):
        out = run_script(f"run = lenet(); run.fit(DATA, epochs=1, quiet=True)\nsys.stdout.flush()\npid = os.fork()\nif pid == 0:\n  try:\n    {action}\n    print('done', flush=True)\n"
                         "  except convoy.ForkedError:\n    print('refused', flush=True)\n  os._exit(0)\nprint(os.waitpid(pid, 0)[1], run.fit(DATA, epochs=1, quiet=True).steps)\n")
        assert out.split() == ["done" if "close" in action else "refused", "0", "10"], (action, out)
    run.close()
    out = run_script("""
run = lenet()
begun = threading.Event()
class Begun(convoy.Callback):
    def on_step(self, result): begun.set()
thread = threading.Thread(target=lambda: run.fit(DATA, epochs=1000000, callbacks=[Begun()], quiet=True))
thread.start()
begun.wait()
pid = os.fork()
if pid == 0:
    begin = time.monotonic()
    run.close()
    os._exit(int(time.monotonic() - begin > 5))
print(os.waitpid(pid, 0)[1], flush=True)
run.stop()
thread.join()
""")
    assert out == "0\n", out


def test_threads(folder):
    """Two trainers in two threads, and two threads with one trainer, which take turns: each has the bits of its run alone."""
    def weights(data, out):
        with lenet() as run:
            run.fit(data, epochs=2, quiet=True)
            out.append(run.state_dict()["9.weight"])

    alone = []
    weights("synthetic:320", alone)
    weights("synthetic:330", alone)
    together = [[], []]
    threads = [threading.Thread(target=weights, args=(f"synthetic:{n}", out)) for n, out in zip((320, 330), together)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(together[0][0], alone[0]) and np.array_equal(together[1][0], alone[1])
    images = np.random.RandomState(1).randint(0, 256, (100, 28, 28)).astype(np.uint8)
    with lenet(input_shape=(1, 28, 28), classes=10) as run:
        wanted, found = run.predict(images), []
        threads = [threading.Thread(target=lambda: found.append(run.predict(images))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4 and all(np.array_equal(one, wanted) for one in found)


if __name__ == "__main__":
    # `fork` needs a process that has opened no device: no look at the devices here, but in a process of its own
    if subprocess.run([sys.executable, "-c", "import convoy, sys; sys.exit(not any(d.usable for d in convoy.devices()))"]).returncode:
        print("skipped: no usable OpenCL device")
        raise SystemExit(77)
    main(globals())
