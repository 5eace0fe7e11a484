# SPDX-License-Identifier: MIT
"""The program `convoy` beside the library."""
from __future__ import annotations

import os
import shutil
import subprocess
from typing import Optional

from . import errors
from .built import PROGRAM


def find() -> Optional[str]:
    """Its path: the one of the build, else the one in PATH; None: it is not there."""
    return PROGRAM if os.access(PROGRAM, os.X_OK) else shutil.which("convoy")


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
