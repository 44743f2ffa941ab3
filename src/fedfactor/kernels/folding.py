"""Few components out of many: what a server can do with the sums of a wider factorization."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor.kernels.factors import row_norms, unit_rows
from fedfactor.kernels.nmf import solve_rows

__all__ = ["fold_components"]

Array = np.ndarray

SWEEPS = 3
"""Sweeps of coordinate descent on each side in one alternation."""

MARGIN = 1e-9
"""Share of the loss below which two losses count as equal, so that rounding decides nothing."""


def fold_components(
    G: Any, A: Any, n_components: int, rng: np.random.Generator, *, starts: int = 8, steps: tuple[int, int, int]
) -> np.ndarray:
    r"""Find the k components that serve the data best, when U may only mix the columns of a known, wider W.

    .. math:: \min_{H \ge 0,\, V \ge 0} \|X - W H V\|^2,\qquad G = W^\top W,\; A = W^\top X

    which is ``⟨G, (HV)(HV)ᵀ⟩ − 2⟨A, HV⟩`` and a constant: no row is needed, and as many starts as one likes cost no
    further message. Each start factors the K wide components, weighted by how much of the data they carry; then H and V
    are improved on the true loss, and the best pair is improved some more.

    Parameters
    ----------
    G : array, shape (K, K)
        Gram matrix of the wide factor.
    A : array, shape (K, m)
        Products of the wide factor with the data.
    n_components : int
        k, at most K.
    rng : Generator
        Of the random starts.
    starts : int
        How many; of those that end alike, up to rounding, the first is taken.
    steps : (int, int, int)
        Alternations on the wide components, then on the true loss from every start, then from the best.

    Returns
    -------
    V : ndarray of float64, shape (k, m)
        Rows of norm 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> W, wide = rng.random((50, 4)), np.array([[1.0, 1, 0], [2, 2, 0], [0, 0, 3], [0, 0, 1]])
    >>> V = fold_components(W.T @ W, W.T @ W @ wide, 2, rng, starts=2, steps=(10, 10, 10))
    >>> bool(np.allclose(sorted(V.round(4).tolist()), [[0, 0, 1], [0.7071, 0.7071, 0]], atol=1e-3))
    True
    """
    G, A = np.asarray(G, np.float64), np.asarray(A, np.float64)
    wide = solve_rows(np.zeros(A.shape).T, G, A.T, sweeps=20).T
    weight = np.sqrt(np.diag(G))[:, None]
    stack = weight * wide
    found: tuple[float, Array, Array] | None = None
    for _ in range(starts):
        V = unit_rows(rng.exponential(size=(n_components, A.shape[1])))
        W, V = _factor(stack, V, steps[0])
        H = np.divide(W, weight, out=np.zeros_like(W), where=weight > 0)
        loss, H, V = _improve(G, A, H, V, steps[1])
        if found is None or loss < found[0] - MARGIN * abs(found[0]):
            found = loss, H, V
    assert found is not None
    return unit_rows(_improve(G, A, *found[1:], steps[2])[2])


def _factor(S: Array, V: Array, steps: int) -> tuple[Array, Array]:
    """Alternate on ``‖S − W V‖²``."""
    W = solve_rows(np.zeros((S.shape[0], V.shape[0])), V @ V.T, S @ V.T, sweeps=20)
    for _ in range(steps):
        V = solve_rows(V.T, W.T @ W, (W.T @ S).T, sweeps=SWEEPS).T
        W = solve_rows(W, V @ V.T, S @ V.T, sweeps=SWEEPS)
    return W, V


def _improve(G: Array, A: Array, H: Array, V: Array, steps: int) -> tuple[float, Array, Array]:
    """Alternate on ``⟨G, (HV)(HV)ᵀ⟩ − 2⟨A, HV⟩`` with extrapolation of V; the loss is that of what is returned."""
    last, bold, before = V, V, np.inf
    beta = 0.5
    loss = np.inf
    for _ in range(max(1, steps)):
        H = _mix(H, G, A, bold)
        small, cross = H.T @ G @ H, H.T @ A
        V = solve_rows(bold.T, small, cross.T, sweeps=SWEEPS).T
        loss = float(np.vdot(small, V @ V.T) - 2 * np.vdot(cross, V))
        good = loss <= before + MARGIN * abs(loss)
        bold = np.maximum(V + beta * (V - last), 0) if good else V
        beta = min(1.0, 1.05 * beta) if good else beta / 1.5
        norms = row_norms(bold)
        last, bold, H, before = V / norms, bold / norms, H * norms.T, loss
    return loss, H, last


def _mix(H: Array, G: Array, A: Array, V: Array) -> Array:
    """Improve H column by column, each by two sweeps of coordinate descent."""
    VV, AV = V @ V.T, A @ V.T
    columns, images = np.ascontiguousarray(H.T), np.ascontiguousarray((G @ H).T)
    for t in range(V.shape[0]):
        if VV[t, t] > 0:
            target = (AV[:, t] - VV[t] @ images + VV[t, t] * images[t]) / VV[t, t]
            columns[t] = solve_rows(columns[t : t + 1], G, target[None], sweeps=2)[0]
            images[t] = G @ columns[t]
    return columns.T
