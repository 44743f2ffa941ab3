from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.core.errors import DataError
from fedfactor.data import ItemTable
from fedfactor.testing.checks_for_recommenders import recommender_checks

pytest.importorskip("torch")

MODEL = fedfactor.FedDMF(4, hidden=8, epochs=3, refine=1)


@pytest.mark.parametrize("check", list(recommender_checks(MODEL)), ids=str)
def test_recommender(check):
    check()


@pytest.fixture(scope="module")
def fitted():
    X = np.random.default_rng(0).random((30, 8)) < 0.5
    north = ItemTable(X[:15, :5], users=range(15), items=list("abcde"), withheld=["a"])
    south = ItemTable(X[15:, 3:], users=range(15), items=list("defgh"))
    return fedfactor.FedDMF(4, hidden=8, epochs=3, refine=1, random_state=0).fit({"north": north, "south": south})


def test_items_of_others_have_probabilities(fitted):
    p = fitted.predict_proba("north", [0, 1], ["h", "g"])
    assert ((p > 0) & (p < 1)).all()
    assert "h" not in fitted.held_["north"]


def test_one_id_at_two_owners_asks_whose(fitted):
    with pytest.raises(DataError, match="Say whose"):
        fitted.predict([3], ["d"])
    assert fitted.predict([3], ["d"], client="south").shape == (1,)


def test_an_item_that_its_owner_withholds_is_neither_foretold_nor_recommended_elsewhere(fitted):
    assert fitted.predict_proba("north", [0], ["a"]).shape == (1,)
    with pytest.raises(DataError, match="withhold"):
        fitted.predict_proba("south", [0], ["a"])
    items, scores = fitted.recommend([0], n=8, client="south", exclude_seen=False)
    assert np.isneginf(scores[items == "a"]).all()
    assert np.isfinite(scores[items != "a"]).all()


def test_dealing_users_to_owners_keeps_what_is_withheld():
    pandas = pytest.importorskip("pandas")
    cells = [(user, item) for user in range(12) for item in "abcd" if (user + ord(item)) % 3]
    frame = pandas.DataFrame(cells, columns=["user", "item"]).assign(rating=1.0)
    model = fedfactor.FedDMF(2, hidden=4, epochs=1, n_clients=3, random_state=0).fit(frame, withheld={"0": ["b"]})
    assert sorted(model.users_) == ["0", "1", "2"]
    whole = fedfactor.FedDMF(2, hidden=4, epochs=1, n_clients=3, random_state=0).fit(frame)
    assert model.run_.bytes_up < whole.run_.bytes_up  # b is no common item any more, and no vector of it is sent


def test_a_run_that_ends_early_says_why_items_of_others_are_unknown():
    X = np.ones((4, 3)) - np.eye(4, 3)
    shops = {name: ItemTable(X, range(4), items) for name, items in {"n": "abc", "s": "bcd"}.items()}
    model = fedfactor.FedDMF(2, hidden=4, epochs=3, rounds=2, random_state=0).fit(shops)
    with pytest.raises(DataError, match=r"item 'd'.*before its last exchange"):
        model.predict_proba("n", 0, "d")


def test_score_is_f1(fitted):
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(1).random((20, 4)) < 0.5
    X[:, 0] = True  # a user without any interaction would not be known
    frame = pandas.DataFrame({"user": np.repeat(range(20), 4), "item": list("abcd") * 20, "rating": X.ravel() * 1.0})
    model = fedfactor.FedDMF(4, hidden=8, epochs=5, refine=0, random_state=0).fit(frame[frame.rating > 0])
    guess = model.predict(frame.user, frame["item"]) > 0.5
    truth = X.ravel()
    assert model.score(frame) == pytest.approx(2 * (truth & guess).sum() / (truth.sum() + guess.sum()))
