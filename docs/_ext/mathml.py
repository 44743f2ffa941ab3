"""Mathematics as MathML, which browsers draw by themselves: pages need no script and no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def mathml(latex: str, display: str) -> str:
    """Return one formula; lines that are aligned at ``&`` become a table."""
    lines = latex.strip()
    if display == "block" and ("\\\\" in lines or "&" in lines) and "\\begin" not in lines:
        lines = f"\\begin{{aligned}}{lines}\\end{{aligned}}"
    return convert(lines, display=display)


def visit_math(self: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(f'<span class="math">{mathml(node.astext(), "inline")}</span>')
    raise nodes.SkipNode


def visit_math_block(self: Any, node: nodes.math_block) -> None:
    """Write a formula of its own."""
    self.body.append(f'<div class="math">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Offer it under the name that conf.py asks for."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
