"""Ratings come in many dresses and mean the same; nonsense is refused by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from fedfactor import DataError
from fedfactor.data import deal_groups, filter_ratings, ratings_of, split_ratings, split_ratings_by_time
from fedfactor.datasets.public_sources import read_ratings, read_times


@pytest.fixture
def frame():
    return pd.DataFrame({
        "user": ["b", "a", "a", "c"], "item": [20, 10, 30, 20], "rating": [4.0, 5.0, 1.0, 2.0],
        "home": ["x", "y", "y", "x"],
    })  # fmt: skip


def test_frames(frame):
    found = ratings_of(frame, "home")
    assert list(found.owners) == ["x", "y"]
    assert found.users["x"].tolist() == ["b", "c"]
    assert found.items.tolist() == [10, 20, 30]
    assert found.owners["y"].toarray().tolist() == [[5, 0, 1]]
    same = ratings_of(frame, {"a": "y", "b": "x", "c": "x"})
    assert (same.owners["x"] != found.owners["x"]).nnz == 0
    parts = ratings_of({name: part for name, part in frame.groupby("home")})
    assert parts.items.tolist() == [10, 20, 30]
    assert parts.n_ratings == 4
    federation = found.federation()
    assert federation.prepare().masked
    assert federation.feature_names == ("10", "20", "30")


def test_matrices():
    R = sparse.csr_array(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))
    found = ratings_of(R, ["p", "q", "p"])
    assert found.users["p"].tolist() == [0, 2]
    assert ratings_of({"p": R, "q": R[:1]}).owners["q"].shape == (1, 2)
    assert ratings_of(found) is found
    assert list(ratings_of(R).owners) == ["0"]


@pytest.mark.parametrize(
    ("change", "groups", "words"),
    [
        (lambda f: f.drop(columns="item"), None, "no column 'item'"),
        (lambda f: pd.concat([f, f[:1]]), None, "more than once"),
        (lambda f: f.assign(rating=[1, 2, np.inf, 3]), None, "finite"),
        (lambda f: f.assign(rating=["good", "bad", "so", "so"]), None, "numbers"),
        (lambda f: f.assign(user=["a", None, "b", "c"]), None, "empty cells"),
        (lambda f: f.assign(home=["x", "x", "y", "x"]), "home", "two owners"),
        (lambda f: f, "city", "no column"),
        (lambda f: f, {"a": 1}, "no owner for user"),
        (lambda f: f, ["x"] * 4, "name of a column"),
        (lambda f: {"x": f}, "home", "already does"),
        (lambda f: {}, None, "at least one owner"),
        (lambda f: {"x": f, "y": sparse.csr_array(np.eye(2))}, None, "for all of them"),
        (lambda f: {"x": sparse.csr_array(np.eye(2)), "y": sparse.csr_array(np.eye(3))}, None, "one list of items"),
        (lambda f: sparse.csr_array(np.eye(2)), ["x"], "one label"),
        (lambda f: [[1, 2, 3]], None, "data frame"),
    ],
)
def test_nonsense_is_refused(frame, change, groups, words):
    with pytest.raises(DataError, match=words):
        ratings_of(change(frame), groups)


def test_groups_have_the_sizes_asked_for():
    sizes = np.unique(deal_groups(610, seed=0), return_counts=True)[1]
    assert sizes.sum() == 610
    assert sizes.min() >= 3
    assert sizes.max() <= 32  # a rest of at most two joins the last group
    assert (deal_groups(50, seed=1) == deal_groups(50, seed=1)).all()
    assert (deal_groups(2, seed=0) == "0000").all()


def test_splits():
    rng = np.random.default_rng(0)
    R = sparse.csr_array(np.where(rng.random((30, 20)) < 0.5, rng.integers(1, 6, (30, 20)), 0).astype(float))
    train, test = split_ratings(R, 0.2, seed=1)
    assert test.nnz == round(0.2 * R.nnz)
    assert (train + test != R).nnz == 0
    when = sparse.csr_array((rng.random(R.nnz), R.indices, R.indptr), shape=R.shape)
    train, test = split_ratings_by_time(R, when, 0.3)
    for i in range(30):
        early, late = (when[[i]].multiply(part[[i]] > 0) for part in (train, test))
        if test[[i]].nnz:
            assert early.data.max() < late.data[late.data > 0].min()
    with pytest.raises(DataError, match="same cells"):
        split_ratings_by_time(R, when[:, ::-1])
    kept, rows, columns = filter_ratings(R, per_user=8, per_item=8)
    assert (np.diff(kept.indptr) > 0).all()
    assert kept.shape == (len(rows), len(columns))


def test_the_larger_movielens(tmp_path):
    folder = tmp_path / "movielens-1m"
    folder.mkdir()
    (folder / "ratings.dat").write_text("1::20::5::978300760\n1::10::3::978300761\n7::20::1::978300762\n")
    X, features = read_ratings(tmp_path, "movielens_1m")
    assert X.toarray().tolist() == [[3, 5], [0, 1]]
    assert features == ("10", "20")
    assert read_times(tmp_path, "movielens_1m").toarray()[1, 1] == 978300762
