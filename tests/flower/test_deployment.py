"""Federations on Flower's own processes: its simulation engine, and SuperLink and SuperNodes over TLS."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

pytest.importorskip("flwr")

import fedfactor
from claims import _flower as real
from fedfactor.algorithms import PooledNMF
from fedfactor.core.client_data import Federation
from fedfactor.federation import terms_writer
from fedfactor.federation.processes import free_port
from fedfactor.io.read import load_shard
from fedfactor.network.client import REFUSAL
from fedfactor.network.client_storage import ClientFolder
from tests.engines.bad_uploads import spoiled
from tests.flower.deployment import (
    APP,
    ENDED,
    FLOWERS,
    Deployment,
    Processes,
    factors_of,
    status_of,
    until,
    wait_for_end,
)

pytestmark = [pytest.mark.integration, pytest.mark.federation, pytest.mark.slow]

PARTIES = ("north", "south", "west")
SIMULATION = ["simulation.algorithm.n_components=3", "simulation.algorithm.tol=0.0", "simulation.run.rounds=3"]


@pytest.fixture(scope="module", params=FLOWERS, ids=lambda path: path.name)
def flower(request):
    return request.param


@pytest.fixture(scope="module")
def deployment(flower, tmp_path_factory):
    root = tmp_path_factory.mktemp("deployment")
    made = Deployment(root / "all", flower, real.write_rows(root), real.terms("PooledNMF", 2, tol=0.0))
    try:
        made.serve()
        for name in PARTIES:
            made.agree(name)
            made.register(name)
            made.join(name)
        yield made
    finally:
        made.close()


def local(files, rounds, seed=5, **more):
    federation = Federation({name: load_shard(file) for name, file in files.items()})
    return fedfactor.run(PooledNMF(3, tol=0.0), federation, rounds=rounds, seed=seed, **more)


def far_from(found, run):
    return max(float(np.abs(found[name].V - run.factors[name].V).max()) for name in found)


def history(deployment):
    return json.loads((deployment.folder / "server" / "result" / "run.json").read_bytes())["history"]


def wait_for_round(deployment, number):
    def reached():
        deployment.supervise(deployment.folder)
        status = status_of(deployment.folder, deployment.ordered)
        assert status["state"] not in ENDED, status
        return status["round"] >= number

    until(reached, f"Round {number}", deployment.said_all)


@pytest.mark.parametrize("privacy", ["none", "secure-sum"])
def test_flwr_run_in_the_simulation_engine_gives_the_v_of_the_local_engine(tmp_path, flower, privacy):
    processes = Processes(tmp_path, flower)
    folder, data = tmp_path / "federation", APP / "data"
    more = [*SIMULATION, "simulation.run.seed=5", f"simulation.privacy.protect='{privacy}'"]
    try:
        processes.connect(processes.superlink(free_port(), "--insecure", "--simulation"), None)
        processes.flwr_run(f"folder='{folder}' data='{data}'", *more, simulation=3)
        status = wait_for_end(processes, folder)
        assert status["state"] == "finished", (status, processes.said_all())
        until((folder / "results" / "west").is_dir, "The results", processes.said_all)
    finally:
        processes.close()
    files = {name: data / f"{name}.csv" for name in PARTIES}
    run = local(files, 3, privacy=None if privacy == "none" else privacy)
    assert far_from(factors_of(folder, files), run) <= 1e-12


def test_nan_uploads_are_left_out_and_named_as_on_the_local_engine(deployment, monkeypatch):
    bad = {"1 south": "NaN", "2 west": "NaN"}
    deployment.change(real.terms("PooledNMF", 3, {"minimum": 2, "deadline": 1200, "gather": 1200}, tol=0.0))
    deployment.bad.write_text(json.dumps(bad))
    try:
        deployment.run("again=true")
        status = wait_for_end(deployment, deployment.folder)
    finally:
        deployment.bad.unlink()
    assert status["state"] == "finished", (status, deployment.said_all())
    monkeypatch.setattr(PooledNMF, "client_step", spoiled(PooledNMF.client_step, bad))
    run = local(deployment.trial.files, 3)
    assert [entry["rejected"] for entry in history(deployment)] == [[], ["south"], ["west"]]
    assert [list(record.rejected) for record in run.history] == [[], ["south"], ["west"]]
    assert far_from(factors_of(deployment.folder, PARTIES), run) == 0.0


def test_a_party_that_signed_other_terms_refuses_and_the_run_pauses(deployment, tmp_path):
    deployment.change(real.terms("PooledNMF", 2, {"deadline": 1200, "gather": 1200}, tol=0.0))
    run = deployment.trial.terms.content["run"]
    terms_writer.save(tmp_path / "other.toml", {**deployment.trial.terms.content, "run": {**run, "rounds": 3}})
    deployment.agree("west", "--accept-changes", toml=tmp_path / "other.toml")
    deployment.run("again=true")
    status = wait_for_end(deployment, deployment.folder)
    assert status["state"] == "paused"
    assert REFUSAL in status["reason"]
    assert "signed up for other terms" in status["reason"]
    assert "not the one this party signed up for" in ClientFolder(deployment.folder / "west").sent()[-1]["reason"]


def test_killed_supernodes_and_superlinks_leave_no_trace_in_v(deployment):
    rounds = 3
    deployment.change(real.terms("PooledNMF", rounds, {"resend": 40, "deadline": 1200, "gather": 1200}, tol=0.0))
    deployment.run("again=true")
    wait_for_round(deployment, 1)
    deployment.signal("south", signal.SIGSTOP)  # so it dies in the middle of a round
    reached = status_of(deployment.folder)["round"]
    deployment.signal("south", signal.SIGKILL)
    deployment.join("south")
    wait_for_round(deployment, reached + 1)
    deployment.signal("west", signal.SIGSTOP)
    assert status_of(deployment.folder)["round"] < rounds
    deployment.signal("superlink", signal.SIGKILL)  # and the ServerApp with it
    deployment.signal("west", signal.SIGCONT)
    deployment.serve()
    for name in PARTIES:
        deployment.rejoin(name)
    deployment.run()  # the same command: the run goes on where it was
    status = wait_for_end(deployment, deployment.folder)
    assert status["state"] == "finished", (status, deployment.said_all())
    assert status["round"] == rounds
    assert far_from(factors_of(deployment.folder, PARTIES), local(deployment.trial.files, rounds)) == 0.0
    assert [len(entry["participants"]) for entry in history(deployment)] == [3] * rounds
    events = [line["deed"] for line in map(json.loads, (deployment.folder / "server/journal.jsonl").open())]
    assert events[-2:] == ["run goes on", "run finished"]


def test_a_late_party_is_left_out_of_rounds_and_comes_back(deployment):
    rounds = 5
    policy = {"minimum": 2, "deadline": 600, "absent": 5, "gather": 1200, "resend": 600}
    deployment.change(real.terms("PooledNMF", rounds, policy, tol=0.0))
    deployment.run("again=true")
    wait_for_round(deployment, 1)
    deployment.signal("west", signal.SIGSTOP)
    reached = status_of(deployment.folder)["round"]
    wait_for_round(deployment, reached + 2)
    deployment.signal("west", signal.SIGCONT)
    status = wait_for_end(deployment, deployment.folder)
    assert status["state"] == "finished", (status, deployment.said_all())
    came = [entry["participants"] for entry in history(deployment)]
    assert came[0] == came[-1] == list(PARTIES)
    assert ["north", "south"] in came
    run = local(deployment.trial.files, rounds, participation=lambda at, names: came[at.index])
    assert far_from(factors_of(deployment.folder, PARTIES), run) == 0.0


def test_an_unregistered_key_is_not_let_in(deployment):
    from fedfactor.federation import keys

    keys.make_key(deployment.folder / "eve.key", "eve")
    child = deployment.start_node("eve", folder="north")
    until(lambda: child.poll() is not None, "The end of the SuperNode", deployment.said_all)
    assert "SuperNode ID" not in deployment.said("eve")


def test_a_deployment_with_secure_aggregation_gives_the_v_of_the_local_engine(deployment):
    changes = real.terms("PooledNMF", 1, {"resend": 300, "deadline": 1200, "gather": 1200}, tol=0.0)
    changes["privacy"] |= {"protect": "secure-sum", "allow": ["small-client"]}
    deployment.change(changes)
    deployment.run("again=true")
    status = wait_for_end(deployment, deployment.folder)
    assert status["state"] == "finished", (status, deployment.said_all())
    run = local(deployment.trial.files, 1, privacy="secure-sum")
    assert far_from(factors_of(deployment.folder, PARTIES), run) <= 1e-12
    for name in PARTIES:  # what each party sent is kept there, as with the default transport
        store = ClientFolder(deployment.folder / name)
        sent = [line["sha256"] for line in store.sent() if "reason" not in line]  # all refusals have the same text
        assert sent
        assert all((store.folder / "sent" / f"{digest}.safetensors").exists() for digest in sent)
