"""Rows that come or leave change the components in one exchange, as a fit to the rows that are then in would."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse

from fedfactor import PooledPCA, PooledSVD, dp
from fedfactor.core.errors import DataError, IncompatibleError

FITTED = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "n_samples_")


def clients(kind=float, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 20, (120, 9)).astype(np.float64)
    X = X if kind is int else X * rng.random((120, 9)) - 3
    return {name: X[40 * i : 40 * i + 40] for i, name in enumerate(("north", "south", "west"))}


def same(one, two, atol):
    for name in FITTED:
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=0, atol=atol)


@pytest.mark.parametrize("made", [PooledPCA(3), PooledSVD(3), PooledPCA(0.9, whiten=True)])
@pytest.mark.parametrize("pick", [np.asarray, sparse.csr_array])
def test_whole_numbers_leave_and_come_without_a_trace(made, pick):
    owners = {name: pick(X) for name, X in clients(int).items()}
    model = made.fit(owners)
    left = {name: owners[name] for name in ("north", "south")}
    fresh = type(made)(**made.get_params()).fit(left)
    model.remove({"west": owners["west"]})
    same(model, fresh, atol=0)
    assert model.n_iter_ == 1
    np.testing.assert_array_equal(model.transform(owners["north"]), fresh.transform(owners["north"]))
    model.partial_fit({"west": owners["west"]})
    same(model, type(made)(**made.get_params()).fit(owners), atol=0)


def test_other_numbers_leave_and_come_up_to_rounding():
    owners = clients()
    model = PooledPCA(3).fit(owners).remove({"west": owners["west"]})
    fresh = PooledPCA(3).fit({name: owners[name] for name in ("north", "south")})
    scale = fresh.explained_variance_[0]
    np.testing.assert_allclose(model.explained_variance_, fresh.explained_variance_, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(model.mean_, fresh.mean_, rtol=0, atol=1e-12 * np.abs(fresh.mean_).max())
    np.testing.assert_allclose(model.components_, fresh.components_, rtol=0, atol=1e-11)


def test_single_rows_of_a_client_may_leave():
    owners = clients(int)
    with pytest.warns(UserWarning, match="no more rows than components"):
        model = PooledPCA(2).fit(owners).remove({"north": owners["north"][:1], "south": owners["south"][:1]})
    assert model.n_samples_ == 118
    assert model.client_factors_ == {}
    assert not hasattr(model, "relative_error_")


def test_the_first_partial_fit_is_a_fit_and_totals_survive_a_pickle():
    owners = clients(int)
    model = PooledPCA(2).partial_fit({"north": owners["north"]})
    model = pickle.loads(pickle.dumps(model)).partial_fit({name: owners[name] for name in ("south", "west")})
    same(model, PooledPCA(2).fit(owners), atol=0)
    assert sorted(model.client_factors_) == ["south", "west"]


def test_rows_that_took_no_part_are_refused_and_change_nothing():
    owners = clients(int)
    model = PooledPCA(2).fit(owners)
    before = model.components_.copy()
    with pytest.raises(DataError, match="No row would be left"):
        model.remove(owners)
    with pytest.raises(DataError, match="not all of these rows took part"):
        model.remove({"west": 100 * owners["west"]})
    with pytest.raises(DataError, match="features"):
        model.remove({"west": owners["west"][:, :5]})
    np.testing.assert_array_equal(model.components_, before)
    model.remove({"west": owners["west"]})  # the totals are those of the fit


def test_secure_aggregation_needs_several_clients_or_their_consent():
    rng = np.random.default_rng(0)
    owners = {str(i): rng.integers(0, 9, (120, 6)).astype(float) for i in range(6)}
    model = PooledPCA(2, privacy="secure-sum", random_state=0).fit(owners)
    for change in (model.remove, model.partial_fit):
        with pytest.raises(IncompatibleError, match=r"differ by just these sums.*consent=True"):
            change({"5": owners["5"]})
    model.remove({name: owners[name] for name in "345"})
    assert model.run_.privacy["mode"] == "secure-sum"
    same(model, PooledPCA(2).fit({name: owners[name] for name in "012"}), atol=1e-7)
    model.remove({"2": owners["2"]}, consent=True)
    assert model.privacy == "secure-sum"
    same(model, PooledPCA(2).fit({name: owners[name] for name in "01"}), atol=1e-7)


def test_noise_and_the_subspace_solver_are_refused_with_the_remedy():
    owners = clients()
    noisy = PooledPCA(2, privacy=dp(1.0, 1e-3, row_bound=5.0, rows=120, noise_seed=0)).fit(owners)
    with pytest.raises(IncompatibleError, match="Fit the rows that remain"):
        noisy.remove({"west": owners["west"]})
    wide = PooledPCA(2, solver="subspace").fit(owners)
    with pytest.raises(IncompatibleError, match="solver='gram'"):
        wide.remove({"west": owners["west"]})
    assert not hasattr(wide, "partial_fit")
