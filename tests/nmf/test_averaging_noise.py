"""Averages of noisy uploads stay factors that a client takes."""

from __future__ import annotations

import pytest

from fedfactor.algorithms import FedAvgNMF
from fedfactor.core.client_data import Federation
from fedfactor.privacy.noise import Clip, Gaussian
from fedfactor.privacy.planner import make_plan
from fedfactor.testing.data import small_data
from tests.network.in_process import InProcessEngine


@pytest.mark.slow
def test_parties_go_on_when_noise_makes_cells_of_the_average_negative(tmp_path):
    algorithm, federation = FedAvgNMF(2, weights="equal", tol=0.0), Federation(small_data())
    links = (Clip(1.0), Gaussian(5.0, 1.0, whole=True, share="local"))
    channel = make_plan(links, algorithm, federation, 3, simulation=True).channel
    run = InProcessEngine(tmp_path).run(algorithm, federation, rounds=3, seed=1, channel=channel)
    assert [len(record.participants) for record in run.history] == [3, 3, 3]
    assert all((kept.V >= 0).all() for kept in run.factors.values())
    assert any((kept.V == 0).any() for kept in run.factors.values())  # so that the noise was enough to try it
