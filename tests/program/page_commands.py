# SPDX-License-Identifier: MIT
"""Commands of README.md and doc/*.md, as the pages have them: which there are, what a test does with each (test_cli_pages.py).

A command is a line of a block that begins with a program's name, behind a prompt (`pc1$`) or not, or a span of text (`convoy data pets`) that
does and has more than the name. Each is run, with SUBSTITUTIONS and its row's words, and what the page promises is looked for in what it
prints; or NOT_RUN has it with the reason. `>>>` are lines of Python."""
import glob
import json
import os
import re
from typing import NamedTuple

from cli import ROOT, read

PROGRAMS = r"(?:convoy|tools/[\w/-]+|build/\S+|~/\S+|meson|ninja|mpirun|mpiexec|srun|grep|cc|head|ip|taskset|ldconfig|sudo|apt-get|apt|ssh|echo|find|tensorboard|cp|mkdir|rm|export|pip|cd|git|python3)"
COMMAND = re.compile(rf"(?:(?:pc\d)?\$ )?((?:[A-Z][A-Z_0-9]*=\S+ )*{PROGRAMS}(?: .*)?)")
PYTHON = re.compile(r"(?:>>>|\.\.\.) (.*)")


def pages():
    return ["README.md", *sorted(os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "doc", "*.md")))]


def parts(page):
    """(text outside blocks, [(language, lines of a block)…])"""
    pieces = re.split(r"^```(\w*)\n(.*?)^```$", read(os.path.join(ROOT, page)), flags=re.M | re.S)
    return "\n".join(pieces[::3]), [(pieces[i], pieces[i + 1].splitlines()) for i in range(1, len(pieces), 3)]


def without_comment(line):
    return re.sub(r"\s{2,}# .*", "", line).strip()


def commands(page):
    """[(command, is a line of a block)…] and the blocks that are none: drawings, output, programs."""
    text, blocks = parts(page)
    found, others = [], []
    for span in re.findall(r"(?<!`)`([^`]+)`", text):
        words = " ".join(span.split())
        if " " in words and (m := COMMAND.fullmatch(words)):
            found.append((m.group(1), False))
    for language, lines in blocks:
        here = [m.group(1) for line in lines if not language and (m := COMMAND.fullmatch(without_comment(line)))]
        python = [line for line in lines if PYTHON.fullmatch(line)]
        if here and len(here) + len(python) == len([line for line in lines if line.strip()]):
            found += [(" ".join(command.split()), True) for command in here]
        else:
            others.append(lines)
    return found, others


def options_of(command):
    """(verb, options) of a command of convoy, however it is started; else None."""
    m = re.search(r"(?:^|[ /])convoy ((?:bench )?[a-z]+)((?: .*)?)$", command)
    if not m:
        return None
    return m.group(1), re.findall(r"(?<![\w-])(--[a-z][a-z0-9-]*)", m.group(2))


# What stands in a command of a page → what is run. The data that all pages name need a package, the networks take minutes.
SUBSTITUTIONS = [
    ("build/release/tools/convoy", "convoy"),
    ("tools/quickstart --model", "convoy train --model"),           # what quickstart does with arguments is cli_quickstart's
    ("--data fashion-mnist", "--data {fashion}"),
    ("synthetic:6000", "synthetic:64"),
    ("--batch 512", "--batch 32"), ("-b 512", "-b 32"), ("--batch 256", "--batch 32"), ("-b 256", "-b 32"), ("--batch 128", "--batch 16"),
    ("0:0/1+1", "{parts}"),
    ("n64h28w28c64", "n2h28w28c64"),
    ("CVY_CL_DIR=cl", "CVY_CL_DIR={root}/cl"),
    ("src/protocol/gradient_sum.c", "{root}/src/protocol/gradient_sum.c"),
    ("'0:0*16'", "'0:0*16' --model lenet"),
    ("--max-steps 10", "--max-steps 2"),
]


class Run(NamedTuple):
    """more: words at the end · put: what stands in the command → what is run · out, err: what must be in stdout, in stderr · code: exit status
    · then: a further look, with the results of the command and the folder."""
    more: str = ""
    put: tuple = ()
    out: tuple = ()
    err: tuple = ()
    code: int = 0
    then: object = None


