"""Random sketches S (m × d) with E[S Sᵀ] = I: drawn alike by all parties from one counter-based stream, never sent.

``X S`` has d columns instead of m. Subsampling and the count sketch touch only the cells they need, dense or sparse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse
from array_api_compat import is_torch_array

from fedfactor.core.pytree import Array
from fedfactor.linalg.products import as_like, is_sparse
from fedfactor.nmf.distributed.hadamard import hadamard_rows, hadamard_transform

__all__ = ["KINDS", "Kind", "Sketch", "draw_sketch", "sketch_block", "sketch_columns", "sketch_stream", "sketch_width"]
Kind = Literal["subsampling", "gaussian", "count", "srht"]

KINDS = get_args(Kind)
"""Dense Gaussian numbers; columns drawn without replacement; signed buckets; a subsampled Hadamard transform."""


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """One drawn sketch, as little of it as its kind needs.

    Attributes
    ----------
    kind : {"gaussian", "subsampling", "count", "srht"}
    size, width : int
        S has ``size`` rows and ``width`` columns.
    matrix : array of shape (size, width), or None
        Gaussian only.
    index : int array, or None
        Subsampling, SRHT: the columns drawn (width); count: the bucket of each row (size).
    signs : array of shape (size,), or None
        Count, SRHT.
    """

    kind: Kind
    size: int
    width: int
    matrix: Any = None
    index: Any = None
    signs: Any = None

    @property
    def scale(self) -> float:
        """What makes E[S Sᵀ] = I where entries are 0 and 1."""
        return math.sqrt(self.size / self.width)

    def rows(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Write out rows ``start:stop`` of S, dense.

        Examples
        --------
        >>> S = draw_sketch("count", 4, 2, np.random.default_rng(0))
        >>> np.abs(S.rows()).sum(axis=1)
        array([1., 1., 1., 1.])
        """
        stop = self.size if stop is None else stop
        if self.kind == "gaussian":
            return self.matrix[start:stop]
        if self.kind == "srht":
            return self.signs[start:stop, None] * hadamard_rows(start, stop, self.index) / math.sqrt(self.width)
        out = np.zeros((stop - start, self.width))
        if self.kind == "count":
            out[np.arange(stop - start), self.index[start:stop]] = self.signs[start:stop]
            return out
        inside = np.flatnonzero((self.index >= start) & (self.index < stop))
        out[self.index[inside] - start, inside] = self.scale
        return out


def sketch_width(size: int, ratio: float, rank: int) -> int:
    """Return the width d of a sketch of ``size`` rows: the ratio asked for, but never below three times the rank.

    Examples
    --------
    >>> sketch_width(300, 0.1, 8), sketch_width(100, 0.1, 8), sketch_width(10, 0.1, 8)
    (30, 24, 10)
    """
    return min(size, max(1, math.ceil(ratio * size), 3 * rank))


def sketch_stream(seed: int, name: str, counter: int) -> np.random.Generator:
    """Return the stream from which every party draws the same sketch: Philox keyed by the seed, at a given count.

    Examples
    --------
    >>> sketch_stream(7, "columns", 3).random() == sketch_stream(7, "columns", 3).random()
    True
    """
    tag = int.from_bytes(name.encode()[:8].ljust(8, b"\0"), "little")
    # The high word counts, so that no draw of one sketch can run into the next.
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, tag], counter=[0, 0, 0, counter]))


