#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What of the C API Python can reach, and what it makes of wrong words: api_test.py CONVOY GROUP. No device is opened."""
import os
import re
import subprocess
import types

import numpy as np

from python_test import CONVOY, PACKAGE, ROOT, main, raises

import convoy  # noqa: E402
from convoy import _ffi, _lib, arrays, options  # noqa: E402

INCLUDE = os.path.join(ROOT, "include", "convoy")


def public_functions():
    """Names of all functions of the public headers, found by a pattern of this test's own."""
    found = set()
    for name in os.listdir(INCLUDE):
        if name.endswith(".h"):
            with open(os.path.join(INCLUDE, name), encoding="utf-8") as f:
                text = re.sub(r"/\*.*?\*/|^#.*?$", "", f.read(), flags=re.S | re.M)
            found |= set(re.findall(r"^[a-z][\w ]*[ *](cvy_\w+)\(", text, re.M))
    return {name for name in found if not name.endswith("_fn")}


def test_functions(folder):
    """Every public function, type and number of the headers is there."""
    names = public_functions()
    assert len(names) > 150 and {"cvy_train", "cvy_team_create", "cvy_version"} <= names, len(names)
    missing = sorted(name for name in names if not callable(getattr(_lib, name, None)))
    assert not missing, f"convoy._lib lacks {missing}"
    exported = subprocess.run(["nm", "-D", "--defined-only", os.path.join(os.path.dirname(PACKAGE), "libconvoy.so")], capture_output=True, text=True, check=True)
    others = set(re.findall(r" T (cvy_\w+)", exported.stdout)) - names
    assert not others, f"the library has functions that this test does not find in the headers: {others}"
    assert _ffi.string(_lib.cvy_version()).decode() == subprocess.run([CONVOY, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    assert convoy.__version__ == _ffi.string(_lib.cvy_version()).decode()
    assert _lib.CVY_API_VERSION == _lib.cvy_api_version()
    assert _ffi.sizeof("cvy_stop") == 4 and _ffi.sizeof("cvy_team_params") > 300


def test_errors(folder):
    """One exception class for each status; a status that Python does not know is still an Error."""
    with open(os.path.join(INCLUDE, "status.h"), encoding="utf-8") as f:
        symbols = dict(re.findall(r"X\((CVY_\w+), (-?\d+),", f.read()))
    assert len(symbols) >= 14
    classes = {cls.symbol: cls for cls in vars(convoy).values() if isinstance(cls, type) and issubclass(cls, convoy.Error) and "symbol" in vars(cls)}
    assert set(classes) == set(symbols), set(classes) ^ set(symbols)
    for symbol, value in symbols.items():
        assert classes[symbol].status == int(value)
        if int(value):
            error = convoy.errors.of_status(int(value), "")
            assert type(error) is classes[symbol] and str(error) == _ffi.string(_lib.cvy_status_text(int(value))).decode()
            assert classes[symbol].__name__ in convoy.__all__
    assert type(convoy.errors.of_status(-99, "what")) is convoy.Error
    found = raises(convoy.Error, folder, convoy.load_data, folder)
    assert isinstance(found, convoy.FileError) and isinstance(found, OSError) and found.status == int(symbols["CVY_E_IO"]), repr(found)
    raises(convoy.ArgumentError, "/nonexistent/folder", convoy.load_data, "/nonexistent/folder")
    raises(convoy.ArgumentError, "synthetic", convoy.load_data, "synthetic:0")


def test_words(folder):
    """Options: accepted words become the program's numbers, others are refused with the accepted ones."""
    assert options.augment("flip,crop:4,cutout:8") == {"flip": True, "crop": 4, "cutout": 8}
    assert options.augment("jitter:0.4,.3,0,0.1,flip") == {"jitter": [0.4, 0.3, 0.0, 0.1], "flip": True}
    assert options.augment("resized-crop:8e-2-1") == {"resized_crop": [0.08, 1.0]} and options.augment("none") == {}
    for text in ("flop", "crop", "crop:0", "crop:1.5", "flip:2", "jitter:1,1,1", "jitter:0,0,0,0", "jitter:1,1,1,0.6", "resized-crop:0.5-0.1", "flip,flip",
                 "crop:4,resized-crop:0.1-1", "cutout:16385", "flip,"):
        raises(convoy.ArgumentError, "augment", options.augment, text)
    assert options.schedule("step:2e,0.1", "1e") == {"kind": _lib.CVY_LR_STEP, "every": 2, "every_epochs": True, "gamma": 0.1, "warmup": 1, "warmup_epochs": True}
    assert options.schedule("cosine", 5) == {"kind": _lib.CVY_LR_COSINE, "warmup": 5, "warmup_epochs": False}
    assert options.bn("ghost:32") == {"bn": _lib.CVY_BN_GHOST, "ghost": 32}
    assert options.split(None, None) == (_lib.CVY_SPLIT_UNLIKE, []) and options.split("1,3", None) == (_lib.CVY_SPLIT_WEIGHTS, [1.0, 3.0])
    assert options.split(None, [100, 156]) == (_lib.CVY_SPLIT_SHARES, [100.0, 156.0])
    assert options.normalize("0.5/0.25") == {"n_channels": 1, "mean": [0.5], "deviation": [0.25]} and options.normalize("imagenet")["n_channels"] == 3
    for wrong in ({"batch": 0}, {"batch": True}, {"batch": 2.5}, {"optimizer": "sdg"}, {"lr": -1}, {"lr": "fast"}, {"momentum": 2}, {"schedule": "step:0,0.1"},
                  {"warmup": "1.5e"}, {"init": "normal"}, {"bn": "ghost:0"}, {"split": "0,0"}, {"split": "even", "shares": [1]}, {"shares": [1.5]}, {"augment": "flop"},
                  {"normalize": "0.5"}, {"normalize": ((0.5,), (0.0,))}, {"run_ahead": 3}, {"exchange": "bf17"}, {"math": "fp16"}, {"tune": "on"}, {"seed": -1},
                  {"betas": (0.9, 1.0), "optimizer": "adam"}, {"eps": 0, "optimizer": "adam"}, {"eps": 1e-8}, {"momentum": 0.9, "optimizer": "adamw"},
                  {"optimizer": convoy.AdamW(), "weight_decay": 0.1}, {"resume": True}, {"init_skip": "fc"}, {"keep": 0}, {"on_device_loss": "panic"}, {"classes": -1},
                  {"checkpoint_every": 0, "checkpoint": "x"}, {"input_shape": (28, 28)}, {"input_shape": (0, 28, 28)}):
        raises(convoy.ArgumentError, next(iter(wrong)), convoy.Trainer, "lenet", **wrong)
    assert convoy.Trainer("lenet", optimizer=convoy.AdamW(2e-3, weight_decay=0.1))._team_members()["weight_decay"] == 0.1
    fixed = convoy.Trainer("lenet")
    for name, value in (("lr", 0.2), ("batch", 3), ("model", "resnet18")):
        raises(convoy.ArgumentError, f"{name}: the settings", setattr, fixed, name, value)
    assert fixed.lr is None and fixed.batch == 256
    raises(convoy.ArgumentError, "'sdg' is not one of sgd, adam, adamw", convoy.Trainer, "lenet", optimizer="sdg")


OTHER_NAMES = {"lr-schedule": "schedule", "no-shuffle": "shuffle"}
ARGUMENTS = {convoy.Trainer.fit: ("val-split", "epochs", "max-steps", "no-eval", "patience", "precise-bn", "save-best", "quiet"),
             convoy.load_data: ("data-dir", "size", "gray", "png16", "exif", "no-data-cache", "strict"), convoy.Trainer.save: ("save",)}
WITHOUT = {"data": "the first argument of fit", "help": "help(convoy.Trainer)", "no-overlap": "for measurements", "no-sync": "for measurements", "no-times": "for measurements",
           **dict.fromkeys(("log", "plot", "report", "trace", "trace-events"), "doc/python.md lists them as missing"),
           **dict.fromkeys(("nodes", "node", "port", "fleet-key", "fleet-wait", "no-fleet"), "doc/python.md lists fleets as missing")}


def test_options(folder):
    """Each option of `convoy train` is a setting of Trainer, an argument, or listed as missing; and each setting an option."""
    said = subprocess.run([CONVOY, "train", "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^ +(?:-\w, )?--([a-z][a-z0-9-]+)", said, re.M))
    assert len(known) > 60 and "momentum" in known, known
    fields = set(convoy.Trainer.__dataclass_fields__)
    arguments = {name for names in ARGUMENTS.values() for name in names}
    for name in known - arguments - set(WITHOUT):
        assert OTHER_NAMES.get(name, name.replace("-", "_")) in fields, f"--{name}: Trainer has no such setting"
    assert not (arguments | set(WITHOUT)) - known, f"no options of convoy train: {(arguments | set(WITHOUT)) - known}"
    others = fields - {OTHER_NAMES.get(name, name.replace("-", "_")) for name in known} - {"input_shape", "layout"}
    assert not others, f"settings that are no options: {others}"
    with open(os.path.join(ROOT, "doc", "python.md"), encoding="utf-8") as f:
        page = f.read()
    assert all(f"`--{name}`" in page for name in ("nodes", "log", "plot", "report", "trace")), "doc/python.md does not list what is missing"


def test_arrays(folder):
    """Images in all layouts and types become the same bytes; others are refused with the first wrong value."""
    bytes_last = np.random.RandomState(1).randint(0, 256, (5, 6, 7, 3)).astype(np.uint8)
    first = bytes_last.transpose(0, 3, 1, 2)
    for images in (bytes_last, first, first.copy(), bytes_last.astype(np.int64), bytes_last.astype(np.float32) / 255, first.astype(np.float64) / 255,
                   (first.astype(np.float32) / np.float32(255)).astype(np.float64), first / 255 - 5e-7, first / 255 + 5e-7):
        made = arrays.as_bytes(images)
        assert made.dtype == np.uint8 and made.flags.c_contiguous and (made == bytes_last).all()
    assert arrays.as_bytes(bytes_last) is bytes_last or np.shares_memory(arrays.as_bytes(bytes_last), bytes_last)
    assert arrays.as_bytes(bytes_last[:, :, :, 0]).shape == (5, 6, 7, 1)
    both = np.zeros((2, 3, 8, 3), np.uint8)
    raises(convoy.ArgumentError, "layout", arrays.as_bytes, both)
    assert arrays.as_bytes(both, "NCHW").shape == (2, 8, 3, 3) and arrays.as_bytes(both, None, (3, 3, 8)).shape == (2, 3, 8, 3)
    assert arrays.as_bytes(np.eye(4, dtype=bool)[None]).max() == 1
    wrong = first.astype(np.float32) / 255
    wrong[3, 1, 2, 2] = 0.1234
    raises(convoy.ArgumentError, "image 3 has the value 0.1234", arrays.as_bytes, wrong)
    wrong[3, 1, 2, 2] = np.nan
    raises(convoy.ArgumentError, "image 3 has the value nan", arrays.as_bytes, wrong)
    raises(convoy.ArgumentError, "image 1 has the value 256", arrays.as_bytes, np.array([0, 256]).reshape(2, 1, 1))
    raises(convoy.ArgumentError, "(2, 2)", arrays.as_bytes, np.zeros((2, 2)))
    raises(convoy.ArgumentError, "type <U1", arrays.as_bytes, np.full((1, 1, 1), "x"))
    assert (arrays.as_labels([1, 2], 2) == [1, 2]).all()
    for labels in ([1, 2, 3], [1.0, 2.0], [0, 65535], [-1, 0], [[1], [2]]):
        raises(convoy.ArgumentError, "labels", arrays.as_labels, labels, 2)
    data = convoy.data_from_arrays((first, [0, 1, 2, 0, 1]), test=(bytes_last[:2], [2, 2]))
    assert data.shape == (3, 6, 7) and data.classes == 3 and (data.count(), data.count("val"), data.count("test")) == (5, 0, 2), data
    images, labels = data.arrays()
    assert (images == bytes_last).all() and labels.tolist() == [0, 1, 2, 0, 1]
    data.close()
    data.close()
    raises(convoy.ClosedError, "closed", data.count)
    raises(convoy.FormatError, "label", convoy.data_from_arrays, (first, [0, 1, 2, 0, 5]), classes=3)
    raises(convoy.ArgumentError, "beside training images", convoy.data_from_arrays, (first, [0] * 5), None, (first[:, :, 1:], [0] * 5))
    many = np.repeat(np.arange(4), 25)
    held = convoy.data_from_arrays((np.zeros((100, 2, 2), np.uint8), many), val=0.2, seed=3)
    assert held.count("val") == 20 and (np.bincount(held.arrays("val")[1]) == 5).all() and (np.bincount(held.arrays()[1]) == 20).all()


def test_annotations(folder):
    """Everything public has annotations and a docstring; the package is marked as typed."""
    assert os.path.exists(os.path.join(PACKAGE, "convoy", "py.typed"))
    values = {name: getattr(convoy, name) for name in convoy.__all__}
    for module in (convoy.d2l, convoy.init):
        assert module.__doc__
        values.update({f"{module.__name__}.{name}": value for name, value in vars(module).items() if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__})
    for name, value in values.items():
        if isinstance(value, types.ModuleType):
            continue
        assert value.__doc__, f"{name} has no docstring"
        functions = [value] if not isinstance(value, type) else [f for n, f in vars(value).items() if callable(f) and not n.startswith("_")]
        for function in functions:
            code = function.__code__
            names = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
            lacking = [n for n in (*names, "return") if n not in function.__annotations__ and n != "self"]
            assert not lacking, f"{name}: {function.__qualname__} lacks annotations of {lacking}"
            assert function.__doc__ or function.__name__ in ("__init__", "count"), f"{function.__qualname__} has no docstring"
    for word in ("fit", "evaluate", "predict", "state_dict", "load_state_dict", "save", "close"):
        assert "cvy_" in getattr(convoy.Trainer, word).__doc__ or word in ("state_dict", "load_state_dict", "close"), f"Trainer.{word} does not name its C function"


def test_program(folder):
    """python -m convoy is the program, with its exit status."""
    import sys
    done = subprocess.run([sys.executable, "-m", "convoy", "--version"], capture_output=True, text=True)
    assert done.stdout == subprocess.run([CONVOY, "--version"], capture_output=True, text=True).stdout and done.returncode == 0, done
    assert subprocess.run([sys.executable, "-m", "convoy", "train", "--model", "nothing"], capture_output=True).returncode == 2


if __name__ == "__main__":
    main(globals())
