"""PooledBMF: tiles that only some clients hold, and what happens when some stay away."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import FELB, PooledBMF
from fedfactor.experiments.felb.tiles import uneven_tiles
from fedfactor.metrics import boolean_metrics


def loss_of(run, owners):
    return boolean_metrics(owners, {name: kept.U for name, kept in run.factors.items()}, run.V).loss


@pytest.mark.parametrize("seed", range(2))
def test_tiles_that_only_some_clients_hold(seed):
    data = uneven_tiles(1000, 200, 5, 10, seed=seed)
    run = fedfactor.run(PooledBMF(5, rate=1.02), data.owners, rounds=50, seed=seed)
    assert loss_of(run, data.owners) == 0


@pytest.mark.slow
def test_felb_misses_them():
    losses = []
    for seed in range(3):
        data = uneven_tiles(1000, 200, 5, 10, seed=seed)
        losses.append(loss_of(fedfactor.run(FELB(5), data.owners, seed=seed), data.owners))
    assert max(losses) > 0.02


def test_reported_error_is_that_of_the_relaxed_factors_and_falls():
    data = uneven_tiles(200, 60, 4, 4, seed=1)
    errors = [one.metrics["relative_error"] for one in fedfactor.run(PooledBMF(4), data.owners, seed=1).history]
    assert errors[-1] < 0.5 * errors[0]


def test_absent_clients_speak_through_the_last_sums():
    data = uneven_tiles(400, 60, 3, 4, seed=2)

    def early(at, names):
        return names if at.index % 2 == 0 else names[:2]

    run = fedfactor.run(PooledBMF(3), data.owners, seed=2, participation=early)
    assert loss_of(run, data.owners) < 0.05


def test_adaptive_rate_and_settings():
    X = np.kron(np.eye(2), np.ones((10, 4)))
    assert float(fedfactor.run(PooledBMF(2, gamma=10.0), {"a": X}, seed=0).score.sse) == 0
    for settings, message in (({"gamma": -1.0}, "gamma=-1.0"), ({"server_steps": 0}, "server_steps=0")):
        with pytest.raises(ValueError, match=message):
            fedfactor.run(PooledBMF(2, **settings), {"a": X}, rounds=1, seed=0)
