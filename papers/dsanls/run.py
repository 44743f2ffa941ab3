"""The studies of the DSANLS paper: error against time, ranks, components, sub-solvers, and secure methods."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedfactor.algorithms import DSANLS
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import MissingExtraError
from fedfactor.core.grid import grid_federation
from fedfactor.core.run import Run
from fedfactor.engines.run import run
from fedfactor.linalg.factors import reconstruction
from papers.catalogue import Size
from papers.dsanls import figures, secure, tables
from papers.dsanls import iterations as counted
from papers.dsanls.datasets import load, present
from papers.kept import kept
from papers.tables import write_table

__all__ = ["STUDIES", "reproduce"]

Say = Callable[[str], None]
MARKS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300)
SKETCHED = ("DSANLS subsampling proximal", "DSANLS count proximal", "DSANLS gaussian proximal")
PLAIN = ("rows hals", "rows mu", "rows bpp", "grid hals", "grid mu", "grid bpp")


def errors(full: bool) -> Iterator[dict[str, Any]]:
    """Yield every method on every set."""
    for data in present():
        for method in (*SKETCHED, *PLAIN):
            yield {"data": data, "method": method}


def scaling(full: bool, counts: tuple[int, ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield more and more ranks."""
    data = "fashion" if "fashion" in present() else "planted"
    for ranks in counts or ((1, 2, 4, 8, 16) if full else (1, 2, 4)):
        for method in (*SKETCHED, *PLAIN):
            yield {"data": data, "method": method, "ranks": ranks, "iterations": 20}


def components(full: bool) -> Iterator[dict[str, Any]]:
    """Yield more and more components."""
    data = "faces" if "faces" in present() else "planted"
    for k in (20, 50, 100, 200) if full else (5, 10, 20, 40):
        for method in (*SKETCHED, "rows hals", "rows mu", "rows bpp"):
            yield {"data": data, "method": method, "k": k}


def solvers(full: bool) -> Iterator[dict[str, Any]]:
    """Yield coordinate descent against gradient steps."""
    for data in [name for name in ("planted", "faces", "newsgroups") if name in present()]:
        for kind in ("subsampling", "gaussian"):
            for solver in ("proximal", "gradient"):
                yield {"data": data, "method": f"DSANLS {kind} {solver}"}


IN_PROCESS = {
    "iterations": counted.iterations,
    "complexity": counted.complexity,
    "protocol": counted.protocol,
    "stalls": secure.stalls,
}
STUDIES: dict[str, Callable[[bool], Iterator[dict[str, Any]]]] = {
    "errors": errors,
    "scaling": scaling,
    "components": components,
    "solvers": solvers,
}


def reproduce(
    out: Path,
    *,
    size: Size = "usual",
    only: tuple[str, ...] = (),
    ranks: tuple[int, ...] | None = None,
    say: Say = print,
) -> Path:
    """Run the studies and write tables and figures.

    Parameters
    ----------
    out : Path
        Folder; measurements already there are not made again.
    size : {"usual", "quick", "full"}
        A few thousand rows, rank 20 and 50 iterations; 20 iterations of a few of the methods (minutes);
        whole sets, rank 100 and 300 iterations (hours).
    only : tuple of str
        Studies to run: iterations, complexity, protocol, stalls, errors, scaling, components, solvers, secure,
        parties; all when empty.
    ranks : tuple of int, optional
        Numbers of MPI ranks of the study scaling; by default 1, 2 and 4.
    say : callable
        Told of each figure as it comes.

    Returns
    -------
    Path
        The folder.
    """
    known = {**IN_PROCESS, **STUDIES, "secure": None, "parties": None}
    unknown = sorted(set(only) - set(known))
    if unknown:
        raise ValueError(f"There is no study {unknown[0]!r}. Use one of {', '.join(known)}.")
    (out / "cells").mkdir(parents=True, exist_ok=True)
    full, keep = size == "full", _few if size == "quick" else lambda cell: True
    fewer = {"iterations": 20} if size == "quick" else {}
    for study, work in IN_PROCESS.items():
        if not only or study in only:
            rows = list(work(full))
            write_table(out / study, rows)
            if study == "iterations":
                counted.write_figure(out, rows)
    for study, plan in STUDIES.items():
        if study == "scaling" and ranks:
            plan = partial(scaling, counts=ranks)
        if not only or study in only:
            cells = [{**_usual(full, cell["data"]), **cell, **fewer} for cell in plan(full)]
            rows = [_cell(study, cell, out, say) for cell in cells if keep(cell)]
            tables.write(out, study, rows)
            figures.draw(out, study, rows)
    if not only or "secure" in only:
        rows = [
            _kept(out, "secure", cell, lambda c=cell: secure.measure(c), say)
            for cell in secure.cells(full)
            if keep(cell)
        ]
        tables.write(out, "secure", rows)
        figures.draw(out, "secure", rows)
    if not only or "parties" in only:
        cells = [cell for cell in secure.party_cells(full) if keep(cell)]
        rows = [_kept(out, "parties", cell, lambda c=cell: _parties(c), say) for cell in cells]
        tables.write_parties(out, rows)
        figures.draw_parties(out, rows)
    return out


