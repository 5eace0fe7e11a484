# SPDX-License-Identifier: MIT
"""The C objects of a Trainer: its devices, network and team, and the run under way. They know nothing of the Trainer, which may be gone when
they are closed."""
from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, Optional

from . import errors
from ._cffi import ffi, lib
from .data import Data
from .devices import named
from .handles import Handle, Log, is_forked, refuse_fork
from .interrupts import Interrupts

CLOSE_WAIT_S = 60  # for a call under way in another thread, which a request to stop ends


class Core:
    """One thread at a time uses it; other threads wait. `stop` ends a call that takes long."""

    def __init__(self) -> None:
        self.log = Log()
        self.stop = ffi.new("cvy_stop *")
        self.lock = threading.RLock()
        self.running: Optional[str] = None  # the call that holds the team, which callbacks may not disturb
        self.closed = False
        # handles, None: not created yet
        self.devices: Any = None
        self.net: Any = None
        self.team: Any = None
        self.data: Any = None  # attached

    @contextlib.contextmanager
    def using(self, name: str, alone: bool = False) -> Iterator[Optional[Interrupts]]:
        """A call of the user's. alone: not from a callback of another one. None: from a callback."""
        refuse_fork()
        with self.lock:
            if self.closed:
                raise errors.ClosedError("the trainer is closed")
            if alone and self.running:
                raise errors.ArgumentError(f"{name} was called from a callback of {self.running}, which has the team")
            before, self.running = self.running, self.running or name
            if not before:
                lib.cvy_stop_withdraw(self.stop)
            try:
                with Interrupts(self.stop) if not before else contextlib.nullcontext() as keys:
                    yield keys
            finally:
                self.running = before

    def open_net(self, model: bytes, channels: int, height: int, width: int, classes: int) -> None:
        out = ffi.new("cvy_net **")
        self.log.call(lib.cvy_net_open, model, channels, height, width, classes, out)
        self.take_net(Handle(out[0], lib.cvy_net_destroy, self.log))

    def take_net(self, net: Handle) -> None:
        """Takes over a hold of a network, whose classes must exclude each other."""
        try:
            self.log.call(lib.cvy_net_check_classes, net.pointer, b"training and evaluation")
        except BaseException:
            net.drop()
            raise
        self.net = net

    def open_devices(self, selector: bytes) -> None:
        out = ffi.new("cvy_devices **")
        named(lambda: self.log.call(lib.cvy_devices_select, selector, out))
        self.devices = Handle(out[0], lib.cvy_devices_destroy, self.log)

    def open_team(self, params: Any, borrowed: Any) -> None:
        out = ffi.new("cvy_team **")
        self.log.call(lib.cvy_team_create, self.devices.pointer, self.net.pointer, params, out)
        self.team = Handle(out[0], lib.cvy_team_destroy, self.log, [self.net, self.devices])
        self.team.borrowed = borrowed

    def attach(self, data: Data) -> None:
        """The data set lives until another one is attached or the team is destroyed."""
        if self.data is None or self.data.pointer != data._struct:
            self.attach_handle(data._handle.hold())

    def attach_handle(self, data: Handle) -> None:
        """Takes over a hold of the data set."""
        try:
            self.log.call(lib.cvy_team_attach, self.team.pointer, data.pointer)
        except BaseException:
            data.drop()
            raise
        before, self.data = self.data, data
        if before:
            before.drop()

    def drop_team(self) -> None:
        """Destroys what there is, the team first."""
        team, data, net, devices = self.team, self.data, self.net, self.devices
        self.team = self.data = self.net = self.devices = None
        for handle in (team, data, net, devices):
            if handle:
                handle.drop()

    def close(self) -> None:
        """Also at the end of the interpreter, when another thread may still train: it stops after the step under way."""
        if is_forked():
            return  # the lock may be that of a thread that the fork did not copy
        lib.cvy_stop_request(self.stop)
        if not self.lock.acquire(timeout=CLOSE_WAIT_S):
            return  # a thread hangs in a driver and still has the team
        try:
            self.closed = True
            self.drop_team()
        finally:
            self.lock.release()
