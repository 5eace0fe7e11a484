#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/program/hostile.py: odd surroundings, how a run is started in them, and the rules by which it is judged."""

import collections
import glob
import gzip
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import xml.dom.minidom

LIMIT_S = float(os.environ.get("CVY_HOSTILE_LIMIT_S", "120"))  # a run takes 0.1 to 2 s; more than this is a hang
MEMORY_MIB = 1024  # the most that a small damaged file may cost
SANITIZER = os.environ.get("CVY_TEST_SANITIZER")

# ---- surroundings ---------------------------------------------------------------------------------------------------

ENVIRONMENTS = [
    {"CVY_FORCE_STAGING": "1"}, {"CVY_MEMORY_LIMIT_MIB": "64"}, {"CVY_MEMORY_LIMIT_MIB": "1"}, {"CVY_MEMORY_LIMIT_MIB": "nan"},
    {"CVY_MEMORY_LIMIT_MIB": "-1"}, {"CVY_MEMORY_LIMIT_MIB": "9" * 30}, {"CVY_NO_CACHE": "1"}, {"CVY_NO_TUNE": "1"},
    {"CVY_FORCE_SHAPE": "nonsense"}, {"CVY_CLBLAST": "none", "CVY_CLFFT": "none"}, {"CVY_CLBLAST": "/dev/null"},
    {"CVY_CL_DIR": "/nonexistent"}, {"CVY_FORCE_MATRIX": "nonsense"}, {"TERM": "dumb"}, {"TERM": None}, {"HOME": None},
    {"HOME": "/proc/x", "XDG_CACHE_HOME": "/proc/x"}, {"HOME": None, "XDG_CACHE_HOME": None}, {"XDG_CACHE_HOME": "relative"},
    {"LC_ALL": "de_DE.UTF-8"}, {"LC_ALL": "nonsense"}, {"LC_ALL": "C", "LANG": "tr_TR"}, {"COLUMNS": "0"}, {"COLUMNS": "99999999999"},
    {"CONVOY_DATA": "/dev/zero"}, {"TMPDIR": "/nonexistent"}, {"OCL_ICD_VENDORS": "/nonexistent"}, {"PATH": ""},
]
LIMITS = [
    ("FSIZE", 0), ("FSIZE", 100), ("FSIZE", 65536), ("FSIZE", 200000), ("NOFILE", 4), ("NOFILE", 6), ("NOFILE", 9), ("NOFILE", 16),
    ("AS", 300 << 20), ("AS", 600 << 20), ("AS", 1200 << 20),
]
ODD_FILES = [
    {"closed": (0,)}, {"closed": (1,)}, {"closed": (2,)}, {"closed": (0, 1, 2)}, {"stdout": "/dev/full"}, {"stdout": "broken pipe"},
    {"stderr": "/dev/full"}, {"stderr": "broken pipe"},
]

Done = collections.namedtuple("Done", "command code out err seconds rss_mib hung stack sent before after")
Command = collections.namedtuple("Command", "args env closed stdout stderr limit gone signal")


def command(args, env=None, closed=(), stdout="", stderr="", limit=None, gone=False, signal=None):
    return Command(list(args), dict(env or {}), closed, stdout, stderr, limit, gone, signal)


def look(folder):
    """{path: what it is}, to see whether a run touched anything."""
    seen = {}
    for root, folders, files in os.walk(folder):
        for name in files + folders:
            path = os.path.join(root, name)
            info = os.lstat(path)
            seen[os.path.relpath(path, folder)] = (
                "folder" if name in folders and not os.path.islink(path) else (info.st_size, info.st_mtime_ns, info.st_ino)
            )
    return seen