def _few(cell: dict[str, Any]) -> bool:
    """Keep, for a quick run, the planted matrix without grids, two methods on real images, and two ranks at most."""
    if "parties" in cell:
        return cell["clock"] == "virtual" and cell["parties"] in (2, 8)
    shown = {
        "faces": (SKETCHED[0], "rows hals", *secure.PAPERS, "Asyn-SSD-V, small weight"),
        "fashion": (SKETCHED[0], "rows hals"),
    }
    small = (
        cell.get("ranks", 2) <= 2 and cell["k"] <= 20 and (cell["data"] != "fashion" or cell.get("iterations") == 20)
    )
    rows = cell["data"] == "planted" and not cell["method"].startswith("grid")
    return small and (rows or cell["method"] in shown.get(cell["data"], ()))


def _parties(cell: dict[str, Any]) -> dict[str, Any]:
    """Measure on the virtual clock, or on one rank for each party and one more for a server without rounds."""
    if cell["clock"] == "virtual":
        return secure.measure_parties(cell)
    return _on_ranks({**cell, "ranks": cell["parties"] + cell["method"].startswith("Asyn")})


def _usual(full: bool, data: str) -> dict[str, Any]:
    k = 8 if data == "planted" else 100 if full else 20
    return {"k": k, "ratio": 0.1, "ranks": 2, "iterations": 300 if full else 50, "seed": 0, "full": full}


def _cell(study: str, cell: dict[str, Any], out: Path, say: Say) -> dict[str, Any]:
    cell["marks"] = [mark for mark in MARKS if mark <= cell["iterations"]]
    return _kept(out, study, cell, lambda: _measure(cell), say)


def _kept(out: Path, study: str, cell: dict[str, Any], make: Callable[[], dict[str, Any]], say: Say) -> dict[str, Any]:
    """Return a measurement, from its file when it was made before with the same settings."""

    def made() -> dict[str, Any]:
        row = {"study": study, **cell, **make()}
        say(f"{study}, {cell['data']}, {cell['method']}: relative error {row['final']:.4f}")
        return row

    return kept(out / "cells", cell, made, prefix=f"{study}-")


def _measure(cell: dict[str, Any]) -> dict[str, Any]:
    """Time a method on real ranks; errors of sketched runs come from the same iterates, off the clock."""
    found = at_marks(_on_ranks(cell), cell["marks"])
    if found["errors"] is None:
        found["errors"] = _errors_at(cell, found["marks"])
    return found


def at_marks(found: dict[str, Any], marks: list[int]) -> dict[str, Any]:
    """Keep the seconds and errors of the marked iterations, where a job told those of all.

    Examples
    --------
    >>> at_marks({"seconds": [1, 2, 3], "errors": None}, [1, 3])
    {'seconds': [1, 3], 'errors': None, 'marks': [1, 3]}
    """
    kept = dict(found)
    marks = list(kept.setdefault("marks", list(marks)))
    for name in ("seconds", "errors"):
        if kept[name] is not None and len(kept[name]) > len(marks):
            kept[name] = [kept[name][mark - 1] for mark in marks]
    return kept


def _on_ranks(cell: dict[str, Any]) -> dict[str, Any]:
    beside = Path(sys.executable).parent / "mpiexec"
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is None:
        raise MissingExtraError.named("mpich", "mpi", "Timing on several ranks")
    command = [launcher, "-n", str(cell["ranks"]), sys.executable, "-m", "papers.dsanls.job"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([*command, json.dumps(cell)], capture_output=True, text=True, env=env)
    if done.returncode:
        raise RuntimeError(f"{cell['method']} on {cell['ranks']} ranks failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout[done.stdout.index("{") : done.stdout.rindex("}") + 1])  # launchers may add their own


def _errors_at(cell: dict[str, Any], marks: list[int]) -> list[float]:
    """Run the same iterations in this process, from mark to mark: streams depend on the seed, so the iterates agree."""
    _, kind, solver = cell["method"].split()
    method = DSANLS(cell["k"], kind, cell["ratio"], solver, leak="ignore", collect=False)
    federation = grid_federation(load(cell["data"], cell["full"]), cell["ranks"])
    with TemporaryDirectory() as folder:
        return [
            _whole_error(run(method, federation, rounds=2 * mark + 1, seed=cell["seed"], checkpoint=folder), federation)
            for mark in marks
        ]


def _whole_error(found: Run, federation: Federation) -> float:
    """Put V together from the nodes' columns, and measure over all cells."""
    V = np.concatenate([found.factors[name].V for name in federation.names], axis=1)
    each = [reconstruction(federation.shard(name).X, found.factors[name].U, V) for name in federation.names]
    return math.sqrt(sum(sse for sse, _, _ in each) / sum(total for _, _, total in each))
