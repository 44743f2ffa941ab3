from __future__ import annotations

import numpy as np
import pytest

from fedfactor.metrics import boolean_metrics


def test_means_over_owners_and_pooled_counts():
    X = {"a": np.array([[1, 1, 0, 0]]), "b": np.array([[1, 0, 0, 0], [0, 0, 0, 0]])}
    U = {"a": np.array([[1.0]]), "b": np.array([[1.0], [0.0]])}
    V = np.array([[1, 0, 1, 0]])
    found = boolean_metrics(X, U, V, floor=0.25)
    assert found.loss == pytest.approx((2 / 2 + 1 / 1) / 2)
    assert found.recall == pytest.approx((1 / 2 + 1) / 2)
    assert found.precision == pytest.approx(0.5)
    assert found.similarity == pytest.approx((2 / 4 + 7 / 8) / 2)
    assert found.pooled.loss == 3 / 3
    assert found.worst_client == ("a", 1.0)
    assert found.excess == pytest.approx(0.75)
    assert boolean_metrics(X, U, V).excess is None


def test_own_components_and_mistakes():
    X, U = {"a": np.eye(2), "b": np.eye(2)}, {"a": np.eye(2), "b": np.eye(2)}
    assert boolean_metrics(X, U, {"a": np.eye(2), "b": np.zeros((2, 2))}).loss == 0.5
    with pytest.raises(ValueError, match="'b' is in only one of them"):
        boolean_metrics(X, {"a": np.eye(2)}, np.eye(2))
    with pytest.raises(ValueError, match="at least one client"):
        boolean_metrics({}, {}, np.eye(2))
