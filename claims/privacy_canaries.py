"""What 2,000 runs per unit (row, subject, client) tell of one planted unit is below the claim; broken builds are not.

The attacker knows everything but whether the unit is there, and the unit moves every sum by as much as the noise is
made for. The same audit refutes builds that do not count rounds together, add half of the noise, publish exact numbers
of rows, or weigh each owner by the rows of all. ``python -m claims.privacy_canaries 100`` tries it with fewer runs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fedfactor
from claims.client_weights import AllRows
from fedfactor.algorithms import PooledNMF
from fedfactor.audit.many_run_canaries import Worlds, bound_from_runs, canary_worlds, guess_worlds, numbers_in
from fedfactor.cli.run_folder import Place
from fedfactor.core.client_data import Federation
from fedfactor.core.run import Run
from fedfactor.privacy import calibrate
from fedfactor.privacy import publication as published

EPSILON, DELTA, ROUNDS, RUNS = 2.0, 1e-5, 2, 2000
MANY = 4
"""Rounds of the build that does not count them together."""
BOOKS: dict[str, Any] = {"accountant": "pld"}  # the tight figure: nothing is left between the claim and the noise
UNITS = {
    "row": fedfactor.dp(EPSILON, DELTA, **BOOKS),
    "subject": fedfactor.dp(EPSILON, DELTA, unit="subject", subject="id", cap=2, known_to=2, **BOOKS),
    "client": fedfactor.dp(EPSILON, DELTA, unit="client", clip=0.5, **BOOKS),
}


def with_noise(worlds: Worlds, noise_multiplier: float) -> Worlds:
    """Keep the claim in name, and draw this noise; the ledger is blinded by a huge budget."""
    return replace(worlds, asked=replace(worlds.asked, epsilon=1e9, noise_multiplier=noise_multiplier))


def shared_numbers(result: Run, federation: Federation) -> dict[str, float]:
    """Write a folder as ``fedfactor fit`` does, and read what may be published of it."""
    with tempfile.TemporaryDirectory() as folder:
        Place(Path(folder)).write(result, federation, {})
        return numbers_in(json.loads(Path(folder, "shared", "run.json").read_text()))


@contextmanager
def row_counts_published() -> Iterator[None]:
    """A build whose list of what may be published holds the owners' figures."""
    kept = published.COVERED
    published.COVERED = kept | {"owners"}
    try:
        yield
    finally:
        published.COVERED = kept


def many_rows() -> Worlds:
    """One owner of zeros, with one row of them or with five thousand."""
    rng = np.random.default_rng(0)
    owners = {f"c{i}": 0.007 * rng.exponential(size=(40, 3)) @ rng.random((3, 10)) for i in range(8)}
    return Worlds(owners | {"x": np.zeros((1, 10))}, owners | {"x": np.zeros((5000, 10))}, UNITS["client"])


def found(worlds: Worlds, algorithm: Any = None, *, runs: int, rounds: int = ROUNDS, **more: Any) -> dict[str, Any]:
    """Attack one build."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores, included, about = guess_worlds(algorithm or PooledNMF(2), worlds, rounds=rounds, runs=runs, **more)
    result = bound_from_runs(scores, included, DELTA) | about
    print(json.dumps(result), file=sys.stderr, flush=True)
    return result


def claim(runs: int = RUNS) -> dict[str, Any]:
    worlds = {unit: canary_worlds(asked, scale=10.0) for unit, asked in UNITS.items()}
    few, row = max(100, runs // 10), worlds["row"]
    right = {unit: found(each, runs=runs) for unit, each in worlds.items()}
    right["row, as fit writes it"] = found(row, runs=few, observe=shared_numbers)
    right["client, many rows"] = found(many_rows(), PooledNMF(3), runs=few, rounds=1)
    once, right_noise = (calibrate(EPSILON, DELTA, rounds, **BOOKS) for rounds in (1, ROUNDS))
    broken = {
        "no composition": found(with_noise(row, once), runs=runs // 2, rounds=MANY),
        "half the noise": found(with_noise(row, right_noise / 2), runs=runs // 2),
        "weights of all rows": found(many_rows(), AllRows(3, weights="mean", start="random"), runs=few, rounds=1),
    }
    with row_counts_published():
        broken["row counts published"] = found(row, runs=few, observe=shared_numbers)
    below = all(each["epsilon"] <= EPSILON for each in right.values())
    told = all(each["epsilon"] > EPSILON for each in broken.values())
    sharp = all(right[unit]["part_of_the_bound"] > 0.99 for unit in UNITS)
    return {"claimed": EPSILON, "right": right, "broken": broken, "holds": bool(below and told and sharp)}


if __name__ == "__main__":
    print(json.dumps(claim(int(sys.argv[1])), indent=1))
