# SPDX-License-Identifier: MIT
"""The page of `convoy report` as a browser lays it out in a wide window, as one SVG: its title, tiles, curves, devices and command. The figures are
the page's own SVG, colours are those of its style sheet. What a run adds (the time, the version) and the folded table of all settings are left out."""
import html
import re
import textwrap
from html.parser import HTMLParser

from svg_drawing import Drawing, number

WIDTH, MARGIN, GAP = 992, 24, 16
SMALL = 12.5
VOID = {"meta", "link", "br", "img"}
ENDS = {"td": {"td", "th"}, "th": {"td", "th"}, "tr": {"td", "th", "tr"}}    # tags that a new one of this kind closes
BAR = 192


class Node:
    def __init__(self, tag, attributes=()):
        self.tag, self.attributes, self.children = tag, dict(attributes), []

    def has(self, word):
        return word in (self.attributes.get("class") or "").split()

    def text(self):
        return "".join(child if isinstance(child, str) else child.text() for child in self.children)

    def all(self, tag, word=None):
        for child in self.children:
            if isinstance(child, Node):
                if child.tag == tag and (word is None or child.has(word)):
                    yield child
                yield from child.all(tag, word)


class Page(HTMLParser):
    """The tree of a page; cells and rows of tables end where the next one begins."""

    def __init__(self, text):
        super().__init__()
        self.root = Node("page")
        self.open = [self.root]
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        while self.open[-1].tag in ENDS.get(tag, ()):
            self.open.pop()
        node = Node(tag, attrs)
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag, attrs):
        self.open[-1].children.append(Node(tag, attrs))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        while self.open.pop().tag != tag:
            pass

    def handle_data(self, data):
        self.open[-1].children.append(data)


def colours_of(style):
    """{class: (light, dark)} of the page's style sheet: its words, and the colours of lines, dots and bars."""
    light, dark = (dict(re.findall(r"--(\w+):(#\w+)", block)) for block in re.findall(r":root\{(.*?)\}", style))
    found = {name: (light[name], dark[name]) for name in light}
    for name, colour in re.findall(r"\.line\.(c\d)\{stroke:(#\w+)\}", style):
        found[name] = (colour, colour)
    for names, background in re.findall(r"\.(b\d)\{fill:[^;]+;background:([^}]+)\}", style):
        variable = re.fullmatch(r"var\(--(\w+)\)", background)
        found[names] = found[variable.group(1)] if variable else (background, background)
    return found


def wide(text, size):
    """About the columns that a text takes in a sans-serif font."""
    return size * sum(0.30 if c in "ijlt.,:;|'()[]f " else 0.86 if c in "mwMW" else 0.66 if c.isupper() else 0.56 for c in text)


def put_tiles(out, tiles, y):
    x = MARGIN
    for tile in tiles.all("div"):
        value, name = next(tile.all("b")).text(), next(tile.all("span")).text()
        w = max(104, 26 + max(wide(value, 19) * 1.08, wide(name, SMALL) * 1.04))
        if x + w > WIDTH - MARGIN:
            x, y = MARGIN, y + 68
        out.rect(x, y, w, 58, "card", 6)
        out.text(x + 13, y + 26, value, 19, bold=True)
        out.text(x + 13, y + 46, name, SMALL, "soft")
        x += w + 10
    return y + 58


def put_shape(out, node, x, y, scale):
    """An element of one of the page's figures."""
    at = node.attributes
    if node.tag == "path":
        colour = next((word for word in at["class"].split() if re.fullmatch(r"c\d", word)), "line")
        dash = "7 4" if node.has("dash") else "2 4" if node.has("dots") else ""
        line = re.sub(r"([MLHV])([^MLHV]*)", lambda m: m.group(1) + moved(m.group(1), m.group(2), x, y, scale), at["d"])
        out.path(line, colour, 2 if node.has("line") else 1, dash)
    elif node.tag == "circle":
        to_x, to_y = x + scale * float(at["cx"]), y + scale * float(at["cy"])
        out.add(f'<circle cx="{number(to_x)}" cy="{number(to_y)}" r="{number(scale * 3.4)}" class="{at["class"]}"/>')
    elif node.tag == "text":
        out.text(x + scale * float(at["x"]), y + scale * float(at["y"]), node.text(), 12, "soft", at.get("text-anchor", "start"))


