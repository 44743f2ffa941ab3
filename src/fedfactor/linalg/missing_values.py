"""Factors of data with missing entries: only observed cells count.

`mask` marks the observed cells: a boolean array like `X` (dense X; True = observed; what X holds elsewhere, NaN
included, is never read into a result), or ``"stored"`` (SciPy CSR X: the stored cells, explicit zeros included).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace, is_torch_array

from fedfactor.core.pytree import Array, is_numpy
from fedfactor.linalg.compiled.compile import kernel
from fedfactor.linalg.missing_values_pass import masked_pass, takes
from fedfactor.linalg.nnls import solve_rows
from fedfactor.linalg.products import as_like, csr_parts, over_rows, scatter_blocks, squared_norm, stored_rows, sums

__all__ = [
    "Penalty",
    "masked_step",
    "masked_sums",
    "observed_count",
    "observed_squared_norm",
    "ridge_cost",
    "row_blocks",
    "solve_rows_masked",
]
Mask = Any  # boolean array, or "stored"

# Cells of a dense block of rows: a few temporaries of this size are all that dense data adds.
_CELLS = 1 << 19
_GPU_CELLS = 1 << 26


class Penalty(NamedTuple):
    """What a row of U pays: `l1` for its sum, `l2` for its squares (a number, or one for each component), and a ridge.

    The ridge is a further weight on squares, as a share of the mean over t of ``Σ_j V_tj²`` over the row's observed
    cells: free of scale, and a function of the row alone. The share is `ridge`, plus `scarce` over the number p of
    these cells, plus `few` over p², so that rows of which little is known pay more.
    """

    l1: float = 0.0
    l2: Any = 0.0
    ridge: float = 0.0
    scarce: float = 0.0
    few: float = 0.0

    def weight(self, square: Array, cells: Array) -> Array:
        """Return each row's ridge, given its mean square of V over its observed cells, and their number."""
        return (self.ridge + (self.scarce + self.few / cells) / cells) * square

    def at(self, t: int, weight: Array) -> tuple[float, Array]:
        """Return what coordinate t pays, given each row's ridge."""
        l2 = float(self.l2 if np.ndim(self.l2) == 0 else self.l2[t])
        return self.l1, l2 + weight

    def complete(self, V: Array) -> Penalty:
        """Return what rows without missing cells pay when they shall pay as others do: their ridge is one number.

        Examples
        --------
        >>> Penalty(ridge=0.1).complete(np.array([[3.0, 1.0]]))
        Penalty(l1=0.0, l2=1.0, ridge=0.0, scarce=0.0, few=0.0)
        """
        return Penalty(self.l1, self.l2 + self.weight(squared_norm(V) / V.shape[0], V.shape[1]))


def solve_rows_masked(
    U: Array, X: Array, mask: Mask, V: Array, *, sweeps: int = 1, tol: float = 0.0, penalty: Penalty | None = None
) -> Array:
    r"""Improve each row of `U` by cyclic coordinate descent on its observed cells.

    .. math:: \min_{U \ge 0} \tfrac12 \sum_{(i,j)\,\text{observed}} (X_{ij} - U_i V_j)^2 + \text{penalty}

    Parameters
    ----------
    U : array, shape (n, k)
        Start, non-negative.
    X : array or CSR matrix, shape (n, m)
    mask : boolean array, shape (n, m), or "stored"
    V : array, shape (k, m)
    sweeps : int
        Passes over the k coordinates.
    tol : float
        A row stops after a sweep that moved it at most `tol` times as far as its first one; 0 runs all sweeps.
    penalty : Penalty, optional
        A row with fewer observed cells than components fits them whatever it is, and then estimates arbitrary values
        for the others, unless large entries cost something.

    Returns
    -------
    array, shape (n, k)

    Notes
    -----
    Row i of the result depends on row i of `U`, `X` and `mask` and on `V` only. A row without observed cells, and a
    component that is zero on all of them, stay as they are. O(k · observed) per sweep.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[2.0, np.nan]])
    >>> solve_rows_masked(np.zeros((1, 1)), X, ~np.isnan(X), np.array([[1.0, 5.0]]), sweeps=1)
    array([[2.]])
    """
    _check(X, mask)
    how = (sweeps, tol, Penalty() if penalty is None else penalty)
    if _is_stored(mask):
        return _solve_stored(X, U, V, *how)
    if sweeps and takes(X, mask, U):
        return masked_pass(X, mask, V, U, sweeps=sweeps, tol=tol, pay=how[2], sums=False).U
    if is_numpy(X) and kernel("solve_rows_stored", U.dtype) is not None:
        parts = [_solve_stored(_stored_block(X[rows], mask[rows]), U[rows], V, *how) for rows in row_blocks(X)]
    else:
        parts = [_solve_dense(X[rows], mask[rows], U[rows], V, *how) for rows in row_blocks(X)]
    return array_namespace(U).concat(parts, axis=0)


