# SPDX-License-Identifier: MIT
"""What this machine has: NVIDIA's OpenCL library, also without the .icd file that names it, and the device that is reported on."""
import glob
import os
import re
import shutil
import subprocess

NVIDIA_FOLDERS = ["/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/lib64",
                  "/usr/lib/wsl/lib", "/usr/local/cuda/compat"]


def prepend(name, folder):
    """Puts a folder in front of a list of folders in the environment."""
    if folder not in os.environ.get(name, "").split(":"):
        os.environ[name] = ":".join(filter(None, [folder, os.environ.get(name)]))


def nvidia_library():
    """NVIDIA's OpenCL library, where machines (containers) have it without the .icd file that names it, or where the loader does not look."""
    if "OCL_ICD_VENDORS" in os.environ or not (os.path.exists("/dev/nvidiactl") or shutil.which("nvidia-smi")):
        return None
    folders = list(NVIDIA_FOLDERS)
    if shutil.which("ldconfig"):
        cached = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        folders = [os.path.dirname(p) for p in re.findall(r"libnvidia-opencl\.so\S* .*=> (\S+)", cached)] + folders
    folders += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(folder, "libnvidia-opencl.so*"))) if folder else []:
            return path
    try:
        found = subprocess.run(["find", "/", "-path", "/proc", "-prune", "-o", "-path", "/sys", "-prune", "-o", "-name", "libnvidia-opencl.so*", "-print"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next((line for line in found.splitlines() if line.startswith("/")), None)


def name_driver(work):
    """Makes the loader find NVIDIA's library; a sentence about it, or None where there is nothing to do."""
    driver = nvidia_library()
    if not driver:
        return None
    vendors, named = os.path.join(work, "vendors"), False
    os.makedirs(vendors, exist_ok=True)
    for icd in glob.glob("/etc/OpenCL/vendors/*.icd"):
        shutil.copy(icd, vendors)
        with open(icd, encoding="utf-8", errors="replace") as f:
            named = named or "nvidia" in f.read()
    if not named:
        with open(os.path.join(vendors, "nvidia.icd"), "w", encoding="utf-8") as f:
            f.write(driver + "\n")
    os.environ["OCL_ICD_VENDORS"] = vendors
    # its compiler is a library beside it
    folder = os.path.dirname(driver)
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), folder]))
    beside = ", ".join(sorted(map(os.path.basename, glob.glob(os.path.join(folder, "libnvidia-nvvm*"))))) or "no libnvidia-nvvm"
    return f"NVIDIA's OpenCL: {driver}, {'named' if named else 'not named'} by an .icd file; beside it {beside}"


class Device:
    """The one that is reported on, and the CPU that can work beside it."""

    def __init__(self, wanted, listed):
        devices = [d for d in listed["devices"] if d["usable"]]
        kind = {"gpu": "GPU", "cpu": "CPU"}.get(wanted)
        mine = [d for d in devices if d["kind"] == kind or d["id"] == wanted]
        if not mine:
            raise LookupError(f"NO DEVICE {wanted}; there are: " + (", ".join(f"{d['id']} {d['name']}" for d in devices) or "none"))
        first = mine[0]
        self.id, self.name, self.gpu = first["id"], first["name"], first["kind"] == "GPU"
        self.simt = self.gpu or os.environ.get("CVY_FORCE_SHAPE") == "simt"
        nvidia = [d["id"] for d in devices if d["kind"] == "GPU" and "nvidia" in (d["vendor"] + d["platform_name"]).lower()]
        self.nvidia = self.id in nvidia
        self.cuda_0 = nvidia[:1] == [self.id]            # the one that PyTorch takes
        self.cpu = next((d["id"] for d in devices if d["kind"] == "CPU" and d["id"] != self.id), None)
        self.fact = f"{first['id']} {first['name']}, driver {first['driver']}, {first['platform_name']}"