class Stage:
    """The folders of all runs: what they are given, caches that are filled once, and a folder for each."""

    def __init__(self, convoy, work):
        self.convoy, self.work = convoy, work
        self.given = os.path.join(work, "given")
        self.env = {
            k: v
            for k, v in os.environ.items()
            if k in ("PATH", "LD_LIBRARY_PATH", "OCL_ICD_VENDORS", "POCL_DEVICES", "RUSTICL_ENABLE") or "SAN" in k
        }
        # a run under limits may spoil what a driver compiles: not in the user's own cache
        self.env.update(
            HOME=os.path.join(work, "home"), XDG_CACHE_HOME=os.path.join(work, "cache"), TERM="xterm",
            POCL_CACHE_DIR=os.environ.get("POCL_CACHE_DIR", os.path.join(work, "pocl")),
        )
        shutil.rmtree(self.given, ignore_errors=True)
        for folder in ("given/data", "given/folder", "home", "cache", "pocl"):
            os.makedirs(os.path.join(work, folder), exist_ok=True)
        devices = self.run(command(["devices", "--json", "-"]), self.given)
        usable = [d["id"] for d in json.loads(devices.out or '{"devices": []}')["devices"] if d["usable"]]
        if not usable:
            sys.exit(77)
        self.device, self.teams = usable[0], [usable[0], "auto", "cpu", usable[0] + "*2", usable[0] + "*3"]
        if self.run(command(self.small(1) + ["--devices", self.device + "/1+1"]), self.given).code == 0:
            self.teams.append(self.device + "/1+1")
        self.fill()

    def small(self, steps):
        return ["train", "--model", "lenet", "--data", "synthetic:64", "--batch", "32", "--max-steps", str(steps), "--init", "he"]

    def fill(self):
        """Everything that runs are given; kernels are compiled here."""
        at = lambda name: os.path.join(self.given, name)
        rng = random.Random(1)
        for kind, n in (("train", 64), ("t10k", 16)):
            with open(at(f"data/{kind}-images-idx3-ubyte"), "wb") as f:
                f.write(struct.pack(">IIII", 0x803, n, 28, 28) + rng.randbytes(n * 784))
            with open(at(f"data/{kind}-labels-idx1-ubyte"), "wb") as f:
                f.write(struct.pack(">II", 0x801, n) + bytes(i % 10 for i in range(n)))
        with open(at("data/t10k-images-idx3-ubyte"), "rb") as f, gzip.open(at("data/t10k-images-idx3-ubyte.gz"), "wb") as packed:
            packed.write(f.read())
        os.remove(at("data/t10k-images-idx3-ubyte"))
        with open(at("plain"), "w") as f:
            f.write("a plain file\n")
        open(at("empty"), "w").close()
        with open(at("base.json"), "w") as f:
            f.write('{"version": "0", "word": "ops", "devices": []}\n')
        for algo in ("auto", "winograd2,direct"):
            shutil.rmtree(at("ckpt"), ignore_errors=True)
            args = self.small(2) + ["--save", "weights.st", "--checkpoint", "ckpt", "--conv-algo", algo]
            done = self.run(command(args), self.given)
            if done.code != 0:
                sys.exit(f"hostile: a plain run fails: {done.err}")

    def folder(self, name):
        """A run's own folder, with everything it is given in it."""
        outer = os.path.join(self.work, name)
        shutil.rmtree(outer, ignore_errors=True)
        inner = os.path.join(outer, "in")
        shutil.copytree(self.given, inner, symlinks=True)
        at = lambda name: os.path.join(inner, name)
        os.mkfifo(at("fifo"))
        os.mkdir(at("sub"))
        for link, to in (("dangling", "nowhere/x"), ("loop", "loop"), ("link", "real")):
            os.symlink(to, at(link))
        here = os.getcwd()
        os.chdir(inner)  # a socket's path is short
        with socket.socket(socket.AF_UNIX) as s:
            s.bind("socket")
        os.chdir(here)
        for name in ("there", "real"):
            shutil.copy(at("plain"), at(name))
        return inner

    def start(self, c, folder):
        """The process, and the files that hold what it says."""
        outer = os.path.dirname(folder)
        number = len(glob.glob(os.path.join(glob.escape(outer), "out.*")))
        files = [os.path.join(outer, f"{name}.{number}") for name in ("out", "err")]
        streams = []
        for path, odd in zip(files, (c.stdout, c.stderr)):
            streams.append(open(path, "wb"))
            if odd == "broken pipe":
                r, w = os.pipe()
                os.close(r)
                streams[-1] = os.fdopen(w, "wb")
            elif odd:
                streams[-1] = open(odd, "wb")

        def prepare():
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if c.gone:
                os.mkdir("gone")
                os.chdir("gone")
                os.rmdir("../gone")
            if c.limit:
                which = getattr(resource, "RLIMIT_" + c.limit[0])
                resource.setrlimit(which, (c.limit[1], c.limit[1]))
            for fd in c.closed:
                os.close(fd)

        env = {k: v for k, v in {**self.env, **c.env}.items() if v is not None}
        process = subprocess.Popen(
            [self.convoy, *c.args], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=streams[0], stderr=streams[1], preexec_fn=prepare
        )
        for stream in streams:
            stream.close()
        return process, files

    def finish(self, c, folder, process, files, before, began):
        """Waits, sends the command's signals; the result."""
        waiting, sent, hung, stack = list(c.signal or []), [], False, ""
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            now = time.monotonic() - began
            if waiting and now >= waiting[0][1]:
                number = waiting.pop(0)[0]
                sent.append((number, catches(process.pid, number)))
                os.kill(process.pid, number)  # Popen's own would reap a process that has just ended, and wait4 not find it
            if now > LIMIT_S:
                hung, stack = True, stack_of(process.pid)
                os.kill(process.pid, signal.SIGKILL)
                pid, status, usage = os.wait4(process.pid, 0)
                break
            time.sleep(0.004 if now < 1 else 0.02)
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for path in files:
            with open(path, encoding="utf-8", errors="replace") as f:
                texts.append(f.read())
        return Done(
            c, process.returncode, *texts, time.monotonic() - began, usage.ru_maxrss / 1024, hung, stack, sent, before, look(folder)
        )

    def run(self, c, folder):
        return self.run_all([c], folder)[0]

    def run_all(self, commands, folder, rng=None):
        """Several at once in one folder."""
        before, running = look(folder), []
        for c in commands:
            began = time.monotonic()
            running.append((c, *self.start(c, folder), began))
            if rng:
                time.sleep(rng.choice([0, 0, 0.02, 0.2]))
        return [self.finish(c, folder, process, files, before, began) for c, process, files, began in running]


