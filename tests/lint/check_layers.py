#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which file may include which: check_layers.py includes | forbidden | headers | environment   (run from anywhere; meson runs all)

The rule of a folder stands at the top of its meson.build, and nowhere else (tools/generate/folder_rules.py has the lines); a folder without one
has that of the folder above it.
includes: the folders keep their rules; structs of the team are small, one file knows what a lock guards, and modules do not include each other in
          wide circles; src/ref calls nothing of src/cl, but for the files that run cases on devices; OpenCL headers only in src/cl;
          includes carry the full path from the root; file names are unique; a folder has no more than 40 files; the library neither prints nor exits; what it waits
          for, and how long, follows the monotonic clock (src/base/sync.h); kernels ask for groups of a dimension that is a number.
forbidden: each of these rules finds what breaks it: every pair of folders that may not know each other, and one case of each other rule, is put
          into a source as it is read, and has to be reported.
headers:  every public header compiles alone as strict C11 (and as C++ where there is a compiler), every internal one as the sources do; so do the fuzz targets.
environment: src/base/env.c alone reads environment variables; doc/developers/environment.md has each with what src/base/env.h says of it, and names
          those of the tests.
"""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "generate"))
from folder_rules import Rule, read_meson  # noqa: E402
# What a folder can be without, as headers.
WITHOUT = {
    "OpenCL": re.compile(r"^(?:CL|OpenCL)/|^(?:clblast|clblast_c|clFFT)\.h$|^src/cl/"),
    "threads": re.compile(r"^(?:pthread\.h|stdatomic\.h|threads\.h|src/base/(?:sync|pool)\.h)$"),
    "clocks": re.compile(r"^(?:time\.h|sys/time\.h|src/base/clock\.h)$"),
    "sockets": re.compile(r"^(?:sys/socket\.h|netinet/.*|arpa/.*|netdb\.h|poll\.h)$|^src/link/"),
}
# An include that breaks each of them.
BREAKS = {"OpenCL": ('"src/cl/opencl.h"', "<CL/cl.h>"), "threads": ("<pthread.h>", "<stdatomic.h>", '"src/base/sync.h"', '"src/base/pool.h"'),
          "clocks": ("<time.h>", '"src/base/clock.h"'), "sockets": ("<sys/socket.h>", '"src/link/link.h"')}
# Types of a team whose members only their own file knows: what a lock guards is touched beside the lock.
OPAQUE = ("cvy_journal", "cvy_roster", "cvy_ring", "cvy_mail", "cvy_exchange", "cvy_ledger", "cvy_recovery", "cvy_watch", "cvy_shares", "cvy_results", "cvy_events",
          "cvy_worker", "cvy_chain", "cvy_membership", "cvy_fleet", "cvy_rebalance", "cvy_new_shares", "cvy_bn_sync", "cvy_timeline")
TEAM = ("src/protocol", "src/fleet", "src/exchange", "src/replica", "src/team")
MOST_MEMBERS, MOST_CIRCLE, MOST_FILES = 20, 2, 40
CASES_ON_DEVICES = ("src/ref/case.h", "src/ref/case_run.c")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
OPENCL = re.compile(r"^(CL|OpenCL)/|^(clblast|clblast_c|clFFT)\.h$")
ASSERT_FILE = "src/base/failure.c"      # prints before it aborts on a failed CVY_ASSERT
GROUP_CALL = re.compile(r"\bget_(?:num_groups|group_id)\s*\(([^()]*)\)")
PRINTS = re.compile(r"(?<![\w.>])(printf|puts|putchar|perror|exit|_exit)\s*\(|\bfprintf\s*\(\s*(stderr|stdout)\b|\bfputs?c?\s*\([^;]*\b(stderr|stdout)\b")
WAITS_FILE = "src/base/sync.c"
WAITS = re.compile(r"\b(pthread_cond_init|pthread_cond_timedwait|PTHREAD_COND_INITIALIZER|pthread_mutex_timedlock|sem_timedwait|CLOCK_REALTIME|gettimeofday|timespec_get|time\s*\(\s*NULL)\b")


def sources(*folders, endings=(".c", ".h")):
    for folder in folders:
        for where, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(names):
                if name.endswith(endings):
                    yield os.path.relpath(os.path.join(where, name), ROOT)


PLANTED = {}                            # by `forbidden`: {path: what stands behind the text of the file}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read() + PLANTED.get(path, "")


def without_comments_and_strings(text):
    blank = lambda m: re.sub(r"[^\n]", " ", m.group(0)) if m.group(0)[0] == "/" else '""'
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def read_rules():
    """{folder: Rule} of all folders with sources, and what is wrong with them."""
    rules, faults = {}, []
    for folder in sorted({os.path.dirname(path) for path in sources("src", "tools")}):
        at = folder
        while at and not Rule(at).is_set:
            at = os.path.dirname(at)
        rules[folder] = Rule(at or folder)
        if not at:
            faults.append(f"{folder}/meson.build: no line \"# May include: …\", here or above")
        if not read_meson(folder).startswith("# SPDX-License-Identifier: MIT\n# ") and at:
            faults.append(f"{folder}/meson.build: the second line is to say what the folder holds")
        faults += [f"{folder}/meson.build: \"{name}\": known are {', '.join(WITHOUT)}" for name in rules[folder].without if name not in WITHOUT]
    return rules, faults


RULES, RULE_FAULTS = read_rules()
PUBLIC = {name: rule.layer for rule in RULES.values() for name in rule.public}


def rule_of(path):
    return RULES[os.path.dirname(path)]


def layer_of(path):
    """The folder whose rule holds for a source or a header; None: there is none."""
    if path.startswith(("convoy/", "include/")):
        return PUBLIC.get(os.path.splitext(os.path.basename(path))[0])
    rule = RULES.get(os.path.dirname(path))
    return rule and rule.layer


def include_fault(path, kind, target):
    """Why `path` may not include `target`, or None."""
    if OPENCL.match(target):
        return None if path.startswith("src/cl/") else "only src/cl includes OpenCL headers"
    if kind == "<":
        return None
    if target.startswith("cl/"):
        return None if path.startswith("src/ops/") else "only src/ops shares structs with kernels"
    if not target.startswith(("src/", "convoy/", "tools/")):
        return "write the full path from the root (src/…, tools/…, convoy/…, cl/…)"
    if not os.path.exists(os.path.join(ROOT, "include" if target.startswith("convoy/") else "", target)):
        return "there is no such file"
    if path.startswith("include/"):
        return None if target.startswith("convoy/") else "a public header includes public headers only"
    if path in CASES_ON_DEVICES and target.startswith("src/cl/"):
        return None
    rule, theirs = rule_of(path), layer_of(target)
    if theirs is None:
        return "no folder has it among its public headers"
    if theirs == rule.layer or "everything" in rule.may or target in rule.may or os.path.basename(theirs) in rule.may:
        return None
    if rule.layer.startswith("tools/") and target.startswith(("convoy/", "tools/")):
        return None
    return f"{rule.layer} may include {' '.join(rule.may)} (see its meson.build)"


def reach(path, known):
    """Every header behind the includes of a source file, its own path left out: {header: the include of `path` that leads there}."""
    if path not in known:
        known[path] = {}
        for kind, target in INCLUDE.findall(read(path)):
            known[path].setdefault(target, target)
            file = "include/" + target if target.startswith("convoy/") else target
            if kind == '"' and os.path.exists(os.path.join(ROOT, file)):
                for further in reach(file, known):
                    known[path].setdefault(further, target)
    return known[path]


def purity_faults(path, known):
    return [f"{path}: reaches {header} through {by}: its folder is without {name}"
            for name in rule_of(path).without for header, by in reach(path, known).items() if WITHOUT[name].match(header)]


STRUCT = re.compile(r"struct\s+(?:CVY_CAPABILITY\([^)]*\)\s*)?(\w*)\s*\{")


def structs(code):
    """(name, number of members, position) of each struct of a file; members of nested ones without a name count as its own."""
    for match in STRUCT.finditer(code):
        depth, at, members = 1, match.end(), 0
        begin = at
        while depth and at < len(code):
            depth += {"{": 1, "}": -1}.get(code[at], 0)
            at += 1
        body = code[begin:at - 1]
        for declaration in re.split(r";", re.sub(r"(?:struct|union)\s*\{|\}\s*\w*", ";", body)):
            declaration = re.sub(r"\([^()]*\)", "", re.sub(r"\{[^}]*\}", "", declaration))
            members += declaration.count(",") + 1 if declaration.strip() else 0
        yield match.group(1), members, match.start()


def circles(modules):
    """Groups of modules that include one another in a circle."""
    def reached(start):
        seen, pending = set(), [start]
        while pending:
            for further in modules[pending.pop()] - seen:
                seen.add(further)
                pending.append(further)
        return seen
    all_reached = {m: reached(m) for m in modules}
    return {frozenset(o for o in all_reached[m] if m in all_reached[o]) | {m} for m in modules if m in all_reached[m]}


def team_faults():
    """The team: small structs, guarded members in one file, no wide circle."""
    faults, modules = [], {}
    for path in sources(*TEAM):
        code = without_comments_and_strings(read(path))
        for name, members, at in structs(code):
            if members > MOST_MEMBERS:
                faults.append(f"{path}:{line_of(code, at)}: struct {name} has {members} members, at most {MOST_MEMBERS}: give some an owner")
            if path.endswith(".h") and name in OPAQUE:
                faults.append(f"{path}:{line_of(code, at)}: struct {name} is to be known to its own file only")
    return faults


def circle_faults():
    modules = {}
    for path in sources("src", "tools"):
        module = os.path.splitext(path)[0]
        modules.setdefault(module, set()).update(os.path.splitext(target)[0] for _, target in INCLUDE.findall(read(path))
                                                 if target.startswith(("src/", "tools/")))
    for module, names in modules.items():
        names &= set(modules)
        names.discard(module)
    wide = [sorted(circle) for circle in circles(modules) if len(circle) > MOST_CIRCLE]
    return [f"{len(circle)} modules include one another in a circle: {' '.join(circle)}" for circle in wide]


def size_faults():
    faults = []
    for top in ("src", "cl", "tools", "tests", "include", "python"):
        for at, folders, names in os.walk(os.path.join(ROOT, top)):
            folders[:] = [f for f in folders if f != "__pycache__" and (top != "tests" or f not in ("data", "mutations"))]
            names = [name for name in names if not name.endswith(".pyc")]
            if len(names) > MOST_FILES:
                faults.append(f"{os.path.relpath(at, ROOT)}: {len(names)} files, at most {MOST_FILES}: make folders of it")
    return faults


def check_includes():
    faults, seen = list(RULE_FAULTS), {}
    cl_functions = set()
    for path in sources("src/cl"):
        if path.endswith(".h"):
            cl_functions |= set(re.findall(r"\b(cvy_\w+)\s*\(", without_comments_and_strings(read(path))))
    n_includes = n_files = 0
    known = {}
    for path in sources("src", "include", "tools"):
        text = read(path)
        n_files += 1
        faults += purity_faults(path, known) if not path.startswith("include/") else []
        if not text.startswith("/* SPDX-License-Identifier: MIT"):
            faults.append(f"{path}:1: the first line is to be /* SPDX-License-Identifier: MIT */")
        for match in INCLUDE.finditer(text):
            n_includes += 1
            fault = include_fault(path, *match.groups())
            if fault:
                faults.append(f"{path}:{line_of(text, match.start())}: includes {match.group(2)}: {fault}")
        code = without_comments_and_strings(text)
        if path.startswith("src/ref/") and path not in CASES_ON_DEVICES:
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
                    faults.append(f"{path}:{line_of(code, match.start())}: {match.group(0)}: time that may be set back; see src/base/sync.h")
        if not path.startswith("include/"):
            name = os.path.basename(path)
            if name in seen:
                faults.append(f"{path}: {seen[name]} has the same file name; names are unique in the tree")
            seen[name] = path
    for path in sources("cl", "tests", endings=(".cl", ".clh", ".c")):
        code = read(path)                             # kernels of tests are strings
        for match in GROUP_CALL.finditer(code):
            if match.group(1) not in ("uint", "0", "1", "2"):
                faults.append(f"{path}:{line_of(code, match.start())}: {match.group(0)}: the dimension is to be a number, 0 to 2: PoCL 6 does not "
                              "compile another, PoCL 7.1 takes it and gives 0")
    public = {os.path.basename(path) for path in sources("include")}
    faults += [f"{path}: a public header has the same name" for path in sources("src", "tools") if os.path.basename(path) in public]
    faults += team_faults() + circle_faults() + size_faults()
    if not n_includes or not cl_functions:
        faults.append("no include or no function of src/cl found: is this the root of the source tree?")
    return faults, f"{n_files} files, {n_includes} includes"


def check_forbidden():
    faults, n = [], 0
    files, headers = {}, {}
    for path in sources("src", "tools"):
        if path not in CASES_ON_DEVICES:
            files.setdefault(layer_of(path), path)
        if path.endswith(".h") and not any(path in rule.may for rule in RULES.values()):
            headers.setdefault(layer_of(path), path)

    def plant(path, text, look, what):
        nonlocal n
        PLANTED[path] = "\n" + text + "\n"
        found, n = look(path), n + 1
        del PLANTED[path]
        if not found:
            faults.append(f"{path}: no rule notices {what}")

    for mine, path in files.items():
        for theirs, header in headers.items():
            may = rule_of(path).may
            if theirs != mine and "everything" not in may and os.path.basename(theirs) not in may and not (mine.startswith("tools/") and theirs.startswith("tools/")):
                plant(path, f'#include "{header}"', lambda p: [f for f in map(lambda i: include_fault(p, *i), INCLUDE.findall(read(p))) if f],
                      f"an include of {header}")
    for path in sources("src"):
        for header in (header for name in rule_of(path).without for header in BREAKS[name]):
            if header.strip('"') != path:
                plant(path, f"#include {header}", lambda p: purity_faults(p, {}), f"an include of {header}")
    team = lambda path: team_faults()
    plant("src/protocol/roster.h", "struct big { struct { int " + ", ".join(f"m{i}" for i in range(MOST_MEMBERS)) + "; }; int last; };", team, "a large struct")
    for name in OPAQUE:
        plant("src/protocol/shares.h", f"struct {name} {{ int n; }};", team, f"members of {name} in a header")
    plant("src/protocol/roster.h", '#include "src/exchange/exchange.h"', lambda path: circle_faults(), "a wide circle")
    return faults, f"{n} planted"


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
    # meson builds the fuzz targets only where libFuzzer is, so that a change of a type they name would go unnoticed.
    for path in sources("tests"):
        if path.startswith("tests/fuzz/") and path.endswith(".c"):
            jobs.append((path, "C11", [cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-D_GNU_SOURCE", "-I.", "-Iinclude", path], None))
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


ENVIRONMENT_PAGE = "doc/developers/environment.md"
READS_ENVIRONMENT = re.compile(r"\b(?:secure_|__secure_)?getenv\s*\(|\benviron\b")
WHOM = {"USER": "user", "SYSTEM": "system", "KNOB": "tests, experiments"}


def check_environment():
    faults = []
    for path in sources("src", "include", "tools"):
        code = without_comments_and_strings(read(path))
        if path != "src/base/env.c":
            faults += [f"{path}:{line_of(code, m.start())}: {m.group(0)}…: only src/base/env.c reads the environment"
                       for m in READS_ENVIRONMENT.finditer(code)]
    guide = read(ENVIRONMENT_PAGE)
    table = re.sub(r"\s*\\\n\s*", " ", read("src/base/env.h"))
    rows = re.findall(r'\bX\((\w+), "(\w+)", (\w+), (PLAIN|LOADS), "([^"]+)"\)', table)
    if len(rows) != len(re.findall(r'\bX\(\w+, "', table)) or not rows:
        faults.append("src/base/env.h: a row of CVY_ENV_MAP cannot be read")
    wanted = [f"| `{name}` | {WHOM[whom]} | {'yes' if loads == 'LOADS' else ''} | {meaning} |" for _, name, whom, loads, meaning in rows]
    told = re.findall(r"^\| `[A-Z_]+` \|.*\|$", guide, re.M)
    faults += [f"{ENVIRONMENT_PAGE}: lacks the row {row}" for row in wanted if row not in told]
    faults += [f"{ENVIRONMENT_PAGE}: {row}: is not in src/base/env.h" for row in told if row not in wanted]
    read_by_tests = set()
    for path in sources("tests"):
        read_by_tests |= set(re.findall(r'\bgetenv\("((?:CVY|CONVOY)_\w+)"\)', read(path)))
    faults += [f"{ENVIRONMENT_PAGE}: does not name {name}, which tests read" for name in sorted(read_by_tests) if f"`{name}" not in guide]
    return faults, f"{len(rows)} variables of the program, {len(read_by_tests)} of tests"


def main():
    checks = {"includes": check_includes, "forbidden": check_forbidden, "headers": check_headers, "environment": check_environment}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        print(f"usage: check_layers.py {' | '.join(checks)}", file=sys.stderr)
        return 2
    faults, looked_at = checks[sys.argv[1]]()
    for fault in faults:
        print(fault)
    print(f"{sys.argv[1]}: {looked_at}, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main())
