"""Words for ``privacy=`` on the command line, shared by ``fit`` and ``audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.aggregation.robust_rules import robust_rules
from fedfactor.privacy.modes import Protection

Privacy = Annotated[
    str,
    typer.Option("--privacy", help=f"{', '.join([*Protection, *robust_rules()])}: what protects the uploads."),
]
Epsilon = Annotated[
    float | None, typer.Option(help="With --privacy dp: ε of the whole run; by default 1.", show_default=False)
]
Delta = Annotated[
    float | None,
    typer.Option(
        help="With --privacy dp: δ, well below one over the number of units; by default 1e-05.", show_default=False
    ),
]
Unit = Annotated[
    str | None,
    typer.Option(
        help="With --privacy dp: the protected unit: row, client or subject; by default row.", show_default=False
    ),
]
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
PublicRows = Annotated[
    float | None,
    typer.Option(
        "--rows",
        help="With --privacy dp: rows of all owners together, about; a public number.",
        show_default=False,
    ),
]
Colluding = Annotated[
    int | None,
    typer.Option(help="With --privacy dp: owners that may reveal their noise to the server.", show_default=False),
]
KnownTo = Annotated[int, typer.Option(help="With --unit subject: owners that may have rows of one subject.")]
LedgerFile = Annotated[
    Path | None,
    typer.Option("--ledger", help="The books of this data set, across runs (.jsonl).", show_default=False),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        help="With --ledger: ε of this data set over all runs. A new ledger takes that of its first run.",
        show_default=False,
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", help="Override a minimum: small-client, few-clients, rare-columns, changed-cohort."),
]


def privacy_of(
    word: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    unit: str | None = None,
    clip: float | None = None,
    row_bound: float | None = None,
    rows: float | None = None,
    colluding: int | None = None,
    subject: str | None = None,
    cap: int = 1,
    known_to: int = 1,
    ledger: Path | None = None,
    budget: float | None = None,
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
    from fedfactor.privacy.minimums import Minimums

    _refuse_allow(word, allow or [])
    if budget is not None and ledger is None:
        raise ValueError("--budget is what a ledger holds a data set to. Name the ledger with --ledger.")
    if word != "dp":
        _refuse_noise(word, cap=None if cap == 1 else cap, known_to=None if known_to == 1 else known_to)
        alone = delta if ledger is None else None  # a ledger computes its ε at a δ, whatever enters it
        _refuse_noise(word, epsilon=epsilon, delta=alone, unit=unit, clip=clip, row_bound=row_bound, subject=subject)
        _refuse_noise(word, rows=rows, colluding=colluding)
    if word == "none" and ledger is None:
        return None
    minimums = Minimums(allow=tuple(allow or ()))  # type: ignore[arg-type]
    epsilon = 1.0 if epsilon is None else epsilon
    delta = 1e-5 if delta is None else delta
    unit = unit or "row"
    if word == "dp":
        held = None if budget is None else Ledger(ledger, epsilon=budget, delta=delta, unit=unit)  # type: ignore[arg-type]
        wanted = dp(
            epsilon,
            delta,
            unit=unit,  # type: ignore[arg-type]
            clip=clip,
            row_bound=row_bound,
            rows=rows,
            subject=subject,
            cap=cap,
            known_to=known_to,
            colluding=colluding or 0,
            ledger=ledger if held is None else held,
        )
        return wanted, minimums
    books = () if ledger is None else (Ledger(ledger, epsilon=budget, delta=delta),)
    return minimums, *books, *(() if word == "none" else (word,))


def agreed_privacy(word: str, **given: Any) -> dict[str, Any]:
    """Write options as ``[privacy]`` of a federation.toml; what was not given stays out.

    Examples
    --------
    >>> agreed_privacy("dp", epsilon=2.0, unit=None)
    {'protect': 'dp', 'report_error': False, 'epsilon': 2.0}
    """
    told = {name: value for name, value in given.items() if value is not None}
    if word not in list(Protection):
        raise ValueError(f"--privacy {word} is not known in a federation. Use {', '.join(Protection)}.")
    if word == "none":
        _refuse_noise(word, **told)
        return {}
    if word == "secure-sum":
        _refuse_noise(word, **told)
        return {"protect": word}
    return {"protect": word, "report_error": False, "epsilon": 1.0, **told}


def _refuse_allow(word: str, allow: list[str]) -> None:
    """Refuse to override what does not exist, or what nothing here asks about: no wish is dropped in silence."""
    from fedfactor.privacy.minimums import MINIMUMS

    asked = {"secure-sum": MINIMUMS, "none": (), "dp": ()}.get(word, ("small-client",))
    for name in allow:
        if name not in MINIMUMS:
            raise ValueError(f"--allow {name} is not a minimum. The names are {', '.join(MINIMUMS)}.")
        if name not in asked:
            raise ValueError(f"--allow {name} overrides nothing with --privacy {word}. Leave it out.")


def _refuse_noise(word: str, **given: Any) -> None:
    """Refuse a budget that nothing would keep to: an ε implies noise."""
    for name, value in given.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} speaks of noise, but --privacy is {word}. Say --privacy dp, or leave it out.")
