"""Parties that hold columns of the same patients, each in a process of its own and over https, find the U and V of one
client with all columns, to 1e-9 of the largest entry: PooledNMF (30 rounds) and PooledPCA with 2, 3 and 10 parties.
100,000 ids of each of two parties are matched without an error, by keyed hashes and by blinded points.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedfactor
from fedfactor.federation.features import agree, hashed_rows
from fedfactor.federation.results import write_result
from fedfactor.federation.terms import features_hash
from fedfactor.federation.trial import Trial
from fedfactor.io.file_content import Reading
from fedfactor.io.result_folder import read_components, read_private, read_row_ids
from fedfactor.io.row_matching import blinded, common_hashes, hashes_of_ids, points_of_ids, positions_of

PATIENTS, COLUMNS, RANK, ROUNDS, IDS, SEED = 200, 12, 4, 30, 100_000, 5
PARTIES, ALGORITHMS = (2, 3, 10), ("PooledNMF", "PooledPCA")
READING = Reading(id="patient_id")


def write_tables(folder: Path, parties: int) -> dict[str, Path]:
    """Write the columns of each party, with 190 of 200 patients in an order of its own."""
    rng = np.random.default_rng(parties)
    X = rng.random((PATIENTS, RANK)) @ rng.random((RANK, COLUMNS * parties)) + 0.1 * rng.random((1, COLUMNS * parties))
    ids = np.array([f"P{number:05d}" for number in range(PATIENTS)])
    files: dict[str, Path] = {}
    for place in range(parties):
        rows = rng.permutation(PATIENTS)[:190]
        cells = X[rows, COLUMNS * place : COLUMNS * (place + 1)]
        frame = pd.DataFrame(cells, columns=[f"c{place}_{j}" for j in range(COLUMNS)])
        frame.insert(0, "patient_id", ids[rows])
        name = f"party {place:02d}"
        files[name] = folder / f"{name}.csv"
        frame.to_csv(files[name], index=False)
    return files


def over_https(folder: Path, algorithm: str, parties: int) -> tuple[dict[str, Path], dict[str, Any], Trial]:
    """Run a federation; return the tables, and U, V and row ids of each party."""
    files = write_tables(folder, parties)
    key = secrets.token_bytes(32)
    rows = {name: hashed_rows(file, READING, key) for name, file in files.items()}
    names = agree({name: tuple(each.values()) for name, each in rows.items()}, "intersection")
    changes: dict[str, dict[str, Any]] = {
        "federation": {"format": 2, "id": secrets.token_hex(16)},
        "algorithm": {"name": algorithm, "n_components": RANK, **({"tol": 0.0} if algorithm == "PooledNMF" else {})},
        "features": {"split": "columns", "how": "intersection", "names": list(names), "sha256": features_hash(names)},
        "run": {"rounds": ROUNDS, "seed": SEED},
        "privacy": {"minimum_rows": 5},
        "policy": {"dropouts": "wait", "deadline": 240, "gather": 240},
    }
    trial = Trial(folder / "trial", files, changes)
    with trial:
        for name in files:
            own = folder / f"{name}.row-names.json"
            own.write_text(json.dumps(rows[name]))
            trial.join(name, "--id", "patient_id", "--row-names", str(own))
        trial.coordinator.start()
        ended = trial.coordinator.wait(400)
    if ended["state"] != "finished":
        raise RuntimeError(f"The run did not finish: {ended}")
    found: dict[str, Any] = {}
    for name in files:
        out = write_result(trial.folder(name), folder / "results" / name)
        found[name] = (read_private(out, name)["U"], read_components(out)[0], read_row_ids(out, name))
    return files, found, trial


def apart(folder: Path, algorithm: str, parties: int) -> dict[str, float]:
    """Return how far U and V of the parties are from those of one client with all columns."""
    files, found, trial = over_https(folder, algorithm, parties)
    ids = list(next(iter(found.values()))[2])
    frames = [pd.read_csv(file).set_index("patient_id").loc[ids] for file in files.values()]
    X = pd.concat(frames, axis=1).to_numpy()
    one = fedfactor.run(trial.terms.algorithm(), {"all": X}, split="columns", rounds=ROUNDS, seed=SEED)
    U = np.asarray(next(iter(found.values()))[0])
    V = np.concatenate([V for _, V, _ in found.values()], axis=1)
    same = all(np.array_equal(own, U) and list(rows) == ids for own, _, rows in found.values())
    V_one = np.concatenate([one.V[name] for name in one.V], axis=1)
    return {
        "U": float(np.abs(U - one.U).max() / np.abs(one.U).max()) if same else float("inf"),
        "V": float(np.abs(V - V_one).max() / np.abs(V_one).max()),
    }


def matched() -> dict[str, Any]:
    """Match 100,000 ids of two parties in both ways."""
    rng = np.random.default_rng(0)
    lists = {name: rng.permutation(130_000)[:IDS] for name in ("a", "b")}
    wanted = set(lists["a"].tolist()) & set(lists["b"].tolist())
    key = secrets.token_bytes(32)
    began = time.perf_counter()
    hashed = {name: hashes_of_ids(ids.tolist(), key) for name, ids in lists.items()}
    common = common_hashes(hashed)
    a, b = (lists[name][positions_of(common, hashed[name])] for name in lists)
    found = {
        "hashed": bool(np.array_equal(a, b) and set(a.tolist()) == wanted),
        "hashed, s": time.perf_counter() - began,
    }
    own = {name: secrets.token_bytes(32) for name in lists}
    began = time.perf_counter()
    once = {name: blinded(points_of_ids(ids.tolist()), own[name]) for name, ids in lists.items()}
    twice = {"a": blinded(once["a"], own["b"]), "b": blinded(once["b"], own["a"])}
    place = {point: each for each, point in zip(lists["a"].tolist(), twice["a"], strict=True)}
    pairs = [
        (place[point], each) for each, point in zip(lists["b"].tolist(), twice["b"], strict=True) if point in place
    ]
    found["blinded"] = all(one == two for one, two in pairs) and {one for one, _ in pairs} == wanted
    found["blinded, s, both parties"] = time.perf_counter() - began
    return found


def claim() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for algorithm in ALGORITHMS:
        for parties in PARTIES:
            with tempfile.TemporaryDirectory() as folder:
                figures[f"{algorithm}, {parties} parties"] = apart(Path(folder), algorithm, parties)
            print(algorithm, parties, figures[f"{algorithm}, {parties} parties"], flush=True)
    ids = matched()
    print(ids, flush=True)
    exact = all(max(each.values()) < 1e-9 for each in figures.values())
    return {"sets": figures, "ids": ids, "holds": exact and ids["hashed"] and ids["blinded"]}