BOOK_LINE = r"test acc: \d\.\d\d, \d+\.\d sec/epoch on \[0:0"                    # the last line of a run is the book's
DEVICE_LINES = (r"^\d+:\d+ +(CPU|GPU) .*\d units? +[\d.]+ GiB .*\[.+\]", r"^--devices auto selects \d", r"^CLBlast: ", r"^clFFT: ")
RESULT = r"^test acc: \d\.\d\d \(\d+ of \d+\), \d+\.\d sec on \["


def is_key(done, folder):
    path = os.path.join(folder, "fleet.key")
    size, mode = os.path.getsize(path), os.stat(path).st_mode & 0o777
    return None if 16 <= size <= 4096 and mode == 0o600 else f"{size} bytes, mode {mode:o}"


def one_line(done, folder):
    return None if done.stdout.count("\n") == 1 else "more than one line"


def learned(done, folder):
    """Fashion-MNIST, where it is: an epoch of LeNet ends at 0.8."""
    accuracy = float(re.search(r"test acc: (\d\.\d\d)", done.stdout).group(1))
    return None if accuracy >= 0.75 or "synthetic" in done.args[-1] else f"accuracy {accuracy}, the page says 0.8"


def is_there(*names):
    def look(done, folder):
        lost = [name for name in names if not os.path.exists(os.path.join(folder, name))]
        return f"did not write {lost}" if lost else None
    return look


def predicted(done, folder):
    """The two files are as the page shows them."""
    first = json.loads(read(os.path.join(folder, "P.json")))["predictions"][0]
    right = first["file"] == "photo.pgm" and len(first["top"]) == 3 and all(set(row) == {"class", "probability"} for row in first["top"])
    return None if right and read(os.path.join(folder, "P.csv")).startswith("file,rank,class,probability\nphoto.pgm,1,") else "P.json or P.csv are not as the page has them"


def went_on(done, folder):
    """--max-steps of the run before is not kept."""
    return None if re.search(r"epoch 2/2", done.stderr) else "the run did not go on to the end of its epochs"


