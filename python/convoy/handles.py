# SPDX-License-Identifier: MIT
"""Calls of the library and ownership of its objects: messages, exceptions, closing in any order, fork.

Each object has a log of its own (cvy_log_store), which its calls and its threads use, so that an exception has the text of its own call.
Errors become exceptions; warnings and notes go to the logger "convoy" of the module logging."""
from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

from . import errors, program
from ._cffi import ffi, lib

logger = logging.getLogger("convoy")
LEVELS = {lib.CVY_LOG_ERROR: logging.ERROR, lib.CVY_LOG_WARNING: logging.WARNING, lib.CVY_LOG_INFO: logging.INFO,
          lib.CVY_LOG_DEBUG: logging.DEBUG}
TEXT_BYTES = 4096
# The library borrows both texts.
_COMPILER = ffi.new("char[]", os.fsencode(program.own() or "")) if program.own() else None
_SERVE = ffi.new("char[]", b"--compile-kernels")

_opened = False  # the library has asked a driver for its devices
_forked = False
_counts = threading.RLock()  # guards Handle._users; a garbage collection may close a handle while it is held


def _after_fork() -> None:
    global _forked
    _forked = _opened


os.register_at_fork(after_in_child=_after_fork)


def is_forked() -> bool:
    """This process must not call the library, and need not close anything: the objects are the parent's."""
    return _forked


def refuse_fork() -> None:
    """Raises ForkedError in a process that must not call the library."""
    if _forked:
        raise errors.ForkedError("this process was forked after Convoy had opened devices, whose threads a fork does not copy: start it with "
                                 "multiprocessing.get_context(\"spawn\"), or fork before the first call of convoy")


def note_devices() -> None:
    """Call before a function of the library that asks drivers for devices."""
    global _opened
    refuse_fork()
    if not _opened and _COMPILER:
        lib.cvy_compile_by(_COMPILER, _SERVE)  # kernels are compiled by several processes of the program, not one at a time here
    _opened = True


def _destroy_log(pointer: Any) -> None:
    if not _forked and lib.cvy_devices_abandoned() == 0:  # else a thread that hangs in a driver still has it
        lib.cvy_log_destroy(ffi.new("cvy_log **", pointer))


class Log:
    """A cvy_log that stores messages. Destroyed when nothing refers to it."""

    def __init__(self) -> None:
        self.pointer = lib.cvy_log_store(lib.CVY_LOG_INFO)
        if self.pointer == ffi.NULL:
            raise errors.HostMemoryError("out of host memory")
        weakref.finalize(self, _destroy_log, self.pointer).atexit = False  # functions that run at exit may still call the library

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """The library's messages on this thread, and on threads that it starts, come here."""
        refuse_fork()
        before = lib.cvy_log_use(self.pointer)
        try:
            yield
        finally:
            lib.cvy_log_use(before)

    def take(self) -> List[Tuple[int, str]]:
        """All stored messages: (level of the module logging, text)."""
        found, level, text = [], ffi.new("cvy_log_level *"), ffi.new("char[]", TEXT_BYTES)
        while lib.cvy_log_take(self.pointer, level, text, TEXT_BYTES):
            found.append((LEVELS[level[0]], ffi.string(text).decode("utf-8", "replace")))
        return found

    def deliver(self, failed: bool = False) -> str:
        """Passes messages on to the logger. `failed`: returns the errors, for an exception, instead."""
        said = []
        for level, text in self.take():
            if failed and level == logging.ERROR:
                said.append(text)
            else:
                logger.log(level, "%s", text)
        return "\n".join(said)

    def check(self, status: int) -> None:
        """Raises the exception of a status that is not CVY_OK."""
        text = self.deliver(failed=status != lib.CVY_OK)
        if status != lib.CVY_OK:
            raise errors.of_status(status, text)

    def call(self, function: Callable[..., int], *arguments: Any) -> None:
        """Calls a function of the library that returns a status."""
        with self.used():
            status = function(*arguments)
        self.check(status)


_of_thread = threading.local()


def thread_log() -> Log:
    """The log of calls that belong to no object, one for each thread."""
    log = getattr(_of_thread, "log", None)
    if log is None:
        log = _of_thread.log = Log()
    return log


class Handle:
    """A C object with its destroy function. It lives until its owner and all handles that need it are closed."""

    def __init__(self, pointer: Any, destroy: Callable[[Any], None], log: Log, needs: Sequence["Handle"] = ()) -> None:
        self.pointer, self.log = pointer, log
        self.borrowed: Any = None  # memory that the C object borrows
        self._destroy, self._needs, self._users = destroy, list(needs), 1
        for other in needs:
            other.hold()

    def hold(self) -> "Handle":
        with _counts:
            self._users += 1
        return self

    def drop(self) -> None:
        with _counts:
            self._users -= 1
            last = self._users == 0
        if not last or _forked:
            return
        with self.log.used():
            self._destroy(ffi.new(ffi.getctype(ffi.typeof(self.pointer), "*"), self.pointer))
        self.log.deliver()
        self.pointer = ffi.NULL
        for other in self._needs:
            other.drop()


class Owner:
    """Base of objects that own handles: closed by `close`, at the end of a `with` block, by garbage collection, or when the interpreter exits."""

    def __init__(self) -> None:
        self._closers: List[weakref.finalize] = []

    def _own(self, handle: Handle) -> Handle:
        self._closers.append(weakref.finalize(self, handle.drop))
        return handle

    @property
    def closed(self) -> bool:
        return bool(self._closers) and not any(closer.alive for closer in self._closers)

    def close(self) -> None:
        """Frees devices and memory. Further calls do nothing."""
        for closer in reversed(self._closers):
            closer()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *what: Any) -> None:
        self.close()


def text_of(pointer: Any) -> Optional[str]:
    """A borrowed C string as text; None for NULL."""
    return None if pointer == ffi.NULL else ffi.string(pointer).decode("utf-8", "replace")
