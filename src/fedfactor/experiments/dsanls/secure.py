"""Secure methods under a virtual clock, with parties of equal and of unequal size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedfactor.algorithms import AsynSD, AsynSSD, SynSD, SynSSD
from fedfactor.core.protocol import Algorithm
from fedfactor.engines.local.virtual_clock import VirtualEngine
from fedfactor.engines.run import run
from fedfactor.experiments.dsanls.datasets import load, present

__all__ = ["cells", "measure", "methods", "parties"]

SHARES = {"uniform": (1, 1, 1, 1), "imbalanced": (10, 1, 1, 1)}


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
    }


def parties(X: Any, shares: tuple[int, ...]) -> dict[str, Any]:
    """Deal the columns of M, here the rows of its transpose, in these proportions."""
    cuts = (np.cumsum(shares)[:-1] * X.shape[0] / sum(shares)).astype(int)
    bounds = [0, *cuts.tolist(), X.shape[0]]
    return {str(i): X[bounds[i] : bounds[i + 1]] for i in range(len(shares))}


def cells(full: bool) -> Iterator[dict[str, Any]]:
    """Yield every method on some sets, dealt evenly and unevenly."""
    for data in [name for name in ("planted", "faces", "newsgroups") if name in present()]:
        k = 8 if data == "planted" else 100 if full else 20
        for split in SHARES:
            for method in methods(k):
                yield {"data": data, "split": split, "method": method, "k": k, "full": full, "exchanges": 20}


def measure(cell: dict[str, Any]) -> dict[str, Any]:
    """Run one method; virtual seconds count a party's share of all columns for each alternation over them."""
    method = methods(cell["k"])[cell["method"]]
    owners = parties(load(cell["data"], cell["full"]).T, SHARES[cell["split"]])
    owners = {
        name: part.tocsr() if hasattr(part, "tocsr") else np.ascontiguousarray(part) for name, part in owners.items()
    }
    inner = isinstance(method, SynSSD)  # one of its rounds is one alternation, not ten
    alone = getattr(type(method), "asynchronous", False)
    rounds = cell["exchanges"] * (10 if inner else 1)
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
