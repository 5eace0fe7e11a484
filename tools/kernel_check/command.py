# SPDX-License-Identifier: MIT
"""The command: which compilations are wanted, which are kept, what they say."""
import argparse
import concurrent.futures
import os
import re
import sys
import tempfile
import time

from . import amd, clang, facts, host, intel, loops, nvidia, source, table, targets, variants
from .kept import Kept
from .known import RENEW, Known
from .rules import Judge
from .targets import GPUS, HOST, TARGETS, Fault, Missing

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAKERS = {"intel": intel.Compiler, "comgr": amd.Comgr, "clang": amd.Clang, "nvidia": nvidia.Compiler, "host": host.Compiler}
SKIPPED = 77


def parse(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="only these files of cl/ (without .cl)")
    parser.add_argument("--full", action="store_true", default=bool(os.environ.get("CVY_TEST_FULL")), help="every variant for every target that it is for")
    parser.add_argument("--targets", metavar="NAME,…", help="only these of " + ", ".join(GPUS) + f", {HOST}, and every variant for them")
    parser.add_argument("--all", action="store_true", help="print every variant, not only the worst of each kernel")
    parser.add_argument("--markdown", action="store_true", help="print the table alone, for a page of doc/")
    parser.add_argument("--cl-dir", default=os.environ.get("CVY_CL_DIR") or os.path.join(ROOT, "cl"), help="folder of the kernels")
    parser.add_argument("--variants", default=os.path.join(ROOT, "tests", "data", "kernel_variants.txt"), help="the list of variants")
    parser.add_argument("--compilers", default=os.path.join(ROOT, "build", "vendor-compilers"), help="what tools/fetch/vendor_compilers.py has made")
    parser.add_argument("--kept", default=os.path.join(ROOT, "build", "kernel-check"), help="folder of kept results")
    parser.add_argument("--known", default=os.path.join(ROOT, "tests", "data", "kernel_results.txt"), help="file of committed results, which are believed without --full")
    parser.add_argument("--renew", action="store_true", help="write that file: the results of this run, which takes none from it")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8), help="compilations at once [processors, at most 8]")
    return parser.parse_args()


def reader_text(compiler):
    """The code that reads what a maker's compiler says: part of what a kept result follows from."""
    texts = []
    for module in (sys.modules[compiler.__module__], loops, facts):
        with open(module.__file__, encoding="utf-8") as f:
            texts.append(f.read())
    return "".join(texts)


class Bench:
    """The compilers that are here, and the results that are kept. Committed ones are believed, or compared with what is compiled here."""
    def __init__(self, args):
        self.cl_dir, self.kept, self.clang = args.cl_dir, Kept(args.kept), clang.find()
        self.known, self.believes = Known(args.known), not (args.full or args.renew)
        self.compilers, self.readers, self.missing = {}, {}, {}
        for maker, make in MAKERS.items():
            try:
                self.compilers[maker] = make(args.compilers, self.clang)
                self.readers[maker] = reader_text(self.compilers[maker])
            except Missing as what:
                self.missing[maker] = str(what)
        self.compiled, self.keys, self.differ = 0, {}, []

    def look(self, job):
        """Kernels of a row on a target; Fault if it does not compile."""
        row, name = job
        target = TARGETS[name]
        compiler = self.compilers[target.maker]
        text = source.preprocess(self.clang.program, self.cl_dir, row.file, row.defines, target)
        key = Kept.key(text, name, " ".join(target.flags), compiler.version, self.readers[target.maker])
        self.keys[job] = key
        result = self.known.kernels.get(key) if self.believes else None
        if result is None:
            result = self.kept.read(key)
        if result is None:
            with tempfile.TemporaryDirectory() as folder:
                result = compiler.compile(text, name, target.flags, folder)
            self.kept.write(key, result)
            self.compiled += 1
        if self.known.kernels.get(key, result) != result:
            self.differ.append(f"{row.file} [{' '.join(row.defines)}] {name}: {self.known.path} has other results for the same source and compiler; {RENEW}")
        for kernel in result:
            kernel["target"] = name
            kernel["items"] = None if kernel["registers"] is None else targets.occupancy(name, kernel["registers"], kernel["local"] or 0, kernel["size"])
        return result


def wanted_jobs(args, rows):
    if not args.targets:
        return variants.jobs(rows, args.full)
    names = args.targets.split(",")
    for name in names:
        if name not in TARGETS:
            stop(f"there is no target {name}: {', '.join(TARGETS)}")
    return [job for job in variants.jobs(rows, True) if job[1] in names]


