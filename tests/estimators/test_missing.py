"""Missing cells: the same rule for fit, transform and owners, however a cell says that it is missing."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits

from fedfactor import FedAvgNMF, Federation, IncompatibleError, PooledNMF, dp
from fedfactor.core.pytree import to_numpy


@pytest.fixture
def seen(X):
    return np.random.default_rng(2).random(X.shape) < 0.8


def make(**options):
    return PooledNMF(**{"n_components": 2, "rounds": 40, "tol": 0, "random_state": 0} | options)


@pytest.mark.slow
def test_nan_number_and_unstored_are_one_thing(X, seen, owner):
    holes = np.where(seen, X, np.nan)
    model = make(missing_values=np.nan)
    U = model.fit_transform(holes, groups=owner)
    sse = ((X - U @ model.components_)[seen] ** 2).sum()
    np.testing.assert_allclose(model.reconstruction_err_, np.sqrt(sse), rtol=1e-6)
    np.testing.assert_allclose(model.score(holes), -model.relative_error_, rtol=1e-3)
    stored = scipy.sparse.csr_array((X[seen], np.nonzero(seen)), shape=X.shape)
    for rule, data in ((-1, np.where(seen, X, -1)), ("unstored", stored), (0, np.where(seen, X, 0)), (0, stored)):
        other = make(missing_values=rule).fit(data, groups=owner)
        np.testing.assert_allclose(other.components_, model.components_, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(other.transform(data), model.transform(holes), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_missing_is_not_zero(X, seen):
    holes = np.where(seen, X, np.nan)
    model = make(n_components=3, rounds=100, missing_values=np.nan).fit(holes)
    hidden = ~seen
    guess = model.inverse_transform(model.transform(holes))
    error = np.linalg.norm((guess - X)[hidden]) / np.linalg.norm(X[hidden])
    assert error < 0.1
    as_zero = make(n_components=3, rounds=100).fit(np.nan_to_num(holes))
    blind = as_zero.inverse_transform(as_zero.transform(np.nan_to_num(holes)))
    assert np.linalg.norm((blind - X)[hidden]) > 3 * np.linalg.norm((guess - X)[hidden])


def test_stored_zeros_are_observed_when_unstored_cells_are_missing():
    S = scipy.sparse.csr_array((np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0]), ([0, 0, 1, 1, 2, 2], [0, 1, 0, 2, 1, 2])))
    model = make(missing_values="unstored").fit(S)
    assert int(model.run_.score.n) == 6


@pytest.mark.slow
def test_owners_with_missing_cells(X, seen, owner):
    holes = np.where(seen, X, np.nan)
    parts = {name: holes[owner == name] for name in np.unique(owner)}
    reference = make(missing_values=np.nan).fit(holes, groups=owner)
    for model, data in (
        (make(missing_values=np.nan), parts),
        (make(), Federation(parts, missing_values=np.nan)),
        (make(missing_values=np.nan), Federation(parts, missing_values=np.nan)),
    ):
        np.testing.assert_array_equal(model.fit(data).components_, reference.components_)
        np.testing.assert_allclose(model.transform(holes), reference.transform(holes))


@pytest.mark.slow
def test_torch_with_missing_cells(X, seen):
    torch = pytest.importorskip("torch")
    holes = np.where(seen, X, np.nan)
    model = make(missing_values=np.nan).fit(torch.from_numpy(holes))
    reference = make(missing_values=np.nan).fit(holes)
    np.testing.assert_allclose(to_numpy(model.components_), reference.components_, rtol=1e-4, atol=1e-6)


def test_federation_and_estimator_must_agree(X):
    with pytest.raises(ValueError, match="Say it once"):
        make(missing_values=0).fit(Federation({"a": X}, missing_values=np.nan))


def test_tags_follow_the_rule():
    def tags(face, rule):
        found = face(missing_values=rule).__sklearn_tags__().input_tags
        return found.allow_nan, found.sparse

    assert tags(PooledNMF, None) == (False, True)
    assert tags(PooledNMF, np.nan) == (True, False)
    assert tags(PooledNMF, "unstored") == (False, True)
    assert tags(FedAvgNMF, np.nan)[0] is False


def test_averaging_refuses_missing_cells(X, seen):
    with pytest.raises(IncompatibleError, match="needs complete rows"):
        FedAvgNMF(missing_values=np.nan).fit(np.where(seen, X, np.nan))


@pytest.mark.slow
def test_several_starts_of_pooled_nmf_keep_the_least_summed_error():
    X = load_digits().data[:150]
    one = PooledNMF(6, rounds=15, tol=0, random_state=3).fit(X)
    four = PooledNMF(6, rounds=15, tol=0, random_state=3, n_init=4).fit(X)
    assert four.relative_error_ <= one.relative_error_
    with pytest.raises(IncompatibleError, match="n_init=2"):
        PooledNMF(2, n_init=2, privacy=dp(1.0, delta=1e-5)).fit(X)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2, 4])
def test_a_run_over_gaps_ends_where_nothing_is_gained(seed):
    """Its ridge follows from V, so the loss creeps up at the end: that is no reason to go on for all rounds."""
    rng = np.random.default_rng([77, seed])
    X = rng.gamma(0.7, 1, (240, 6)) @ rng.gamma(0.5, 1, (6, 40)) * rng.uniform(0.85, 1.15, (240, 40))
    X[rng.random(X.shape) < 0.3] = np.nan
    owners = {"a": X[::2], "b": X[1::2]}
    model = PooledNMF(6, missing_values=np.nan, random_state=seed).fit(owners)
    whole = PooledNMF(6, missing_values=np.nan, random_state=seed, tol=0).fit(owners)
    assert model.run_.status == "converged"
    assert model.n_iter_ < 70
    assert model.relative_error_ < 1.005 * whole.relative_error_
