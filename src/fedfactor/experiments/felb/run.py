"""The studies of the FELB paper: noise, scarcity, abundance, component counts, real data; then tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from fedfactor.algorithms import FALB, FELB, BooleanVotes, PooledBMF
from fedfactor.core.protocol import Algorithm
from fedfactor.experiments.catalogue import Size
from fedfactor.experiments.felb import tables
from fedfactor.experiments.felb.cells import Bench, Cell, Store
from fedfactor.experiments.felb.datasets import DATASETS, load_owners, present
from fedfactor.experiments.felb.tiles import even_tiles

__all__ = ["STUDIES", "reproduce"]

Say = Callable[[str], None]
Plan = Iterator[tuple[str, partial[Any], dict[str, Algorithm]]]
"""Name of the data, how to make them, methods by name."""
SOLVERS = ("asso", "grecond", "mebf", "elbmf", "zhang", "primp")
VOTES = ("majority", "average", "or")
# As the paper sets them for the rivals; PRIMP is ours to choose.
OPTIONS = {"elbmf": (("rate", 1.005), ("max_iter", 1000))}
LIMIT = 5.0
"""Seconds for each client's solver in small runs on real data."""


def proximal(k: int) -> dict[str, Algorithm]:
    """Return the methods that iterate."""
    return {
        "FELB": FELB(k),
        "FELB to the letter": FELB.paper(k),
        "FALB": FALB(k),
        "PooledBMF": PooledBMF(k),
        "PooledBMF, proximal": PooledBMF(k, solver="proximal"),
    }


def votes(k: int, limit: float, rules: tuple[str, ...] = VOTES) -> dict[str, Algorithm]:
    """Return every solver under every vote: as published (positions, U kept), with U refit, and aligned, too."""
    found: dict[str, Algorithm] = {}
    for solver in SOLVERS:
        for rule in rules:
            base = {"vote": rule, "time_limit": limit, "options": OPTIONS.get(solver, ())}
            found[f"{solver} {rule}"] = BooleanVotes.paper(k, solver, **base)
            found[f"{solver} {rule} refit"] = BooleanVotes(k, solver, align="none", **base)
            found[f"{solver} {rule} aligned"] = BooleanVotes(k, solver, **base)
    return found


def noise(full: bool) -> Plan:
    """Yield tiles under more and more destructive noise (Figs. 2, 7, 8)."""
    sizes = (2**16, 500, 10, 64) if full else (1000, 200, 5, 10)
    levels = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5] if full else [0.0, 0.05, 0.15, 0.3, 0.5]
    for flips in levels:
        methods = {**proximal(sizes[2]), **votes(sizes[2], 60 if full else 5, VOTES if full else ("majority",))}
        yield f"{flips:.2f}", partial(even_tiles, *sizes, flips=flips), methods


def scarcity(full: bool) -> Plan:
    """Yield the same rows dealt to more and more clients (Figs. 3, 9, 10)."""
    n, m, k = (2**16, 500, 10) if full else (2048, 100, 5)
    for clients in [2**p for p in range(2, 10)] if full else [4, 16, 64, 256]:
        methods = {**proximal(k), **votes(k, 60 if full else 5, VOTES if full else ("majority",))}
        yield f"{clients:03d}", partial(even_tiles, n, m, k, clients, flips=0.05), methods


def abundance(full: bool) -> Plan:
    """Yield clients that each bring as many rows (Figs. 4, 11, 12)."""
    rows, m, k = (500, 500, 10) if full else (50, 100, 5)
    for clients in [2**p for p in range(2, 10)] if full else [4, 16, 64]:
        methods = {**proximal(k), **votes(k, 60 if full else 5, VOTES if full else ("majority",))}
        yield f"{clients:03d}", partial(even_tiles, rows * clients, m, k, clients, flips=0.05), methods


def real(full: bool) -> Plan:
    """Yield the real sets with 20 clients (Figs. 6, 15, 16)."""
    for name in _here():
        k = DATASETS[name][2]
        methods = {**proximal(k), "FELB, common start": FELB(k, init="shared"), **votes(k, 120 if full else LIMIT)}
        yield name, partial(load_owners, name, full=full), methods


