"""Keep one party's components comparable with the common ones: order and length of rows, and what U makes up for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import linear_sum_assignment

from fedfactor.kernels.factors import row_norms, unit_rows
from fedfactor.kernels.products import as_like

__all__ = ["match_common"]

Array = Any


def match_common(U: Array, V: Array, common: Array) -> tuple[Array, Array]:
    """Put the rows of V into the order and the lengths of the common rows, without changing ``U V``.

    Parameters
    ----------
    U : array, shape (n, k)
    V : array, shape (k, m)
        A party's own components.
    common : array, shape (k, m)
        The components that all parties received last.

    Returns
    -------
    U, V : arrays
        Rows of V matched by cosine, one for one, each as long as the common row it stands for; the columns of U take
        the same order and the inverse lengths. A row of zeros, here or there, keeps its length.

    Notes
    -----
    A mean over parties is a mean of like with like only after this: without it, parties whose components differ in
    order or scale average each other away. O(k² m + k³).

    Examples
    --------
    >>> U, V = match_common(np.array([[1.0, 2.0]]), np.array([[0.0, 4.0], [3.0, 0.0]]), np.eye(2))
    >>> U, V
    (array([[6., 4.]]), array([[1., 0.],
           [0., 1.]]))
    """
    xp = array_namespace(V)
    cosine = unit_rows(common) @ unit_rows(V).T
    order = linear_sum_assignment(np.asarray(as_like(cosine, np.zeros(0))), maximize=True)[1]
    order = xp.asarray(order)
    U, V = xp.take(U, order, axis=1), xp.take(V, order, axis=0)
    dead = ~(xp.any(common > 0, axis=1, keepdims=True) & xp.any(V > 0, axis=1, keepdims=True))
    factor = xp.where(dead, xp.ones_like(row_norms(V)), row_norms(common) / row_norms(V))
    return U / factor.T, V * factor
