"""Keep one party's components comparable with those of others: order and length of rows, and what U makes up for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import linear_sum_assignment

from fedfactor.kernels.factors import row_norms, unit_rows
from fedfactor.kernels.products import as_like

__all__ = ["match_common"]

Array = Any


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
    xp = array_namespace(V)
    cosine = unit_rows(common) @ unit_rows(V).T
    order = linear_sum_assignment(np.asarray(as_like(cosine, np.zeros(0))), maximize=True)[1]
    order = xp.asarray(order)
    U, V = xp.take(U, order, axis=1), xp.take(V, order, axis=0)
    alive = xp.any(V > 0, axis=1, keepdims=True)
    factor = xp.where(alive, length / row_norms(V), xp.ones_like(row_norms(V)))
    return U / factor.T, V * factor
