#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/setup/common and tools/setup/check_report.py: test_setup.py GROUP   (groups: the functions named test_<group> below)

Nothing is installed: apt-get, dpkg-query and what else touches the system are scripts in a folder that stands first in PATH. apt-get keeps
a list of what is asked of it, and removes what a driver breaks unless it is told not to, as the real one does."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLS = ["gcc", "libc6-dev", "meson", "ninja-build", "pkg-config", "python3", "ocl-icd-opencl-dev", "opencl-headers", "librandom123-dev",
         "libxxhash-dev", "libjansson-dev", "zlib1g-dev", "libclblast1", "libclfft2", "libsodium-dev", "libjpeg-dev", "libpng-dev", "dataset-fashion-mnist", "libcmocka-dev"]
APT_GET = r"""
echo "apt-get $*" >>"$FAKE/asked"
case " $* " in *" update "*|*" install "*) ;; *" download "*) exit 0 ;; *) exit 100 ;; esac
breaks=
for name; do
  case $name in
    pocl-opencl-icd|mesa-opencl-icd) breaks=$(sed -n 's/^installed \(rocm-opencl-icd\) .*/\1/p' "$FAKE/installed") ;;
    nothing-such) exit 100 ;;
  esac
done
[ "$1" != update ] || exit 0
case " $* " in
  *" -s "*) [ -z "$breaks" ] || echo "Remv $breaks [5.7.1-6]"; exit 0 ;;
  *" --no-remove "*) [ -z "$breaks" ] || { echo "E: Packages need to be removed but remove is disabled." >&2; exit 100; } ;;
esac
for name; do
  case $name in
    -*|install) ;;
    libpocl2) echo "installed libpocl2t64 libpocl2 (= 6.0-6), libpocl2+llvm18" >>"$FAKE/installed" ;;
    pocl-opencl-icd) echo "installed pocl-opencl-icd opencl-icd, opencl-icd-1.2-1" >>"$FAKE/installed" ;;
    *) echo "installed $name " >>"$FAKE/installed" ;;
  esac
done
[ -z "$breaks" ] || sed -i "/^installed $breaks /d" "$FAKE/installed"
"""
SCRIPTS = {"apt-get": APT_GET, "apt-cache": '[ "$2" != nothing-such ]\n', "dpkg-query": 'cat "$FAKE/installed"\n', "id": "echo 0\n",
           "ldconfig": 'echo "	libpocl.so.2 (libc6,x86-64) => $FAKE/lib/libpocl.so.2"\n', "install": 'echo "install $*: $(cat)" >>"$FAKE/written"\n',
           "rm": 'echo "rm $*" >>"$FAKE/written"\n'}
AMD = "installed rocm-opencl-icd opencl-icd\n"
failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print("FAILED:", what)


def setup(installed, script):
    """Runs a piece of shell behind tools/setup/common on a machine that has these packages: stderr, and what the scripts wrote."""
    with tempfile.TemporaryDirectory() as work:
        for name, text in SCRIPTS.items():
            with open(os.path.join(work, name), "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\n" + text)
            os.chmod(f.name, 0o755)
        with open(os.path.join(work, "installed"), "w", encoding="utf-8") as f:
            f.write("".join(f"installed {name} \n" for name in TOOLS) + installed)
        done = subprocess.run(["bash", "-euc", f". '{ROOT}/tools/setup/common'; {script}"], cwd=work, text=True, capture_output=True, timeout=60,
                              env={**os.environ, "FAKE": work, "PATH": work + ":" + os.environ["PATH"]})
        read = lambda name: open(os.path.join(work, name), encoding="utf-8").read() if os.path.exists(os.path.join(work, name)) else ""
        check(done.returncode == 0, f"{script}: exit {done.returncode}: {done.stderr}")
        return done.stderr, read("asked"), read("written"), read("installed"), work


