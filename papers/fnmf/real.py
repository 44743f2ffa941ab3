"""Table 1 on the real sets at hand: fifty clients, rows at random and by label."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.algorithms import FNMF, FedProxNMF, OneShotNMF, PooledNMF
from fedfactor.core.algorithm import Algorithm
from fedfactor.datasets.loading import available, load_dataset
from fedfactor.linalg.products import squared_norm
from papers.fnmf.cells import Store, mean_rows, measure

__all__ = ["SETS", "compare", "fashion", "methods", "pooled_error", "prepare", "split", "study"]

Row = dict[str, Any]
SETS = ("fashion_mnist", "orl_faces", "newsgroups", "mouse_bladder", "pbmc68k", "golub", "movielens_small")
CLIENTS = 50
OF_THE_PAPER = ("iPALM", "MUR", "FedAvg", "FedProx", "FNMF-LAP", "FNMF-LAP_rho")
ROWS = 1_000
COLUMNS = 500
"""Most rows and columns of a set in runs that are not ``full``."""


def prepare(name: str, full: bool, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Load a set, at most ``ROWS`` rows and its ``COLUMNS`` heaviest columns unless `full`, and the labels of its rows.

    Rows without labels are ordered by their sum: users by how much they rate.
    """
    data = load_dataset(name)
    X, y = data.X, data.y
    rng = np.random.default_rng([6, seed])
    if not full and X.shape[0] > ROWS:
        rows = np.sort(rng.choice(X.shape[0], ROWS, replace=False))
        X, y = X[rows], None if y is None else y[rows]
    if not full and X.shape[1] > COLUMNS:
        X = X[:, np.sort(np.argsort(-_sums(X, 0), kind="stable")[:COLUMNS])]
    live = _sums(X, 1) > 0
    X, y = X[live], None if y is None else np.asarray(y)[live]
    X = X.tocsr().astype(np.float64) if scipy.sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    return X, np.unique(_sums(X, 1), return_inverse=True)[1] if y is None else np.unique(y, return_inverse=True)[1]


def _sums(X: Any, axis: int) -> np.ndarray:
    return np.asarray(X.sum(axis=axis)).ravel()


