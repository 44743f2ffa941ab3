"""Columns that lie with 2, 3 or 10 clients give the U and V of one client that has them all, to 1e-9 of the largest
entry: PooledNMF (100 rounds, rank 10) and PooledPCA (rank 10) on faces, digits and single cells. 100,000 ids of each
client are matched without an error. Needs ``FEDFACTOR_DATA``.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import fedfactor
from claims._pca import DENSE
from fedfactor.algorithms import PooledNMF, PooledPCA
from fedfactor.core.client_data import Shard
from fedfactor.engines.columns import factor_columns
from fedfactor.privacy import PrivacyWarning

RANK, ROUNDS, SETS, CLIENTS, IDS, KEY = 10, 100, ("CBCL faces", "digits", "PBMC cells"), (2, 3, 10), 100_000, b"k" * 32


def parts(X: np.ndarray, clients: int) -> dict[str, np.ndarray]:
    columns = np.random.default_rng(clients).permutation(X.shape[1])
    return {f"{i:02d}": X[:, part] for i, part in enumerate(np.array_split(columns, clients))}


def joined(found: Any, clients: int, width: int) -> np.ndarray:
    columns = np.random.default_rng(clients).permutation(width)
    V = np.concatenate([found.V[name] for name in sorted(found.V)], axis=1)
    out = np.empty_like(V)
    out[:, columns] = V
    return out


def apart(one: np.ndarray, two: np.ndarray) -> float:
    return float(np.abs(one - two).max() / np.abs(two).max())


def matched() -> bool:
    rng = np.random.default_rng(0)
    lists = {name: rng.permutation(130_000)[:IDS] for name in ("a", "b")}
    tables = {name: Shard(ids[:, None].astype(float), row_ids=tuple(map(str, ids))) for name, ids in lists.items()}
    found = factor_columns(PooledPCA(1, solver="subspace"), tables, key=KEY, seed=0, rounds=1)
    a, b = (lists[name][found.rows[name]] for name in ("a", "b"))
    return bool(np.array_equal(a, b) and set(a) == set(lists["a"]) & set(lists["b"]))


def claim() -> dict:
    warnings.simplefilter("ignore", PrivacyWarning)
    figures: dict[str, Any] = {}
    for name in SETS:
        X = DENSE[name]()
        X = X - X.min()  # PooledNMF takes no negative cells
        for algorithm in (PooledNMF(RANK, tol=0), PooledPCA(RANK)):
            rounds = ROUNDS if isinstance(algorithm, PooledNMF) else None
            one = factor_columns(algorithm, {"all": X}, rounds=rounds, seed=0)
            if rounds:
                whole = fedfactor.run(algorithm, {"all": X.T}, rounds=rounds, seed=0)
                U, V = whole.V.T, whole.factors["all"].U.T
            else:
                U, V = one.U, one.V["all"]
            for clients in CLIENTS:
                many = factor_columns(algorithm, parts(X, clients), rounds=rounds, seed=0)
                found = {"U": apart(many.U, U), "V": apart(joined(many, clients, X.shape[1]), V)}
                figures[f"{name}, {type(algorithm).__name__}, {clients} clients"] = found
                print(name, type(algorithm).__name__, clients, found, many.run.bytes_up, flush=True)
    ids = matched()
    print("ids matched:", ids, flush=True)
    return {"sets": figures, "ids": ids, "holds": ids and all(max(each.values()) < 1e-9 for each in figures.values())}
