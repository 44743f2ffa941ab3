"""MEBF: tiles spanned by median rows and columns, cut out one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean.solvers.result import Clock, Factored, better, from_lists
from fedfactor.core.pytree import Array
from fedfactor.core.threads import for_blocks
from fedfactor.linalg.compiled.compile import kernel

__all__ = ["mebf"]
_REAL = np.dtype(np.float64)


def mebf(
    X: Array, k: int, *, share: float | Sequence[float] = 0.8, leave: float = 0.05, time_limit: float | None = None
) -> Factored:
    r"""Factor a Boolean matrix by median expansion.

    In what is left of X, each column whose sum is the median of the positive column sums (or the next larger sum that
    occurs) spans a tile: its rows u, and all columns v that have ones in a share of them. Rows do likewise. The tile
    with the largest :math:`(|u|-1)(|v|-1) - \#\text{zeros}` is cut out. When no score is positive, the rows that hold
    both of the two heaviest columns (or the columns of the two heaviest rows) are tried: weak signals.

    Parameters
    ----------
    X : array or sparse matrix of 0 and 1, shape (n, m)
    k : int
        Most components.
    share : float or sequence of float
        How many of u's rows a column must have; of several the one with the fewest wrong cells is kept.
    leave : float
        Stop when at most this share of the ones is left.
    time_limit : float, optional
        Seconds; what was found by then is returned.

    Returns
    -------
    Factored

    References
    ----------
    .. [1] C. Wan, W. Chang, T. Zhao, M. Li, S. Cao, C. Zhang, "Fast and efficient Boolean matrix factorization by
       geometric segmentation", AAAI 2020. doi:10.1609/aaai.v34i04.6072

    Examples
    --------
    >>> import numpy as np
    >>> X = np.kron(np.eye(2, dtype=int), np.ones((3, 3), int))
    >>> mebf(X, 2).V
    array([[1, 1, 1, 0, 0, 0],
           [0, 0, 0, 1, 1, 1]], dtype=uint8)
    """
    shares = (cast("float", share),) if np.isscalar(share) else tuple(cast("Sequence[float]", share))
    if not shares or not all(0 < s <= 1 for s in shares):
        raise ValueError(f"share={share} must lie in (0, 1].")
    if not 0 <= leave < 1:
        raise ValueError(f"leave={leave} must lie in [0, 1): it is a share of the ones.")
    clock = Clock(time_limit)
    words = bits.pack(X)
    found: list[Factored] = []
    for s in shares:
        found.append(_cut_out(words.copy(), X.shape[1], k, float(s), leave, clock))
        if clock.rang:
            break
    return better(words, found)


def _cut_out(rows: np.ndarray, m: int, k: int, share: float, leave: float, clock: Clock) -> Factored:
    n = rows.shape[0]
    columns = bits.transpose(rows, m)
    us: list[np.ndarray] = []
    vs: list[np.ndarray] = []
    enough = leave * int(bits.ones_of(rows).sum())
    while len(us) < k and not clock.over():
        left = int(bits.ones_of(rows).sum())
        if left == 0 or left <= enough:
            break
        tile = _median_tile(rows, columns, share) or _weak_tile(rows, columns, share)
        if tile is None:
            break
        u, v = tile
        us.append(bits.unpack(u[None], n)[0])
        vs.append(bits.unpack(v[None], m)[0])
        rows[us[-1] > 0] &= ~v
        columns[vs[-1] > 0] &= ~u
    return from_lists(us, vs, n, m, k, finished=not clock.rang)


def _median_tile(rows: np.ndarray, columns: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the best tile (its rows, its columns) spanned by a median column or row, if its score is positive."""
    best = 0.0
    chosen = None
    for lines in (columns, rows):
        sums = bits.ones_of(lines)
        positive = sums[sums > 0]
        if positive.size == 0 or np.median(positive) <= 1:
            continue
        candidates = np.flatnonzero(sums == sums[sums >= np.median(positive)].min())
        scores = _scores(lines, candidates, share)
        place = int(scores.argmax())
        if scores[place] > best:
            best = float(scores[place])
            chosen = (lines, lines[candidates[place]].copy())
    if chosen is None:
        return None
    lines, line = chosen
    others = _span(lines, line, share)
    return (line, others) if lines is columns else (others, line)


def _weak_tile(rows: np.ndarray, columns: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Start from what the two heaviest columns, or the two heaviest rows, have in common."""
    found: list[tuple[float, tuple[np.ndarray, np.ndarray]]] = []
    for lines in (columns, rows):
        if lines.shape[0] < 2:
            continue
        first, second = np.argsort(-bits.ones_of(lines), kind="stable")[:2]
        line = lines[first] & lines[second]
        if int(np.bitwise_count(line).sum()) > 1:
            others = _span(lines, line, share)
            found.append((_score(lines, line, share), (line, others) if lines is columns else (others, line)))
    return max(found, key=lambda one: one[0])[1] if found else None


def _need(size: int, share: float) -> float:
    return min(share * size + 1, size)


def _span(lines: np.ndarray, line: np.ndarray, share: float) -> np.ndarray:
    """Return, packed, the lines that agree with `line` on enough of its ones."""
    agree = bits.ones_of(lines & line) >= _need(int(np.bitwise_count(line).sum()), share)
    return bits.pack(agree[None])[0]


def _score(lines: np.ndarray, line: np.ndarray, share: float) -> float:
    size = int(np.bitwise_count(line).sum())
    both = bits.ones_of(lines & line)
    inside = both >= _need(size, share)
    width = int(inside.sum())
    return float((size - 1) * (width - 1) - (size * width - int(both[inside].sum())))


def _scores(lines: np.ndarray, candidates: np.ndarray, share: float) -> np.ndarray:
    run = kernel("tile_scores", _REAL)
    if run is None:
        return np.array([_score(lines, lines[c], share) for c in candidates])
    out = np.zeros(len(candidates))
    candidates = np.ascontiguousarray(candidates, np.int64)
    block = max(1, (1 << 20) // max(1, lines.size))
    for_blocks(lambda a, b: run(lines, candidates[a:b], share, out[a:b]), len(candidates), block)
    return out
