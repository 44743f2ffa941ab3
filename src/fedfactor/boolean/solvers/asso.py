"""ASSO: candidate components from associations between columns, chosen greedily."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean.solvers.result import Clock, Factored, better, from_lists
from fedfactor.core.pytree import Array
from fedfactor.core.threads import for_blocks
from fedfactor.linalg.compiled.compile import kernel

__all__ = ["asso", "association_candidates"]
_REAL = np.dtype(np.float64)
_CELLS = 1 << 23  # cells of the association matrix that may exist at one time
TAUS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def asso(
    X: Array,
    k: int,
    *,
    tau: float | Sequence[float] = TAUS,
    reward: float = 1.0,
    penalty: float = 1.0,
    time_limit: float | None = None,
) -> Factored:
    r"""Factor a Boolean matrix with ASSO.

    Column i proposes the component of all columns j with :math:`|x_i \wedge x_j| / |x_i| \ge \tau`. Then k times: each
    candidate is scored by the rows that would take it, :math:`\sum_r \max(g_r, 0)` with :math:`g_r` = reward × ones
    newly covered − penalty × zeros newly covered; the best is taken.

    Parameters
    ----------
    X : array or sparse matrix of 0 and 1, shape (n, m)
    k : int
        Most components.
    tau : float or sequence of float
        Threshold of the association; of several the one with the fewest wrong cells is kept.
    reward, penalty : float
        Weights of newly covered ones and zeros.
    time_limit : float, optional
        Seconds; what was found by then is returned.

    Returns
    -------
    Factored

    Notes
    -----
    O(k n m² / 64) at worst. After a choice only the rows that took it are scored again, which changes nothing in the
    result. With whole `reward` and `penalty` equal rows are scored once and counted as often as they occur, with the
    same result.

    References
    ----------
    .. [1] P. Miettinen, T. Mielikäinen, A. Gionis, G. Das, H. Mannila, "The discrete basis problem", IEEE TKDE 20
       (2008). doi:10.1109/TKDE.2008.53

    Examples
    --------
    >>> import numpy as np
    >>> asso(np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]]), 2).V
    array([[1, 1, 0],
           [0, 0, 1]], dtype=uint8)
    """
    taus = (cast("float", tau),) if np.isscalar(tau) else tuple(cast("Sequence[float]", tau))
    if not taus or not all(0 < t <= 1 for t in taus):
        raise ValueError(f"tau={tau} must lie in (0, 1]: it is a share of a column's ones.")
    if not (reward > 0 and penalty >= 0):
        raise ValueError(f"reward={reward} must be positive, and penalty={penalty} must not be negative.")
    clock = Clock(time_limit)
    words = bits.pack(X)
    found: list[Factored] = []
    seen: set[bytes] = set()
    # Whole gains add up exactly in any order; others keep the order of the rows.
    rows = _Rows.merged(words) if float(reward).is_integer() and float(penalty).is_integer() else _Rows.single(words)
    for t in taus:
        candidates = association_candidates(X, t)
        key = candidates.tobytes()
        if key in seen:
            continue  # two thresholds with the same candidates give the same factors
        seen.add(key)
        found.append(_choose(rows, candidates, X.shape[1], k, reward, penalty, clock))
        if clock.rang:
            break
    return better(words, found)


class _Rows(NamedTuple):
    """Packed rows, how often each occurs, and which of them each row of the data is."""

    words: np.ndarray
    times: np.ndarray
    place: np.ndarray

    @classmethod
    def merged(cls, words: np.ndarray) -> _Rows:
        rows, _, times, place = bits.distinct(words)
        return cls(rows, times, place)

    @classmethod
    def single(cls, words: np.ndarray) -> _Rows:
        return cls(words, np.ones(len(words), np.int64), np.arange(len(words)))


def association_candidates(X: Array, tau: float) -> np.ndarray:
    """Return the distinct candidate components of ASSO, packed, in the order of the columns that propose them.

    Examples
    --------
    >>> import numpy as np
    >>> association_candidates(np.array([[1, 1], [1, 0]]), 0.8)
    array([[1],
           [3]], dtype=uint64)
    """
    S = X.tocsr() if scipy.sparse.issparse(X) else scipy.sparse.csr_array(np.asarray(X) > 0.5)
    S = _ones(S)
    m = S.shape[1]
    T = S.T.tocsr()
    sizes = np.asarray(S.sum(axis=0)).ravel()
    step = max(1, _CELLS // max(1, m))
    parts: list[np.ndarray] = []
    for start in range(0, m, step):
        both = (T[start : start + step] @ S).toarray()
        size = sizes[start : start + step, None]
        # A tiny allowance: 0.7 times 10 is a little more than 7 in binary.
        parts.append(bits.pack((both >= tau * size - 1e-6 * size) & (size > 0)))
    every = np.concatenate(parts) if parts else np.zeros((0, 0), np.uint64)
    return _distinct(every[bits.ones_of(every) > 0])


def _ones(S: Any) -> Any:
    S = S.astype(np.float32)
    S.data = (S.data > 0.5).astype(np.float32)
    S.eliminate_zeros()
    return S


def _distinct(words: np.ndarray) -> np.ndarray:
    """Drop repeated rows; keep the order of first appearance."""
    if not len(words):
        return words
    _, first = np.unique(words, axis=0, return_index=True)
    return np.ascontiguousarray(words[np.sort(first)])


def _choose(
    rows: _Rows, candidates: np.ndarray, m: int, k: int, reward: float, penalty: float, clock: Clock
) -> Factored:
    X, times, place = rows
    cover = np.zeros_like(X)
    us: list[np.ndarray] = []
    vs: list[np.ndarray] = []
    scores = _scores(X, cover, times, candidates, reward, penalty) if len(candidates) else np.zeros(0)
    while len(us) < k and scores.size and not clock.over():
        best = int(scores.argmax())
        if scores[best] <= 0:
            break
        row = candidates[best]
        u = _gains(X, cover, row, reward, penalty) > 0
        if not u.any():
            break  # what was left of the score was rounding
        us.append(u[place])
        vs.append(bits.unpack(row[None], m)[0])
        scores -= _scores(X[u], cover[u], times[u], candidates, reward, penalty)
        cover[u] |= row
        scores += _scores(X[u], cover[u], times[u], candidates, reward, penalty)
    return from_lists(us, vs, len(place), m, k, finished=not clock.rang)


def _gains(X: np.ndarray, cover: np.ndarray, row: np.ndarray, reward: float, penalty: float) -> np.ndarray:
    fresh = row & ~cover
    right = bits.ones_of(fresh & X)
    return reward * right - penalty * (bits.ones_of(fresh) - right)


def _scores(
    X: np.ndarray, cover: np.ndarray, times: np.ndarray, candidates: np.ndarray, reward: float, penalty: float
) -> np.ndarray:
    out = np.zeros(len(candidates))
    run = kernel("cover_scores", _REAL)
    if run is None:
        for c, row in enumerate(candidates):
            out[c] = (times * np.maximum(_gains(X, cover, row, reward, penalty), 0)).sum()
        return out
    X, cover = np.ascontiguousarray(X), np.ascontiguousarray(cover)
    # Candidates are independent: the cuts are a matter of balance only.
    block = max(8, (1 << 20) // max(1, X.size))
    for_blocks(lambda a, b: run(X, cover, times, candidates[a:b], reward, penalty, out[a:b]), len(candidates), block)
    return out
