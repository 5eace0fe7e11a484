# SPDX-License-Identifier: MIT
"""AMD's GPUs: libamd_comgr, the library that ROCm's OpenCL compiles with, and clang with libclc for those that this library does not know.

A library that ends the process must not end the check, so each compilation is a process of its own: amd.py LIBRARY TARGET [HEADERS] reads the
source from stdin and writes the assembly to stdout.

Debian's library has OpenCL's functions as a precompiled header, which refers to a header of the clang that it was built with by its path. Where
that file is not there (Debian 13: no package of the library's brings it), the header of another clang is read instead: HEADERS is its folder."""
import ctypes
import glob
import os
import re
import subprocess
import sys

if __package__:
    from . import loops
    from .facts import kernel_facts
    from .source import library_version, needed_libraries, system_library
    from .targets import Fault, Missing

OPTIONS = ["-cl-std=CL1.2", "-O3", "-mcumode"]      # ROCm's OpenCL asks for CU mode unless it is told not to
FMA = [(r"\bv_(?:dual_)?(?:fma|fmac|mac|mad)_f32", 1), (r"\bv_dual_fma[am]k_f32", 1), (r"\bv_pk_fma_f32", 2),
       (r"\bv_mfma_f32_32x32x2f32\b", 32)]          # each item's part of 32 * 32 * 2
LOAD = r"\bds_(read|load)"
# Needs a macro of the header: without one the precompiled header does for itself.
TRIAL = "kernel void k(global float *x) { barrier(CLK_LOCAL_MEM_FENCE); x[get_global_id(0)] = FLT_MAX; }\n"
HEADER = "usr/lib/llvm-*/lib/clang/*/include/opencl-c-base.h"
OWN_MEMORY = r"\bscratch_(load|store)|\bbuffer_(load|store)\w* .*\b(offen|s\[0:3\])"


class Comgr:
    def __init__(self, folder, clang):
        del clang
        found = sorted(glob.glob(os.path.join(folder, "amd", "usr", "lib", "*", "libamd_comgr.so.2")))
        self.library = found[0] if found else system_library("libamd_comgr.so.2")
        if not self.library:
            raise Missing("AMD's compiler libamd_comgr")
        self.environment = {**os.environ, "LD_LIBRARY_PATH": os.path.dirname(found[0])} if found else dict(os.environ)
        needed_libraries(self.library, self.environment)
        if found:
            with open(os.path.join(folder, "amd", "packages"), encoding="utf-8") as f:
                self.version = f.read() + " ".join(OPTIONS)
        else:
            self.version = library_version(self.library) + " ".join(OPTIONS)
        self.headers = self.headers_needed(folder)
        self.version += f" {os.path.basename(self.headers)}" if self.headers else ""

    def headers_needed(self, folder):
        """The folder of a clang's headers without which the library compiles nothing, or None. Missing: with none of them, either."""
        found = [path for root in (os.path.join(folder, "clang"), "/") for path in sorted(glob.glob(os.path.join(root, HEADER)))]
        reason = None
        for self.headers in (None, *dict.fromkeys(os.path.realpath(os.path.dirname(os.path.dirname(path))) for path in found)):
            try:
                self.compile(TRIAL, "gfx1030", None, None)
                return self.headers
            except Fault as fault:
                reason = reason or str(fault).splitlines()[0]
        raise Missing(f"AMD's compiler libamd_comgr that works ({self.library}: {reason})")

    def compile(self, text, target, flags, folder):
        del flags, folder
        done = subprocess.run([sys.executable, os.path.abspath(__file__), self.library, target, *([self.headers] if self.headers else [])], input=text.encode(), capture_output=True,
                              env=self.environment)
        if done.returncode:
            raise Fault(f"libamd_comgr, status {done.returncode}: {done.stderr.decode(errors='replace')}")
        return read_assembly(done.stdout.decode())


class Clang:
    """`clang`: (program, libclc's bitcode for amdgcn) or None"""
    def __init__(self, folder, clang):
        del folder
        self.clang, self.bitcode = clang.program, clang.libclc
        if not self.bitcode:
            raise Missing("libclc with the clang of its version")
        self.version = clang.version

    def compile(self, text, target, flags, folder):
        del flags
        out = os.path.join(folder, "out.s")
        done = subprocess.run([self.clang, "-x", "cl", "-", "-cl-std=CL1.2", "-target", "amdgcn-amd-amdhsa", "-mcpu=" + target, "-mcumode", "-O3", "-S", "-o", out,
                               "-nogpulib", "-Xclang", "-finclude-default-header", "-Xclang", "-mlink-builtin-bitcode", "-Xclang", self.bitcode],
                              input=text, capture_output=True, text=True)
        if done.returncode:
            raise Fault(f"{self.clang}: {done.stderr}")
        with open(out, encoding="utf-8") as f:
            return read_assembly(f.read())


