# SPDX-License-Identifier: MIT
"""What hot kernels must keep to, and the excuses of those that do not."""
from .targets import TARGETS

ITEMS_WANTED = 2 * 256      # of a hot kernel on a compute unit
FMAS_PER_LOAD = 16          # in kernels on the matrix core


def spills(kernel, target):
    if kernel["spills"]:
        return f"spills {kernel['spills']} (registers on AMD, bytes on NVIDIA)"
    return None


def memory(kernel, target):
    if kernel["spills"]:        # lie in that memory, and break the rule above
        return None
    if kernel["inner"]:
        return f"reaches for memory of the item's own {kernel['inner']} times in its innermost loop"
    if kernel["private"]:
        return f"keeps {kernel['private']} bytes for each item in memory"
    return None


def groups(kernel, target):
    if kernel["items"] is not None and kernel["items"] < ITEMS_WANTED:
        return f"a compute unit holds {kernel['items']} work-items; {ITEMS_WANTED} are wanted ({kernel['registers']} registers, {kernel['local']} bytes of local memory)"
    return None


def simd(kernel, target):
    if kernel["simd"] is not None and kernel["simd"] < target.simd_least:
        return f"{kernel['simd']} items go together; {target.simd_least} are wanted"
    return None


RULES = {rule.__name__: rule for rule in (spills, memory, groups, simd)}


def ratio(kernel):
    """Multiply-adds for each load from local memory."""
    return kernel["loop"][0] / kernel["loop"][1] if kernel["loop"] else None


class Judge:
    """Faults of what was compiled, and in `broken` how many of each target. `excused` holds the excuses that were needed, `tried` pairs of row and target that were looked at."""
    def __init__(self, excuses):
        self.excuses, self.excused, self.tried, self.faults, self.broken = excuses, set(), set(), [], {}

    def fault(self, target, text):
        self.faults.append(text)
        self.broken[target] = self.broken.get(target, 0) + 1

    def judge(self, row, kernel, on_core):
        target = TARGETS[kernel["target"]]
        what = f"{row.file} [{' '.join(row.defines)}] {target.name}: "
        if row.is_hot(kernel["kernel"]):
            for name, rule in RULES.items():
                broken = rule(kernel, target)
                if not broken:
                    continue
                excuse = next((e for e in self.excuses if e.rule == name and e.kernel == kernel["kernel"] and e.covers(row, target.name)), None)
                if excuse:
                    self.excused.add((excuse, target.name))
                else:
                    self.fault(target.name, f"{what}{name}: hot kernel {kernel['kernel']} {broken}")
        if on_core and target.maker != "host":
            made = ratio(kernel)
            if made is None or made < FMAS_PER_LOAD:
                self.fault(target.name, f"{what}loads: the innermost loop of {kernel['kernel']} has {'no multiply-adds' if made is None else f'{made:.1f} multiply-adds'} "
                                   f"per load from local memory; {FMAS_PER_LOAD} are wanted")
        if kernel["local"] is not None and kernel["local"] > target.local_most:
            self.fault(target.name, f"{what}local: kernel {kernel['kernel']} wants {kernel['local']} bytes of local memory, there are {target.local_most}")

    def unneeded(self, rows):
        """Sentences about excuses that no kernel needed on a target on which all rows that it is for were compiled."""
        lines = []
        for excuse in self.excuses:
            for target in excuse.targets:
                of = [row for row in rows if row.hot and target in row.only and excuse.covers(row, target)]
                if (excuse, target) not in self.excused and all((row, target) in self.tried for row in of):
                    lines.append(f"kernel_variants.txt:{excuse.line}: no kernel needs this excuse on {target}")
        return lines
