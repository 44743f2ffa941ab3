"""Which component of one factor belongs with which component of another.

A *plan* P assigns the rows of V to the rows of a reference: ``P V`` is V in the reference's order. Hard plans
are permutations, or leave rows out; soft plans mix rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import linear_sum_assignment

from fedfactor.core.pytree import Array
from fedfactor.linalg.alignment.significance import Correction, correlations, significant
from fedfactor.linalg.alignment.sinkhorn import transport
from fedfactor.linalg.products import as_like

__all__ = [
    "METHODS",
    "align_rows",
    "is_partial",
    "permutation",
    "plan",
    "squared_distances",
    "to_host",
    "unaligned_groups",
]
Method = Literal["lap", "lap_rho", "sinkhorn", "sinkhorn_rho", "knn", "simplex"]

METHODS = get_args(Method)
"""Ways to align: assignment, assignment of significantly correlated rows only, soft forms, nearest rows, mixtures."""

_FARTHEST = 2.0
"""The largest correlation distance ``1 − ρ``: what it costs to leave a row alone."""


def plan(
    V: Array,
    reference: Array,
    method: Method = "lap",
    *,
    alpha: float = 0.05,
    epsilon: float = 0.05,
    neighbours: int = 1,
    iterations: int = 100,
    correction: Correction = "bonferroni",
) -> Array:
    r"""Find how the rows of V stand for the rows of a reference.

    .. math:: \min_P \tfrac12 \|\mathrm{reference} - P V\|^2

    over plans of one kind.

    Parameters
    ----------
    V : array, shape (l, m)
        Components to be aligned.
    reference : array, shape (k, m)
        Components whose order counts.
    method : {"lap", "lap_rho", "sinkhorn", "sinkhorn_rho", "knn", "simplex"}
        ``lap``: one row for one row (Hungarian method). ``lap_rho``: the same on ``1 − correlation``, and only for
        pairs whose correlation is significantly positive; other rows stay alone. ``sinkhorn``: rows share their mass,
        by entropic transport. ``sinkhorn_rho``: likewise, with a place for mass that belongs to no row. ``knn``: each
        row of the reference takes the mean of its nearest rows of V, which other rows may take, too. ``simplex``: each
        row of the reference is approximated by a convex combination of rows of V, the exact minimizer under ``P1 = 1``
        and ``P ≥ 0`` (D₃ of the paper), without the constraint on columns that ``sinkhorn`` adds.
    alpha : float
        Level of the one-sided test of each correlation (``*_rho``).
    epsilon : float
        Softness of the transport, relative to the median distance (``sinkhorn``) or to correlation distances.
    neighbours : int
        Rows of V that each row of the reference takes (``knn``).
    iterations : int
        Most iterations of Sinkhorn's algorithm.
    correction : {"bonferroni", "none"}
        ``bonferroni``: `alpha` is divided by the number of pairs. ``none``: the plain z-test of each pair.

    Returns
    -------
    P : array, shape (k, l)
        Row i holds the weights of the rows of V for row i of the reference. Rows sum to 1; with the ``rho`` methods to
        0 when nothing stands for that row (between 0 and 1 when soft).

    Notes
    -----
    O(k l m) for the distances, then O(k³) for an assignment, O(k l) per Sinkhorn iteration. The distances are found
    where V lies (on a GPU, for example), the rest on the host.

    The test of a correlation takes columns for independent and roughly normal. Sparse non-negative rows are neither:
    with many columns almost any visible overlap is significant. Take ``alpha`` for a knob; lower it to demand more.

    References
    ----------
    .. [1] S. Dalleiger, A. Gionis, "Creating coherence in federated non-negative matrix factorization", AAAI 2025.
    .. [2] M. Cuturi, "Sinkhorn distances: lightspeed computation of optimal transport", NeurIPS 2013.

    Examples
    --------
    >>> import numpy as np
    >>> V = np.array([[0.0, 5.0], [3.0, 0.0]])
    >>> P = plan(V, reference=V[::-1])
    >>> P @ V
    array([[3., 0.],
           [0., 5.]])
    """
    if V.shape[1] != reference.shape[1]:
        raise ValueError(
            f"Components are rows over the same columns, but V is {tuple(V.shape)} and the reference is "
            f"{tuple(reference.shape)}."
        )
    if not np.isfinite(to_host(reference.sum() + V.sum())):
        # Components that grew beyond all numbers stand for nothing, and what they are moved by is no number either.
        return as_like(np.full((reference.shape[0], V.shape[0]), np.nan), V)
    if method == "lap" and V.shape[0] == reference.shape[0]:
        # Norms add the same to every complete assignment, so the products alone decide.
        P = _assign(-to_host(reference @ V.T))
    elif method == "lap":
        P = _assign(to_host(squared_distances(V, reference)))
    elif method == "knn":
        P = _nearest(to_host(squared_distances(V, reference)), neighbours)
    elif method == "sinkhorn":
        P = _share(to_host(squared_distances(V, reference)), epsilon, iterations)
    elif method in ("lap_rho", "sinkhorn_rho"):
        rho = to_host(correlations(V, reference))
        allowed = significant(rho, int(V.shape[1]), alpha, correction)
        P = _assign_some(rho, allowed) if method == "lap_rho" else _share_some(rho, allowed, epsilon, iterations)
    elif method == "simplex":
        P = _mixtures(to_host(V), to_host(reference))
    else:
        raise ValueError(f"method={method!r} is not known. Use one of {', '.join(METHODS)}.")
    return as_like(P, V)


def is_partial(method: Method) -> bool:
    """Return whether a method may leave rows alone.

    Examples
    --------
    >>> is_partial("lap"), is_partial("lap_rho")
    (False, True)
    """
    return method.endswith("_rho")


def permutation(P: Array) -> np.ndarray:
    """Return the order in which whole rows of V best follow a plan: ``V[order]`` is ``P V`` when P is a permutation.

    Parameters
    ----------
    P : array, shape (k, k)
        Hard or soft, complete or not. Rows that a plan leaves alone fill the places it leaves empty, in order.

    Returns
    -------
    order : ndarray of int, shape (k,)

    Examples
    --------
    >>> import numpy as np
    >>> permutation(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    array([2, 1, 0])
    """
    P = to_host(P)
    if P.shape[0] != P.shape[1]:
        raise ValueError(f"Only a square plan orders all rows, but this one is {P.shape[0]} × {P.shape[1]}.")
    return linear_sum_assignment(P, maximize=True)[1]


def align_rows(V: Array, reference: Array, method: Method = "lap", **options: Any) -> tuple[Array, np.ndarray]:
    """Put the rows of V into the reference's order, whole rows only.

    Parameters
    ----------
    V, reference : array, shape (k, m)
    method, **options
        As in :func:`plan`.

    Returns
    -------
    V : array, shape (k, m)
        The same rows in another order.
    order : ndarray of int, shape (k,)
        For the columns of U: ``U[:, order]``.

    Examples
    --------
    >>> import numpy as np
    >>> align_rows(np.array([[0.0, 1.0], [1.0, 0.0]]), np.eye(2))[1]
    array([1, 0])
    """
    order = permutation(plan(V, reference, method, **options))
    return V[order], order


def unaligned_groups(
    Vs: Sequence[Array], plans: Sequence[Array], alpha: float = 0.05, correction: Correction = "bonferroni"
) -> list[tuple[int, int]]:
    """Find rows that several factors have in common although their plans leave them alone.

    Parameters
    ----------
    Vs : sequence of arrays, shape (k, m)
    plans : sequence of arrays, shape (k, k)
        From :func:`plan`; a row counts as left alone when its column of the plan holds less than half.
    alpha, correction
        As in :func:`plan`.

    Returns
    -------
    list of (factor, row)
        One for each group of rows of at least two factors, the largest group first.

    Examples
    --------
    >>> import numpy as np
    >>> V = np.random.default_rng(0).random((2, 50))
    >>> unaligned_groups([V, V[:1]], [np.array([[0.0, 1.0]]), np.zeros((1, 1))])
    [(0, 0)]
    """
    alone = [(c, int(j)) for c, P in enumerate(plans) for j in np.flatnonzero(to_host(P).sum(axis=0) < 0.5)]
    if len({c for c, _ in alone}) < 2:
        return []
    rows = np.stack([to_host(Vs[c][j]) for c, j in alone])
    owner = np.array([c for c, _ in alone])
    # The test of `plan` divides alpha by the k² pairs of two factors; here all rows of all factors meet.
    alike = significant(correlations(rows, rows), rows.shape[1], alpha, correction)
    groups: list[tuple[int, int]] = []
    left = np.ones(len(alone), bool)
    while left.any():
        support = np.array(
            [len(set(owner[near & left])) if here else 0 for near, here in zip(alike, left, strict=True)]
        )
        best = int(support.argmax())
        if support[best] < 2:
            break
        groups.append(alone[best])
        left &= ~alike[best]
        left[best] = False
    return groups


def squared_distances(V: Array, reference: Array) -> Array:
    """Return ``‖reference_i − V_j‖²`` for all pairs, shape (k, l).

    Examples
    --------
    >>> import numpy as np
    >>> squared_distances(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([[0.],
           [2.]])
    """
    xp = array_namespace(V, reference)
    ours = xp.sum(reference * reference, axis=1)
    theirs = xp.sum(V * V, axis=1)
    return xp.clip(ours[:, None] + theirs[None, :] - 2 * (reference @ V.T), 0, None)


def _assign(cost: np.ndarray) -> np.ndarray:
    P = np.zeros(cost.shape)
    P[linear_sum_assignment(cost)] = 1
    return P


def _assign_some(rho: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    k, n = rho.shape
    # A place of its own for every row that stays alone, dearer than any allowed pair; other pairs are dearer still.
    cost = np.full((k, n + k), _FARTHEST + 1e-6)
    cost[:, :n] = np.where(allowed, 1 - rho, 1e6)
    rows, columns = linear_sum_assignment(cost)
    pairs = columns < n
    P = np.zeros((k, n))
    P[rows[pairs], columns[pairs]] = 1
    return P * allowed


def _share(cost: np.ndarray, epsilon: float, iterations: int) -> np.ndarray:
    k: int = cost.shape[0]
    n: int = cost.shape[1]
    scale = float(np.median(cost)) or float(cost.max()) or 1.0
    # Beyond ten thousand medians all is equally far; larger figures would only cost the others their digits.
    return transport(np.minimum(cost / scale, 1e4), np.ones(k), np.full(n, k / n), epsilon, iterations)


def _share_some(rho: np.ndarray, allowed: np.ndarray, epsilon: float, iterations: int) -> np.ndarray:
    k, n = rho.shape
    cost = np.full((k + 1, n + 1), _FARTHEST)
    cost[:k, :n] = np.where(allowed, 1 - rho, 1e3)
    cost[k, n] = 0.0
    # The two places for the unaligned can take everything, so that no pair is ever forced.
    rows = np.append(np.ones(k), float(n))
    columns = np.append(np.ones(n), float(k))
    P = transport(cost, rows, columns, epsilon, iterations)[:k, :n] * allowed
    # A row that finds a partner for less than half of itself is alone: averages divide by the mass, so that crumbs of a
    # strong component would otherwise fill the places of components that no other party has.
    return P * (P.sum(axis=1, keepdims=True) >= 0.5)


def _mixtures(V: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Minimize ``½‖reference_i − P_i V‖²`` over the simplex, for every row i, by accelerated projected gradient."""
    G = V @ V.T
    B = reference @ V.T
    length = 1.0 / max(float(np.linalg.norm(G, 2)), np.finfo(float).tiny)
    P = Q = np.full(B.shape, 1.0 / len(V))
    momentum = 1.0
    for _ in range(5_000):
        new = _onto_simplex(Q - length * (Q @ G - B))
        if np.vdot(Q - new, new - P) > 0:  # the extrapolation overshot: restart it
            momentum = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        moved = new - P
        P = new
        Q = new + (momentum - 1) / following * moved
        momentum = following
        if np.abs(moved).max() <= 1e-14:
            break
    return P


def _onto_simplex(Z: np.ndarray) -> np.ndarray:
    """Project each row onto the set of non-negative rows of sum 1."""
    falling = -np.sort(-Z, axis=1)
    excess = np.cumsum(falling, axis=1) - 1
    k: int = Z.shape[1]
    support = (falling * np.arange(1, k + 1) > excess).sum(axis=1)
    shift = excess[np.arange(len(Z)), support - 1] / support
    return np.maximum(Z - shift[:, None], 0)


def _nearest(cost: np.ndarray, neighbours: int) -> np.ndarray:
    k, n = cost.shape
    if not 1 <= neighbours <= n:
        raise ValueError(f"neighbours={neighbours} must lie between 1 and the {n} components there are.")
    P = np.zeros((k, n))
    np.put_along_axis(P, np.argsort(cost, axis=1, kind="stable")[:, :neighbours], 1 / neighbours, axis=1)
    return P


def to_host(A: Array) -> np.ndarray:
    """Bring a small array to the host in double precision.

    Examples
    --------
    >>> import numpy as np
    >>> to_host(np.ones(2, np.float32)).dtype
    dtype('float64')
    """
    if hasattr(A, "detach"):
        A = A.detach().cpu().numpy()
    elif hasattr(A, "get") and not isinstance(A, np.ndarray):
        A = A.get()
    return np.asarray(A, dtype=np.float64)