def catches(pid, number):
    """Whether a process has a handler for a signal by now, or ignores it."""
    try:
        with open(f"/proc/{pid}/status") as f:
            text = f.read()
        return any(int(re.search(field + r":\s*(\w+)", text).group(1), 16) >> (number - 1) & 1 for field in ("SigCgt", "SigIgn"))
    except (OSError, AttributeError):
        return False


def stack_of(pid):
    if not shutil.which("gdb"):
        return "(no gdb)"
    try:
        return subprocess.run(
            ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"], capture_output=True, text=True, timeout=60
        ).stdout[-6000:]
    except subprocess.TimeoutExpired:
        return "(gdb hangs too)"


# ---- the rules ------------------------------------------------------------------------------------------------------


def read_json(text):
    def no(name):
        raise ValueError(name + " is no JSON")

    return json.loads(text, parse_constant=no)


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack("<Q", data[:8])
    header, end = read_json(data[8 : 8 + n].decode()), 0
    for name, tensor in sorted(((k, v) for k, v in header.items() if k != "__metadata__"), key=lambda item: item[1]["data_offsets"]):
        if tensor["data_offsets"][0] != end:
            raise ValueError(f"a hole before {name}")
        end = tensor["data_offsets"][1]
    if 8 + n + end != len(data):
        raise ValueError("its length is wrong")


def read_lines(path):
    with open(path, encoding="utf-8") as f:
        return [read_json(line) for line in f]


def read_json_file(path):
    with open(path, encoding="utf-8") as f:
        return read_json(f.read())


READERS = {"save": read_safetensors, "log": read_lines, "plot": xml.dom.minidom.parse, "trace": read_json_file, "json": read_json_file}
RESULTS = {
    "train": r"(test acc: [01]\.\d\d|train loss: [\d.]+( \(last step\))?|no step was left of \d+|not training \(--no-sync\))"
    r"(, \d+\.\d (sec/epoch|img/s))? on \[[^\n]+\]\n",
    "eval": r"test acc: [01]\.\d\d \(\d+ of \d+\), \d+\.\d sec on \[[^\n]+\]\n",
}
STRAYS = re.compile(r"\.tmp|\.try\.")