RUN = {
    # README.md, doc/install.md
    "tools/quickstart --model lenet --data fashion-mnist --init he --lr 0.05 --momentum 0.9 --epochs 1": Run(out=(BOOK_LINE,), then=learned),
    "convoy train --model resnet18 --data fashion-mnist --devices 0:0 --batch 256 --lr 0.1": Run(more="--epochs 1 --save F.safetensors", out=(BOOK_LINE,),
                                                                                                then=is_there("F.safetensors")),
    "convoy train --model resnet18 --data fashion-mnist --devices 0:0/1+1 --batch 512 --lr 0.2": Run(more="--epochs 1", out=(BOOK_LINE + r"[/*].*0:0[/*]",),
                                                                                                    err=(r"ms a step +computing exchanging +waiting +idle +together\n",
                                                                                                         r"\nhost +[\d.]+ for sum and update")),
    "convoy net net.onnx": Run(out=(r"kind +name +reads +makes +params +MMACs\n", r"parameters in \d+ tensors")),
    # the network here has no batch normalisation
    r"convoy train --model net\.onnx --data pictures --size 64x64 .*--devices all --lr-schedule cosine --precise-bn 100 --save trained\.safetensors":
        Run(put=((" --precise-bn 100", ""),), more="--epochs 1", out=(r"^test acc: ",), then=is_there("trained.safetensors")),
    "convoy help VERB": Run(put=(("VERB", "train"),), out=(r"^usage: convoy train ", "--devices")),
    r"grep -n 'g\\\[i\\\] = a\\\[i\\\] \+ b\\\[i\\\];' src/protocol/gradient_sum\.c": Run(out=(r"^\d+:.*g\[i\] = a\[i\] \+ b\[i\];",), then=one_line),
    "convoy --version": Run(out=(r"^convoy \d+\.\d+\.\d+", "(?i)jpeg", "(?i)png", "ONNX")),
    # doc/d2l.md
    "convoy train --model resnet18 --data fashion-mnist --devices '0:0*16' --batch 512 --lr 0.2 --max-steps 10":
        Run(put=(("--model resnet18 ", ""),), more="--no-eval", out=(r"\[(0:0#\d+ [^,]+, ){15}0:0#15 ",)),
    "convoy bench scaling --devices 0:0,1:0": Run(put=(("0:0,1:0", "{parts}"),), more="--model lenet --batch 32 --steps 2 --limit 20",
                                                  out=(r"adding \S+ makes a step [\d.]+x faster|not worth it: [\d.]+x, because",)),
    "convoy eval --weights F.safetensors --model resnet18 --data fashion-mnist --devices all": Run(out=(RESULT,)),
    # doc/fleet.md
    "head -c 32 /dev/urandom | base64 > fleet.key && chmod 600 fleet.key": Run(then=is_key),
    # doc/predict.md
    "convoy train --save F.safetensors": Run(more="--model lenet --data synthetic:64 --batch 32 --epochs 1 --quiet", then=is_there("F.safetensors")),
    "convoy eval --weights F.safetensors --data fashion-mnist --confusion": Run(out=(RESULT, "precision +recall +F1")),
    "convoy predict --weights F.safetensors photo.pgm pictures/ --top 3": Run(
        more="--json P.json --csv P.csv", out=(r"photo\.pgm",),
        then=predicted),
    "convoy train --init-from": Run(more="F.safetensors --data synthetic:64 --batch 32 --epochs 1", out=(BOOK_LINE,)),
    # doc/reference.md
    r"convoy train --model lenet --data synthetic.* --epochs \d+": Run(out=(BOOK_LINE,)),
    "convoy train --model resnet18 --data fashion-mnist -d 0:0 -b 256 --lr 0.1": Run(more="--epochs 1", out=(BOOK_LINE,)),
    "convoy train --model resnet18 --data fashion-mnist -d 0:0/1+1 -b 512 --lr 0.2": Run(more="--epochs 1", out=(BOOK_LINE,)),
    "convoy report a.jsonl b.jsonl --out runs.html --csv runs.csv": Run(then=is_there("runs.html", "runs.csv")),
    "CVY_CL_DIR=cl convoy bench conv --shape n64h28w28c64k64r3s1p1 --pass fwd": Run(more="--time 0.01", out=(r"% ?roof", r"(?m)err", "28x28x64|h28w28c64")),
    # doc/results.md
    "convoy bench train --model resnet18": Run(put=(("resnet18", "lenet"),), more="--batch 32 --steps 2", out=("img/s", "conv")),
    "convoy bench train --model resnet18 --batch 128 --normalize dataset --input … --augment …":
        Run(put=(("resnet18", "lenet"), ("--input …", "--input 32x32x3"), ("--augment …", "--augment flip,crop:4")), more="--steps 2", out=("img/s", "gather")),
    "convoy bench conv --shape …": Run(put=(("…", "n2h28w28c64k64r3s1p1"),), more="--time 0.01", out=("forward +winograd", "backward_data", "% roof")),
    "convoy bench scaling --devices '0:0*16' --batch 512 --steps 3": Run(more="--limit 30", put=(("--steps 3", "--steps 1"),), out=("16",)),
    "convoy train --model resnet18 --data synthetic:6000 --no-eval --max-steps 6 --devices …": Run(put=(("…", "0:0"), ("resnet18", "lenet")), more="--batch 16",
                                                                                                  out=(r"^train loss: ",)),
    "convoy train --trace F.json": Run(more="--model lenet --data synthetic:64 --batch 32 --epochs 1", then=lambda done, folder: None if
                                       '"traceEvents"' in read(os.path.join(folder, "F.json")) else "no trace"),
    "convoy bench ops --baseline old.json --max-slowdown 5%": Run(more="--model lenet --batch 8 --op linear --time 0.01", code=1, err=("slower",)),
    # doc/training.md
    "convoy bench train --model F.onnx --batch N --recompute": Run(put=(("--batch N", "--batch 8"),), more="--steps 2 --no-breakdown", out=("img/s",)),
    "convoy eval --weights F": Run(put=(("weights F", "weights F.safetensors"),), more="--data synthetic:64", out=(RESULT,)),
    "convoy data SRC": Run(put=(("SRC", "pets"),), out=("cat", "dog", "(?i)mean", "(?i)deviation")),
    "convoy data pets": Run(out=("cat", "dog", "(?i)mean", "(?i)deviation")),
    "convoy train --model resnet18 --data pets --size 64 --val-split 0.1": Run(more="--batch 8 --epochs 1", out=(r"^val acc|^train loss",), err=("val acc",)),
    "convoy train --model resnet18 --data DIR --init-from pretrained.safetensors --init-skip 'fc' --lr-mult 'fc=10'": Run(more="--batch 8 --epochs 1", out=(r"^t\w+ (acc|loss)",)),
    "convoy train --model resnet18 --data DIR --init-from pretrained.safetensors --init-skip 'fc' --freeze '0,1,resnet_block*'": Run(more="--batch 8 --epochs 1",
                                                                                                                                    out=(r"^t\w+ (acc|loss)",)),
    "convoy train --model resnet18 --save pretrained.safetensors": Run(more="--data DIR --batch 8 --epochs 1 --classes 5", then=is_there("pretrained.safetensors")),
    "convoy train --model resnet18.onnx --data DIR --size 224 --normalize imagenet --lr-mult 'fc=10'": Run(put=(("--size 224", "--size 28"),), more="--batch 8 --epochs 1",
                                                                                                            out=(r"^t\w+ (acc|loss)",)),
    "convoy train --model resnet18.onnx --data DIR --size 224 --normalize imagenet --freeze 'conv1,bn1,layer*'": Run(put=(("--size 224", "--size 28"),),
                                                                                                                      more="--batch 8 --epochs 1", out=(r"^t\w+ (acc|loss)",)),
    "convoy train --model net.onnx": Run(more="--data pictures --size 64x64 --batch 32 --epochs 1", out=(r"^test acc: ",)),
    "convoy report a.jsonl b.jsonl --out R.html": Run(then=is_there("R.html")),
    "convoy train --checkpoint DIR --resume": Run(put=(("DIR", "checkpoints"),), then=went_on),
}