def masked_sums(U: Array, X: Array, mask: Mask, V: Array) -> tuple[Array, Array, float]:
    """Return ``N = Uᵀ(M∗X)``, ``D = Uᵀ(M∗(U V))`` (both k × m) and ``‖M∗(X − U V)‖²`` (double precision).

    ``U V`` is formed for one block of rows at a time (dense), or cell by cell (stored). The gradient of V is ``D − N``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[2.0, np.nan]])
    >>> masked_sums(np.ones((1, 1)), X, ~np.isnan(X), np.array([[1.0, 5.0]]))
    (array([[2., 0.]]), array([[1., 0.]]), 1.0)
    """
    _check(X, mask)
    if _is_stored(mask):
        return _stored_sums(U, X, V)
    if takes(X, mask, U):
        done = masked_pass(X, mask, V, U)
        return done.N, done.D, done.sse
    xp = array_namespace(U)
    N = xp.zeros_like(V)
    D = xp.zeros_like(V)
    error = 0.0
    for rows in row_blocks(X):
        M = mask[rows]
        u = U[rows]
        seen = xp.where(M, X[rows], xp.zeros_like(X[rows]))
        fitted = xp.where(M, u @ V, xp.zeros_like(seen))
        N = N + u.T @ seen
        D = D + u.T @ fitted
        error = error + squared_norm(seen - fitted)
    return N, D, error


def masked_step(
    V: Array, G: Array, N: Array, D: Array, *, sweeps: int, l1: float = 0.0, l2: float = 0.0
) -> tuple[Array, float]:
    r"""Improve V for data with missing values, and return a lower bound of the gain.

    With M the mask, ``f(V) = ½‖M ∗ (X − U V)‖²`` lies below two functions that touch it at the current V and that sums
    describe. One fills the missing cells with ``U V`` (its curvature is G, the same in every column); the other is the
    bound behind multiplicative updates (its curvature is ``D / V``, cell by cell). The first is tight when little is
    missing, the second when much is. Each column takes the one that promises more.

    Parameters
    ----------
    V : array, shape (k, m)
        Where the sums were taken.
    G : array, shape (k, k)
        ``Uᵀ U``.
    N, D : array, shape (k, m)
        ``Uᵀ(M ∗ X)`` and ``Uᵀ(M ∗ U V)``.
    sweeps : int
        Passes of coordinate descent on the first bound.
    l1, l2 : float
        Weights of ``Σ V`` and of ``½‖V‖²``, which are then part of f.

    Returns
    -------
    V_new : array, shape (k, m)
    gain : float
        By how much f falls at least.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones((1, 1))
    >>> masked_step(one, one, 3 * one, one, sweeps=1)
    (array([[3.]]), 2.0)
    """
    xp = array_namespace(V)
    slope = D - N
    filled = solve_rows(V.T, G, (G @ V - slope).T, sweeps=sweeps, l1=l1, l2=l2).T
    move = filled - V
    paid = slope + l1 + l2 * V  # slope of f, penalties included
    gain_filled = -xp.sum(paid * move + 0.5 * move * (G @ move + l2 * move), axis=0)
    cost = D + l1 + l2 * V
    safe = xp.where(cost > 0, cost, xp.ones_like(D))
    scaled = xp.where(cost > 0, V * N / safe, V)
    move = scaled - V
    curvature = xp.where(V > 0, D / xp.where(V > 0, V, xp.ones_like(V)), xp.zeros_like(V)) + l2
    gain_scaled = -xp.sum(paid * move + 0.5 * curvature * move * move, axis=0)
    better = gain_scaled > gain_filled
    gain = xp.where(better, gain_scaled, gain_filled)
    return xp.where(better[None, :], scaled, filled), float(xp.sum(xp.astype(gain, xp.float64)))


