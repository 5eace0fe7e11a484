# SPDX-License-Identifier: MIT
"""The table of what each kernel costs."""
from .rules import ratio

COLUMNS = ("file", "kernel", "target", "kind", "registers", "spills", "private B", "inner", "local B", "items/unit", "SIMD", "fma/load", "defines")
NUMBERS = range(4, 12)


PAGE = """# What each kernel costs

Every kernel as the compilers of GPUs' vendors make it, without a GPU: the worst of its variants on each target. Made by
`tools/kernel-check --full --markdown`; [developers/cards.md](developers/cards.md#offline-kernel-check) names the compilers and the rules for hot
kernels. *spills*: registers on AMD, bytes on NVIDIA; *private B*: bytes of memory that an item has for itself (on Intel its spills, too);
*inner*: accesses to it in the loop with the multiply-adds; *local B*: bytes of a work-group; *items/unit*: work-items that a compute unit
holds; *SIMD*: work-items that go together; *fma/load*: multiply-adds for each load from local memory.

"""


class Table:
    def __init__(self):
        self.rows, self.worst = [], {}

    def add(self, row, kernel, on_core):
        hot = row.is_hot(kernel["kernel"])
        show = lambda name: "-" if kernel[name] is None else str(kernel[name])
        fmas = ratio(kernel) if on_core else None
        cells = (row.file, kernel["kernel"], kernel["target"], "hot" if hot else "cpu" if row.kind == "cpu" else "cold", show("registers"), show("spills"),
                 show("private"), show("inner"), show("local"), show("items"), show("simd"), f"{fmas:.1f}" if fmas else "-", " ".join(row.defines))
        rank = (hot, kernel["spills"] or 0, kernel["inner"] or 0, kernel["private"] or 0, -(kernel["items"] or 0), -(kernel["simd"] or 0), kernel["registers"] or 0)
        self.rows.append(cells)
        place = cells[:3]
        if place not in self.worst or rank > self.worst[place][0]:
            self.worst[place] = (rank, cells)

    def chosen(self, everything):
        """All rows, or the worst of each kernel on each target."""
        return sorted(self.rows if everything else [cells for _, cells in self.worst.values()])

    def text(self, everything):
        shown = [COLUMNS, *self.chosen(everything)]
        widths = [max(len(cells[i]) for cells in shown) for i in range(len(COLUMNS))]
        return "\n".join("  ".join(v.rjust(w) if i in NUMBERS else v.ljust(w) for i, (v, w) in enumerate(zip(cells, widths))).rstrip() for cells in shown)

    def markdown(self, everything):
        lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "|".join("--:" if i in NUMBERS else "---" for i in range(len(COLUMNS))) + "|"]
        return PAGE + "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in self.chosen(everything)])
