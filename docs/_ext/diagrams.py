"""Diagrams drawn from text when the site is built: sequences of messages, and processes within trust boundaries.

A ``sequence`` directive has one line for the participants and one for each message or step::

    participants: client north | server
    server -> client north: V
    client north: compute U

A ``processes`` directive places areas and boxes on a grid (column, row, and for areas width and height)::

    area (0, 0, 2, 1) Hospital north
    box join (0, 0) fedfactor join | opens no port
    join -> serve: TLS 1.3
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from textwrap import wrap
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

LINE = 17
COLUMN = 190
ROW = 120
ARROW = re.compile(r"(.+?) -> (.+?): (.*)")
AREA = re.compile(r"area \(([\d.]+), ([\d.]+), ([\d.]+), ([\d.]+)\) (.*)")
BOX = re.compile(r"box (\w+) \(([\d.]+), ([\d.]+)\) (.*)")
HEAD = (
    '<defs><marker id="{id}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path class="tip" d="M 0 0 L 10 5 L 0 10 z"/></marker></defs>'
)


class Drawing:
    """Elements of one SVG, and the length of its sides."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []
        self.marker = "tip-" + re.sub(r"\W+", "-", title.lower())

    def text(self, x: float, y: float, lines: Iterable[str], kind: str = "") -> None:
        """Centre lines of text at a point."""
        rows = list(lines)
        top = y - (len(rows) - 1) * LINE / 2
        for number, line in enumerate(rows):
            self.parts.append(f'<text class="{kind}" x="{x:g}" y="{top + number * LINE:g}">{escape(line)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draw a rectangle around a point."""
        place = f'x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" height="{height:g}"'
        self.parts.append(f'<rect class="{kind}" {place} rx="5"/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw an arrow between two points."""
        ends = f'x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}"'
        self.parts.append(f'<line class="arrow" {ends} marker-end="url(#{self.marker})"/>')

    def svg(self, width: float, height: float) -> str:
        """Return the element; a phone scrolls sideways to keep the text readable."""
        head = f'<svg role="img" aria-label="{escape(self.title)}" viewBox="0 0 {width:g} {height:g}" '
        sizes = f'style="max-width:{width:g}px;min-width:{min(width, 560):g}px">'
        return f'<div class="diagram">{head}{sizes}{HEAD.format(id=self.marker)}{"".join(self.parts)}</svg></div>'


def sequence(title: str, lines: list[str]) -> str:
    """Draw who sends what to which participant, from top to bottom."""
    kind, _, names = lines[0].partition(":")
    if kind != "participants":
        raise ValueError(f"the first line of a sequence must be 'participants: a | b', not {lines[0]!r}")
    column = {name.strip(): 110 + 220 * number for number, name in enumerate(names.split("|"))}
    drawing = Drawing(title)
    y = 60.0
    steps: list[str] = []
    for line in lines[1:]:
        sent = ARROW.fullmatch(line)
        if sent:
            start, end = column[sent[1]], column[sent[2]]
            texts = wrap(sent[3], max(24, int(abs(end - start) / 7.5)))
            y += 12 + LINE * len(texts)
            drawing.arrow(start, y, end, y)
            drawing.text((start + end) / 2, y - 8 - (len(texts) - 1) * LINE / 2, texts, "label")
            y += 10
        else:
            name, _, said = line.partition(": ")
            texts = wrap(said, 26)
            height = 14 + LINE * len(texts)
            y += 8 + height / 2
            drawing.box(column[name], y, 200, height, "step")
            drawing.text(column[name], y + 5, texts)
            y += height / 2 + 4
    for name, x in column.items():
        steps.append(f'<line class="life" x1="{x}" y1="40" x2="{x}" y2="{y + 12:g}"/>')
        drawing.box(x, 24, 200, 34, "box")
        drawing.text(x, 29, [name], "name")
    drawing.parts[:0] = steps
    return drawing.svg(220 * len(column), y + 20)


def processes(title: str, lines: list[str]) -> str:
    """Draw processes as boxes, trust boundaries as areas, and connections as arrows."""
    drawing = Drawing(title)
    centres: dict[str, tuple[float, float]] = {}
    right = bottom = 0.0
    arrows: list[re.Match[str]] = []
    for line in lines:
        if area := AREA.fullmatch(line):
            x, y, width, height = (float(area[number]) for number in range(1, 5))
            across, down = width * COLUMN - 16, height * ROW - 12
            drawing.box((x + width / 2) * COLUMN, (y + height / 2) * ROW, across, down, "area")
            drawing.text((x + width / 2) * COLUMN, y * ROW + 25, [area[5]], "name")
            right, bottom = max(right, (x + width) * COLUMN), max(bottom, (y + height) * ROW)
        elif box := BOX.fullmatch(line):
            centres[box[1]] = ((float(box[2]) + 0.5) * COLUMN, (float(box[3]) + 0.5) * ROW + 14)
            drawing.box(*centres[box[1]], COLUMN - 40, 66, "box")
            x, y = centres[box[1]]
            drawing.text(x, y + 5, [part.strip() for part in box[4].split("|")])
        elif arrow := ARROW.fullmatch(line):
            arrows.append(arrow)
        else:
            raise ValueError(f"not an area, a box or an arrow: {line!r}")
    for arrow in arrows:
        (x, y), (to_x, to_y) = centres[arrow[1]], centres[arrow[2]]
        across, down = to_x - x, to_y - y
        # The share of the way that lies within a box: an arrow begins and ends at the borders.
        share = min((COLUMN - 40) / 2 / abs(across) if across else 9, 33 / abs(down) if down else 9)
        drawing.arrow(x + share * across, y + share * down, to_x - share * across, to_y - share * down)
        texts = wrap(arrow[3], 24 if down or abs(across) < 1.5 * COLUMN else 40)
        shift = -10 - (len(texts) - 1) * LINE / 2 if not down else 5
        drawing.text(x + across / 2, y + down / 2 + shift, texts, "label")
    return drawing.svg(right, bottom)


class Diagram(Directive):
    """Draw the text of the directive; its argument describes the drawing for screen readers."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    draw: Any = None

    def run(self) -> list[nodes.Node]:
        """Return the drawing, and its text for formats without pictures."""
        lines = [line.strip() for line in self.content if line.strip()]
        try:
            return [nodes.raw("", type(self).draw(self.arguments[0], lines), format="html")]
        except (ValueError, KeyError) as error:
            raise self.error(f"diagram {self.arguments[0]!r}: {error}") from error


class Sequence(Diagram):
    """Directive ``sequence``."""

    draw = staticmethod(sequence)


class Processes(Diagram):
    """Directive ``processes``."""

    draw = staticmethod(processes)


def setup(app: Any) -> dict[str, bool]:
    """Add the two directives."""
    app.add_directive("sequence", Sequence)
    app.add_directive("processes", Processes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
