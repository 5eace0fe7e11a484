# SPDX-License-Identifier: MIT
"""A kernel's source as a target's compiler sees it: preprocessed here, once, so that what is compiled is what a kept result was found by."""
import glob
import os
import re
import subprocess

from .targets import Fault, Missing

# What clang defines for each maker's front end. Before compilers that preprocess once more, macros of their own (CLK_LOCAL_MEM_FENCE, FLT_MAX)
# are left as they stand.
PREPROCESS = {
    "intel": lambda target: ["-target", "spir64-unknown-unknown"],
    "comgr": lambda target: ["-target", "amdgcn-amd-amdhsa", "-mcpu=" + target],
    "clang": lambda target: ["-target", "amdgcn-amd-amdhsa", "-mcpu=" + target],
    "nvidia": lambda target: ["-target", "nvptx64-nvidia-nvcl", "-D__NV_CL_C_VERSION=120"],
    "host": lambda target: ["-target", "x86_64-unknown-linux-gnu", "-march=skylake-avx512"],
}


def kernel_files(cl_dir):
    """{name without ".cl": path} of the kernel files of a folder and of its sub-folders."""
    return {os.path.basename(path)[:-3]: path for path in glob.glob(os.path.join(cl_dir, "**", "*.cl"), recursive=True)}


def preprocess(clang, cl_dir, file, defines, target):
    command = [clang, "-E", "-P", "-x", "cl", "-cl-std=CL1.2", "-cl-no-stdinc", "-nogpulib", *PREPROCESS[target.maker](target.name), "-I", cl_dir,
               f"-DCVY_CPU={int(target.maker == 'host')}", *("-D" + d for d in (*target.defines, *defines)), kernel_files(cl_dir)[file]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Fault(" ".join(command) + "\n" + done.stderr)
    return done.stdout


def needed_libraries(path, environment=None):
    """Missing unless a library is there, with all that it loads."""
    if not os.path.exists(path):
        raise Missing(os.path.basename(path))
    said = subprocess.run(["ldd", path], capture_output=True, text=True, env=environment).stdout
    lost = re.findall(r"(\S+) => not found", said)
    if lost:
        raise Missing(f"{', '.join(lost)}, which {os.path.basename(path)} loads")


def system_library(name):
    """The path by which the system's loader finds a library, or None."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])      # ldconfig is not for users alone
    said = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, env={**os.environ, "PATH": path}).stdout
    found = re.search(rf"^\s*{re.escape(name)} .*=> (\S+)", said, re.M)
    return found.group(1) if found else None


def library_version(path):
    """What a library is made of, in place of a version: the names and sizes of its file and of all files that it loads."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    files = sorted({os.path.realpath(name) for name in [path, *re.findall(r"=> (/\S+)", said)]})
    return "".join(f"{os.path.basename(name)} {os.path.getsize(name)}\n" for name in files)