def ridge_cost(U: Array, X: Array, mask: Mask, V: Array, penalty: Penalty) -> float:
    """Return ``Σ_i q_i ‖U_i‖²`` with ``q_i`` the ridge of row i.

    Examples
    --------
    >>> import numpy as np
    >>> seen = np.array([[True, False]])
    >>> ridge_cost(np.array([[2.0]]), np.ones((1, 2)), seen, np.array([[3.0, 1.0]]), Penalty(ridge=0.5))
    18.0
    """
    xp = array_namespace(U)
    square = xp.mean(V * V, axis=0)
    lengths = xp.sum(U * U, axis=1)
    if _is_stored(mask):
        count = np.diff(X.indptr)
        cells = np.repeat(lengths * penalty.weight(1.0, np.maximum(count, 1)), count) * square[X.indices]
        return float(cells.sum(dtype=np.float64))
    cost = 0.0
    for rows in row_blocks(X):
        seen = xp.astype(mask[rows], U.dtype)
        cost += float(lengths[rows] @ penalty.weight(seen @ square, _counted(seen)))
    return cost


def observed_squared_norm(X: Array, mask: Mask) -> float:
    """Return the sum of squares of the observed cells, in double precision.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[3.0, np.nan]])
    >>> observed_squared_norm(X, ~np.isnan(X))
    9.0
    """
    _check(X, mask)
    if _is_stored(mask):
        return squared_norm(X)
    return sum((squared_norm(X[rows][mask[rows]]) for rows in row_blocks(X)), 0.0)


def observed_count(X: Array, mask: Mask) -> int:
    """Return the number of observed cells.

    Examples
    --------
    >>> import numpy as np
    >>> observed_count(np.ones((1, 2)), np.array([[True, False]]))
    1
    """
    _check(X, mask)
    return int(X.indptr[-1]) if _is_stored(mask) else int(mask.sum())


