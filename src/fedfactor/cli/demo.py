"""``fedfactor demo``: see it work, on data that come with scikit-learn."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.cli.console import Debug, console, duration, polite
from fedfactor.cli.run_summary import HEADS, cells
from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import DataError, MissingExtraError

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the page, the pictures and run.json.")]
Rank = Annotated[int, typer.Option("--rank", "-k", help="Number of components.")]
Rounds = Annotated[int, typer.Option(help="Rounds at most.")]
Seed = Annotated[int, typer.Option(help="Seed of the federated runs.")]


def demo(
    out: Out = Path("demo-out"), rank: Rank = 20, rounds: Rounds = 100, seed: Seed = 0, debug: Debug = False
) -> None:
    """Ten owners with one kind of handwritten digit each: compare ways to factor their rows.

    Example: fedfactor demo -o demo-out
    """
    from fedfactor.cli.demo_contest import contest, digits
    from fedfactor.cli.demo_page import write_page

    with polite(debug):
        _check(out)
        began = time.perf_counter()
        screen = console()
        owners = digits()
        rows = sum(map(len, owners.values()))
        screen.print(
            f"{rows:,} handwritten digits of 8 × 8 pixels at ten owners, one kind each; rank {rank}, seed {seed}."
        )
        entries = contest(owners, rank=rank, rounds=rounds, seed=seed, watch=_bar)
        screen.print(_table(entries))
        about = {"rank": rank, "rounds": rounds, "seed": seed, "owners": {name: len(X) for name, X in owners.items()}}
        out.mkdir(parents=True, exist_ok=True)
        write_page(out / "index.html", entries, owners, about)
        write_atomic(out / "run.json", _record(entries, about), 0o644)
        beside = ", ".join(["run.json", *_pictures(out, entries, screen)])
        screen.print(
            f"\n{duration(time.perf_counter() - began)} in all. Open {out / 'index.html'}; beside it: {beside}."
        )


def _check(out: Path) -> None:
    """Refuse a folder that holds something else."""
    record = out / "run.json"
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        ours = "demo" in json.loads(record.read_bytes())
    except (OSError, ValueError):
        ours = False
    if not ours:
        raise DataError(f"{out} is there already and was not written by this demo. Choose another folder with -o.")


def _bar(label: str) -> Any:
    """Show a bar on a terminal, nothing elsewhere."""
    from fedfactor.engines.callbacks import watcher

    return watcher(int(sys.stdout.isatty() and sys.stderr.isatty()), label)


def _table(entries: list[Any]) -> Any:
    from rich.table import Table

    table = Table(title="Relative error ‖X − UV‖ / ‖X‖", title_justify="left", title_style="bold")
    table.caption = "scikit-learn: best of five starts, the others one. In brackets: the owner that fares worst."
    table.caption_justify = "left"
    table.add_column(HEADS[0], no_wrap=True)
    for name in HEADS[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for entry in entries:
        table.add_row(*cells(entry), style="bold" if entry.label == "PooledNMF" else None)
    return table


def _record(entries: list[Any], about: dict[str, Any]) -> bytes:
    ways = [
        {
            "label": entry.label,
            "relative_error": entry.error,
            "worst_owner": {"name": entry.worst_name or None, "relative_error": entry.worst},
            "rounds": entry.rounds,
            "bytes_sent_by_one_owner": entry.sent_by_one,
            "bytes_in_all": entry.sent_in_all,
            "seconds": entry.seconds,
            "owners": dict(entry.errors),
            "run": None if entry.run is None else entry.run.summary(),
        }
        for entry in entries
    ]
    return (json.dumps({"demo": about, "ways": ways}, indent=2, allow_nan=False) + "\n").encode()


def _pictures(out: Path, entries: list[Any], screen: Any) -> list[str]:
    """Draw the two figures, or say what it takes."""
    from fedfactor.cli.demo_contest import AVERAGED, POOLED, SHAPE, SHARED, find
    from fedfactor.plots import panels, plot_components, plot_history

    try:
        axes = panels(3, width=4, height=3.6)
    except MissingExtraError as error:
        screen.print(f"components.png and errors.png were not drawn: {error}", markup=False)
        return []
    for ax, label in zip(axes, (SHARED, AVERAGED, POOLED), strict=True):
        plot_components(find(entries, label).V, SHAPE, n_columns=5, ax=ax).set_title(label)
    axes[0].figure.savefig(out / "components.png", dpi=150)
    runs = {entry.label: entry.run for entry in entries if entry.run is not None}
    ax = plot_history(runs, baseline=entries[0].error, ax=panels(width=7, height=4)[0])
    ax.set_title("Digits, one kind per owner")
    ax.figure.savefig(out / "errors.png", dpi=150)
    return ["components.png", "errors.png"]
