"""What U and V pay under penalties, and what a row of each owner counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from fedfactor.core.protocol import Meta
from fedfactor.core.tree import Array
from fedfactor.kernels.nmf.missing_cells import Penalty, ridge_cost
from fedfactor.kernels.products import squared_norm, total


def pay_of_U(algorithm: Any, n_features: int, width: int | None = None) -> Penalty:
    """Return what U pays: scaled by the number of features as in scikit-learn, and more for an owner's own components.

    Examples
    --------
    >>> from fedfactor.algorithms import PooledNMF
    >>> pay_of_U(PooledNMF(2, alpha_U=0.1, l1_ratio=0.5, ridge=0.0), 10)
    Penalty(l1=0.5, l2=0.5, ridge=0.0)
    """
    alpha, share, k = float(algorithm.alpha_U), float(algorithm.l1_ratio), algorithm.n_components
    l2: Any = alpha * (1 - share) * n_features
    own = algorithm.n_private if width is None else width - k
    if own:
        l2 = np.concatenate([np.full(k, l2), np.full(own, l2 + algorithm.private_penalty)])
    return Penalty(alpha * share * n_features, l2, float(algorithm.ridge))


def pay_of_V(algorithm: Any, n_rows: float) -> tuple[float, float]:
    """Return what V pays for its sum and for its squares, scaled by the number of rows as in scikit-learn."""
    alpha = float(algorithm.alpha_U if algorithm.alpha_V == "same" else algorithm.alpha_V)
    share = float(algorithm.l1_ratio)
    return (alpha * share * n_rows, alpha * (1 - share) * n_rows) if alpha else (0.0, 0.0)


def price(V: Array, pay: tuple[float, float]) -> float:
    """Return what V pays.

    Examples
    --------
    >>> price(np.array([[1.0, 3.0]]), (0.5, 0.1))
    2.5
    """
    return (pay[0] * total(V) if pay[0] else 0.0) + (0.5 * pay[1] * squared_norm(V) if pay[1] else 0.0)


def paid(U: Array, pay: Penalty, X: Array, mask: Any, V: Array) -> np.float64:
    """Return twice what U pays, the ridge of rows with missing cells included."""
    xp = array_namespace(U)
    squares = xp.sum(U * U, axis=0)
    weights = np.broadcast_to(np.asarray(pay.l2, dtype=np.float64), (U.shape[1],))
    cost = 2 * pay.l1 * total(U) + sum(float(w) * float(q) for w, q in zip(weights, squares, strict=True))
    if mask is not None and pay.ridge:
        cost += pay.ridge * ridge_cost(U, X, mask, V)
    return np.float64(cost)


def column_lengths(U: Array) -> Array:
    """Return sums and squared norms of the columns of U, as two rows: what V may be short for when both pay."""
    xp = array_namespace(U)
    return xp.stack([xp.sum(U, axis=0), xp.sum(U * U, axis=0)])


def weight_of(weights: Any, name: str | None, n_rows: int, meta: Meta) -> float:
    """Return what one row of an owner counts.

    Examples
    --------
    >>> weight_of("equal", "a", 10, Meta(3, ("a", "b"), n_rows=40)), weight_of({"a": 2.0}, "a", 10, Meta(3, ("a",)))
    (2.0, 2.0)
    """
    if not isinstance(weights, str):
        return float(weights[str(name)])
    if weights == "rows":
        return 1.0
    if weights == "mean":  # nobody else's number of rows is in it
        return 1.0 / max(1, n_rows)
    return (1.0 if meta.n_rows is None else meta.n_rows / meta.n_clients) / max(1, n_rows)
