"""The server's side of the search: from summed counts to the next question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedfactor.boolean.pooled.candidates import (
    candidate_sets,
    column_pairs,
    first_columns,
    flip_columns,
    from_octets,
    most_promising,
    to_octets,
)
from fedfactor.boolean.pooled.messages import (
    SIGNS,
    AskGains,
    AskRepeats,
    AskSwaps,
    AskTogether,
    AskTotals,
    AskVotes,
    Factor,
    Gains,
    Repeats,
    Swaps,
    Together,
    Totals,
    Votes,
)
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.download_validation import SLACK, odd_numbers, odd_octets
from fedfactor.core.pytree import Array, record, to_numpy
from fedfactor.core.wire import Leaf, Spec

GREEDY_EXCHANGES = 25
"""Exchanges in which components are chosen; with more components than this, several at a time."""

SOFT = 4
"""Exchanges in which starts with a larger penalty keep it."""

RACE = 5
"""Further exchanges until only the best starts go on."""

FINALISTS = 3
LONGEST = 12
"""Most exchanges of these."""

TRIAL = 4
"""Exchanges that a trial has to show what it is worth."""

AGAIN = 3
"""How often a question is asked again when fewer clients answer than before."""

POOL = 256
"""Components that may take the place of one of the best V."""

MOST_NUMBERS = 2_000_000
"""Numbers in one upload of votes, twice as many in one of counts, and bytes of candidates.

