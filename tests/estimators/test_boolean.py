"""Boolean faces: zeros and ones out, restarts by summed loss, thresholds at the owner, metrics."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

import fedfactor
from fedfactor import ASSO, ELBMF, FALB, FELB, MEBF, PRIMP, BooleanVotes, DataError, GreConD, PooledBMF, ZhangBMF
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import PoorFitWarning
from fedfactor.data import planted_boolean
from fedfactor.io.partition import split_rows

FEDERATED = [FELB, FALB, PooledBMF, BooleanVotes]
LOCAL = [ASSO, ELBMF, GreConD, MEBF, PRIMP, ZhangBMF]


@pytest.fixture(scope="module")
def data():
    return planted_boolean(300, 40, 3, flips=0.02, in_tile=1.0, n_clients=5, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("face", FEDERATED)
def test_factors_are_binary_and_the_metrics_are_those_of_the_boolean_product(face, data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a run that ends with its last round is no failure here
        model = face(n_components=3, random_state=0).fit(data.X, groups=data.labels)
    assert set(np.unique(model.components_)) <= {0, 1}
    U = np.vstack([model.client_factors_[str(name)] for name in range(5)])
    R = U @ model.components_ > 0
    assert model.loss_ == pytest.approx((data.X != R).sum() / data.X.sum())
    assert model.metrics_.pooled.wrong == float(model.run_.score.sse)
    assert set(model.metrics_.by_client) == set("01234")
    np.testing.assert_array_equal(model.inverse_transform(U), R)
    assert model.score(data.X) == pytest.approx(-model.measure(data.X).pooled.loss)
    assert model.measure({"a": data.X}, floor=data.floor).excess < 0.5


@pytest.mark.slow
def test_restarts_keep_the_one_with_the_least_summed_loss(data):
    one = FELB(n_components=3, rounds=10, random_state=4).fit(data.X, groups=data.labels)
    five = FELB(n_components=3, rounds=10, random_state=4, n_init=5).fit(data.X, groups=data.labels)
    assert float(five.run_.score.sse) <= float(one.run_.score.sse)
    again = FELB(n_components=3, rounds=10, random_state=five.run_.seed).fit(data.X, groups=data.labels)
    np.testing.assert_array_equal(again.components_, five.components_)
    with pytest.raises(ValueError, match="n_init=0 must be a whole number"):
        FELB(n_init=0).fit(data.X)


def test_the_loss_is_of_all_owners_where_a_process_holds_some(data):
    model = PooledBMF(n_components=3, rounds=10, random_state=0).fit(data.X, groups=data.labels)
    whole = model.loss_
    part = replace(model.run_, factors={name: model.run_.factors[name] for name in "01"})
    model._keep(part, Federation(split_rows(data.X, data.labels)))
    assert set(model.metrics_.by_client) == {"0", "1"}
    assert model.metrics_.pooled.loss != whole
    assert model.loss_ == whole


def test_a_budget_is_for_one_start(data):
    budget = fedfactor.dp(epsilon=1, delta=1e-6, unit="row")
    for privacy in (budget, (budget, fedfactor.privacy.Minimums())):
        with pytest.raises(fedfactor.IncompatibleError, match=r"n_init=3 makes 3 runs, but dp\(epsilon=1\)"):
            PooledBMF(n_components=3, rounds=2, n_init=3, privacy=privacy).fit(data.X, groups=data.labels)
    PooledBMF(n_components=3, solver="proximal", rounds=2, privacy=budget).fit(data.X, groups=data.labels)
    with pytest.raises(fedfactor.IncompatibleError, match="solver='proximal'"):
        PooledBMF(n_components=3, rounds=2, privacy=budget).fit(data.X, groups=data.labels)


@pytest.mark.parametrize("face", [PooledBMF, ASSO])
def test_binarize_is_a_threshold_at_the_owner(face):
    X = np.kron(np.eye(2), np.ones((8, 5))) * 7.0
    for rows in (X, scipy.sparse.csr_array(X)):
        model = face(n_components=2, binarize=3.0, **({"random_state": 0} if face is PooledBMF else {})).fit(rows)
        assert model.loss_ == 0
        np.testing.assert_array_equal(model.inverse_transform(model.transform(rows)), X > 3)
    with pytest.raises(DataError, match="values other than 0 and 1"):
        face(n_components=2).fit(X)
    with pytest.raises(DataError, match="every unstored cell"):
        face(n_components=2, binarize=-1.0).fit(scipy.sparse.csr_array(X))
    with pytest.raises(DataError, match="contains NaN"):
        face(n_components=2, binarize=1.0).fit(np.where(X > 0, X, np.nan))
    with pytest.raises(ValueError, match="binarize='high' must be a number"):
        face(n_components=2, binarize="high").fit(X)


def test_paper_presets():
    assert FELB.paper(3, rounds=5).get_params()["scale_prox"] is False
    assert FALB.paper(3).refit == "none"
    assert BooleanVotes.paper(3, solver="mebf").align == "none"


@pytest.mark.parametrize("face", LOCAL)
def test_local_solvers_alone(face, data):
    model = face(n_components=3, **({"random_state": 0} if "random_state" in face().get_params() else {})).fit(data.X)
    assert set(np.unique(model.components_)) | set(np.unique(model.U_)) <= {0, 1}
    assert model.loss_ == -model.score(data.X)
    assert model.loss_ <= ((model.U_ @ model.components_ > 0) != data.X).sum() / data.X.sum() + 0.05
    assert model.finished_
    assert model.transform(data.X[:7]).shape == (7, 3)
    assert model.get_feature_names_out().tolist()[0] == f"{face.__name__.lower()}0"


@pytest.mark.parametrize(
    "model",
    [
        PooledBMF(3, random_state=0),
        PooledBMF(3, solver="proximal", refit="none", rounds=20, random_state=0),
        FELB(3, rounds=5, refit="none", random_state=0),
        FELB(3, rounds=5, random_state=0),
        BooleanVotes(3, refit="none", random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__}, {getattr(model, 'refit', '')}",
)
def test_the_loss_is_that_of_score(model, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)
        model.fit(data.X, groups=data.labels)
    assert model.loss_ == pytest.approx(-model.score(data.X), abs=1e-12)


def test_what_is_missing_counts_for_nothing(data):
    rng = np.random.default_rng(0)
    X = np.where(rng.random(data.X.shape) < 0.2, np.nan, data.X)
    model = PooledBMF(3, missing_values=np.nan, random_state=0).fit(X, groups=data.labels)
    R = model.inverse_transform(model.transform(X))
    seen = ~np.isnan(X)
    assert model.loss_ == pytest.approx((R != X)[seen].sum() / X[seen].sum())
    assert model.loss_ == pytest.approx(-model.score(X)) == pytest.approx(model.metrics_.pooled.loss)
    assert (R != data.X).mean() < 0.05
    with pytest.raises(fedfactor.IncompatibleError, match="needs complete rows"):
        PooledBMF(3, solver="proximal", missing_values=np.nan).fit(X, groups=data.labels)


@pytest.mark.slow
def test_a_fit_that_is_no_better_than_nothing_is_told():
    rng = np.random.default_rng(0)
    X = (rng.random((300, 150)) < 0.9) * 1.0
    with pytest.warns(PoorFitWarning, match=r"V is empty, where one and the same row for all would have 0\.1"):
        FELB(8, row_max="free", init="independent", start="uniform", n_clients=20, random_state=0).fit(X)
    X = (rng.random((200, 40)) < np.r_[np.full(5, 0.9), np.full(35, 0.05)]) * 1.0
    with pytest.warns(PoorFitWarning, match=r"has loss .*, where the 5 most frequent columns, one for each component,"):
        PooledBMF(5, solver="proximal", rounds=1, random_state=0).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PoorFitWarning)
        PooledBMF(5, random_state=0).fit(X)


def test_time_limit_of_a_solver_is_told(data):
    assert not GreConD(n_components=30, time_limit=0.0).fit(data.X).finished_


def test_wrong_width_is_told(data):
    model = GreConD(n_components=3).fit(data.X)
    with pytest.raises(DataError, match="U has 2 columns, but there are 3 components"):
        model.inverse_transform(np.ones((4, 2)))


def test_estimators_run_on_any_federation(data):
    federation = fedfactor.Federation({"a": data.X[:100], "b": data.X[100:]})
    U = PooledBMF(n_components=3, random_state=0).fit_transform(federation)
    assert {name: part.shape for name, part in U.items()} == {"a": (100, 3), "b": (200, 3)}
