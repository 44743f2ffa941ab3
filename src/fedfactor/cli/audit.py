"""``fedfactor audit``: attack a configuration on the data it is meant for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from fedfactor.cli.console import Debug, console, polite
from fedfactor.cli.fit import Algorithm, Files, Out, Rank, Rounds, Set
from fedfactor.cli.privacy import Allow, Clip, Delta, Epsilon, Privacy, RowBound, Unit, privacy_of
from fedfactor.cli.reading import reads
from fedfactor.cli.settings import build, data_files
from fedfactor.data.content import Reading


@reads()
def audit(
    files: Files,
    rank: Rank,
    out: Out,
    algorithm: Algorithm = "pooled-nmf",
    rounds: Rounds = None,
    settings: Set = None,
    privacy: Privacy = "none",
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit: Unit = None,
    clip: Clip = None,
    row_bound: RowBound = None,
    allow: Allow = None,
    seed: int = 0,
    canaries: Annotated[int, typer.Option(help="Rows that are planted, to bound ε from below.", min=1)] = 1000,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
    steps: tuple[str, ...],
) -> None:
    """Attack a configuration and write audit.json and audit.html; ends with 1 when a claim is REFUTED.

    Rows from uploads and sums, membership, columns that one row fills, differences of sums, and a lower bound on ε from
    planted rows. "consistent" means that these attacks found nothing, never that the configuration is safe.
    """
    with polite(debug):
        from fedfactor.audit import audit as attack
        from fedfactor.data.io import open_files

        method = build(algorithm, {"n_components": rank}, settings or ())
        federation = open_files(data_files(files), reading=reading(), steps=steps)
        words = privacy_of(
            privacy, epsilon=epsilon, delta=delta, unit=unit, clip=clip, row_bound=row_bound, allow=allow
        )
        report = attack(method, federation, privacy=words, rounds=rounds, seed=seed, canaries=canaries)
        report.write(out)
    screen = console()
    for finding in report.findings:
        text = f"{finding.verdict:10} {finding.attack}: {finding.figures} {finding.note}".rstrip()
        screen.print(text, soft_wrap=True, markup=False)  # with the note: an attack that was not tried says so there
    screen.print(f"{report.verdict}. The page is {out / 'audit.html'}", soft_wrap=True, markup=False)
    if report.verdict == "REFUTED":
        raise typer.Exit(1)
