"""Rating and ranking metrics, against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import ndcg_score

from fedfactor.metrics import mae, mean_interval, ranking_scores, rating_errors, rmse


def test_errors():
    assert rmse([1, 2, 3], [1, 2, 6]) == pytest.approx(math.sqrt(3))
    assert mae([1, 2, 3], [1, 2, 6]) == 1
    found = rating_errors({"a": [1, 1], "b": [5], "empty": []}, {"a": [2, 2], "b": [5], "empty": []})
    assert found.macro_rmse.mean == 0.5
    assert found.micro_rmse == pytest.approx(math.sqrt(2 / 3))
    assert found.micro_mae == pytest.approx(2 / 3)
    assert found.by_owner == {"a": 1, "b": 0}
    with pytest.raises(ValueError, match="cannot be compared"):
        rmse([1, 2], [1])
    with pytest.raises(ValueError, match="No owner"):
        rating_errors({"a": []}, {"a": []})


def test_interval():
    assert mean_interval([2.0]).half_width == 0
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        mean, half = mean_interval(rng.normal(size=6))
        covered += abs(mean) <= half
    assert 0.92 < covered / 400 < 0.98


def test_lists():
    liked = sparse.csr_array(np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]], float))
    lists = np.array([[0, 1, 2], [0, 1, 2], [3, 2, 0]])
    found = ranking_scores(lists, liked)
    assert found.n_users == 2
    assert found.precision == pytest.approx((2 / 3 + 0) / 2)
    assert found.recall == pytest.approx(0.5)
    perfect = ranking_scores(np.array([[2, 0], [0, 1], [1, 3]]), liked)
    assert perfect.ndcg == 1
    with pytest.raises(ValueError, match="length of the lists"):
        ranking_scores(lists, liked, 4)
    with pytest.raises(ValueError, match="lists for"):
        ranking_scores(lists[:2], liked)
    with pytest.raises(ValueError, match="liked anything"):
        ranking_scores(lists[1:2], liked[[1]])


def test_ndcg_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    scores, liked = rng.random((20, 15)), (rng.random((20, 15)) < 0.3).astype(float)
    liked[:, 0] = 1
    lists = np.argsort(-scores, axis=1)[:, :5]
    found = ranking_scores(lists, sparse.csr_array(liked))
    assert found.ndcg == pytest.approx(ndcg_score(liked, scores, k=5))
