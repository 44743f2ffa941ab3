"""Baselines have the recommenders' face, and lists of all users go to a file."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedfactor import Biases, DataError, PooledCF, PooledEASE, Popularity, evaluate
from fedfactor.recommend import recommendation_files as list_file
from fedfactor.recommend.user_table import UnknownWarning
from tests.estimators.test_recommend_around import frame_of
from tests.recommend.test_fedsplit import planted


@pytest.fixture(scope="module")
def data():
    R, test, _ = planted()
    return frame_of(R), frame_of(test)


@pytest.mark.slow
def test_biases_stand_between_the_mean_and_factors(data):
    train, test = data
    found = {}
    for model in (Biases(n_clients=6, random_state=0), PooledCF(n_components=4, n_clients=6, random_state=0)):
        found[type(model).__name__] = evaluate(model.fit(train), test).rmse
    assert found["PooledCF"] < found["Biases"] < np.sqrt(np.mean((test["rating"] - train["rating"].mean()) ** 2))


def test_a_new_user_who_likes_everything_is_predicted_higher(data):
    model = Biases(n_clients=6, random_state=0).fit(data[0])
    fond, cool = (model.fold_in({1003: r, 1004: r, 1005: r}).predict(0, 1010)[0] for r in (5.0, 1.0))
    assert fond > cool


def test_popularity_gives_everybody_the_same_list_less_what_they_saw(data):
    train, test = data
    model = Popularity(n_clients=6, random_state=0).fit(train.drop(columns="rating"))
    order = train["movieId"].value_counts()
    items, scores = model.recommend(n=5)
    users = np.concatenate(list(model.users_.values()))
    for user, mine, score in zip(users[:20], items, scores, strict=False):
        left = order.drop(train[train["userId"] == user]["movieId"])
        np.testing.assert_array_equal(order[mine].to_numpy(), left.to_numpy()[:5])
        np.testing.assert_allclose(score, left.to_numpy()[:5] / train["userId"].nunique())
    assert evaluate(model, test).ranking.ndcg > 0
    assert evaluate(model, test).rmse is None


@pytest.mark.parametrize("kind", [Biases, Popularity])
def test_one_owner_takes_its_part_home(kind, data, tmp_path):
    model = kind(n_clients=3, random_state=0).fit(data[0])
    name = next(iter(model.users_))
    model.save(tmp_path / "mine", client=name)
    again = kind.load(tmp_path / "mine")
    users = model.users_[name][:3].tolist()
    np.testing.assert_array_equal(again.recommend(users, n=4)[0], model.recommend(users, n=4)[0])
    with pytest.raises(DataError, match="no similar items"):
        again.similar_items(1003)


def test_strangers_get_the_mean(data):
    model = Biases(n_clients=3, random_state=0).fit(data[0])
    with pytest.warns(UnknownWarning):
        found = model.predict([99_999], [77])
    assert abs(found[0] - data[0]["rating"].mean()) < 0.3


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_lists_of_all_users_go_to_a_file(suffix, data, tmp_path, monkeypatch):
    monkeypatch.setattr(list_file, "USERS", 7)  # several blocks for each owner
    model = PooledEASE(n_clients=3, random_state=0).fit(data[0])
    path = tmp_path / f"lists.{suffix}"
    rows = model.recommend_to(path, n=4, without=[1003])
    found = pd.read_csv(path) if suffix == "csv" else pd.read_parquet(path)
    assert list(found.columns) == ["user", "rank", "item", "score", "owner"]
    assert len(found) == rows
    assert path.stat().st_mode & 0o077 == 0
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    items, scores = model.recommend(n=4, without=[1003])
    np.testing.assert_array_equal(found["item"].to_numpy(), items[np.isfinite(scores)])
    np.testing.assert_allclose(found["score"].to_numpy(), scores[np.isfinite(scores)], rtol=1e-12)
    users = np.repeat(np.concatenate(list(model.users_.values())), 4)
    np.testing.assert_array_equal(found["user"].to_numpy(), users[np.isfinite(scores).ravel()])
    assert found["rank"].min() == 1
    assert set(found["owner"].astype(str)) == set(model.tables_)


def test_lists_of_one_owner_and_of_users_with_little_left(data, tmp_path):
    model = Popularity(n_clients=3, random_state=0).fit(data[0])
    name = list(model.tables_)[1]
    only = model.items_[:3].tolist()
    model.recommend_to(tmp_path / "a.csv", n=3, only=only, client=name)
    found = pd.read_csv(tmp_path / "a.csv")
    assert set(found["user"]) <= set(model.users_[name].tolist())
    assert len(found) < 3 * len(model.users_[name])
    assert np.isfinite(found["score"]).all()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_blocks_of_users_with_nothing_left_are_skipped(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(list_file, "USERS", 2)
    cells = [(user, item) for user in range(2) for item in "ab"] + [(user, "a") for user in (2, 3)]
    model = Popularity(random_state=0).fit(pd.DataFrame(cells, columns=["user", "item"]))
    read = pd.read_csv if suffix == "csv" else pd.read_parquet
    path = tmp_path / f"lists.{suffix}"
    assert model.recommend_to(path, n=2) == 2
    assert read(path)["user"].tolist() == [2, 3]
    assert model.recommend_to(path, n=1, without=["a", "b"]) == 0
    assert len(read(path)) == 0


def test_a_file_of_another_kind_is_refused_and_leaves_nothing(data, tmp_path):
    model = Popularity(n_clients=3, random_state=0).fit(data[0])
    with pytest.raises(DataError, match=r"\.csv or \.parquet"):
        model.recommend_to(tmp_path / "lists.xlsx")
    with pytest.raises(ValueError, match="No owner"):
        model.recommend_to(tmp_path / "lists.csv", client="nobody")
    assert not list(tmp_path.iterdir())