# Commands of one fleet, in the order of its nodes, and words that they get. NODES stands for addresses of this machine.
FLEETS = [
    ([f"build/release/tools/convoy train --model resnet18 --data fashion-mnist --devices all --batch 512 --lr 0.2 --nodes pc1,pc2 --node {n}" for n in range(2)],
     (("--model resnet18", "--model lenet"),), "--epochs 1", r"^test acc: \d\.\d\d, \d+\.\d sec/epoch on \[127\.0\.0\.1\S* 0:0 .*\| 127\.0\.0\.1\S* 0:0 "),
    ([f"convoy train --nodes pc1,pc2,pc3 --node {n} --port 7070 --fleet-key fleet.key …" for n in range(3)], (("…", "--model lenet --data synthetic:64 --batch 12"),),
     "--epochs 1", r"^test acc: "),
    (["convoy bench fleet --nodes pc1,pc2 --node 0 --model resnet18 --batch 256", "convoy bench fleet --nodes pc1,pc2 --node 1 --model resnet18 --batch 256"],
     (("--model resnet18", "--model lenet"),), "--steps 2 --devices 0:0",
     r"(?s)^lenet, batch 32, gradients fp32, 2 nodes over tcp\n.*alone +its share +to the next, Mbit/s\n.*A step: predicted [\d.]+ ms, measured [\d.]+ ms \([+-][\d.]+ %\)\n"
     r".*(with 127\.0\.0\.1\S* a step is [\d.]+x as fast|127\.0\.0\.1\S* is not worth it: [\d.]+x, because)"),   # two nodes on one machine
]