class Judge:
    """The rules. Each method looks at one process and yields what is wrong with it."""

    def __init__(self, done, values=None, wrong=()):
        self.d, self.c, self.wrong = done, done.command, list(wrong)
        self.given = {}
        for at, word in enumerate(self.c.args):
            if word.startswith("--"):
                name, _, value = word[2:].partition("=")
                self.given[name] = value or (self.c.args[at + 1] if at + 1 < len(self.c.args) and not word.endswith("=") else "")
        self.said = (done.err + done.out) if 2 not in self.c.closed and not self.c.stderr and (self.c.limit or [0])[0] != "FSIZE" else None  # None: nobody heard it

    def all(self):
        rules = [self.ends, self.words, self.leftovers, self.wrong_use, self.failure, self.success]
        return [text for rule in rules for text in rule()]

    def ends(self):
        code, d = self.d.code, self.d
        if d.hung:
            yield f"hangs ({LIMIT_S:.0f} s)\n{d.stack}"
            return
        if code < 0 and any(number == -code and (number == signal.SIGKILL or not caught) for number, caught in d.sent):
            return
        if code == 127 and "shared libraries" in d.err or self.c.limit and code in (-signal.SIGABRT, 134) and driver_gave_up(d.err):
            return  # the loader's or the driver's way to say that there is no memory
        allowed = {0, 1, 2, 130} if d.sent else {0, 1, 2}
        if code not in allowed:
            yield f"ends with {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        if d.rss_mib > MEMORY_MIB and not SANITIZER:
            yield f"takes {d.rss_mib:.0f} MiB of memory"

    def words(self):
        text = self.d.err + self.d.out
        words = {part for word in self.c.args for part in (word, word.partition("=")[2])}
        for word in sorted({*words, *filter(None, self.c.env.values())}, key=len, reverse=True):
            text = text.replace(word, "") if len(word) > 2 else text
        if "(null)" in text:
            yield "says (null)"
        if re.search(r"(?<!\w)-nan\b", text, re.I):
            yield "says -nan"
        if self.d.code == 0 and "allow-nan" not in self.given and re.search(r"(?<![\w.-])(nan|inf)(?!\w)", text, re.I):
            yield "says nan or inf without --allow-nan"
        if "\033" in text:
            yield "escape sequences, and stderr is no terminal"
        if "runtime error:" in text or "AddressSanitizer" in text or "ThreadSanitizer" in text:
            yield "a sanitizer reports"
        errors = collections.Counter(re.sub(r"\d+", "N", line)[:60] for line in self.d.err.splitlines() if "error" in line)
        for line, n in errors.items():
            if n > 3:
                yield f"{n} lines of errors for one cause: {line}"
        if len(self.d.err.splitlines()) > 150:
            yield f"{len(self.d.err.splitlines())} lines on stderr"

    def leftovers(self):
        if self.d.code < 0 or len(self.d.sent) > 1 or any(number == signal.SIGKILL for number, _ in self.d.sent):
            return
        for name, what in self.d.after.items():
            if name.split("/")[0] == "cache":  # where scene_one puts what tune finds
                continue
            if name not in self.d.before and STRAYS.search(name):
                yield f"leaves {name!r}"
            if (
                name not in self.d.before
                and what == "folder"
                and self.d.code != 0
                and not any(other.startswith(name + "/") for other in self.d.after)
            ):
                yield f"leaves the empty folder {name!r}"

    def wrong_use(self):
        d = self.d
        if "OCL_ICD_VENDORS" in self.c.env:
            self.wrong = [pair for pair in self.wrong if pair[0].kind != "selector"]  # no device at all is a failure, not wrong use
        if self.wrong and d.code != 2 and not d.sent and not self.c.limit and d.code >= 0:
            yield "exit status %d, must be 2: --%s %r is wrong" % (d.code, self.wrong[0][0].name, self.wrong[0][1][:60])
        if d.code != 2:
            return
        if d.before != d.after:
            yield f"refused, yet touched {sorted(set(d.before.items()) ^ set(d.after.items()))[:3]}"
        if self.said is None:
            return
        if not d.err.strip():
            yield "refused without a word"
        elif self.wrong:
            if not any(value[:30] in d.err if value.strip() else "--" + option.name in d.err for option, value in self.wrong):
                yield f"the message names none of {[('--' + o.name, v[:30]) for o, v in self.wrong]}"
        elif self.c.args and not any(part[:30] in d.err for part in self.named()):
            yield "the message names nothing of the command line"

    def named(self):
        """What a message about wrong use may name: words, options, values, the environment."""
        words = {part for word in self.c.args for part in (word, *word.split("=", 1))} | {"CVY_"} & set(k[:4] for k in self.c.env)
        return {word or "''" for word in words}

    def failure(self):
        if self.d.code == 1 and self.said is not None and not re.search(r"convoy|error", self.said):
            yield "fails without a word"

    def success(self):
        d, verb = self.d, self.c.args[0] if self.c.args else ""
        if d.code != 0 or "help" in self.given or {"-h", "--version", "--help"} & set(self.c.args):
            if d.code == 0 and self.c.stdout in ("/dev/full", "broken pipe"):
                yield f"exit status 0, yet stdout is {self.c.stdout}"
            return
        if self.c.stdout in ("/dev/full", "broken pipe"):
            yield f"exit status 0, yet stdout is {self.c.stdout}"
        on_stdout = self.given.get("json", "x") in ("", "-") or any(w == "--json" for w in self.c.args)
        if not self.c.stdout and 1 not in self.c.closed:
            try:
                if on_stdout:
                    read_json(d.out)
                elif verb in RESULTS and not re.fullmatch(RESULTS[verb], d.out):
                    yield f"the result line is {d.out!r}"
            except ValueError as error:
                yield f"--json on stdout: {error}"
        if self.c.gone or verb not in ("train", "eval", "devices", "selftest", "bench", "tune"):
            return
        for name, reader in READERS.items():
            path = self.given.get(name)
            if not path or path in ("-", "/dev/null") or name == "json" and on_stdout:
                continue
            if path == "/dev/full":
                yield f"exit status 0, yet --{name} is /dev/full"
                continue
            try:
                reader(os.path.join(self.folder, path))
            except Exception as error:  # pylint: disable=broad-except
                yield f"--{name} {path[:60]!r}: {error}"
        if "checkpoint" in self.given and not glob.glob(
            os.path.join(glob.escape(os.path.join(self.folder, self.given["checkpoint"])), "*")
        ):
            yield "exit status 0, yet no checkpoint"


