"""Secure methods under a virtual clock and on real ranks, with parties of equal and of unequal size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedfactor.algorithms import AsynSD, AsynSSD, SynSD, SynSSD
from fedfactor.core.algorithm import Algorithm
from fedfactor.engines.local.virtual_clock import VirtualEngine
from fedfactor.engines.run import run
from papers.dsanls.datasets import load, present

__all__ = [
    "PAPERS",
    "cells",
    "measure",
    "measure_parties",
    "methods",
    "opened",
    "parties",
    "party_cells",
    "rounds_of",
    "stalls",
]

PAPERS = ("Syn-SD", "Syn-SSD-U", "Syn-SSD-V", "Syn-SSD-UV", "Asyn-SD", "Asyn-SSD-V")
"""The six methods of the paper."""
FLOOR = 0.0286
"""Relative error of the planted matrix's own factors, up to rounding."""


def shares(split: str, parties: int) -> tuple[int, ...]:
    """Return the proportions of the parties: all alike, or the first with ten times as much as each other.

    Examples
    --------
    >>> shares("imbalanced", 4)
    (10, 1, 1, 1)
    """
    return (1 if split == "uniform" else 10, *(1,) * (parties - 1))


def methods(k: int) -> dict[str, Algorithm]:
    """Return the methods as we set them, and as published where that differs."""
    return {
        "Syn-SD": SynSD(k),
        "Syn-SD unaligned": SynSD(k, align=False),
        "Syn-SSD-U": SynSSD(k, "u", ratio=0.3),
        "Syn-SSD-V": SynSSD(k, "v", ratio=0.3),
        "Syn-SSD-UV": SynSSD(k, "uv", ratio=0.3),
        "Asyn-SD": AsynSD(k),
        "Asyn-SD unaligned": AsynSD(k, align=False),
        "Asyn-SD ω = 1/(1+t)": AsynSD(k, server="harmonic"),
        "Asyn-SSD-V": AsynSSD(k, ratio=0.3),
        "Asyn-SSD-V, small weight": AsynSSD(k, ratio=0.3, schedule_start=0.01, growth=0.0),
    }


def parties(X: Any, shares: tuple[int, ...]) -> dict[str, Any]:
    """Deal the columns of M, here the rows of its transpose, in these proportions."""
    cuts = (np.cumsum(shares)[:-1] * X.shape[0] / sum(shares)).astype(int)
    bounds = [0, *cuts.tolist(), X.shape[0]]
    width = len(str(len(shares) - 1))
    return {f"{i:0{width}d}": X[bounds[i] : bounds[i + 1]] for i in range(len(shares))}


def opened(cell: dict[str, Any]) -> dict[str, Any]:
    """Load the set of a cell and deal it to its parties."""
    owners = parties(load(cell["data"], cell["full"]).T, shares(cell["split"], cell.get("parties", 4)))
    return {
        name: part.tocsr() if hasattr(part, "tocsr") else np.ascontiguousarray(part) for name, part in owners.items()
    }


def rounds_of(method: Algorithm, exchanges: int) -> int:
    """Return the rounds of so many exchanges: one of Syn-SSD is one alternation, not ten."""
    return exchanges * (10 if isinstance(method, SynSSD) else 1)


def cells(full: bool) -> Iterator[dict[str, Any]]:
    """Yield every method on some sets, dealt evenly and unevenly."""
    for data in [name for name in ("planted", "faces", "newsgroups") if name in present()]:
        k = 8 if data == "planted" else 100 if full else 20
        for split in ("uniform", "imbalanced"):
            for method in methods(k):
                yield {"data": data, "split": split, "method": method, "k": k, "full": full, "exchanges": 20}


