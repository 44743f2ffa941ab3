"""``python -m papers``: run the papers' experiments again, all of them, one paper's, or one figure's."""

from __future__ import annotations

import inspect
import os
import sys
import time
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.cli.console import Debug, console, duration, polite
from fedfactor.cli.progress import bar
from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import DataError, MissingExtraError
from papers import stored
from papers.catalogue import PAPERS, find_study, missing_data

Name = Annotated[str, typer.Argument(help="Name of the paper; all of them without one.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for tables, figures and cells. [NAME-out, reproduce-out]")
]
Quick = Annotated[bool, typer.Option("--quick", help="Few settings and one seed: minutes. Without a name, all papers.")]
Full = Annotated[bool, typer.Option("--full", help="Counts and sizes like the papers': hours.")]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Only this study, figure (fig7) or table (table3); may be repeated.")
]
Device = Annotated[str | None, typer.Option(help="Where to compute (cuda), where the experiments offer it.")]
Keep = Annotated[bool, typer.Option("--store", help="Store tables with command, commit and time: pages show them.")]
Ranks = Annotated[str | None, typer.Option(help="Numbers of MPI ranks, such as 1,2,4 (study dsanls scaling).")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Seeds for each setting, where the experiments offer it.")]


app = typer.Typer(help="Run the experiments of the five papers again.", no_args_is_help=True)


@app.command("list")
def list_studies() -> None:
    """Show the papers, their studies, and the data sets that are missing."""
    _list(console())


@app.command("run")
def reproduce(
    name: Name = "",
    out: Out = None,
    quick: Quick = False,
    full: Full = False,
    only: Only = None,
    seeds: Seeds = None,
    device: Device = None,
    ranks: Ranks = None,
    store: Keep = False,
    debug: Debug = False,
) -> None:
    """Run the papers' experiments: tables and figures in a folder. A run broken off goes on where it stopped.

    Example: python -m papers run felb --quick -o felb
    """
    screen = console()
    with polite(debug):
        if quick and full:
            raise ValueError("--quick and --full are two sizes. Give one of them.")
        if name not in (*PAPERS, "all", ""):
            raise ValueError(f"No experiments are called {name!r}. Known are {', '.join(PAPERS)}; all runs every one.")
        every = name in ("all", "")
        if every and (only or seeds is not None or device is not None or ranks is not None):
            raise ValueError(
                "--only, --seeds, --ranks and --device go with the name of one paper's experiments. Give a name."
            )
        plan = _plan(name, only or [])
        counts = None if ranks is None else tuple(int(count) for count in ranks.split(","))
        chosen = {"seeds": seeds, "device": device, "ranks": counts}
        options = {"size": "quick" if quick else "full" if full else "usual"}
        options |= {word: value for word, value in chosen.items() if value is not None}
        for paper in dict.fromkeys(paper for paper, _ in plan):
            _check(paper, options)
            for known in missing_data(paper):
                screen.print(f"{paper}: the set {known} is not here and is left out.")
        top = Path("reproduce-out" if every else f"{name}-out") if out is None else out
        folders = {paper: top / paper if every else top for paper, _ in plan}
        for folder in folders.values() if store else ():
            folder.mkdir(parents=True, exist_ok=True)
            _one_commit(folder, stored.commit())
        lines, left_out = _work(plan, folders, options, every, screen, store)
        _summary(top, folders, lines, left_out)
        screen.print(f"Written to {top}: {len(lines)} studies; summary.md lists their tables and figures.")
        for line in left_out:
            screen.print(f"Left out: {line}", markup=False)


@app.command("compare")
def compare(folder: Annotated[Path, typer.Argument(help="Output folder of: python -m papers run --quick")]) -> None:
    """Compare the tables of a quick run of all papers with the stored ones, and the pages that either gives.

    Exit with 1 when a figure differs by more than its tolerance, or a page in any character.

    Example: python -m papers compare reproduce-out
    """
    screen, differ, known = console(), 0, stored.read()
    quick = [name for name in known if name.endswith("-quick")]
    for name in quick:
        tables = stored.read_tables(folder / name.split("/")[0])
        found = list(stored.compare(known[name], tables))
        differ += bool(found)
        for line in found[:3]:
            screen.print(f"{name}: {line}", markup=False)
        known[name] = {**known[name], "tables": {one: tables.get(one, []) for one in known[name]["tables"]}}
    screen.print(f"{len(quick) - differ} stored studies agree, {differ} differ.")
    changed = [] if differ else _changed_pages(known)
    screen.print(f"Pages that change: {', '.join(changed) or 'none'}.")
    if differ or changed or not quick:
        sys.exit(1)


def _changed_pages(known: dict[str, Any]) -> list[str]:
    """Return the pages of claims that these results would change."""
    folder = stored.ROOT.parent / "docs"
    spec: Any = spec_from_file_location("claims", folder / "_ext" / "claims.py")
    claims: Any = module_from_spec(spec)
    spec.loader.exec_module(claims)
    written = claims.pages(claims.read(), known)
    return [name for name, text in written.items() if (folder / "papers" / name).read_text() != text]


def _list(screen: Any) -> None:
    """Name the experiments, their studies with figures, and the sets that are missing."""
    for name, paper in PAPERS.items():
        screen.print(f"[bold]{name}[/bold]: {paper.title}")
        for study, labels in paper.studies.items():
            screen.print(f"  {study}" + (f" ({', '.join(labels)})" if labels else ""), markup=False)
        absent = missing_data(name)
        screen.print("  data: all here" if not absent else f"  not here: {', '.join(absent)}")
    screen.print("Run all: python -m papers run --quick. One: python -m papers run NAME. One figure: --only fig5.")


def _plan(name: str, only: list[str]) -> list[tuple[str, str]]:
    """List what is to be run, in order, as (experiments, study)."""
    if not only:
        papers = PAPERS if name in ("all", "") else {name: PAPERS[name]}
        return [(p, s) for p, paper in papers.items() for s in paper.studies if s not in paper.named_only]
    return list(dict.fromkeys(pair for asked in only for pair in find_study(name, asked)))


def _check(paper: str, options: dict[str, Any]) -> None:
    offered = inspect.signature(import_module(f"papers.{paper}.run").reproduce).parameters
    if "seeds" in options and "seeds" not in offered:
        raise ValueError(f"The experiments {paper!r} choose their seeds themselves. Leave --seeds out.")
    if "ranks" in options and "ranks" not in offered:
        raise ValueError(f"The experiments {paper!r} have no choice of ranks. Leave --ranks out.")
    if "device" in options and "device" not in offered:
        raise ValueError(f"The experiments {paper!r} have no choice of device. Leave --device out.")


def _work(
    plan: list[tuple[str, str]],
    folders: dict[str, Path],
    options: dict[str, Any],
    every: bool,
    screen: Any,
    store: bool = False,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run study after study under a bar; where all are asked for, one that cannot run here is named, not the end."""
    lines, left_out = [], []
    with bar("studies") as told:
        for done, (paper, study) in enumerate(plan):
            told(done, len(plan), f"{paper} {study}")
            began, used, moment, commit = time.perf_counter(), _cpu_seconds(), time.time(), stored.commit()
            try:
                _run_study(paper, study, folders[paper], options, screen)
            except (MissingExtraError, DataError) as error:
                if not every:
                    raise
                left_out.append(f"{paper} {study}: {error}")
                continue
            seconds = time.perf_counter() - began
            if store and (tables := stored.read_tables(folders[paper], moment)):
                made = {"command": _command(paper, study, options), "commit": commit}
                made |= {"seconds": round(seconds, 1), "cpu_seconds": round(_cpu_seconds() - used, 1)}
                where = stored.write(paper, study, options, made, tables)
                screen.print(f"Stored in {where}", markup=False)
            lines.append({"paper": paper, "study": study, "seconds": seconds})
            told(done + 1, len(plan), f"{paper} {study}, {duration(seconds)}")
    return lines, left_out


def _cpu_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _one_commit(folder: Path, here: str) -> None:
    """Write down which commit begins an output folder; raise an error when another commit began it.

    Figures that are there are not made again, so that a folder of two commits would store those of the first as those
    of the second.
    """
    mark = folder / "commit"
    if (mark.exists() and mark.read_text() != here) or (not mark.exists() and (folder / "cells").exists()):
        raise ValueError(f"{folder} holds figures of another commit. Give --out a new folder to store results.")
    write_atomic(mark, here.encode(), 0o644)


def _command(paper: str, study: str, options: dict[str, Any]) -> str:
    """Return the command that runs one study with these options."""
    words = ["python -m papers run", paper, "--only", study]
    words += [] if options["size"] == "usual" else [f"--{options['size']}"]
    for name in ("seeds", "device", "ranks"):
        value = options.get(name)
        if value is not None:
            words += [f"--{name}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    return " ".join(words)


def _run_study(paper: str, study: str, folder: Path, options: dict[str, Any], screen: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    work = import_module(f"papers.{paper}.run").reproduce
    work(folder, only=(study,), say=lambda line: screen.print(line, markup=False), **options)


def _summary(top: Path, folders: dict[str, Path], lines: list[dict[str, Any]], left_out: list[str]) -> None:
    """Write ``summary.md``: every study that ran, what it answers, how long it took, and where its files are."""
    text = ["| experiments | study | answers | seconds |", "|---|---|---|---|"]
    for line in lines:
        answers = ", ".join(PAPERS[line["paper"]].studies[line["study"]])
        text.append(f"| {line['paper']} | {line['study']} | {answers} | {line['seconds']:.0f} |")
    text.append("")
    for paper, folder in folders.items():
        found = sorted({path.name for ending in ("md", "png") for path in folder.glob(f"*.{ending}")} - {"summary.md"})
        links = [f"[{one}]({(folder / one).relative_to(top).as_posix()})" for one in found]
        text.append(f"{paper}: {', '.join(links) or 'nothing was written'}\n")
    text += [f"Left out: {line}\n" for line in left_out]
    write_atomic(top / "summary.md", "\n".join(text).encode(), 0o644)


if __name__ == "__main__":
    app()
