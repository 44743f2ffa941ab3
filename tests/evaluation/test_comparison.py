from __future__ import annotations

import numpy as np

from fedfactor import FedAvgNMF, PooledBMF, PooledNMF
from fedfactor.evaluation.comparison import compare


def rows(n, seed):
    rng = np.random.default_rng(seed)
    V = np.random.default_rng(9).gamma(0.5, size=(4, 12))
    return rng.gamma(0.5, size=(n, 4)) @ V + 0.3 * rng.random((n, 12))


def test_an_owner_with_fewer_rows_than_components_is_compared():
    owners = {"north": rows(120, 0), "south": rows(100, 1), "west": rows(3, 2)}
    found = compare(owners, {"pooled": PooledNMF(4), "average": FedAvgNMF(4)}, seeds=[0], rounds=20)
    assert set(found.errors["alone"]) == set(owners)
    assert all(np.isfinite(each).all() for own in found.errors.values() for each in own.values())
    assert found.errors["pooled"]["west"][0] < found.errors["alone"]["west"][0]


def test_boolean_methods_are_compared():
    rng = np.random.default_rng(0)
    V = rng.random((2, 10)) < 0.5
    owners = {name: ((rng.random((30, 2)) < 0.5) @ V > 0).astype(float) for name in "ab"}
    found = compare(owners, {"bmf": PooledBMF(2)}, seeds=[0])
    assert found.totals["bmf"][0] < 0.5
