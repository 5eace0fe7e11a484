# SPDX-License-Identifier: MIT
"""The command: options, and which stages run with what."""
import argparse
import json
import os
import resource
import signal
import sys
import tarfile
import tempfile

from . import beside, machine, pack, process, reading, stages
from .process import ROOT
from .report import Report
from .runner import Runner, Step


def arguments(doc, argv):
    p = argparse.ArgumentParser(prog="gpu-report", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--stage", choices=[*stages.STAGES, "all"], default="all", help="contact, numbers, speed or all [default: all]")
    p.add_argument("--device", default="gpu", metavar="SEL", help="gpu, cpu, or P:D of convoy devices [default: gpu]")
    p.add_argument("--out", default="gpu-report.md", metavar="F.md", help="the report; beside it F.json, F.tar.xz, F.caches.tar.xz [default: gpu-report.md]")
    p.add_argument("--quick", action="store_true", help="a few tests and small networks: minutes, also on a CPU")
    p.add_argument("--limit", type=float, metavar="S", help="end within so many seconds [default: none]")
    p.add_argument("--resume", metavar="F.json", help="an earlier report: steps that have ended are not done again, but for those that --only names and that failed")
    p.add_argument("--only", nargs="+", metavar="GROUP", help="these groups of steps only, of all stages; --only help lists them")
    p.add_argument("--build", metavar="DIR|F.tar.xz", help="an existing build, or what --pack made [default: build/report, made if missing]")
    p.add_argument("--pack", metavar="F.tar.xz", help="write the build into a file and end")
    p.add_argument("--data-dir", metavar="DIR", help="where the files of Fashion-MNIST lie, for training and the golden tests [default: where convoy train looks]")
    p.add_argument("--networks", metavar="DIR", help="where .onnx files lie, as tools/compare/export-networks writes them [default: those of --build, if it has some]")
    p.add_argument("--caches", metavar="DIR|F.tar.xz", help="kernel caches of an earlier run to begin with [default: those beside --resume]")
    p.add_argument("--layer", choices=["crash", "always", "never"], default="crash",
                   help="run a step with the test layer after it died, always, or never [default: crash]")
    p.add_argument("--patience", type=float, metavar="X", help="time limits of steps, times X [default: 1; on a CPU 6]")
    p.add_argument("--torch", action="store_true", help="run PyTorch beside Convoy in stage speed, in turns")
    p.add_argument("--python", default=sys.executable, metavar="FILE", help="a Python that has torch [default: this one]")
    a = p.parse_args(argv)
    wrong = [name for name in a.only or [] if name not in stages.GROUPS]
    if wrong:
        p.exit(2, f"gpu-report: --only {' '.join(wrong)}: the groups are: {' '.join(stages.GROUPS)}\n")
    for option, value in (("--limit", a.limit), ("--patience", a.patience)):
        if value is not None and not value > 0:
            p.exit(2, f"gpu-report: {option} {value:g}: expected a number above 0\n")
    return a


def fail(what, e):
    print(f"gpu-report: {what}: {e}", file=sys.stderr)
    return 2


def set_up(a, work, earlier_report):
    """(build folder, tests or None, networks, a fact); may raise OSError, ValueError, KeyError, tarfile.TarError."""
    packed = bool(a.build) and os.path.isfile(a.build)
    build = os.path.join(work, "build") if packed else os.path.abspath(a.build or os.path.join(ROOT, "build", "report"))
    programs, data, networks = None, a.data_dir, {}
    if packed:
        manifest = pack.unpack(a.build, build)
        programs = manifest["tests"]
        machine.prepend("LD_LIBRARY_PATH", os.path.join(build, "lib"))
        if os.path.isdir(os.path.join(build, "data")):
            data = data or os.path.join(build, "data")
        if os.path.isdir(os.path.join(build, "networks")):
            networks = pack.network_files(os.path.join(build, "networks"))
        earlier_report.fact(f"built elsewhere ({os.path.basename(a.build)}, {manifest['version']})")
    if a.networks:
        networks = pack.network_files(a.networks)
    if data:
        os.environ["CONVOY_DATA"] = os.path.abspath(data)
    return build, packed, programs, {pack.network_name(path): os.path.abspath(path) for path in networks}


def find_device(c, report, runner):
    """Asked anew in every run; None without the device, with a step that says so."""
    path = c.result("devices")
    report.steps = [s for s in report.steps if s["group"] != "devices"]

    def key(_):
        try:
            c.device = machine.Device(c.a.device, reading.load(path))
        except LookupError as e:
            raise reading.Wrong(str(e)) from None
        report.fact(c.device.fact)
        return f"{c.device.id} {c.device.name}"
    def version(text):
        report.fact(f"{text.strip().splitlines()[0]}{stages.commit()}")
        return text.strip().splitlines()[0]
    runner.one(Step("version", "devices", [c.convoy, "--version"], 60, version, least_s=0))
    runner.one(Step("devices", "devices", [c.convoy, "devices", "--json", path], 120, key, least_s=0))
    runner.one(Step("devices in words", "devices", [c.convoy, "devices"], 120, least_s=0))
    return c.device


def run(a, c, report, runner, library_path):
    wanted = lambda group: not a.only or group in a.only
    driver = machine.name_driver(runner.folder) if a.device != "cpu" else None
    if driver:
        report.fact(driver)
    if wanted("system"):
        stages.system(report, runner)
    if c.programs is None and (not a.resume or not os.path.exists(c.convoy)):
        if not machine.shutil.which("ninja") and os.path.exists(c.convoy):
            report.fact(f"no ninja here: {c.convoy} as it is")
        else:
            runner.alone(stages.build_steps(c))
    if c.programs is None:
        c.programs = pack.test_programs(c.build) if os.path.exists(os.path.join(c.build, "meson-info", "intro-tests.json")) else {}
    if not find_device(c, report, runner):
        report.ended = f"Nothing else was done: no device {a.device}."
        return
    chosen = stages.STAGES if a.stage == "all" else (a.stage,)
    if a.torch and "speed" in chosen and wanted("torch"):
        c.torch = beside.start(c, library_path)
    for i, stage in enumerate(chosen):
        # so that the stages behind it have some of the time
        stages.run(c, stage, wanted, (0.25, 0.4, 1)[i] if len(chosen) == 3 else 1)


def finish(report, caches, runner):
    said = caches.write(report.stem + ".caches.tar.xz")
    report.facts = [f for f in report.facts if not f.startswith("kernel caches")] + [f"kernel caches at the start: {caches.note}; at the end: {said}"]
    report.write(now=True)


def main(doc, argv=None):
    a = arguments(doc, argv)
    if a.pack:
        try:
            pack.pack(a, os.path.abspath(a.build or os.path.join(ROOT, "build", "report")))
        except (OSError, ValueError, KeyError, process.subprocess.CalledProcessError) as e:
            print(f"gpu-report: --pack: {e}", file=sys.stderr)
            return 1
        return 0
    a.out = os.path.abspath(a.out)
    if not os.access(os.path.dirname(a.out), os.W_OK):
        return fail(f"--out {a.out}", "expected a file in a folder that can be written")
    stem = os.path.splitext(a.out)[0]
    work = tempfile.mkdtemp(prefix="convoy-report-")
    try:
        return report_on(a, stem, work)
    finally:
        pack.remove(work)


def report_on(a, stem, work):
    library_path = os.environ.get("LD_LIBRARY_PATH")
    folder, earlier = os.path.join(work, os.path.basename(stem)), {}
    os.makedirs(folder)
    try:
        if a.resume:
            with open(a.resume, encoding="utf-8") as f:
                earlier = json.load(f)
            beside_it = os.path.splitext(a.resume)[0] + ".caches.tar.xz"
            a.caches = a.caches or (beside_it if os.path.exists(beside_it) else None)
        report = Report(a.out, folder, earlier, a.stage if not a.only else "some steps")
        if a.only:
            report.forget(lambda s: s["group"] not in a.only)
    except (OSError, ValueError, KeyError) as e:
        return fail(f"--resume {a.resume}", e)
    try:
        caches = pack.Caches(a.caches, os.path.join(work, "caches"))
    except (OSError, tarfile.TarError, EOFError, pack.lzma.LZMAError) as e:
        return fail(f"--caches {a.caches}", e)
    os.environ.update(caches.environment())
    try:
        build, packed, programs, networks = set_up(a, work, report)
    except (OSError, ValueError, KeyError, tarfile.TarError, EOFError, pack.lzma.LZMAError) as e:
        return fail(a.networks if a.networks and str(a.networks) in str(e) else f"--build {a.build}", e)
    runner = Runner(report, folder, a.limit, pack.layer_of(build), a.layer)
    c = stages.Context(a, build, programs if packed else None, networks, runner)
    # a core of a program that dies would be larger than the report
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

    def interrupted(number, _):
        raise KeyboardInterrupt(reading.signal_name(number))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, interrupted)
    try:
        run(a, c, report, runner, library_path)
    except KeyboardInterrupt as e:
        runner.stop()
        report.ended = f"Interrupted ({e or 'SIGINT'}): --resume goes on."
    finally:
        runner.stop()
        if c.torch:
            c.torch.end()
        finish(report, caches, runner)
    bad, rest = [s["name"] for s in report.bad()], report.not_run()
    print(f"{a.out}: {report.verdict()}" + (f"; not well: {', '.join(bad)}" if bad else "") + (f"; for lack of time: {', '.join(rest)}" if rest else "")
          + (f"; {report.ended}" if report.ended else ""))
    return 1 if bad or report.ended else 0
