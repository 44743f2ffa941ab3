"""The studies of the FELB paper: noise, scarcity, abundance, component counts, real data; then tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from fedfactor.algorithms import FALB, FELB, BooleanVotes, PooledBMF
from fedfactor.boolean.proximal_maps import Pull
from fedfactor.core.algorithm import Algorithm
from fedfactor.datasets.boolean_tiles import even_tiles, uneven_tiles
from papers.catalogue import Size
from papers.felb import tables
from papers.felb.cells import Bench, Cell, Store
from papers.felb.datasets import DATASETS, load_owners, present
from papers.tables import check_studies, write_table

__all__ = ["STUDIES", "reproduce"]

Say = Callable[[str], None]
Plan = Iterator[tuple[str, partial[Any], dict[str, Algorithm]]]
"""Name of the data, how to make them, methods by name."""
SOLVERS = ("asso", "grecond", "mebf", "elbmf", "zhang", "primp")
ALL: dict[str, tuple[str, ...]] = dict.fromkeys(("majority", "average", "or"), ("", " refit", " aligned"))
RULES: dict[str, tuple[str, ...]] = {"majority": ("", " refit", " aligned"), "average": ("",), "or": ("",)}
"""Votes of small runs: as published each, and the majority with U refit and with components aligned, too."""
# As the paper sets them for the rivals (λ = κ = β = 0.01); PRIMP is ours to choose.
OPTIONS = {"elbmf": (("pull", Pull()), ("rate", 1.005), ("max_iter", 1000))}
QUICKEST = ("asso", "grecond", "mebf")
"""Solvers that do not iterate: with hundreds of components the others need hours."""
DENSE = 0.9
"""Share of ones in the paper's tiles."""
LIMIT = 30.0
"""Seconds for each client's solver in small runs on real data."""


def proximal(k: int) -> dict[str, Algorithm]:
    """Return the methods that iterate."""
    return {
        "FELB": FELB(k),
        "FELB to the letter": FELB.paper(k),
        "FELB to the letter, falling steps": FELB.paper(k, step="falling"),
        "FALB": FALB(k),
        "PooledBMF": PooledBMF(k),
        "PooledBMF, proximal": PooledBMF(k, solver="proximal"),
    }


def votes(k: int, limit: float, rules: Mapping[str, tuple[str, ...]] = ALL) -> dict[str, Algorithm]:
    """Return every solver under every vote: as published (positions, U kept), with U refit, and aligned, too."""
    found: dict[str, Algorithm] = {}
    for solver in SOLVERS:
        for rule, forms in rules.items():
            base = {"vote": rule, "time_limit": limit, "options": OPTIONS.get(solver, ())}
            made = {
                "": BooleanVotes.paper(k, solver, **base),
                " refit": BooleanVotes(k, solver, align="none", **base),
                " aligned": BooleanVotes(k, solver, **base),
            }
            found |= {f"{solver} {rule}{form}": made[form] for form in forms}
    return found


def planted(k: int, full: bool) -> dict[str, Algorithm]:
    """Return the methods that are run on planted tiles."""
    return {**proximal(k), **votes(k, 60 if full else 5, ALL if full else RULES)}


def toy(full: bool) -> Plan:
    """Yield four clients with three tiles under noise (Fig. 1)."""
    yield "toy", partial(even_tiles, 160, 60, 3, 4, flips=0.02, dense=DENSE), planted(3, full)


def noise(full: bool) -> Plan:
    """Yield tiles under more and more destructive noise, ten clients (Figs. 2, 7, 8)."""
    sizes = (2**16, 500, 10, 10) if full else (1000, 200, 5, 10)
    levels = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5] if full else [0.0, 0.05, 0.15, 0.3, 0.5]
    for flips in levels:
        yield f"{flips:.2f}", partial(even_tiles, *sizes, flips=flips, dense=DENSE), planted(sizes[2], full)


