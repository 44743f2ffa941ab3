"""Boolean matrices as bits: 64 cells to a word, so that a whole row is compared in a few instructions.

Row i of a packed matrix is ``ceil(m / 64)`` words of type uint64; bit j of word w is cell ``64 w + j``, bits beyond m
are zero.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import scipy.sparse
from array_api_compat import is_torch_array

from fedfactor.boolean import counting_cuda as on_card
from fedfactor.core.pytree import Array, is_numpy
from fedfactor.core.threads import for_blocks
from fedfactor.linalg.compiled.compile import kernel
from fedfactor.linalg.products import is_sparse

__all__ = ["count_cells", "ones_of", "pack", "product", "refit", "row_blocks", "transpose", "unpack"]

_CELLS = 1 << 22  # cells of a dense block that may exist beside the bits
_REAL = np.dtype(np.float64)


def pack(X: Array) -> np.ndarray:
    """Pack a 0/1 matrix into words: cells above ½ are ones.

    Parameters
    ----------
    X : array, tensor or SciPy sparse matrix, shape (n, m)
        Sparse matrices are never made dense.

    Returns
    -------
    ndarray of uint64, shape (n, ceil(m / 64))

    Examples
    --------
    >>> import numpy as np
    >>> pack(np.array([[1, 0, 1], [0, 0, 0]]))
    array([[5],
           [0]], dtype=uint64)
    """
    if scipy.sparse.issparse(X):
        return _pack_sparse(X)
    if is_torch_array(X):
        X = (X.to_dense() if is_sparse(X) else X).detach()
        if X.is_cuda:
            return on_card.packed(X)
        X = X.cpu().numpy()
    n, m = X.shape
    words = -(-m // 64)
    out = np.zeros((n, 8 * words), np.uint8)
    for rows in row_blocks(n, m):
        out[rows, : -(-m // 8)] = np.packbits(X[rows] > 0.5, axis=1, bitorder="little")
    return _as_words(out)


def unpack(words: np.ndarray, m: int) -> np.ndarray:
    """Unpack words into a matrix of bytes 0 and 1 with `m` columns.

    Examples
    --------
    >>> import numpy as np
    >>> unpack(np.array([[5]], np.uint64), 3)
    array([[1, 0, 1]], dtype=uint8)
    """
    words = np.ascontiguousarray(words)
    if sys.byteorder == "big":
        words = words.byteswap()
    return np.unpackbits(words.view(np.uint8), axis=1, count=m, bitorder="little")


def distinct(words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Find the distinct rows of packed words.

    Returns
    -------
    rows : ndarray of uint64, shape (d, w)
        Distinct rows, in no particular order.
    first, times : ndarray of int64, shape (d,)
        Where each occurs first, and how often.
    place : ndarray of int64, shape (n,)
        Distinct row that each row is.

    Examples
    --------
    >>> import numpy as np
    >>> distinct(np.array([[3], [1], [3]], np.uint64))[0].tolist()
    [[1], [3]]
    """
    words = np.ascontiguousarray(words)
    if not words.size:
        each = np.arange(len(words))
        return words, each, np.ones(len(words), np.int64), each
    as_one = words.view(np.dtype((np.void, words.itemsize * words.shape[1]))).ravel()
    _, first, place, times = np.unique(as_one, return_index=True, return_inverse=True, return_counts=True)
    return words[first], first, times.astype(np.int64), place.ravel()


