"""A client's side of the search: answer the server's questions with counts over one's own rows."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean import counting as home
from fedfactor.boolean.pooled.candidates import from_octets
from fedfactor.boolean.pooled.messages import (
    SIGNS,
    AskGains,
    AskRepeats,
    AskSwaps,
    AskTogether,
    AskVotes,
    Gains,
    Repeats,
    Swaps,
    Together,
    Totals,
    Votes,
)
from fedfactor.core.client_data import Shard
from fedfactor.core.pytree import Array, record

SALT = 0x5EED
"""Where the choice of rows starts from; it is public, and it chooses by the cells of a row alone."""


@record("pooled_bmf.Home")
class Home:
    """Stays home: what is covered by the choices of each start so far; then U for each V, packed, by tag."""

    picks: Array | None = None
    covered: Array | None = None
    gains: Array | None = None
    tag: Array | None = None
    U: Array | None = None
    share: Array | None = None


_packed: WeakKeyDictionary[Shard, dict[float, home.Bits]] = WeakKeyDictionary()
"""Distinct rows as bits with their multiplicities, all of them and the shares that were asked about: packing takes
longer than most answers."""


def begin(shard: Shard) -> Home:
    """Know nothing yet; rows may have changed since the last run."""
    _packed.pop(shard, None)
    return Home()


def _rows(shard: Shard, share: float) -> home.Bits:
    known = _packed.setdefault(shard, {})
    if 1.0 not in known:
        known[1.0] = home.merged(home.observed(shard.X, shard.mask))[0]
    if share not in known:
        for other in [other for other in known if other != 1.0]:
            del known[other]
        known[share] = home.sampled(known[1.0], share, SALT)
    return known[share]


def answer(penalties: tuple[int, ...], shard: Shard, state: Home, down: Any) -> tuple[Home, Any]:
    """Count what the server asks for; return the new state and the counts."""
    match down:
        case AskRepeats():
            rows = _rows(shard, 1.0)
            filled = rows.multiplicity @ rows.ones.any(axis=1)
            return state, Repeats(home.signed_counts(rows, SIGNS, SALT), np.int64(filled))
        case AskTogether():
            together, count = home.rows_with(_rows(shard, float(down.share)), down.columns)
            return state, Together(together.astype(np.int32), count.astype(np.int32))
        case AskGains():
            return _gains(penalties, _rows(shard, float(down.share)), state, down)
        case AskVotes():
            return _votes(_rows(shard, float(down.share)), state, down)
        case AskSwaps():
            rows = _rows(shard, float(down.share))
            V = packed(down.V, rows.m)
            pool = packed(down.pool, rows.m)
            U, _ = home.choose(rows, V, _hint(state, int(down.tag), float(down.share), len(V)), thorough=False)
            return state, Swaps(home.swap_gains(rows, U, V, pool))
        case _:
            return state, Totals(*home.column_counts(shard.X, shard.mask), np.int64(shard.n_rows))


def packed(octets: np.ndarray, m: int) -> np.ndarray:
    """Turn the form in which components travel into words."""
    return bits.pack(from_octets(octets, m))


def _gains(penalties: tuple[int, ...], rows: home.Bits, state: Home, down: AskGains) -> tuple[Home, Gains]:
    picks = np.asarray(down.picks)
    words = [packed(part, rows.m) for part in down.candidates]
    before = None if state.picks is None or state.covered is None else np.asarray(state.picks)
    # Who was away, or starts, or meets other choices than it knew begins with nothing covered.
    known = before is not None and bool(((before == picks) | (before < 0)).all())
    known = known and state.covered.shape[1] == len(rows.ones)  # type: ignore[union-attr]
    covered = np.array(state.covered) if known else np.zeros((len(picks), *rows.ones.shape), np.uint64)
    gains = np.array(state.gains) if known else np.zeros((len(picks), down.candidates.shape[1]), np.int64)
    for start, chosen in enumerate(picks):
        candidates = words[start // len(penalties)]
        penalty = penalties[start % len(penalties)]
        if not known:
            gains[start] = home.cover_gains(rows, covered[start], candidates, penalty=penalty)
        fresh = chosen[(chosen >= 0) & (before[start] < 0 if known else True)]  # type: ignore[index]
        for place in fresh:
            # Only the rows that take a candidate have other gains afterwards.
            old = covered[start].copy()
            took = home.take(rows, candidates[place], covered[start], penalty=penalty)
            part = rows.rows(took)
            gains[start] -= home.cover_gains(part, np.ascontiguousarray(old[took]), candidates, penalty=penalty)
            gains[start] += home.cover_gains(
                part, np.ascontiguousarray(covered[start][took]), candidates, penalty=penalty
            )
    return Home(picks=picks, covered=covered, gains=gains), Gains(gains)


def _votes(rows: home.Bits, state: Home, down: AskVotes) -> tuple[Home, Votes]:
    size, k = down.V.shape[:2]
    votes = np.zeros((size, k, rows.m), np.int32)
    both = np.zeros((size, k, k), np.int32)
    wrong = np.zeros((size, 2), np.int64)
    kept: list[np.ndarray] = []
    times = rows.multiplicity
    for place in range(size):
        V = packed(down.V[place], rows.m)
        penalty = int(down.penalty[place])
        hint = _hint(state, int(down.parent[place]), float(down.share), k)
        if hint is None:  # a question that was asked before
            hint = _hint(state, int(down.tag[place]), float(down.share), k)
        U, wrong[place] = home.choose(rows, V, hint, penalty=penalty, thorough=bool(down.thorough))
        votes[place] = home.column_votes(rows, U, V, penalty=penalty)
        both[place] = penalty * np.rint(U.T.astype(np.float64) @ (U * times[:, None])).astype(np.int32)
        kept.append(np.packbits(U, axis=1))
    tag = np.asarray(down.tag)
    known = _hint(state, int(down.keep), float(down.share), k)
    if known is not None and int(down.keep) not in tag:
        tag = np.append(tag, np.int32(down.keep))
        kept.append(np.packbits(known, axis=1))
    ones = np.int64(times @ bits.ones_of(rows.ones))
    return Home(tag=tag, U=np.array(kept), share=down.share), Votes(votes, both, wrong, ones)


def _hint(state: Home, tag: int, share: float, k: int) -> np.ndarray | None:
    """Find the U that belongs to a tag; who was away has none, and needs none."""
    if state.tag is None or state.U is None or state.share is None or float(state.share) != share:
        return None
    found = np.flatnonzero(np.asarray(state.tag) == tag)
    return np.unpackbits(state.U[found[0]], axis=1, count=k) if len(found) else None
