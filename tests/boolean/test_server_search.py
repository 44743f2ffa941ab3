"""The server's side of the search of PooledBMF: sizes, choices and stages, from sums written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfactor.algorithms import PooledBMF
from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean import counting as kernel
from fedfactor.boolean.pooled import client_counts as home
from fedfactor.boolean.pooled import server_search as search
from fedfactor.boolean.pooled.candidates import from_octets, to_octets
from fedfactor.boolean.pooled.messages import (
    SIGNS,
    AskGains,
    AskRepeats,
    AskSwaps,
    AskTogether,
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
from fedfactor.core.client_data import Shard


def octets(*sets, m=60):
    rows = np.zeros((len(sets), m), np.uint8)
    for row, columns in zip(rows, sets, strict=True):
        row[list(columns)] = 1
    return to_octets(rows)


def sizes(k=3, m=60, **changes):
    plain = search.Sizes(k, m, -(-m // 8), (0.5,), (1,), sets=4, candidates=4, trials=4, min_rows=1)
    return plain._replace(**changes)


def started(size, **changes):
    return replace(search.begin(size, "float64")[0], **changes)


class TestSizes:
    def test_few_columns_keep_all_starts(self):
        size = search.sizes_of(PooledBMF(4), 30)
        assert (size.k, size.m, size.octets) == (4, 30, 4)
        assert (len(size.thresholds), size.penalties) == (8, (1, 2, 4))
        assert (size.sets, size.candidates, size.trials) == (30, 60, 8)
        assert (size.starts, size.side_by_side) == (24, 25)

    def test_many_columns_leave_fewer_starts_and_counts(self):
        # 2,000,000 numbers in one upload of 10 × 20,000 for each of three penalties: three thresholds.
        size = search.sizes_of(PooledBMF(10), 20_000)
        assert size.thresholds == (0.5, 0.7, 0.8)
        assert (size.sets, size.candidates, size.trials) == (200, 533, 8)
        alone = search.sizes_of(PooledBMF(20), 50_000)
        assert alone.thresholds == (0.7,)
        assert (alone.sets, alone.trials) == (80, 2)
        assert search.sizes_of(PooledBMF(50), 100_000).sets == 50

    def test_trials_may_be_more_than_starts(self):
        assert sizes(trials=9).side_by_side == 9
        assert sizes(trials=1).side_by_side == 2


class TestTotals:
    def test_of_many_rows_a_sample_is_looked_at(self):
        size, method = sizes(m=4, sets=2), PooledBMF(3, sample=50)
        ones = np.array([1, 9, 0, 5])
        state, down = search._next(method, size, started(size), Totals(ones, np.full(4, 200), np.int64(200)), 0)
        assert isinstance(down, AskRepeats)
        for square, rows, share in ((200, 200, 0.25), (390, 200, 0.25), (1800, 200, 0.75), (900, 60, 50 / 60)):
            up = Repeats(np.full(SIGNS, square**0.5), np.int64(rows))
            after, down = search._next(method, size, state, up, 1)
            assert isinstance(down, AskTogether)
            assert int(after.stage) == search.SINGLES
            if square > search.REPEATED * rows:
                share = 1 / (1 + (rows / 50 - 1) / (square / rows))
            assert float(down.share) == pytest.approx(share, rel=1e-12)
        assert search.sampled_share(5, Repeats(np.full(SIGNS, 1000), np.int64(200))) == 0.5  # at most 20 times 5 rows
        few = search._next(method, size, started(size), Totals(ones, np.full(4, 40), np.int64(40)), 0)[1]
        assert float(few.share) == 1.0

    def test_without_ones_the_search_is_over(self):
        size = sizes(m=4)
        up = Totals(np.zeros(4, np.int64), np.full(4, 9), np.int64(9))
        state, down = search._next(PooledBMF(3), size, started(size), up, 0)
        assert int(state.stage) == search.DONE
        assert isinstance(down, Factor)
        assert not down.V.any()

    def test_what_fewer_rows_have_is_taken_as_nothing(self):
        assert search._enough([2, 3, 4], sizes(min_rows=3)).tolist() == [0, 3, 4]


class TestFurtherColumns:
    def after(self, ones, **changes):
        size, count = sizes(m=8, sets=4), np.array([9, 8, 7, 6])
        columns = search.first_columns(np.array([0, 9, 8, 7, 6, 0, 0, 0]), 4)
        together = np.zeros((4, 8), np.int64)
        together[range(4), range(1, 5)] = count
        about = {"ones": np.array(ones), "seen": np.full(8, 20), "rows": np.int64(20), "share": np.float64(1)}
        state = started(size, stage=np.int64(search.SINGLES), columns=columns, **about | changes)
        return search._next(PooledBMF(3), size, state, Together(together, count), 0)

    @pytest.mark.parametrize("column", [0, 7])
    def test_what_no_candidate_has_is_asked_for(self, column):
        ones = [0, 9, 8, 7, 6, 0, 0, 0]
        ones[column] = 2
        state, down = self.after(ones)
        assert isinstance(down, AskTogether)
        assert sorted(set(np.asarray(down.columns).ravel().tolist())) == [-1, column]
        assert state.known.tolist() == [0, 1, 1, 1, 1, 0, 0, 0]
        assert int(state.step) == 1

    def test_but_not_for_ever(self):
        assert isinstance(self.after([0, 9, 8, 7, 6, 0, 0, 0])[1], AskGains)
        assert isinstance(self.after([2, 9, 8, 7, 6, 0, 0, 0], step=np.int64(2))[1], AskTogether)
        assert isinstance(self.after([2, 9, 8, 7, 6, 0, 0, 0], step=np.int64(3))[1], AskGains)


class TestGreedyChoice:
    def after(self, size, gains, picks=None):
        candidates = octets({0, 1}, {1, 2}, {5}, {6})[None]
        first = np.full((1, size.k), -1, np.int32) if picks is None else picks
        state = started(size, candidates=candidates, picks=first, stage=np.int64(search.GREEDY), ones=np.arange(60))
        return search._next(PooledBMF(3), size, state, Gains(np.array([gains])), 0)

    def test_one_component_at_a_time(self):
        state, down = self.after(sizes(k=3), [10, 9, 8, 0])
        assert isinstance(down, AskGains)
        assert state.picks.tolist() == [[0, -1, -1]]
        assert int(state.step) == 1

    def test_several_at_a_time_share_no_column(self):
        # 51 components in 25 exchanges are three at a time; the second candidate crosses the first, the last gains 0.
        state, down = self.after(sizes(k=51), [10, 9, 8, 0])
        assert isinstance(down, AskGains)
        assert state.picks[0, :4].tolist() == [0, 2, -1, -1]
        assert self.after(sizes(k=26), [10, 9, 8, 7])[0].picks[0, :3].tolist() == [0, 2, -1]
        assert self.after(sizes(k=25), [10, 9, 8, 7])[0].picks[0, :3].tolist() == [0, -1, -1]

    @pytest.mark.parametrize("gains", [[0, 0, 0, 0], [1, 0, 0, 0]])
    def test_when_all_are_chosen_or_none_gains_the_descent_begins(self, gains):
        picks = np.array([[2, 3, -1 if any(gains) else 1]], np.int32)
        state, down = self.after(sizes(k=3), gains, picks)
        assert isinstance(down, AskVotes)
        assert int(state.stage) == search.DESCENT
        # The three most frequent columns, one each, then what was chosen.
        frequent, chosen = from_octets(down.V, 60)
        assert [np.flatnonzero(row).tolist() for row in frequent] == [[59], [58], [57]]
        last = [0, 1] if any(gains) else [1, 2]
        assert [np.flatnonzero(row).tolist() for row in chosen] == [[5], [6], last]
        assert down.tag.tolist() == [0, 1]
        assert down.parent.tolist() == [-1, -1]
        assert int(down.thorough) == 0

    def test_starts_that_are_alike_are_one(self):
        V = octets({1}, {2})[:, None]
        kept, penalty = search._distinct(V[[0, 1, 0, 0]], np.array([1, 1, 1, 2]))
        assert penalty.tolist() == [1, 1, 2]
        assert (kept == V[[0, 1, 0]]).all()


def votes(wrong, k=2, both=None, ones=100, m=60):
    count = len(wrong)
    both = np.tile(np.eye(k, dtype=np.int32) * 9, (count, 1, 1)) if both is None else both
    # Votes that change nothing: whoever takes a component votes for what it has.
    return Votes(np.zeros((count, k, m), np.int32), both, np.array(wrong, np.int64), np.int64(ones))


class TestBest:
    def state(self, size, penalty, **changes):
        count = len(penalty)
        V = np.stack([octets({i}, {i + 10}) for i in range(count)])
        tag = np.arange(5, 5 + count, dtype=np.int32)
        return started(size, V=V, penalty=np.array(penalty, np.int32), tag=tag, **changes)

    def test_the_least_wrong_without_a_penalty_is_kept(self):
        size = sizes(k=2)
        state = self.state(size, [2, 1, 1], stage=np.int64(search.DESCENT))
        up = votes([[9, 1], [7, 30], [8, 20]])
        kept = search._with_best(size, state, up)
        assert (int(kept.best_wrong), int(kept.best_ones), int(kept.best_tag)) == (20, 100, 7)
        np.testing.assert_array_equal(kept.best, state.V[2])
        # In the last stage U is chosen with care, which is counted apart.
        last = search._with_best(size, replace(state, stage=np.int64(search.LAST)), up)
        assert (int(last.best_wrong), int(last.best_tag)) == (7, 6)

    def test_it_must_be_better_by_its_share_of_wrong_cells(self):
        size = sizes(k=2)
        state = self.state(size, [1], stage=np.int64(search.DESCENT))
        known = replace(state, best_wrong=np.int64(10), best_ones=np.int64(50))
        assert search._with_best(size, known, votes([[0, 20]])) is known
        assert int(search._with_best(size, known, votes([[0, 19]])).best_wrong) == 19
        assert search._with_best(size, self.state(size, [2]), votes([[0, 1]])).best_wrong == -1

    def test_components_of_too_few_rows_are_given_up(self):
        size = sizes(k=2, min_rows=5)
        both = np.array([[[4, 0], [0, 5]], [[0, 0], [0, 8]], [[9, 0], [0, 9]]], np.int32)
        state = self.state(size, [1, 1, 2])
        assert search._rare(size, state, votes([[0, 0]] * 3, both=both)).tolist() == [
            [True, False], [False, False], [True, True],
        ]  # fmt: skip

    def test_losses_are_shares_and_unknown_is_without_bound(self):
        assert search._loss(3, 12) == 0.25
        assert search._loss(3, 0) == 3
        assert search._loss(0, 12) == 0
        assert search._loss(-1, 12) == float("inf")


class TestSwaps:
    def test_what_promises_most_is_tried_and_what_failed_is_not_tried_again(self):
        size = sizes(k=2, trials=4)
        best, pool = octets({0}, {1}), octets({7}, {8}, {0}, set(), {9})
        gains = np.array([[5, 4, 99, 99, 1], [3, 6, 99, 99, 2]])
        state = started(size, best=best, pool=pool, stage=np.int64(search.SWAP), best_tag=np.int64(3))

        def tried(fails):
            changed = replace(state, fails=np.int64(fails))
            down = search._next(PooledBMF(2), size, changed, Swaps(gains), 0)[1]
            return [[np.flatnonzero(row).tolist() for row in V] for V in from_octets(down.V, 60)], down

        first, down = tried(0)
        # One of each component: the best for the second, then the best for the first.
        assert first == [[[0], [8]], [[7], [1]]]
        assert down.parent.tolist() == [3, 3]
        assert down.penalty.tolist() == [1, 1]
        # After a failure two of each may be tried, and the four best are skipped.
        assert tried(1)[1].thorough == 1  # nothing is left: the last descent begins

    def test_patience_and_rounds_end_the_exchanges(self):
        size = sizes(k=2)
        state = started(size, best=octets({0}, {1}), pool=octets({7}), fails=np.int64(1))
        method = PooledBMF(2, patience=2, search_rounds=10)
        assert isinstance(search._ask_swaps(method, state, 9)[1], AskSwaps)
        for fails, index in ((2, 9), (1, 10)):
            after, down = search._ask_swaps(method, replace(state, fails=np.int64(fails)), index)
            assert isinstance(down, AskVotes)
            assert int(after.stage) == search.LAST
            assert (float(down.share), int(down.thorough), int(after.best_wrong)) == (1.0, 1, -1)

    def test_the_pool_holds_distinct_components_the_first_ones_first(self):
        found = from_octets(search._pooled(octets({3}, set(), {1}, {3}), sizes()), 60)
        assert [np.flatnonzero(row).tolist() for row in found[:3]] == [[3], [1], []]
        assert len(found) == search.POOL


def test_a_question_is_asked_again_three_times_when_owners_stay_away():
    size, method = sizes(m=4, sets=2), PooledBMF(3)
    up = Totals(np.array([1, 9, 0, 5]), np.full(4, 20), np.int64(20))
    everybody, some = (Round(0, 0, participants=names) for names in (("a", "b"), ("a",)))
    state, down = search.advance(method, size, started(size), up, everybody)
    assert int(state.cohort) == 2
    for again in range(1, 4):
        state, same = search.advance(method, size, state, up, some)
        assert same is down
        assert int(state.asked_again) == again
    state, _ = search.advance(method, size, replace(state), up, some)
    assert (int(state.asked_again), int(state.cohort)) == (0, 1)


def test_questions_about_few_rows_or_no_columns_are_odd():
    method, meta = PooledBMF(3, sample=50), Meta(4, ("a", "b"), n_rows=200)

    def odd(share, columns=((0, 1),), meta=meta):
        return search.odd_question(method, AskTogether(np.array(columns, np.int32), np.float64(share)), meta)

    assert [odd(share) == "" for share in (0.2, 0.25, 1.0, 1.1)] == [False, True, True, False]
    assert odd(0.0, meta=replace(meta, n_rows=None)) == ""
    assert odd(1.0, meta=replace(meta, n_rows=20)) == ""
    assert odd(0.9, meta=replace(meta, n_rows=20))
    assert [odd(1.0, [[0, last]]) == "" for last in (-2, -1, 3, 4)] == [False, True, True, False]


def test_what_is_told_of_simple_fits():
    size = sizes(k=2, m=4)
    state = started(size, ones=np.array([6, 9, 1, 4]), seen=np.full(4, 10))
    told = search.figures(size, state)
    assert told == {"loss_of_columns": pytest.approx(0.25), "loss_of_one_row": pytest.approx(10 / 20)}
    assert search.figures(size, started(size)) == {}
    known = replace(state, best_wrong=np.int64(5), best_ones=np.int64(20))
    assert search.figures(size, known)["loss"] == 0.25
    assert search.figures(size, known)["relative_error"] == 0.5


def test_a_run_that_is_broken_off_has_a_v_all_the_same():
    size = sizes(k=3)
    early = started(size, ones=np.arange(60))
    assert [np.flatnonzero(row).tolist() for row in search.settled(size, early).V] == [[59], [58], [57]]
    chosen = replace(early, picks=np.array([[1, 0, -1]]), candidates=octets({0, 1}, {2})[None])
    assert [np.flatnonzero(row).tolist() for row in search.settled(size, chosen).V] == [[2], [0, 1], []]
    best = replace(chosen, best=octets({4}, {5}, {6}), best_wrong=np.int64(0))
    assert [np.flatnonzero(row).tolist() for row in search.settled(size, best).V] == [[4], [5], [6]]


def test_gains_of_exchanges_are_those_of_a_quick_choice():
    rng = np.random.default_rng(3)
    X, V, pool = (rng.random(shape) < share for shape, share in (((60, 40), 0.5), ((6, 40), 0.4), ((3, 40), 0.3)))
    rows, words = kernel.observed(X.astype(float)), [bits.pack(part.astype(np.uint8)) for part in (V, pool)]
    gains = {t: kernel.swap_gains(rows, kernel.choose(rows, words[0], thorough=t)[0], *words) for t in (False, True)}
    assert not np.array_equal(gains[False], gains[True])
    down = AskSwaps(to_octets(V.astype(np.uint8)), to_octets(pool.astype(np.uint8)), np.int32(0), np.float64(1))
    _, up = home.answer((1,), Shard(X.astype(float)), home.Home(), down)
    np.testing.assert_array_equal(up.gains, gains[False])
