"""What people expect around a recommender: names of columns, cold ids, rules, fold-in, evaluation, one owner's file."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

import fedfactor
from fedfactor import FCF, DataError, PooledCF, PooledEASE, PooledRidge, evaluate
from fedfactor.data import ItemTable, leave_last_out
from fedfactor.recommend.user_table import UnknownWarning
from tests.recommend.test_fedsplit import planted


def frame_of(R):
    C = R.tocoo()
    return pd.DataFrame({"userId": C.row, "movieId": C.col + 1000, "rating": C.data})


@pytest.fixture(scope="module")
def data():
    R, test, _ = planted()
    return frame_of(R), frame_of(test)


@pytest.fixture(scope="module")
def model(data):
    return PooledCF(n_components=4, n_clients=6, random_state=0).fit(data[0])


def test_cross_validation_gives_numbers_though_some_ids_are_cold():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"userId": rng.integers(0, 30, 200), "movieId": rng.integers(0, 60, 200)})
    frame = frame.drop_duplicates().assign(rating=lambda f: rng.integers(1, 6, len(f)).astype(float))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownWarning)
        found = cross_val_score(PooledCF(n_components=2, random_state=0), frame, cv=3)
    assert np.isfinite(found).all()


def test_strangers_get_the_average_with_a_warning(model, data):
    train, _ = data
    with pytest.warns(UnknownWarning, match="1 user and 1 item"):
        stranger, novelty = model.predict([10_000, 3], [1005, 77])
    mean = train["rating"].mean()
    assert abs(stranger - train[train["movieId"] == 1005]["rating"].mean()) < 0.6
    assert abs(novelty - mean) < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("given", [5, 20])
def test_a_few_ratings_of_a_new_user_beat_the_item_means(given):
    R, test, _ = planted(seed=3)
    rows = R[:200]
    model = PooledCF(n_components=4, n_clients=5, random_state=0).fit(rows)
    means = np.asarray(rows.sum(axis=0)).ravel() / np.maximum(np.diff(rows.tocsc().indptr), 1)
    ours, plain = [], []
    for user in range(200, 240):
        known, hidden = R[[user]].tocoo(), test[[user]].tocoo()
        some = dict(zip(known.col[:given].tolist(), known.data[:given].tolist(), strict=True))
        found = model.fold_in(some).predict([0] * hidden.nnz, hidden.col)
        ours.append(np.mean((found - hidden.data) ** 2))
        plain.append(np.mean((means[hidden.col] - hidden.data) ** 2))
    assert np.mean(ours) < 0.9 * np.mean(plain)


def test_lists_do_not_name_what_two_people_loved():
    R, _, _ = planted(noise=0.3)
    X = R.toarray()
    X[:, -5:] = 0
    X[:2, -5:] = 5.0
    model = PooledCF(n_components=3, n_clients=4, min_ratings=1, random_state=0).fit(frame_of_dense(X))
    items, _ = model.recommend(n=5)
    bare, _ = model.recommend(n=5, shrink=0)
    rare = set(range(1075, 1080))
    assert np.isin(items, list(rare)).mean() <= np.isin(bare, list(rare)).mean()
    assert np.isin(items, list(rare)).mean() < 0.02


def frame_of_dense(X):
    rows, columns = np.nonzero(X)
    return pd.DataFrame({"user": rows, "item": columns + 1000, "rating": X[rows, columns]})


def test_clicks_need_no_ratings_and_ratings_do():
    clicks = pd.DataFrame({"user_id": [1, 1, 2, 2, 3, 3, 3], "item_id": [1, 2, 1, 2, 1, 2, 3]})
    items, _ = PooledEASE(ridge=1.0, min_users=1, random_state=0).fit(clicks).recommend([1], n=1)
    assert items[0, 0] == 3
    assert PooledCF(n_components=1, feedback="implicit", random_state=0).fit(clicks).scale_ is None
    with pytest.raises(DataError, match="rating"):
        PooledCF(n_components=1).fit(clicks)


def test_evaluate_agrees_with_score_and_knows_owners(model, data):
    _, test = data
    found = evaluate(model, test, n=5)
    assert found.rmse == pytest.approx(-model.score(test))
    assert found.mae < found.rmse
    assert sorted(found.by_owner) == sorted(model.users_)
    assert sum(each.n_ratings for each in found.by_owner.values()) == len(test) == found.n_ratings
    assert 0 < found.ranking.ndcg <= 1
    assert found.ranking.hit_rate >= found.ranking.mrr > 0
    assert 0 < found.ranking.coverage <= 1
    with pytest.raises(DataError, match="no column"):
        evaluate(model, test.drop(columns="movieId"))


def test_the_last_of_each_user_is_held_out():
    frame = pd.DataFrame({"user": [1, 1, 1, 2], "item": [1, 2, 3, 1], "timestamp": [5, 9, 7, 1]})
    train, test = leave_last_out(frame)
    assert test["item"].tolist() == [2]
    assert len(train) == 3
    assert leave_last_out(frame, last=2)[1]["item"].tolist() == [2, 3]


def test_a_file_of_one_owner_holds_nothing_of_the_others(model, tmp_path):
    with pytest.raises(DataError, match="client="):
        model.save(tmp_path / "all")
    name = next(iter(model.users_))
    model.save(tmp_path / "one", client=name)
    again = PooledCF.load(tmp_path / "one")
    users = model.users_[name][:3].tolist()
    np.testing.assert_array_equal(again.recommend(users, n=4)[0], model.recommend(users, n=4)[0])
    some = {1003: 5.0, 1010: 1.0}
    np.testing.assert_array_equal(again.fold_in(some).recommend(n=3)[0], model.fold_in(some).recommend(n=3)[0])
    other = next(each for each in model.users_ if each != name)
    assert other not in again.tables_
    assert (tmp_path / "one").stat().st_mode & 0o077 == 0
    with pytest.raises(DataError, match="PooledCF, not a FCF"):
        FCF.load(tmp_path / "one")


def test_a_private_gram_matrix_says_its_epsilon():
    rng = np.random.default_rng(0)
    taste, kind = rng.integers(0, 2, 900), np.arange(12) % 2
    X = (rng.random((900, 12)) < np.where(taste[:, None] == kind, 0.6, 0.1)).astype(float)
    frame = frame_of_dense(X).drop(columns="rating")
    model = PooledEASE(min_users=1, n_clients=4, random_state=0, privacy=fedfactor.dp(2.0, row_bound=3.0, rows=900))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fedfactor.privacy.PrivacyWarning)
        model.fit(frame)
    assert model.n_iter_ == 1
    assert model.run_.privacy["epsilon"] <= 2.0 + 1e-9
    items, _ = model.recommend(n=2)
    users = np.concatenate(list(model.users_.values()))
    assert (kind[items - 1000] == taste[users][:, None]).mean() > 0.7
    with pytest.raises(ValueError, match="min_users"):
        PooledEASE(n_clients=4, privacy=fedfactor.dp(2.0, row_bound=3.0, rows=900)).fit(frame)


def test_items_of_other_shops_are_found():
    rng = np.random.default_rng(0)
    taste = rng.integers(0, 2, 300)
    X = (rng.random((300, 30)) < np.where(taste[:, None] == np.arange(30) % 2, 0.6, 0.1)).astype(float)
    north = ItemTable(X[:150, :24], users=range(150), items=list(range(24)))
    held = [*range(18), *range(24, 30)]
    south = ItemTable(X[150:, held], users=range(150), items=held)
    model = PooledRidge(4, ridge=5.0, random_state=0).fit({"north": north, "south": south})
    assert model.n_iter_ == 3
    scores = np.stack([model.predict_proba("north", range(150), [item] * 150) for item in range(24, 30)], axis=1)
    same = np.arange(24, 30) % 2 == taste[:150, None]
    assert scores[same].mean() > 2 * scores[~same].mean()
    assert sorted(model.held_["south"].tolist()) == held
