"""Pictures for a page, written with nothing but the standard library: a PNG of tiles, and charts as SVG."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

WIDTH = 760
HEIGHT = 380
LEFT = 56
RIGHT = 210
TOP = 16
BOTTOM = 44


def png_uri(picture: np.ndarray) -> str:
    """Write a picture in [0, 1] (1 is ink, NaN is see-through) as a data URI.

    Examples
    --------
    >>> png_uri(np.eye(2))[:22]
    'data:image/png;base64,'
    """
    ink = np.nan_to_num(np.clip(picture, 0, 1))
    pixels = np.stack([255 * (1 - ink), 255 * np.isfinite(picture)], axis=-1).round().astype(np.uint8)
    height, width = picture.shape
    # Every line of pixels is preceded by the number of its filter: 0, none.
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 4, 0, 0, 0)  # 8 bits of grey and of opacity
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


def history_svg(lines: Mapping[str, Sequence[float]], baseline: tuple[str, float], title: str) -> str:
    """Draw one line per way over the rounds, labelled at its end, and a dashed level to compare with."""
    values = [value for line in lines.values() for value in line if math.isfinite(value)]
    low, high = _nice(min(*values, baseline[1])), max(max(values), baseline[1])
    step = _step(high - low)
    top = math.ceil(high / step) * step
    most = max(len(line) for line in lines.values())

    def x(index: float) -> float:
        return LEFT + (index - 1) / max(1, most - 1) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (top - value) / (top - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_grid(low, top, step, y), _rounds(most, x)]
    level = y(baseline[1])
    parts.append(f'<path class="base" d="M{LEFT} {level:.1f}H{WIDTH - RIGHT}"/>')
    ends = {baseline[0]: level}
    for number, (label, line) in enumerate(lines.items(), start=1):
        points = [f"{x(i):.1f} {y(v):.1f}" for i, v in enumerate(line, start=1) if math.isfinite(v)]
        parts.append(f'<path class="line s{number}" d="M{"L".join(points)}"/>')
        parts.append(f'<circle class="dot s{number}" r="3.5" cx="{x(len(line)):.1f}" cy="{y(line[-1]):.1f}"/>')
        ends[label] = y(line[-1])
    for label, (height, number) in _spread(ends, {label: i for i, label in enumerate(lines, start=1)}).items():
        parts.append(
            f'<text class="name s{number}" x="{WIDTH - RIGHT + 12}" y="{height + 4:.1f}">{escape(label)}</text>'
        )
    body = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{body}</svg>'


def owners_svg(ways: Mapping[str, Mapping[str, float]], title: str) -> str:
    """Draw one row per owner with a mark for each way, from 0."""
    owners = list(next(iter(ways.values())))
    most = math.ceil(max(value for errors in ways.values() for value in errors.values()) * 20) / 20
    row = 26
    left = 70
    right = 24
    height = row * len(owners) + 40

    def x(value: float) -> float:
        return left + value / most * (WIDTH - left - right)

    parts: list[str] = []
    for tick in np.arange(0, most + 1e-9, 0.1):
        parts.append(f'<path class="grid" d="M{x(tick):.1f} 6V{height - 34}"/>')
        parts.append(f'<text class="tick mid" x="{x(tick):.1f}" y="{height - 12}">{tick:.1f}</text>')
    for i, owner in enumerate(owners):
        middle = 6 + row * (i + 0.5)
        values = [errors[owner] for errors in ways.values()]
        parts.append(f'<text class="tick end" x="{left - 14}" y="{middle + 4:.1f}">digit {escape(owner)}</text>')
        parts.append(f'<path class="span" d="M{x(min(values)):.1f} {middle:.1f}H{x(max(values)):.1f}"/>')
        parts += [_mark(number, x(value), middle) for number, value in enumerate(values)]
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def _mark(number: int, x: float, y: float) -> str:
    """Draw a mark whose shape distinguishes the ways without colour: ring, disc, square, diamond."""
    if number == 0:
        return f'<circle class="ring" r="6" cx="{x:.1f}" cy="{y:.1f}"/>'
    if number == 1:
        return f'<circle class="dot s1" r="4" cx="{x:.1f}" cy="{y:.1f}"/>'
    turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if number == 3 else ""
    return f'<rect class="dot s{number}" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"{turn}/>'


def _grid(low: float, top: float, step: float, y: object) -> str:
    parts: list[str] = []
    for value in np.arange(low, top + step / 2, step):
        height = y(value)  # type: ignore[operator]
        parts.append(f'<path class="grid" d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 8}" y="{height + 4:.1f}">{value:.2f}</text>')
    return "".join(parts)


def _rounds(most: int, x: object) -> str:
    step = max(1, int(_step(most)))
    marks = [1, *range(step, most + 1, step)] if step > 1 else list(range(1, most + 1))
    below = HEIGHT - BOTTOM
    text = "".join(f'<text class="tick mid" x="{x(i):.1f}" y="{below + 18}">{i}</text>' for i in marks)  # type: ignore[operator]
    middle = (LEFT + WIDTH - RIGHT) / 2
    return f'{text}<text class="tick mid" x="{middle:.0f}" y="{HEIGHT - 6}">round</text>'


def _nice(low: float) -> float:
    return math.floor(low * 20) / 20


def _step(span: float) -> float:
    """Choose a step of 1, 2 or 5 times a power of ten that gives about five ticks."""
    power = 10.0 ** math.floor(math.log10(span / 5))
    return next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= 6)


def _spread(ends: Mapping[str, float], numbers: Mapping[str, int]) -> dict[str, tuple[float, int]]:
    """Move labels apart so that none covers another; the level to compare with has number 0."""
    placed: dict[str, tuple[float, int]] = {}
    last = HEIGHT - BOTTOM + 9.0  # from the bottom up, so that none runs into the axis
    for label, height in sorted(ends.items(), key=lambda item: -item[1]):
        last = min(height, last - 17)
        placed[label] = (last, numbers.get(label, 0))
    return placed
