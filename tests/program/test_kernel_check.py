#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/kernel-check finds what it is for: test_kernel_check.py   (with CASE…: only these functions named test_<case> below)

Kernels that break a rule each are compiled by the compilers that are here; a case whose compiler is not here is skipped by name. Its output is
as cmocka's, so that tools/check counts each case."""
import contextlib
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(ROOT, "tools", "kernel-check")
sys.path.insert(0, os.path.join(ROOT, "tools"))
from kernel_check import amd, facts, intel, loops, rules, scrub, source, targets, variants  # noqa: E402

COMPILERS = os.path.join(ROOT, "build", "vendor-compilers")
KEPT = tempfile.TemporaryDirectory()    # results of the cases, which have some kernels in common
SIZE = "__attribute__((reqd_work_group_size(256, 1, 1)))"
# Keeps to all rules.
PLAIN = f"kernel {SIZE} void k(global float *x) {{ x[get_global_id(0)] *= 2; }}\n"
# An array of 64 numbers that a variable finds its way in: no compiler can keep it in registers.
ARRAY = f"""kernel {SIZE} void k(global float *x, global const int *at, int n) {{
  const int id = get_global_id(0);
  float own[64];
  for (int i = 0; i < 64; i++) own[i] = x[i * n + id];
  for (int i = 0; i < n; i++) own[at[i * n + id] & 63] += own[at[i + id] & 63];
  x[id] = own[at[id] & 63];
}}
"""
# More sums than there are registers: in each step each depends on all of them.
SPILL = "#pragma OPENCL FP_CONTRACT ON\n" + f"kernel {SIZE} void k(global float *x, global const float *y, int n) {{\n" + \
    "".join(f"  float v{i} = y[{i} * n + get_global_id(0)];\n" for i in range(400)) + "  for (int s = 0; s < n; s++) {\n    const float f = y[s];\n" + \
    "".join(f"    v{i} = v{i} * f + v{(i * 7 + 3) % 400};\n" for i in range(400)) + "  }\n" + \
    "".join(f"  x[get_global_id(0) * 400 + {i}] = v{i};\n" for i in range(400)) + "}\n"
# 40 KiB of local memory: one group to a unit of gfx1030, one of sm_75.
CROWDED = f"""kernel {SIZE} void k(global float *x) {{
  local float all[10240];
  for (int i = get_local_id(0); i < 10240; i += 256) all[i] = x[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  x[get_global_id(0)] = all[(get_local_id(0) * 37) % 10240];
}}
"""


class Skip(Exception):
    pass


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def run(sources, table, *arguments, compilers=COMPILERS, kept=None):
    """(exit status, output) of kernel-check over a folder with these sources and this list."""
    with tempfile.TemporaryDirectory() as work:
        os.makedirs(os.path.join(work, "cl"))
        for name, text in sources.items():
            with open(os.path.join(work, "cl", name), "w", encoding="utf-8") as f:
                f.write(text)
        with open(os.path.join(work, "list.txt"), "w", encoding="utf-8") as f:
            f.write(table)
        environment = {name: value for name, value in os.environ.items() if name not in ("CVY_TEST_FULL", "CVY_CL_DIR")}
        done = subprocess.run([sys.executable, TOOL, "--cl-dir", os.path.join(work, "cl"), "--variants", os.path.join(work, "list.txt"), "--kept",
                               kept or KEPT.name, "--compilers", compilers, *arguments], capture_output=True, text=True, env=environment)
        return done.returncode, done.stdout + done.stderr


def faults(source, target, kind="hot", more=""):
    """The faults of one kernel on a target; Skip where its compiler is not here."""
    status, out = run({"a.cl": source}, f"a {kind}\n{more}", "--targets", target)
    if f"SKIPPED ] {target}" in out or status == 77:
        raise Skip(re.search(r"not here: .*", out).group(0))
    found = re.findall(r"^FAULT (.*)", out, re.M)
    check(status == bool(found), f"exit status {status} with {len(found)} faults:\n{out}")
    return found


def refused(source, target, rule):
    found = faults(source, target)
    check(found and all(f"{target}: {rule}:" in line for line in found), f"{target}: wanted faults of the rule '{rule}' alone, got {found}")


# One of each compiler.
FEW = ("acm-g10", "gfx1030", "gfx1100", "sm_90")


