"""Words for ``privacy=`` on the command line, shared by ``fit`` and ``audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Privacy = Annotated[
    str,
    typer.Option(
        "--privacy", help="none, secure-sum, dp, median, trimmed-mean or group-median: what protects the uploads."
    ),
]
Epsilon = Annotated[float, typer.Option(help="With --privacy dp: ε of the whole run.")]
Delta = Annotated[float, typer.Option(help="With --privacy dp: δ, well below one over the number of units.")]
Unit = Annotated[str, typer.Option(help="With --privacy dp: whom it protects, row, client or subject.")]
Clip = Annotated[
    float | None, typer.Option("--clip", help="With --unit client: largest norm of an upload.", show_default=False)
]
RowBound = Annotated[
    float | None,
    typer.Option(help="Public bound on the norm of a row; estimated and paid for when not given.", show_default=False),
]
Subject = Annotated[
    str | None, typer.Option("--subject", help="With --unit subject: the column that names it.", show_default=False)
]
Cap = Annotated[int, typer.Option(help="With --unit subject: rows of one subject that count at each owner.")]
KnownTo = Annotated[int, typer.Option(help="With --unit subject: owners that may have rows of one subject.")]
LedgerFile = Annotated[
    Path | None,
    typer.Option("--ledger", help="The books of this data set, across runs (.jsonl).", show_default=False),
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", help="Override a minimum: small-client, few-clients, rare-columns, changed-cohort."),
]


def privacy_of(
    word: str,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    unit: str = "row",
    clip: float | None = None,
    row_bound: float | None = None,
    subject: str | None = None,
    cap: int = 1,
    known_to: int = 1,
    ledger: Path | None = None,
    allow: list[str] | None = None,
) -> Any:
    """Build what ``fedfactor.run(privacy=...)`` takes.

    Examples
    --------
    >>> privacy_of("none") is None
    True
    >>> privacy_of("dp", epsilon=2.0)[0].epsilon
    2.0
    """
    from fedfactor.privacy.dp import dp
    from fedfactor.privacy.ledger import Ledger
    from fedfactor.privacy.policy import Minimums

    if word == "none":
        return None
    minimums = Minimums(allow=tuple(allow or ()))  # type: ignore[arg-type]
    if word == "dp":
        wanted = dp(
            epsilon, delta, unit=unit, clip=clip, row_bound=row_bound, subject=subject, cap=cap,  # type: ignore[arg-type]
            known_to=known_to, ledger=ledger,
        )  # fmt: skip
        return wanted, minimums
    books = () if ledger is None else (Ledger(ledger, delta=delta),)
    return word, minimums, *books
