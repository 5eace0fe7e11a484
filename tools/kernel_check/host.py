# SPDX-License-Identifier: MIT
"""CPU-shaped kernels, for x86-64: they are to compile, no more. The clang that compiles them at run time is PoCL's or Intel's."""
import re
import subprocess

from .facts import kernel_facts
from .targets import Fault


class Compiler:
    def __init__(self, folder, clang):
        del folder
        self.clang, self.version = clang.program, clang.version

    def compile(self, text, target, flags, folder):
        del target, flags, folder
        done = subprocess.run([self.clang, "-x", "cl", "-", "-cl-std=CL1.2", "-target", "x86_64-unknown-linux-gnu", "-march=skylake-avx512", "-Xclang",
                               "-finclude-default-header", "-emit-llvm", "-S", "-o", "-", "-Xclang", "-disable-llvm-passes"],
                              input=text, capture_output=True, text=True)
        if done.returncode:
            raise Fault(f"{self.clang}: {done.stderr}")
        return [kernel_facts(name) for name in re.findall(r"^define .*@(\w+)\(.*!kernel_arg_addr_space", done.stdout, re.M)]
