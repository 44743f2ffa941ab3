"""What U and V pay under penalties, and what a row of each client counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from fedfactor.core.algorithm import Meta
from fedfactor.core.pytree import Array
from fedfactor.linalg.missing_values import Penalty, ridge_cost
from fedfactor.linalg.products import as_like, squared_norm, total

RIDGE = 4.0
"""The ridge is this often what it would be for components of equal size and as much noise as is left unexplained."""

FEW = 0.01
"""What it is for a row with as many components as observed cells when nothing is left: such a row is fitted without an
error whatever the noise. It falls with the square of their ratio."""

FIRST_MISFIT = 0.1
"""Unexplained share of the squares that a run begins with."""

UNTOLD_MISFIT = 0.001
"""The share for new rows with missing cells after a run in which none were missing, so that it was not estimated."""


def pay_of_U(algorithm: Any, n_features: int, width: int | None = None, misfit: Any = None) -> Penalty:
    """Return what U pays: scaled by the number of features as in scikit-learn, and more for a client's own components.

    With k components of equal size, a row of p observed cells and noise of a share e² of its squares, the ridge that
    predicts best is a share e² k / p of the squares of V. The e² of a run is `misfit`. Both numbers above were settled
    on eight sets, and tried on others (``claims/pooled_missing.py``).

    Examples
    --------
    >>> from fedfactor.algorithms import PooledNMF
    >>> pay_of_U(PooledNMF(2, alpha_U=0.1, l1_ratio=0.5, ridge=0.0), 10)
    Penalty(l1=0.5, l2=0.5, ridge=0.0, scarce=0.0, few=0.0)
    >>> pay_of_U(PooledNMF(2), 10, misfit=0.01).scarce
    0.08
    """
    alpha = float(algorithm.alpha_U)
    share = float(algorithm.l1_ratio)
    k = algorithm.n_components
    l2: Any = alpha * (1 - share) * n_features
    own = algorithm.n_private if width is None else width - k
    l1: Any = alpha * share * n_features
    if own and algorithm.loss in ("frobenius", 2):
        l2 = np.concatenate([np.full(k, l2), np.full(own, l2 + algorithm.private_penalty)])
    elif own:
        l1 = np.concatenate([np.full(k, l1), np.full(own, l1 + algorithm.private_penalty)])
    if algorithm.ridge != "auto":
        return Penalty(l1, l2, float(algorithm.ridge))
    found = algorithm.misfit if misfit is None else misfit
    share = float(UNTOLD_MISFIT if found is None else found)
    return Penalty(l1, l2, 0.0, RIDGE * share * (k + own), FEW * (k + own) ** 2)


def misfit_after(before: Array, up: Any) -> Array:
    """Return the unexplained share of the squares of all observed cells, which never rises; untold: as before."""
    if up.sse is None or up.total is None or not float(up.total) > 0:
        return before
    return np.float64(min(float(before), float(up.sse) / float(up.total)))


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


def paid(U: Array, pay: Penalty, X: Array, mask: Any, V: Array, ridge: Any = None) -> np.float64:
    """Return twice the penalty of U, with the ridge of rows with missing cells, which their pass may have computed."""
    xp = array_namespace(U)
    squares = xp.sum(U * U, axis=0)
    weights = np.broadcast_to(np.asarray(pay.l2, dtype=np.float64), (U.shape[1],))
    lengths = pay.l1 * total(U) if np.ndim(pay.l1) == 0 else total(U @ as_like(pay.l1, U))
    cost = 2 * lengths + sum(float(w) * float(q) for w, q in zip(weights, squares, strict=True))
    if mask is not None and (pay.ridge or pay.scarce or pay.few):
        cost += ridge_cost(U, X, mask, V, pay) if ridge is None else float(ridge)
    return np.float64(cost)


def column_lengths(U: Array) -> Array:
    """Return sums and squared norms of the columns of U, as two rows: what V may be short for when both pay."""
    xp = array_namespace(U)
    return xp.stack([xp.sum(U, axis=0), xp.sum(U * U, axis=0)])


def weight_of(weights: Any, name: str | None, n_rows: int, meta: Meta) -> float:
    """Return what one row of a client counts.

    Examples
    --------
    >>> weight_of("equal", "a", 10, Meta(3, ("a", "b"), n_rows=40)), weight_of({"a": 2.0}, "a", 10, Meta(3, ("a",)))
    (2.0, 2.0)
    """
    if not isinstance(weights, str):
        return float(weights[str(name)])
    if weights == "rows":
        return 1.0
    if weights == "mean":  # no other party's number of rows is in it
        return 1.0 / max(1, n_rows)
    return (1.0 if meta.n_rows is None else meta.n_rows / meta.n_clients) / max(1, n_rows)
