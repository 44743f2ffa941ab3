"""Reading rows out of an upload: they lie in the space that its rows span, where it has fewer rows than dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import qr

__all__ = ["binary_rows_in_span", "reconstruction_rate", "rows_confirmed", "spans_less"]

MOST_RANK = 18
"""Largest dimension that is searched: every further one doubles the work."""


def binary_rows_in_span(*blocks: np.ndarray, tol: float = 1e-6) -> np.ndarray:
    """Find 0/1 vectors in the span of the rows of some matrices, without those that are sums of smaller ones.

    Parameters
    ----------
    *blocks : arrays, shape (any, m)
        What the attacker holds: an upload, and whatever else contributed to it and is public.
    tol : float
        How near to 0 or 1 every entry must be.

    Returns
    -------
    array, shape (found, m), of 0 and 1

    Notes
    -----
    A vector in an r-dimensional space is fixed by r well-chosen entries, so all 2^r patterns of those are tried. A
    space of more than 18 dimensions is left alone, which is what enough rows, or noise, make of it; so is one of as
    many dimensions as there are columns, which holds every row, whichever client sent it.

    Examples
    --------
    >>> X = np.array([[1.0, 0, 1, 0], [0, 1, 1, 0]])
    >>> binary_rows_in_span(np.array([[2.0, 1.0], [1.0, 3.0]]) @ X)
    array([[0, 1, 1, 0],
           [1, 0, 1, 0]], dtype=int8)
    """
    basis = _basis(blocks)
    rank = len(basis)
    if not spans_less(*blocks) or rank > MOST_RANK:
        return np.zeros((0, blocks[0].shape[1]), np.int8)
    pivots = qr(basis, pivoting=True, mode="r")[1][:rank]
    spread = np.linalg.inv(basis[:, pivots]) @ basis
    found: set[bytes] = set()
    for start in range(0, 1 << rank, 4096):
        numbers = np.arange(start, min(1 << rank, start + 4096))
        rows = ((numbers[:, None] >> np.arange(rank)) & 1).astype(float) @ spread
        near = (np.minimum(np.abs(rows), np.abs(rows - 1)) < tol).all(axis=1)
        found |= {np.rint(row).astype(np.int8).tobytes() for row in rows[near] if row.max() > 0.5}
    return _without_sums(
        sorted((np.frombuffer(row, np.int8) for row in found), key=lambda row: (row.sum(), row.tobytes()))
    )


def spans_less(*blocks: np.ndarray) -> bool:
    """Return whether some matrices leave room: rows that span all columns "contain" every row there is, and reveal
    nothing.

    Examples
    --------
    >>> spans_less(np.array([[1.0, 2.0, 0.0]])), spans_less(np.eye(3))
    (True, False)
    """
    filled = int(np.count_nonzero(np.vstack(blocks).any(axis=0)))
    return 0 < len(_basis(blocks)) < filled


def _basis(blocks: tuple[np.ndarray, ...]) -> np.ndarray:
    _, sizes, right = np.linalg.svd(np.vstack(blocks), full_matrices=False)
    rank = int((sizes > sizes[0] * 1e-9).sum()) if sizes.size and sizes[0] > 0 else 0
    return right[:rank]


def rows_confirmed(rows: np.ndarray, others: np.ndarray, *blocks: np.ndarray, tol: float = 1e-6) -> int:
    """Count rows, of any values, that an upload confirms to a client that guesses them: they lie in its span, others do
    not.

    Parameters
    ----------
    rows : array, shape (n, m)
        Rows that the upload was made from.
    others : array, shape (any, m)
        Rows that it was not made from. Where more than one in twenty of these lies in the span as well, nothing is
        confirmed.
    *blocks : arrays, shape (any, m)
        The upload.
    tol : float
        Largest part of a row outside of the span.

    Examples
    --------
    >>> X = np.random.default_rng(0).random((5, 9))
    >>> rows_confirmed(X[:2], X[2:], np.ones((2, 2)) @ X[:2] + X[:2])
    2
    """
    basis = _basis(blocks)
    if not spans_less(*blocks) or len(np.unique(rows, axis=0)) > len(basis):
        return 0  # more rows than dimensions lie in a span only if they are of low rank themselves

    def inside(X: np.ndarray) -> np.ndarray:
        X = X[np.linalg.norm(X, axis=1) > 0]
        return np.linalg.norm(X - X @ basis.T @ basis, axis=1) < tol * np.linalg.norm(X, axis=1)

    found = inside(others)
    return int(inside(rows).sum()) if found.size and 20 * found.sum() <= found.size else 0


def _without_sums(rows: list[np.ndarray]) -> np.ndarray:
    """Drop candidates that are sums of smaller ones: unions of disjoint rows lie in the span too."""
    kept: list[np.ndarray] = []
    for row in rows:
        inside = [other for other in kept if (other <= row).all()]
        if not inside or (np.sum(inside, axis=0) != row).any():
            kept.append(row)
    return np.array(kept, np.int8) if kept else np.zeros((0, 0), np.int8)


def reconstruction_rate(rows: np.ndarray, found: np.ndarray) -> dict[str, Any]:
    """Count how many distinct rows were found exactly, and how many false ones came with them.

    Examples
    --------
    >>> reconstruction_rate(np.array([[1, 0], [0, 1]]), np.array([[1, 0]]))
    {'rows': 2, 'recovered': 1, 'false': 0}
    """
    truth = {np.asarray(row, np.int8).tobytes() for row in rows}
    guess = {np.asarray(row, np.int8).tobytes() for row in found}
    return {"rows": len(truth), "recovered": len(truth & guess), "false": len(guess - truth)}