def scarcity(full: bool) -> Plan:
    """Yield the same rows dealt to more and more clients (Figs. 3, 9, 10)."""
    n, m, k = (2**16, 500, 10) if full else (2048, 100, 5)
    for clients in [2**p for p in range(2, 10)] if full else [4, 16, 64]:
        yield f"{clients:03d}", partial(even_tiles, n, m, k, clients, flips=0.05, dense=DENSE), planted(k, full)


def abundance(full: bool) -> Plan:
    """Yield clients that each bring as many rows (Figs. 4, 11, 12)."""
    rows, m, k = (500, 500, 10) if full else (50, 100, 5)
    for clients in [2**p for p in range(2, 10)] if full else [4, 16, 64]:
        tiles = partial(even_tiles, rows * clients, m, k, clients, flips=0.05, dense=DENSE)
        yield f"{clients:03d}", tiles, planted(k, full)


def size(full: bool) -> Plan:
    """Yield the paper's largest size, 2^16 × 500 cells at 512 clients, with the methods that are quick enough."""
    fast = {f"{solver} majority": BooleanVotes.paper(10, solver, time_limit=5) for solver in ("grecond", "mebf")}
    methods: dict[str, Algorithm] = {"FELB": FELB(10), **fast}
    yield "512", partial(even_tiles, 2**16, 500, 10, 512, flips=0.05, dense=DENSE), methods


def real(full: bool) -> Plan:
    """Yield the real sets with 20 clients (Figs. 6, 15, 16)."""
    for name in _here():
        k = DATASETS[name][2]
        apart: dict[str, Algorithm] = {"FELB, own starts": FELB(k, init="independent")}
        yield name, partial(load_owners, name, full=full), {**proximal(k), **apart, **votes(k, 120 if full else LIMIT)}


def drawn(full: bool) -> Plan:
    """Yield the real sets with columns drawn at random, as sparse as the paper's (Figs. 6, 15, 16)."""
    published = {rule: ("",) for rule in RULES}
    for name in _here():
        k = DATASETS[name][2]
        methods: dict[str, Algorithm] = {"FELB": FELB(k), "FELB to the letter": FELB.paper(k), "FALB": FALB(k)}
        yield name, partial(load_owners, name, pick="random"), {**methods, **votes(k, LIMIT, published)}


def components(full: bool) -> Plan:
    """Yield two real sets with many components (Fig. 17); small runs have five clients, each with 120 rows or more."""
    sizes = {"full": full, "n_clients": 20 if full else 5, "rows": 1000, "columns": 1000}
    for printed in (False, True):
        for k in (100, 200, 500):
            methods = {"FELB to the letter": FELB.paper(k), "FALB to the letter": FALB.paper(k)}
            if not printed:
                elected = {f"{each} majority": BooleanVotes.paper(k, each, time_limit=4 * LIMIT) for each in QUICKEST}
                methods = {"FELB": FELB(k), "FALB": FALB(k), **elected, "PooledBMF": PooledBMF(k)}
            for name in ("movielens", "newsgroups"):
                if name in _here():
                    yield f"{name} k={k}", partial(load_owners, name, **sizes), methods


def recovery(full: bool) -> Plan:
    """Yield tiles that all clients hold, and tiles of which each client holds two of five: are all of them found?"""
    methods: dict[str, Algorithm] = {"FELB": FELB(5), "FELB to the letter": FELB.paper(5)}
    for kind, make in (("even", even_tiles), ("two of five", uneven_tiles)):
        for flips in (0.0, 0.05):
            yield f"{kind} {flips:.2f}", partial(make, 1000, 200, 5, 10, flips=flips), methods


