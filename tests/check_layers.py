#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Who may include whom: check_layers.py includes | headers | environment   (run from anywhere; meson runs all)

includes: base <- cl <- ops <- nn <- train <- tools, each may include what stands to its left; src/ref sees base and the headers of ops
          and calls nothing of cl; OpenCL headers only in src/cl; tools use public headers, the one writer of files
          and the one reader of the environment, except bench, tune and selftest;
          includes carry the full path from the root; file names are unique; the library neither prints nor exits; what it waits
          for, and how long, follows the monotonic clock (src/base/thread.h); kernels ask for groups of a dimension that is a number.
headers:  every public header compiles alone as strict C11 (and as C++ where there is a compiler), every internal one as the sources do.
environment: src/base/env.c alone reads environment variables; CONTRIBUTING.md has each with what src/base/env.h says of it, and names
          those of the tests.
"""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAYERS = ["base", "cl", "ops", "nn", "train", "tools"]
# The layer that implements a public header; those not named here belong to train, the last layer of the library.
PUBLIC = {"status": "base", "log": "base", "device": "cl", "tensor": "ops", "profile": "cl", "net": "nn"}
INTERNALS_ALLOWED = re.compile(r"^tools/(cmd_)?(bench|tune|selftest)\w*\.[ch]$")
SHARED = ("src/base/file.h", "src/base/env.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
OPENCL = re.compile(r"^(CL|OpenCL)/|^(clblast|clblast_c|clFFT)\.h$")
ASSERT_FILE = "src/base/status.c"      # prints before it aborts on a failed CVY_ASSERT
GROUP_CALL = re.compile(r"\bget_(?:num_groups|group_id)\s*\(([^()]*)\)")
PRINTS = re.compile(r"(?<![\w.>])(printf|puts|putchar|perror|exit|_exit)\s*\(|\bfprintf\s*\(\s*(stderr|stdout)\b|\bfputs?c?\s*\([^;]*\b(stderr|stdout)\b")
WAITS_FILE = "src/base/thread.c"
WAITS = re.compile(r"\b(pthread_cond_init|pthread_cond_timedwait|PTHREAD_COND_INITIALIZER|pthread_mutex_timedlock|sem_timedwait|CLOCK_REALTIME|gettimeofday|timespec_get|time\s*\(\s*NULL)\b")


def sources(*folders):
    for folder in folders:
        for where, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(where, name), ROOT)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def without_comments_and_strings(text):
    blank = lambda m: re.sub(r"[^\n]", " ", m.group(0)) if m.group(0)[0] == "/" else '""'
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def layer_of(path):
    parts = path.split("/")
    if parts[0] == "convoy":
        return PUBLIC.get(os.path.splitext(parts[1])[0], "train")
    return "tools" if parts[0] == "tools" else parts[1]


def include_fault(path, kind, target):
    """Why `path` may not include `target`, or None."""
    if OPENCL.match(target):
        return None if path.startswith("src/cl/") else "only src/cl includes OpenCL headers"
    if kind == "<":
        return None
    if not target.startswith(("src/", "convoy/", "tools/")):
        return "write the full path from the root (src/…, tools/…, convoy/…)"
    if not os.path.exists(os.path.join(ROOT, "include" if target.startswith("convoy/") else "", target)):
        return "there is no such file"
    if path.startswith("include/"):
        return None if target.startswith("convoy/") else "a public header includes public headers only"
    if path.startswith("src/ref/"):
        allowed = ("src/ref/", "src/base/", "src/ops/", "convoy/status.h", "convoy/log.h", "convoy/tensor.h")
        return None if target.startswith(allowed) else "src/ref includes base and the headers of ops only"
    mine = layer_of(path)
    if target.startswith("src/"):
        theirs = layer_of(target)
        if mine == "tools":
            return None if target in SHARED or INTERNALS_ALLOWED.match(path) else "tools use public headers (bench, tune and selftest excepted)"
        if theirs == "ref":
            return "the library does not use src/ref"
    else:
        theirs = layer_of(target)
    if LAYERS.index(theirs) > LAYERS.index(mine):
        return f"{mine} may not use {theirs} ({' <- '.join(LAYERS)})"
    return None


def check_includes():
    faults, seen = [], {}
    cl_functions = set()
    for path in sources("src/cl"):
        if path.endswith(".h"):
            cl_functions |= set(re.findall(r"\b(cvy_\w+)\s*\(", without_comments_and_strings(read(path))))
    n_includes = n_files = 0
    for path in sources("src", "include", "tools"):
        text = read(path)
        n_files += 1
        if not text.startswith("/* SPDX-License-Identifier: MIT"):
            faults.append(f"{path}:1: the first line is to be /* SPDX-License-Identifier: MIT */")
        if path.startswith("src/") and layer_of(path) not in LAYERS + ["ref"]:
            faults.append(f"{path}: no layer of that name")
            continue
        for match in INCLUDE.finditer(text):
            n_includes += 1
            fault = include_fault(path, *match.groups())
            if fault:
                faults.append(f"{path}:{line_of(text, match.start())}: includes {match.group(2)}: {fault}")
        code = without_comments_and_strings(text)
        if path.startswith("src/ref/"):
            for match in re.finditer(r"\b(cvy_\w+)\s*\(", code):
                if match.group(1) in cl_functions:
                    faults.append(f"{path}:{line_of(code, match.start())}: calls {match.group(1)}: src/ref calls nothing of src/cl")
        if path.startswith("src/"):
            for match in PRINTS.finditer(code):
                if path == ASSERT_FILE:
                    continue
                faults.append(f"{path}:{line_of(code, match.start())}: {match.group(0).strip()}…: the library neither prints nor exits")
            for match in WAITS.finditer(code):
                if path != WAITS_FILE:
                    faults.append(f"{path}:{line_of(code, match.start())}: {match.group(0)}: time that may be set back; see src/base/thread.h")
        if not path.startswith("include/"):
            name = os.path.basename(path)
            if name in seen:
                faults.append(f"{path}: {seen[name]} has the same file name; names are unique in the tree")
            seen[name] = path
    for path in sorted(f"{folder}/{name}" for folder in ("cl", "tests") for name in os.listdir(os.path.join(ROOT, folder))
                       if name.endswith((".cl", ".clh", ".c"))):
        code = read(path)                             # kernels of tests are strings
        for match in GROUP_CALL.finditer(code):
            if match.group(1) not in ("uint", "0", "1", "2"):
                faults.append(f"{path}:{line_of(code, match.start())}: {match.group(0)}: the dimension is to be a number, 0 to 2: PoCL 6 does not "
                              "compile another, PoCL 7.1 takes it and gives 0")
    if not n_includes or not cl_functions:
        faults.append("no include or no function of src/cl found: is this the root of the source tree?")
    return faults, f"{n_files} files, {n_includes} includes"


def check_headers():
    faults, n = [], 0
    cc = shutil.which("gcc") or shutil.which("cc")
    jobs = []
    for path in sources("include", "src"):
        if not path.endswith(".h"):
            continue
        public = path.startswith("include/")
        name = path[len("include/"):] if public else path
        flags = ["-Iinclude"] if public else ["-D_GNU_SOURCE", "-I.", "-Iinclude"]
        # Twice, so that the include guard is checked too.
        text = f'#include "{name}"\n#include "{name}"\nextern int cvy_header_test;\n'
        strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"] + (["-pedantic"] if public else [])
        jobs.append((path, "C11", [cc, "-x", "c", *strict, *flags, "-"], text))
        if public and shutil.which("g++"):
            jobs.append((path, "C++", ["g++", "-x", "c++", "-std=c++11", "-Wall", "-Werror", "-fsyntax-only", *flags, "-"], text))
    for path, language, command, text in jobs:
        done = subprocess.run(command, input=text, cwd=ROOT, capture_output=True, text=True)
        n += 1
        if done.returncode:
            faults.append(f"{path}: does not compile alone as {language}:\n{done.stderr}")
    listed = set(re.findall(r"'(\w+\.h)'", read("include/convoy/meson.build")))
    present = set(os.listdir(os.path.join(ROOT, "include", "convoy"))) - {"meson.build"}
    faults += [f"include/convoy/{name}: is not installed: it is not in the list of include/convoy/meson.build" for name in sorted(present - listed)]
    if not n:
        faults.append("no header found")
    return faults, f"{n} compilations"


READS_ENVIRONMENT = re.compile(r"\b(?:secure_|__secure_)?getenv\s*\(|\benviron\b")
WHOM = {"USER": "user", "SYSTEM": "system", "KNOB": "tests, experiments"}


def check_environment():
    faults = []
    for path in sources("src", "include", "tools"):
        code = without_comments_and_strings(read(path))
        if path != "src/base/env.c":
            faults += [f"{path}:{line_of(code, m.start())}: {m.group(0)}…: only src/base/env.c reads the environment"
                       for m in READS_ENVIRONMENT.finditer(code)]
    guide = read("CONTRIBUTING.md")
    rows = re.findall(r'^  X\((\w+), "(\w+)", (\w+), (PLAIN|LOADS), "([^"]+)"\)', read("src/base/env.h"), re.M)
    if len(rows) != len(re.findall(r"^  X\(", read("src/base/env.h"), re.M)) or not rows:
        faults.append("src/base/env.h: a row of CVY_ENV_MAP cannot be read")
    wanted = [f"| `{name}` | {WHOM[whom]} | {'yes' if loads == 'LOADS' else ''} | {meaning} |" for _, name, whom, loads, meaning in rows]
    told = re.findall(r"^\| `[A-Z_]+` \|.*\|$", guide, re.M)
    faults += [f"CONTRIBUTING.md: lacks the row {row}" for row in wanted if row not in told]
    faults += [f"CONTRIBUTING.md: {row}: is not in src/base/env.h" for row in told if row not in wanted]
    read_by_tests = set()
    for path in sources("tests"):
        read_by_tests |= set(re.findall(r'\bgetenv\("((?:CVY|CONVOY)_\w+)"\)', read(path)))
    faults += [f"CONTRIBUTING.md: does not name {name}, which tests read" for name in sorted(read_by_tests) if f"`{name}" not in guide]
    return faults, f"{len(rows)} variables of the program, {len(read_by_tests)} of tests"


def main():
    checks = {"includes": check_includes, "headers": check_headers, "environment": check_environment}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        print(f"usage: check_layers.py {' | '.join(checks)}", file=sys.stderr)
        return 2
    faults, looked_at = checks[sys.argv[1]]()
    for fault in faults:
        print(fault)
    print(f"{sys.argv[1]}: {looked_at}, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main())