BY_PYTHON, BY_PAGE = "the test python_installed runs it, in another folder", "the test python_page runs it"
BY_INSTALL, BY_README = "the test install runs it in a clean root", "the test cli_onnx_readme runs it, with PyTorch"
NOT_RUN = {
    "tools/quickstart": "installs packages with apt; cli_quickstart and setup_packages run it with scripts in apt's place",
    "tools/quickstart --setup-only": "as tools/quickstart",
    "tools/quickstart --mpi": "as tools/quickstart",
    "tools/quickstart --python": "as tools/quickstart; python_installed does the same",
    "tools/check": "runs this test",
    "tools/check --quick": "its tests are some of those of tools/check, which runs this test",
    "tools/check --full": "takes hours",
    "meson install -C build/release && ldconfig": BY_INSTALL,
    "ninja -C build/release uninstall && ldconfig": BY_INSTALL,
    "meson setup build/home --buildtype=release -Dtests=false --prefix ~/.local -Dlibdir=lib": BY_INSTALL,
    "meson install -C build/home": "the test install runs it with CVY_TEST_FULL: it builds everything once more",
    "meson setup ~/convoy-build --buildtype=release -Dtests=false && ninja -C ~/convoy-build": "builds everything once more; the test install configures builds elsewhere",
    "cc … $(pkg-config --cflags --libs convoy) -lm": BY_INSTALL,
    "cc d2l_section.c $(pkg-config --cflags --libs convoy) -lm": BY_INSTALL,
    "cc predict.c $(pkg-config --cflags --libs convoy)": BY_INSTALL,
    "python3 -m venv ~/convoy-env": BY_PYTHON,
    "~/convoy-env/bin/pip install ./python": BY_PYTHON,
    "~/convoy-env/bin/python -m convoy devices": BY_PYTHON,
    "convoy train --resume": "the test python_resume runs it",
    "mpirun -np 2 convoy bench fleet --model resnet18 --batch 256": "cli_fleet_bench runs it under the MPI that is there",
    "mpirun -np 2 --host pc1,pc2 convoy train …": "needs two machines; cli_fleet runs it on one",
    "mpirun --with-ft ulfm --prtemca oob_tcp_keepalive_time 0 …": "Open MPI 5 is in no Debian; cli_fleet_mpi_cut runs it where CVY_TEST_OPENMPI5 names one",
    "mpirun --tag-output": "an option of mpirun's",
    "ip netns exec NODE taskset -c CORE convoy bench fleet --nodes … --node … --model resnet18 --batch 256 --devices 0:0/1 --tune off":
        "how figures of the page were measured, in network namespaces that were made by hand",
    "taskset -c 1": "how a figure of the page was measured",
    "ssh -L": "another program's",
    "find -print0": "another program's; cli_predict_lists reads such names",
    "tensorboard --logdir DIR": "another program's; cli_report_made reads the event files",
    "tools/kernel-check --full --markdown": "compiles for hours; the test kernel_check runs the tool",
    "tools/compare/error --seeds 20": "needs PyTorch",
    "tools/compare/torch --model NAME --size N --batch B --task train": "needs PyTorch; cli_compare_torch runs it with a stand-in",
    "tools/compare/torch --amp": "needs PyTorch; cli_compare_torch runs it with a stand-in",
}

# Blocks that are no commands, by their first line: the program of a page, a drawing, or what a command prints, whose row above looks for it.
BLOCKS = {
    "cvy_net *net = resnet18(10);": BY_INSTALL,
    "cvy_model *model;": BY_INSTALL,
    "import convoy": BY_PAGE,
    "model = convoy.from_torch(": "the test python_torch_use does it with another network",
    "from sklearn.model_selection import cross_val_score": "the test python_classifier does it with other data",
    "node 0 node 1 node 2": "a drawing",
    "caller worker 0 worker 1 exchange thread watchdog": "a drawing",
    "device 0 device 1 file: function": "a drawing",
    "WORKING ──a call failed──► FAILED ──────────┐": "a drawing",
    "0:0 CPU": DEVICE_LINES,
    "resnet18, batch 256, gradients fp32, 2 nodes over tcp": "of the command above it, in FLEETS",
    '{"predictions": [{"file": "photo.pgm"': "of convoy predict --json, in RUN",
    "ms a step": "of the book's second run, in RUN",
    "test acc: 0.92, 13.4 sec/epoch on [devices]": "of convoy train, in RUN",
    "test acc: 0.92 (9213 of 10000), 4.1 sec on [devices]": "of convoy eval, in RUN",
    ">>> ": BY_README,
}

# Options of other programs, in spans.
FOREIGN_OPTIONS = {"--prefix", "--buildtype", "--target", "--host", "--with-ft", "--prtemca", "--tag-output", "--mpi", "--torch", "--limit", "--full", "--quick", "--only"}


def row(table, command):
    """The key of a command in a table: itself, or a pattern."""
    if command in table:
        return command
    return next((key for key in table if re.search(r"\\|\.\*", key) and re.fullmatch(key, command)), None)
