#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it: test_cli_signals.py CONVOY GROUP   (groups: the functions named test_<group> below)

Training that is interrupted, and what it reads from and writes to. Exit 77 where a group needs a device and there is none."""

import glob
import os
import pty
import re
import shutil
import signal
import subprocess
import time

from cli import call, check, CONVOY, DEVICE, device_times, expect, with_layer, LENET, lines_of, read, read_json, run, SMALL, main, write


class Running:
    """A run to be interrupted; waits until the log has a line with `text`; None: until training begins."""

    def __init__(self, args, log, text, ignored=(), env=None):
        def ignore():
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)

        # a group of its own, as `timeout` makes one
        self.process = subprocess.Popen([CONVOY, *map(str, args), "--log", log], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, start_new_session=True, preexec_fn=ignore, env={**os.environ, **(env or {})})
        end = time.monotonic() + 60
        while text is None:
            line = self.process.stderr.readline()
            if line.startswith("batch ") or not line:
                check(line != "", "training never began")
                return
        while time.monotonic() < end and self.process.poll() is None:
            if os.path.exists(log):
                if text in read(log):
                        return
            time.sleep(0.02)
        check(
            False,
            f"the log never had {text!r}: {self.process.communicate(timeout=5) if self.process.poll() else ''}",
        )

    def send(self, *numbers):
        for number in numbers:
            self.process.send_signal(number)

    def wait(self):
        begin = time.monotonic()
        self.stdout, self.stderr = self.process.communicate(timeout=60)
        return self.process.returncode, time.monotonic() - begin

    def end(self, *numbers):
        self.send(*numbers)
        return self.wait()


def compilers_of(parent):
    """Processes that compile kernels for this one."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            words = read(path).rpartition(")")[2].split()
            if int(words[1]) == parent and "--compile-kernels" in read(os.path.dirname(path) + "/cmdline"):
                found.append(int(path.split("/")[2]))
        except OSError:
            continue
    return found


def is_alive(pid):
    try:
        return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ahead(at):
    """Processes that compile end with the one that started them, however that ends, also while they compile."""
    done = expect(1, "--compile-kernels", stdin=subprocess.DEVNULL)
    check(done.stdout == "" and done.stderr == "", "nothing is asked for", done)
    if len(os.sched_getaffinity(0)) < 2 or "Portable Computing Language" not in expect(0, "devices", "--json", "-").stdout:
        return
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        cold = {"XDG_CACHE_HOME": at(f"cold{number}"), "POCL_CACHE_DIR": at(f"pocl{number}"), "CVY_NO_CACHE": "0"}
        process = subprocess.Popen([CONVOY, "train", *SMALL], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, **cold}, start_new_session=True)
        found = []
        while len(found) < 2 and process.poll() is None:
            found = compilers_of(process.pid)
        check(len(found) >= 2, f"processes that compile: {found}")
        process.send_signal(number)
        check(process.wait(timeout=60) == code, f"exit status {process.returncode} after signal {number}")
        until = time.time() + 60
        while any(map(is_alive, found)) and time.time() < until:
            time.sleep(0.01)
        check(not any(map(is_alive, found)), f"signal {number} leaves {found}")


