"""Recommenders keep their contract; their parameters are the fields of their algorithms."""

from __future__ import annotations

import pickle
import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from fedfactor import FCF, DataError, FedMF, FedSPLIT, PooledCF, PooledCNMF, PooledEASE
from fedfactor.recommend.user_table import UserTable
from fedfactor.testing import recommender_checks
from fedfactor.testing.checks_for_recommenders import small_ratings

FACES = [FedSPLIT, PooledCF, PooledCNMF, FCF, FedMF]
MODELS = [
    FedSPLIT(n_components=2),
    FedSPLIT(n_components=2, joint="sum", joint_rounds=5),
    FedSPLIT(n_components=2, rank_rule="paper", item_bias="mean", unrated="keep", refine=0),
    PooledCF(n_components=2),
    PooledCF(n_components=2, feedback="implicit"),
    PooledEASE(ridge=2.0),
    PooledEASE(2, ridge=2.0),
    PooledCNMF(n_components=2, rounds=41),
    PooledCNMF(n_components=2, feedback="implicit", rounds=21),
    FCF(n_components=2, lam=1.0, rounds=41),
    FCF(n_components=2, feedback="implicit", rounds=41),
    FedMF(n_components=2, rounds=41),
]
EVERY_RUN = {
    "rounds": None, "n_clients": 1, "engine": "local", "privacy": None, "random_state": None, "scale": None,
    "verbose": 0, "callbacks": (), "checkpoint": None,
}  # fmt: skip


def cases():
    seen = set()
    for model in MODELS:
        # The plain settings of every face are checked with each commit, the others before each landing.
        marks = [pytest.mark.slow] if type(model) in seen else []
        seen.add(type(model))
        for check in recommender_checks(model):
            yield pytest.param(check, id=f"{model}-{check}".replace("\n", ""), marks=marks)


@pytest.mark.parametrize("check", list(cases()))
def test_contract(check):
    check()


def test_tastes_are_found():
    columns = small_ratings()
    model = PooledCF(n_components=2, random_state=0).fit(pd.DataFrame(columns), groups="owner")
    model = pickle.loads(pickle.dumps(model))
    error = np.sqrt(np.mean((model.predict(columns["user"], columns["item"]) - columns["rating"]) ** 2))
    assert error < 0.75
    assert model.score(pd.DataFrame(columns)) == pytest.approx(-error)


def test_two_owners_with_one_user_id():
    part = pd.DataFrame({"user": [1, 1, 2, 2], "item": [1, 2, 1, 2], "rating": [5.0, 3.0, 2.0, 1.0]})
    with pytest.warns(ConvergenceWarning, match="min_raters"):  # two users: no item has four raters
        model = FedSPLIT(n_components=1, random_state=0).fit({"a": part, "b": part})
    with pytest.raises(DataError, match="client="):
        model.predict(1, 1)
    assert model.predict(1, 1, client="b").shape == (1,)
    with pytest.raises(DataError, match="client="):
        model.score(part)
    error = np.sqrt(np.mean((model.predict(part["user"], part["item"], client="b") - part["rating"]) ** 2))
    assert model.score(part, client="b") == pytest.approx(-error)


def test_users_are_dealt_to_owners():
    columns = small_ratings()
    model = FedSPLIT(n_components=2, n_clients=4, random_state=0).fit(pd.DataFrame(columns))
    assert sorted(model.users_) == ["0", "1", "2", "3"]
    assert sum(map(len, model.users_.values())) == 24
    model = PooledCF(n_components=2, n_clients=4, rounds=2, random_state=0).fit({"shop": pd.DataFrame(columns)})
    assert list(model.users_) == ["shop"]


@pytest.mark.slow
def test_predictions_stay_on_the_scale():
    columns = small_ratings()
    model = FedMF(n_components=3, lam=0.0, random_state=0, scale=(2, 4)).fit(pd.DataFrame(columns), groups="owner")
    found = model.predict(columns["user"], columns["item"])
    assert found.min() >= 2
    assert found.max() <= 4


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("scale", [(5, 1), (3, 3), (1, 2, 3), (float("nan"), 5), "stars", 5])
def test_a_scale_that_cannot_clip_is_refused(face, scale):
    with pytest.raises(ValueError, match="lowest and the highest"):
        face(n_components=2, scale=scale).fit(pd.DataFrame(small_ratings()), groups="owner")


def test_odd_questions_are_refused_in_words():
    frame = pd.DataFrame(small_ratings())
    model = FCF(n_components=2, rounds=2, random_state=0).fit(frame, groups="owner")
    for users in (None, frame["user"][:2]):
        for n in (0, -1, 2.5, "3", True, 10_000):
            with pytest.raises(DataError, match="whole number from 1"):
                model.recommend(users, n=n)
    with pytest.raises(DataError, match="not finite"):
        model.fold_in(sparse.csr_array(np.full((1, len(model.items_)), np.nan)))
    with pytest.raises(DataError, match="no column 'user'"):
        model.score(sparse.csr_array(np.ones((2, 2))))
    with pytest.raises(DataError, match="no ratings"):
        model.score(frame[:0])


def test_an_owner_left_out_is_reported():
    columns = small_ratings()
    wild = np.where(columns["owner"] == "east", 1e6 * columns["rating"], columns["rating"])
    frame = pd.DataFrame({**columns, "rating": wild})
    model = FedSPLIT(n_components=2, random_state=0, item_bias="mean", unit_rows=False, refine=0)
    with pytest.warns(ConvergenceWarning, match="left out uploads of east"):
        model.fit(frame, groups="owner")
    assert model.n_rejected_ == 1


@pytest.mark.slow
def test_ten_thousand_users_and_items_without_a_dense_matrix():
    rng = np.random.default_rng(0)
    n = 10_000
    R = sparse.random_array((n, n), density=0.002, format="csr", rng=rng)
    table = UserTable(rng.random((n, 8)), rng.random((8, n)), R, np.arange(n), np.arange(n), None)
    tracemalloc.start()
    began = time.perf_counter()
    items, _ = table.recommend(n=10)
    seconds, (_, peak) = time.perf_counter() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert items.shape == (n, 10)
    assert peak < 200e6  # the dense matrix alone would take 800 MB
    assert seconds < 60
