"""PooledCF is central alternating least squares, ends by itself, and does not care about the scale of the ratings."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor import DataError, Federation
from fedfactor.algorithms import PooledCF
from fedfactor.core.algorithm import LocalFactors, Meta, Round
from fedfactor.recommend.alternating_least_squares import half_size
from fedfactor.recommend.pooled_cf import Levels
from tests.recommend.test_fedsplit import errors, federation, planted


@pytest.fixture(scope="module")
def data():
    return planted()


def least_squares(R, V, item, mu, scale, iterations, ridge=0.05, floor=6.0, bias=3.0):
    """Alternating least squares with biases, user by user and item by item, as one would write it down."""
    X, seen = (R.toarray() - mu) / scale, R.toarray() != 0
    k, m = V.shape
    U, user = np.zeros((len(X), k)), np.zeros(len(X))

    def one(Y, target):
        A = np.column_stack([Y, np.ones(len(Y))])
        D = np.diag(np.r_[np.full(k, ridge * len(Y) + floor), bias])
        return np.linalg.solve(A.T @ A + D, A.T @ target)

    for _ in range(iterations):
        for i in range(len(X)):
            found = one(V.T[seen[i]], X[i, seen[i]] - item[seen[i]])
            U[i], user[i] = found[:-1], found[-1]
        for j in range(m):
            found = one(U[seen[:, j]], X[seen[:, j], j] - user[seen[:, j]])
            V[:, j], item[j] = found[:-1], found[-1]
    return V, item


def test_many_owners_give_the_iterates_of_central_least_squares(data):
    R, _, owners = data
    algorithm = PooledCF(3, validation=0.0, tol=0.0, iterations=4, min_ratings=1)
    run = fedfactor.run(algorithm, federation(R, owners), seed=4)
    assert run.rounds == 5
    mu, scale = R.data.mean(), R.data.std()
    counts = np.bincount(R.indices, minlength=R.shape[1])
    start = np.asarray(R.sum(axis=0)).ravel() - counts * mu
    V0 = Round(4, 0).shared_rng("V").normal(0, 0.1, (3, R.shape[1]))
    V, item = least_squares(R, V0, start / scale / (counts + 5), mu, scale, 4)
    np.testing.assert_allclose(run.V[:3], V, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(run.V[-1], item * scale + mu, rtol=1e-8)


def test_implicit_is_central_too(data):
    R, _, owners = data
    algorithm = PooledCF(3, feedback="implicit", weight=4.0, ridge=0.02, ridge_floor=2.0, iterations=3, min_ratings=1)
    run = fedfactor.run(algorithm, federation(R, owners), seed=4)
    V = Round(4, 0).shared_rng("V").normal(0, 0.1, (3, R.shape[1]))
    wish = (R.toarray() != 0).astype(float)
    weight = np.where(wish > 0, 1 + 4 * np.log2(1 + R.toarray()), 1)

    def solved(Y, wish, weight):
        return np.stack([
            np.linalg.solve((Y.T * w) @ Y + (0.1 * p.sum() + 2) * np.eye(3), (Y.T * w) @ p)
            for p, w in zip(wish, weight, strict=True)
        ])  # fmt: skip

    for _ in range(3):
        U = solved(V.T, wish, weight)
        V = solved(U, wish.T, weight.T).T
    np.testing.assert_allclose(run.V, V, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_it_ends_by_itself_within_twenty_exchanges_and_beats_biases(data):
    R, test, owners = data
    run = fedfactor.run(PooledCF(4), federation(R, owners), seed=0)
    assert run.status == "converged"
    assert run.rounds <= 20
    biases = fedfactor.run(PooledCF(4, ridge_floor=1e9), federation(R, owners), seed=0)
    assert np.mean(list(errors(run, test, owners).values())) < 0.9 * np.mean(
        list(errors(biases, test, owners).values())
    )


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "factor"), [(0.0, 2.0), (-20.0, 20.0), (-3.0, 1.0)], ids=["2-10", "0-80", "signed"])
def test_any_scale_gives_the_same_model(shift, factor, data):
    R, _, owners = data
    other = R.copy()
    other.data = shift + factor * R.data
    one = fedfactor.run(PooledCF(3), federation(R, owners), seed=0)
    two = fedfactor.run(PooledCF(3), federation(other, owners), seed=0)
    for name in owners:
        a, b = (run.factors[name].U @ run.factors[name].V for run in (one, two))
        np.testing.assert_allclose(shift + factor * a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_ratings_kept_aside_say_when_to_stop(data):
    R, _, owners = data
    run = fedfactor.run(PooledCF(4, ridge_floor=2.0), federation(R, owners), seed=0)
    assert run.status == "converged"
    assert run.rounds < 20


@pytest.mark.slow
def test_ratings_kept_aside_mend_the_regularisation(data):
    R, test, owners = data
    fixed = fedfactor.run(PooledCF(8, tol=0.0), federation(R, owners), seed=0)
    mended = fedfactor.run(PooledCF(8), federation(R, owners), seed=0)
    assert mended.history[-1].metrics["ridge_strength"] <= 0.5
    before, after = (np.mean(list(errors(run, test, owners).values())) for run in (fixed, mended))
    assert after < before


@pytest.mark.slow
def test_what_is_kept_aside_does_not_depend_on_owners(data):
    R, _, owners = data
    one = fedfactor.run(PooledCF(3), Federation({"all": R}, missing_values="unstored"), seed=1)
    many = fedfactor.run(PooledCF(3), federation(R, owners), seed=1)
    np.testing.assert_allclose(one.V, many.V, rtol=1e-8)
    assert one.rounds == many.rounds


def test_only_items_of_some_ratings_travel(data):
    R, _, owners = data
    rare = R.toarray()
    rare[2:, :20] = 0
    rare = sparse.csr_array(rare)
    seen = []

    class Watched(PooledCF):
        __slots__ = ()

        def client_step(self, shard, state, down, at):
            state, up = PooledCF.client_step(self, shard, state, down, at)
            seen.append(up)
            return state, up

    run = fedfactor.run(Watched(3), federation(rare, owners), rounds=3, seed=0)
    assert seen[-1].items.shape == (60, half_size(4) + 4)
    assert seen[-1].others.shape == (20, 2)
    assert not run.V[:3, :20].any()
    rated = np.flatnonzero(rare.toarray()[:, :20].any(axis=0))
    assert np.ptp(run.V[-1, rated]) > 0  # but they have a bias


@pytest.mark.slow
def test_raw_counts_do_not_fail_in_silence():
    """A few plays in the thousands do not drown everything else."""
    rng = np.random.default_rng(2)
    taste, kind = rng.integers(0, 3, 150), np.arange(45) % 3
    plays = (rng.random((150, 45)) < np.where(taste[:, None] == kind, 0.5, 0.03)).astype(float)
    plays *= np.rint(rng.lognormal(3, 2.5, plays.shape)) + 1
    R = sparse.csr_array(plays)

    def same_kind(counts):
        run = fedfactor.run(PooledCF(4, feedback="implicit", counts=counts), {"a": R[:70], "b": R[70:]}, seed=0)
        hits = []
        for name, rows in (("a", slice(0, 70)), ("b", slice(70, 150))):
            kept = run.factors[name]
            scores = np.where(plays[rows] > 0, -np.inf, kept.U @ kept.V)
            hits.append((kind[np.argsort(-scores)[:, :5]] == taste[rows, None]).mean())
        return np.mean(hits)

    assert same_kind("log") > 0.85
    assert same_kind("log") > same_kind("raw") + 0.02


@pytest.mark.slow
def test_fold_in_gives_members_their_own_factors(data):
    R, _, owners = data
    for algorithm in (PooledCF(3), PooledCF(3, feedback="implicit")):
        run = fedfactor.run(algorithm, federation(R, owners), seed=0)
        name, rows = next(iter(owners.items()))
        kept = run.factors[name]
        again = algorithm.fold_in(R[rows], LocalFactors(kept.U, kept.V), "stored")
        np.testing.assert_allclose(again, kept.U, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "bad",
    [
        PooledCF(2, feedback="clicks"), PooledCF(2, counts="square"), PooledCF(2, ridge=-1.0),
        PooledCF(2, ridge_floor=0.0), PooledCF(2, iterations=0), PooledCF(2, validation=1.0),
    ],
)  # fmt: skip
def test_bad_settings_are_refused(bad, data):
    R, _, owners = data
    with pytest.raises(ValueError, match=r"feedback|counts|ridge|iterations|validation"):
        fedfactor.run(bad, federation(R, owners), seed=0)


def test_negative_interest_is_refused(data):
    R, _, owners = data
    with pytest.raises(DataError, match="negative"):
        fedfactor.run(PooledCF(2, feedback="implicit"), federation(-R, owners), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [lambda A: A * np.nan, lambda A: -A], ids=["not finite", "negative"])
def test_a_client_that_sends_nonsense_is_left_out_and_named(spoil, data):
    R, _, owners = data
    who = next(iter(owners))

    class Sick(PooledCF):
        __slots__ = ()

        def client_step(self, shard, state, down, at):
            state, up = PooledCF.client_step(self, shard, state, down, at)
            return state, replace(up, items=spoil(up.items)) if at.client == who and hasattr(up, "items") else up

    assert fedfactor.run(Sick(2), federation(R, owners), seed=0).rejected == (who,)


@pytest.mark.slow
def test_a_secure_sum_gives_the_same_model(data):
    R, _, owners = data
    some = {name: owners[name] for name in list(owners)[:4]}
    plain = fedfactor.run(PooledCF(2, tol=0.0), federation(R, some), rounds=6, seed=0)
    with pytest.warns(fedfactor.privacy.PrivacyWarning):
        hidden = fedfactor.run(PooledCF(2, tol=0.0), federation(R, some), rounds=6, seed=0, privacy="secure-sum")
    common = np.flatnonzero(np.abs(hidden.V[:2]).sum(axis=0) > 0)
    assert len(common) > 0.8 * R.shape[1]
    assert np.abs(plain.V - hidden.V)[:, common].mean() < 0.02


def test_the_error_kept_aside_must_stand_still_for_rounds_on_end():
    """A fall below the tolerance counts, a larger one begins anew; so does a round that some owners missed."""
    method, meta = PooledCF(2, tol=0.01), Meta(5, ("a", "b"), n_rows=20)
    state, _ = method.init_server(meta, Round(0, 0))
    state = replace(state, steps=np.int64(1), moved=np.int64(0))

    def after(state, error, share=1.0):
        # The same error for every strength: none of them pays.
        up = SimpleNamespace(aside_n=np.float64(100), aside_sse=np.full(3, 100 * error**2))
        return method._judged(replace(state, steps=state.steps + 1), up, share)

    flat, shares = [], {6: 0.5}
    for number, error in enumerate([1.0, 0.9, 0.895, 0.892, 0.8, 0.8, 0.8, 0.8, 0.81]):
        state = after(state, error, shares.get(number, 1.0))
        flat.append(int(state.flat))
        assert float(state.error) == pytest.approx(error)
    assert flat == [0, 0, 1, 2, 0, 1, 0, 1, 2]


def test_items_are_solved_from_sums_and_rare_ones_have_a_bias_alone():
    """With one component, of an item [[a, b], [b, n]] for factor and bias; numbers below zero count as none."""
    method = PooledCF(1, ridge=0.5, ridge_floor=2.0, bias_ridge=3.0)
    state, _ = method.init_server(Meta(3, ("a",), n_rows=9), Round(0, 0))
    state = replace(state, columns=np.array([1]), strength=np.float64(2.0))
    up = SimpleNamespace(items=np.array([[5.0, 1.0, 4.0, 7.0, 6.0]]), others=np.array([[2.0, 10.0], [-5.0, 6.0]]))
    V, item = method._items(state, up)
    found = np.linalg.solve([[5 + 2 * (0.5 * 4 + 2), 1], [1, 4 + 3]], [7, 6])
    np.testing.assert_allclose(V, [[found[0]]])
    np.testing.assert_allclose(item, [10 / (2 + 3), found[1], 6 / (0 + 3)])


def test_the_first_levels_of_items_are_damped():
    method = PooledCF(1, min_ratings=2)
    state, _ = method.init_server(Meta(3, ("a",), n_rows=9), Round(0, 0))
    up = Levels(np.float64(30), np.float64(130), np.array([5.0, 2.0, 1.0]), np.array([20.0, 8.0, 2.0]))
    levelled = method._levelled(state, up)
    mu, scale = 30 / 8, np.sqrt(130 / 8 - (30 / 8) ** 2)
    assert (float(levelled.mu), float(levelled.scale)) == (mu, pytest.approx(scale))
    assert levelled.columns.tolist() == [0, 1]
    assert levelled.V.shape == (1, 2)
    counts = np.array([5, 2, 1])
    np.testing.assert_allclose(levelled.item, (up.levels - counts * mu) / scale / (counts + 5))
    alike = method._levelled(state, replace(up, square=np.float64(30**2 / 8)))
    assert float(alike.scale) == 1.0
    nothing = replace(up, counts=np.zeros(3), levels=np.zeros(3), total=np.float64(0), square=np.float64(0))
    assert float(method._levelled(state, nothing).mu) == 0.0


def test_another_strength_must_pay_wait_and_keep_its_direction():
    method = PooledCF(1, tol=0.01)
    state, _ = method.init_server(Meta(3, ("a",), n_rows=9), Round(0, 0))
    state = replace(state, steps=np.int64(2))

    def after(errors, share=1.0, method=method, **changes):
        return float(method._strength(replace(state, **changes), np.array(errors), share).strength)

    assert after([1.0, 0.99, 1.0]) == 0.5
    assert after([1.0, 1.0, 0.99]) == 2.0
    assert after([1.0, 0.9951, 1.0]) == 1.0  # less than half a per cent
    assert after([1.0, 0.99, 1.0], share=0.5) == 1.0  # somebody is away
    assert after([1.0, 0.99, 1.0], method=replace(method, tol=0.0)) == 1.0
    assert after([1.0, 0.99, 1.0], moved=np.int64(1)) == 1.0  # the items have not answered yet
    assert after([1.0, 0.99, 1.0], turn=np.float64(1)) == 1.0  # never back
    assert after([1.0, 0.99, 1.0], turn=np.float64(-1), strength=np.float64(0.5)) == 0.25
    moved = method._strength(state, np.array([1.0, 0.9, 1.0]), 1.0)
    assert (int(moved.moved), float(moved.turn)) == (2, -1.0)