NO_SERVER = """echo "apt-get $*" >>"$FAKE/asked"
case " $* " in
  *" update "*) echo "Err:1 http://deb.debian.org/debian bookworm InRelease"; echo "  Temporary failure resolving 'deb.debian.org'"; exit ${UPDATE_STATUS:-100} ;;
  *" install "*) echo "E: Unable to fetch some archives" >&2; exit 100 ;;
esac
"""
ONE_SERVER = NO_SERVER.replace("Err:1 http", "Hit:1 http://deb.debian.org/debian bookworm InRelease\nErr:2 http")


def in_tree(script, scripts, installed="", env=None, tree=None):
    """Runs a script of tools/ in a tree of its own, in which nothing can be built, on a machine with these scripts in PATH: (what it printed and
    its exit status, what was asked of apt-get and python3)."""
    with tempfile.TemporaryDirectory() as work:
        os.makedirs(os.path.join(work, "tree"))
        shutil.copytree(os.path.join(ROOT, "tools"), os.path.join(work, "tree", "tools"), ignore=shutil.ignore_patterns("__pycache__"))
        for name, text in {**SCRIPTS, "meson": "exit 1\n", "python3": 'echo "python3 $*" >>"$FAKE/asked"\n', **scripts}.items():
            with open(os.path.join(work, name), "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\n" + text)
            os.chmod(f.name, 0o755)
        with open(os.path.join(work, "installed"), "w", encoding="utf-8") as f:
            f.write(installed)
        if tree:
            tree(os.path.join(work, "tree"))
        done = subprocess.run(["bash", *script], cwd=os.path.join(work, "tree"), text=True, capture_output=True, timeout=60,
                              env={**os.environ, "FAKE": work, "PATH": work + ":" + os.environ["PATH"], **(env or {})})
        asked = os.path.join(work, "asked")
        if not os.path.exists(asked):
            return done, ""
        with open(asked, encoding="utf-8") as f:
            return done, f.read()


def package_list(name):
    with open(os.path.join(ROOT, "tools", "setup", "common"), encoding="utf-8") as f:
        return set(re.search(rf'^{name}="([^"]*)"', f.read(), re.M).group(1).split())


def test_offline():
    """Without a network: one line and the end, soon, not a try for each package. One source of several that fails does not end it."""
    for script in ("tools/quickstart", "tools/check"):
        for status in ("100", "0"):
            done, asked = in_tree([script], {"apt-get": NO_SERVER}, env={"UPDATE_STATUS": status})
            lines = [line for line in done.stderr.splitlines() if not line.startswith("===")]
            wanted = len(lines) == 1 and "no package server can be reached" in lines[0] and "gcc" in lines[0] if script == "tools/quickstart" else "no package server" in done.stderr
            check(done.returncode == 1 and wanted, f"{script}, update {status}: {done.stderr}")
            installs = [line for line in asked.splitlines() if " install " in line]
            check(len(installs) == 1 and "--no-download" in installs[0], f"{script}: one try, of what apt's cache has: {asked}")
            check(all("Acquire::Retries=0" in line for line in asked.splitlines() if line.startswith("apt-get")), f"no second tries: {asked}")
    there = "".join(f"installed {name} \n" for name in package_list("PACKAGES_BUILD") | {"pocl-opencl-icd"})
    done, asked = in_tree(["tools/quickstart", "--setup-only"], {"apt-get": NO_SERVER}, there)
    check(done.stderr.count("no package server can be reached; going on without:") == 1 and "building" in done.stderr, f"optional ones: {done.stderr}")
    done, asked = in_tree(["tools/quickstart"], {"apt-get": ONE_SERVER})
    check("no package server" not in done.stderr and "going on with the lists that are there" in done.stderr, f"one of two sources: {done.stderr}")


