"""Pages that moved keep their old address: a small page there leads to the new one, without a script."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

MOVED = {
    "start": "tutorials/first_fit",
    "choose": "howto/choosing_a_method",
    "principles": "explanation/design_principles",
    "howto/hospital_csvs": "tutorials/hospital_csvs",
    "howto/three_hospitals": "tutorials/federation_of_three_hospitals",
    "howto/gaps": "howto/missing_values",
    "howto/yes_no": "howto/binary_data",
    "howto/go_on": "howto/incremental_fitting",
    "howto/scales": "howto/feature_scaling",
    "howto/rank": "howto/number_of_components",
    "howto/faults": "howto/troubleshooting",
    "ideas/flow": "explanation/how_a_round_works",
    "ideas/federated_equals_pooled": "explanation/federated_equals_pooled",
    "ideas/pooled_at_its_best": "explanation/pooled_nmf_in_depth",
    "ideas/scale": "explanation/scalability",
    "ideas/speed": "explanation/speed",
    "ideas/what_each_party_learns": "explanation/threat_model",
    "reference/settings": "reference/parameters",
    "reference/terms": "reference/federation_terms",
}
"""Old page → new page, both without an ending."""
PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Moved</title>'
    '<meta http-equiv="refresh" content="0; url={to}"><link rel="canonical" href="{to}"></head>'
    '<body><p>This page moved: <a href="{to}">{to}</a>.</p></body></html>\n'
)


def write(app: Any, error: Exception | None) -> None:
    """Write one page for each old address."""
    if error is not None or app.builder.format != "html":
        return
    for old, new in MOVED.items():
        path = Path(app.outdir) / f"{old}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE.format(to=posixpath.relpath(f"{new}.html", posixpath.dirname(old) or ".")))


def setup(app: Any) -> dict[str, bool]:
    """Write the pages when the build ends."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