def shell(stage, folder, c):
    """A line for a shell that does the same, but for random moments."""
    words = ["cd", folder, "&& "]
    if c.gone:
        words = ["mkdir", folder + "/gone", "&& cd", folder + "/gone", "&& rmdir", folder + "/gone", "&& "]
    if c.limit:
        prlimit = {"FSIZE": "--fsize", "NOFILE": "--nofile", "AS": "--as"}[c.limit[0]]
        words += ["prlimit", f"{prlimit}={c.limit[1]}"]
    env = {**{k: v for k, v in stage.env.items() if k in ("POCL_CACHE_DIR", "XDG_CACHE_HOME")}, **c.env}
    words += ["env"] + [f"-u {k}" for k, v in env.items() if v is None] + [f"{k}={shlex.quote(v)}" for k, v in env.items() if v is not None]
    words += [shlex.quote(w) for w in [stage.convoy, *c.args]] + [f"{fd}>&-" for fd in c.closed]
    words += [f"{n}> {where}" if where != "broken pipe" else f"{n}> >(:)" for n, where in ((1, c.stdout), (2, c.stderr)) if where]
    return " ".join(words) + "".join(f"  # {signal.Signals(n).name} after {t:.3f} s" for n, t in c.signal or [])


def driver_gave_up(text):
    return any(word in text for word in ("LLVM ERROR", "bad_alloc", "terminate called", "Assertion", "memory"))


class Finding(Exception):
    """What was wrong, and the commands that show it."""

    def __init__(self, what, commands):
        super().__init__(what)
        self.what, self.commands = what, commands


def judge(stage, folder, done, wrong=(), more=None):
    j = Judge(done, wrong=wrong)
    j.folder = folder
    found = j.all() + (list(more(j)) if more else [])
    outer = set(os.listdir(os.path.dirname(folder)))
    found += [f"wrote {name!r} outside its folder" for name in outer if name != "in" and not re.fullmatch(r"(out|err)\.\d+", name)]
    if look(stage.given) != stage.given_look:
        found.append("wrote outside its folder, into what other runs are given")
    if found:
        raise Finding(
            "\n  ".join(found) + f"\n  exit: {done.code}, {done.seconds:.1f} s\n  stdout: {done.out[:1500]}\n  stderr: {done.err[-3000:]}",
            [done.command],
        )
    return done
