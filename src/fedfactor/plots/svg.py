"""Figures for a page: drawn by matplotlib, coloured by the page's own light and dark palette."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from typing import Any

from fedfactor.plots.axes import panels

# Colours that matplotlib writes into the drawing, and what the page's style sheet calls them.
_COLOURS = {"#010203": "var(--ink)", "#020304": "var(--soft)", "#030405": "var(--s1)", "#040506": "var(--s2)"}
_INK, _SOFT, _FIRST, _SECOND = _COLOURS


def svg(
    draw: Callable[[Any], Any], title: str, *, width: float = 4.8, height: float = 2.8, name: str = "figure"
) -> str:
    """Draw on new axes and return an ``<svg>`` element for a page.

    Parameters
    ----------
    draw : function of axes
        Draws the figure, such as ``lambda ax: plot_history(run, ax=ax)``.
    title : str
        What the figure shows, for those who cannot see it.
    width, height : float
        In inches; on the page the drawing is as wide as its place.
    name : str
        Different for every figure of a page: names inside the drawing are made from it.

    Returns
    -------
    str
        Text stays text; colours are ``--ink``, ``--soft``, ``--s1`` and ``--s2`` of the page.

    Examples
    --------
    >>> svg(lambda ax: ax.plot([1, 2]), "a line")[:44]
    '<svg role="img" aria-label="a line" viewBox='
    """
    import matplotlib.style

    style: dict[str, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.family": "sans-serif",
        "font.size": 9,
        "text.color": _INK,
        "axes.labelcolor": _SOFT,
        "axes.edgecolor": _SOFT,
        "xtick.color": _SOFT,
        "ytick.color": _SOFT,
        "axes.titlecolor": _INK,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "axes.prop_cycle": f"cycler('color', {[_FIRST, _SECOND]})",
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.fontsize": 8,
        "xtick.labelcolor": _SOFT,
        "ytick.labelcolor": _INK,
    }
    with matplotlib.style.context(style):
        ax = panels(1, width=width, height=height)[0]
        draw(ax)
        text = io.StringIO()
        ax.figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    found = text.getvalue()
    found = found[found.index("<svg") :]
    found = re.sub(r"<metadata>.*?</metadata>", "", found, flags=re.DOTALL)
    found = re.sub(r'font: ([^;"]*?)(px|pt) [^;"]*', r"font-size: \1\2", found)  # the page's own letters
    box = re.search(r'viewBox="[^"]*"', found)
    found = found[found.index(">") + 1 :]
    # Names of groups, the same in every drawing of matplotlib: only those stay that something refers to.
    used = set(re.findall(r"(?:href=\"#|url\(#)([^\")]+)", found))
    found = re.sub(r' id="([^"]*)"', lambda each: each[0] if each[1] in used else "", found)
    for colour, word in _COLOURS.items():
        found = found.replace(colour, word)
    space = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
    head = f'<svg role="img" aria-label="{escape(title)}" {box[0] if box else ""} {space}>'
    return head + found.rstrip()
