"""Few components out of many: what a server can do with the sums of a wider factorization."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor.core.threads import for_blocks
from fedfactor.linalg.compiled.compile import aligned, kernel
from fedfactor.linalg.compiled.nmf_loops import fold_columns
from fedfactor.linalg.factors import unit_rows
from fedfactor.linalg.nnls import solve_rows

__all__ = ["fold_components"]

Array = np.ndarray

SWEEPS = 5
"""Sweeps of coordinate descent on each side in one alternation."""

FIRST_SWEEPS = 20
"""Sweeps over a left factor that begins at zero."""

MARGIN = {"d": 1e-9, "f": 1e-7}
"""Share of the loss below which two losses count as equal, so that rounding decides nothing; by precision."""


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
    real = np.float32 if np.asarray(A).dtype == np.float32 else np.float64
    G, A, wide = (np.asarray(part, real) for part in (G, A, wide))
    weight = np.sqrt(np.diag(G))[:, None]
    first = [unit_rows(rng.exponential(size=(n_components, A.shape[1]))).astype(real) for _ in range(starts)]
    ends: dict[int, tuple[Array, Array, float]] = {}
    stack, sums = _Problem(weight * wide), _Problem(A, G)

    def descend(start: int, _: int) -> None:
        W, V = stack.descend(np.zeros((len(G), n_components), real), first[start], steps[0])[:2]
        H = np.divide(W, weight, out=np.zeros_like(W), where=weight > 0)
        ends[start] = sums.descend(H, V, steps[1])

    for_blocks(descend, starts, 1)
    H, V, best = ends[0]
    for start in range(1, starts):
        if ends[start][2] < best - MARGIN[A.dtype.char] * abs(best):
            H, V, best = ends[start]
    return unit_rows(sums.descend(H, V, steps[2])[1]).astype(np.float64)


class _Problem:
    """``‖R − left V‖²``; with the Gram matrix of the data's own left factor: ``‖X − W left V‖²``, of which R is WᵀX."""

    def __init__(self, R: Array, G: Array | None = None) -> None:
        self.R = R
        self.G = G
        self._run: Any = kernel("fold_start", R.dtype)
        if self._run is None:
            return
        from fedfactor.linalg.compiled import vector_code as vectors

        self._vectors = vectors
        # Registers are read fastest from addresses that are a multiple of their size, so columns are padded with zeros.
        self._across = vectors.width(R.itemsize)
        self.R = aligned((R.shape[0], -(-R.shape[1] // self._across) * self._across), R.dtype)
        self.R[:, : R.shape[1]] = R

    def descend(self, left: Array, V: Array, steps: int) -> tuple[Array, Array, float]:
        """Alternate, extrapolating V while the loss (less a constant) falls; return the left factor, V, and the loss.

        Nothing depends on how long the rows of V are: what they gain the columns of the left factor lose.
        """
        if self._run is None:
            return self._step_by_step(left, V, steps)
        real, k, (m, wide) = self.R.dtype, V.shape[0], (V.shape[1], self.R.shape[1])
        padded = -(-k // self._vectors.TILE) * self._vectors.TILE
        lanes = self._vectors.GROUP * self._across
        left = np.array(left, order="C")
        bold = aligned((k, wide), real)
        last = aligned((k, wide), real)
        bold[:, :m] = last[:, :m] = V
        flat = aligned((1, padded * (wide + 2 * self._across)), real)
        W, B, ends = (aligned(shape, real) for shape in ((padded, lanes), (padded, lanes), (lanes, 2 * self._across)))
        G = np.zeros((0, 0), real) if self.G is None else self.G
        loss = self._run(
            self.R,
            G,
            left,
            bold,
            last,
            aligned((padded, wide), np.dtype(np.float64)),
            flat,
            W,
            B,
            ends,
            aligned((padded * lanes * self._across,), real),
            self._across,
            max(1, steps),
            SWEEPS,
            FIRST_SWEEPS,
            MARGIN[real.char],
        )
        return left, last[:, :m], loss

    def _step_by_step(self, left: Array, V: Array, steps: int) -> tuple[Array, Array, float]:
        last = V
        bold = V
        before = np.inf
        beta = 0.5
        loss = np.inf
        for step in range(max(1, steps)):
            VV = bold @ bold.T
            RV = self.R @ bold.T
            if self.G is None:
                left = solve_rows(left, VV, RV, sweeps=SWEEPS if step else FIRST_SWEEPS)
                small = left.T @ left
            else:
                columns = np.array(left.T, order="C")
                images = columns @ self.G
                fold_columns(self.G, RV, VV, columns, images, 2)
                left = columns.T
                small = images @ columns.T
            cross = left.T @ self.R
            V = solve_rows(bold.T, small, cross.T, sweeps=SWEEPS).T
            loss = float(np.vdot(small, V @ V.T) - 2 * np.vdot(cross, V))
            good = loss <= before + MARGIN[V.dtype.char] * abs(loss)
            bold = np.maximum(V + V.dtype.type(beta) * (V - last), 0) if good else V
            beta = min(1.0, 1.05 * beta) if good else beta / 1.5
            last = V
            before = loss
        return left, last, loss
