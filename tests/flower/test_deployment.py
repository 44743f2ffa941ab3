"""Federations on Flower's own processes: simulation, and SuperLink with SuperNodes over TLS."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

pytest.importorskip("flwr")

from claims import _flower as real
from fedfactor.core.client_data import Federation
from fedfactor.core.wire import from_bytes
from fedfactor.io.read import load_shard
from tests.flower.deployment import (
    APP,
    FLOWERS,
    Deployment,
    Processes,
    factors_of,
    free_port,
    status_of,
    until,
    wait_for_end,
)

import fedfactor

pytestmark = [pytest.mark.integration, pytest.mark.federation, pytest.mark.slow]

CONFIG = ["simulation.algorithm.n_components=3", "simulation.run.rounds=3", "simulation.run.seed=5"]


@pytest.fixture(params=FLOWERS, ids=lambda path: path.name)
def flower(request):
    return request.param


def local(files, rounds, privacy=None):
    federation = Federation({name: load_shard(file) for name, file in files.items()})
    return fedfactor.run(fedfactor.algorithms.PooledNMF(3, tol=0.0), federation, rounds=rounds, seed=5, privacy=privacy)


def far_from(found, run):
    return max(float(np.abs(found[name].V - run.factors[name].V).max()) for name in found)


def deploy(root, flower, files, changes):
    made = Deployment(root, flower, files, changes)
    try:
        made.serve()
        for name in files:
            made.agree(name)
            made.register(name)
            made.join(name)
    except BaseException:
        made.close()
        raise
    return made


@pytest.mark.parametrize("privacy", ["none", "secure-sum"])
def test_flwr_run_in_the_simulation_engine_gives_the_local_engines_v(tmp_path, flower, privacy):
    processes = Processes(tmp_path, flower)
    folder, data = tmp_path / "federation", APP / "data"
    more = [*CONFIG, "simulation.algorithm.tol=0.0", f"simulation.privacy.protect='{privacy}'"]
    try:
        processes.connect(processes.superlink(free_port(), "--insecure", "--simulation"), None)
        processes.flwr_run(folder, data, *more)
        status = wait_for_end(processes, folder)
    finally:
        processes.close()
    assert status["state"] == "finished", processes.said_all()
    files = {name: data / f"{name}.csv" for name in ("north", "south", "west")}
    run = local(files, 3, None if privacy == "none" else privacy)
    assert far_from(factors_of(folder, files), run) <= 1e-12
    assert (folder / "results" / "north" / "shared").is_dir()
