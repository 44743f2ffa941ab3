"""The demo's page: one file, no scripts, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from fedfactor.cli.console import size
from fedfactor.cli.demo_contest import AVERAGED, AVERAGED_OFTEN, POOLED, SHAPE, SHARED, STARTS, Entry, Owners, find
from fedfactor.cli.pictures import history_svg, owners_svg, png_uri
from fedfactor.cli.run_summary import HEADS, cells, uploads
from fedfactor.core.algorithm import Meta
from fedfactor.core.atomic_files import write_atomic
from fedfactor.plots.components import mosaic


def write_page(path: Path, entries: list[Entry], owners: Owners, about: Mapping[str, Any]) -> Path:
    """Write the page."""
    return write_atomic(path, page(entries, owners, about).encode(), 0o644)


def page(entries: list[Entry], owners: Owners, about: Mapping[str, Any]) -> str:
    """Fill the template; whatever comes from data is escaped on the way."""
    base = find(entries, POOLED)
    best = find(entries, SHARED)
    averaged = min((find(entries, label) for label in (AVERAGED, AVERAGED_OFTEN)), key=lambda entry: entry.error)
    template = Template((resources.files("fedfactor.cli") / "demo_page.html").read_text(encoding="utf-8"))
    return template.substitute(
        rows=f"{sum(map(len, owners.values())):,}",
        rank=about["rank"],
        pooled_error=f"{base.error:.4f}",
        shared_error=f"{best.error:.4f}",
        averaged_error=f"{averaged.error:.4f}",
        shared_excess=_excess(best.error, base.error),
        averaged_excess=_excess(averaged.error, base.error),
        history=_history(entries, base),
        table=_table(entries),
        components=_components(entries),
        owners=_owners(entries),
        travelled=_travelled(best, owners),
        settings=_settings(entries, about),
    )


def _excess(error: float, base: float) -> str:
    share = 100 * (error / base - 1)
    return f"{abs(share):.1f} % {'above' if share >= 0 else 'below'} all rows in one place"


def _history(entries: list[Entry], base: Entry) -> str:
    lines = {
        label: [record.metrics.get("relative_error", float("nan")) for record in run.history]
        for label in (SHARED, AVERAGED, AVERAGED_OFTEN)
        if (run := find(entries, label).run) is not None
    }
    ends = "; ".join(f"{label} ends at {line[-1]:.4f} after {len(line)} rounds" for label, line in lines.items())
    return history_svg(lines, ("all rows in one place", base.error), f"Relative error after each round. {ends}.")


def _table(entries: list[Entry]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in HEADS)
    body = ""
    for entry in entries:
        first, *rest = map(escape, cells(entry))
        chosen = ' class="chosen"' if entry.label == SHARED else ""
        body += f'<tr{chosen}><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>\n'
    return f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>"


def _components(entries: list[Entry]) -> str:
    figures = ""
    for label in (SHARED, AVERAGED, POOLED):
        V = find(entries, label).V
        assert V is not None
        picture = mosaic(V, SHAPE, n_columns=5)
        height, width = picture.shape
        alt = escape(f"{len(V)} components of {label}, each a picture of {SHAPE[0]} × {SHAPE[1]} pixels")
        image = f'<img src="{png_uri(picture)}" width="{width}" height="{height}" alt="{alt}">'
        figures += f"<figure><div>{image}</div><figcaption>{escape(label)}</figcaption></figure>\n"
    return figures


def _owners(entries: list[Entry]) -> str:
    ways = {label: find(entries, label).errors for label in (POOLED, SHARED, AVERAGED, AVERAGED_OFTEN)}
    worst = "; ".join(f"{label}: at worst {max(errors.values()):.4f}" for label, errors in ways.items())
    return owners_svg(ways, f"Relative error of each owner. {worst}.")


def _travelled(entry: Entry, owners: Owners) -> str:
    run = entry.run
    assert run is not None
    meta = Meta(run.V.shape[1], tuple(owners), str(run.V.dtype))
    each = run.history[0]
    up = each.bytes_up / len(owners)
    down = each.bytes_down / len(owners)
    said = " ".join(escape(text) for text in uploads(run.algorithm, meta, run.privacy))
    return (
        f"<p>PooledNMF, each round: {size(up)} up and {size(down)} down per owner; {run.rounds} rounds, "
        f"{size(run.bytes_up + run.bytes_down)} in all. {said}</p>"
    )


def _settings(entries: list[Entry], about: Mapping[str, Any]) -> str:
    lines = {"seed": about["seed"], "rank": about["rank"], "rounds at most": about["rounds"]}
    lines["rows by owner"] = ", ".join(f"{name}: {count}" for name, count in about["owners"].items())
    lines["scikit-learn"] = (
        f'NMF(n_components={about["rank"]}, init="nndsvda", max_iter=500), best of {STARTS}, version {_sklearn()}'
    )
    for entry in entries:
        if entry.run is not None:
            lines[entry.label] = repr(entry.run.algorithm) + f", {entry.run.status}"
    run = find(entries, SHARED).run
    assert run is not None
    lines["versions"] = ", ".join(f"{key} {value}" for key, value in run.environment.items())
    pairs = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>" for key, value in lines.items())
    return f"<dl>{pairs}</dl>"


def _sklearn() -> str:
    from importlib import metadata

    return metadata.version("scikit-learn")
