"""``fedfactor fit``: factor the files of several owners together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.cli.console import Debug, console, notes, polite
from fedfactor.cli.initialization import Parent, best_run, starts_asked
from fedfactor.cli.parameter_parsing import build, open_columns, open_parts
from fedfactor.cli.privacy import (
    Allow,
    Budget,
    Cap,
    Clip,
    Delta,
    Epsilon,
    KnownTo,
    LedgerFile,
    Privacy,
    RowBound,
    Subject,
    Unit,
    privacy_of,
)
from fedfactor.cli.reading_options import reads
from fedfactor.cli.report import write_page
from fedfactor.cli.run_folder import Place
from fedfactor.cli.run_summary import resumed, summary_table, told
from fedfactor.cli.shared_options import (
    Adding,
    Algorithm,
    Backend,
    Device,
    Engine,
    Every,
    Files,
    From,
    Network,
    NoGain,
    NoReport,
    Out,
    Overwrite,
    Parts,
    Quiet,
    Rank,
    Ranks,
    Reduction,
    Rounds,
    Scheduler,
    Seed,
    Set,
    Share,
    Split,
    Starts,
    Stored,
    Tol,
    Where,
    Workers,
)
from fedfactor.io.file_content import Reading
from fedfactor.io.preprocessing import Preprocess
from fedfactor.io.uneven_columns import PUBLIC_SCALES, warn_of_scales
from fedfactor.linalg.cuda.device_rows import check_device

GAIN_CELLS = 300_000
"""Cells of all owners up to which a fit is run twice more, to say what each owner gains over going alone."""


@reads()
def fit(
    files: Files,
    out: Out,
    rank: Rank = None,
    algorithm: Algorithm = "pooled-nmf",
    split: Annotated[
        Split, typer.Option(help="What FILES hold: rows, or columns of the same rows, which are matched by their ids.")
    ] = Split.rows,
    rounds: Rounds = None,
    seed: Seed = None,
    tol: Tol = None,
    settings: Set = None,
    begin_from: From = None,
    n_init: Starts = None,
    participation: Share = 1.0,
    backend: Where = Backend.threads,
    workers: Workers = None,
    engine: Engine = Network.local,
    ranks: Ranks = None,
    reduction: Adding = Reduction.allreduce,
    scheduler: Scheduler = None,
    parts: Parts = None,
    device: Device = None,
    storage: Stored = None,
    checkpoint_every: Every = 10,
    privacy: Privacy = "none",
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit: Unit = None,
    clip: Clip = None,
    row_bound: RowBound = None,
    subject: Subject = None,
    cap: Cap = 1,
    known_to: KnownTo = 1,
    ledger: LedgerFile = None,
    budget: Budget = None,
    allow: Allow = None,
    overwrite: Overwrite = False,
    no_gain: NoGain = False,
    no_report: NoReport = False,
    quiet: Quiet = False,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
    steps: tuple[str, ...],
) -> None:
    """Factor the rows of several owners together: X ≈ U V, with V common and every U private.

    Each of FILES holds the rows of one owner; a folder stands for the files in it. A column of ids names the rows and
    is not factored; a long table (user, item, rating) becomes a matrix; one line says what each file was taken for.

    Examples: fedfactor fit north.csv south.csv -k 5 -o out; fedfactor fit ratings.csv -a pooled-cf -o out

    Ctrl-C keeps the result so far, and the run goes on when the same command is given again. Written to the folder:
    shared/, which may be published (V as components.safetensors, features.json, run.json), private/ (U of each owner,
    readable by you only) and report.html, to be opened in a browser. checkpoint/ is there while the run is unfinished,
    and removed once the results of all rounds are written.
    """
    with polite(debug):
        parent = None if begin_from is None else Parent.read(begin_from, steps)
        wanted = parent.V.shape[0] if parent and rank is None and algorithm == "pooled-nmf" else rank
        method = build(algorithm, {"n_components": wanted, "tol": tol}, settings or ())
        kept_as = None if storage is None else storage.value
        check_device(device, kept_as)
        place = Place(out, checkpoint_every)
        if engine is not Network.mpi:
            place.check(overwrite)
        refuse_scattered(engine)
        words = privacy_of(
            privacy,
            epsilon=epsilon,
            delta=delta,
            unit=unit,
            clip=clip,
            row_bound=row_bound,
            subject=subject,
            cap=cap,
            known_to=known_to,
            ledger=ledger,
            budget=budget,
            allow=allow,
        )
        if words is not None:
            _refuse_uncovered(engine, steps)
        starts = starts_asked(method, parent, n_init, local=engine is Network.local, privacy=words)
        how = _reading(reading(), subject)
        asked = {"missing_values": _written(how.missing_values), "participation": participation, "rounds": rounds}
        asked |= {} if how.layer is None else {"layer": how.layer}
        if engine is Network.mpi:
            _refuse_for_ranks(device, workers, backend)
            from fedfactor.cli.cluster import fit_on_ranks

            fit_on_ranks(
                method,
                files,
                place,
                asked,
                seed=seed,
                reading=how,
                steps=steps,
                parts=parts,
                ranks=ranks,
                reduction=reduction.value,
                overwrite=overwrite,
                no_report=no_report,
                quiet=quiet,
            )
            return
        if split is Split.columns:
            if parent is not None or parts is not None or steps or engine is not Network.local or n_init:
                raise ValueError(
                    "--split columns goes with none of --from, --parts, --starts, --engine and preprocessing: prepare "
                    "the columns in their files."
                )
            place.clear()
            federation, run, quality = _fit_columns(
                method, files, how, rounds=rounds, seed=seed, privacy=words, quiet=quiet
            )
            place.write(run, federation, {**asked, "split": "columns"}, quality=quality)
            page = write_page(out, no_report)
            console(quiet).print(summary_table(run, federation, out, page, quality))
            return
        chosen = _engine(engine, backend, workers, scheduler, reduction, ranks)
        federation = open_parts(files, how, steps, parts, method.layout)
        if engine is not Network.dask:  # there the workers open and check what is theirs
            _check(federation, method, private=words is not None)
        if overwrite:
            place.clear()
        if parent is not None:
            starts = [parent.begin(method, federation)]
            asked = {**asked, "begun_from": parent.lineage}
        run, until = _run(
            place,
            starts,
            federation,
            rounds=rounds,
            seed=seed,
            participation=participation,
            privacy=words,
            engine=chosen,
            device=device,
            storage=kept_as,
            quiet=quiet,
        )
        unmeasured = no_gain or no_report or until is not None or words is not None
        gain = {} if unmeasured else _gain(method, federation, rounds)
        quality = {} if unmeasured or engine is not Network.local else _quality(run, federation)
        place.write(run, federation, asked, unfinished=until is not None, gain=gain, quality=quality, notes=notes())
        page = write_page(out, no_report)
        if until is not None:
            _end_interrupted(out, until)
    screen = console(quiet)
    screen.print(summary_table(run, federation, out, page, quality))
    screen.print(told(run, federation))


def _fit_columns(method: Any, files: Any, how: Reading, *, quiet: bool, **options: Any) -> tuple[Any, Any, Any]:
    """Factor columns of several files; return rows, run and quality as of one client with all columns."""
    from fedfactor.engines.callbacks import watcher
    from fedfactor.engines.columns import factor_columns

    tables = open_columns(files, how)
    found = factor_columns(method, tables, callbacks=watcher(int(not quiet)), **options)
    run, federation = found.joined(tables)
    return federation, run, {} if options["privacy"] is not None else _quality(run, federation)


def _refuse_uncovered(engine: Network, steps: tuple[str, ...]) -> None:
    """Refuse what a wish for privacy would not cover."""
    if engine is not Network.local:
        raise ValueError("--privacy is carried by the local engine only. Leave it out, or use --engine local.")
    if survey := Preprocess.parse(steps).survey:
        raise ValueError(
            f"{survey!r} would show sums of all owners' columns that no --privacy covers. Leave it out, and "
            f"{PUBLIC_SCALES}."
        )


def _reading(how: Reading, subject: str | None) -> Reading:
    """Let the column of subjects name the rows: rows of one subject share its id, exact only outside the matrix."""
    return how if subject is None else replace(how, id=subject if how.id is None else how.id, repeated_ids=True)


def _refuse_for_ranks(device: str | None, workers: int | None, backend: Backend) -> None:
    """Refuse what means nothing where every rank of MPI does its own part."""
    if device not in (None, "cpu"):
        raise ValueError(f"--device {device} belongs to a local run. Leave it out, or use --engine local.")
    if workers is not None or backend is not Backend.threads:
        raise ValueError("--workers and --backend belong to a local run; ranks are workers enough.")


def _end_interrupted(out: Path, until: int) -> None:
    typer.echo(
        f"Interrupted. The result of the first {until} rounds is in {out}. Give the same command again, "
        f"without --overwrite, to go on from round {until}.",
        err=True,
    )
    raise typer.Exit(130)


def _gain(method: Any, federation: Any, rounds: int | None) -> dict[str, tuple[float, float]]:
    """Measure each owner's gain over going alone on rows held out, where that takes next to nothing."""
    from fedfactor.core.errors import FedfactorError
    from fedfactor.evaluation.comparison import gain_over_alone

    shards = [federation.shard(name) for name in federation.names]
    ratings = any(isinstance(shard.mask, str) for shard in shards)
    few = len(shards) < 2 or min(shard.n_rows for shard in shards) < 5 or shards[0].place is not None
    if ratings or few or sum(shard.n_rows for shard in shards) * federation.n_features > GAIN_CELLS:
        return {}
    try:
        return gain_over_alone(federation, method, rounds=rounds)
    except (FedfactorError, ValueError, KeyboardInterrupt):  # an owner too small for the rank: the run itself stands
        return {}


