"""Packed rows of zeros and ones, with missing cells and multiplicities: pack, merge, sample, and hash them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean import counting_cuda as on_card
from fedfactor.core.pytree import Array

__all__ = ["Bits", "column_counts", "merged", "observed", "sampled", "signed_counts"]


class Bits(NamedTuple):
    """Packed rows of zeros and ones.

    Attributes
    ----------
    ones, zeros : ndarray of uint64, shape (n, w)
        Observed ones and observed zeros.
    m : int
        Number of columns.
    GPU : device or None
        GPU that counts, if any.
    times : ndarray of int64, shape (n,), or None
        Multiplicity of each row; None: each row occurs once.
    """

    ones: np.ndarray
    zeros: np.ndarray
    m: int
    card: Any = None
    times: np.ndarray | None = None

    @property
    def multiplicity(self) -> np.ndarray:
        """Return the multiplicity of each row as an array."""
        return np.ones(len(self.ones), np.int64) if self.times is None else self.times

    def rows(self, which: Any) -> Bits:
        """Take some rows."""
        ones, zeros = (np.ascontiguousarray(part[which]) for part in (self.ones, self.zeros))
        times = None if self.times is None else np.ascontiguousarray(self.times[which])
        return Bits(ones, zeros, self.m, self.card, times)


def observed(X: Array, mask: Array | str | None = None) -> Bits:
    """Pack rows of zeros and ones, of which `mask` marks the observed cells.

    Examples
    --------
    >>> import numpy as np
    >>> found = observed(np.array([[1.0, 0.0, 1.0]]), np.array([[True, True, False]]))
    >>> found.ones, found.zeros
    (array([[1]], dtype=uint64), array([[2]], dtype=uint64))
    """
    m = X.shape[1]
    ones = bits.pack(X)
    if mask is None:
        seen = bits.pack(np.ones((1, m)))
    elif isinstance(mask, str):
        stored: Any = scipy.sparse.csr_array(X)
        seen = bits.pack(scipy.sparse.csr_array((np.ones(stored.nnz), stored.indices, stored.indptr), stored.shape))
    else:
        seen = bits.pack(mask * 1.0 if hasattr(mask, "detach") else np.asarray(mask, np.float32))
    return Bits(ones & seen, ~ones & seen, m, on_card.card_of(X))


def merged(rows: Bits) -> tuple[Bits, np.ndarray | None]:
    """Merge equal rows into one with a multiplicity.

    Returns
    -------
    rows : Bits
        Distinct rows; the argument itself if all rows differ, or if a GPU counts, whose kernels know no multiplicity.
    place : ndarray of int64, shape (n,), or None
        Distinct row that each row became; None where nothing was merged.

    Examples
    --------
    >>> import numpy as np
    >>> few, place = merged(observed(np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])))
    >>> few.ones, few.times, place
    (array([[1],
           [3]], dtype=uint64), array([2, 1]), array([0, 1, 0]))
    """
    if rows.card is not None:
        return rows, None
    _, first, times, place = bits.distinct(np.concatenate([rows.ones, rows.zeros], axis=1))
    if len(first) == len(place):
        return rows, None
    return rows.rows(first)._replace(times=times), place


def column_counts(X: Array, mask: Array | str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Count the ones and the observed cells of each column.

    Examples
    --------
    >>> import numpy as np
    >>> column_counts(np.array([[1.0, 0.0], [1.0, 1.0]]))
    (array([2, 1]), array([2, 2]))
    """
    rows = observed(X, mask)
    ones, zeros = (_column_sums(part, rows.m) for part in rows[:2])
    return ones, ones + zeros


def _column_sums(words: np.ndarray, m: int) -> np.ndarray:
    out = np.zeros(m, np.int64)
    for block in bits.row_blocks(len(words), m):
        out += bits.unpack(words[block], m).sum(axis=0, dtype=np.int64)
    return out


def sampled(rows: Bits, share: float, salt: int) -> Bits:
    """Keep about a share of the rows; whether a row is kept depends on its own cells and the salt alone.

    Examples
    --------
    >>> import numpy as np
    >>> rows = observed((np.random.default_rng(0).random((1000, 40)) < 0.5) * 1.0)
    >>> 400 < len(sampled(rows, 0.5, 1).ones) < 600
    True
    """
    if share >= 1:
        return rows
    return rows.rows(_hashes(rows, salt) < np.uint64(share * 2.0**64))


def _hashes(rows: Bits, salt: int) -> np.ndarray:
    """Hash the cells of each row."""
    state = np.full(len(rows.ones), np.uint64(salt), np.uint64)
    with np.errstate(over="ignore"):
        for part in (rows.ones, rows.zeros):
            for word in part.T:  # SplitMix64's mixing of each word into the state
                state = (state ^ word) + np.uint64(0x9E3779B97F4A7C15)
                state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                state ^= state >> np.uint64(31)
    return state


def signed_counts(rows: Bits, size: int, salt: int) -> np.ndarray:
    r"""Add up, `size` times, random signs of the rows that have a one; equal rows have equal signs.

    The mean square of these sums estimates the sum of the squared multiplicities of the distinct rows [1]_, with a
    relative standard error of :math:`\sqrt{2 / \text{size}}`, and the sums of several clients add up to those of all
    their rows.

    References
    ----------
    .. [1] N. Alon, Y. Matias, M. Szegedy, "The space complexity of approximating the frequency moments", J. Comput.
       Syst. Sci. 58 (1999). doi:10.1006/jcss.1997.1545

    Examples
    --------
    >>> import numpy as np
    >>> sums = signed_counts(observed(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])), 128, 1)
    >>> (sums**2).mean()
    np.float64(4.0)
    """
    times = rows.multiplicity * rows.ones.any(axis=1)
    out = np.empty(size, np.int64)
    for start in range(0, size, 64):
        hashes = _hashes(rows, salt + 1 + start)
        for bit in range(min(64, size - start)):
            minus = (hashes >> np.uint64(bit)) & np.uint64(1)
            out[start + bit] = times.sum() - 2 * times[minus > 0].sum()
    return out
