"""The real data as zeros and ones, dealt to owners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import scipy.sparse

from fedfactor.datasets.loading import available, load_dataset
from fedfactor.io.partition import split_evenly, split_rows
from papers.felb.quantile import federated_quantile

__all__ = ["DATASETS", "load_owners"]

# Name here: data set, rule, components.
DATASETS: dict[str, tuple[str, str, int]] = {
    "movielens": ("movielens_small", "at least 3.5", 20),
    "newsgroups": ("newsgroups", "above 0", 20),
    "bladder": ("mouse_bladder", "above 0", 20),
    "hapmap": ("hapmap3", "above 0", 20),
    "pbmc": ("pbmc68k", "above the 95 % quantile", 20),
    "mushroom": ("mushroom", "as it is", 20),
    "chess": ("chess", "as it is", 20),
    "roles": ("roles", "as it is", 20),
}


def load_owners(
    name: str,
    *,
    n_clients: int = 20,
    full: bool = False,
    rows: int = 2000,
    columns: int = 500,
    pick: Literal["frequent", "random"] = "frequent",
    by: Literal["chance", "label"] = "chance",
    seed: int = 0,
) -> dict[str, Any]:
    """Load a set, deal its rows at random, and let every owner turn its own into zeros and ones.

    Small runs keep at most so many `rows`, drawn at random, and so many `columns`: those with most ones, counted over
    all owners together, or `pick` at random among those that have any. Frequent columns are far denser than the
    paper's sets (0.001 to 0.24). `by` label: every label has an owner of its own, in the place of `n_clients`.
    """
    known, rule, _ = DATASETS[name]
    found = load_dataset(known)
    X = found.X
    X = X.tocsr() if scipy.sparse.issparse(X) else np.asarray(X, np.float64)
    kept = np.arange(X.shape[0])
    if not full and X.shape[0] > rows:
        kept = np.sort(np.random.default_rng(seed).choice(X.shape[0], rows, replace=False))
        X = X[kept]
    if by == "label":
        labels = np.unique(np.asarray(found.y)[kept], return_inverse=True)[1]
        n_clients = int(labels.max()) + 1
    else:
        labels = split_evenly(X.shape[0], n_clients, seed)
    width = len(str(n_clients - 1))
    parts = {f"{int(owner):0{width}d}": part for owner, part in split_rows(X, labels).items()}
    above = _threshold(parts, rule)
    owners = {owner: _zeros_and_ones(part, above) for owner, part in parts.items()}
    return owners if full else _columns(owners, columns, np.random.default_rng(seed) if pick == "random" else None)


def present() -> dict[str, bool]:
    """Say which of the sets are in the data folder."""
    here = available()
    return {name: here[known] for name, (known, _, _) in DATASETS.items()}


def _threshold(parts: Mapping[str, Any], rule: str) -> float:
    if rule == "at least 3.5":
        return 3.49
    if rule.startswith("above the"):
        # The range of log-normalised counts; a cell equal to the quantile is not above it.
        return federated_quantile(parts, 0.95, 0.0, 20.0)
    return 0.0 if rule == "above 0" else 0.5


def _zeros_and_ones(rows: Any, above: float) -> Any:
    """Compare with the threshold; a missing call is no mutation. Sparse where that is smaller."""
    if not scipy.sparse.issparse(rows):
        ones = np.nan_to_num(rows, nan=0.0) > above
        return scipy.sparse.csr_array(ones.astype(np.float32)) if ones.mean() < 0.1 else ones.astype(np.float32)
    rows = scipy.sparse.csr_array(rows, dtype=np.float32, copy=True)
    rows.data = (rows.data > above).astype(np.float32)
    rows.eliminate_zeros()
    return rows


def _columns(owners: Mapping[str, Any], most: int, rng: np.random.Generator | None) -> dict[str, Any]:
    """Keep the columns with most ones, or draw among those with any; the counts of all owners together say which."""
    counts = np.asarray(sum(np.asarray(rows.sum(axis=0)).ravel() for rows in owners.values()))
    order = np.argsort(-counts, kind="stable") if rng is None else rng.permutation(np.flatnonzero(counts))
    columns = np.sort(order[:most])
    return {name: rows[:, columns] for name, rows in owners.items()}
