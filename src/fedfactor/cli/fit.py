"""``fedfactor fit``: factor the files of several owners together."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.algorithms.names import algorithm_names
from fedfactor.cli.begin import Parent, starts_of
from fedfactor.cli.console import Debug, console, polite
from fedfactor.cli.place import Place
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
from fedfactor.cli.reading import ENDINGS, reads
from fedfactor.cli.report import write_page
from fedfactor.cli.settings import build, open_parts
from fedfactor.cli.words import resumed, summary_table, told
from fedfactor.core.card import check_device
from fedfactor.data.content import Reading
from fedfactor.data.preprocess import Preprocess
from fedfactor.data.scales import warn_of_scales

GAIN_CELLS = 300_000
"""Cells of all owners up to which a fit is run twice more, to say what each owner gains over going alone."""


class Storage(StrEnum):
    """How a card keeps rows."""

    float64 = "float64"
    float32 = "float32"
    bfloat16 = "bfloat16"


class Network(StrEnum):
    """How messages travel."""

    local = "local"
    mpi = "mpi"
    dask = "dask"


class Reduction(StrEnum):
    """How ranks, or the workers of Dask, add."""

    allreduce = "allreduce"
    ordered = "ordered"


class Backend(StrEnum):
    """Where clients run."""

    threads = "threads"
    processes = "processes"


Files = Annotated[
    list[Path],
    typer.Argument(help=f"One file per owner ({ENDINGS}), or folders of them.", show_default=False),
]
Algorithm = Annotated[
    str,
    typer.Option("--algorithm", "-a", help=f"One of {', '.join(algorithm_names())}.", autocompletion=algorithm_names),
]
Rank = Annotated[
    int | None,
    typer.Option("--rank", "-k", help="Number of components; fedfactor rank helps to choose it.", show_default=False),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.", show_default=False)]
Rounds = Annotated[int | None, typer.Option(help="Rounds at most; by default the algorithm's own.", show_default=False)]
Seed = Annotated[int | None, typer.Option(help="Drawn and written to run.json when not given.", show_default=False)]
Tol = Annotated[float | None, typer.Option(help="When to stop; 0 uses all rounds.", show_default=False)]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Another setting, name=value; fedfactor settings ALGORITHM lists them."),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Start at the components of this result of pooled-nmf: with rows or owners that came since, few rounds "
        "do.",
        show_default=False,
    ),
]
Starts = Annotated[
    int | None,
    typer.Option(
        "--n-init",
        help="Starts, of which the one with the least error is kept; by default 1, for pooled-nmf with n_private 6.",
        show_default=False,
    ),
]
Share = Annotated[float, typer.Option(help="Share of the owners that take part in each round.")]
Where = Annotated[Backend, typer.Option(help="Run the owners in threads or in processes of their own.")]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Owners at work at a time; by default one per core. With --engine dask: workers to wait for.",
        show_default=False,
    ),
]
Engine = Annotated[
    Network,
    typer.Option(
        help="Run all owners in this process, on the ranks of mpiexec -n N fedfactor fit …, or on a Dask cluster."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="With --engine dask: address of the scheduler, such as tcp://10.0.0.1:8786; without, a cluster of this "
        "machine's cores.",
        show_default=False,
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(help="Ranks that the MPI job must have; without mpiexec, start that many.", show_default=False),
]
Adding = Annotated[
    Reduction, typer.Option(help="With --engine mpi or dask: add fast, or in name order with the bits of a local run.")
]
Parts = Annotated[
    int | None,
    typer.Option(
        help="Cut one file into so many blocks of rows, each an owner, read where it is worked on; with --engine mpi "
        "as many as there are ranks.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="Where to work: cpu, cuda, or cuda:1. By default on the processor.", show_default=False),
]
Stored = Annotated[
    Storage | None,
    typer.Option("--storage", help="With --device cuda: how the card keeps dense rows. By default float32."),
]
Every = Annotated[int, typer.Option("--checkpoint-every", help="Rounds between two checkpoints.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what the folder holds, start from round 0.")]
NoGain = Annotated[
    bool,
    typer.Option("--no-gain", help="Do not measure what owners gain over going alone (done where data are small)."),
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Do not write report.html beside the results.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but mistakes.")]


@reads()
def fit(
    files: Files,
    out: Out,
    rank: Rank = None,
    algorithm: Algorithm = "pooled-nmf",
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
        asked_rank = parent.V.shape[0] if parent and rank is None and algorithm == "pooled-nmf" else rank
        method = build(algorithm, {"n_components": asked_rank, "tol": tol}, settings or ())
        check_device(device, None if storage is None else storage.value)
        place = Place(out, checkpoint_every)
        if engine is not Network.mpi:
            place.check(overwrite)
        refuse_scattered(engine)
        words = privacy_of(
            privacy, epsilon=epsilon, delta=delta, unit=unit, clip=clip, row_bound=row_bound, subject=subject, cap=cap,
            known_to=known_to, ledger=ledger, budget=budget, allow=allow,
        )  # fmt: skip
        if words is not None and engine is not Network.local:
            raise ValueError("--privacy is carried by the local engine only. Leave it out, or use --engine local.")
        if words is not None and Preprocess.parse(steps).survey:
            raise ValueError(
                f"{Preprocess.parse(steps).survey!r} would show sums of all owners' columns that no --privacy covers. "
                "Leave it out, or divide the columns by public constants before."
            )
        starts = starts_of(method, n_init, words)
        if parent is not None or len(starts) > 1:
            _check_start(method, parent, starts, n_init, engine, words)
        how = reading()
        if subject is not None:  # rows of one subject share its id, which is exact only outside the matrix
            how = replace(how, id=subject if how.id is None else how.id, repeated_ids=True)
        asked = {"missing_values": _written(how.missing_values), "participation": participation, "rounds": rounds}
        if engine is Network.mpi:
            if device not in (None, "cpu"):
                raise ValueError(f"--device {device} belongs to a local run. Leave it out, or use --engine local.")
            if workers is not None or backend is not Backend.threads:
                raise ValueError("--workers and --backend belong to a local run; ranks are workers enough.")
            from fedfactor.cli.cluster import fit_on_ranks

            job: dict[str, Any] = {
                "parts": parts,
                "ranks": ranks,
                "reduction": reduction.value,
                "overwrite": overwrite,
                "no_report": no_report,
                "quiet": quiet,
            }
            fit_on_ranks(method, files, place, asked, seed=seed, reading=how, steps=steps, **job)
            return
        if ranks is not None:
            raise ValueError("--ranks belongs to --engine mpi; other engines take --workers.")
        chosen = _engine(engine, backend, workers, scheduler, reduction)
        federation = open_parts(files, how, steps, parts)
        if engine is not Network.dask:  # there the workers open and check what is theirs
            _check(federation, method)
        if overwrite:
            place.clear()
        if parent is not None:
            starts, asked = [parent.begin(method, federation)], {**asked, "begun_from": parent.lineage}
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
            storage=None if storage is None else storage.value,
            quiet=quiet,
        )
        unmeasured = no_gain or no_report or until is not None or words is not None
        gain = {} if unmeasured else _gain(method, federation, rounds)
        place.write(run, federation, asked, unfinished=until is not None, gain=gain)
        page = write_page(out, no_report)
        if until is not None:
            typer.echo(
                f"Interrupted. The result of the first {until} rounds is in {out}. Give the same command again, "
                f"without --overwrite, to go on from round {until}.",
                err=True,
            )
            raise typer.Exit(130)
    screen = console(quiet)
    screen.print(summary_table(run, federation, out, page))
    screen.print(told(run, federation))


def _check_start(
    method: Any, parent: Parent | None, starts: list[Any], n_init: int | None, engine: Network, privacy: Any
) -> None:
    """Refuse a start at another result, and several starts, where they have no place."""
    from fedfactor.privacy.dp import refuse_start

    option = "--n-init" if parent is None else "--from"
    if engine is not Network.local:
        raise ValueError(f"{option} belongs to --engine local. Leave it out{_one_start(starts)}, or use that engine.")
    if parent is not None:
        if type(method).__name__ != "PooledNMF":
            raise ValueError(f"--from starts pooled-nmf, not {type(method).__name__}. Leave it out.")
        if n_init is not None:
            raise ValueError("--from is one start, and --n-init asks for several. Leave one of them out.")
        refuse_start(privacy, "--from")


def _one_start(starts: list[Any]) -> str:
    return " (with n_private give --n-init 1)" if len(starts) > 1 else ""


def _gain(method: Any, federation: Any, rounds: int | None) -> dict[str, tuple[float, float]]:
    """Measure each owner's gain over going alone on rows kept aside, where that takes next to nothing."""
    from fedfactor.core.errors import FedfactorError
    from fedfactor.selection.comparison import gain_over_alone

    shards = [federation.shard(name) for name in federation.names]
    ratings = any(isinstance(shard.mask, str) for shard in shards)
    few = len(shards) < 2 or min(shard.n_rows for shard in shards) < 5
    if ratings or few or sum(shard.n_rows for shard in shards) * federation.n_features > GAIN_CELLS:
        return {}
    try:
        return gain_over_alone(federation, method, rounds=rounds)
    except (FedfactorError, ValueError, KeyboardInterrupt):  # an owner too small for the rank: the run itself stands
        return {}


