#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The notebooks of python/notebooks: notebooks_test.py CONVOY GROUP   (groups: the functions named test_notebook_<group> below)

Each runs from its first cell to its last, with small settings by environment variables, in an empty folder. Its outputs are compared in shape with those in the
file: the same cells print, show a value, curves or pictures. Numbers and lists of devices differ. CVY_NOTEBOOK_OUT=FOLDER keeps what ran."""
import copy
import os
import re
import shlex
import socket
import subprocess
import sys

from python_test import PACKAGE, ROOT, main

NOTEBOOKS = os.path.join(ROOT, "python", "notebooks")
LIMIT_S = 600

try:
    import ipykernel  # noqa: F401 the kernel that nbclient starts
    import nbclient
    import nbformat
except ImportError as reason:
    nbclient = None
    missing = reason


def shape_of(cell):
    """Kinds of a cell's outputs: "stdout", or the types of what is shown. What only warns is left out, and so is a picture where matplotlib is missing."""
    kinds = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            kinds += [output.name] if output.name == "stdout" and (not kinds or kinds[-1] != output.name) else []
        elif output.output_type == "error":
            kinds.append("error")
        else:
            kinds.append("+".join(sorted(output.data)))
    return kinds


def has_matplotlib():
    try:
        import matplotlib  # noqa: F401
        return True
    except ImportError:
        return False


def text_of(book):
    """All that the cells print and show, as text."""
    found = []
    for cell in book.cells:
        for output in cell.get("outputs", []):
            found.append(output.text if output.output_type == "stream" else output.get("data", {}).get("text/plain", ""))
    return "\n".join(found)


def run_notebook(name, folder, settings):
    """The notebook as it ran."""
    path = os.path.join(NOTEBOOKS, name)
    written = nbformat.read(path, as_version=4)
    nbformat.validate(written)
    book = copy.deepcopy(written)
    os.environ.update(settings, MPLBACKEND="module://matplotlib_inline.backend_inline" if has_matplotlib() else "")
    nbclient.NotebookClient(book, timeout=LIMIT_S, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    if os.environ.get("CVY_NOTEBOOK_OUT"):
        nbformat.write(book, os.path.join(os.environ["CVY_NOTEBOOK_OUT"], name))
    code = [cell for cell in written.cells if cell.cell_type == "code"]
    assert all(cell.execution_count == i + 1 for i, cell in enumerate(code)), f"{name}: its outputs are not those of a run from the first cell on"
    for cell, ran in zip(code, [cell for cell in book.cells if cell.cell_type == "code"]):
        if "matplotlib" in cell.source and not has_matplotlib():
            continue
        assert shape_of(cell) == shape_of(ran), f"{name}: outputs {shape_of(ran)}, the file has {shape_of(cell)}, of:\n{cell.source}"
    for lines in (text_of(written), text_of(book)):
        assert not re.search(r"\bnan\b|Traceback", lines) and ROOT not in lines, f"{name}: {lines}"
    return text_of(book)


def ready():
    import convoy
    if nbclient is None:
        print(f"skipped: {missing}")
        return False
    return any(device.usable for device in convoy.devices())


def test_notebook_concise(folder):
    if not ready():
        return 77
    text = run_notebook("multiple-gpus-concise.ipynb", folder, {"NOTEBOOK_MODEL": "lenet", "NOTEBOOK_DATA": "synthetic:640", "NOTEBOOK_EPOCHS": "1", "NOTEBOOK_BATCH": "64"})
    assert "equal bits: True" in text and len(re.findall(r"^test acc: \d\.\d\d, ", text, re.M)) == 2 and text.count("<Tensor 2x10 on ") == 2, text
    return 0


def test_notebook_unlike(folder):
    if not ready():
        return 77
    text = run_notebook("unlike-devices.ipynb", folder, {"NOTEBOOK_DATA": "synthetic:640", "NOTEBOOK_EPOCHS": "1"})
    groups, shares = map(float, re.findall(r"largest difference of a loss: (\S+)", text))
    assert groups < 1e-4 < shares, f"ghost {groups}, device {shares}"
    with open(os.path.join(folder, "unlike-devices.html"), encoding="utf-8") as f:
        page = f.read()
    assert page.count("<svg") >= 2 and "<script" not in page
    return 0


def test_notebook_pictures(folder):
    if not ready():
        return 77
    text = run_notebook("own-pictures.ipynb", folder, {"NOTEBOOK_PICTURES": "40", "NOTEBOOK_EPOCHS": "6"})
    accuracy = float(re.search(r"test accuracy: (\d\.\d\d) on 30 pictures", text).group(1))
    assert accuracy > 0.5 and "['disc', 'square', 'stripes']" in text and "(1, 32, 32, 3)" in text, text
    return 0


def test_notebook_machines(folder):
    """The two commands of several-machines.md as two processes of this machine; the program behind them reads the weights."""
    import convoy
    if not any(device.usable for device in convoy.devices()):
        return 77
    with open(os.path.join(NOTEBOOKS, "several-machines.md"), encoding="utf-8") as f:
        page = f.read()
    commands = re.findall(r"^pc\d\$ python -m convoy (.*)$", page, re.M)
    assert len(commands) == 2 and commands[0].split("--node 0")[0] == commands[1].split("--node 1")[0], commands
    with socket.socket() as one, socket.socket() as two:
        for probe in (one, two):
            probe.bind(("127.0.0.1", 0))
        nodes = ",".join(f"127.0.0.1:{probe.getsockname()[1]}" for probe in (one, two))
    small = [("fashion-mnist", "synthetic:640"), ("--batch 512", "--batch 64"), ("--epochs 3", "--epochs 1"), ("--devices all", "--devices 0:0"), ("pc1,pc2", nodes)]
    started = []
    for command in commands:
        for old, new in small:
            assert old in command, f"{command}: {old} is not there"
            command = command.replace(old, new)
        started.append(subprocess.Popen([sys.executable, "-m", "convoy", *shlex.split(command)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=LIMIT_S) for process in started]
    assert [process.returncode for process in started] == [0, 0] and re.search(r"^test acc: .*127\.0\.0\.1\S* 0:0 .*\| 127\.0\.0\.1\S* 0:0 ", said[0][0], re.M), said
    program = re.search(r"^```python\n(.*?)^```", page, re.M | re.S).group(1).replace('load_data("fashion-mnist")', 'load_data("synthetic:640")')
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and 0 <= float(done.stdout) <= 1, done
    return 0


if __name__ == "__main__":
    assert PACKAGE in os.environ["PYTHONPATH"]
    main(globals())