def moved(command, figures, x, y, scale):
    places = [float(n) for n in figures.split()]
    return " ".join(number((x if command == "H" or (command != "V" and i % 2 == 0) else y) + scale * place) for i, place in enumerate(places))


def put_figure(out, figure, x, y, w):
    """A figure with its caption and legend; returns where it ends."""
    out.text(x, y + 13, next(figure.all("figcaption")).text(), 14, "soft")
    drawing = next(child for child in figure.children if isinstance(child, Node) and child.tag == "svg")
    _, _, box_w, box_h = map(float, drawing.attributes["viewbox"].split())
    scale = w / box_w
    for shape in drawing.children:
        if isinstance(shape, Node):
            put_shape(out, shape, x, y + 20, scale)
    y += 20 + scale * box_h + 16
    for name in next(figure.all("p", "legend")).all("span"):
        line = next(name.all("path"))
        put_shape(out, line, x, y - 9, 1)
        label = name.text().strip()
        out.text(x + 34, y, label, 13)
        x += 34 + wide(label, 13) + 18
    return y + 6


def put_charts(out, charts, y):
    w, x, ends = (WIDTH - 2 * MARGIN - GAP) / 2, MARGIN, []
    for figure in charts.all("figure"):
        ends.append(put_figure(out, figure, x, y, w))
        x = MARGIN + w + GAP if x == MARGIN else MARGIN
        if x == MARGIN:
            y, ends = max(ends) + GAP, []
    return max([y - GAP, *ends])


def put_table(out, table, y):
    rows = [[child for child in row.children if isinstance(child, Node)] for row in table.all("tr")]
    need = lambda cell: BAR if next(cell.all("span", "bar"), None) else wide(cell.text(), 13.5) * (1.1 if cell.tag == "th" else 1.02)
    widths = [max(map(need, column)) for column in zip(*rows)]
    gap = min(28, (WIDTH - 2 * MARGIN - sum(widths)) / len(widths))
    for row in rows:
        x = MARGIN
        for cell, w in zip(row, widths):
            bar = next(cell.all("span", "bar"), None)
            if bar:
                at = x
                for piece in bar.all("i"):
                    part = BAR * float(re.search(r"width:([\d.]+)%", piece.attributes["style"]).group(1)) / 100
                    out.rect(at, y + 5, part, 13, piece.attributes["class"])
                    at += part
            else:
                right = cell.has("n")
                out.text(x + w if right else x, y + 17, cell.text().strip(), 13.5, anchor="end" if right else "start", bold=cell.tag == "th")
            x += w + gap
        out.path(f"M{MARGIN} {y + 26:.1f}H{WIDTH - MARGIN}", "line")
        y += 27
    return y


def put_pre(out, pre, y):
    lines = textwrap.wrap(pre.text(), 112, break_on_hyphens=False)
    out.rect(MARGIN, y, WIDTH - 2 * MARGIN, 19 * len(lines) + 20, "card", 6)
    for i, line in enumerate(lines):
        out.text(MARGIN + 12, y + 24 + 19 * i, line, 13, mono=True)
    return y + 19 * len(lines) + 20


def make(text):
    """The picture from the text of a page."""
    page = Page(text).root
    body = next(page.all("body"))
    out = Drawing(WIDTH, "The page of a run, as convoy train --report and convoy report write it", colours_of(next(page.all("style")).text()))
    y = 0
    for node in body.children:
        if not isinstance(node, Node):
            continue
        if node.tag == "h1":
            out.text(MARGIN, 44, node.text(), 21, bold=True)
            y = 52
        elif node.tag == "h2":
            y += 42
            out.text(MARGIN, y, node.text(), 17, bold=True)
            y += 12
        elif node.has("tiles"):
            y = put_tiles(out, node, y + 14)
        elif node.has("charts"):
            y = put_charts(out, node, y)
        elif node.has("scroll"):
            y = put_table(out, next(node.all("table")), y)
        elif node.tag == "pre":
            y = put_pre(out, node, y)
        elif node.tag == "p":
            words = re.sub(r"; written at .*", "", " ".join(node.text().split()))
            out.text(MARGIN, y + 18, words, 14, "soft")
            y += 22
        elif node.tag != "details":
            raise SystemExit(f"the page has a <{node.tag}> that the picture has no place for")
    return out.finish(y + 24)
