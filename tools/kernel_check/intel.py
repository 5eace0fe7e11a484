# SPDX-License-Identifier: MIT
"""Intel's GPUs: ocloc with the graphics compiler IGC, as Intel's driver calls it.

ocloc disassembles its binary into PTM.txt, which holds the tokens that the driver reads, and the machine code of each kernel. An array that
does not stay in registers lies in memory of the item's own, and so does what is spilled. How the code reaches that memory depends on the
generation; what is looked for was seen in the code of kernels with such arrays (tests/program/test_kernel_check.py compiles one for each)."""
import os
import re
import struct
import subprocess

from . import loops
from .facts import kernel_facts
from .source import needed_libraries
from .targets import Fault, Missing

# Tokens of PTM.txt: number, and which 32-bit words of it are what.
SCRATCH, LOCAL, ENVIRONMENT, PRIVATE = 18, 15, 23, 24
# Accesses to an item's own memory. Before Arc: surface 255 (the last byte of the descriptor), or scratch blocks; Arc: 64-bit addresses that
# belong to no buffer, as some stores of results are, too; Ponte Vecchio: a surface whose address lies in a0, while buffers have 64-bit addresses.
OWN_MEMORY = {
    "skl": r" 0x[0-9A-Fa-f]{6}FF\b.*//.*untyped|//.*scratch",
    "tgllp": r" 0x[0-9A-Fa-f]{6}FF\b.*//.*untyped|//.*scratch",
    "acm-g10": r"(load|store)\.ugm\.[^ ]*\.a64\b|//.*scratch",
    "pvc": r"(load|store)\.ugm\.[^ ]*\.ss\[a0|//.*scratch",
}


class Compiler:
    def __init__(self, folder, clang):
        del clang
        root = os.path.join(folder, "intel")
        self.ocloc = os.path.join(root, "usr", "bin", "ocloc")
        if not os.path.exists(self.ocloc):
            raise Missing("Intel's compiler ocloc")
        libraries = os.path.join(root, "usr", "lib", "x86_64-linux-gnu")
        self.environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
        for name in ("libocloc.so", "libigc.so.1", "libigdfcl.so.1", "libopencl-clang.so.14", "libiga64.so"):
            needed_libraries(os.path.join(libraries, name), self.environment)
        with open(os.path.join(root, "packages"), encoding="utf-8") as f:
            self.version = f.read()

    def run(self, *arguments):
        done = subprocess.run([self.ocloc, *arguments], capture_output=True, text=True, errors="replace", env=self.environment)
        if done.returncode:
            raise Fault(f"ocloc {' '.join(arguments)}\n{done.stdout}{done.stderr}")

    def compile(self, text, target, flags, folder):
        del flags
        source, binary, dump = (os.path.join(folder, name) for name in ("kernel.cl", "kernel", "dump"))
        with open(source, "w", encoding="utf-8") as f:
            f.write(text)
        self.run("compile", "-file", source, "-device", target, "-options", "-cl-std=CL1.2", "-out_dir", folder, "-output_no_suffix")
        self.run("disasm", "-file", binary, "-device", target, "-dump", dump)
        with open(os.path.join(dump, "PTM.txt"), encoding="utf-8", errors="replace") as f:
            tokens = read_tokens(f.read())
        kernels = []
        for name, words in tokens.items():
            with open(os.path.join(dump, name + "_KernelHeap.asm"), encoding="utf-8", errors="replace") as f:
                kernels.append(read_kernel(target, name, words, f.read()))
        return kernels


def read_tokens(text):
    """Kernel → {token: its words}, of the tokens that are of use here."""
    kernels, words, token = {}, None, None
    for line in text.splitlines():
        if m := re.match(r"\s*KernelName (\S+)", line):
            words = kernels[m.group(1)] = {}
        elif m := re.match(r"\s*4 Token (\d+)", line):
            token = int(m.group(1))
        elif words is not None and token in (SCRATCH, LOCAL, ENVIRONMENT, PRIVATE) and (m := re.match(r"\s*Hex (.*)", line)):
            data = bytes(int(byte, 16) for byte in m.group(1).split())
            words[token] = struct.unpack(f"<{len(data) // 4}I", data[:len(data) // 4 * 4])
    return kernels


def read_kernel(target, name, words, assembly):
    environment = words[ENVIRONMENT]
    bodies = loops.innermost(assembly.split("\n"), r"(L\d+):", r"\b(?:jmpi|while|goto|brd)\b.*\b(L\d+)\s*(?:\{.*)?$")
    simd = environment[3]
    # A mad of 8 items in a kernel of 16 counts half.
    fma = [(rf"\bmad \({width}\|M\d+\).*:f\b.*:f\b", width / simd) for width in (8, 16, 32)]
    return kernel_facts(name, registers=environment[20], spills=0, private=max(words.get(SCRATCH, (0, 0))[1], 4 * words.get(PRIVATE, (0, 0))[1]),
                        inner=loops.count_own(bodies, fma, OWN_MEMORY[target]), local=words.get(LOCAL, (0, 0))[1], simd=simd,
                        loop=loops.count(bodies, fma, r"//.*load\.slm\.| 0x[0-9A-Fa-f]{6}FE\b.*//.*surface read"))
