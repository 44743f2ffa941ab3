"""One product, many scales: how the length of a component is shared between U and V."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from fedfactor.kernels.factors import row_norms

__all__ = ["balance", "row_sums"]

Array = Any


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
    lengths = row_norms(V)[:, 0]
    a1 = pay_U[0] * (sums if sums is not None else xp.zeros_like(lengths))
    a2, b1, b2 = pay_U[1] * squares, pay_V[0] * xp.sum(V, axis=1), pay_V[1] * lengths**2
    # Newton on log d, in which the cost is convex; from the minimum of whichever pair of terms is there.
    able = (a1 + a2 > 0) & (b1 + b2 > 0)
    one = xp.ones_like(lengths)
    ratio = xp.where(able, (b1 + b2) / xp.where(able, a1 + a2, one), one)
    x = 0.25 * xp.log(ratio)
    for _ in range(30):
        d = xp.exp(x)
        up, up2, down, down2 = a1 * d, a2 * d * d, b1 / d, b2 / (d * d)
        slope, bend = up + up2 - down - down2, up + 2 * up2 + down + 2 * down2
        x = x - xp.where(able, xp.clip(slope / xp.where(bend > 0, bend, one), -2, 2), xp.zeros_like(x))
    return xp.where(able, xp.exp(x), one)[:, None]