def cases(bench, jobs, left_out, judge, faults):
    """A line for each target, as cmocka writes them, which tools/check counts and names."""
    lines = ["[  FAILED  ] list" if len(faults) > sum(judge.broken.values()) else "[       OK ] list"]
    for name in TARGETS:
        if name in left_out:
            lines.append(f"[  SKIPPED ] {name}: not here: {bench.missing[TARGETS[name].maker]}")
        elif any(job[1] == name for job in jobs):
            lines.append(f"[  FAILED  ] {name}" if judge.broken.get(name) else f"[       OK ] {name}")
    return lines


def stop(text):
    print(f"kernel-check: {text}", file=sys.stderr)
    sys.exit(2)


def main(description):
    args = parse(description)
    began = time.monotonic()
    paths = source.kernel_files(args.cl_dir)
    present = sorted(paths)
    if not present:
        stop(f"no kernels in {args.cl_dir}")
    for name in args.files:
        if name not in present:
            stop(f"there is no {args.cl_dir}/{name}.cl")
    if args.renew and (args.files or args.targets or args.full):
        stop("--renew is for all that the check compiles by default: no FILE, --targets or --full")
    try:
        bench = Bench(args)
    except ValueError as what:
        stop(what)
    except Missing as what:
        print(f"kernel-check: skipped: not here: {what}; nothing was checked", file=sys.stderr)
        return SKIPPED
    rows, excuses, faults = variants.read(args.variants, args.cl_dir)
    faults += [f"cl/{name}.cl has no line in {os.path.relpath(args.variants, ROOT)}" for name in present if name not in {row.file for row in rows}]
    if args.files:
        rows = [row for row in rows if row.file in args.files]
        excuses = [excuse for excuse in excuses if excuse.file in args.files]
    all_jobs = wanted_jobs(args, rows)
    left_out = [name for name in TARGETS if TARGETS[name].maker in bench.missing and any(job[1] == name for job in all_jobs)]
    jobs = [job for job in all_jobs if job[1] not in left_out]

    if args.renew and left_out:
        stop(f"--renew needs all compilers; not here: {', '.join(bench.missing[TARGETS[name].maker] for name in left_out)}")

    def look(job):
        try:
            return bench.look(job)
        except Fault as fault:
            return str(fault)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(look, jobs))

    on_core = {}
    for name in present:
        with open(paths[name], encoding="utf-8") as f:
            on_core[name] = set(re.findall(r"\bGEMM_KERNEL\s+(\w+)", f.read()))
    judge, shown = Judge(excuses), table.Table()
    for (row, name), kernels in zip(jobs, results):
        what = f"{row.file} [{' '.join(row.defines)}] {name}"
        if isinstance(kernels, str):
            judge.fault(name, f"{what}: does not compile:\n{kernels}")
            continue
        judge.tried.add((row, name))
        names = {kernel["kernel"] for kernel in kernels}
        if not names:
            judge.fault(name, f"{what}: no kernel in it")
        if isinstance(row.hot, frozenset) and row.hot - names:
            judge.fault(name, f"{what}: no kernel named {', '.join(sorted(row.hot - names))}; there are {', '.join(sorted(names))}")
        for kernel in kernels:
            judge.judge(row, kernel, kernel["kernel"] in on_core[row.file])
            shown.add(row, kernel, kernel["kernel"] in on_core[row.file])
    if args.renew and not faults + judge.faults:
        bench.known.write([(bench.keys[job], job[1], job[0].file, kernels) for job, kernels in zip(jobs, results)])
    elif not args.renew:
        faults += bench.differ
    faults += judge.faults + judge.unneeded(rows)

    if args.markdown:
        print(shown.markdown(args.all))
    else:
        print(shown.text(args.all))
    out = sys.stderr if args.markdown else sys.stdout
    for fault in faults:
        print(f"FAULT {fault}", file=out)
    for line in cases(bench, jobs, left_out, judge, faults):
        print(line, file=out)
    print(f"kernel-check: {len(rows)} variants, {len(jobs)} compilations ({len(jobs) - bench.compiled} kept), {len(shown.rows)} kernels, "
          f"{len(excuses)} excuses, {len(faults)} faults, {time.monotonic() - began:.0f} s", file=out)
    return 1 if faults else 0
