# SPDX-License-Identifier: MIT
"""NVIDIA's GPUs: libnvvm, which is the optimiser within the driver's OpenCL compiler since version 525, and ptxas. Its front end is in no
package: clang 15 stands for it, the last clang that writes pointers with types, which libnvvm wants; it optimises nothing.

A library that ends the process must not end the check, so libnvvm is called by a process of its own: nvidia.py LIBRARY ARCHITECTURE MODULE…
writes PTX to stdout. A module whose name ends in .bc is a library: functions are taken from it as they are called."""
import ctypes
import os
import re
import shutil
import subprocess
import sys

if __package__:
    from . import loops, scrub
    from .facts import kernel_facts
    from .source import needed_libraries
    from .targets import Fault, Missing

BUILTINS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nvidia_builtins.cl")
# What the driver's OpenCL does by default: multiply-adds contracted, division and square root as exact as OpenCL asks, denormals kept.
OPTIONS = ["-opt=3", "-fma=1", "-prec-div=0", "-prec-sqrt=0", "-ftz=0"]
FMA = [(r"\bfma\.rn(?:\.ftz)?\.f32", 1), (r"\bmma\.sync\.aligned\.m16n8k8\b", 32),
       (r"\bmma\.sync\.aligned\.m16n8k4\b", 16)]      # each item's part of 16 * 8 * 8 (4)


class Compiler:
    def __init__(self, folder, clang):
        root = os.path.join(folder, "nvidia")
        self.nvvm, self.ptxas, self.libdevice = (os.path.join(root, name) for name in ("libnvvm.so.4", "ptxas", "libdevice.10.bc"))
        for path in (self.nvvm, self.ptxas, self.libdevice):
            if not os.path.exists(path):
                raise Missing(f"NVIDIA's compiler ({os.path.basename(path)})")
        needed_libraries(self.nvvm)
        self.clang, self.environment = find_clang(folder, clang)
        with open(os.path.join(root, "packages"), encoding="utf-8") as f, open(BUILTINS, encoding="utf-8") as g, open(scrub.__file__, encoding="utf-8") as h:
            self.version = f.read() + " ".join(OPTIONS) + g.read() + h.read()
        self.builtins = None

    def front(self, path, out, more):
        """LLVM's text of a source, scrubbed."""
        done = subprocess.run([self.clang, "-x", "cl", path, "-cl-std=CL1.2", "-target", "nvptx64-nvidia-nvcl", "-march=sm_75", "-O3", "-S", "-emit-llvm", "-o",
                               out, "-Xclang", "-disable-llvm-passes", "-Xclang", "-no-opaque-pointers", "-fno-discard-value-names", *more],
                              capture_output=True, text=True, env=self.environment)
        if done.returncode:
            raise Fault(f"{self.clang}: {done.stderr}")
        with open(out, encoding="utf-8") as f:
            text = scrub.scrub(f.read())
        with open(out, "w", encoding="utf-8") as f:
            f.write(text)
        return text

    def compile(self, text, target, flags, folder):
        source, module, builtins, ptx_path, cubin = (os.path.join(folder, name) for name in ("kernel.cl", "kernel.ll", "builtins.ll", "kernel.ptx", "kernel.cubin"))
        with open(source, "w", encoding="utf-8") as f:
            f.write(text)
        self.front(source, module, [])
        if self.builtins is None:
            self.builtins = self.front(BUILTINS, builtins, ["-cl-no-stdinc"])
        with open(builtins, "w", encoding="utf-8") as f:
            f.write(self.builtins)
        architecture = target.replace("sm_", "compute_")
        done = subprocess.run([sys.executable, os.path.abspath(__file__), self.nvvm, architecture, module, builtins, self.libdevice],
                              capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise Fault(f"libnvvm, status {done.returncode}: {done.stderr}")
        ptx = done.stdout
        with open(ptx_path, "w", encoding="utf-8") as f:
            f.write(ptx)
        done = subprocess.run([self.ptxas, "-arch=" + target, *flags, "-v", ptx_path, "-o", cubin], capture_output=True, text=True)
        if done.returncode:
            raise Fault(f"ptxas -arch={target}: {done.stdout}{done.stderr}")
        return read_ptxas(done.stdout + done.stderr, ptx)


def find_clang(folder, clang):
    """clang 15 and its environment."""
    installed = shutil.which("clang-15")
    if installed:
        return installed, None
    if "clang version 15." in clang.version:
        return clang.program, None
    fetched = os.path.join(folder, "clang", "usr", "lib", "llvm-15", "bin", "clang")
    if not os.path.exists(fetched):
        raise Missing("clang-15")
    libraries = [os.path.join(folder, "clang", "usr", "lib", name) for name in ("x86_64-linux-gnu", "aarch64-linux-gnu", "llvm-15/lib")]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
    needed_libraries(fetched, environment)
    return fetched, environment


def read_ptxas(text, ptx):
    found, sizes = {}, {m.group(1): int(m.group(2)) for m in re.finditer(r"\.entry (\w+)\([^{]*?\.reqntid (\d+)", ptx, re.S)}
    for m in re.finditer(r"\.entry (\w+)\([^{;]*?^\{(.*?)^\}", ptx, re.M | re.S):
        found[m.group(1)] = loops.innermost(m.group(2).split("\n"), r"(\$L\w+):", r"\bbra(?:\.uni)?\s+(\$L\w+);")
    kernels = []
    for part in text.split("Compiling entry function ")[1:]:
        name = re.match(r"'(\w+)'", part).group(1)
        stack, stores, loads = (int(v) for v in re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part).groups())
        local = re.search(r"(\d+) bytes smem", part)
        bodies = found.get(name, [])
        kernels.append(kernel_facts(name, registers=int(re.search(r"Used (\d+) registers", part).group(1)), spills=stores + loads, private=stack,
                                    inner=loops.count_own(bodies, FMA, r"\b(ld|st)\.local\b"),
                                    local=int(local.group(1)) if local else 0, size=sizes.get(name, 256), loop=loops.count(bodies, FMA, r"\b(?:ld\.shared|ldmatrix)\b")))
    return kernels


# --- the process that calls the library ----------------------------------------------------------------------------------

class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.nvvmGetErrorString.restype = ctypes.c_char_p
        self.program = ctypes.c_void_p()
        self.call("CreateProgram", ctypes.byref(self.program))

    def text(self, name):
        size = ctypes.c_size_t()
        getattr(self.lib, f"nvvmGet{name}Size")(self.program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        getattr(self.lib, "nvvmGet" + name)(self.program, buffer)
        return buffer.value.decode(errors="replace")

    def call(self, name, *arguments):
        status = getattr(self.lib, "nvvm" + name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {self.lib.nvvmGetErrorString(status).decode()}: {self.text('ProgramLog') if self.program else ''}")

    def compile(self, architecture, paths):
        for path in paths:
            with open(path, "rb") as f:
                data = f.read()
            add = "LazyAddModuleToProgram" if path.endswith(".bc") else "AddModuleToProgram"
            self.call(add, self.program, data, ctypes.c_size_t(len(data)), os.path.basename(path).encode())
        options = ["-arch=" + architecture, *OPTIONS]
        words = (ctypes.c_char_p * len(options))(*[word.encode() for word in options])
        self.call("CompileProgram", self.program, len(options), words)
        return self.text("CompiledResult")


if __name__ == "__main__":
    try:
        sys.stdout.write(Library(sys.argv[1]).compile(sys.argv[2], sys.argv[3:]))
    except RuntimeError as refused:
        sys.exit(str(refused))