def draw_sketch(kind: Kind, size: int, width: int, rng: np.random.Generator) -> Sketch:
    """Draw a sketch with E[S Sᵀ] = I.

    Parameters
    ----------
    kind : {"gaussian", "subsampling", "count", "srht"}
    size, width : int
        Rows m and columns d of S, ``1 ≤ d``; subsampling and SRHT need ``d ≤ m``.
    rng : numpy.random.Generator
        The shared stream, see :func:`sketch_stream`.

    Returns
    -------
    Sketch

    Notes
    -----
    Gaussian: N(0, 1/d), O(m d) numbers. Subsampling: d of the m columns without replacement, times √(m/d). Count
    sketch: a random sign in a random column of each row. SRHT: random signs, an orthonormal Hadamard transform of the
    next power of two p, d of its p columns, times √(p/d).

    References
    ----------
    .. [1] Y. Qian, C. Tan, D. Ding, H. Li, N. Mamoulis, "Fast and secure distributed nonnegative matrix factorization",
       IEEE TKDE 2020. doi:10.1109/TKDE.2020.2985964
    .. [2] D. P. Woodruff, "Sketching as a tool for numerical linear algebra", 2014. doi:10.1561/0400000060

    Examples
    --------
    >>> S = draw_sketch("subsampling", 6, 3, np.random.default_rng(0))
    >>> sketch_columns(np.eye(6), S).shape
    (6, 3)
    """
    if kind not in KINDS:
        raise ValueError(f"sketch={kind!r} is not known. Use one of {', '.join(KINDS)}.")
    if width < 1 or (width > size and kind in ("subsampling", "srht")):
        raise ValueError(f"A sketch of {size} columns cannot have width {width}. Use a width from 1 to {size}.")
    if kind == "gaussian":
        return Sketch(kind, size, width, matrix=rng.standard_normal((size, width)) / math.sqrt(width))
    if kind == "subsampling":
        return Sketch(kind, size, width, index=np.sort(rng.choice(size, width, replace=False)))
    if kind == "count":
        return Sketch(kind, size, width, index=rng.integers(0, width, size), signs=_signs(rng, size))
    padded = 1 << max(0, size - 1).bit_length()
    signs = _signs(rng, size)
    return Sketch(kind, size, width, index=rng.choice(padded, width, replace=False), signs=signs)


def _signs(rng: np.random.Generator, size: int) -> np.ndarray:
    return 2.0 * rng.integers(0, 2, size) - 1


def sketch_columns(X: Array, S: Sketch) -> Array:
    """Return ``X S`` (n × d); sparse under subsampling when X is sparse, else dense.

    Parameters
    ----------
    X : array or sparse matrix, shape (n, m)
        Subsampling reads d columns only: cheapest when columns lie together (Fortran order, CSC).
    S : Sketch
        With ``S.size == m``.

    Returns
    -------
    array or sparse matrix, shape (n, d)
        Of the type of X.

    Examples
    --------
    >>> S = draw_sketch("subsampling", 4, 4, np.random.default_rng(0))
    >>> bool((sketch_columns(np.eye(4), S) == np.eye(4)).all())
    True
    """
    if X.shape[1] != S.size:
        raise ValueError(f"X has {X.shape[1]} columns, but the sketch was drawn for {S.size}.")
    if is_torch_array(X):
        return X @ as_like(S.rows(), X)
    if S.kind == "subsampling":
        picked = X[:, S.index]
        return picked * X.dtype.type(S.scale)
    if S.kind == "count":
        return _dense(X @ _buckets(S, 0, S.size, X.dtype), X.dtype)
    if S.kind == "srht" and not is_sparse(X):
        return hadamard_transform(X, S.signs, S.index, S.width)
    return _dense(X @ S.rows().astype(X.dtype, copy=False), X.dtype)


def sketch_block(V: Array, S: Sketch, start: int = 0) -> Array:
    """Return ``V S[start:start + l]`` (k × d): the share of one block of columns in ``V S``, which is their sum.

    Parameters
    ----------
    V : array, shape (k, l)
        Columns ``start`` to ``start + l`` of the whole factor.
    S : Sketch
    start : int
        Where the block begins.

    Returns
    -------
    array, shape (k, d)
        Of the type of V.

    Examples
    --------
    >>> S = draw_sketch("count", 5, 3, np.random.default_rng(0))
    >>> V = np.arange(10.0).reshape(2, 5)
    >>> whole = sketch_block(V[:, :2], S) + sketch_block(V[:, 2:], S, 2)
    >>> np.allclose(whole, V @ S.rows())
    True
    """
    stop = start + V.shape[1]
    if is_torch_array(V):
        return V @ as_like(S.rows(start, stop), V)
    if S.kind == "subsampling":
        out = np.zeros((V.shape[0], S.width), V.dtype)
        inside = slice(*np.searchsorted(S.index, (start, stop)))
        out[:, inside] = V[:, S.index[inside] - start] * V.dtype.type(S.scale)
        return out
    if S.kind == "count":
        return _dense(V @ _buckets(S, start, stop, V.dtype), V.dtype)
    return V @ S.rows(start, stop).astype(V.dtype, copy=False)


def _buckets(S: Sketch, start: int, stop: int, dtype: Any) -> Any:
    rows = stop - start
    parts = (S.signs[start:stop].astype(dtype), S.index[start:stop], np.arange(rows + 1))
    return scipy.sparse.csr_array(parts, shape=(rows, S.width))


def _dense(product: Any, dtype: Any) -> np.ndarray:
    whole = product.toarray() if scipy.sparse.issparse(product) else product
    return np.ascontiguousarray(whole, dtype=dtype)
