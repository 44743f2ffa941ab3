"""What scikit-learn's users do with an estimator: clone, pickle, search, chain, watch."""

from __future__ import annotations

import logging
import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from fedfactor import DataError, FedAvgNMF, IncompatibleError, LocalEngine, PooledCF, PooledNMF

FACES = [PooledNMF, FedAvgNMF]


@pytest.mark.parametrize("face", FACES)
def test_clone_and_pickle(face, X, owner):
    model = face(n_components=3, rounds=5, tol=0, random_state=7, engine=LocalEngine(workers=1)).fit(X, groups=owner)
    again = clone(model).fit(X, groups=owner)
    np.testing.assert_array_equal(again.components_, model.components_)
    thawed = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(thawed.transform(X), model.transform(X))
    assert thawed.run_.seed == 7
    assert thawed.run_.history == model.run_.history


@pytest.mark.parametrize("kind", [PooledNMF, PooledCF])
def test_a_pickle_of_another_version_is_refused_with_the_way_out(kind):
    """Names and contents of private parts change: what comes out would fail later, or be another model."""
    here = kind(3).__getstate__()
    assert kind.__new__(kind).__setstate__(here) is None
    mark = next(name for name in here if name.endswith("_by_fedfactor"))
    older = {name: value for name, value in here.items() if name != mark}
    for state, version in ((older, "0.1"), (here | {mark: "9.9"}, "9.9")):
        with pytest.raises(DataError, match=rf"made by fedfactor {version}.*keep it with fedfactor\.save"):
            kind.__new__(kind).__setstate__(state)


def test_attributes(X, owner):
    model = PooledNMF(n_components=3, rounds=5, tol=0, random_state=0).fit(X, groups=owner)
    assert model.n_iter_ == 5
    assert model.n_components_ == 3
    assert model.components_.shape == (3, 6)
    assert {name: U.shape for name, U in model.client_factors_.items()} == {
        "north": (7, 3),
        "south": (11, 3),
        "west": (12, 3),
    }
    assert model.get_feature_names_out().tolist() == ["poolednmf0", "poolednmf1", "poolednmf2"]


@pytest.mark.slow
def test_random_state(X):
    def fit(state):
        return PooledNMF(rounds=2, tol=0, random_state=state).fit(X).run_.seed

    assert fit(5) == fit(np.int64(5)) == 5
    assert fit(np.random.RandomState(0)) == fit(np.random.RandomState(0)) != fit(np.random.RandomState(1))
    assert fit(np.random.default_rng(0)) == fit(np.random.default_rng(0)) != fit(np.random.default_rng(1))
    assert fit(None) != fit(None)
    model = PooledNMF(rounds=2, tol=0).fit(X)
    again = PooledNMF(rounds=2, tol=0, random_state=model.run_.seed).fit(X)
    np.testing.assert_array_equal(model.components_, again.components_)


def test_set_output_keeps_the_index(X, owner):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"), index=[f"row {i}" for i in range(30)])
    model = PooledNMF(rounds=3, tol=0, random_state=0).set_output(transform="pandas")
    U = model.fit_transform(frame, groups=owner)
    assert U.columns.tolist() == ["poolednmf0", "poolednmf1"]
    assert U.index.equals(frame.index)
    assert model.inverse_transform(U).shape == (30, 6)
    assert model.inverse_transform(scipy.sparse.csr_array(U.to_numpy())).shape == (30, 6)


def test_one_frame_cannot_hold_the_rows_of_many_owners(X):
    model = PooledNMF(rounds=3, tol=0, random_state=0).set_output(transform="pandas")
    with pytest.raises(IncompatibleError, match="set_output asks for one frame"):
        model.fit_transform({"a": X})
    with pytest.raises(IncompatibleError, match="set_output asks for one frame"):
        model.fit({"a": X}).transform({"a": X})


def test_pipeline_passes_groups_on(X, owner):
    pipe = make_pipeline(MaxAbsScaler(), PooledNMF(rounds=5, tol=0, random_state=0), LogisticRegression())
    pipe.fit(X, owner, poolednmf__groups=owner)
    assert sorted(pipe["poolednmf"].client_factors_) == ["north", "south", "west"]
    assert pipe.predict(X).shape == (30,)


@pytest.mark.slow
def test_grid_search_finds_the_rank(X):
    search = GridSearchCV(PooledNMF(random_state=0, rounds=200), {"n_components": [1, 2, 3]}, cv=3).fit(X)
    assert search.best_params_ == {"n_components": 3}
    assert -0.1 < search.best_score_ < 0