def split(X: Any, y: np.ndarray, how: str, seed: int) -> dict[str, Any]:
    """Cut rows, shuffled or sorted by label, into fifty clients, or fewer so that each has two rows."""
    order = np.random.default_rng([8, seed]).permutation(X.shape[0])
    if how == "by label":
        order = order[np.argsort(y[order], kind="stable")]
    parts = np.array_split(order, min(CLIENTS, X.shape[0] // 2))
    return {f"{c:02d}": X[np.sort(rows)] for c, rows in enumerate(parts)}


def methods(k: int, rounds: int = 20) -> dict[str, tuple[Algorithm, int]]:
    """Name methods with their rounds: the paper's, all with iPALM clients, equal weights and own starts; and ours."""
    base: dict[str, Any] = {"n_components": k, "local_steps": 10, "tol": 0.0}
    gradient: dict[str, Any] = {**base, "local_solver": "gradient"}
    aligned: dict[str, Any] = {**gradient, "significance": 0.05}  # the usual level of a test, as in the paper
    plain: dict[str, Any] = {**gradient, "start": "own", "weights": "equal"}
    once: dict[str, Any] = {"n_components": k, "combine": "mean"}
    return {
        "iPALM": (OneShotNMF(local_solver="gradient", **once), 1),
        "MUR": (OneShotNMF(local_solver="multiplicative", **once), 1),
        "FedAvg": (FedProxNMF(mu=0.0, **plain), rounds),
        "FedProx": (FedProxNMF(mu=1.0, relative=True, **plain), rounds),
        "FNMF-LAP": (FNMF(row_norm="free", **aligned), rounds),
        "FNMF-LAP_rho": (FNMF(alignment="lap_rho", row_norm="free", **aligned), rounds),
        "FNMF-LAP unit": (FNMF(**aligned), rounds),
        "FNMF-LAP unit, HALS": (FNMF(**{**aligned, "local_solver": "hals"}), rounds),
        "PooledNMF": (PooledNMF(k), 200),
    }


def fashion(store: Store, full: bool, seeds: int) -> list[Row]:
    """Compare the methods of the paper on all rows of Fashion-MNIST that are here, at random: a set of its Table 1."""
    if not available()["fashion_mnist"]:
        store.say("fashion_mnist: not here, left out")
        return []
    X, y = prepare("fashion_mnist", full=True)
    contest = {name: each for name, each in methods(20 if full else 10).items() if name in OF_THE_PAPER}
    rows = []
    for seed in range(seeds):
        parts = split(X, y, "at random", seed)
        rows += _one(store, "fashion_mnist", parts, "at random", seed, contest, X.shape)
    means = mean_rows(rows, ("set", "split", "method"), ("sum_rmsd", "relative_error", "worst", "seconds"))
    return [{**row, "rows": X.shape[0], "columns": X.shape[1], "lowest": _lowest(row, means)} for row in means]


def pooled_error(X: Any, k: int) -> float:
    """Return the relative error of the best of three scikit-learn starts on pooled rows."""
    from sklearn.decomposition import NMF

    errors = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start, seed in (("nndsvda", 0), ("random", 0), ("random", 1)):
            model = NMF(k, init=start, random_state=seed, max_iter=1000).fit(X)
            errors.append(float(model.reconstruction_err_))
    return min(errors) / float(np.sqrt(squared_norm(X)))


def study(store: Store, full: bool, seeds: int) -> list[Row]:
    """Compare all methods on all sets that are here: means over seeds, and the largest gap of any."""
    rows = compare(store, full, seeds)
    figures = ("sum_rmsd", "relative_error", "gap_percent", "worst", "seconds")
    means = mean_rows(rows, ("set", "split", "method"), figures)
    for row in means:
        same = [one for one in rows if all(one[name] == row[name] for name in ("set", "split", "method"))]
        row["largest_gap_percent"] = max(one["gap_percent"] for one in same)
        row["lowest"] = _lowest(row, means)
    return means


def _lowest(row: Row, means: list[Row]) -> int:
    """Return 1 where a method of the paper has the lowest sum of RMSD of them, on one set and split."""
    line = [one for one in means if (one["set"], one["split"]) == (row["set"], row["split"])]
    mine = [one["sum_rmsd"] for one in line if one["method"] in OF_THE_PAPER]
    return int(row["method"] in OF_THE_PAPER and row["sum_rmsd"] == min(mine))


def compare(store: Store, full: bool, seeds: int) -> list[Row]:
    """Measure every method on every set, split and seed; ``gap_percent`` is the distance from the pooled error."""
    rows, here = [], available()
    for name in SETS:
        if not here[name]:
            store.say(f"{name}: not here, left out")
            continue
        if name not in store.few.get("set", SETS):
            continue
        X, y = prepare(name, full)
        k = min(20 if full else 10, X.shape[0] // 3)
        key = {"study": "real", "set": name, "split": "pooled", "method": "scikit-learn", "seed": 0}
        pooled = store.get(key, (k, X.shape), lambda X, k: {"relative_error": pooled_error(X, k)}, X, k)
        for how in ("at random", "by label"):
            for seed in range(seeds):
                contest = methods(k, 50 if full else 20)
                found = _one(store, name, split(X, y, how, seed), how, seed, contest, X.shape)
                level = pooled["relative_error"]
                rows += [{**row, "gap_percent": 100 * (row["relative_error"] / level - 1)} for row in found if row]
    return rows


def _one(
    store: Store,
    name: str,
    owners: Mapping[str, Any],
    how: str,
    seed: int,
    contest: Mapping[str, tuple[Algorithm, int]],
    shape: tuple[int, ...],
) -> list[Row]:
    found = []
    for method, (algorithm, rounds) in contest.items():
        key = {"study": "real", "set": name, "split": how, "method": method, "seed": seed}
        found.append(store.get(key, (algorithm, rounds, shape), measure, algorithm, owners, rounds=rounds, seed=seed))
    return found