def everywhere(judge, among=None):
    """Calls judge(target) for these GPUs, with CVY_TEST_FULL for all; Skip where the compiler of none is here."""
    lost, wrong = [], []
    if not among or os.environ.get("CVY_TEST_FULL"):
        among = targets.GPUS
    for target in among:
        try:
            judge(target)
        except Skip as what:
            lost.append(f"{target}: {what}")
        except AssertionError as what:
            wrong.append(str(what))
    check(not wrong, "\n".join(wrong))
    if len(lost) == len(among):
        raise Skip("; ".join(lost))


def test_plain():
    def judge(target):
        check(not faults(PLAIN, target), f"{target}: a kernel without fault has one")
    everywhere(judge, FEW)


def test_array():
    """An array in memory is seen in the innermost loop of each GPU's code: Intel's Arc reports no memory for it."""
    everywhere(lambda target: refused(ARRAY, target, "memory"))


def test_cold():
    """A cold kernel may do all that."""
    def judge(target):
        check(not faults(ARRAY, target, "cold"), f"{target}: a cold kernel is refused")
    everywhere(judge, FEW)


def test_spill():
    def judge(target):
        found = faults(SPILL, target)
        wanted = "memory" if targets.TARGETS[target].maker == "intel" else "spills"
        check(any(f"{target}: {wanted}:" in line for line in found), f"{target}: no fault of '{wanted}' where registers are spilled, but {found}")
    everywhere(judge, FEW)


def test_groups():
    for target in ("gfx1030", "sm_75"):
        refused(CROWDED, target, "groups")


def test_simd():
    """Ponte Vecchio has no compiler that makes so narrow a kernel of today's sources: the rule is asked itself."""
    of = lambda target, simd: rules.simd(facts.kernel_facts("k", registers=128, simd=simd), targets.TARGETS[target])
    check(of("pvc", 8) and not of("pvc", 16) and not of("pvc", 32), "pvc: 16 items are to go together")
    check(of("skl", 4) and not of("skl", 8), "skl: 8 items are to go together")
    check(not rules.simd(facts.kernel_facts("k", registers=32), targets.TARGETS["sm_75"]), "sm_75: no rule")


def test_occupancy():
    """Figures of the vendors' own occupancy tables."""
    for target, registers, local, size, items in (("sm_75", 64, 0, 256, 1024), ("sm_75", 128, 16384, 256, 512), ("sm_80", 32, 0, 256, 2048),
                                                  ("sm_90", 130, 0, 256, 256), ("gfx1030", 128, 0, 256, 512), ("gfx90a", 128, 0, 256, 1024),
                                                  ("gfx906", 128, 0, 256, 512), ("gfx906", 132, 0, 256, 256), ("gfx1100", 192, 0, 256, 512)):
        found = targets.occupancy(target, registers, local, size)
        check(found == items, f"{target}: {registers} registers, {local} bytes: {found} items, wanted {items}")
    check(targets.occupancy("skl", 128, 0, 256) is None, "Intel's GPUs have no rule")


def test_excuses():
    """An excuse silences its rule on its target and no other; one that no kernel needs is a fault; one without a reason is refused."""
    try:
        target = "gfx1030"
        check(not faults(CROWDED, target, more=f"!a:k {target} groups # one group is enough here"), "an excuse excuses nothing")
    except Skip:
        target = "sm_75"
        check(not faults(CROWDED, target, more=f"!a:k {target} groups # one group is enough here"), "an excuse excuses nothing")
    for more, wanted in ((f"!a:k {target} memory # it is small", "groups:"), (f"!a:k {target} groups A=1 # other rows", "groups:"),
                         (f"!a:k {target} groups", "is to give its reason"), ("!a:k sm_999 groups # none", "an excuse is to be"),
                         (f"!a:k {target} nothing # none", "an excuse is to be"), (f"!a {target} groups # none", "an excuse is to be")):
        found = faults(CROWDED, target, more=more)
        check(any(wanted in line for line in found), f"'{more}': wanted a fault with '{wanted}', got {found}")
    found = faults(PLAIN, target, more=f"!a:k {target} groups # no longer")
    check(len(found) == 1 and "no kernel needs this excuse" in found[0], f"an excuse that no kernel needs: {found}")


