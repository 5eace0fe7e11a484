# SPDX-License-Identifier: MIT
"""The program `convoy` beside the library."""
from __future__ import annotations

import os
import shutil
import subprocess
from typing import Optional

from . import errors
from .built import PROGRAM


PACKED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "convoy")  # in a wheel of tools/python-wheel


def own() -> Optional[str]:
    """The path of the program of this package's library; None: it is not there."""
    return next((path for path in (PACKED, PROGRAM) if os.access(path, os.X_OK)), None)


def find() -> Optional[str]:
    """The path of the library's own program, else that of the one in PATH; None: it is not there."""
    return own() or shutil.which("convoy")


def missing() -> str:
    """The message for a program that is not there."""
    return f"the program is neither {PROGRAM} nor in PATH: build it with tools/quickstart --setup-only, or install it"


def call(*words: str) -> None:
    """Runs it. Raises FileError with what it printed if it fails, UnsupportedError if it is not there."""
    path = find()
    if path is None:
        raise errors.UnsupportedError(missing())
    done = subprocess.run([path, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    if done.returncode:
        raise errors.FileError(f"convoy {words[0]} ended with {done.returncode}: {done.stdout.strip()}")
