#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The package as pip installs it: package_test.py CONVOY GROUP

`pip install ./python` into an empty virtual environment over the library beside CONVOY, with the system's numpy and cffi and the meson-python that
tools/check has fetched: pip itself fetches nothing (--no-index)."""
import glob
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile

from python_test import CONVOY, ROOT, main

BUILD = os.path.dirname(os.path.dirname(CONVOY))
FETCHED = os.path.join(ROOT, "build", "meson-python")


def install(pip, **env):
    """`pip install ./python` in this process's environment and env."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CONVOY_BUILD", "PKG_CONFIG_PATH")}
    return subprocess.run([pip, "install", "--no-index", "--no-build-isolation", "--no-deps", os.path.join(ROOT, "python")],
                          env={**inherited, "PYTHONPATH": FETCHED, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **env}, capture_output=True, text=True)


def test_installed(folder):
    if not os.path.isdir(os.path.join(FETCHED, "mesonpy")):
        print("skipped: no meson-python in build/meson-python (tools/check fetches it)")
        return 77
    at = os.path.join(folder, "env")
    try:
        venv.create(at, with_pip=True, system_site_packages=True, symlinks=True)
    except subprocess.CalledProcessError:
        print("skipped: no venv (Debian: python3-venv)")
        return 77
    pip, python = (os.path.join(at, name) for name in ("bin/pip", "bin/python"))
    # no library: the places that were looked in, and what to do
    none = os.path.join(folder, "none")
    done = install(pip, CONVOY_BUILD=none)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and none in said and "not a build folder of Convoy" in said and "tools/quickstart --setup-only" in said, said
    before = set(glob.glob(os.path.join(ROOT, "python", "**"), recursive=True))
    done = install(pip, CONVOY_BUILD=BUILD)
    assert done.returncode == 0, done.stdout + done.stderr
    left = {path for path in set(glob.glob(os.path.join(ROOT, "python", "**"), recursive=True)) - before if "__pycache__" not in path}
    assert not left, f"the build left {left}"
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    run = lambda *words: subprocess.run([python, *words], env=env, cwd=folder, capture_output=True, text=True)
    found = run("-c", "import convoy, sys; print(convoy.__file__, convoy.__version__, convoy._ffi.string(convoy._lib.cvy_version()).decode())")
    place, *versions = found.stdout.split() or [""]
    assert place.startswith(at) and len(versions) == 2 and versions[0] == versions[1].replace("-rc", "rc"), found
    assert {"py.typed", "trainer.py", "built.py"} <= set(os.listdir(os.path.dirname(place)))
    files = run("-c", "import importlib.metadata as m; d = m.distribution('convoy'); print(sorted(d.requires))")
    assert "numpy" in files.stdout and "cffi" in files.stdout and files.stdout.count("'") == 4, files
    assert run("-m", "convoy", "--version").stdout == subprocess.run([CONVOY, "--version"], capture_output=True, text=True).stdout
    trained = run("-c", "import convoy; r = convoy.Trainer('lenet', devices='0:0', batch=32); print(r.fit('synthetic:64', epochs=1, quiet=True).steps)")
    assert trained.stdout == "2\n" or "no device" in trained.stderr.lower(), trained
    return 0


def test_wheel(folder):
    """tools/python-wheel: a wheel with the library, the program and their libraries, which runs where neither the tree nor the build is."""
    if not all(os.path.exists(os.path.join(ROOT, "build", group, package)) for group, package in (("meson-python", "mesonpy"), ("auditwheel", "auditwheel"))):
        print("skipped: no meson-python and auditwheel in build (tools/python-wheel fetches them)")
        return 77
    tool = os.path.join(ROOT, "tools", "python-wheel")
    wrong = subprocess.run([sys.executable, tool, "--build", folder], capture_output=True, text=True)
    assert wrong.returncode == 2 and "tools/quickstart --setup-only" in wrong.stderr, wrong
    done = subprocess.run([sys.executable, tool, "--build", BUILD, os.path.join(folder, "out")], capture_output=True, text=True)
    assert done.returncode == 0 and "manylinux" in done.stdout, done
    with zipfile.ZipFile(done.stdout.strip()) as archive:
        names = [name for name in archive.namelist() if ".so" in name]
        archive.extractall(os.path.join(folder, "site"))
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in archive.infolist()}
    carried = {os.path.basename(name).split("-")[0].split(".")[0] for name in names if ".libs/" in name}
    assert "libconvoy" in carried and "libOpenCL" not in carried and modes["convoy/bin/convoy"] & 0o111 == 0o111, names
    os.chmod(os.path.join(folder, "site", "convoy", "bin", "convoy"), 0o755)
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    env["PYTHONPATH"] = os.path.join(folder, "site")
    run = lambda *words: subprocess.run([sys.executable, *words], env=env, cwd=folder, capture_output=True, text=True)
    used = run("-c", "import convoy, glob, os, subprocess; d = os.path.dirname(convoy.__file__)\n"
               "for f in [d + '/bin/convoy', *glob.glob(d + '/_cffi*')]: print(subprocess.run(['ldd', f], capture_output=True, text=True).stdout)")
    assert used.returncode == 0 and os.path.join(folder, "site") in used.stdout and BUILD not in used.stdout and "not found" not in used.stdout, used
    assert run("-m", "convoy", "--version").stdout == subprocess.run([CONVOY, "--version"], capture_output=True, text=True).stdout
    trained = run("-c", "import convoy; r = convoy.Trainer('lenet', devices='0:0', batch=32); print(r.fit('synthetic:64', epochs=1, quiet=True).steps)")
    assert trained.stdout == "2\n" or "no device" in trained.stderr.lower(), trained
    return 0


def test_no_driver(folder):
    """Without a driver, or without OpenCL's loader, an error says what to install."""
    env = {**os.environ, "OCL_ICD_VENDORS": folder}
    text = ("import convoy\nfor call in (lambda: convoy.Trainer('lenet').fit('synthetic:64'), lambda: convoy.Trainer('lenet', devices='0:0').fit('synthetic:64')):\n"
            "    try: call()\n    except convoy.NoDeviceError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True)
    assert done.stdout.count("OCL_ICD_VENDORS") >= 2 or done.stdout.count("install") >= 2, done
    advice = subprocess.run([sys.executable, "-c", "from convoy import _ffi, _lib; t = _ffi.new('char[]', 4096); _lib.cvy_device_advice(t, 4096); print(_ffi.string(t).decode())"],
                            env=env, capture_output=True, text=True)
    assert "install" in advice.stdout and "pocl" in advice.stdout, advice
    text = ("import importlib.abc, sys\nclass None_(importlib.abc.MetaPathFinder):\n    def find_spec(self, name, path, target=None):\n"
            "        if name == 'convoy._cffi': raise ImportError('libOpenCL.so.1: cannot open shared object file')\nsys.meta_path.insert(0, None_())\nimport convoy")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 1 and "ocl-icd-libopencl1" in done.stderr.splitlines()[-1] and "pocl-opencl-icd" in done.stderr, done


if __name__ == "__main__":
    if sysconfig.get_config_var("INCLUDEPY") is None or not sys.platform.startswith("linux"):
        raise SystemExit(77)
    main(globals())
