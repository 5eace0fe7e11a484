# SPDX-License-Identifier: MIT
"""A build in one file, for a machine that has a card and Python: programs, tests, libraries, the test layer, the data set, networks; and the two
kernel caches, which are taken along from one run to the next."""
import glob
import io
import json
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

from .process import ROOT

DATA_FILES = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
# What every system with Python has, or must have of its own.
SYSTEM_LIBRARIES = ("linux-vdso", "ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libz.so", "libgcc_s.so")
SUITES = ("kernel", "team")
LARGE = 64 << 20      # more than that is a nuisance to carry
CACHE_BYTES = 16 << 20                           # of each cache, packed with what is newest


# Of the environment that meson gives to tests: what names files of the build, and the test layer, which stands beside programs here and is used where
# one dies. On a card tests run as programs do, without it.
NOT_ELSEWHERE = ("LD_LIBRARY_PATH", "OPENCL_LAYERS", "CVY_LAYER_ALWAYS")
# A test that needs a module of the build is compiled with its path.
MODULE = re.compile(rb"/tests/(?:test_layer|wrong_libs)\.so\0")


def needs_module(program):
    if not os.path.exists(program):                      # its step says so
        return False
    with open(program, "rb") as f:
        return MODULE.search(f.read()) is not None


def test_programs(build):
    """Tests of a build that can run elsewhere: name → suite, command, environment and priority, paths as on this machine."""
    with open(os.path.join(build, "meson-info", "intro-tests.json"), encoding="utf-8") as f:
        tests = json.load(f)
    found, bound = {}, {}
    for t in tests:
        suite, program = t["suite"][0].split(":")[-1], t["cmd"][0]
        if suite not in SUITES or len(t["cmd"]) != 1:
            continue
        if program not in bound:
            bound[program] = needs_module(program)
        if not bound[program]:
            found[t["name"]] = {"suite": suite, "cmd": t["cmd"], "env": {k: v for k, v in t["env"].items() if k not in NOT_ELSEWHERE},
                                "priority": t.get("priority", 0)}
    return found


def libraries(program):
    """Shared libraries of a program, but for the system's: name → file."""
    out = subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", out, re.M))
    return {name: path for name, path in found.items() if not name.startswith(SYSTEM_LIBRARIES)}


def data_files(folder):
    """The files of Fashion-MNIST in a folder."""
    found = [sorted(glob.glob(os.path.join(glob.escape(folder), name + "*"))) for name in DATA_FILES]
    if not all(found):
        raise OSError(f"--data-dir {folder}: expected the four files of Fashion-MNIST, such as {DATA_FILES[0]}.gz")
    return [files[0] for files in found]


def network_files(folder):
    found = sorted(glob.glob(os.path.join(glob.escape(folder), "*.onnx")))
    if not found:
        raise OSError(f"--networks {folder}: expected .onnx files, as tools/compare/export-networks writes them")
    return found


def layer_of(build):
    path = os.path.join(build, "tests", "test_layer.so")
    return path if os.path.exists(path) else None


