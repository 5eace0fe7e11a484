#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Wheels that scripts fetch: check_wheels.py

tools/fetch/wheels.txt names each with its version and hashes, some script fetches each of its groups, no script fetches by another way than
tools/fetch/wheels.py, and that takes a wheel of the right hash and no other. Exit 77 without pip, after the look at the files."""
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "fetch"))
import wheels  # noqa: E402

FOLDERS = ("tools", "tests")
# A call of pip, or of another program that fetches; "pip install torch" in a message is advice. Behind each is a text in which it must be found.
FETCHES = [(r"""["']pip3?["']\s*,""", '[sys.executable, "-m", "pip", "download"]'),
           (r"-m\s+pip\b", "python3 -m pip install x"),
           (r"^\s*(?:sudo\s+)?pip3?\s+(?:install|download|wheel)\b", "  pip install x"),
           (r"(?:[;&|]|\b(?:then|do|else)|\$\()\s*(?:sudo\s+)?pip3?\s+(?:install|download|wheel)\b", "true && pip3 download x"),
           (r"\b(?:urlopen|urlretrieve|ensurepip)\b", "urllib.request.urlopen(x)"),
           (r"(?:^|[;&|(]|\b(?:then|do|else))\s*(?:curl|wget)\s", "curl -O x"),
           (r"""["'](?:curl|wget)["']""", 'run(["wget", x])')]


def scripts():
    """Paths of all scripts: by their ending, or by #! in their first line."""
    for folder in FOLDERS:
        for at, folders, names in os.walk(os.path.join(ROOT, folder)):
            folders[:] = sorted(f for f in folders if f not in ("data", "__pycache__"))
            for name in sorted(names):
                path = os.path.join(at, name)
                with open(path, "rb") as f:
                    if name.endswith((".py", ".sh")) or f.read(2) == b"#!" or name == "common":
                        yield os.path.relpath(path, ROOT)


def check_files():
    faults = [f"check_wheels.py: {pattern} does not find {text}" for pattern, text in FETCHES if not re.search(pattern, text, re.M)]
    groups, texts = wheels.read_list(), {}
    for path in scripts():
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            texts[path] = f.read()
    for path, text in texts.items():
        if path in ("tools/fetch/wheels.py", "tests/lint/check_wheels.py"):
            continue
        for pattern, _ in FETCHES:
            faults += [f"{path}: fetches without tools/fetch/wheels.py: {text[m.start():].strip().splitlines()[0]}" for m in re.finditer(pattern, text, re.M)]
    if "--require-hashes" not in texts["tools/fetch/wheels.py"]:
        faults.append("tools/fetch/wheels.py: does not ask pip for hashes")
    callers = "\n".join(text for path, text in texts.items() if "wheels.py" in text or "import wheels" in text)
    faults += [f"tools/fetch/wheels.txt: no script fetches the group {name}" for name in groups if not re.search(rf"""["' ]{name}["' ]""", callers)]
    return faults + [f"tools/fetch/wheels.txt: the group {name} is empty" for name, lines in groups.items() if not lines]


def make_wheel(folder):
    """The smallest wheel; its path."""
    path = os.path.join(folder, "tiny-1.0-py3-none-any.whl")
    files = {"tiny.py": "", "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
             "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "tiny-1.0.dist-info/RECORD": ""}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def check_pip():
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=folder, PIP_CONFIG_FILE=os.devnull)
        with open(make_wheel(folder), "rb") as f:
            right = hashlib.sha256(f.read()).hexdigest()
        path = os.path.join(folder, "list.txt")
        for digest, good in ((right, True), (hashlib.sha256(b"").hexdigest(), False)):
            for verb, made in (("download", "tiny-1.0-py3-none-any.whl"), ("install", "tiny.py")):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(f"# group: tiny\ntiny==1.0 --hash=sha256:{digest}\n")
                out = os.path.join(folder, f"{verb}-{good}")
                done = wheels.fetch("tiny", verb, out, path)
                if (done.returncode == 0) != good or os.path.exists(os.path.join(out, made)) != good:
                    faults.append(f"{verb} with the {'right' if good else 'wrong'} hash: exit {done.returncode}: {done.stderr}")
        for line in ("tiny==1.0", "tiny --hash=sha256:" + right, "tiny>=1.0 --hash=sha256:" + right, "--index-url http://x", "tiny==1.0 --hash=md5:00"):
            with open(path, "w", encoding="utf-8") as f:
                f.write(f"# group: tiny\n{line}\n")
            try:
                wheels.read_list(path)
                faults.append(f"a list with the line {line} is read")
            except ValueError:
                pass
    return faults


def main():
    faults = check_files()
    pip = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    if pip:
        faults += check_pip()
    print("\n".join([*faults, f"wheels: {len(faults) or 'no'} faults{'' if pip else '; no pip here'}"]))
    return 1 if faults else 0 if pip else 77


sys.exit(main())