def measure(cell: dict[str, Any]) -> dict[str, Any]:
    """Run one method; virtual seconds count a party's share of all columns for each alternation over them."""
    method = methods(cell["k"])[cell["method"]]
    owners = opened(cell)
    inner = isinstance(method, SynSSD)
    alone = getattr(type(method), "asynchronous", False)
    rounds = rounds_of(method, cell["exchanges"])
    # The largest party sets the pace of rounds, so a method without rounds fits more exchanges into the same time.
    sizes = [part.shape[0] for part in owners.values()]
    if alone:
        rounds = int(rounds * max(sizes) * sum(1 / size for size in sizes) / len(sizes))
    every = max(1, rounds * (len(owners) if alone else 1) // 20)
    engine = VirtualEngine(barrier=not alone, evaluate=every)
    found = run(method, owners, engine=engine, rounds=rounds, seed=0)
    taken = [
        record.metrics
        for record in found.history
        if "relative_error" in record.metrics and (record.index + 1) % every == 0
    ]
    scale = 0.1 if inner else 1.0
    return {
        "seconds": [metrics["virtual_time"] * scale for metrics in taken],
        "errors": [metrics["relative_error"] for metrics in taken],
        "final": found.relative_error,
        "sent": found.bytes_up // len(owners),
    }


def party_cells(full: bool) -> Iterator[dict[str, Any]]:
    """Yield the paper's methods over more and more parties, even and uneven, on a virtual clock and on real ranks."""
    here = present()
    for data in [name for name in (("planted", "faces", "newsgroups") if full else ("planted",)) if name in here]:
        k = 8 if data == "planted" else 100 if full else 20
        usual = {"data": data, "k": k, "full": full, "exchanges": 10, "seed": 0}
        for split in ("uniform", "imbalanced"):
            for count in (2, 4, 8, 16):
                for method in PAPERS:
                    yield {**usual, "clock": "virtual", "split": split, "parties": count, "method": method}
            for count in (2, 4, 8) if full else (2, 4):
                for method in PAPERS:
                    yield {**usual, "clock": "ranks", "split": split, "parties": count, "method": method}


def stalls(full: bool) -> Iterator[dict[str, Any]]:
    """Yield how many of 48 runs of ten exchanges end above twice the floor, two even parties, by proximal weight.

    Six orders of arrival (the pace of the second party, and who comes first) and eight seeds. The weight of the library
    grows with the alternations, so that steps are short where a run has to leave a plateau; a constant small one leaves
    it.
    """
    owners = opened({"data": "planted", "full": False, "split": "uniform", "parties": 2})
    paces = ((1.0, 1.0), (1.0, 1.5), (1.0, 2.3), (1.0, 3.7), (2.3, 1.0), (3.7, 1.0))
    forms: dict[str, dict[str, Any]] = {"growing": {}, "small, constant": {"schedule_start": 0.01, "growth": 0.0}}
    for weight, settings in forms.items():
        for name, method in (("Asyn-SD", AsynSD(8, **settings)), ("Asyn-SSD-V", AsynSSD(8, ratio=0.3, **settings))):
            row: dict[str, Any] = {"method": name, "proximal_weight": weight, "runs": 8 * len(paces)}
            for exchanges in (10, 40):
                errors = [
                    run(method, owners, engine=VirtualEngine(durations=dict(zip(owners, pace, strict=True))),
                        rounds=exchanges, seed=seed).relative_error
                    for pace in paces for seed in range(20, 28)
                ]  # fmt: skip
                row[f"stalled_{exchanges}"] = sum(error > 2 * FLOOR for error in errors)
                row[f"median_{exchanges}"] = float(np.median(errors))
            yield row


def measure_parties(cell: dict[str, Any]) -> dict[str, Any]:
    """Tell alternations per virtual second of all parties together, messages and bytes of a party, and the error."""
    method = methods(cell["k"])[cell["method"]]
    owners = opened(cell)
    alone = getattr(type(method), "asynchronous", False)
    rounds = rounds_of(method, cell["exchanges"])
    found = run(method, owners, engine=VirtualEngine(barrier=not alone), rounds=rounds, seed=0)
    arrivals = len(found.history) * (1 if alone else len(owners))
    inner = isinstance(method, SynSSD)
    taken = found.history[-1].metrics["virtual_time"] * (0.1 if inner else 1.0)
    return {
        "speed": arrivals * (1 if inner else 10) / len(owners) / max(taken, 1e-12),
        "messages": arrivals / len(owners),
        "sent": found.bytes_up // len(owners),
        "final": found.relative_error,
    }
