#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the C source of the extension module convoy._cffi: declarations.py OUT.c INCLUDE_DIR COMPILER…

The declarations are those of include/convoy/*.h: COMPILER's preprocessor reads convoy/convoy.h, and what stands in a file of the folder
`convoy` is kept. Changes for cffi's parser:
- the members of cvy_stop, which has an atomic one, become "...": the C compiler lays out the struct;
- a macro without arguments becomes a constant, which the C compiler computes;
- each callback of cvy_train_params gets a function in Python, convoy_<its name>, declared extern "Python"."""
import os
import re
import subprocess
import sys
import tempfile

HEADER = '#include "convoy/convoy.h"\n'
LINE_MARK = re.compile(r'#\s+\d+\s+"((?:[^"\\]|\\.)*)"')
NUMBER = re.compile(r"#\s*define\s+(CVY_\w+)\s+\S")
CALLBACK = re.compile(r"(\w[\w \*]*?)\s*\(\*(on_\w+)\)\s*(\([^()]*\))\s*;")


def preprocessed(include, compiler):
    """The text behind the preprocessor, with its line marks and macros."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "all.c")
        with open(path, "w", encoding="utf-8") as f:
            f.write(HEADER)
        done = subprocess.run([*compiler, "-E", "-dD", "-I", include, path], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(compiler)}: the public headers in {include} cannot be read:\n{done.stderr}")
    return done.stdout


def declarations(text):
    """The public declarations as cffi reads them."""
    kept, ours = [], False
    for line in text.splitlines():
        mark = LINE_MARK.match(line)
        number = NUMBER.match(line)
        if mark:
            ours = os.path.basename(os.path.dirname(mark.group(1))) == "convoy" and mark.group(1).endswith(".h")
        elif ours and number:
            kept.append(f"#define {number.group(1)} ...")
        elif ours and line.strip() and not line.lstrip().startswith("#"):
            kept.append(line)
    text, n = re.subn(r"(struct cvy_stop \{)[^}]*\}", r"\1 ...; }", "\n".join(kept))
    if n != 1:
        sys.exit(f"convoy/stop.h: {n} definitions of struct cvy_stop, expected 1")
    params = re.search(r"typedef struct cvy_train_params \{(.*?)\} cvy_train_params;", text, re.S)
    callbacks = CALLBACK.findall(params.group(1)) if params else []
    if not callbacks:
        sys.exit("convoy/train.h: no callback found in cvy_train_params")
    return text + "\n" + "".join(f'extern "Python" {result} convoy_{name}{" ".join(arguments.split())};\n' for result, name, arguments in callbacks)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    out, include, *compiler = sys.argv[1:]
    import cffi  # not needed for declarations(), which the tests also call
    builder = cffi.FFI()
    builder.cdef(declarations(preprocessed(include, compiler)))
    builder.set_source("convoy._cffi", HEADER)
    builder.emit_c_code(out)


if __name__ == "__main__":
    main()
