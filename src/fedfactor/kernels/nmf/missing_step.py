"""A step on V when cells are missing, from sums alone."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from fedfactor.kernels.nmf.steps import solve_rows

__all__ = ["masked_step"]

Array = Any


def masked_step(
    V: Array, G: Array, N: Array, D: Array, *, sweeps: int, l1: float = 0.0, l2: float = 0.0
) -> tuple[Array, float]:
    r"""Improve V for data with missing cells, and say by how much at least.

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