def test_tiers():
    """tools/check --quick installs the packages of the build and cmocka, and fetches nothing; each other phase asks for what it needs."""
    allowed = package_list("PACKAGES_BUILD") | package_list("PACKAGES_EXTRA") | {"libcmocka-dev", "pocl-opencl-icd"}

    def wants(*arguments):
        done, asked = in_tree(["tools/check", *arguments], {})
        check("=== build" in done.stderr, f"{arguments}: set-up went through: {done.stderr}")
        packages = {word for line in asked.splitlines() if line.startswith("apt-get install") for word in line.split()[2:] if not word.startswith(("-", "Acquire::"))}
        return packages, {line.split()[1] for line in asked.splitlines() if line.startswith("python3 tools/") and "check_report" not in line}

    packages, fetched = wants("--quick")
    check(packages == allowed and not fetched, f"--quick: beyond the build {sorted(packages - allowed)}, not asked for {sorted(allowed - packages)}, fetched {fetched}")
    for phase, more, fetches in [("faults", set(), set()), ("oclgrind", {"oclgrind"}, set()), ("rusticl", {"mesa-opencl-icd", "python3-pip"}, set()),
                                 ("intel", {"python3-pip"}, {"tools/fetch/intel_opencl.py"}), ("tsan", package_list("PACKAGES_MPI"), set())]:
        packages, fetched = wants("--only", phase)
        check(packages - allowed == more and fetched == fetches, f"{phase}: {sorted(packages - allowed)} {fetched}")
    packages, fetched = wants()
    check(packages - allowed >= package_list("PACKAGES_MPI") | {"clang", "mesa-opencl-icd", "g++"} and
          fetched == {"tools/fetch/intel_opencl.py", "tools/fetch/vendor_compilers.py", "tools/fetch/wheels.py"}, f"default: {sorted(packages - allowed)} {fetched}")


def test_fetch():
    """Compilers of GPUs' vendors come into the folder also where the system has packages of them, other versions for other purposes; libraries
    below them do not. A folder that lacks its compiler is not complete."""
    scripts = {"dpkg-query": "echo installed\n", "apt-cache": "echo '  Candidate: 1'\n"}
    fetch = f"exec '{sys.executable}' tools/fetch/vendor_compilers.py compilers"
    for group, wanted in (("amd", "libamd-comgr2"), ("intel", "intel-opencl-icd libigc1 libigdfcl1 libigdgmm12 libopencl-clang14")):
        for script in (f"{fetch} {group}", f"{sys.executable} tools/fetch/vendor_compilers.py compilers {group}; {fetch} {group}"):
            done, asked = in_tree(["-c", script], scripts)
            downloads = [line.split(" -q ")[1] for line in asked.splitlines() if line.startswith("apt-get download")]
            check(downloads == [wanted] * (1 + script.count(";")), f"{group}: asked for {downloads}, {done.stderr}")


