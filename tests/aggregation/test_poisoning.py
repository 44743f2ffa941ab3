"""One hostile owner of five: what the threat model says of plain sums and averages, and of a robust rule."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

import fedfactor
from fedfactor.algorithms import FedAvgNMF, PooledNMF

RNG = np.random.default_rng(3)
V = RNG.gamma(0.5, 1.0, (4, 20))
HONEST = {f"c{i}": RNG.gamma(0.5, 1.0, (80, 4)) @ V for i in range(4)}
EVE = 20 * RNG.gamma(0.5, 1.0, (80, 4)) @ RNG.gamma(0.5, 1.0, (4, 20))


def error_of_the_honest(algorithm, hostile=True, **more):
    """Fit with a fifth owner, hostile or not; return the relative error over the other four's rows."""
    fifth = EVE if hostile else EVE[:, :4] / 20 @ V
    run = fedfactor.run(algorithm, {**HONEST, "eve": fifth}, rounds=40, seed=0, **more)
    assert not any(record.rejected for record in run.history)  # nothing about such uploads is odd by itself
    X, found = np.vstack(list(HONEST.values())), np.asarray(run.V)
    U = np.array([nnls(found.T, row)[0] for row in X])
    return np.linalg.norm(X - U @ found) / np.linalg.norm(X)


@pytest.mark.parametrize("algorithm", [PooledNMF(4), FedAvgNMF(4)], ids=["PooledNMF", "FedAvgNMF"])
def test_a_plain_sum_is_bent_by_one_owner_and_nothing_is_rejected(algorithm):
    assert error_of_the_honest(algorithm, hostile=False) < 0.01
    assert error_of_the_honest(algorithm) > 0.1


@pytest.mark.parametrize("rule", ["median", "trimmed-mean"])
def test_a_robust_rule_withstands_the_same_owner(rule):
    assert error_of_the_honest(FedAvgNMF(4), privacy=rule) < 0.01
