# SPDX-License-Identifier: MIT
"""tests/data/kernel_results.txt: what compilers made of the kernels as they are committed, so that a check with empty folders compiles only what
has changed since. A line for each compilation, KEY TARGET FILE, then KERNEL=FACT,… for each kernel of it, with the facts of facts.py in their
order, - for one that is unknown; the key is that of kept.py. Rules are judged anew each time."""
from .facts import kernel_facts

FIELDS = [name for name in kernel_facts("") if name not in ("kernel", "loop")]
HEAD = ("# SPDX-License-Identifier: MIT\n# Made by `tools/kernel-check --renew` (tools/kernel_check/known.py): what compilers made of the committed "
        "kernels.\n")


def write_kernel(kernel):
    values = [kernel[name] for name in FIELDS] + list(kernel["loop"] or (None, None))
    return kernel["kernel"] + "=" + ",".join("-" if value is None else f"{value:g}" for value in values)


def read_kernel(word):
    name, _, values = word.partition("=")
    numbers = [None if value == "-" else float(value) if "." in value else int(value) for value in values.split(",")]
    if len(numbers) != len(FIELDS) + 2:
        raise ValueError(word)
    *facts, multiplies, loads = numbers
    return kernel_facts(name, loop=None if multiplies is None else [multiplies, loads], **dict(zip(FIELDS, facts)))


class Known:
    """The lines of the file; ValueError with file and line for one that is wrong. No file: nothing is known."""
    def __init__(self, path):
        self.path, self.kernels = path, {}
        try:
            with open(path, encoding="utf-8") as f:
                lines = f.read().splitlines()
        except FileNotFoundError:
            return
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            try:
                self.kernels[words[0]] = [read_kernel(word) for word in words[3:]]
            except ValueError as what:
                raise ValueError(f"{path}:{number}: '{what}' is to be KERNEL= and {len(FIELDS) + 2} numbers; {RENEW}") from what

    def write(self, results):
        """results: (key, target, file, kernels) of each compilation."""
        lines = sorted(f"{key} {target} {file} {' '.join(map(write_kernel, kernels))}\n" for key, target, file, kernels in results)
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(HEAD + "".join(sorted(lines, key=lambda line: line.split()[1:])))


RENEW = "tools/kernel-check --renew writes the file anew"