def test_score_is_minus_the_relative_error(X):
    model = PooledNMF(n_components=3, random_state=0, rounds=300).fit(X)
    np.testing.assert_allclose(model.score(X), -model.relative_error_, rtol=1e-3)
    assert model.score(np.zeros((2, 6))) == 0.0


@pytest.mark.slow
def test_score_of_counts_is_by_their_divergence(X):
    counts = np.random.default_rng(0).poisson(4 * X).astype(float)
    model = PooledNMF(n_components=3, loss="kullback-leibler", n_clients=3, tol=0, random_state=0).fit(counts)
    np.testing.assert_allclose(model.score(counts), -model.relative_error_, rtol=1e-2)
    squared = np.linalg.norm(counts - model.inverse_transform(model.transform(counts))) / np.linalg.norm(counts)
    assert abs(model.score(counts) + squared) > 0.05


@pytest.mark.parametrize("face", FACES)
def test_running_out_of_rounds_is_a_warning_that_says_what_to_do(face, X):
    with pytest.warns(ConvergenceWarning, match=r"used all 2 rounds .* Raise rounds, raise tol, or set tol=0"):
        face(rounds=2, random_state=0).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        face(rounds=2, tol=0, random_state=0).fit(X)
        assert face(rounds=500, tol=1e-2, random_state=0).fit(X).run_.status == "converged"


def test_verbose_writes_to_the_log(X, caplog):
    caplog.set_level(logging.INFO, logger="fedfactor")
    PooledNMF(rounds=3, tol=0, start="random", verbose=2, random_state=0).fit(X)
    assert sum("round" in line and "relative error" in line for line in caplog.messages) >= 3


@pytest.mark.slow
def test_default_engine_is_the_local_one(X, owner):
    options = {"rounds": 5, "tol": 0, "random_state": 0}
    named = PooledNMF(**options, engine="local").fit(X, groups=owner)
    made = PooledNMF(**options, engine=LocalEngine(workers=1)).fit(X, groups=owner)
    np.testing.assert_allclose(named.components_, made.components_)


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_memory_stays_below_twice_the_data_and_u(together):
    n, m, k = 40_000, 2_000, 10
    S = scipy.sparse.random_array((n, m), density=0.01, format="csr", rng=0)
    size, u = S.data.nbytes + S.indices.nbytes + S.indptr.nbytes, n * k * 8
    owner = np.repeat(np.arange(50), n // 50)
    if not together:
        owner = np.random.default_rng(0).permutation(owner)
    model = PooledNMF(k, rounds=2, tol=0, random_state=0)
    model.fit(S[:1000])  # compile first
    tracemalloc.start()
    model.fit(S, groups=owner)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * size + u
    assert kept < 0.2 * size + u  # the factors, not the rows


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("how", ["fit", "fit_transform"])
def test_the_warning_points_at_the_callers_line(face, how, X):
    with pytest.warns(ConvergenceWarning) as caught:
        getattr(face(rounds=1, random_state=0), how)(X)
    assert caught[0].filename == __file__


@pytest.mark.slow
def test_a_frame_has_no_column_for_an_owners_own_components(X, owner):
    model = PooledNMF(2, n_private=1, rounds=3, tol=0, random_state=0).set_output(transform="pandas")
    model.fit(X, groups=owner)
    assert model.transform(X).shape == (30, 2)
    with pytest.raises(IncompatibleError, match="client='north' adds that owner's own"):
        model.transform(X, client="north")
    assert model.set_output(transform="default").transform(X, client="north").shape == (30, 3)


def test_callbacks_follow_a_fit_and_may_end_it(tmp_path):
    X, seen = np.random.default_rng(0).random((30, 6)), []

    def three(record):
        seen.append(record.index)
        return record.index == 2

    model = PooledNMF(2, tol=0, random_state=0, callbacks=[three]).fit(X)
    assert (seen, model.n_iter_, model.run_.status) == ([0, 1, 2], 3, "stopped")


@pytest.mark.slow
def test_a_fit_that_was_broken_off_goes_on_from_its_checkpoint(tmp_path):
    X = np.random.default_rng(0).random((30, 6))
    whole = PooledNMF(2, rounds=25, tol=0, random_state=0).fit(X)
    kept = PooledNMF(2, rounds=25, tol=0, random_state=0, checkpoint=tmp_path)

    def broken(record):
        if record.index == 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.set_params(callbacks=[broken]).fit(X)
    seen = []
    again = kept.set_params(callbacks=[lambda record: seen.append(record.index)]).fit(X)
    assert seen[0] == 15
    np.testing.assert_array_equal(again.components_, whole.components_)