def test_list():
    """Lines that are wrong are named; a file without a line is, too; a row is for the targets that it names."""
    for table, wanted in (("a warm", "is to be hot"), ("a hot A", "NAME=VALUE"), ("a hot@sm_1", "is to name targets"), ("b hot", "there is no cl/b.cl"),
                          ("a hot:other", "no kernel named other"), ("", "has no line")):
        status, out = run({"a.cl": PLAIN}, table, "--targets", "gfx1100,x86-64")
        if status == 77 or (wanted.startswith("no kernel named") and "SKIPPED ] gfx1100" in out):
            raise Skip("no clang")
        check(status == 1 and wanted in out, f"'{table}': wanted '{wanted}':\n{out}")
    check(variants.read_targets("-sm_90,-pvc") == tuple(t for t in targets.GPUS if t not in ("sm_90", "pvc")), "all but two")
    check(variants.read_targets("sm_80") == ("sm_80",) and variants.read_targets("") == tuple(targets.GPUS), "one, and all")
    check(variants.read_targets("sm_80,-pvc") is None, "some, and all but others")


@contextlib.contextmanager
def system_libraries(folder, listed):
    """ldconfig lists these libraries alone; its stand-in lies in the folder."""
    stand_in = os.path.join(folder, "ldconfig")
    with open(stand_in, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\necho '{listed}'\n")
    os.chmod(stand_in, 0o755)
    before, os.environ["PATH"] = os.environ["PATH"], folder + os.pathsep + os.environ["PATH"]
    try:
        yield
    finally:
        os.environ["PATH"] = before


def test_missing():
    """Without the vendors' compilers each target of theirs is skipped by name, and the others are compiled."""
    with tempfile.TemporaryDirectory() as nothing, system_libraries(nothing, ""):
        status, out = run({"a.cl": PLAIN}, "a hot", "--full", compilers=nothing)
        if status == 77:
            raise Skip("no clang")
        check(status == 0, f"exit status {status}:\n{out}")
        for target, of in targets.TARGETS.items():
            if of.maker in ("intel", "comgr", "nvidia"):
                check(re.search(rf"SKIPPED \] {target}: not here: \w", out), f"{target} is not named as skipped:\n{out}")


def test_system():
    """AMD's library of the system is taken where the folder has none, under a version of its own; the folder's goes first. One that compiles
    nothing counts as none."""
    fetched = next(iter(glob.glob(os.path.join(COMPILERS, "amd", "usr", "lib", "*", "libamd_comgr.so.2"))), None)

    def with_system(path):
        """Comgr without a folder, where ldconfig names this library."""
        with system_libraries(work, f"\tlibamd_comgr.so.2 (libc6,x86-64) => {path}"):
            return amd.Comgr(os.path.join(work, "none"), None)

    with tempfile.TemporaryDirectory() as work:
        libc = os.path.realpath(source.system_library("libc.so.6"))
        for path, why in ((libc, f"that works ({libc}: "), (os.path.join(work, "gone.so"), "gone.so")):
            try:
                with_system(path)
                check(False, f"{path} is taken for AMD's library")
            except targets.Missing as missing:
                check(why in str(missing), f"{missing}")
        if not fetched:
            raise Skip("not here: AMD's compiler libamd_comgr")
        before, os.environ["LD_LIBRARY_PATH"] = os.environ.get("LD_LIBRARY_PATH"), os.path.dirname(fetched)
        try:
            of_system = with_system(fetched)
        finally:
            os.environ.pop("LD_LIBRARY_PATH")
            if before is not None:
                os.environ["LD_LIBRARY_PATH"] = before
        of_folder = amd.Comgr(COMPILERS, None)
        check(of_system.library == fetched and of_folder.library.startswith(COMPILERS), f"{of_system.library} {of_folder.library}")
        check("libamd_comgr.so.2" in of_system.version and of_system.version != of_folder.version, f"{of_system.version} {of_folder.version}")


def test_kept():
    """A kept result is used for the same preprocessed source only: another comment or an unused macro changes nothing, a define or a number does."""
    target = next((t for t in ("gfx1100", "gfx1030", "sm_75") if not missing(t)), None)
    if not target:
        raise Skip("no compiler")
    source = f"#ifndef A\n#define A 2\n#endif\nkernel {SIZE} void k(global float *x) {{ x[get_global_id(0)] *= A; }}\n"
    with tempfile.TemporaryDirectory() as kept:
        def look(text, row, wanted, what):
            status, out = run({"a.cl": text}, row, "--targets", target, kept=kept)
            compilations, of_those = re.search(r"(\d+) compilations \((\d+) kept\)", out).groups()
            found = compilations == of_those
            check(status == 0 and found == wanted, f"{what}: {'kept' if found else 'compiled'}:\n{out}")
        look(source, "a hot A=3", False, "nothing is kept yet")
        look(source, "a hot A=3", True, "the same again")
        look("/* another comment */\n" + source, "a hot A=3", True, "a comment")
        look("#define UNUSED 1\n" + source, "a hot A=3", True, "an unused macro")
        look(source, "a hot A=4", False, "another define")
        look(source.replace("*= A", "+= A"), "a hot A=3", False, "another kernel")
        for name in os.listdir(kept):
            with open(os.path.join(kept, name), "w", encoding="utf-8") as f:
                f.write("[{")
        look(source, "a hot A=3", False, "a kept result that was cut off")


def test_known():
    """Committed results stand for compilations of the same source, are judged by the rules, and are compared with the compiler's by --full."""
    target = "gfx1100"
    if missing(target):
        raise Skip("no clang with libclc of its version")
    with tempfile.TemporaryDirectory() as folder:
        known = os.path.join(folder, "known.txt")
        def look(text, *arguments):
            """Exit status, output and how many compilations were done, with no other results kept."""
            status, out = run({"a.cl": text}, f"a hot@{target}", "--known", known, *arguments, kept=tempfile.mkdtemp(dir=folder))
            found = re.search(r"(\d+) compilations \((\d+) kept\)", out)
            return status, out, int(found[1]) - int(found[2]) if found else None
        status, out, n = look(PLAIN, "--renew")
        check(status == 0 and n == 1, f"nothing is known yet: {n} compilations:\n{out}")
        status, out, n = look(PLAIN)
        check(status == 0 and n == 0, f"the same again: {n} compilations:\n{out}")
        status, out, n = look(PLAIN.replace("*= 2", "*= 3"))
        check(status == 0 and n == 1, f"another kernel: {n} compilations:\n{out}")
        status, out, n = look(PLAIN, "--full")
        check(status == 0 and n == 1, f"--full compiles: {n} compilations:\n{out}")
        with open(known, encoding="utf-8") as f:
            lines = f.read()
        facts_of = re.search(r" k=(\S+)", lines)[1]
        numbers = facts_of.split(",")
        numbers[1] = "7"
        with open(known, "w", encoding="utf-8") as f:
            f.write(lines.replace(facts_of, ",".join(numbers)))
        status, out, n = look(PLAIN)
        check(status == 1 and n == 0 and "spills 7" in out, f"the rules judge what is known:\n{out}")
        status, out, n = look(PLAIN, "--full")
        check(status == 1 and "has other results for the same source and compiler" in out, f"--full compares:\n{out}")
        with open(known, "w", encoding="utf-8") as f:
            f.write(lines.replace(facts_of, "1,2"))
        status, out, n = look(PLAIN)
        check(status == 2 and "is to be KERNEL=" in out and "--renew" in out, f"a wrong line:\n{out}")


def missing(target):
    status, out = run({"a.cl": PLAIN}, "a cold", "--targets", target)
    return status == 77 or f"SKIPPED ] {target}" in out


def test_scrub():
    """LLVM 15's text becomes LLVM 7's."""
    lines = {
        "declare i64 @f(i32 noundef %a, i1 immarg) #2": "declare i64 @f(i32 %a, i1) #2",
        "define void @g(%struct.s* noundef byval(%struct.s) align 4 %c) #0 {": "define void @g(%struct.s* byval align 4 %c) #0 {",
        "define void @g({ i32, [2 x float] }* byval({ i32, [2 x float] }) %c, i8* sret(i8) %r) {": "define void @g({ i32, [2 x float] }* byval %c, i8* sret %r) {",
        "  %v = insertelement <4 x float> poison, float %a, i32 0": "  %v = insertelement <4 x float> undef, float %a, i32 0",
        "  %n = fneg float %a": "  %n = fsub float -0.0, %a",
        "  %n = fneg contract <2 x float> %a": "  %n = fsub <2 x float> <float -0.0, float -0.0>, %a",
        "  %n = freeze i32 %a": "  %n = or i32 0, %a",
        "  %n = freeze <4 x i32> %a": "  %n = or <4 x i32> zeroinitializer, %a",
        'attributes #1 = { argmemonly nocallback nofree nounwind willreturn "frame-pointer"="all" }': "attributes #1 = { argmemonly nounwind }",
        'target triple = "nvptx64-nvidia-nvcl"': 'target triple = "nvptx64-nvidia-cuda"',
        '!8 = !{!"noundef poison"}': '!8 = !{!"noundef poison"}',
    }
    for line, wanted in lines.items():
        check(scrub.scrub_line(line) == wanted, f"{line}\n  became {scrub.scrub_line(line)}\n  wanted {wanted}")
    text = scrub.scrub("define void @k(i32 %n) #0 !reqd_work_group_size !4 {\n}\n!nvvm.annotations = !{!0}\n"
                       '!0 = !{void (i32)* @k, !"kernel", i32 1}\n!4 = !{i32 64, i32 2, i32 1}')
    check('!5 = !{ void (i32)* @k, !"reqntidx", i32 64, !"reqntidy", i32 2, !"reqntidz", i32 1 }' in text, f"no group size:\n{text}")
    check("!nvvm.annotations = !{!0, !5}" in text and "!nvvmir.version = !{!6}" in text, f"no version or annotation:\n{text}")


def test_loops():
    """Innermost loops, and those of Intel's code that reach for memory of the item's own."""
    lines = ["L0:", "a", "L1:", "mad", "ld", "jump L1", "mad", "jump L0", "L2:", "mad", "mad", "jump L2", "jump L3", "mad", "L3:"]
    bodies = loops.innermost(lines, r"(L\d+):", r"jump (L\d+)")
    check(bodies == [lines[2:6], lines[8:12]], f"{bodies}")
    check(loops.count(bodies, [("mad", 2)], "ld") == (2, 1), "the loop with loads counts, not the one with more multiply-adds")
    check(loops.count_own(bodies, [("mad", 2)], "ld") == 0 and loops.count_own(bodies, [("fma", 1)], "ld") == 1, "the loop with the most multiply-adds")
    for target, buffer, own in (
            ("skl", "send (16|M0) r16:w r16 0xC 0x04205E00 // wr:2+0, rd:2; hdc.dc1; untyped surface read with x",
             "send (16|M0) r36:w r2 0xC 0x048050FF // wr:2+0, rd:8; hdc.dc1; untyped surface read with xyzw"),
            ("tgllp", "send.dc1 (16|M0) r14 r76 null 0x0 0x048050FE {@1,$12} // wr:2+0, rd:8; untyped surface read with xyzw",
             "send.dc1 (16|M0) null r2 r48 0x200 0x040250FF {@1,$15} // wr:2+8, rd:0; untyped surface write with xyzw"),
            ("acm-g10", "send.ugm (8|M0) r18 r2 null:0 0x4000000 0x62180500 {A@1,$3} // wr:1+0, rd:1; load.ugm.d32.a32.ca.ca.bti[3]",
             "send.ugm (8|M0) r15 r4 null:0 0x0 0x04483580 {A@2,$3} // wr:2+0, rd:4; load.ugm.d32x4.a64.ca.ca"),
            ("pvc", "send.ugm (32|M0) r16 r9 null:0 0x0 0x08200580 {A@1,$12} // wr:4+0, rd:2; load.ugm.d32.a64",
             "send.ugm (32|M0) null r2 r42:8 a0.2 0x440E3504 {ExBSO,F@1,$1} // wr:2+8, rd:0; store.ugm.d32x4.a32.wb.wb.ss[a0.2]")):
        check(not re.search(intel.OWN_MEMORY[target], buffer), f"{target}: a buffer is taken for memory of the item's own: {buffer}")
        check(re.search(intel.OWN_MEMORY[target], own), f"{target}: not seen: {own}")


def main():
    cases = {name[5:]: function for name, function in globals().items() if name.startswith("test_")}
    failed = 0
    for name in sys.argv[1:] or cases:
        try:
            cases[name]()
            print(f"[       OK ] {name}", flush=True)
        except Skip as what:
            print(f"[  SKIPPED ] {name}: {what}", flush=True)
        except AssertionError as what:
            print(f"{what}\n[  FAILED  ] {name}", flush=True)
            failed += 1
    return 1 if failed else 0


sys.exit(main())