def components(full: bool) -> Plan:
    """Yield two real sets with many components (Fig. 17); small runs have five clients, each with 120 rows or more."""
    sizes = {"full": full, "n_clients": 20 if full else 5, "rows": 1000, "columns": 1000}
    for printed in (False, True):
        for k in (100, 200, 500):
            methods = {"FELB to the letter": FELB.paper(k), "FALB to the letter": FALB.paper(k)}
            if not printed:
                methods = {"FELB": FELB(k), "FALB": FALB(k), "PooledBMF": PooledBMF(k)}
            for name in ("movielens", "newsgroups"):
                if name in _here():
                    yield f"{name} k={k}", partial(load_owners, name, **sizes), methods


def _here() -> list[str]:
    return [name for name, there in present().items() if there]


STUDIES = {"noise": noise, "scarcity": scarcity, "abundance": abundance, "real": real, "components": components}


def reproduce(out: Path, *, size: Size = "usual", only: tuple[str, ...] = (), say: Say = print) -> Path:
    """Run the studies and write tables and figures.

    Parameters
    ----------
    out : Path
        Folder; figures already there are not made again.
    size : {"usual", "quick", "full"}
        Small tables; a few of them, under the majority vote only (minutes); the sizes of the paper (hours).
    only : tuple of str
        Studies to run: noise, scarcity, abundance, real, components; all when empty.
    say : callable
        Told of each figure as it comes.

    Returns
    -------
    Path
        The folder.
    """
    unknown = sorted(set(only) - set(STUDIES))
    if unknown:
        raise ValueError(f"There is no study {unknown[0]!r}. Use one of {', '.join(STUDIES)}.")
    store, full = Store(out / "cells"), size == "full"
    for study, plan in STUDIES.items():
        if only and study not in only:
            continue
        cells = plan(full) if size != "quick" else _few(study, plan(full))
        rows = [row for data in cells for row in _one(study, data, store, full, say)]
        if not rows:
            say(f"{study}: none of its data are here. Set FEDFACTOR_DATA to the folder that holds them.")
            continue
        tables.write(out, study, rows, [name for name in DATASETS if name not in _here()] if study == "real" else [])
        from fedfactor.experiments.felb import figures

        figures.draw(out, study, rows)
    return out


QUICK = {
    "noise": ("0.00", "0.05", "0.30"), "scarcity": ("004", "064"), "abundance": ("004", "016"),
    "real": ("chess", "roles"), "components": ("movielens k=100",),
}  # fmt: skip
"""The data of each study that a quick run keeps."""


def _few(study: str, plan: Plan) -> Plan:
    """Keep some of the data, and of the votes the majority's."""
    for name, load, methods in plan:
        if name in QUICK[study]:
            votes = ("average", "or")
            yield name, load, {m: made for m, made in methods.items() if not any(v in m.split() for v in votes)}


def _one(study: str, data: tuple, store: Store, full: bool, say: Say) -> list[dict[str, Any]]:
    name, load, methods = data
    opened: list[tuple[Bench, float | None]] = []  # filled when the first figure is not there yet
    rows = []

    def make(algorithm: Algorithm) -> dict[str, Any]:
        if not opened:
            found = load()
            opened.append((Bench(found.owners), found.floor) if hasattr(found, "owners") else (Bench(found), None))
        bench, floor = opened[0]
        return {**bench.measure(algorithm), **bench.size, "floor": floor}

    for method, algorithm in methods.items():
        made = {"from": [load.args, load.keywords], "full": full}
        settings = {**made, "settings": asdict(algorithm)}  # type: ignore[call-overload]
        row = store.get(Cell(study, name, method, 0), settings, lambda a=algorithm: make(a))
        late = f", {row['late']} clients out of time" if row["late"] else ""
        say(f"{study} {name} {method}: loss {row['loss']:.3f}, {row['seconds_per_client']:.2f} s per client{late}")
        rows.append({**row, "components": algorithm.n_components})  # type: ignore[attr-defined]
    return rows
