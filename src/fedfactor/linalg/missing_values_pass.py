"""U for a given V over observed cells, and the sums of a gradient, from one pass over dense rows.

Every row has normal equations of its own: the products of the components over its observed cells. They are summed once
a pass (over the missing cells, where those are fewer), and the sweeps then cost what they cost on complete rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fedfactor.core.pytree import is_numpy
from fedfactor.core.threads import for_blocks
from fedfactor.linalg.compiled.compile import aligned, kernel, scratch
from fedfactor.linalg.products import as_like, gram_rows
from fedfactor.linalg.single_pass import added, chunks, packed_tiles, register_sizes

__all__ = ["MaskedPass", "masked_pass", "takes"]

_MOST = 64
"""Components up to which the Gram matrices of a group of rows stay in cache."""

_KEPT = 1 << 22
"""Numbers of sums that a thread keeps the memory of."""


class MaskedPass(NamedTuple):
    """What a pass leaves: U, ``UᵀU``, ``Uᵀ(M∗X)``, ``Uᵀ(M∗UV)``, the squared error of observed cells, the ridge paid.

    The last is ``Σ_i q_i ‖U_i‖²`` with ``q_i`` the ridge of row i, and zero without a sweep.
    """

    U: np.ndarray
    G: np.ndarray
    N: np.ndarray
    D: np.ndarray
    sse: float
    ridge: float


def takes(X: Any, mask: Any, U: Any) -> bool:
    """Return whether these rows can go through the compiled pass, for a U of this type.

    Examples
    --------
    >>> takes(np.eye(2), "stored", np.eye(2))
    False
    """
    dense = is_numpy(X) and is_numpy(mask) and X.dtype == U.dtype
    return dense and U.shape[1] <= _MOST and kernel("masked_rows", X.dtype) is not None


def masked_pass(
    X: np.ndarray,
    mask: np.ndarray,
    V: np.ndarray,
    U: np.ndarray,
    *,
    sweeps: int = 0,
    tol: float = 0.0,
    pay: tuple[float, Any, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0),
    sums: bool = True,
) -> MaskedPass:
    r"""Sweep over U for a fixed V on observed cells, and sum over rows, reading X once.

    Parameters
    ----------
    X, mask : ndarray, shape (n, m)
        Rows, and True where a cell was observed.
    V, U : ndarray, shape (k, m) and (n, k)
    sweeps : int
        Passes over the coordinates; 0 leaves U as it is.
    tol, pay
        As in :func:`~fedfactor.linalg.missing_values.solve_rows_masked`.
    sums : bool
        Whether to sum; else all but U is empty.

    Notes
    -----
    Time: 8 n m k operations, and k² for every missing cell (every observed one where more are missing), at most k² m
    for a few rows; 2 k² for each row and sweep. Which rows stand together changes the order of sums, and nothing else.

    Examples
    --------
    >>> X = np.array([[2.0, np.nan]])
    >>> done = masked_pass(X, ~np.isnan(X), np.array([[1.0, 5.0]]), np.zeros((1, 1)), sweeps=1)
    >>> done.U, done.N, done.D, done.sse
    (array([[2.]]), array([[4., 0.]]), array([[4., 0.]]), 0.0)
    """
    from fedfactor.linalg.compiled import vector_code as vectors

    run: Any = kernel("masked_rows", X.dtype)
    lanes = vectors.LANES
    (n, m), k, real = X.shape, U.shape[1], X.dtype
    across, _, padded = register_sizes(vectors, real, k)
    whole = -(-m // across)
    V = as_like(V, X)
    U = np.ascontiguousarray(as_like(U, X))
    packed = packed_tiles(V, 0, whole, across, padded, vectors.TILE)
    flat = aligned((k, whole * across), real)
    turned = aligned((m, padded), real)
    flat[:, :m] = V
    turned[:, :k] = V.T
    tiles, places, G = _blocks(gram_rows(V), padded, vectors.TILE, vectors.blocks_of_grams(real.itemsize))
    l1, l2, *ridge = pay
    l2, ridge = np.broadcast_to(np.asarray(l2, real), (1, k)).copy(), np.array(ridge, real)
    out = np.empty((n if sweeps else 0, k), real)
    group, together = vectors.MASKED, _together(m)
    copy = 2 * padded * whole * across * 8
    bounds = chunks(n, group, 2 * X.size * k, X.nbytes, copy if sums else 0)
    count = len(bounds) - 1
    H, told = np.zeros((count, padded, padded)), np.zeros((count, 2))
    sizes = (count, 2, padded, whole * across if sums else 1)
    # Memory that the kernel has to find again costs more than the sums: a limited amount is kept.
    both = (scratch if math.prod(sizes) <= _KEPT else _anew)("both", sizes, np.dtype(np.float64))
    tile = vectors.rows_of_tile() * across

    def part(chunk: int, _: int) -> None:
        both[chunk] = 0
        Y, F = scratch("Y", (lanes, whole * across), real), scratch("F", (lanes, tile), real)
        seen = scratch("seen", (lanes, whole * across), np.dtype(np.uint8))
        Y[:, m:] = 0
        seen[:, m:] = 0
        W, B = scratch("masked W", (padded, lanes), real), scratch("masked B", (padded, lanes), real)
        Wt, ends = scratch("Wt", (lanes, k), real), aligned((lanes, 2 * across), real)
        own, one = scratch("own", (G.size, lanes), real), scratch("one", (lanes, G.size), real)
        kinds = scratch("kinds", (1 << together, G.size), real)
        codes, cells = scratch("codes", (1, m), np.dtype(np.uint8)), scratch("cells", (m,), np.dtype(np.int32))
        kept = scratch("kept", (padded * lanes * across,), real)
        for a in range(bounds[chunk], bounds[chunk + 1], lanes * group):
            b = min(a + lanes * group, bounds[chunk + 1])
            rows, marks = np.ascontiguousarray(X[a:b]), np.ascontiguousarray(mask[a:b]).view(np.uint8)
            run(
                rows,
                marks,
                flat,
                packed,
                turned,
                G,
                U[a:b],
                out[a:b],
                0,
                b - a,
                sweeps,
                l1,
                tol,
                l2,
                ridge,
                sweeps > 0,
                sums,
                together,
                *both[chunk],
                H[chunk],
                Y,
                seen,
                W,
                B,
                Wt,
                F,
                own,
                one,
                kinds,
                ends,
                codes,
                cells,
                tiles,
                places,
                told[chunk],
                kept,
            )

    for_blocks(part, count, 1)
    U = out if sweeps else U
    if not sums:
        empty = np.zeros((0, 0), real)
        return MaskedPass(U, empty, empty, empty, 0.0, 0.0)
    first, second = (np.array(each[:k, :m], dtype=real, order="C") for each in added(both))
    sse, paid = told.sum(axis=0).tolist()
    return MaskedPass(U, added(list(H))[:k, :k].astype(real), first, second, sse, paid)


def _anew(_: str, shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    return aligned(shape, kind)


def _together(m: int) -> int:
    """Return how many rows share the sums of their columns: the more columns, the less do sums of few of them cost."""
    return 3 + (m > 100) + (m > 300) + (m > 1500)


def _blocks(gram: np.ndarray, padded: int, tile: int, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut the lower half of a Gram matrix into blocks of `tile` by `tile`, which lie one after the other.

    Returns which blocks are summed together (a shape, its first row, its first column; see ``gram_tile``), where the
    product of two components lies, and the matrix itself so laid out.
    """
    k = len(gram)
    count = padded // tile
    tiles: list[tuple[int, int, int]] = []
    for row in range(0, count, side):
        rows = min(side, count - row)
        tiles += [(side + rows - 1, row, column) for column in range(0, row, side)] + [(rows - 1, row, row)]
    high = np.maximum(*np.indices((k, k)))
    low = np.minimum(*np.indices((k, k)))
    block = high // tile * (high // tile + 1) // 2 + low // tile
    places = block * tile * tile + high % tile * tile + low % tile
    laid = aligned((1, count * (count + 1) // 2 * tile * tile), gram.dtype)
    laid[0, places] = gram
    return np.array(tiles, np.int64), places.astype(np.int64), laid