def _written(missing_values: float | str | None) -> str | None:
    return None if missing_values is None else str(missing_values)


def _check(federation: Any, method: Any) -> None:
    """Open every file and check all of them, and whether the method can take them, before any work."""
    from fedfactor.data.results import owner_to_file
    from fedfactor.engines.base import check_fit

    for name in federation.names:
        owner_to_file(name)  # a name that no result could be filed under
    check_fit(method, federation.prepare(method.domain))
    warn_of_scales(federation)


def refuse_scattered(engine: Network) -> None:
    """Refuse a local run under a launcher of several processes: each would do the whole job, over the others."""
    from fedfactor.engines.mpi.collectives import launched

    if engine is not Network.mpi and launched() > 1:
        raise ValueError(
            f"A launcher (mpiexec or srun) started {launched()} of these commands, and each would do the whole job and "
            "write over the others. Add --engine mpi to share it, or start the command once."
        )


def _engine(engine: Network, backend: Backend, workers: int | None, scheduler: str | None, adding: Reduction) -> Any:
    if engine is Network.dask:
        if backend is not Backend.threads:
            raise ValueError("--backend belongs to a local run; the workers of Dask are processes already.")
        from fedfactor.engines.dask.engine import DaskEngine, load_dask

        load_dask()
        return DaskEngine(scheduler, "ordered" if adding is Reduction.ordered else "tree", workers)
    if scheduler is not None:
        raise ValueError("--scheduler belongs to --engine dask. Add that, or leave the address out.")
    from fedfactor.engines.local.engine import LocalEngine

    return LocalEngine(backend=backend.value, workers=workers)


