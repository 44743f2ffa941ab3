"""What PooledNMF claims beyond the contract: starts, penalties, counts, private components, weights, missing cells."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core.algorithm import Meta
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.parameters import check_settings
from fedfactor.evaluation.holdout import hold_out_all
from fedfactor.evaluation.metrics.coherence import cosine_similarity, match_components
from fedfactor.nmf.pooled.initialization import Components, WideSums
from fedfactor.testing.plain_loop import drive

META = Meta(10, ("a", "b"), n_rows=40)


def refuse(algorithm):
    """Look at settings as engines do before a run."""
    check_settings(algorithm)
    algorithm.check(META)


def cut(X, parts, seed=0):
    order = np.random.default_rng(seed).permutation(X.shape[0])
    return {f"owner {i}": X[rows] for i, rows in enumerate(np.array_split(order, parts))}


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return rng.exponential(size=(60, 3)) @ rng.exponential(size=(3, 10)) * rng.uniform(0.8, 1.2, (60, 10))


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X, y


@pytest.mark.slow
def test_splits_stay_together_when_the_loss_is_flat():
    rng = np.random.default_rng(3)
    X = rng.random((30, 3)) @ rng.random((3, 6))
    one = fedfactor.run(PooledNMF(3, tol=0, start="random"), {"a": X}, rounds=60, seed=0)
    two = fedfactor.run(PooledNMF(3, tol=0, start="random"), cut(X, 4), rounds=60, seed=0)
    assert one.relative_error < 1e-3
    np.testing.assert_allclose(one.V, two.V, atol=1e-9)
    assert one.status == two.status == "rounds"


@pytest.mark.slow
@pytest.mark.parametrize("start", ["wide", "stacked"])
def test_a_good_start_is_near_the_end(digits, start):
    X, y = digits
    owners = {str(c): X[y == c] for c in range(10)}
    begun, drawn = (fedfactor.run(PooledNMF(20, start=how), owners, rounds=5, seed=0) for how in (start, "random"))
    assert begun.relative_error < 1.05 * 0.2215 < drawn.relative_error


def test_counts_begin_with_wide_rounds_of_their_roots(digits):
    """Ten rounds, those of the start among them, end lower than forty from a V that was drawn."""
    X, y = digits
    owners = {"a": X[y < 3], "b": scipy.sparse.csr_array(X[(y > 2) & (y < 6)])}
    algorithm = PooledNMF(10, loss="kullback-leibler", tol=0)
    begun = fedfactor.run(algorithm, owners, rounds=10, seed=0)
    drawn = fedfactor.run(replace(algorithm, start="random"), owners, rounds=40, seed=0)
    assert begun.relative_error < drawn.relative_error
    assert begun.history[0].bytes_up > begun.history[2].bytes_up


def test_a_column_that_no_wide_component_has_does_not_cost_infinitely_much():
    """A count in a column of its own, which three components of roots leave out."""
    X = np.kron(np.eye(3), np.full((4, 3), 50.0))
    X[0, 8] = 1e-3
    X = np.hstack([X, np.zeros((12, 1))])
    X[5, 9] = 1e-6
    run = fedfactor.run(PooledNMF(2, loss="kullback-leibler", tol=0), {"a": X}, rounds=4, seed=0)
    assert np.isfinite(run.relative_error)


def test_what_a_start_sends(X):
    wide, stacked = (drive(PooledNMF(3, start=how), cut(X, 3), rounds=3) for how in ("wide", "stacked"))
    assert [type(next(iter(ups.values()))).__name__ for ups in wide.ups] == ["WideSums", "WideSums", "Sums"]
    assert [type(next(iter(ups.values()))).__name__ for ups in stacked.ups] == ["Components", "Sums", "Sums"]
    assert (WideSums.uplink, Components.uplink) == ("sum", "gather")
    default = PooledNMF(3).messages(META)
    assert all(getattr(kind, "uplink", "sum") == "sum" for kind in default)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_run_that_ends_within_its_start(X, rounds):
    for start in ("wide", "stacked"):
        run = fedfactor.run(PooledNMF(3, start=start), cut(X, 3), rounds=rounds, seed=0)
        assert run.V.shape == (3, 10)
        assert run.relative_error < 0.5


def test_wide_start_with_few_participants(X):
    run = fedfactor.run(PooledNMF(3), cut(X, 6), rounds=25, seed=0, participation=0.5)
    assert run.relative_error < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
def test_penalties_are_those_of_scikit_learn(X, l1_ratio):
    def objective(U, V, alpha):
        pay = [l1_ratio * np.abs(F).sum() + 0.5 * (1 - l1_ratio) * (F**2).sum() for F in (U, V)]
        return 0.5 * np.sum((X - U @ V) ** 2) + alpha * (X.shape[1] * pay[0] + X.shape[0] * pay[1])

    alpha, theirs = 0.02, []
    for seed in range(4):
        model = NMF(3, alpha_W=alpha, l1_ratio=l1_ratio, init="random", random_state=seed, max_iter=3000, tol=1e-8)
        theirs.append(objective(model.fit_transform(X), model.components_, alpha))
    owners = {"a": X[:20], "b": X[20:]}
    run = fedfactor.run(PooledNMF(3, alpha_U=alpha, l1_ratio=l1_ratio, tol=0), owners, rounds=200, seed=0)
    ours = objective(np.concatenate([run.factors[name].U for name in owners]), run.V, alpha)
    assert ours <= 1.001 * min(theirs)


@pytest.mark.slow
def test_a_penalty_on_U_alone_leaves_V_its_length(X):
    plain, sparse = (fedfactor.run(PooledNMF(3, alpha_U=a, alpha_V=0, l1_ratio=1), {"a": X}, seed=0) for a in (0, 0.05))
    np.testing.assert_allclose(np.linalg.norm(sparse.V, axis=1), 1)
    assert sparse.factors["a"].U.sum() < plain.factors["a"].U.sum()


@pytest.mark.slow
def test_counts_reach_scikit_learn_whoever_owns_what():
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(0.5, size=(120, 4)) @ rng.gamma(0.3, size=(4, 30)) * 3).astype(float)
    X = X[X.sum(axis=1) > 0]
    pooled = []
    for seed in range(3):
        model = NMF(4, solver="mu", beta_loss="kullback-leibler", init="random", random_state=seed, max_iter=500)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pooled.append(model.fit(X).reconstruction_err_)
    algorithm = PooledNMF(4, loss="kullback-leibler", tol=0)
    runs = [
        fedfactor.run(algorithm, owners, rounds=150, seed=0)
        for owners in (cut(X, 3), cut(X, 5, seed=1), cut(scipy.sparse.csr_array(X), 3))
    ]
    assert np.sqrt(float(runs[0].score.sse)) < 1.01 * min(pooled)
    np.testing.assert_allclose(runs[0].V.sum(axis=1), 1)
    for other in runs[1:]:
        np.testing.assert_allclose(other.V, runs[0].V, atol=1e-8)


@pytest.mark.slow
def test_private_components_are_found():
    rng = np.random.default_rng(0)

    def factor(*shape):
        return rng.uniform(0.2, 1, shape) * (rng.random(shape) < 0.3)

    V, own = factor(4, 60), {name: factor(2, 60) for name in "abcde"}
    rows = {name: factor(150, 4) @ V + factor(150, 2) @ Q for name, Q in own.items()}
    run = fedfactor.run(PooledNMF(4, n_private=2), rows, rounds=80, seed=0)
    left, right = match_components(V, run.V)
    assert cosine_similarity(V, run.V)[left, right].min() > 0.9
    for name, kept in run.factors.items():
        left, right = match_components(own[name], kept.V_private)
        assert cosine_similarity(own[name], kept.V_private)[left, right].min() > 0.9
    face = fedfactor.PooledNMF(4, n_private=2, random_state=0, rounds=5, tol=0).fit(rows)
    assert face.components_private_["a"].shape == (2, 60)
    assert face.transform(rows["a"], client="a").shape == (150, 6)
    assert face.transform(rows["a"]).shape == (150, 4)


@pytest.mark.parametrize("kind", ["dense", "sparse", "missing"])
def test_private_components_of_counts_are_found(kind):
    rng = np.random.default_rng(1)
    V = rng.gamma(0.5, 1, (2, 30))
    own = {name: rng.gamma(0.5, 1, (1, 30)) for name in "abc"}
    rows = {}
    for name, Q in own.items():
        X = rng.poisson(10 * (rng.gamma(0.5, 1, (80, 2)) @ V + rng.gamma(0.5, 1, (80, 1)) @ Q)).astype(float)
        if kind == "missing":
            X[rng.random(X.shape) < 0.2] = np.nan
        rows[name] = scipy.sparse.csr_array(X) if kind == "sparse" else X
    settings = {"loss": "kullback-leibler", "n_private": 1, "missing_values": np.nan if kind == "missing" else None}
    model = fedfactor.PooledNMF(2, **settings, random_state=0).fit(rows)
    left, right = match_components(V, model.components_)
    assert cosine_similarity(V, model.components_)[left, right].min() > 0.95
    for name, Q in own.items():
        assert cosine_similarity(Q, model.components_private_[name]).min() > 0.95


@pytest.mark.slow
def test_weights_listen_to_some_owners_more(digits):
    X, y = digits
    owners = {"a": X[y == 0], "b": X[y == 1]}
    heavy = [
        fedfactor.run(PooledNMF(2, weights=w), owners, seed=0).scores["a"].relative_error
        for w in ({"a": 20.0, "b": 1.0}, {"a": 1.0, "b": 20.0})
    ]
    assert heavy[0] < 0.95 * heavy[1]
    even = fedfactor.run(PooledNMF(2, weights="equal"), {"a": X[y == 0][:20], "b": X[y == 1]}, seed=0)
    plain = fedfactor.run(PooledNMF(2), {"a": X[y == 0][:20], "b": X[y == 1]}, seed=0)
    assert even.scores["a"].relative_error < plain.scores["a"].relative_error


@pytest.mark.slow
def test_missing_cells_are_foretold_sanely(digits):
    X, _ = digits
    speckled = hold_out_all(Federation({"a": X[:400]}), 0.6, 0)
    sane, wild = (fedfactor.run(PooledNMF(20, ridge=r), speckled, rounds=30, seed=0) for r in (0.03, 0.0))
    assert sane.relative_error < 0.8
    assert wild.relative_error > 2 * sane.relative_error


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tol": None}, "tol=None must be a number"),
        ({"tol": -1.0}, "tol=-1.0 must be at least 0"),
        ({"loss": "itakura"}, "loss='itakura' is not known"),
        ({"start": "nndsvd"}, "start='nndsvd' is not known"),
        ({"local_steps": 0}, "whole number of at least 1"),
        ({"l1_ratio": 1.5}, r"must lie in \[0, 1\]"),
        ({"alpha_V": 0.1}, "Set alpha_U too"),
        ({"n_private": -1}, "n_private=-1"),
        ({"n_private": 9}, "together exceed"),
        ({"weights": "most"}, "weights='most' is not known"),
        ({"weights": {"a": 1.0}}, "says nothing about owner 'b'"),
        ({"weights": {"a": 0.0, "b": 0.0}}, "All weights are zero"),
        ({"loss": "itakura-saito", "start": "stacked"}, "folds sums of squares"),
        ({"loss": "kullback-leibler", "start": "stacked"}, "folds sums of squares"),
        ({"loss": "itakura-saito", "n_private": 1}, "squared and the Kullback-Leibler loss"),
    ],
)
def test_settings_that_cannot_work(settings, message):
    with pytest.raises((ValueError, fedfactor.IncompatibleError), match=message):
        refuse(PooledNMF(3, **settings))


def test_an_owner_without_missing_cells_is_treated_as_its_rows_would_be_elsewhere():
    rng = np.random.default_rng(0)
    X = rng.random((60, 3)) @ rng.random((3, 12))
    seen = rng.random(X.shape) < 0.8
    seen[:20] = True
    apart = Federation({"whole": Shard(X[:20]), "rest": Shard(np.where(seen, X, 0)[20:], mask=seen[20:])})
    beside = Federation({"all": Shard(np.where(seen, X, 0), mask=seen)})
    one, two = (fedfactor.run(PooledNMF(3, tol=0), owners, rounds=30, seed=0) for owners in (beside, apart))
    np.testing.assert_allclose(two.V, one.V, atol=1e-10)
    np.testing.assert_allclose(
        np.concatenate([two.factors[name].U for name in ("whole", "rest")]), one.factors["all"].U, atol=1e-4
    )


@pytest.mark.slow
def test_with_missing_cells_more_rounds_do_not_make_the_fit_worse():
    rng = np.random.default_rng(0)
    V = rng.gamma(0.5, 1, (5, 24))
    owners = {
        name: rng.gamma(0.7, 1, (n, 5)) @ V * rng.uniform(0.9, 1.1, (n, 24)) for name, n in (("a", 50), ("b", 40))
    }
    speckled = hold_out_all(Federation(owners), 0.2, 0)
    short, long = (fedfactor.run(PooledNMF(5, tol=0), speckled, rounds=rounds, seed=0) for rounds in (20, 80))
    used = [run.history[-1].metrics["relative_error"] for run in (short, long)]
    assert used[1] <= 1.001 * used[0]
    assert long.relative_error <= 1.01 * short.relative_error
    strong = fedfactor.run(PooledNMF(5, tol=0, ridge=0.03), speckled, rounds=80, seed=0)
    assert long.relative_error < 0.95 * strong.relative_error


@pytest.mark.slow
def test_the_ridge_follows_noise_and_the_number_of_observed_cells(digits):
    """Low noise wants next to none, many components for few cells want much: one number cannot do both."""
    rng = np.random.default_rng(1)
    planted = rng.gamma(0.5, 1, (90, 4)) @ rng.gamma(0.5, 1, (4, 30)) * rng.uniform(0.95, 1.05, (90, 30))
    errors = {}
    for name, X, share, rank in (("planted", planted, 0.2, 4), ("digits", digits[0][:300], 0.3, 20)):
        speckled = hold_out_all(Federation({"a": X[:80], "b": X[80:]}), share, 0)
        for ridge in ("auto", 0.003, 0.1):
            run = fedfactor.run(PooledNMF(rank, ridge=ridge), speckled, rounds=40, seed=0)
            errors[name, ridge] = run.relative_error
    assert errors["planted", "auto"] < 1.05 * errors["planted", 0.003] < 0.7 * errors["planted", 0.1]
    assert errors["digits", "auto"] < 1.1 * errors["digits", 0.1] < 0.9 * errors["digits", 0.003]


def test_a_run_keeps_the_share_that_its_ridge_came_from():
    rng = np.random.default_rng(0)
    X = rng.random((40, 3)) @ rng.random((3, 9)) * rng.uniform(0.9, 1.1, (40, 9))
    mask = rng.random(X.shape) < 0.8
    owners = Federation({"a": Shard(X, mask)})
    run = fedfactor.run(PooledNMF(3), owners, rounds=30, seed=0)
    told = [record.metrics["relative_error"] ** 2 for record in run.history]
    assert 0 < run.algorithm.misfit <= 0.1
    assert run.algorithm.misfit == pytest.approx(min(0.1, *told), rel=0.2)
    np.testing.assert_allclose(run.algorithm.fold_in(X, run.factors["a"], mask), run.factors["a"].U, atol=1e-3)
    plain = fedfactor.run(PooledNMF(3), {"a": X}, rounds=3, seed=0)
    assert plain.algorithm.misfit is None


def test_sparse_rows_that_are_written_to_between_two_runs_are_read_anew(monkeypatch):
    monkeypatch.setattr("fedfactor.linalg.single_pass._LIGHT", 0)  # as at a large owner, who keeps them by columns
    X = scipy.sparse.random_array((40, 9), density=0.4, format="csr", rng=np.random.default_rng(0))
    fedfactor.run(PooledNMF(2), {"a": X}, rounds=2, seed=0)
    X.data[:] = X.data[::-1].copy()
    again = fedfactor.run(PooledNMF(2), {"a": X}, rounds=2, seed=0)
    np.testing.assert_array_equal(again.V, fedfactor.run(PooledNMF(2), {"a": X.copy()}, rounds=2, seed=0).V)