def test_read_only():
    """A source tree in which nothing can be written is named as that, in one line, before anything is installed."""
    def with_file(tree):
        with open(os.path.join(tree, "build"), "w", encoding="utf-8"):
            pass
    for script in ("tools/quickstart", "tools/check"):
        done, asked = in_tree([script], {}, tree=with_file)
        check(done.returncode == 1 and re.fullmatch(r"\w+: \S+/tree/build cannot be written \([^)]+\): copy the source tree .*\n", done.stderr) and not asked,
              f"{script}: {done.stderr}{asked}")
    can = ["unshare", "--mount", "--propagation", "private", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
    if shutil.which("unshare") and subprocess.run([*can, "true"], capture_output=True).returncode == 0:
        ro = "mount --bind . . && mount -o remount,ro,bind . && cd \"$PWD\" && exec bash tools/quickstart"
        done, asked = in_tree(["-c", f"exec {' '.join(can)} bash -c '{ro}'"], {})
        check(done.returncode == 1 and "build cannot be written (Read-only file system): copy the source tree" in done.stderr and done.stderr.count("\n") == 1,
              f"mounted read-only: {done.stderr}{asked}")


def test_packages():
    """No driver is removed, whatever is installed; what is not installed is told with the reason."""
    told, asked, written, installed, work = setup(AMD, "set -o pipefail; pocl_need; packages_need optional mesa-opencl-icd nothing-such libclc-19")
    installs = [line for line in asked.splitlines() if " install " in line and " -s " not in line]
    check(installs and all(" --no-remove " in line for line in installs), f"--no-remove always: {asked}")
    check(AMD in installed and "libpocl2t64" in installed and "pocl-opencl-icd" not in asked, f"beside AMD's driver PoCL's library: {installed}{asked}")
    check(written == f"install -D -m 644 /dev/stdin /etc/OpenCL/vendors/pocl-convoy.icd: {work}/lib/libpocl.so.2\n", f"an .icd with the library's path: {written}")
    check("installed mesa-opencl-icd" not in installed and "installed libclc-19 " in installed, f"what can be installed is: {installed}")
    check("  mesa-opencl-icd: not installed, as that would remove: rocm-opencl-icd" in told and "  nothing-such: no package of that name" in told, told)
    told, asked, written, installed, work = setup("", "pocl_need")
    check("installed pocl-opencl-icd" in installed and not written, f"without a driver PoCL's package: {installed}{written}")
    told, asked, written, installed, work = setup(AMD + "installed libpocl2t64 libpocl2 (= 6.0-6)\n", "pocl_need")
    check(not asked and "pocl-convoy.icd" in written, f"a library without an .icd gets one: {asked}{written}")
    told, asked, written, installed, work = setup("installed pocl-opencl-icd opencl-icd\n" + AMD, "pocl_need")
    check(not asked and "install" not in written, f"where PoCL is, nothing is done: {asked}{written}")


OUTPUT_1 = """[==========] build/check/tests/test_x: Running 3 test(s).
[ RUN      ] a
[       OK ] a
[ RUN      ] b on 0:0 x (simt)
[  ERROR   ] --- 0x1 != 0
[   LINE   ] --- ../../tests/test_x.c:169: error: Failure!
[  FAILED  ] b on 0:0 x (simt)
[ RUN      ] c
[  SKIPPED ] c
[==========] build/check/tests/test_x: 3 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] build/check/tests/test_x: 1 test(s), listed below:
[  SKIPPED ] c
[  FAILED  ] build/check/tests/test_x: 1 test(s), listed below:
[  FAILED  ] b on 0:0 x (simt)

 1 FAILED TEST(S)
"""


def test_report():
    """Each case counts once, summary lines do not, with and without the program's path in them."""
    want = ["passed tests x a", "failed tests x b on 0:0 x (simt)", "skipped tests x c"]
    with tempfile.TemporaryDirectory() as work:
        for output in (OUTPUT_1, OUTPUT_1.replace("build/check/tests/test_x: ", ""), OUTPUT_1.replace("build/check/tests/test_x", "/a folder/test_x")):
            log, results = os.path.join(work, "log.json"), os.path.join(work, "results")
            with open(log, "w", encoding="utf-8") as f:
                f.write(json.dumps({"name": "convoy:host / x", "stdout": output, "result": "FAIL", "returncode": 1}) + "\n")
            report = [sys.executable, os.path.join(ROOT, "tools", "setup", "check_report.py"), results]
            subprocess.run([*report, "tests", log], check=True)
            with open(results, encoding="utf-8") as f:
                got = f.read().splitlines()
            check(got == want, f"{got}, must be {want}")
            done = subprocess.run(report, text=True, capture_output=True)
            check(done.returncode == 1 and done.stdout.splitlines()[-1] == "1 passed, 1 failed, 1 skipped", done.stdout)
            os.unlink(results)


if not shutil.which("bash"):
    sys.exit(77)
globals()["test_" + sys.argv[1]]()
sys.exit(1 if failures else 0)
