r"""The middle of several factors whose components come in different orders.

.. math:: \min_{\bar V} \sum_c w_c \min_{P_c} \tfrac12 \|\bar V - P_c V_c\|^2

is hard to solve exactly; the functions here look for good solutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from array_api_compat import array_namespace, device

from fedfactor.core.pytree import Array
from fedfactor.linalg.alignment.assignment import Method, align_rows, is_partial, permutation, plan, unaligned_groups
from fedfactor.linalg.products import as_like

__all__ = [
    "BARYCENTERS",
    "Barycenter",
    "barycenter",
    "hierarchical",
    "matching_loss",
    "mean_start_barycenter",
    "orthogonality_gap",
    "progressive",
]

Barycenter = Literal["fixed_point", "progressive", "hierarchical"]
"""Ways to find the middle, for :func:`barycenter`."""

BARYCENTERS = get_args(Barycenter)


def barycenter(
    Vs: Sequence[Array],
    how: str = "fixed_point",
    alignment: Method = "lap",
    *,
    weights: Sequence[float] | None = None,
    start: Array | None = None,
    iterations: int = 50,
    **options: Any,
) -> tuple[Array, list[Array], Array]:
    """Find the middle of several factors, whatever the order of their rows.

    Parameters
    ----------
    Vs : sequence of arrays, shape (k, m)
        One factor for each client.
    how : {"fixed_point", "progressive", "hierarchical"}
        Align all with the middle and average, again and again; take in one factor after the other; or merge pairs, then
        pairs of pairs. The latter two go over the factors once.
    alignment, **options
        What :func:`~fedfactor.linalg.alignment.assignment.plan` takes.
    weights : sequence of float, optional
        Of the factors; all alike when not given.
    start : array, shape (k, m), optional
        Where the fixed point starts, and which order of components all three keep; the first factor when not given.
    iterations : int
        Most iterations of the fixed point.

    Returns
    -------
    V : array, shape (k, m)
        The middle.
    plans : list of arrays, shape (k, k)
        ``plans[c] @ Vs[c]`` is factor c in the order of V.
    support : array, shape (k,)
        How many factors contribute to each row; their number, unless the alignment leaves rows out.

    Notes
    -----
    Each row of V is the average over the factors that are aligned with it, not over all: dividing by their number, as
    the paper prints it, would shrink the rows that some leave alone.

    References
    ----------
    .. [1] S. Dalleiger, A. Gionis, "Creating coherence in federated non-negative matrix factorization", AAAI 2025.

    Examples
    --------
    >>> import numpy as np
    >>> V = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    >>> middle, plans, support = barycenter([V, V[::-1]])
    >>> bool((middle == V).all()), support
    (True, array([2., 2.]))
    """
    if not Vs:
        raise ValueError("A barycenter needs at least one factor, but none was given.")
    w = [1.0] * len(Vs) if weights is None else [float(value) for value in weights]
    if len(w) != len(Vs) or min(w) <= 0:
        raise ValueError(f"There must be one positive weight for each of the {len(Vs)} factors.")
    if how == "fixed_point":
        V, plans = _fixed_point(Vs, alignment, w, start, iterations, 1e-6, options)
        return V, plans, _mass(plans)
    if how == "progressive":
        V = progressive(Vs, alignment, weights=w, **options)
    elif how == "hierarchical":
        V = hierarchical(Vs, alignment, weights=w, **options)
    else:
        raise ValueError(f"how={how!r} is not known. Use one of {', '.join(BARYCENTERS)}.")
    if start is not None:
        V = align_rows(V, start)[0]
    plans = [plan(one, V, alignment, **options) for one in Vs]
    return V, plans, _mass(plans)


def _fixed_point(
    Vs: Sequence[Array],
    alignment: Method,
    weights: Sequence[float],
    start: Array | None,
    iterations: int,
    tol: float,
    options: dict[str, Any],
) -> tuple[Array, list[Array]]:
    """Align every factor with the middle, average, and repeat until the middle stands still.

    With an alignment that leaves rows alone, rows of the middle that at most one factor supports make room for rows
    that several factors have in common but the middle lacks.
    """
    V = Vs[0] if start is None else start
    xp = array_namespace(V)
    partial = is_partial(alignment) and len(Vs) > 1
    for _ in range(iterations):
        plans = [plan(one, V, alignment, **options) for one in Vs]
        filled = _refill(V, Vs, plans, **options) if partial else V
        if filled is not V:
            V = filled
            plans = [plan(one, filled, alignment, **options) for one in Vs]
        new = _average(V, Vs, plans, weights, hard=alignment == "lap")
        moved = float(xp.sum((new - V) ** 2))
        size = float(xp.sum(V * V))
        V = new
        if moved <= tol**2 * size:
            return V, plans
    return V, [plan(one, V, alignment, **options) for one in Vs]


def mean_start_barycenter(
    Vs: Sequence[Array], alignment: Method = "lap", *, iterations: int = 50, tol: float = 1e-6, **options: Any
) -> tuple[Array, list[Array]]:
    """Find a barycenter as Algorithm 1 of the paper prints it.

    Start from the plain mean of the factors; align every factor with the barycenter, average over the number of
    factors, and repeat until the barycenter moves by less than `tol` of its norm. :func:`barycenter` starts from a
    factor instead, divides each row by the mass that the plans give it, and replaces rows without support.

    Examples
    --------
    >>> import numpy as np
    >>> mean_start_barycenter([np.array([[1.0, 0.0], [0.0, 3.0]]), np.array([[3.0, 0.0], [0.0, 1.0]])])[0]
    array([[2., 0.],
           [0., 2.]])
    """
    xp = array_namespace(Vs[0])
    V = sum(Vs[1:], start=Vs[0]) / len(Vs)
    plans: list[Array] = []
    for _ in range(iterations):
        plans = [plan(one, V, alignment, **options) for one in Vs]
        aligned = [P @ one for P, one in zip(plans, Vs, strict=True)]
        new = sum(aligned[1:], start=aligned[0]) / len(Vs)
        moved = float(xp.sum((new - V) ** 2))
        size = float(xp.sum(V * V))
        V = new
        if moved <= tol**2 * size:
            break
    return V, plans


def progressive(Vs: Sequence[Array], alignment: Method = "lap", *, weights: Sequence[float], **options: Any) -> Array:
    """Take in one factor after the other: one pass, memory for one factor, and a result that depends on their order.

    Examples
    --------
    >>> import numpy as np
    >>> progressive([np.eye(2), 3 * np.eye(2)[::-1]], weights=[1, 1])
    array([[2., 0.],
           [0., 2.]])
    """
    V = Vs[0]
    w = _ones(Vs[0]) * weights[0]
    for one, weight in zip(Vs[1:], weights[1:], strict=True):
        V, w = _merge(V, w, one, _ones(one) * weight, alignment, options)
    return V


def hierarchical(Vs: Sequence[Array], alignment: Method = "lap", *, weights: Sequence[float], **options: Any) -> Array:
    """Merge factors two by two, then the results, up a binary tree; each level can run in parallel.

    Examples
    --------
    >>> import numpy as np
    >>> hierarchical([np.eye(2), 3 * np.eye(2)[::-1], 2 * np.eye(2)], weights=[1, 1, 1])
    array([[2., 0.],
           [0., 2.]])
    """
    nodes = [(V, _ones(V) * weight) for V, weight in zip(Vs, weights, strict=True)]
    while len(nodes) > 1:
        pairs = [(*nodes[i], *nodes[i + 1]) for i in range(0, len(nodes) - 1, 2)]
        odd = nodes[-1:] if len(nodes) % 2 else []
        nodes = [_merge(*pair, alignment, options) for pair in pairs] + odd
    return nodes[0][0]


def matching_loss(V: Array, Vs: Sequence[Array], alignment: Method = "lap", **options: Any) -> float:
    """Return the mean of ``½‖V − P_c V_c‖²`` over factors, each aligned in this way; rows left alone count in full.

    Examples
    --------
    >>> import numpy as np
    >>> matching_loss(np.eye(2), [np.eye(2)[::-1], 2 * np.eye(2)])
    0.5
    """
    xp = array_namespace(V)
    losses = [0.5 * float(xp.sum((V - plan(one, V, alignment, **options) @ one) ** 2)) for one in Vs]
    return sum(losses) / len(losses)


def orthogonality_gap(plans: Sequence[Array]) -> float:
    """Return the mean of ``‖PᵀP − I‖``: 0 when every plan is a permutation.

    Examples
    --------
    >>> import numpy as np
    >>> orthogonality_gap([np.eye(3)[::-1]])
    0.0
    """
    xp = array_namespace(plans[0])
    gaps = [float(xp.sqrt(xp.sum((P.T @ P - xp.eye(P.shape[1], dtype=P.dtype, device=device(P))) ** 2))) for P in plans]
    return sum(gaps) / len(gaps)


def _ones(V: Array) -> Array:
    xp = array_namespace(V)
    return xp.ones((V.shape[0], 1), dtype=V.dtype, device=device(V))


def _mass(plans: Sequence[Array]) -> Array:
    xp = array_namespace(plans[0])
    return sum(xp.sum(P, axis=1) for P in plans)


def _average(
    V: Array, Vs: Sequence[Array], plans: Sequence[Array], weights: Sequence[float], *, hard: bool = False
) -> Array:
    """Average the aligned factors row by row; a row without contributions is unchanged."""
    if hard:  # rows change places, which is cheaper than a product
        return sum(w * one[permutation(P)] for w, P, one in zip(weights, plans, Vs, strict=True)) / sum(weights)
    xp = array_namespace(V)
    total = sum(w * (P @ one) for w, P, one in zip(weights, plans, Vs, strict=True))
    mass = sum(w * xp.sum(P, axis=1, keepdims=True) for w, P in zip(weights, plans, strict=True))
    some = mass > 1e-9 * sum(weights)
    return xp.where(some, total / xp.where(some, mass, xp.ones_like(mass)), V)


def _merge(A: Array, w_A: Array, B: Array, w_B: Array, alignment: Method, options: Any) -> tuple[Array, Array]:
    P = plan(B, A, alignment, **options)
    w = w_A + P @ w_B
    return (w_A * A + P @ (w_B * B)) / w, w


def _refill(V: Array, Vs: Sequence[Array], plans: Sequence[Array], **options: Any) -> Array:
    """Give rows of the middle that at most one factor supports to what several factors have in common."""
    weak = np.flatnonzero(as_like(_mass(plans), np.empty(0)) < 1.5)
    test = {name: options[name] for name in ("alpha", "correction") if name in options}
    found = unaligned_groups(Vs, plans, **test) if weak.size else []
    if not found:
        return V
    V = array_namespace(V).asarray(V, copy=True)
    for row, (client, position) in zip(weak, found, strict=False):
        V[int(row)] = Vs[client][position]
    return V
