"""Steps of non-negative least squares for one factor, the other held fixed.

All work on ``½⟨W G, W⟩ − ⟨W, B⟩`` over ``W ≥ 0`` with W (n × k), G (k × k), B (n × k): for U take ``G = V Vᵀ``,
``B = X Vᵀ``; for V pass ``W = Vᵀ``, ``G = UᵀU``, ``B = (UᵀX)ᵀ``. Nothing is written to the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, nan
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array

from fedfactor.core.pytree import Array, is_numpy
from fedfactor.core.threads import for_blocks
from fedfactor.linalg.compiled.compile import aligned, kernel
from fedfactor.linalg.cuda import launch as cuda
from fedfactor.linalg.products import as_like

__all__ = [
    "account",
    "gradient_step",
    "lipschitz",
    "multiplicative_step",
    "objective",
    "solve_and_account",
    "solve_rows",
    "squared_error",
]


def solve_rows(
    W: Array, G: Array, B: Array, *, sweeps: int = 1, tol: float = 0.0, l1: float = 0.0, l2: Any = 0.0
) -> Array:
    r"""Improve each row of `W` by cyclic coordinate descent (HALS).

    .. math:: \min_{W \ge 0} \tfrac12\langle WG, W\rangle - \langle W, B\rangle + l_1 \sum W + \tfrac{l_2}{2}\|W\|^2

    Parameters
    ----------
    W : array, shape (n, k)
        Start, non-negative.
    G : array, shape (k, k)
        Gram matrix of the fixed factor, symmetric.
    B : array, shape (n, k)
        Products of the data with the fixed factor.
    sweeps : int
        Passes over the k coordinates.
    tol : float
        A row stops after a sweep that moved it at most `tol` times as far as its first one; 0 runs all sweeps.
    l1, l2 : float
        Weights of the penalties; `l2` may be an array with one weight for each component.

    Returns
    -------
    array, shape (n, k)
        In the memory order of `W`.

    Notes
    -----
    Row i of the result depends on row i of `W` and `B` and on `G` only. Coordinates with ``G_tt + l2 ≤ 0`` stay as they
    are. O(n k²) per sweep; the compiled path adds a few kilobytes, the other one a copy of `W` and of `B`.

    References
    ----------
    .. [1] A. Cichocki, A.-H. Phan, "Fast local algorithms for large scale nonnegative matrix and tensor
       factorizations",
       IEICE Trans. Fundamentals E92-A (2009). doi:10.1587/transfun.E92.A.708

    Examples
    --------
    >>> import numpy as np
    >>> solve_rows(np.zeros((1, 2)), np.eye(2), np.array([[3.0, -1.0]]))
    array([[3., 0.]])
    """
    G = with_l2(G, l2)
    if is_numpy(W):
        run = kernel("sweep_rows", W.dtype)
        if run is not None:
            return _solve_compiled(run, W, G, B, sweeps, tol, l1)
    elif cuda.ready(W, W.shape[1]) and W.dtype == B.dtype:
        return _in_order_of(cuda.sweep(W.T, G, B.T, sweeps=sweeps, tol=tol, l1=l1).T, W)
    return _solve_columns(W, G, B, sweeps, tol, l1)


def solve_and_account(W: Array, G: Array, B: Array, sq_norm: float, *, sweeps: int) -> tuple[Array, Any]:
    """Return what :func:`solve_rows` returns, and the squared error there as :func:`account` computes it.

    Compiled, both come from one pass over the factor; products of single precision are summed in it over a hundred
    cells, and then in double.

    Examples
    --------
    >>> solve_and_account(np.zeros((1, 1)), np.array([[2.0]]), np.array([[6.0]]), 20.0, sweeps=1)
    (array([[3.]]), 2.0)
    """
    run = kernel("sweep_rows", W.dtype) if is_numpy(W) else None
    if run is None:
        W = solve_rows(W, G, B, sweeps=sweeps)
        return W, account(sq_norm, B.T, G, W.T)
    found: list[np.ndarray] = []
    W = _solve_compiled(run, W, G, B, sweeps, 0.0, 0.0, found)
    told: np.ndarray = sum(found[1:], found[0]) if found else np.zeros((W.shape[1] + 1, W.shape[1]))
    return W, max(float(sq_norm) + float(_doubles(G)[0].ravel() @ told[:-1].ravel()) - 2 * float(told[-1, 0]), 0.0)


def with_l2(G: Array, l2: Any) -> Array:
    """Return a Gram matrix with the weights of squares on its diagonal; the same one when there are none.

    Examples
    --------
    >>> with_l2(np.eye(2), [1.0, 2.0])
    array([[2., 0.],
           [0., 3.]])
    """
    if (isinstance(l2, float) and l2 == 0.0) or not np.any(l2):
        return G
    eye = array_namespace(G).eye(G.shape[0], dtype=G.dtype, device=device(G))
    return G + (float(l2) if np.ndim(l2) == 0 else as_like(np.asarray(l2), G)) * eye


def inverse_diagonal(G: np.ndarray) -> np.ndarray:
    """Return ``1 / G_tt`` as a row, 0 where G_tt is not above 0 (or so small that its inverse is not finite).

    Examples
    --------
    >>> inverse_diagonal(np.diag([4.0, 0.0]))
    array([[0.25, 0.  ]])
    """
    h = np.diagonal(G)
    with np.errstate(over="ignore", divide="ignore"):
        inverse = np.where(h > 0, 1 / np.where(h > 0, h, 1), 0)
    return np.where(np.isfinite(inverse), inverse, 0)[None].astype(G.dtype)


def _solve_compiled(
    run: Callable[..., Any],
    W: np.ndarray,
    G: Array,
    B: Array,
    sweeps: int,
    tol: float,
    l1: float,
    told: list[np.ndarray] | None = None,
) -> np.ndarray:
    """Sweep; blocks leave products of the result in `told`, where it is given."""
    from fedfactor.linalg.compiled import vector_code as vectors

    n, k = W.shape
    out = np.empty_like(W, subok=False)
    G = np.ascontiguousarray(G, dtype=W.dtype)
    B = np.asarray(B, dtype=W.dtype)
    inverse = inverse_diagonal(G)
    lanes = vectors.GROUP * vectors.width(W.dtype.itemsize)
    # Blocks of some hundred microseconds: long enough to be worth a thread. Rows are alike wherever the cuts fall.
    block = lanes * max(1, 12_000_000 // (lanes * k * (k + 16) * max(1, sweeps)))

    sums = np.zeros((0 if told is None else -(-n // block), k + 1, k))
    if told is not None:
        told.extend(sums)
    nothing = np.zeros((0, k))

    def part(start: int, stop: int) -> None:
        scratch = aligned((2, k, lanes), W.dtype)
        H = sums[start // block] if len(sums) else nothing
        run(W.T, B.T, G, inverse, out.T, start, stop, sweeps, l1, tol, scratch[0], scratch[1], H)

    for_blocks(part, n, block)
    return out


def _solve_columns(W: Array, G: Array, B: Array, sweeps: int, tol: float, l1: float) -> Array:
    """Do the same, one coordinate of all rows at a time: for torch, and where numba is absent."""
    xp = array_namespace(W)
    # Transposed, so that a coordinate of all rows is one contiguous vector; added to zero, as that copies in any
    # library.
    Wt = xp.zeros((W.shape[1], W.shape[0]), dtype=W.dtype, device=device(W))
    Bt = B.T
    Wt += W.T
    diagonal = [float(h) for h in xp.linalg.diagonal(G)] if is_numpy(G) else xp.linalg.diagonal(G).tolist()
    live = None
    first = 0.0
    for sweep in range(sweeps):
        before = xp.asarray(Wt, copy=True) if tol > 0 else None
        for t, h in enumerate(diagonal):
            if h <= 0:
                continue
            new = xp.clip(Wt[t] - (G[t] @ Wt - Bt[t] + l1) / h, 0, None)
            Wt[t] = new if live is None else xp.where(live, new, Wt[t])
        if tol > 0:
            moved = xp.sum((Wt - before) ** 2, axis=0)
            first = moved if sweep == 0 else first
            going = moved > tol**2 * first
            live = going if live is None else live & going
            if not bool(xp.any(live)):
                break
    return _in_order_of(Wt.T, W)


def _in_order_of(A: Array, W: Array) -> Array:
    """Return `A` in the memory order of `W`, so that a V passed as Vᵀ comes back contiguous."""
    if is_torch_array(W):
        return A.T.contiguous().T if W.T.is_contiguous() and not W.is_contiguous() else A.contiguous()
    if is_numpy(W):
        return np.asarray(A, order="F" if W.flags.f_contiguous and not W.flags.c_contiguous else "C")
    return A


def lipschitz(G: Array) -> float:
    """Return ``‖G‖₂`` of a Gram matrix, or the smallest normal number where that is zero, so that it can be divided by.

    That of a factor which has grown beyond all numbers is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> round(lipschitz(np.diag([1.0, 4.0])), 12)
    4.0
    """
    xp = array_namespace(G)
    least = float(xp.finfo(G.dtype).smallest_normal)  # any larger one would be a step too short for data in small units
    if not isfinite(float(xp.sum(G))):  # which has no eigenvalues: what follows is no number either
        return nan
    return max(float(xp.linalg.eigvalsh(G)[-1]), least) if G.shape[0] else least


def gradient_step(W: Array, G: Array, B: Array, *, step: float | None = None) -> Array:
    """Take one projected gradient step ``[W − step (W G − B)]₊``; the step is ``1/‖G‖₂`` unless given.

    Examples
    --------
    >>> import numpy as np
    >>> gradient_step(np.zeros((1, 2)), np.eye(2), np.array([[3.0, -1.0]]))
    array([[3., 0.]])
    """
    step = 1.0 / lipschitz(G) if step is None else step
    return array_namespace(W).clip(W - step * (W @ G - B), 0, None)


def multiplicative_step(W: Array, G: Array, B: Array, *, eps: float = 0.0) -> Array:
    """Take one multiplicative step ``W ∗ [B]₊ / (W G + eps)`` (Lee and Seung); zeros stay zero.

    Without `eps` the step is the same whatever the unit of the data. Where ``W G`` is zero, so is ``W ∗ B``.

    Examples
    --------
    >>> import numpy as np
    >>> multiplicative_step(np.array([[1.0]]), np.array([[2.0]]), np.array([[6.0]]))
    array([[3.]])
    """
    xp = array_namespace(W)
    below = W @ G + eps
    return W * xp.clip(B, 0, None) / xp.where(below > 0, below, xp.ones_like(below))


def objective(W: Array, G: Array, B: Array, *, l1: float = 0.0, l2: float = 0.0) -> float:
    """Return ``½⟨W G, W⟩ − ⟨W, B⟩ + l1 ΣW + (l2/2)‖W‖²``, in double precision.

    Examples
    --------
    >>> import numpy as np
    >>> objective(np.array([[3.0]]), np.eye(1), np.array([[3.0]]))
    -4.5
    """
    W, G, B = _doubles(W, G, B)
    xp = array_namespace(W)
    value = 0.5 * xp.sum((W @ G) * W) - xp.sum(W * B) + l1 * xp.sum(W) + 0.5 * l2 * xp.sum(W * W)
    return float(value)


def squared_error(sq_norm: float, A: Array, G: Array, V: Array) -> float:
    """Return ``‖X − U V‖²`` from ``‖X‖²``, ``A = UᵀX`` and ``G = UᵀU``, in double precision, never below 0.

    ``U V`` is not formed: ``‖X‖² − 2⟨A, V⟩ + ⟨G, V Vᵀ⟩``, O(m k²). Differences near the rounding of ``‖X‖²`` are lost.

    Examples
    --------
    >>> import numpy as np
    >>> squared_error(4.0, A=np.array([[2.0]]), G=np.array([[1.0]]), V=np.array([[1.0]]))
    1.0
    """
    return float(account(sq_norm, A, G, V))


def account(sq_norm: float, A: Array, G: Array, V: Array) -> Any:
    """Return the same; of a GPU a tensor without dimensions, which need not be there yet.

    Examples
    --------
    >>> account(4.0, A=np.array([[2.0]]), G=np.array([[1.0]]), V=np.array([[1.0]]))
    1.0
    """
    if cuda.ready(V, V.shape[0]) and V.dtype == A.dtype == G.dtype:
        return (cuda.account(A, G, V) + float(sq_norm)).clip(0.0)
    A, G, V = _doubles(A, G, V)
    xp = array_namespace(V)
    # One number leaves the device.
    change = xp.sum(G * (V @ V.T)) - 2 * xp.sum(A * V)
    return max(float(sq_norm) + float(change), 0.0)


def _doubles(*arrays: Array) -> tuple[Array, ...]:
    xp = array_namespace(*arrays)
    return tuple(xp.astype(a, xp.float64, copy=False) for a in arrays)