def _quality(run: Any, federation: Any) -> dict[str, Any]:
    """Measure the fit in the terms of its model, next to a baseline."""
    from fedfactor.core.errors import FedfactorError
    from fedfactor.evaluation.fit_quality import fit_quality

    try:
        return fit_quality(run, federation)
    except (FedfactorError, ValueError):  # such as too few ratings to hold any out: the run itself stands
        return {}


def _written(missing_values: float | str | None) -> str | None:
    return None if missing_values is None else str(missing_values)


def _check(federation: Any, method: Any, *, private: bool) -> None:
    """Open every file and check all of them, and whether the method can take them, before any work."""
    from fedfactor.engines.engine import check_fit
    from fedfactor.io.result_folder import owner_to_file

    for name in federation.names:
        owner_to_file(name)  # a name that no result could be filed under
    check_fit(method, federation.prepare(method.domain))
    warn_of_scales(federation, private=private)


def refuse_scattered(engine: Network) -> None:
    """Refuse a local run under a launcher of several processes: each would do the whole job, over the others."""
    from fedfactor.engines.mpi.collectives import launched

    if engine is not Network.mpi and launched() > 1:
        raise ValueError(
            f"A launcher (mpiexec or srun) started {launched()} of these commands, and each would do the whole job and "
            "write over the others. Add --engine mpi to share it, or start the command once."
        )


