"""Every hostile answer, from a party with a registered key, over each transport with its own processes.

One party answers in another hostile way in each round. The others end with the V of a run in which it was away.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("aiohttp")

import fedfactor
from claims import _flower as real
from fedfactor.algorithms import PooledNMF
from fedfactor.core.client_data import Federation
from fedfactor.core.wire import from_bytes
from fedfactor.federation.processes import free_port
from fedfactor.federation.trial import Trial
from fedfactor.io.read import load_shard
from tests.flower.deployment import APP, FLOWERS, Processes, wait_for_end
from tests.network.hostile import KINDS

pytestmark = [pytest.mark.integration, pytest.mark.federation, pytest.mark.slow]

SPOILED = Path(__file__).parents[1] / "flower" / "spoiled"
POLICY = {"minimum": 2, "deadline": 15, "resend": 600}


def over_https(root, files, changes):
    trial = Trial(root / "all", files, changes)
    with trial:
        for name in files:
            trial.join(name)
        trial.coordinator.start()
        status = trial.coordinator.wait(900.0)
    return trial.root, status


def over_flower(root, files, changes):
    processes, folder = Processes(root, FLOWERS[0]), root / "all"
    app = shutil.copytree(APP, root / "app", ignore=shutil.ignore_patterns("data"))
    head = (app / "pyproject.toml").read_text().partition("# The terms of a simulation")[0]
    tables = [
        f"[tool.flwr.app.config.simulation.{section}]\n"
        + "".join(f"{entry} = {json.dumps(value)}\n" for entry, value in entries.items())
        for section, entries in changes.items()
    ]
    (app / "pyproject.toml").write_text("\n".join([head, *tables]))
    try:
        processes.connect(processes.superlink(free_port(), "--insecure", "--simulation"), None)
        processes.flwr_run(f"folder='{folder}' data='{root / 'data'}'", app=app, simulation=3)
        status = wait_for_end(processes, folder)
    finally:
        processes.close()
    return folder, status


@pytest.mark.parametrize("transport", [over_https, over_flower], ids=lambda made: made.__name__.removeprefix("over_"))
def test_a_party_whose_every_answer_is_hostile_changes_nothing(transport, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SPOILED)
    monkeypatch.setenv("FEDFACTOR_TEST_HOSTILE", "west")
    rounds = len(KINDS) + 2
    (tmp_path / "data").mkdir()
    files = real.write_rows(tmp_path / "data")
    root, status = transport(tmp_path, files, real.terms("PooledNMF", rounds, POLICY, tol=0.0))
    assert status["state"] == "finished", status
    record = json.loads((root / "server" / "result" / "run.json").read_bytes())
    came = [entry["participants"] for entry in record["history"]]
    assert came == [["north", "south", "west"], *[["north", "south"]] * len(KINDS), ["north", "south", "west"]]
    federation = Federation({name: load_shard(file) for name, file in files.items()})
    algorithm = PooledNMF(3, tol=0.0)
    away = fedfactor.run(algorithm, federation, rounds=rounds, seed=5, participation=lambda at, names: came[at.index])
    for name in files:
        found = from_bytes((root / name / "result" / "factors.safetensors").read_bytes())["factors"]
        np.testing.assert_array_equal(found.V, away.factors[name].V)
