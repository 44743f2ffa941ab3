"""What the command line says about a run, in tables and in plain sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedfactor.cli.console import duration, size
from fedfactor.cli.quality_text import last_round_differs, main_figures
from fedfactor.core.algorithm import Algorithm, Meta
from fedfactor.core.client_data import Federation
from fedfactor.core.pytree import tree_sum
from fedfactor.core.run import STATUS, Run
from fedfactor.io.uneven_columns import PUBLIC_SCALES, owner_sums, uneven
from fedfactor.privacy.report import describe

REVEAL = "Uploads reached the server in the clear; without differential privacy, what is made of rows can reveal rows."


HEADS = ("way", "all rows", "worst owner", "rounds", "an owner sends", "all traffic", "seconds")
"""Heads of the demo's table."""


def cells(entry: Any) -> tuple[str, ...]:
    """Write one line of the table, here and on the page."""
    worst = f"{entry.worst:.4f}" + (f" ({entry.worst_name})" if entry.worst_name else "")
    rounds = "–" if entry.rounds is None else str(entry.rounds)
    traffic = (size(entry.sent_by_one), size(entry.sent_in_all)) if entry.sent_in_all else ("nothing", "nothing")
    return entry.label, f"{entry.error:.4f}", worst, rounds, *traffic, f"{entry.seconds:.2f}"


def summary_table(
    run: Run, federation: Federation, out: Path, page: Path | None = None, quality: Mapping[str, Any] | None = None
) -> Any:
    """Lay out a finished run in two columns."""
    from rich.table import Table

    measured = run.measured
    worst, error = measured.worst_client
    whose = " (yours to know; not covered by ε)" if run.owners_only else ""
    total = f"{measured.relative_error:.5f} over all rows{whose}"
    least = f"{error:.5f} ({worst})"
    if run.owners_only and _one_scale_decides(federation):
        # Noise drowns the small columns, and the large ones make the error look good all the same.
        total = f"not shown: large columns alone decide it; {PUBLIC_SCALES}"
        least = "not shown"
    last = run.history[-1].metrics.get("relative_error") if run.history and not run.owners_only else None
    differs = last_round_differs(last, measured.relative_error)
    lines = {
        "algorithm": f"{type(run.algorithm).__name__}, rank {_rank(run)}, seed {run.seed}",
        "owners": f"{len(run.factors)} ({_list(list(run.factors))})",
        "rows × columns": f"{federation.n_rows:,} × {federation.n_features:,}",
        "relative error": total,
        **({"": differs} if differs else {}),
        **({"quality": "; ".join(main_figures(quality))} if quality and len(quality) > 1 else {}),
        "worst owner": least,
        "rounds": f"{run.rounds}, {_ended(run)}",
        "sent": f"{size(run.bytes_up)} up, {size(run.bytes_down)} down, by all owners together",
        "time in rounds": duration(sum(measured.seconds)),
        "may be shared": f"{out / 'shared'}: components.safetensors, features.json, run.json",
        "private results": f"{out / 'private'}/OWNER.safetensors, readable by you only",
        **({} if page is None else {"to look at": f"{page}, in a browser"}),
    }
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines.items():
        table.add_row(name, _plain(value))
    return table


def _one_scale_decides(federation: Federation) -> bool:
    """Return whether columns differ so much in scale that only the largest ones count in an error."""
    sums = list(owner_sums(federation).values())
    return bool(sums) and bool(uneven(federation.feature_names, tree_sum(sums)))


def told(run: Run, federation: Federation) -> Any:
    """Say in plain words what left the owners."""
    from rich.text import Text

    masked = any(federation.shard(name).mask is not None for name in federation.names)
    meta = Meta(federation.n_features, federation.names, str(run.V.dtype).rsplit(".", 1)[-1], masked)
    how = REVEAL if run.privacy is None else "\n" + describe(dict(run.privacy))
    return Text(f"\nRows and U stayed with their owners. {' '.join(uploads(run.algorithm, meta, run.privacy))} {how}")


def uploads(algorithm: Algorithm, meta: Meta, privacy: Mapping[str, Any] | None = None) -> list[str]:
    """Say what each kind of upload holds, in the words of its own class; under noise of what was sent then.

    Examples
    --------
    >>> from fedfactor.algorithms import FedAvgNMF
    >>> uploads(FedAvgNMF(2), Meta(4, ("a", "b")))[0][:55]
    'Each owner sent its factor times its weight, the weight'
    """
    said: list[str] = []
    noise = (privacy or {}).get("mode") == "dp"
    if noise and (privacy or {}).get("unit") != "client" and getattr(algorithm, "row_clip", 0.0) is None:
        algorithm = replace(algorithm, row_clip=1.0)  # what runs with noise for rows send
    for kind in algorithm.messages(meta):
        use = getattr(kind, "uplink", None)
        if use is None:
            continue
        what = re.sub(r"^Up[^:]*: ", "", _about(kind, algorithm.messages(meta)[kind]))
        needed = {"sum": "their sum alone is used", "group": "sums over the lines of the grid alone are used"}
        needed = needed.get(use, "the server uses each one by itself")
        added = ", with noise added before it left" if noise else ""
        said.append(f"Each owner sent {what.replace('``', '').rstrip('.')}{added}; {needed}.")
    return said


def _about(kind: type, leaves: Iterable[str]) -> str:
    """Take from the words of a message those about what this configuration sends: ``name``: … speaks of one leaf."""
    text = " ".join((kind.__doc__ or kind.__name__).split())
    first, *others = re.split(r"(?<=\.) (?=``\w+``: )", text)
    sent = [part for part in others if re.match(r"``(\w+)``", part)[1] in leaves]  # type: ignore[index]
    return " ".join((first, *sent))


def resumed(out: Path, next_round: int) -> str:
    """Say that a run is taken up again."""
    return f"{out} holds an unfinished run: going on from round {next_round}."


def _rank(run: Run) -> int:
    """Name the rank that was asked for: a recommender's V has rows for levels besides."""
    asked = getattr(run.algorithm, "n_components", None)
    return asked if isinstance(asked, int) else run.V.shape[0]


def _ended(run: Run) -> str:
    unasked = run.status == "rounds" and not getattr(run.algorithm, "tol", 0)
    return "all that were asked for" if unasked else STATUS[run.status] + run.still_expected


def _list(names: list[str], most: int = 6) -> str:
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[: most - 1])}, … {names[-1]}"


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(text)  # a name or a path may hold brackets, which rich would read as markup