def _recovered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count the seeds whose loss is within 0.02 of that of the planted tiles."""
    found: dict[tuple[str, str], list[bool]] = {}
    for row in rows:
        found.setdefault((row["data"], row["method"]), []).append(row["loss"] < row["floor"] + 0.02)
    return [
        {"data": data, "method": method, "recovered": sum(hits), "seeds": len(hits)}
        for (data, method), hits in found.items()
    ]


def _here() -> list[str]:
    return [name for name, there in present().items() if there]


STUDIES = {
    "toy": toy, "noise": noise, "scarcity": scarcity, "abundance": abundance, "real": real, "drawn": drawn,
    "components": components, "size": size, "recovery": recovery,
}  # fmt: skip
ASKED = ("size",)
"""Studies that run only when asked for by name, or at full size."""


def reproduce(out: Path, *, size: Size = "usual", only: tuple[str, ...] = (), seeds: int = 1, say: Say = print) -> Path:
    """Run the studies and write tables and figures.

    Parameters
    ----------
    out : Path
        Folder; figures already there are not made again.
    size : {"usual", "quick", "full"}
        Small tables; a few of them, under the majority vote only (minutes); the sizes of the paper (hours).
    only : tuple of str
        Studies to run: toy, noise, scarcity, abundance, real, drawn, components, size; all but the last when empty.
    seeds : int
        Data and starts drawn so many times, at least five for recovery; tables show means.
    say : callable
        Told of each figure as it comes.

    Returns
    -------
    Path
        The folder.
    """
    check_studies(only, STUDIES)
    store, full = Store(out / "cells"), size == "full"
    for study, plan in STUDIES.items():
        if study not in only if only else study in ASKED and not full:
            continue
        cells = plan(full) if size != "quick" else _few(study, plan(full))
        drawn = max(seeds, 5) if study == "recovery" else seeds
        rows = [row for data in cells for seed in range(drawn) for row in _one(study, data, store, full, seed, say)]
        if not rows:
            say(f"{study}: none of its data are here. Set FEDFACTOR_DATA to the folder that holds them.")
            continue
        if study == "recovery":
            write_table(out / study, _recovered(rows))
            continue
        tables.write(out, study, rows, [name for name in DATASETS if name not in _here()] if study == "real" else [])
        from papers.felb import figures

        figures.draw(out, study, rows)
        if study == "real":
            figures.summary(out, rows)
        if study == "toy":
            shown = {"FELB as printed": FELB.paper(3), "ASSO, OR": BooleanVotes.paper(3, "asso", vote="or")}
            figures.tiles(out, next(toy(full))[1](seed=0).owners, shown, 0)
    return out


QUICK = {
    "toy": ("toy",), "noise": ("0.05", "0.30", "0.50"), "scarcity": ("004", "016", "064"),
    "abundance": ("004", "016", "064"), "real": ("hapmap", "roles"), "drawn": ("mushroom",),
    "components": ("movielens k=100", "movielens k=200"), "size": (), "recovery": ("even 0.05", "two of five 0.05"),
}  # fmt: skip
"""The data of each study that a quick run keeps."""


def _few(study: str, plan: Plan) -> Plan:
    """Keep some of the data, and of the votes those of the solvers that do not iterate: no time limit ends these."""
    slow = {"average", "elbmf", "zhang", "primp", "proximal", "own"}
    for name, load, methods in plan:
        if name in QUICK[study]:
            yield name, load, {method: made for method, made in methods.items() if not slow & set(method.split())}


def _one(study: str, data: tuple, store: Store, full: bool, seed: int, say: Say) -> list[dict[str, Any]]:
    name, load, methods = data
    opened: list[tuple[Bench, float | None]] = []  # filled when the first figure is not there yet
    rows = []

    def make(algorithm: Algorithm) -> dict[str, Any]:
        if not opened:
            found = load(seed=seed)
            opened.append((Bench(found.owners), found.floor) if hasattr(found, "owners") else (Bench(found), None))
        bench, floor = opened[0]
        return {**bench.measure(algorithm, seed=seed), **bench.size, "floor": floor}

    for method, algorithm in methods.items():
        made = {"from": [load.args, load.keywords], "full": full}
        settings = {**made, "settings": asdict(algorithm)}  # type: ignore[call-overload]
        row = store.get(Cell(study, name, method, seed), settings, lambda a=algorithm: make(a))
        late = f", {row['late']} clients out of time" if row["late"] else ""
        say(f"{study} {name} {method}: loss {row['loss']:.3f}, {row['seconds_per_client']:.2f} s per client{late}")
        rows.append({**row, "components": algorithm.n_components})  # type: ignore[attr-defined]
    return rows