def pack(a, build):
    tests = test_programs(build)
    programs = {"tools/convoy": os.path.join(build, "tools", "convoy")}
    programs.update({f"tests/{os.path.basename(t['cmd'][0])}": t["cmd"][0] for t in tests.values()})
    layer = layer_of(build)
    if layer:
        programs["tests/test_layer.so"] = layer
    found = {}
    for path in programs.values():
        found.update(libraries(path))
    # Tests find their files by the environment, which names the source tree.
    for t in tests.values():
        t["cmd"] = ["tests/" + os.path.basename(t["cmd"][0])]
        t["env"] = {k: os.path.join(".", os.path.relpath(v, ROOT)) if v.startswith(ROOT + os.sep) else v for k, v in t["env"].items()}
    data = data_files(a.data_dir) if a.data_dir else []
    networks = network_files(a.networks) if a.networks else []
    version = subprocess.run([programs["tools/convoy"], "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip().splitlines()[0]
    with tempfile.TemporaryDirectory() as work, tarfile.open(a.pack, "w:xz", preset=3) as tar:
        for name, path in sorted(programs.items()):
            # symbols stay: backtraces are read by them
            bare = os.path.join(work, os.path.basename(path))
            if subprocess.run(["strip", "--strip-debug", "-o", bare, path], stderr=subprocess.DEVNULL).returncode != 0:
                bare = path
            tar.add(bare, name)
        for name, path in sorted(found.items()):
            tar.add(os.path.realpath(path), "lib/" + name)
        for path in data:
            tar.add(os.path.realpath(path), "data/" + os.path.basename(path))
        for path in networks:
            tar.add(os.path.realpath(path), "networks/" + os.path.basename(path))
        manifest = os.path.join(work, "manifest.json")
        with open(manifest, "w", encoding="utf-8") as f:
            json.dump({"version": version, "machine": platform.machine(), "tests": tests}, f, indent=1)
        tar.add(manifest, "manifest.json")
    size = os.path.getsize(a.pack)
    print(f"{a.pack}: {size / 1e6:.1f} MB, {version}, {len(tests)} tests, libraries {', '.join(sorted(found))}, "
          f"{'the data set' if data else 'no data set (--data-dir)'}, "
          f"{'networks ' + ' '.join(network_name(n) for n in networks) if networks else 'no networks (--networks)'}, "
          f"{'the test layer' if layer else 'no test layer (tests/test_layer.so is not built)'}"
          + (f"; more than {LARGE >> 20} MiB" if size > LARGE else ""))


def network_name(path):
    return os.path.splitext(os.path.basename(path))[0]


def safe_members(tar):
    members = tar.getmembers()
    if any(m.name.startswith(("/", "..")) or "/../" in m.name or not m.isfile() for m in members):
        raise OSError("it has members that are not plain files below its folder")
    return members


def unpack(path, folder):
    with tarfile.open(path) as tar:
        members = safe_members(tar)
        if "manifest.json" not in tar.getnames():
            raise OSError("it is not what --pack makes")
        for m in members:                 # plain files alone, looked at above
            tar.extract(m, folder)
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    if manifest["machine"] != platform.machine():
        raise OSError(f"it is for {manifest['machine']}, this machine is {platform.machine()}")
    for t in manifest["tests"].values():
        t["cmd"] = [os.path.join(folder, t["cmd"][0])]
        t["env"] = {k: os.path.join(ROOT, v) if os.sep in v else v for k, v in t["env"].items()}
    return manifest


# ---- kernel caches ----

class Caches:
    """Convoy's kernels and NVIDIA's machine code, in a folder that nothing else uses: convoy/ and nvidia/."""
    NAMES = ("convoy", "nvidia")

    def __init__(self, given, folder):
        """given: a folder to use as it is, a file to begin with, or None."""
        self.folder = os.path.abspath(given) if given and os.path.isdir(given) else folder
        self.note = "empty"
        os.makedirs(self.folder, exist_ok=True)
        if given and not os.path.isdir(given):
            with tarfile.open(given) as tar:
                for m in safe_members(tar):
                    if m.name.split("/")[0] in self.NAMES:
                        tar.extract(m, self.folder)
        counts = {name: len(self.files(name)) for name in self.NAMES}
        if any(counts.values()):
            self.note = ", ".join(f"{name} {n} files" for name, n in counts.items()) + f" from {os.path.basename(os.path.abspath(given))}"

    def environment(self):
        return {"XDG_CACHE_HOME": self.folder, "CUDA_CACHE_PATH": os.path.join(self.folder, "nvidia"), "CUDA_CACHE_MAXSIZE": str(2 << 30)}

    def files(self, name):
        found = []
        for at, _, names in os.walk(os.path.join(self.folder, name)):
            for n in names:
                try:
                    s = os.stat(os.path.join(at, n))
                except OSError:
                    continue
                found.append((s.st_mtime, s.st_size, os.path.join(at, n)))
        return sorted(found, reverse=True)

    def write(self, path):
        """Both into one file, the newest files first; what it says of them."""
        said, chosen = [], []
        for name in self.NAMES:
            files, size = self.files(name), 0
            kept = []
            for _, bytes_, file in files:
                if size + bytes_ <= CACHE_BYTES:
                    size += bytes_
                    kept.append(file)
            chosen += kept
            said.append(f"{name} {size / 1e6:.1f} MB" + (f" ({len(files) - len(kept)} of {len(files)} files left out: more than {CACHE_BYTES >> 20} MiB)"
                                                        if len(kept) < len(files) else ""))
        if not chosen:
            return "both empty, no file written"
        with tarfile.open(path + ".part", "w:xz", preset=1) as tar:
            for file in chosen:
                try:
                    tar.add(file, os.path.relpath(file, self.folder))
                except OSError:                          # a compiler took it away
                    continue
        os.replace(path + ".part", path)
        return ", ".join(said) + f": {os.path.basename(path)}"


# ---- the report's own archive ----

KEPT_BYTES = 2 << 20                             # of one step's output


class Archive:
    """All files of a report in one, written anew as steps end: at once while it is small, less often when writing it takes longer."""

    def __init__(self, path, folder):
        self.path, self.folder = path, folder
        self.written, self.took = 0.0, 0.0
        self.lock, self.timer = threading.Lock(), None

    def write(self, also, now=False):
        """also: files to go with it."""
        with self.lock:
            wait = self.written + 10 * self.took - time.time()
            if now and self.timer:
                self.timer.cancel()
            if not now and wait > 0:
                if not self.timer:                       # nothing may end for long: it is written all the same
                    self.timer = threading.Timer(wait, self.later, (also,))
                    self.timer.daemon = True
                    self.timer.start()
                return
            self.write_now(also)

    def later(self, also):
        with self.lock:
            self.timer = None
            self.write_now(also)

    def write_now(self, also):
        begin = time.time()
        try:
            with tarfile.open(self.path + ".part", "w:xz", preset=1) as tar:
                for file in also:
                    if os.path.exists(file):
                        tar.add(file, os.path.basename(file))
                for at, _, names in os.walk(self.folder):
                    for name in sorted(names):
                        self.add(tar, os.path.join(at, name))
            os.replace(self.path + ".part", self.path)
        except OSError as e:
            print(f"gpu-report: {self.path}: {e}", file=sys.stderr)
        self.written = time.time()
        self.took = self.written - begin

    def add(self, tar, file):
        try:
            with open(file, "rb") as f:
                size = os.fstat(f.fileno()).st_size
                data = f.read(KEPT_BYTES // 2 if size > KEPT_BYTES else size)
                if size > KEPT_BYTES:
                    f.seek(size - KEPT_BYTES // 2)
                    data += f"\n… {size - KEPT_BYTES} bytes …\n".encode() + f.read()
        except OSError:
            return
        info = tarfile.TarInfo(os.path.relpath(file, os.path.dirname(self.folder)))
        info.size, info.mtime = len(data), int(time.time())
        tar.addfile(info, io.BytesIO(data))


def remove(folder):
    shutil.rmtree(folder, ignore_errors=True)