With many columns and components, fewer columns are counted at a time and fewer starts run side by side.
"""

FURTHER = 3
"""Exchanges in which further columns are counted when there are too many for one."""

REPEATED = 2.0
"""Mean number of copies of a row, over rows, up to which rows are taken as distinct: 1 and five standard errors."""

LARGEST = 20
"""Largest sample of a table with equal rows, in multiples of `sample`."""


class Sizes(NamedTuple):
    """The sizes of all messages, which follow from settings and the number of columns."""

    k: int
    m: int
    octets: int
    thresholds: tuple[float, ...]
    penalties: tuple[int, ...]
    sets: int
    candidates: int
    trials: int
    min_rows: int

    @property
    def starts(self) -> int:
        """Starts by greedy choice."""
        return len(self.thresholds) * len(self.penalties)

    @property
    def side_by_side(self) -> int:
        """Most V in one message: the greedy starts, one of the most frequent columns; later, trials."""
        return max(self.starts + 1, self.trials)


@record("pooled_bmf.Search")
class Search:
    """What the server knows: sums of counts, the V that are being worked on, and the best V so far."""

    stage: Array
    step: Array
    share: Array
    ones: Array
    seen: Array
    rows: Array
    best: Array
    best_wrong: Array
    best_ones: Array
    best_tag: Array
    next_tag: Array
    fails: Array
    won: Array
    like: Array
    cohort: Array
    asked_again: Array
    columns: Array | None = None
    sets: Array | None = None
    set_gains: Array | None = None
    known: Array | None = None
    candidates: Array | None = None
    picks: Array | None = None
    V: Array | None = None
    penalty: Array | None = None
    tag: Array | None = None
    pool: Array | None = None
    asked: Any = None


TOTALS, SINGLES, PAIRS, GREEDY, DESCENT, SWAP, TRIALS, LAST, DONE = range(9)


def sizes_of(algorithm: Any, m: int) -> Sizes:
    """Fit the number of starts to the size of one upload."""
    k = algorithm.n_components
    penalties = tuple(algorithm.penalties)
    most = max(1, MOST_NUMBERS // max(1, k * m * len(penalties)))
    thresholds = tuple(algorithm.thresholds)
    if len(thresholds) > most:
        places = np.linspace(0, len(thresholds) - 1, most + 2)[1:-1] if most > 1 else [0.6 * (len(thresholds) - 1)]
        thresholds = tuple(thresholds[round(float(place))] for place in places)
    octets = -(-m // 8)
    sets = min(m, algorithm.candidates, max(50, 2 * MOST_NUMBERS // max(1, m)))
    candidates = min(2 * m, algorithm.candidates, max(50, 2 * MOST_NUMBERS // max(1, octets * len(thresholds))))
    trials = int(max(1, min(algorithm.trials, MOST_NUMBERS // max(1, k * m))))
    return Sizes(k, m, octets, thresholds, penalties, sets, candidates, trials, algorithm.min_rows)


def odd_question(algorithm: Any, down: Any, meta: Meta) -> str:
    """Return why no honest server asks this: columns that do not exist, or so few rows that single ones would be
    revealed.
    """
    k = algorithm.n_components
    m = meta.n_features
    # The server looks at `sample` rows of all; fewer than that of those who answer would be a question about few rows.
    fewest = min(1.0, algorithm.sample / meta.n_rows) if meta.n_rows else 0.0
    odd = odd_numbers(
        down,
        {
            "n_components": (k, k),
            "share": (fewest * (1 - SLACK), 1.0),
            "columns": (-1.0, m - 1),
            "picks": (-1.0, np.inf),
            "penalty": (1.0, max(algorithm.penalties, default=1)),
        },
    )
    packed = [getattr(down, name) for name in ("candidates", "V", "pool") if hasattr(down, name)]
    return odd or next((said for part in packed if (said := odd_octets(part, m))), "")


def search_messages(size: Sizes, sampled: bool) -> dict[type, Spec]:
    """Announce every message of the search; those about repeated rows only where rows may be `sampled`."""
    number = Leaf("int64", ())
    real = Leaf("float64", ())
    octets = size.octets
    starts = size.starts
    k = size.k
    m = size.m
    beside = size.side_by_side
    tags = Leaf("int32", (beside,), exact=False)
    repeats: dict[type, Spec] = {
        AskRepeats: {"n_components": number},
        Repeats: {"signs": Leaf("int64", (SIGNS,)), "rows": number},
    }
    return {
        **(repeats if sampled else {}),
        AskTotals: {"n_components": number},
        Totals: {"ones": Leaf("int64", (m,)), "seen": Leaf("int64", (m,)), "rows": number},
        AskTogether: {"columns": Leaf("int32", (size.sets, 2)), "share": real},
        Together: {"together": Leaf("int32", (size.sets, m)), "count": Leaf("int32", (size.sets,))},
        AskGains: {
            "candidates": Leaf("uint8", (len(size.thresholds), size.candidates, octets)),
            "picks": Leaf("int32", (starts, k)),
            "share": real,
        },
        Gains: {"gains": Leaf("int64", (starts, size.candidates))},
        AskVotes: {
            "V": Leaf("uint8", (beside, k, octets), exact=False),
            "penalty": tags,
            "tag": tags,
            "parent": tags,
            "keep": Leaf("int32", ()),
            "thorough": Leaf("int32", ()),
            "share": real,
        },
        Votes: {
            "votes": Leaf("int32", (beside, k, m), exact=False),
            "both": Leaf("int32", (beside, k, k), exact=False),
            "wrong": Leaf("int64", (beside, 2), exact=False),
            "ones": number,
        },
        AskSwaps: {
            "V": Leaf("uint8", (k, octets)),
            "pool": Leaf("uint8", (POOL, octets)),
            "tag": Leaf("int32", ()),
            "share": real,
        },
        Swaps: {"gains": Leaf("int64", (k, POOL))},
    }


def begin(size: Sizes, dtype: str) -> tuple[Search, AskTotals]:
    """Ask how often each column occurs."""
    none = np.int64(0)
    nothing = np.zeros(size.m, np.int64)
    best = np.zeros((size.k, size.octets), np.uint8)
    unknown = np.int64(-1)
    state = Search(
        stage=none,
        step=none,
        share=np.float64(1),
        ones=nothing,
        seen=nothing,
        rows=none,
        best=best,
        best_wrong=unknown,
        best_ones=none,
        best_tag=unknown,
        next_tag=none,
        fails=none,
        won=none,
        like=np.zeros(0, dtype),
        cohort=none,
        asked_again=none,
    )
    return state, AskTotals(np.int64(size.k))


def advance(algorithm: Any, size: Sizes, state: Search, up: Any, at: Round) -> tuple[Search, Any]:
    """Take in the sums of an exchange and ask the next question.

    Sums of fewer clients than before belong to other rows: a V may look better only because those it serves
    badly stayed away. The question is asked again, a few times.
    """
    came = len(at.participants)
    if came < int(state.cohort) and int(state.asked_again) < AGAIN and state.asked is not None:
        return replace(state, asked_again=state.asked_again + 1), state.asked
    state = replace(state, cohort=np.int64(came), asked_again=np.int64(0), asked=None)
    state, down = _next(algorithm, size, state, up, at.index)
    return replace(state, asked=down), down


def _next(algorithm: Any, size: Sizes, state: Search, up: Any, index: int) -> tuple[Search, Any]:
    match up:
        case Totals():
            return _after_totals(algorithm, size, state, up)
        case Repeats():
            return _ask_singles(state, sampled_share(algorithm.sample, up))
        case Together():
            return _after_counts(algorithm, size, state, up)
        case Gains():
            return _after_gains(size, state, up)
        case Swaps():
            return _after_swaps(size, state, up)
        case Votes():
            if int(state.stage) == DESCENT:
                return _after_descent(algorithm, size, state, up, index)
            return _after_trials(algorithm, size, state, up, index)
        case _:
            raise TypeError(f"{type(up).__name__} answers no question of this search.")


def _at(state: Search, stage: int, **changes: Any) -> Search:
    return replace(state, stage=np.int64(stage), step=np.int64(0), **changes)


def _after_totals(algorithm: Any, size: Sizes, state: Search, up: Totals) -> tuple[Search, Any]:
    columns = first_columns(_enough(up.ones, size), size.sets)
    state = replace(state, ones=up.ones, seen=up.seen, rows=up.rows, columns=columns)
    if not np.asarray(up.ones).any():
        return _end(size, replace(state, best_wrong=np.int64(0)))
    if int(up.rows) > algorithm.sample:
        return state, AskRepeats(np.int64(size.k))
    return _ask_singles(state, 1.0)


def _ask_singles(state: Search, share: float) -> tuple[Search, AskTogether]:
    state = _at(state, SINGLES, share=np.float64(share))
    return state, AskTogether(state.columns, state.share)


def sampled_share(sample: int, up: Repeats) -> float:
    r"""Return the share of distinct rows that takes part in the search.

    All copies of a row take part or none, since clients cannot agree on one of many copies: a share p of rows with
    multiplicities :math:`w_i` then estimates a sum over rows with the variance :math:`(1/p - 1) \sum w_i^2` instead of
    :math:`(1/p - 1) \sum w_i`. The share is as large as it takes for the variance that `sample` of as many distinct
    rows would have, and at most `LARGEST` times as large as that of distinct rows, which bounds the time.

    Examples
    --------
    >>> import numpy as np
    >>> once, often = (Repeats(np.full(64, size), np.int64(10_000)) for size in (100, 300))
    >>> sampled_share(5000, once), round(sampled_share(5000, often), 9)
    (0.5, 0.9)
    """
    rows = max(1, int(up.rows))
    plain = min(1.0, sample / rows)
    repeats = float(np.mean(np.asarray(up.signs, np.float64) ** 2)) / rows
    if plain == 1 or repeats <= REPEATED:
        return plain
    return min(1.0, LARGEST * plain, 1 / (1 + (1 / plain - 1) / repeats))


def _enough(counts: Any, size: Sizes) -> np.ndarray:
    """Take what fewer than ``min_rows`` rows have as something that none has."""
    counts = np.asarray(counts, np.int64)
    return np.where(counts >= size.min_rows, counts, 0)


def _after_counts(algorithm: Any, size: Sizes, state: Search, up: Together) -> tuple[Search, Any]:
    together = _enough(up.together, size)
    count = _enough(up.count, size)
    observed = np.asarray(state.seen) / max(1, int(state.rows))
    sets, gains = candidate_sets(together, count, observed, size.thresholds)
    if state.sets is not None:
        sets = np.concatenate([np.asarray(state.sets), sets], axis=1)
        gains = np.concatenate([np.asarray(state.set_gains), gains], axis=1)
    if int(state.stage) == SINGLES and size.sets < size.m:
        # A column that half of another's rows have is in one of the candidates already.
        known = np.asarray(state.known) > 0 if state.known is not None else np.zeros(size.m, bool)
        known |= (2 * together >= np.maximum(count, 1)[:, None]).any(axis=0)
        columns = first_columns(np.where(known, 0, _enough(state.ones, size)), size.sets)
        if (columns >= 0).any() and int(state.step) < FURTHER:
            state = replace(state, step=state.step + 1, columns=columns, sets=sets, set_gains=gains)
            return replace(state, known=known.astype(np.uint8)), AskTogether(columns, state.share)
    elif int(state.stage) == SINGLES and algorithm.pairs:
        columns = column_pairs(np.asarray(state.columns), together, count, size.sets)
        if (columns >= 0).any():
            return _at(state, PAIRS, columns=columns, sets=sets, set_gains=gains), AskTogether(columns, state.share)
    candidates = np.array([most_promising(*part, size.candidates) for part in zip(sets, gains, strict=True)])
    if algorithm.begin is not None:  # components of an earlier run stand in for a choice among the candidates
        V = np.stack([to_octets(each) for each in (_whole(algorithm.begin.V), _frequent(np.asarray(state.ones), size))])
        state = _at(state, DESCENT, columns=None, sets=None, set_gains=None, known=None)
        # The best candidates of all thresholds take turns.
        state = replace(state, pool=candidates.swapaxes(0, 1).reshape(-1, size.octets))
        return _ask_votes(state, V, np.ones(2, np.int32), np.full(2, -1, np.int32))
    picks = np.full((size.starts, size.k), -1, np.int32)
    state = _at(state, GREEDY, columns=None, sets=None, set_gains=None, known=None, picks=picks)
    state = replace(state, candidates=candidates)
    return state, AskGains(candidates, picks, state.share)


def _after_gains(size: Sizes, state: Search, up: Gains) -> tuple[Search, Any]:
    picks = np.array(state.picks)
    candidates = np.asarray(state.candidates)
    at_once = -(-size.k // GREEDY_EXCHANGES)
    going = False
    every: np.ndarray = up.gains
    for start, gains in enumerate(every):
        mine = from_octets(candidates[start // len(size.penalties)], size.m).astype(bool)
        left = np.array(gains)
        crossed = np.zeros(size.m, bool)
        for _ in range(at_once):
            free = np.flatnonzero(picks[start] < 0)
            best = int(left.argmax())
            if not len(free) or left[best] <= 0:
                break
            picks[start, free[0]] = best
            crossed |= mine[best]
            # Gains of candidates that share no column with those just taken are what they were.
            left = np.where((mine & crossed).any(axis=1), 0, left) if at_once > 1 else np.zeros_like(left)
            going |= len(free) > 1
    if going and (picks != np.asarray(state.picks)).any():
        return replace(state, picks=picks, step=state.step + 1), AskGains(candidates, picks, state.share)
    V = [to_octets(_frequent(np.asarray(state.ones), size))]
    for start in range(size.starts):
        taken = candidates[start // len(size.penalties)][np.maximum(picks[start], 0)]
        V.append(np.where(picks[start, :, None] >= 0, taken, np.uint8(0)))
    penalty = np.array([1, *np.tile(size.penalties, len(size.thresholds))], np.int32)
    stacked, penalty = _distinct(np.array(V), penalty)
    state = _at(state, DESCENT, candidates=None, picks=None, pool=np.zeros((0, size.octets), np.uint8))
    return _ask_votes(state, stacked, penalty, np.full(len(stacked), -1, np.int32))


def _whole(V: Array) -> np.ndarray:
    return np.rint(to_numpy(V)).astype(np.uint8)


def _frequent(ones: np.ndarray, size: Sizes) -> np.ndarray:
    """Give each of the most frequent columns a component of its own."""
    V = np.zeros((size.k, size.m), np.uint8)
    order = np.argsort(-ones, kind="stable")[: size.k]
    V[np.arange(len(order)), order] = ones[order] > 0
    return V


def _distinct(V: np.ndarray, penalty: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, first = np.unique(np.column_stack([penalty, V.reshape(len(V), -1)]), axis=0, return_index=True)
    kept = np.sort(first)
    return V[kept], penalty[kept]


def _ask_votes(state: Search, V: np.ndarray, penalty: np.ndarray, parent: np.ndarray) -> tuple[Search, AskVotes]:
    first = int(state.next_tag)
    tag = np.arange(first, first + len(V), dtype=np.int32)
    state = replace(state, V=V, penalty=penalty, tag=tag, next_tag=np.int64(first + len(V)))
    thorough = np.int32(int(state.stage) == LAST)
    return state, AskVotes(V, penalty, tag, parent, np.int32(state.best_tag), thorough, state.share)


def _loss(wrong: Any, ones: Any) -> float:
    """Compare fits by the share of wrong cells: those who took part may have been others. −1: not known."""
    return float("inf") if int(wrong) < 0 else int(wrong) / max(1, int(ones))


def _flipped(size: Sizes, state: Search, up: Votes) -> np.ndarray:
    V = from_octets(np.asarray(state.V), size.m)
    votes: np.ndarray = up.votes
    both: np.ndarray = np.asarray(up.both, np.int64)
    flipped = np.array([flip_columns(V[i], votes[i], both[i]) for i in range(len(V))])
    flipped[_rare(size, state, up)] = 0
    return to_octets(flipped)


def _rare(size: Sizes, state: Search, up: Votes) -> np.ndarray:
    """Find components of each V that some rows take, but fewer than are asked for."""
    taken = np.diagonal(np.asarray(up.both, np.int64), axis1=1, axis2=2) // np.asarray(state.penalty)[:, None]
    return (taken < size.min_rows) & (taken > 0)


def _with_best(size: Sizes, state: Search, up: Votes) -> Search:
    """Remember the best V of those that were counted without a penalty; in the last stage with U as it will be."""
    plain = (np.asarray(state.penalty) == 1) & ~_rare(size, state, up).any(axis=1)
    if not plain.any():
        return state
    wrong = np.where(plain, np.asarray(up.wrong)[:, 0 if int(state.stage) == LAST else 1], np.iinfo(np.int64).max)
    place = int(wrong.argmin())
    if _loss(wrong[place], up.ones) >= _loss(state.best_wrong, state.best_ones):
        return state
    return replace(
        state,
        best=np.asarray(state.V)[place],
        best_wrong=np.int64(wrong[place]),
        best_ones=up.ones,
        best_tag=np.int64(np.asarray(state.tag)[place]),
    )


def _after_descent(algorithm: Any, size: Sizes, state: Search, up: Votes, index: int) -> tuple[Search, Any]:
    """Descend from all starts side by side; after a while only the best go on."""
    state = _with_best(size, state, up)
    step = int(state.step) + 1
    before = np.asarray(state.V)
    V = _flipped(size, state, up)
    penalty = np.array(state.penalty)
    tag = np.asarray(state.tag)
    wrong = np.asarray(up.wrong)[:, 1]
    moved = (V != before).any(axis=(1, 2))
    if step == SOFT:
        moved |= penalty > 1
        penalty[:] = 1
    going = np.arange(len(V))
    if step == SOFT + RACE:
        order = np.argsort(wrong, kind="stable")
        rows = np.concatenate([V[order].reshape(-1, size.octets), np.asarray(state.pool)])
        state = replace(state, pool=_pooled(rows, size))
        going = order[:FINALISTS]
    if step >= SOFT + RACE:
        going = going[moved[going]]
    state = replace(state, step=np.int64(step))
    if len(going) and step < SOFT + RACE + LONGEST:
        return _ask_votes(state, V[going], penalty[going], tag[going])
    return _ask_swaps(algorithm, state, index)


def _pooled(rows: np.ndarray, size: Sizes) -> np.ndarray:
    """Keep distinct components, as many as a message holds, the first ones first."""
    _, first = np.unique(rows, axis=0, return_index=True)
    kept = np.sort(first)
    kept = kept[rows[kept].any(axis=1)][:POOL]
    out = np.zeros((POOL, size.octets), np.uint8)
    out[: len(kept)] = rows[kept]
    return out


def _ask_swaps(algorithm: Any, state: Search, index: int) -> tuple[Search, Any]:
    if int(state.fails) >= algorithm.patience or index >= algorithm.search_rounds:
        return _ask_last(state)
    state = _at(state, SWAP, V=None, penalty=None, tag=None)
    return state, AskSwaps(state.best, state.pool, np.int32(state.best_tag), state.share)


def _after_swaps(size: Sizes, state: Search, up: Swaps) -> tuple[Search, Any]:
    """Try the exchanges that promise most, side by side; what failed before is not tried again."""
    gains = np.asarray(up.gains)
    best = np.asarray(state.best)
    pool = np.asarray(state.pool)
    present = {row.tobytes() for row in best}
    useful = np.array([row.any() and row.tobytes() not in present for row in pool])
    trials: list[np.ndarray] = []
    taken = np.zeros(size.k, np.int64)
    skipped = int(state.fails) * size.trials
    each = max(1, size.trials // 4)  # of one component
    for flat in np.argsort(-gains, axis=None, kind="stable"):
        q, c = divmod(int(flat), len(pool))
        if not useful[c] or taken[q] >= each * (int(state.fails) + 1):
            continue
        taken[q] += 1
        if skipped:
            skipped -= 1
            continue
        V = best.copy()
        V[q] = pool[c]
        trials.append(V)
        if len(trials) == size.trials:
            break
    if not trials:
        return _ask_last(state)
    count = len(trials)
    parent = np.full(count, int(state.best_tag), np.int32)
    return _ask_votes(_at(state, TRIALS), np.array(trials), np.ones(count, np.int32), parent)


def _after_trials(algorithm: Any, size: Sizes, state: Search, up: Votes, index: int) -> tuple[Search, Any]:
    """Let trials show what they are worth; the best of them is kept if it beats the best V so far."""
    known = int(state.best_tag)
    state = _with_best(size, state, up)
    won = bool(state.won) or int(state.best_tag) != known
    V = _flipped(size, state, up)
    step = int(state.step) + 1
    moved = (V != np.asarray(state.V)).any(axis=(1, 2))
    state = replace(state, step=np.int64(step), won=np.int64(won))
    last = int(state.stage) == LAST
    if moved.any() and step < (LONGEST if last else TRIAL):
        tag = np.asarray(state.tag)[moved]
        ones = np.ones(int(moved.sum()), np.int32)
        return _ask_votes(state, V[moved], ones, tag)
    if last:
        return _end(size, state)
    fails = np.int64(0 if won else int(state.fails) + 1)
    pool = _pooled(np.concatenate([np.asarray(state.best), np.asarray(state.pool)]), size) if won else state.pool
    return _ask_swaps(algorithm, replace(state, fails=fails, pool=pool, won=np.int64(0)), index)


def _ask_last(state: Search) -> tuple[Search, Any]:
    """Descend from the best V, now with all rows."""
    best = np.asarray(state.best)[None]
    parent = np.array([int(state.best_tag)], np.int32)
    state = _at(state, LAST, share=np.float64(1), best_wrong=np.int64(-1))
    return _ask_votes(state, best, np.ones(1, np.int32), parent)


def _end(size: Sizes, state: Search) -> tuple[Search, Factor]:
    return _at(state, DONE, V=None, penalty=None, tag=None), settled(size, state)


def settled(size: Sizes, state: Search) -> Factor:
    """Return the best V so far; while components are being chosen, those of the first start."""
    if int(state.best_wrong) < 0 and state.picks is not None and state.candidates is not None:
        picks = np.asarray(state.picks)[0]
        V = from_octets(np.asarray(state.candidates)[0][np.maximum(picks, 0)], size.m)
        V = np.where(picks[:, None] >= 0, V, 0)
    elif int(state.best_wrong) < 0 and not np.asarray(state.best).any():
        V = _frequent(np.asarray(state.ones), size)
    else:
        V = from_octets(np.asarray(state.best), size.m)
    return Factor(V.astype(np.asarray(state.like).dtype))


def figures(size: Sizes, state: Search) -> dict[str, float]:
    """Return the loss of the best V so far, and that of the most frequent columns, one each, or of one row for all."""
    ones = np.asarray(state.ones)
    seen = np.asarray(state.seen)
    total = int(ones.sum())
    found: dict[str, float] = {}
    if total:
        found["loss_of_columns"] = 1 - int(np.sort(ones)[::-1][: size.k].sum()) / total
        found["loss_of_one_row"] = int(np.minimum(ones, seen - ones).sum()) / total
    if int(state.best_wrong) >= 0:
        found["loss"] = _loss(state.best_wrong, state.best_ones)
        found["relative_error"] = found["loss"] ** 0.5
    return found
