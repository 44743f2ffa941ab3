"""What 2,000 runs tell of one planted unit is below the claim, for each unit and three methods; broken builds are not.

The attacker knows everything but whether the unit is there, and the unit moves every sum by as much as the noise is
made for. The same audit refutes builds that do not count rounds together, add half of the noise, publish exact numbers
of rows, or weigh each client by the rows of all. ``python -m claims.privacy_canaries FILE RUNS [NAME...]`` adds so many
runs of some configurations to a file, from which the page on the threat model is written.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fedfactor
from claims.client_weights import AllRows
from fedfactor.algorithms import PooledBMF, PooledEASE, PooledNMF
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


CONFIGURATIONS: dict[str, tuple[Any, str]] = {
    "row, PooledNMF": (PooledNMF(2), "row"),
    "subject with two rows at two clients, PooledNMF": (PooledNMF(2), "subject"),
    "client, PooledNMF": (PooledNMF(2), "client"),
    "row, PooledBMF (proximal)": (PooledBMF(2, solver="proximal"), "row"),
    "row, PooledEASE": (PooledEASE(min_users=1), "row"),
}
"""What is attacked, and the unit of the claim."""


def counted(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Turn stored counts of runs and of wrong guesses into a bound."""
    outside, inside = stored["without"], stored["with"]
    included = np.arange(outside + inside) >= outside
    wrong = np.concatenate([np.arange(outside) < stored["false_alarms"], np.arange(inside) < stored["misses"]])
    return bound_from_runs(np.where(wrong, ~included, included).astype(float), included, DELTA)


def add_runs(file: Path, runs: int, names: Sequence[str]) -> None:
    """Add runs to the counts in a file."""
    for name in names:
        algorithm, unit = CONFIGURATIONS[name]
        scores, included, about = guess_worlds(
            algorithm, canary_worlds(UNITS[unit], scale=10.0), rounds=ROUNDS, runs=runs
        )
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        mine = found.setdefault(name, {"without": 0, "with": 0, "false_alarms": 0, "misses": 0})
        mine["without"] += int((~included).sum())
        mine["with"] += int(included.sum())
        mine["false_alarms"] += int((scores[~included] > 0.5).sum())
        mine["misses"] += int((scores[included] <= 0.5).sum())
        mine["claimed"] = EPSILON
        mine["told_by"] = about["told_by"]
        mine["part_of_the_bound"] = round(about["part_of_the_bound"], 3)
        mine["epsilon"] = round(counted(mine)["epsilon"], 3)
        file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(name, mine, file=sys.stderr, flush=True)


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
    right = {name: found(worlds[unit], method, runs=runs) for name, (method, unit) in CONFIGURATIONS.items()}
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
    # The row that is planted for PooledEASE makes little more than half of the change that its noise is made for.
    sharp = all(right[name]["part_of_the_bound"] > (0.5 if "EASE" in name else 0.99) for name in CONFIGURATIONS)
    return {"claimed": EPSILON, "right": right, "broken": broken, "holds": bool(below and told and sharp)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    add_runs(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or tuple(CONFIGURATIONS))