def loop_bodies(lines):
    """The lines of each innermost loop, from LLVM's own notes beside each block, since the blocks of a loop need not lie in its order:
    "; =>This Inner Loop Header", "; in Loop: Header=BB0_5", "; Parent Loop BB0_5"."""
    bodies, parents, loop = {}, set(), None
    for line in lines:
        if m := re.match(r"\.L(BB\w+):|; %bb\.", line):
            of = re.search(r"in Loop: Header=(BB\w+)", line)
            loop = of.group(1) if of else m.group(1) if re.search(r"This (Inner )?Loop Header|Parent Loop", line) else None
        parents.update(re.findall(r"Parent Loop (BB\w+)", line))
        if loop:
            bodies.setdefault(loop, []).append(line)
    return [body for name, body in bodies.items() if name not in parents]


def read_assembly(text):
    bodies = {m.group(1): loop_bodies(m.group(2).split("\n")) for m in re.finditer(r"^(\w+):.*?@\1\n(.*?)^\s*s_endpgm", text, re.M | re.S)}
    kernels = []
    for part in re.split(r"^  - (?=\.)", text[text.find("amdhsa.kernels:"):], flags=re.M)[1:]:
        value = lambda key: int(re.search(rf"^\s*\.{key}:\s+(\d+)", part, re.M).group(1))
        name = re.search(r"^\s*\.name:\s+(\S+)", part, re.M).group(1)
        own = bodies.get(name, [])
        kernels.append(kernel_facts(name, registers=value("vgpr_count"), spills=value("vgpr_spill_count") + value("sgpr_spill_count"),
                                    private=value("private_segment_fixed_size"), inner=loops.count_own(own, FMA, OWN_MEMORY),
                                    local=value("group_segment_fixed_size"), size=value("max_flat_workgroup_size"), loop=loops.count(own, FMA, LOAD)))
    return kernels


# --- the process that calls the library ----------------------------------------------------------------------------------

# Of amd_comgr.h, version 2.4.
LANGUAGE_OPENCL_1_2 = 1
SOURCE, LOG = 1, 5
ADD_PRECOMPILED_HEADERS, LINK_BC, CODEGEN_ASSEMBLY, COMPILE_WITH_LIBRARIES = 1, 4, 7, 15


class Handle(ctypes.Structure):
    _fields_ = [("handle", ctypes.c_uint64)]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)

    def call(self, name, *arguments):
        status = getattr(self.lib, "amd_comgr_" + name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.lib.amd_comgr_status_string(status, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'?').decode()}")

    def made(self, name, *arguments):
        handle = Handle()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle

    def contents(self, data_set, kind):
        count = ctypes.c_size_t()
        self.call("action_data_count", data_set, kind, ctypes.byref(count))
        out = b""
        for i in range(count.value):
            data, size = self.made("action_data_get_data", data_set, kind, ctypes.c_size_t(i)), ctypes.c_size_t()
            self.call("get_data", data, ctypes.byref(size), None)
            buffer = ctypes.create_string_buffer(size.value)
            self.call("get_data", data, ctypes.byref(size), buffer)
            out += buffer.raw[:size.value]
        return out

    def assemble(self, target, text, headers=None):
        info = self.made("create_action_info")
        self.call("action_info_set_isa_name", info, b"amdgcn-amd-amdhsa--" + target.encode())
        self.call("action_info_set_language", info, LANGUAGE_OPENCL_1_2)
        self.call("action_info_set_logging", info, ctypes.c_bool(True))
        options = [*OPTIONS, *(["-Xclang", "-finclude-default-header", "-resource-dir", headers] if headers else [])]
        words = (ctypes.c_char_p * len(options))(*[word.encode() for word in options])
        self.call("action_info_set_option_list", info, words, ctypes.c_size_t(len(options)))
        now, source = self.made("create_data_set"), self.made("create_data", SOURCE)
        self.call("set_data", source, ctypes.c_size_t(len(text)), text)
        self.call("set_data_name", source, b"kernel.cl")
        self.call("data_set_add", now, source)
        for action in (*([] if headers else [ADD_PRECOMPILED_HEADERS]), COMPILE_WITH_LIBRARIES, LINK_BC, CODEGEN_ASSEMBLY):
            then = self.made("create_data_set")
            if self.lib.amd_comgr_do_action(action, info, now, then):
                raise RuntimeError(self.contents(then, LOG).decode(errors="replace"))
            now = then
        return self.contents(now, SOURCE)


if __name__ == "__main__":
    try:
        sys.stdout.buffer.write(Library(sys.argv[1]).assemble(sys.argv[2], sys.stdin.buffer.read(), *sys.argv[3:]))
    except RuntimeError as refused:
        sys.exit(str(refused))
