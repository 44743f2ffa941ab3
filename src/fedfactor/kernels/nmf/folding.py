"""Few components out of many: what a server can do with the sums of a wider factorization."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from fedfactor.kernels.compiled import kernel
from fedfactor.kernels.factors import row_norms, unit_rows
from fedfactor.kernels.loops.nmf import fold_columns
from fedfactor.kernels.nmf.steps import solve_rows
from fedfactor.threads import for_blocks

__all__ = ["fold_components"]

Array = np.ndarray

SWEEPS = 5
"""Sweeps of coordinate descent on each side in one alternation."""

MARGIN = 1e-9
"""Share of the loss below which two losses count as equal, so that rounding decides nothing."""


def fold_components(
    G: Any, A: Any, wide: Any, n_components: int, rng: np.random.Generator, *, starts: int, steps: tuple[int, int, int]
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
    wide : array, shape (K, m)
        The wide components, non-negative: about the best for G and A.
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
    >>> V = fold_components(W.T @ W, W.T @ W @ wide, wide, 2, rng, starts=2, steps=(10, 10, 10))
    >>> bool(np.allclose(sorted(V.round(4).tolist()), [[0, 0, 1], [0.7071, 0.7071, 0]], atol=1e-3))
    True
    """
    G, A, wide = (np.asarray(part, np.float64) for part in (G, A, wide))
    weight = np.sqrt(np.diag(G))[:, None]
    stack = weight * wide
    first = [unit_rows(rng.exponential(size=(n_components, A.shape[1]))) for _ in range(starts)]
    ends: dict[int, tuple[Array, Array, float]] = {}

    def descend(start: int, _: int) -> None:
        W, V = _descend(_Stack(stack), first[start], steps[0])[:2]
        H = np.divide(W, weight, out=np.zeros_like(W), where=weight > 0)
        ends[start] = _descend(_Sums(G, A, H), V, steps[1])

    for_blocks(descend, starts, 1)
    H, V, best = ends[0]
    for start in range(1, starts):
        if ends[start][2] < best - MARGIN * abs(best):
            H, V, best = ends[start]
    return unit_rows(_descend(_Sums(G, A, H), V, steps[2])[1])


class _Stack:
    """The problem ``‖S − W V‖²``."""

    def __init__(self, S: Array) -> None:
        self.S = S
        self.left: Array | None = None

    def improve(self, V: Array) -> tuple[Array, Array]:
        """Sweep over W; return what V then depends on."""
        fresh = self.left is None
        left = np.zeros((self.S.shape[0], V.shape[0])) if self.left is None else self.left
        left = self.left = solve_rows(left, V @ V.T, self.S @ V.T, sweeps=20 if fresh else SWEEPS)
        return left.T @ left, left.T @ self.S


class _Sums:
    """The problem ``‖X − W H V‖²``, known by G and A."""

    def __init__(self, G: Array, A: Array, H: Array) -> None:
        self.G, self.A = G, A
        self.left: Array | None = H

    def improve(self, V: Array) -> tuple[Array, Array]:
        """Improve H column by column, each by two sweeps of coordinate descent; return what V then depends on."""
        VV, AV = V @ V.T, self.A @ V.T
        assert self.left is not None
        columns = np.array(self.left.T, order="C")
        images = columns @ self.G
        run = kernel("fold_columns", self.G.dtype)
        (fold_columns if run is None else run)(self.G, AV, VV, columns, images, 2)
        self.left = columns.T
        return images @ self.left, columns @ self.A


def _descend(problem: _Stack | _Sums, V: Array, steps: int) -> tuple[Array, Array, float]:
    """Alternate, extrapolating V while the loss (less a constant) falls; return the left factor, V, and the loss."""
    last, bold, before, beta = V, V, np.inf, 0.5
    loss = np.inf
    for _ in range(max(1, steps)):
        small, cross = problem.improve(bold)
        V = solve_rows(bold.T, small, cross.T, sweeps=SWEEPS).T
        loss = float(np.vdot(small, V @ V.T) - 2 * np.vdot(cross, V))
        good = loss <= before + MARGIN * abs(loss)
        bold = np.maximum(V + beta * (V - last), 0) if good else V
        beta = min(1.0, 1.05 * beta) if good else beta / 1.5
        norms = row_norms(bold)
        last, bold, before = V / norms, bold / norms, loss
        problem.left = problem.left * norms.T
    return cast("Array", problem.left), last, loss
