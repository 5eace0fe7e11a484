# SPDX-License-Identifier: MIT
"""Runs one command with a time limit. Its whole output goes to a file; nothing here raises for what the command does."""
import dataclasses
import glob
import os
import shutil
import signal
import subprocess
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DUMP_S = 5            # a program that gets SIGABRT may write backtraces before it ends
NO_PROGRAM = 127
_running, _lock = {}, threading.Lock()
_stopped = threading.Event()


@dataclasses.dataclass
class Done:
    code: int             # the exit status; of a program that a signal ended 128 + its number, as shells have it
    signal: int           # the signal's number, or 0
    late: bool            # it was ended at its limit
    seconds: float
    text: str             # what it printed, both streams in one
    where: str = ""       # of a late one: what its threads were doing


def stop_all():
    """Ends what runs, for good: nothing is started after it."""
    _stopped.set()
    with _lock:
        for group in _running:
            kill(group, signal.SIGKILL)


def kill(group, number):
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def read(path):
    with open(path, "rb") as f:
        return f.read().decode("utf-8", "replace")


def first_line(path):
    try:
        return read(path).strip().split("\n")[0]
    except OSError:
        return "?"


def group_of(pid):
    """Its processes: the session that a command began."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            rest = read(path).rpartition(")")[2].split()
        except OSError:
            continue
        if len(rest) > 3 and rest[3] == str(pid):
            found.append(int(path.split("/")[2]))
    return sorted(found)


def waiting_where(pid, look_s):
    """What every thread of a hanging command waits in, by /proc, and its backtraces where gdb is installed and there is time."""
    until = time.time() + look_s
    lines = []
    for one in group_of(pid):
        command = first_line(f"/proc/{one}/cmdline").replace("\0", " ").strip()
        lines.append(f"--- process {one}: {command[:300]}")
        for task in sorted(glob.glob(f"/proc/{one}/task/[0-9]*")):
            state = first_line(task + "/stat").rpartition(")")[2].split()
            lines.append(f"thread {os.path.basename(task)} {first_line(task + '/comm')}: state {state[0] if state else '?'}, "
                         f"in {first_line(task + '/wchan') or '?'}, system call {first_line(task + '/syscall')[:60]}")
        if shutil.which("gdb") and until - time.time() > DUMP_S:
            try:
                gdb = subprocess.run(["gdb", "-p", str(one), "-batch", "-ex", "thread apply all bt"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                     stdin=subprocess.DEVNULL, timeout=until - time.time())
                lines.append(gdb.stdout.decode("utf-8", "replace"))
            except (OSError, subprocess.TimeoutExpired) as e:
                lines.append(f"gdb: {e}")
    return "\n".join(lines)


def execute(command, log, env=None, limit_s=3600.0, look_s=20.0):
    """Done. At the limit its threads are looked at, then it gets SIGABRT, at which the test layer writes what it has, then SIGKILL; both together
    take up to look_s and a little."""
    begin, where = time.time(), ""
    with open(log, "wb") as out:
        try:
            with _lock:
                if _stopped.is_set():
                    return Done(128 + signal.SIGKILL, signal.SIGKILL, False, 0.0, "not started: interrupted")
                child = subprocess.Popen([str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT,
                                         env={**os.environ, **{k: str(v) for k, v in (env or {}).items()}}, start_new_session=True)
                _running[child.pid] = child
        except OSError as e:
            out.write(str(e).encode())
            return Done(NO_PROGRAM, 0, False, 0.0, str(e))
        try:
            code = child.wait(timeout=max(0.1, limit_s))
        except subprocess.TimeoutExpired:
            where = waiting_where(child.pid, look_s) or "its processes are gone"
            for _ in range(2):                           # LLVM's handler, which PoCL brings, takes the first one and returns
                kill(child.pid, signal.SIGABRT)
                try:
                    child.wait(timeout=max(0.5, min(DUMP_S, look_s)) / 2)
                    break
                except subprocess.TimeoutExpired:
                    pass
            kill(child.pid, signal.SIGKILL)
            code = child.wait()
            out.write(f"\n=== ended after {limit_s:.0f} s\n".encode())
        finally:
            with _lock:
                _running.pop(child.pid, None)
        kill(child.pid, signal.SIGKILL)                  # what it may have left behind
    number = -code if code < 0 else code - 128 if code in (128 + 4, 128 + 6, 128 + 7, 128 + 8, 128 + 11) else 0
    return Done(128 - code if code < 0 else code, number, bool(where), time.time() - begin, read(log), where)