def row_blocks(X: Array) -> list[slice]:
    """Cut dense rows into blocks of bounded size, by shape only; no rows are one empty block.

    Examples
    --------
    >>> import numpy as np
    >>> row_blocks(np.zeros((3, 1 << 18)))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    # A GPU needs long blocks to be busy; a block of a processor stays in its cache.
    cells = _GPU_CELLS if getattr(X, "is_cuda", False) else _CELLS
    rows = max(1, cells // max(1, X.shape[1]))
    return [slice(start, min(start + rows, X.shape[0])) for start in range(0, max(1, X.shape[0]), rows)]


def _is_stored(mask: Mask) -> bool:
    return isinstance(mask, str)


def _check(X: Array, mask: Mask) -> None:
    sparse = scipy.sparse.issparse(X)
    if _is_stored(mask):
        if mask != "stored" or not sparse or X.format != "csr":
            raise ValueError(
                f"mask={mask!r} with X of type {type(X).__name__}: the only named mask is 'stored', and it needs a "
                "SciPy CSR matrix (X.tocsr()). For dense X pass a boolean array."
            )
    elif sparse or tuple(mask.shape) != tuple(X.shape) or "bool" not in str(mask.dtype):
        raise ValueError(
            "mask must be a boolean array of the shape of a dense X, True where a cell was observed. For sparse X, "
            "whose stored cells are the observed ones, pass mask='stored'."
        )


def _stored_block(X: np.ndarray, mask: np.ndarray) -> scipy.sparse.csr_array:
    """Return the observed cells of a dense block as CSR."""
    indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(mask, axis=1)))).astype(np.int32)
    return scipy.sparse.csr_array((X[mask], np.nonzero(mask)[1].astype(np.int32), indptr), shape=X.shape)


def _solve_stored(X: Array, U: np.ndarray, V: np.ndarray, sweeps: int, tol: float, pay: Penalty) -> np.ndarray:
    run = kernel("solve_rows_stored", U.dtype, X.indices.dtype)
    if run is None:
        return _solve_cells(X, U, V, sweeps, tol, pay)
    parts = csr_parts(X, U.dtype)
    start, Vt = np.ascontiguousarray(U), np.ascontiguousarray(as_like(V, U).T)
    out = np.empty(U.shape, U.dtype)
    blocks = 1 if X.nnz * U.shape[1] * sweeps < 200_000 else 16
    l2 = np.broadcast_to(np.asarray(pay.l2, U.dtype), (1, U.shape[1])).copy()
    ridge = np.array([pay.ridge, pay.scarce, pay.few], U.dtype)
    over_rows(lambda _, a, b: run(*parts, start, Vt, a, b, sweeps, tol, pay.l1, l2, ridge, out), parts[0], blocks)
    return out


def _solve_cells(X: Array, U: np.ndarray, V: np.ndarray, sweeps: int, tol: float, pay: Penalty) -> np.ndarray:
    """Do the same without numba: one coordinate of all rows at a time, on vectors as long as the stored cells."""
    n, rows = X.shape[0], stored_rows(X)
    Ut = U.T.copy()
    residual = X.data.astype(U.dtype)
    for t in range(V.shape[0]):
        residual -= Ut[t][rows] * V[t][X.indices]

    square = np.bincount(rows, np.mean(V * V, axis=0)[X.indices], n).astype(U.dtype)
    weight = pay.weight(square, np.maximum(np.diff(X.indptr), 1).astype(U.dtype))

    def coordinate(t: int, live: Array) -> np.ndarray:
        nonlocal residual
        v = V[t][X.indices]
        norms = np.bincount(rows, v * v, n).astype(U.dtype)
        delta = _step(Ut[t], np.bincount(rows, v * residual, n).astype(U.dtype), norms, live, pay.at(t, weight))
        residual -= delta[rows] * v
        return delta

    return np.ascontiguousarray(_sweep(Ut, coordinate, sweeps, tol).T)


def _solve_dense(X: Array, M: Array, U: Array, V: Array, sweeps: int, tol: float, pay: Penalty) -> Array:
    """Do the same on a block of dense rows: for torch, and without numba."""
    xp = array_namespace(U)
    Ut = xp.asarray(U.T, copy=True)
    seen = xp.astype(M, U.dtype)
    residual = xp.where(M, X - U @ V, xp.zeros_like(X))
    weight = pay.weight(seen @ xp.mean(V * V, axis=0), _counted(seen))

    def coordinate(t: int, live: Array) -> Array:
        nonlocal residual
        delta = _step(Ut[t], residual @ V[t], seen @ (V[t] * V[t]), live, pay.at(t, weight))
        residual = residual - seen * (delta[:, None] * V[t][None, :])
        return delta

    out = _sweep(Ut, coordinate, sweeps, tol).T
    return out.contiguous() if is_torch_array(out) else np.ascontiguousarray(out)


def _counted(seen: Array) -> Array:
    """Count the observed cells of each row; none counts as one, which then pays for nothing."""
    return array_namespace(seen).clip(seen.sum(axis=1), 1, None)


def _step(u: Array, correlation: Array, norms: Array, live: Array | None, pay: tuple[float, Array]) -> Array:
    """Return the change of one coordinate of all rows; none where its column is zero on the observed cells."""
    xp = array_namespace(u)
    able = norms > 0 if live is None else (norms > 0) & live
    l1, l2 = pay
    delta = xp.clip((u * norms + correlation - l1) / xp.where(able, norms + l2, xp.ones_like(norms)), 0, None) - u
    return xp.where(able, delta, xp.zeros_like(u))


def _sweep(Ut: Array, coordinate: Any, sweeps: int, tol: float) -> Array:
    """Apply `coordinate` to t = 0..k-1, `sweeps` times, resting the rows that have settled."""
    xp = array_namespace(Ut)
    live = None
    first = 0.0
    for sweep in range(sweeps):
        moved = xp.zeros_like(Ut[0])
        for t in range(Ut.shape[0]):
            delta = coordinate(t, live)
            Ut[t] += delta
            moved = moved + delta * delta
        if tol > 0:
            first = moved if sweep == 0 else first
            live = moved > tol**2 * first if live is None else live & (moved > tol**2 * first)
            if not bool(xp.any(live)):
                break
    return Ut


def _stored_sums(U: np.ndarray, X: Array, V: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    run = kernel("stored_sums", U.dtype, X.indices.dtype)
    if run is None:
        return _cell_sums(U, X, V)
    parts = csr_parts(X, U.dtype)
    U, Vt = np.ascontiguousarray(U), np.ascontiguousarray(as_like(V, U).T)
    blocks = max(1, scatter_blocks(X, U.shape[1]) // 2)
    buffers = np.zeros((2, blocks, *Vt.shape), U.dtype)
    errors = np.zeros(blocks)

    def share(block: int, start: int, stop: int) -> None:
        errors[block] = run(*parts, U, Vt, start, stop, buffers[0, block], buffers[1, block])

    over_rows(share, parts[0], blocks)
    for b in range(1, blocks):
        buffers[:, 0] += buffers[:, b]
    return np.ascontiguousarray(buffers[0, 0].T), np.ascontiguousarray(buffers[1, 0].T), float(errors.sum())


def _cell_sums(U: np.ndarray, X: Array, V: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Do the same without numba."""
    rows = stored_rows(X)
    fitted = np.zeros(X.indices.shape, U.dtype)
    for t in range(V.shape[0]):
        fitted += U[:, t][rows] * V[t][X.indices]
    model = scipy.sparse.csr_array((fitted, X.indices, X.indptr), shape=X.shape)
    return sums(U, X), sums(U, model), squared_norm(X.data - fitted)
