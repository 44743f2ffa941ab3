"""Which pairs of components correlate significantly, so that they may be aligned: Fisher's z-test of each pair."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from array_api_compat import array_namespace
from scipy.special import ndtri

from fedfactor.core.pytree import Array

__all__ = ["Correction", "correlations", "significant"]
Correction = Literal["bonferroni", "none"]


def correlations(V: Array, reference: Array) -> Array:
    """Return the correlation of ``reference_i`` and ``V_j`` over columns, shape (k, l); 0 for constant rows.

    Examples
    --------
    >>> import numpy as np
    >>> correlations(np.array([[1.0, 2.0], [3.0, 3.0]]), np.array([[0.0, 5.0]])).round(6)
    array([[1., 0.]])
    """
    xp = array_namespace(V, reference)
    return xp.clip(_standard(reference, xp) @ _standard(V, xp).T, -1, 1)


def _standard(V: Array, xp: Any) -> Array:
    centred = V - xp.mean(V, axis=1, keepdims=True)
    norms = xp.sqrt(xp.sum(centred * centred, axis=1, keepdims=True))
    # What is left of a constant row after centring is rounding; its direction means nothing.
    size = xp.sqrt(xp.sum(V * V, axis=1, keepdims=True))
    varies = norms > 8 * xp.finfo(V.dtype).eps * size
    return xp.where(varies, centred / xp.where(varies, norms, xp.ones_like(norms)), xp.zeros_like(centred))


def significant(rho: np.ndarray, m: int, alpha: float, correction: Correction) -> np.ndarray:
    """Test each correlation for being positive (Fisher's z, one-sided)."""
    if m < 4:
        raise ValueError(f"A correlation over {m} columns cannot be tested: at least 4 are needed. Use method='lap'.")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha={alpha} must lie strictly between 0 and 1: it is the level of a test.")
    z = np.arctanh(np.clip(rho, -1 + 1e-12, 1 - 1e-12)) * np.sqrt(m - 3)
    if correction not in get_args(Correction):
        raise ValueError(f"correction={correction!r} is not known. Use 'bonferroni' or 'none'.")
    return z > -ndtri(alpha / rho.size if correction == "bonferroni" else alpha)
