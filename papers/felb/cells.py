"""One figure of a table: a method on some data, run once, written down at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedfactor.algorithms import BooleanVotes
from fedfactor.boolean.felb import ProximalAveraging
from fedfactor.boolean.metrics import boolean_metrics
from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round
from fedfactor.core.client_data import Federation
from fedfactor.core.threads import limit_threads
from fedfactor.engines.round import Receiver
from fedfactor.engines.run import run
from fedfactor.nmf.pooled import initialization as least_squares
from papers.kept import kept

__all__ = ["Bench", "Cell", "Store", "rounds_of_paper"]


def rounds_of_paper(algorithm: Algorithm, n_features: int) -> int | None:
    """Return how many rounds send no more than the paper's 100 exchanges of V; None where that is the default.

    The two rounds of a wide start send UᵀU and UᵀX for three times the components.

    Examples
    --------
    >>> from fedfactor.algorithms import FELB
    >>> rounds_of_paper(FELB(5), 200), rounds_of_paper(FELB.paper(5), 200)
    (95, None)
    """
    meta = Meta(n_features, ("a", "b"))
    if not (isinstance(algorithm, ProximalAveraging) and algorithm.starts_wide(meta)):
        return None
    k = algorithm.n_components
    wide = least_squares.width("wide", k, meta)
    return 2 + int(algorithm.default_rounds - 2 * wide * (wide + n_features) / (k * n_features))


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a figure stands: the study, the data, the method, and the seed."""

    study: str
    data: str
    method: str
    seed: int


class Store:
    """Figures in one file for each cell, so that a run that was broken off goes on where it stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, cell: Cell, settings: Mapping[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the figures of a cell, from its file if the settings are the same, else made and written."""
        return kept(self.folder, {**asdict(cell), **settings}, lambda: {**asdict(cell), **make()})


class Bench:
    """Runs methods on one federation; a local solver runs once, however many votes are taken on what it found."""

    def __init__(self, owners: Mapping[str, Any]) -> None:
        self.owners = owners
        self._solved: dict[str, tuple[dict[str, Any], float]] = {}

    @property
    def size(self) -> dict[str, Any]:
        """Clients, rows of all together, columns, and the share of ones."""
        shapes = [rows.shape for rows in self.owners.values()]
        n, m = sum(one[0] for one in shapes), shapes[0][1]
        ones = sum(float(rows.sum()) for rows in self.owners.values())
        return {"clients": len(shapes), "rows": n, "columns": m, "density": ones / max(1, n * m)}

    def measure(self, algorithm: Algorithm, *, rounds: int | None = None, seed: int = 0) -> dict[str, Any]:
        """Return loss, recall, precision and similarity (means over owners), pooled loss, traffic, and seconds.

        FELB and FALB have the paper's traffic unless `rounds` are given.
        ``late`` counts the clients whose solver ran out of its time; ``gap`` is how far V was from Boolean at the end.
        """
        began = time.perf_counter()
        if isinstance(algorithm, BooleanVotes):
            factors, late, up, before = self._vote(algorithm, seed)
            status, gap = "converged", 0.0
        else:
            result = run(
                algorithm, self.owners, rounds=rounds or rounds_of_paper(algorithm, self.size["columns"]), seed=seed
            )
            factors, late, up, before, status = result.factors, 0, result.bytes_up, 0.0, result.status
            gap = result.history[-1].metrics.get("integrality_gap", 0.0)
        seconds = before + time.perf_counter() - began
        V = next(iter(factors.values())).V
        found = boolean_metrics(self.owners, {name: kept.U for name, kept in factors.items()}, V)
        return {
            "loss": found.loss,
            "recall": found.recall,
            "precision": found.precision,
            "similarity": found.similarity,
            "pooled_loss": found.pooled.loss,
            "seconds_per_client": seconds / len(self.owners),
            "late": late,
            "gap": gap,
            "bytes_up_per_client": up / len(self.owners),
            "status": status,
        }

    def _vote(self, algorithm: BooleanVotes, seed: int) -> tuple[dict[str, LocalFactors], int, int, float]:
        """Take the one round of a vote, step by step as an engine does, from states that are solved already."""
        federation = Federation(self.owners)
        meta = federation.prepare(algorithm.domain)
        algorithm.check(meta)
        states, before = self._states(algorithm, federation, meta, seed)
        server, down = algorithm.init_server(meta, Round(seed, 0))
        receiver = Receiver(algorithm.messages(meta))
        for name, state in states.items():
            _, up = algorithm.client_step(federation.shard(name), state, down, Round(seed, 0, name))
            receiver.add(name, up)
        _, down = algorithm.server_step(server, receiver.combined, Round(seed, 0, participants=meta.clients))
        kept = {name: algorithm.finish(federation.shard(name), state, down) for name, state in states.items()}
        return kept, sum(int(state.late) for state in states.values()), receiver.bytes_up, before

    def _states(
        self, algorithm: BooleanVotes, federation: Federation, meta: Meta, seed: int
    ) -> tuple[dict[str, Any], float]:
        key = repr((algorithm.solver, algorithm.n_components, algorithm.options, algorithm.time_limit, seed))
        if key not in self._solved:
            _, down = algorithm.init_server(meta, Round(seed, 0))
            began, states = time.perf_counter(), {}
            with limit_threads(1):  # products this small lose by sharing
                for name in meta.clients:
                    shard, at = federation.shard(name), Round(seed, 0, name)
                    states[name], _ = algorithm.client_step(shard, algorithm.init_client(shard, meta, at), down, at)
            self._solved[key] = (states, time.perf_counter() - began)
            return states, 0.0
        return self._solved[key]