def transpose(words: np.ndarray, m: int) -> np.ndarray:
    """Pack the columns instead of the rows: (n, ⌈m/64⌉) words become (m, ⌈n/64⌉).

    Examples
    --------
    >>> import numpy as np
    >>> transpose(np.array([[3], [1]], np.uint64), 2)
    array([[3],
           [1]], dtype=uint64)
    """
    n = words.shape[0]
    out = np.zeros((m, 8 * -(-n // 64)), np.uint8)
    step = max(8, _CELLS // max(1, m) // 8 * 8)
    for start in range(0, n, step):
        block = unpack(words[start : start + step], m)
        out[:, start // 8 : -(-min(n, start + step) // 8)] = np.packbits(block.T, axis=1, bitorder="little")
    return _as_words(out)


def ones_of(words: np.ndarray) -> np.ndarray:
    """Count the ones of each row.

    Examples
    --------
    >>> import numpy as np
    >>> ones_of(np.array([[5], [0]], np.uint64))
    array([2, 0])
    """
    return np.bitwise_count(words).sum(axis=1, dtype=np.int64)


def product(U: Array, V: np.ndarray) -> np.ndarray:
    """Return the Boolean product of U (n × k, 0/1) with packed V, packed.

    Examples
    --------
    >>> import numpy as np
    >>> product(np.array([[1, 1], [0, 1]]), np.array([[1], [4]], np.uint64))
    array([[5],
           [4]], dtype=uint64)
    """
    on = np.asarray(U) > 0.5
    out = np.zeros((on.shape[0], V.shape[1]), np.uint64)
    for q in range(V.shape[0]):
        out[on[:, q]] |= V[q]
    return out


def count_cells(X: np.ndarray, U: Array, V: np.ndarray) -> tuple[int, int, int]:
    """Count the ones of packed X, of ``U ∘ V``, and of both at once; the product is never stored.

    Parameters
    ----------
    X : ndarray of uint64, shape (n, w)
    U : array of 0 and 1, shape (n, k)
    V : ndarray of uint64, shape (k, w)

    Returns
    -------
    ones, made, both : int
        ``|X|``, ``|U∘V|`` and ``|X ∧ U∘V|``; cells in which they differ are ``ones + made − 2 both``.

    Examples
    --------
    >>> import numpy as np
    >>> count_cells(np.array([[7]], np.uint64), np.ones((1, 2)), np.array([[1], [8]], np.uint64))
    (3, 2, 1)
    """
    run = kernel("count_bits", _REAL)
    n, words = X.shape
    block = max(64, (1 << 20) // max(1, words * max(1, V.shape[0])))
    found = np.zeros((max(1, -(-n // block)), 3), np.int64)
    on = U if is_numpy(U) and U.dtype == np.uint8 else (np.asarray(U) > 0.5).astype(np.uint8)
    on, X, V = (np.ascontiguousarray(part) for part in (on, X, V))

    def share(start: int, stop: int) -> None:
        out = found[start // block]
        if run is not None:
            run(X[start:stop], on[start:stop], V, out)
            return
        x, made = X[start:stop], product(on[start:stop], V)
        out[:] = [int(np.bitwise_count(part).sum(dtype=np.int64)) for part in (x, made, x & made)]

    for_blocks(share, n, block)
    ones, made, both = found.sum(axis=0).tolist()
    return ones, made, both


def refit(X: np.ndarray, V: np.ndarray, *, sweeps: int = 3) -> np.ndarray:
    """Choose, for each row alone, the components whose union comes close to it.

    Greedy: the component with the largest gain (ones newly covered minus zeros newly covered) as long as there is a
    gain; then sweeps in which a component is on exactly when it gains, the others held.

    Parameters
    ----------
    X : ndarray of uint64, shape (n, w)
    V : ndarray of uint64, shape (k, w)
    sweeps : int
        Most sweeps of flips; a row stops when one of them changes nothing.

    Returns
    -------
    ndarray of uint8, shape (n, k)

    Notes
    -----
    Deterministic; of equal gains the first component. O(n k m / 64) per component chosen and per sweep.

    Examples
    --------
    >>> import numpy as np
    >>> refit(np.array([[7], [0]], np.uint64), np.array([[3], [12], [4]], np.uint64))
    array([[1, 0, 1],
           [0, 0, 0]], dtype=uint8)
    """
    n = X.shape[0]
    k = V.shape[0]
    out = np.zeros((n, k), np.uint8)
    X, V = np.ascontiguousarray(X), np.ascontiguousarray(V)
    run = kernel("refit_bits", _REAL)
    if run is not None:
        block = max(16, (1 << 18) // max(1, k * V.shape[1]))
        for_blocks(lambda a, b: run(X[a:b], V, sweeps, out[a:b]), n, block)
        return out
    for rows in row_blocks(n, 64 * V.shape[1] * 8):
        out[rows] = _refit_columns(X[rows], V, sweeps)
    return out


def row_blocks(n: int, m: int) -> list[slice]:
    """Cut n rows of m cells into blocks of bounded size.

    Examples
    --------
    >>> row_blocks(3, 2)
    [slice(0, 3, None)]
    """
    step = max(1, _CELLS // max(1, m))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _refit_columns(X: np.ndarray, V: np.ndarray, sweeps: int) -> np.ndarray:
    """Do the same without numba, all rows at a time."""
    n: int = X.shape[0]
    k = V.shape[0]
    U = np.zeros((n, k), np.uint8)
    cover = np.zeros_like(X)
    rows = np.arange(n)
    for _ in range(k):
        gain = np.stack([_gain(X, cover, V[q]) for q in range(k)], axis=1) if k else np.zeros((n, 0))
        gain[U > 0] = -1
        best = gain.argmax(axis=1) if n else rows
        sel = gain[rows, best] > 0
        if not sel.any():
            break
        U[rows[sel], best[sel]] = 1
        cover[sel] |= V[best[sel]]
    going = np.ones(n, bool)
    for _ in range(sweeps):
        before = U.copy()
        for q in range(k):
            others = U.copy()
            others[:, q] = 0
            U[:, q] = np.where(going, _gain(X, product(others, V), V[q]) > 0, U[:, q])
        going &= (U != before).any(axis=1)
        if not going.any():
            break
    return U


def _gain(X: np.ndarray, cover: np.ndarray, v: np.ndarray) -> np.ndarray:
    fresh = v & ~cover
    return 2 * ones_of(fresh & X) - ones_of(fresh)


def _pack_sparse(X: Any) -> np.ndarray:
    X = X.tocsr()
    n, m = X.shape
    words = -(-m // 64)
    row = np.repeat(np.arange(n, dtype=np.int64), np.diff(X.indptr))
    kept = X.data > 0.5
    place = row[kept] * words + (X.indices[kept] >> 6)
    bit = np.left_shift(np.uint64(1), (X.indices[kept] & 63).astype(np.uint64))
    if place.size and (np.diff(place) < 0).any():
        order = np.argsort(place, kind="stable")
        place = place[order]
        bit = bit[order]
    out = np.zeros(n * words, np.uint64)
    if place.size:
        starts = np.concatenate(([0], np.flatnonzero(np.diff(place)) + 1))
        out[place[starts]] = np.bitwise_or.reduceat(bit, starts)
    return out.reshape(n, words)


def _as_words(octets: np.ndarray) -> np.ndarray:
    words = octets.view(np.uint64)
    return words.byteswap() if sys.byteorder == "big" else words
