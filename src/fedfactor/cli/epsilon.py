"""``fedfactor epsilon``: what noise would cost in error, by ε, without spending any."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.cli.console import Debug, polite
from fedfactor.cli.parameter_parsing import build, data_files
from fedfactor.cli.privacy import Cap, Clip, Colluding, Delta, KnownTo, PublicRows, RowBound, Subject, Unit
from fedfactor.cli.progress import bar
from fedfactor.cli.reading_options import reads
from fedfactor.cli.shared_options import Algorithm, Files, Quiet, Rounds, Set
from fedfactor.io.file_content import Reading

Rank = Annotated[int, typer.Option("--rank", "-k", help="Number of components.", show_default=False)]
Epsilons = Annotated[str, typer.Option("--epsilons", help="Candidates, separated by commas.")]
Repeats = Annotated[int, typer.Option(help="Runs for each ε.")]
Seed = Annotated[int, typer.Option(help="Of initializations and of the noise.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="File for the curve (.json); none by default.", show_default=False)
]


@reads()
def epsilon(
    files: Files,
    rank: Rank,
    epsilons: Epsilons = "0.5,1,2,4,8",
    algorithm: Algorithm = "pooled-nmf",
    repeats: Repeats = 3,
    rounds: Rounds = None,
    seed: Seed = 0,
    delta: Delta = None,
    unit: Unit = None,
    clip: Clip = None,
    row_bound: RowBound = None,
    rows: PublicRows = None,
    subject: Subject = None,
    cap: Cap = 1,
    known_to: KnownTo = 1,
    colluding: Colluding = None,
    settings: Set = None,
    out: Out = None,
    quiet: Quiet = False,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
    steps: tuple[str, ...],
) -> None:
    """Simulate private runs for several ε, and compare their errors with that without noise. Nothing is spent.

    The errors depend on all rows without noise: they are for those who may see the rows, not for publication.

    Example: fedfactor epsilon north.csv south.csv west.csv -k 4 --epsilons 0.5,1,4
    """
    from fedfactor.cli.privacy import privacy_of
    from fedfactor.evaluation.cost_of_noise import cost_of_noise
    from fedfactor.io.read import open_files

    with polite(debug):
        try:
            candidates = [float(word) for word in epsilons.split(",")]
        except ValueError:
            raise ValueError(f"--epsilons {epsilons!r} is not a list of numbers. Write 0.5,1,4.") from None
        more: dict[str, Any] = {"unit": unit, "clip": clip, "row_bound": row_bound, "rows": rows, "subject": subject}
        asked, _ = privacy_of("dp", delta=delta, cap=cap, known_to=known_to, colluding=colluding, **more)
        method = build(algorithm, {"n_components": rank}, settings or ())
        federation = open_files(data_files(files), reading=reading(), steps=steps)
        with bar("epsilon", quiet) as show:
            found = cost_of_noise(
                federation,
                method,
                epsilons=candidates,
                privacy=asked,
                repeats=repeats,
                rounds=rounds,
                seed=seed,
                progress=lambda done, of, error: show(done, of, f"error {error:.4f}"),
            )
        if out is not None:
            out.write_text(json.dumps(found.summary(), indent=2) + "\n")
    typer.echo("Simulation: nothing was spent, and these errors are not private (they depend on all rows).")
    typer.echo(f"relative error without noise {found.without_noise:.4f}")
    for value, errors, ratios in zip(found.epsilons, found.errors, found.ratios, strict=True):
        typer.echo(
            f"ε = {value:g}: error {errors.mean():.4f} ({errors.min():.4f} to {errors.max():.4f}), "
            f"{ratios.mean():.3f} times that without noise"
        )
