# SPDX-License-Identifier: MIT
"""An SVG picture for a page that is read in light and in dark mode: colours are classes with a value for each mode, the background is the picture's own."""
import html
import math

FONT = "system-ui,'Segoe UI',Helvetica,Arial,sans-serif"
# class → (light, dark); blue and orange are told apart by all kinds of colour vision (Okabe and Ito)
COLOURS = {
    "paper": ("#ffffff", "#0d1117"), "ink": ("#1f2328", "#e6edf3"), "soft": ("#59636e", "#9198a1"), "line": ("#d1d9e0", "#30363d"),
    "blue": ("#0072b2", "#56b4e9"), "orange": ("#d55e00", "#f0a33a"), "green": ("#009e73", "#2fbf93"), "purple": ("#a8508a", "#cc79a7"),
}


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Drawing:
    def __init__(self, width, title, colours=None):
        self.width, self.title, self.colours, self.parts = width, title, {**COLOURS, **(colours or {})}, []

    def add(self, text):
        self.parts.append(text)

    def text(self, x, y, words, size=14, colour="ink", anchor="start", bold=False, mono=False):
        more = ("" if anchor == "start" else f' text-anchor="{anchor}"') + (' font-weight="600"' if bold else "") + (' font-family="monospace"' if mono else "")
        self.add(f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" class="{colour}"{more}>{html.escape(words, quote=False)}</text>')

    def rect(self, x, y, w, h, colour, round_by=0):
        more = f' rx="{round_by}"' if round_by else ""
        self.add(f'<rect x="{number(x)}" y="{number(y)}" width="{number(w)}" height="{number(h)}" class="{colour}"{more}/>')

    def path(self, d, colour, width=1, dash=""):
        more = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<path d="{d}" class="{colour}-line" stroke-width="{number(width)}"{more}/>')

    def area(self, d, colour):
        self.add(f'<path d="{d}" class="{colour}"/>')

    def finish(self, height):
        height = math.ceil(height)
        used = [name for name in self.colours if any(f'class="{name}"' in part or f'class="{name}-line"' in part for part in self.parts)]
        rules = ["".join(f".{name}{{fill:{self.colours[name][mode]}}}.{name}-line{{fill:none;stroke:{self.colours[name][mode]}}}" for name in ["paper", *used])
                 for mode in (0, 1)]
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height}" width="{self.width}" height="{height}" role="img" '
                f'font-family="{FONT}">\n<title>{html.escape(self.title, quote=False)}</title>\n'
                f"<style>{rules[0]}\n@media (prefers-color-scheme:dark){{{rules[1]}}}</style>\n"
                f'<rect width="{self.width}" height="{height}" class="paper"/>\n')
        return head + "\n".join(self.parts) + "\n</svg>\n"