def _best(starts: list[Any], federation: Any, *, seed: int | None, quiet: bool, **options: Any) -> Any:
    """Run from several starts, and keep the run with the least summed error; nothing is kept before all are done."""
    from fedfactor.engines.callbacks import watcher
    from fedfactor.engines.run import run
    from fedfactor.estimators._face import restart_seed

    first = secrets.randbits(63) if seed is None else seed
    found: list[Any] = []
    try:
        for place, method in enumerate(starts):
            watch = watcher(int(not quiet), f"start {place + 1} of {len(starts)}")
            found.append(run(method, federation, seed=restart_seed(first, place), callbacks=watch, **options))
    except KeyboardInterrupt:
        typer.echo("Interrupted. Nothing is kept: of several starts no checkpoint is written.", err=True)
        raise typer.Exit(130) from None
    return min(found, key=lambda each: float(each.measured.score.sse))


def _run(
    place: Place, starts: list[Any], federation: Any, *, seed: int | None, quiet: bool, **options: Any
) -> tuple[Any, int | None]:
    """Run, from the checkpoint if there is one; return the run, and the round it was interrupted at, if it was."""
    from fedfactor.core.errors import CheckpointError
    from fedfactor.engines.callbacks import watcher
    from fedfactor.engines.run import run

    if len(starts) > 1:
        return _best(starts, federation, seed=seed, quiet=quiet, **options), None
    method = starts[0]
    saved = place.saved()
    if saved:
        seed = saved[0] if seed is None else seed
        if not quiet:
            typer.echo(resumed(place.out, saved[1]), err=True)
    try:
        watch = watcher(int(not quiet))
        return run(method, federation, seed=seed, checkpoint=place.checkpoint, callbacks=watch, **options), None
    except CheckpointError as error:
        raise CheckpointError(f"{error} Or start anew in this one with --overwrite.") from None
    except KeyboardInterrupt:
        saved = place.saved()
    if saved and saved[1] and options.get("privacy") is None:  # of a private run the noise is that of all its rounds
        options["rounds"] = saved[1]
        so_far = run(method, federation, seed=saved[0], checkpoint=place.checkpoint, **options)
        return replace(so_far, status="stopped"), saved[1]
    kept = (
        f"Give the same command again, without --overwrite, to go on from round {saved[1]}"
        if saved
        else "Nothing is kept"
    )
    why = "" if saved else " (no checkpoint had been written yet)"
    typer.echo(f"Interrupted. {kept}{why}.", err=True)
    raise typer.Exit(130)
