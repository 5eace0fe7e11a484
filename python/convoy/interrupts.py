# SPDX-License-Identifier: MIT
"""Ctrl-C during a call that takes long: the library ends it after the step under way, and KeyboardInterrupt follows."""
from __future__ import annotations

import os
import signal
import socket
import threading
from typing import Any, Optional

from ._cffi import lib


class Interrupts:
    """A block whose calls of the library end soon after SIGINT. `stop`: the cvy_stop * of these calls.

    While the main thread is inside the library, Python runs no handler. Its C handler writes to the wake-up descriptor at once, though, and a
    thread of this object reads there and requests the stop. The previous handler (KeyboardInterrupt, by default) runs at the end of the block,
    or in `check`. In other threads than the main one, or where the program ignores SIGINT, the block does nothing."""

    def __init__(self, stop: Any) -> None:
        self._stop = stop
        self._pending = False
        self._previous: Any = None
        self._ours: Optional[socket.socket] = None
        self._theirs: Optional[socket.socket] = None
        self._thread: Optional[threading.Thread] = None
        self._wakeup = -1

    def _note(self, number: int, frame: Any) -> None:
        self._pending = True
        lib.cvy_stop_request(self._stop)

    def _listen(self) -> None:
        """On its own thread: a byte is a signal's number; an empty one ends the thread."""
        assert self._ours
        while True:
            numbers = self._ours.recv(64)
            if not numbers:
                return
            if signal.SIGINT in numbers:
                lib.cvy_stop_request(self._stop)
            if self._wakeup >= 0:
                try:
                    os.write(self._wakeup, numbers)  # to the event loop that had the descriptor before
                except OSError:
                    pass

    def __enter__(self) -> "Interrupts":
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            return self
        self._ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        self._previous = signal.signal(signal.SIGINT, self._note)
        self._thread = threading.Thread(target=self._listen, name="convoy-interrupts", daemon=True)
        self._thread.start()
        return self

    def check(self) -> None:
        """Runs the previous handler if SIGINT has come: it usually raises KeyboardInterrupt."""
        if self._pending:
            self._pending = False
            self._previous(signal.SIGINT, None)

    def __exit__(self, *what: Any) -> None:
        if not self._thread or not self._theirs or not self._ours:
            return
        signal.signal(signal.SIGINT, self._previous)
        signal.set_wakeup_fd(self._wakeup)
        self._theirs.close()
        self._thread.join()
        self._ours.close()
        self.check()
