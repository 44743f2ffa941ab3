"""FedSPLIT.as_printed agrees with an implementation written from the paper alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor.algorithms import FedSPLIT
from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Federation
from fedfactor.linalg.nndsvd import nndsvd
from fedfactor.recommend.local_cnmf import RatingPenalty, cnmf
from fedfactor.recommend.printed_cnmf import printed_cnmf
from tests.papers import fedsplit_reference as paper

RATES = {"alpha": 0.05, "beta": 0.07, "gamma": 0.02, "delta": 0.03, "eta_W": 0.004, "eta_H": 0.006}
PENALTY = RatingPenalty(0.05, 0.07, 0.02, 0.03, 0.004, 0.006, by_count=False)


def ratings(users, seed, items=40):
    rng = np.random.default_rng(seed)
    X = rng.integers(1, 6, (users, items)) * (rng.random((users, items)) < 0.3)
    X[:, 0] = rng.integers(1, 6, users)
    return X.astype(float)


@pytest.fixture(scope="module")
def groups():
    return {name: ratings(users, seed) for seed, (name, users) in enumerate({"a": 9, "b": 14, "c": 6}.items())}


def test_equations_10_to_13(groups):
    X, rng = groups["b"], np.random.default_rng(7)
    W, H = rng.random((14, 5)), rng.random((5, 40))
    expected = paper.cnmf(X, W, H, 3.1, 50, **RATES)
    found = printed_cnmf(sparse.csr_array(X), W, H, 3.1, penalty=PENALTY, iterations=50)
    for ours, theirs in zip((found.U, found.V, found.user, found.item), expected, strict=True):
        assert np.abs(ours - theirs).max() < 1e-12
    assert (found.V[:, (X == 0).all(0)] == 0).all()  # (13): items that nobody rated


def test_the_stable_updates_are_a_variant(groups):
    X, rng = groups["b"], np.random.default_rng(7)
    W, H = rng.random((14, 5)), rng.random((5, 40))
    expected = paper.cnmf(X, W, H, 3.1, 50, **RATES)
    stable = cnmf(sparse.csr_array(X), W, H, 3.1, penalty=PENALTY, iterations=50)
    assert 1e-3 < np.abs(stable.user - expected[2]).max() < 0.1


def test_printed_bias_steps_overshoot_for_users_of_many_ratings():
    X = sparse.csr_array(np.random.default_rng(0).integers(1, 6, (1, 600)).astype(float))
    nothing = np.zeros((1, 1)), np.zeros((1, 600))  # without factors, which would take it back
    found = printed_cnmf(X, *nothing, 2.0, penalty=RatingPenalty(eta_user=0.005, eta_item=0.0), iterations=40)
    assert abs(found.user[0]) > 1e6
    assert abs(cnmf(X, *nothing, 2.0, penalty=RatingPenalty(eta_item=0.0), iterations=40).user[0]) < 2


def library_start(stacked):
    """The initialization that section 4.1 names; zeros are filled, since multiplicative updates cannot leave them."""
    M, V = nndsvd(stacked.T, 4, seed=0)
    least = max(stacked.mean() * 0.01, 1e-9)
    return np.maximum(V.T, least), np.maximum(M.T, least)


def test_algorithm_1(groups):
    method = FedSPLIT.as_printed(
        4, local_components=3, iterations=30,
        alpha=0.05, beta=0.07, gamma=0.02, delta=0.03, eta_user=0.004, eta_item=0.006,
    )  # fmt: skip
    federation = Federation({name: sparse.csr_array(X) for name, X in groups.items()}, missing_values="unstored")
    meta = federation.prepare(method.domain)
    starts = [method.init_client(federation.shard(name), meta, Round(0, 0, name)) for name in meta.clients]
    predictions, W_global = paper.fedsplit(
        list(groups.values()), [(one.U, one.V) for one in starts], library_start, 30, 1000, **RATES
    )
    run = fedfactor.run(method, federation, seed=0)
    for name, expected in zip(meta.clients, predictions, strict=True):
        kept = run.factors[name]
        assert np.abs(kept.U @ kept.V - expected).max() < 1e-10
        assert np.abs(kept.V[:4].T - W_global).max() < 1e-10


@pytest.mark.parametrize("reading", [{"unrated": "keep"}, {"updates": "stable"}, {"by_count": True}])
def test_readings_differ(groups, reading):
    federation = Federation({name: sparse.csr_array(X) for name, X in groups.items()}, missing_values="unstored")
    found = [
        fedfactor.run(FedSPLIT.as_printed(4, local_components=3, **more), federation, seed=0).factors["a"].V
        for more in ({}, reading)
    ]
    assert np.abs(found[0] - found[1]).max() > 1e-3
