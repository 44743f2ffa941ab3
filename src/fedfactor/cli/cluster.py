"""``fedfactor fit --engine mpi``: the same command on every rank; rank 0 speaks, each rank writes what is its own."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from fedfactor.cli.console import duration, size
from fedfactor.cli.parameter_parsing import open_parts
from fedfactor.cli.report import write_page
from fedfactor.cli.run_folder import Place
from fedfactor.cli.run_summary import resumed
from fedfactor.core.errors import FedfactorError, MissingExtraError
from fedfactor.core.run import STATUS, Run, whole_V
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.engines.callbacks import watcher
from fedfactor.engines.mpi.collectives import Collectives, launched
from fedfactor.engines.run import run as run_on
from fedfactor.io.result_folder import owners_of, private_parts, write_factors, write_private


def fit_on_ranks(
    method: Any,
    files: Sequence[Path],
    place: Place,
    asked: Mapping[str, Any],
    *,
    seed: int | None,
    reading: Any,
    steps: Sequence[str],
    parts: str | None,
    ranks: int | None,
    reduction: str,
    overwrite: bool,
    no_report: bool,
    quiet: bool,
) -> None:
    """Run this rank's part of the command, or start the ranks when no launcher has."""
    if ranks is not None and ranks > 1 and launched() == 1:
        _start(ranks, place)
    from fedfactor.engines.mpi.engine import MPIEngine, load_mpi

    MPI = load_mpi()
    world = Collectives(MPI, MPI.COMM_WORLD)
    world.check_size(ranks)
    quiet = quiet or world.rank != 0
    saved = _on_root(world, lambda: _ready(place, overwrite))
    if saved:
        seed = saved[0] if seed is None else seed
        if not quiet:
            typer.echo(resumed(place.out, saved[1]), err=True)
    engine = MPIEngine(size=world.size, reduction=reduction)  # type: ignore[arg-type]
    parts = parts or _blocks(world, method, files)
    layout = method.layout
    federation = _everywhere(world, lambda: open_parts(files, reading, steps, parts, layout))
    options: dict[str, Any] = {"rounds": asked["rounds"], "participation": asked["participation"]}
    watch = watcher(int(not quiet))
    options |= {"engine": engine, "seed": seed, "checkpoint": _kept(method, place), "callbacks": watch}
    # Mistakes in data or settings are raised on all ranks; what goes wrong later ends the job from within.
    run: Run = _everywhere(world, lambda: run_on(method, federation, split="rows", **options))
    _write(world, place, run, asked, federation)
    memory = world.hear_all(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    page = write_page(place.out, no_report) if world.rank == 0 else None
    if not quiet:
        typer.echo(_summary(run, place.out, memory) + ("" if page is None else f"\n{'to look at':15} {page}"))


def _blocks(world: Collectives, method: Any, files: Sequence[Path]) -> str | None:
    """Say into how many blocks one file is cut for the ranks that work on it; None: it is not one, or they are one."""
    workers = world.size - (getattr(method, "asynchronous", False) and world.size > 1)
    return str(workers) if workers > 1 and len(files) == 1 and files[0].is_file() else None


def _kept(method: Any, place: Place) -> Any:
    return None if getattr(method, "asynchronous", False) else place.checkpoint


def _ready(place: Place, overwrite: bool) -> tuple[int, int] | None:
    place.check(overwrite)
    if overwrite:
        place.clear()
    return place.saved()


def _on_root(world: Collectives, work: Callable[[], Any]) -> Any:
    """Do something on rank 0 alone; an error there is reported once and ends every rank."""
    found: Any = None
    mistake = ""
    if world.rank == 0:
        try:
            found = work()
        except (ValueError, OSError, RuntimeError) as error:
            mistake = str(error)
    found, mistake = world.tell_all([found, mistake])
    if mistake:
        if world.rank == 0:
            typer.echo(f"Error: {mistake}", err=True)
        raise typer.Exit(2)
    return found


def _everywhere(world: Collectives, work: Callable[[], Any]) -> Any:
    """Do something on every rank; when it fails on one, say so once and end all, for the others would wait for ever."""
    found: Any = None
    mistake = ""
    try:
        found = work()
    except (FedfactorError, ValueError, OSError, RuntimeError) as error:
        mistake = str(error)
    except Exception:
        mistake = traceback.format_exc()
    told = world.hear_all(mistake)
    if not any(told):
        return found
    if world.rank == 0:
        own = {text for text in told if text}
        for text in sorted(text for text in own if not any(each in text for each in own - {text})):
            which = [rank for rank, each in enumerate(told) if each == text]
            where = "" if len(which) == world.size else f" (rank {', '.join(map(str, which))})"
            typer.echo(f"Error: {text}{where}", err=True)
    raise typer.Exit(2)


def _write(world: Collectives, place: Place, run: Run, asked: Mapping[str, Any], federation: Any) -> None:
    """Write every owner's U on its own rank, then the shared results and the end of the checkpoint on rank 0."""
    private = private_parts(run)
    ids = {name: federation.shard(name).row_ids for name in private}
    _everywhere(world, lambda: write_private(place.out, private, ids))
    preprocess = federation.preprocess
    V = _components(world, run)

    rows = world.hear_all({name: len(kept.U) * kept.first_of(1) for name, kept in run.factors.items() if name})
    counts = {name: count for part in rows for name, count in part.items()}

    def shared() -> None:
        owners = owners_of(run)
        for name, count in counts.items():
            owners.setdefault(name, {})["rows"] = count
        record = {**run.summary(), "asked": dict(asked), "owners": owners, "preprocess": preprocess}
        write_factors(place.out, V, features=run.feature_names, run=record)
        place.clear()

    _on_root(world, shared)


def _components(world: Collectives, run: Run) -> Any:
    """Return V on rank 0; put it together from the ranks' columns where no rank has all of it."""
    kept = next(iter(run.factors.values()))
    if kept.columns is None:
        return kept.V
    mine = {n: {"V": each.V, "columns": each.columns} for n, each in run.factors.items() if each.first_of(0)}
    blocks = [block for data in world.to_root(to_bytes(mine)) for block in from_bytes(data).values()]
    return whole_V([(block["V"], block["columns"]) for block in blocks]) if blocks else None


def _summary(run: Run, out: Path, memory: Sequence[int]) -> str:
    worst, error = run.measured.worst_client
    sent = run.environment["rank_sent_bytes"]
    lines = {
        "algorithm": f"{type(run.algorithm).__name__}, rank {run.V.shape[0]}, seed {run.seed}",
        "ranks": f"{len(memory)}, {len(run.measured.scores)} owners",
        "relative error": f"{run.measured.relative_error:.5f} (worst owner {worst}: {error:.5f})",
        "rounds": f"{run.rounds}, {STATUS[run.status]}",
        "rank 0 sent": f"{size(sent)} in {duration(sum(run.measured.seconds))}",
        "memory, most": ", ".join(f"rank {rank} {size(peak)}" for rank, peak in enumerate(memory)),
        "results": f"{out}",
    }
    return "\n".join(f"{name:15} {value}" for name, value in lines.items())


def _start(ranks: int, place: Place) -> None:
    """Start the same command under the launcher of this Python environment, and end with it."""
    beside = Path(sys.executable).parent / "mpiexec"
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is None:
        raise MissingExtraError.named("mpich", "mpi", "Starting several ranks")
    command = [launcher, "-n", str(ranks), sys.executable, "-m", "fedfactor", *sys.argv[1:]]
    code = subprocess.run(command, check=False).returncode
    if code not in (0, 2):
        saved = place.saved()
        again = f" The same command goes on from round {saved[1]}." if saved else ""
        typer.echo(f"Error: a rank ended, so the whole job was ended (code {code}).{again}", err=True)
    raise typer.Exit(code)
