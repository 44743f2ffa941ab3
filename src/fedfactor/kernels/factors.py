"""Small operations on finished or travelling factors, shared by many algorithms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from fedfactor.kernels.nmf.missing_cells import (
    Penalty,
    masked_sums,
    observed_count,
    observed_squared_norm,
    solve_rows_masked,
)
from fedfactor.kernels.nmf.steps import solve_rows, squared_error
from fedfactor.kernels.products import as_like, cross, gram, gram_rows, squared_norm, sums

__all__ = [
    "extrapolate", "fit_rows", "odd_factor", "reconstruction", "refit_rows", "rescale", "row_norms", "stacked",
    "unit_rows",
]  # fmt: skip

Array = Any

# How thoroughly U is solved for a final V: a row stops when a sweep moves it a millionth as far as its first one did.
# From where a run ends the first step is short, and in single precision a millionth of it lies below rounding: rows
# then used all sweeps. A ten-thousandth left the error the same to 12 digits, in a tenth of the time.
_REFIT_SWEEPS, _REFIT_TOL, _REFIT_TOL_SINGLE = 500, 1e-6, 1e-4


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


SCALE_SLACK = 0.01
"""How far the length of a sent row may be from 1: room for payloads in half precision."""


def odd_factor(V: Array, *, unit: str = "", most: float | None = None) -> str:
    """Say why V cannot be what an honest server sends: negative or too large cells, rows of another length; or nothing.

    Parameters
    ----------
    V : array, shape (k, m)
    unit : {"", "norm", "sum"}
        What is 1 for every row that is not all zero.
    most : float, optional
        Largest cell.

    Examples
    --------
    >>> import numpy as np
    >>> odd_factor(np.array([[0.6, 0.8]]), unit="norm"), odd_factor(np.array([[3.0, -4.0]]))
    ('', 'V holds a negative cell')
    """
    cells = np.asarray(V, np.float64)
    if not np.isfinite(cells).all():
        return "V holds a cell that is no number"
    if (cells < 0).any():
        return "V holds a negative cell"
    most = 1.0 if unit and most is None else most
    if most is not None and (cells > most * (1 + SCALE_SLACK)).any():
        return f"V holds a cell above {most:g}"
    if unit:
        lengths = cells.sum(axis=1) if unit == "sum" else np.sqrt((cells * cells).sum(axis=1))
        if ((lengths > 0) & (np.abs(lengths - 1) > SCALE_SLACK)).any():
            return f"a row of V has a {unit} other than 1"
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


def extrapolate(V: Array, V_old: Array, beta: float) -> Array:
    """Return ``[V + β (V − V_old)]₊``.

    Examples
    --------
    >>> import numpy as np
    >>> extrapolate(np.array([[2.0]]), np.array([[1.0]]), 0.5)
    array([[2.5]])
    """
    return array_namespace(V).clip(V + beta * (V - V_old), 0, None)


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
        l1, l2, _ = Penalty() if penalty is None else penalty
        return solve_rows(U, gram_rows(V), cross(X, V), sweeps=sweeps, tol=tol, l1=l1, l2=l2)
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
        U = as_like(np.zeros((X.shape[0], V.shape[0])), X)
        return fit_rows(U, X, V, mask, sweeps=_REFIT_SWEEPS, tol=_REFIT_TOL, penalty=penalty)
    single = array_namespace(U).finfo(U.dtype).bits <= 32
    tol = _REFIT_TOL_SINGLE if single else _REFIT_TOL
    return fit_rows(U, X, V, mask, sweeps=_REFIT_SWEEPS, tol=tol, penalty=penalty)


def reconstruction(X: Array, U: Array, V: Array, mask: Array | str | None = None) -> tuple[float, int, float]:
    """Return the summed squared residual, the number of cells it speaks for, and ``‖X‖²`` over them.

    Examples
    --------
    >>> import numpy as np
    >>> reconstruction(np.ones((2, 2)), np.ones((2, 1)), np.zeros((1, 2)))
    (4.0, 4, 4.0)
    """
    if mask is not None:
        return float(masked_sums(U, X, mask, V)[2]), int(observed_count(X, mask)), float(observed_squared_norm(X, mask))
    total = squared_norm(X)
    return squared_error(total, sums(U, X), gram(U), V), math.prod(X.shape), total
