"""Operations on finished or travelling factors: their scale and order, fitting rows to them, their error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace

from fedfactor.core.pytree import Array, is_numpy
from fedfactor.core.threads import for_blocks
from fedfactor.linalg.compiled.compile import kernel
from fedfactor.linalg.missing_values import (
    Penalty,
    masked_sums,
    observed_count,
    observed_squared_norm,
    solve_rows_masked,
)
from fedfactor.linalg.nnls import solve_rows, squared_error
from fedfactor.linalg.products import as_like, squared_norm, zeros
from fedfactor.linalg.single_pass import one_pass, sums_of_rows

__all__ = [
    "balance",
    "extrapolate",
    "extrapolate_to_units",
    "fit_rows",
    "match_common",
    "odd_factor",
    "reconstruction",
    "refit_from",
    "refit_rows",
    "rescale",
    "row_norms",
    "row_sums",
    "stacked",
    "unit_rows",
]

# How thoroughly U is solved for a final V: a row stops when a sweep moves it a millionth as far as its first one did.
# From where a run ends the first step is short, and in single precision a millionth of it lies below rounding: rows
# then used all sweeps. A ten-thousandth left the error the same to 12 digits, in a tenth of the time.
_REFIT_SWEEPS = 500
_REFIT_TOL = 1e-6
_REFIT_TOL_SINGLE = 1e-4


def row_norms(V: Array) -> Array:
    """Return the Euclidean norm of each row as a column; 1 for a row of zeros, so that it can be divided by.

    Examples
    --------
    >>> import numpy as np
    >>> row_norms(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[5.],
           [1.]])
    """
    xp = array_namespace(V)
    norms = xp.sqrt(xp.sum(V * V, axis=1, keepdims=True))
    return xp.where(norms > 0, norms, xp.ones_like(norms))


def unit_rows(V: Array) -> Array:
    """Scale each row to Euclidean norm 1; a row of zeros stays.

    Examples
    --------
    >>> import numpy as np
    >>> unit_rows(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    return V / row_norms(V)


def row_sums(V: Array) -> Array:
    """Return the sum of each row as a column; 1 for a row of zeros, so that it can be divided by.

    Examples
    --------
    >>> import numpy as np
    >>> row_sums(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[7.],
           [1.]])
    """
    xp = array_namespace(V)
    sums = xp.sum(V, axis=1, keepdims=True)
    return xp.where(sums > 0, sums, xp.ones_like(sums))


SCALE_SLACK = 0.01
"""How far the length of a sent row may be from 1: room for payloads in half precision."""


def odd_factor(V: Array, *, lengths: Callable[[Array], Array] | None = None, most: float | None = None) -> str:
    """Return why V cannot be what an honest server sends: negative or too large cells, rows of another length; or
    nothing.

    Parameters
    ----------
    V : array, shape (k, m)
    lengths : callable, optional
        Measures the length of each row, which must be 1; of a row of zeros it gives 1. Then no cell exceeds 1 either.
    most : float, optional
        Largest cell.

    Examples
    --------
    >>> import numpy as np
    >>> odd_factor(np.array([[0.6, 0.8]]), lengths=row_norms), odd_factor(np.array([[3.0, -4.0]]))
    ('', 'V holds a negative cell')
    """
    cells = np.asarray(V, np.float64)
    if not np.isfinite(cells).all():
        return "V holds a cell that is no number"
    if (cells < 0).any():
        return "V holds a negative cell"
    most = 1.0 if lengths is not None and most is None else most
    if most is not None and (cells > most * (1 + SCALE_SLACK)).any():
        return f"V holds a cell above {most:g}"
    if lengths is not None and (np.abs(np.asarray(lengths(cells)) - 1) > SCALE_SLACK).any():
        return "a row of V has another length than 1"
    return ""


def stacked(V: Array, more: Array | None) -> Array:
    """Put further components below V; None adds nothing.

    Examples
    --------
    >>> import numpy as np
    >>> stacked(np.ones((2, 3)), np.zeros((1, 3))).shape, stacked(np.ones((2, 3)), None).shape
    ((3, 3), (2, 3))
    """
    return V if more is None else array_namespace(V, more).concat([V, more], axis=0)


RowNorm = Literal["unit", "usage", "free"]
"""What :func:`rescale` makes of the rows of V."""


def rescale(U: Array, V: Array, scale: str) -> tuple[Array, Array]:
    """Move the free scale of each component between U and V; ``U V`` stays.

    Parameters
    ----------
    U, V : array, shape (n, k) and (k, m)
    scale : {"unit", "usage", "free"}
        Rows of V have norm 1; columns of U have norm 1, so that V shows how much each component is used; or as they
        are. A component that is not used at all is zero in both under ``"usage"``.

    Returns
    -------
    U, V : array

    Examples
    --------
    >>> import numpy as np
    >>> U, V = np.array([[3.0], [4.0]]), np.array([[0.0, 2.0]])
    >>> rescale(U, V, "unit")[1], rescale(U, V, "usage")[1]
    (array([[0., 1.]]), array([[ 0., 10.]]))
    """
    if scale == "free":
        return U, V
    if scale == "unit":
        norms = row_norms(V)
        return U * norms[:, 0][None, :], V / norms
    if scale != "usage":
        raise ValueError(f"scale={scale!r} is not known. Use 'unit', 'usage' or 'free'.")
    xp = array_namespace(U)
    used = xp.sqrt(xp.sum(U * U, axis=0))
    return U / xp.where(used > 0, used, xp.ones_like(used))[None, :], V * used[:, None]


def balance(
    V: Array, squares: Array, sums: Array | None, pay_U: tuple[float, float], pay_V: tuple[float, float]
) -> Array:
    r"""Return what to divide each row of V by (and to multiply its column of U by) so that both pay least together.

    .. math:: \min_d\; l_1 s d + \tfrac{l_2}2 q d^2 + \frac{l_1'}{d} \sum V_t + \frac{l_2'}{2 d^2} \|V_t\|^2

    Parameters
    ----------
    V : array, shape (k, m)
    squares, sums : array, shape (k,)
        ``q``, the squared norms of the columns of U, and ``s``, their sums (None: no ``l1``).
    pay_U, pay_V : (l1, l2)

    Returns
    -------
    array, shape (k, 1)

    Examples
    --------
    >>> import numpy as np
    >>> balance(np.array([[4.0]]), np.array([1.0]), None, (0.0, 1.0), (0.0, 1.0))
    array([[2.]])
    """
    xp = array_namespace(V)
    wide = xp.astype(V, xp.float64)  # squares of small numbers, and their ratios, reach far
    one = xp.ones_like(wide[:, 0])
    a1 = pay_U[0] * (xp.zeros_like(one) if sums is None else xp.astype(sums, xp.float64))
    a2 = pay_U[1] * xp.astype(squares, xp.float64)
    b1 = pay_V[0] * xp.sum(wide, axis=1)
    b2 = pay_V[1] * xp.sum(wide * wide, axis=1)
    # Newton on log d, in which the cost is convex; from the minimum of whichever pair of terms is there. Of a component
    # that penalties left nothing of, on either side, no length is better than another.
    least = float(xp.finfo(xp.float64).smallest_normal) ** 0.5
    able = (a1 + a2 > least) & (b1 + b2 > least)
    ratio = xp.where(able, (b1 + b2) / xp.where(able, a1 + a2, one), one)
    x = 0.25 * xp.log(ratio)
    for _ in range(30):
        d = xp.exp(x)
        up = a1 * d
        up2 = a2 * d * d
        down = b1 / d
        down2 = b2 / (d * d)
        slope = up + up2 - down - down2
        bend = up + 2 * up2 + down + 2 * down2
        x = x - xp.where(able, xp.clip(slope / xp.where(bend > 0, bend, one), -2, 2), xp.zeros_like(x))
    return xp.astype(xp.where(able, xp.exp(x), one)[:, None], V.dtype)


def match_common(U: Array, V: Array, common: Array, length: float) -> tuple[Array, Array]:
    """Put the rows of V into the order of the common rows and give them one length, without changing ``U V``.

    Parameters
    ----------
    U : array, shape (n, k)
    V : array, shape (k, m)
        A party's own components.
    common : array, shape (k, m)
        The components that all parties received last.
    length : float
        The length that the rows of all parties get. Not that of the common rows: a mean of unlike rows is shorter than
        they are, so lengths taken from it would fall towards zero round by round, and U would grow without bound.

    Returns
    -------
    U, V : arrays
        Rows of V matched by cosine, one for one, of the length asked for; the columns of U take the same order and the
        inverse lengths. A row of zeros stays as it is.

    Notes
    -----
    A mean over parties is a mean of like with like only after this: without it, parties whose components differ in
    order or scale average each other away. O(k² m + k³).

    Examples
    --------
    >>> U, V = match_common(np.array([[1.0, 2.0]]), np.array([[0.0, 4.0], [3.0, 0.0]]), np.eye(2), 1.0)
    >>> U, V
    (array([[6., 4.]]), array([[1., 0.],
           [0., 1.]]))
    """
    from scipy.optimize import linear_sum_assignment  # slow to load, and few runs come here

    xp = array_namespace(V)
    cosine = unit_rows(common) @ unit_rows(V).T
    order = linear_sum_assignment(np.asarray(as_like(cosine, np.zeros(0))), maximize=True)[1]
    order = xp.asarray(order)
    U = xp.take(U, order, axis=1)
    V = xp.take(V, order, axis=0)
    alive = xp.any(V > 0, axis=1, keepdims=True)
    factor = xp.where(alive, length / row_norms(V), xp.ones_like(row_norms(V)))
    return U / factor.T, V * factor


def extrapolate(V: Array, V_old: Array, beta: float) -> Array:
    """Return ``[V + β (V − V_old)]₊``.

    Examples
    --------
    >>> import numpy as np
    >>> extrapolate(np.array([[2.0]]), np.array([[1.0]]), 0.5)
    array([[2.5]])
    """
    return array_namespace(V).clip(V + beta * (V - V_old), 0, None)


def extrapolate_to_units(V: Array, V_old: Array, beta: Any) -> tuple[Array, Array, Array]:
    """Return V, and what :func:`extrapolate` makes of it, divided by the lengths of the rows of the latter, and those.

    Examples
    --------
    >>> extrapolate_to_units(np.array([[2.0]]), np.array([[1.0]]), 0.5)
    (array([[0.8]]), array([[1.]]), array([[2.5]]))
    """
    alike = is_numpy(V) and is_numpy(V_old) and V.dtype == V_old.dtype
    run = kernel("ahead", V.dtype) if alike else None
    if run is None:
        sent = extrapolate(V, V_old, beta)
        lengths = row_norms(sent)
        return V / lengths, sent / lengths, lengths
    unit, sent, lengths = np.empty_like(V, order="C"), np.empty_like(V, order="C"), np.empty((V.shape[0], 1), V.dtype)
    V, V_old = np.ascontiguousarray(V), np.ascontiguousarray(V_old)
    block = max(1, (1 << 17) // max(1, V.shape[1]))
    for_blocks(lambda a, b: run(V, V_old, beta, unit, sent, lengths, a, b), V.shape[0], block)
    return unit, sent, lengths


def fit_rows(
    U: Array,
    X: Array,
    V: Array,
    mask: Array | str | None = None,
    *,
    sweeps: int,
    tol: float = 0.0,
    penalty: Penalty | None = None,
) -> Array:
    """Sweep over U with V fixed, on complete rows or on the observed cells of a mask.

    The ridge of a penalty is for rows with a mask; those without pay it only after :meth:`Penalty.complete`.

    Examples
    --------
    >>> import numpy as np
    >>> fit_rows(np.zeros((1, 1)), np.array([[2.0, 2.0]]), np.ones((1, 2)), sweeps=1)
    array([[2.]])
    """
    if mask is None:
        l1, l2, *_ = Penalty() if penalty is None else penalty
        return one_pass(X, V, U, sweeps=sweeps, tol=tol, l1=l1, l2=l2, sums=False).U
    return solve_rows_masked(U, X, mask, V, sweeps=sweeps, tol=tol, penalty=penalty)


def refit_rows(
    U: Array | None, X: Array, V: Array, mask: Array | str | None = None, penalty: Penalty | None = None
) -> Array:
    """Solve U for a final V, from where it stands or (None) from zero.

    Examples
    --------
    >>> import numpy as np
    >>> refit_rows(None, np.array([[2.0, 2.0]]), np.ones((1, 2)))
    array([[2.]])
    """
    if U is None:
        U = zeros((X.shape[0], V.shape[0]), X)
        return fit_rows(U, X, V, mask, sweeps=_REFIT_SWEEPS, tol=_REFIT_TOL, penalty=penalty)
    return fit_rows(U, X, V, mask, sweeps=_REFIT_SWEEPS, tol=_refit_tol(U), penalty=penalty)


def refit_from(U: Array, G: Array, B: Array) -> Array:
    """Solve U for a final V as :func:`refit_rows` does, from ``G = V Vᵀ`` and ``B = X Vᵀ`` alone.

    Examples
    --------
    >>> import numpy as np
    >>> refit_from(np.zeros((1, 1)), np.array([[2.0]]), np.array([[4.0]]))
    array([[2.]])
    """
    return solve_rows(U, G, B, sweeps=_REFIT_SWEEPS, tol=_refit_tol(U))


def _refit_tol(U: Array) -> float:
    return _REFIT_TOL_SINGLE if array_namespace(U).finfo(U.dtype).bits <= 32 else _REFIT_TOL


def reconstruction(X: Array, U: Array, V: Array, mask: Array | str | None = None) -> tuple[float, int, float]:
    """Return the summed squared residual, the number of its cells, and ``‖X‖²`` over them.

    Examples
    --------
    >>> import numpy as np
    >>> reconstruction(np.ones((2, 2)), np.ones((2, 1)), np.zeros((1, 2)))
    (4.0, 4, 4.0)
    """
    if mask is not None:
        return float(masked_sums(U, X, mask, V)[2]), int(observed_count(X, mask)), float(observed_squared_norm(X, mask))
    total = squared_norm(X)
    G, A = sums_of_rows(U, X)
    return squared_error(total, A, G, V), math.prod(X.shape), total