def test_trained(at):
    """Weights are written as soon as the last step is done: what comes behind it can be killed."""
    save, args = at("w.st"), ["--model", "resnet18", "--data", "synthetic:64:32x32x3", "--devices", DEVICE, "--batch", 32]
    process = subprocess.Popen([CONVOY, "train", *map(str, args), "--max-steps", "2", "--no-eval", "--precise-bn", "1000000", "--save", save],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not os.path.exists(save) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    process.kill()
    check(process.wait() == -signal.SIGKILL and os.path.exists(save), f"no weights behind the last step: {process.communicate()}")
    expect(0, "eval", *args, "--weights", save, out="test acc")


def test_signals(at):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        ck, log, save = at(f"ck{number}"), at(f"log{number}"), at(f"save{number}")
        args = ["train", *SMALL, "--epochs", 100000, "--checkpoint", ck, "--save", save]
        r = Running(args, log, '"step":12,')
        code, _ = r.end(number)
        check(
            code == 130 and r.stdout == "" and "interrupted after step" in r.stderr,
            f"first signal: {code} {r.stdout} {r.stderr}",
        )
        check(glob.glob(ck + "/*.safetensors") and os.path.exists(save), "checkpoint and weights are saved")
        lines = lines_of(log)
        last = max(line["step"] for line in lines if "step" in line)
        check(
            lines[-1] == {"end": {**lines[-1]["end"], "interrupted": True, "steps": last + 1}},
            f"last line: {lines[-1]}",
        )
        if number != signal.SIGINT: continue
        expect(0, *args, "--resume", "--max-steps", last + 3, "--log", log, "--quiet")
        check(max(line["step"] for line in lines_of(log) if "step" in line) == last + 2, "goes on where it stopped")
    # what the run was started to ignore stays so: nohup, a background job of a script
    ignored = (signal.SIGINT, signal.SIGHUP)
    r = Running(["train", *SMALL, "--max-steps", 200, "--no-eval"], at("ignored"), '"step":2,', ignored)
    code, _ = r.end(*ignored, *ignored)
    check(code == 0 and "train loss" in r.stdout, f"ignored signals: {code} {r.stderr}")
    if os.environ.get("CVY_TEST_SANITIZER") == "thread":  # holds signals back until the next blocking call
        return
    # what was drawn on a terminal stays above the handler's line: later text may only go up over what is drawn behind it
    master, slave = pty.openpty()
    process = subprocess.Popen([CONVOY, "train", *SMALL, "--epochs", "100000"], stdout=subprocess.DEVNULL, stderr=slave,
                               env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    text = ""
    while text.count("loss") < 4 and process.poll() is None:
        text += os.read(master, 1 << 16).decode()
    process.send_signal(signal.SIGINT)
    while "interrupted after step" not in text and process.poll() is None:
        text += os.read(master, 1 << 16).decode()
    process.wait(timeout=30)
    os.close(master)
    later = text.partition("ends at once")[2]
    up = re.search(r"\033\[\d+A", later)
    check("interrupted after step" in later and (not up or "epoch" in later[: up.start()]), f"drawn over what stays: {later!r}")
    # before training has begun, the first one ends at once, and takes away what was made for the run
    early = ["--checkpoint", at("early/folder"), "--log", at("early.jsonl"), "--trace", at("early.json")]
    process = subprocess.Popen(
        [CONVOY, "train", *SMALL, "--data", "synthetic:3000000", *early], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until = time.time() + 30
    while not os.path.exists(at("early/folder")) and time.time() < until:
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    text = process.communicate(timeout=30)[1].decode()
    check(
        process.returncode == 130 and "interrupted before the first step; nothing was saved" in text,
        f"a signal while preparing: {process.returncode} {text}",
    )
    check(not glob.glob(at("early*")), f"a signal while preparing leaves {glob.glob(at('early*'))}")


def test_impatience(at):
    """Which second signal ends the run at once. A command that never ends stands for a step of hours."""
    hangs = with_layer("hang=all:250")
    def begin_run(name):
        log = at(name)
        r, size = Running(["train", *SMALL, "--epochs", 100, "--no-eval"], log, '"step":0,', env=hangs), 0
        while size < os.path.getsize(log):
            size = os.path.getsize(log)
            time.sleep(0.5)
        return r

    r = begin_run("one")
    r.send(signal.SIGINT)  # timeout -s INT: the program, then its group
    time.sleep(0.005)
    r.send(signal.SIGINT)
    time.sleep(0.4)
    check(r.process.poll() is None, "two signals of one request: patience")
    code, seconds = r.end(signal.SIGINT)
    check(code == 130 and seconds < 0.5, f"a second Ctrl-C: {code} after {seconds:.1f} s")
    r = begin_run("two")
    r.send(signal.SIGTERM)
    time.sleep(0.2)
    r.send(signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    time.sleep(0.3)
    check(r.process.poll() is None, "other signals within a second: patience")
    time.sleep(0.8)
    code, seconds = r.end(signal.SIGHUP)
    check(code == 130 and seconds < 0.5, f"a signal after a second: {code} after {seconds:.1f} s")


def test_streams(at):
    """Standard streams that are closed, and files that may not grow."""
    few = ["train", *SMALL, "--max-steps", 2, "--no-eval"]
    shell = lambda text, *args: call(["sh", "-c", text, "sh", CONVOY, *args])
    # messages and the result do not land in the log, which would be the next file to be opened
    done = shell('exec "$@" <&- >&- 2>&-', *few, "--log", at("log"))
    check(done.returncode == 0 and "end" in lines_of(at("log"))[-1], "closed streams", done)
    # SIGXFSZ would end it without a word
    done = shell('ulimit -f 100; exec "$@"', *few, "--save", at("w.st"))
    check(done.returncode == 1 and "File too large" in done.stderr and os.listdir(at()) == ["log"], "a file that may not grow", done)
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = run(*few, stdout=full)
    check(done.returncode == 1 and "stdout: cannot be written: No space" in done.stderr, "a result that is lost", done)


def test_terminal(at):
    """A terminal that was stopped (Ctrl-S) stops nothing but itself: steps go on, a device that is lost is left out, signals end the run."""
    for way in ("signal", "continued"):
        log = at(way)
        write(log, "")
        steps = lambda: read(log).count('"step":')
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [CONVOY, "train", *LENET[:4], *["--devices", device_times(2), "--batch", "64", "--epochs", "60", "--log", log]],
            stdout=subprocess.DEVNULL, stderr=slave,
            env={**os.environ, "TERM": "xterm", **with_layer("fail=1:launch:3000:-5")})
        os.close(slave)

        def await_that(what, is_so):
            end = time.monotonic() + 30
            while not is_so() and time.monotonic() < end:
                time.sleep(0.02)
            if not is_so():
                process.kill()
            check(is_so(), f"{way}: {what} ({steps()} steps in the log)")

        await_that("steps", lambda: steps() > 20)
        os.write(master, b"\x13")
        stopped_at = steps()
        await_that("steps go on", lambda: steps() > stopped_at + 100)
        await_that("a lost device is left out", lambda: '"device_lost"' in read(log))
        if way == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            await_that("the run is done", lambda: '"end"' in read(log))
            check(process.poll() is None, "the last lines wait for the terminal")
            os.write(master, b"\x11")
            drawn = b""
            while b"ms a step" not in drawn and process.poll() is None:
                drawn += os.read(master, 1 << 16)
            check(b"is lost in step" in drawn and b"epoch 60/60 loss" in drawn, f"lines that waited: {drawn[-2000:]}")
        await_that("it ends", lambda: process.poll() is not None)
        check(process.returncode == (130 if way == "signal" else 0) and "end" in lines_of(log)[-1], f"{way}: exit {process.returncode}")
        os.close(master)


def test_closing(at):
    """A driver that crashes when the run's objects are released takes nothing along: all files and the result are there."""
    files = ["--log", at("a.jsonl"), "--save", at("a.st"), "--plot", at("a.svg"), "--report", at("a.html"), "--trace", at("a.json"),
             "--checkpoint", at("c")]
    for devices in (DEVICE, f"{DEVICE}*2"):
        shutil.rmtree(at("c"), ignore_errors=True)
        for name in files[1::2]:
            if os.path.isfile(name):
                os.unlink(name)
        done = call([CONVOY, "train", *SMALL, "--epochs", 1, "--devices", devices, *files], env=with_layer(f"die-after={at('a.jsonl')}"))
        check(done.returncode == -signal.SIGKILL, "the layer has killed it at a release", done)
        check(re.fullmatch(r"test acc: .* on \[.*\]\n", done.stdout), "the result line", done)
        check("end" in lines_of(at("a.jsonl"))[-1], "the log's end")
        check(read_json(read(at("a.json"))) is not None and read(at("a.json")).rstrip().endswith("}"), "the whole trace")
        check("</html>" in read(at("a.html")) and "<meta http-equiv" not in read(at("a.html")), "the last page")
        check("</svg>" in read(at("a.svg")), "the figure")
        expect(0, "eval", "--weights", at("a.st"), "--data", "synthetic:640", "-q", out="test acc")
        again = expect(0, "train", *SMALL, "--epochs", 1, "--devices", devices, "--checkpoint", at("c"), "--resume", "-q")
        check("test acc" in again.stdout, "the checkpoint of a finished run", again)


if __name__ == "__main__":
    main(globals())