def _engine(
    engine: Network,
    backend: Backend,
    workers: int | None,
    scheduler: str | None,
    adding: Reduction,
    ranks: int | None,
) -> Any:
    if ranks is not None:
        raise ValueError("--ranks belongs to --engine mpi; other engines take --workers.")
    if engine is Network.dask:
        if backend is not Backend.threads:
            raise ValueError("--backend belongs to a local run; the workers of Dask are processes already.")
        return dask_engine(scheduler, "ordered" if adding is Reduction.ordered else "tree", workers)
    refuse_scheduler(scheduler)
    from fedfactor.engines.local.engine import LocalEngine

    return LocalEngine(backend=backend.value, workers=workers)


def dask_engine(scheduler: str | None, reduction: Any, workers: int | None = None) -> Any:
    """Make the engine of a Dask cluster; without the package, say how to have it."""
    from fedfactor.engines.dask.engine import DaskEngine, load_dask

    load_dask()
    return DaskEngine(scheduler, reduction, workers)


def refuse_scheduler(scheduler: str | None) -> None:
    """Refuse the address of a scheduler where none is asked."""
    if scheduler is not None:
        raise ValueError("--scheduler belongs to --engine dask. Add that, or leave the address out.")


def _run(
    place: Place, starts: list[Any], federation: Any, *, seed: int | None, quiet: bool, **options: Any
) -> tuple[Any, int | None]:
    """Run, from the checkpoint if there is one; return the run, and the round it was interrupted at, if it was."""
    from fedfactor.core.errors import CheckpointError
    from fedfactor.engines.callbacks import watcher
    from fedfactor.engines.run import run

    if len(starts) > 1:
        return best_run(starts, federation, seed=seed, quiet=quiet, **options), None
    method = starts[0]
    saved = place.saved()
    if saved:
        seed = saved[0] if seed is None else seed
        if not quiet:
            typer.echo(resumed(place.out, saved[1]), err=True)
    try:
        watch = watcher(int(not quiet))
        how: dict[str, Any] = {**options, "checkpoint": place.checkpoint, "callbacks": watch}
        return run(method, federation, split="rows", seed=seed, **how), None
    except CheckpointError as error:
        raise CheckpointError(f"{error} Or start again in this one with --overwrite.") from None
    except KeyboardInterrupt:
        saved = place.saved()
    if saved and saved[1] and options.get("privacy") is None:  # of a private run the noise is that of all its rounds
        options["rounds"] = saved[1]
        so_far = run(method, federation, split="rows", seed=saved[0], checkpoint=place.checkpoint, **options)
        return replace(so_far, status="stopped"), saved[1]
    kept = (
        f"Give the same command again, without --overwrite, to go on from round {saved[1]}"
        if saved
        else "Nothing is kept"
    )
    why = "" if saved else " (no checkpoint had been written yet)"
    typer.echo(f"Interrupted. {kept}{why}.", err=True)
    raise typer.Exit(130)
