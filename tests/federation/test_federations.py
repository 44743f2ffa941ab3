"""A real server and three parties on this machine, over TLS, with registered keys.

One process serves all of it. Waits are for events, with deadlines that a busy machine keeps.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("aiohttp")

import fedfactor
from claims import _flower as real
from fedfactor.algorithms import PooledCF
from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.client_data import Federation
from fedfactor.federation import certificates, keys, terms_writer
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.trial import Trial
from fedfactor.io.read import load_shard
from fedfactor.network.client import REFUSAL
from fedfactor.network.client_storage import ClientFolder
from fedfactor.privacy import Ledger
from tests.engines.bad_uploads import spoiled
from tests.federation.named_files import unnamed

pytestmark = [pytest.mark.integration, pytest.mark.federation, pytest.mark.slow]
PATIENCE = 600.0


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    root = tmp_path_factory.mktemp("federation")
    with Trial(root / "all", *real.case("PooledNMF", root)) as made:
        yield made


def join_and_read(*words):
    """Run a join that must fail, and return what it said."""
    command = [sys.executable, "-m", "fedfactor", "join", *map(str, words), "--yes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def test_killed_parties_and_servers_leave_no_trace_in_the_factors(trial, tmp_path):
    rounds = 60  # more than can pass unseen between two looks
    files = real.write_rows(tmp_path)
    real.everybody_joins(trial, files, real.terms("PooledNMF", rounds, tol=0.0))
    trial.coordinator.start(again=True, sure=True)
    real.wait_for_round(trial, 1, PATIENCE)
    reached = real.hold(trial, "south")  # so it dies in the middle of a round
    assert 1 <= reached < rounds
    real.kill_member(trial, "south")
    trial.join("south")
    real.wait_for_round(trial, reached + 1, PATIENCE)
    assert real.hold(trial, "west") < rounds
    real.kill_server(trial)
    real.release(trial, "west")
    trial.serve()
    trial.coordinator.start()
    assert trial.coordinator.wait(PATIENCE)["state"] == "finished"
    run = real.local(files, trial)
    assert real.largest_difference(real.factors(trial), run.factors) == 0.0
    record = json.loads((trial.coordinator.folder / "result" / "run.json").read_bytes())
    assert record["relative_error"] == pytest.approx(run.relative_error, rel=1e-12)
    assert [len(entry["participants"]) for entry in record["history"]] == [3] * rounds
    assert all(entry["bytes_up"] > 0 for entry in record["history"])


def test_a_changed_federation_toml_is_refused_by_those_who_signed_the_old_one(trial, tmp_path):
    if not trial.members:
        real.everybody_joins(trial, trial.files, real.terms("PooledNMF", 2, tol=0.0))
    run, file = trial.terms.content["run"], tmp_path / "federation.toml"
    terms_writer.save(file, {**trial.terms.content, "run": {**run, "rounds": run["rounds"] + 1}})
    changed = Coordinator(file, trial.coordinator.folder)
    try:
        # A coordinator that does not say so: its server still names the old terms, and asks under the new ones.
        write_atomic(changed.folder / "agreement.json", changed.terms.agreement().to_json())
        changed.start(again=True, sure=True)
        status = changed.wait(PATIENCE)
    finally:
        trial.coordinator.prepare()
    words = ["--data", trial.files["north"], "--key", trial.root / "north.key", "--folder", trial.folder("north")]
    said = join_and_read(file, *words)
    assert status["state"] == "paused"
    assert REFUSAL in status["reason"]
    assert "not the one this party signed up for" in ClientFolder(trial.folder("north")).sent()[-1]["reason"]
    assert "not the terms that this party signed up for" in said
    assert "run.rounds: " in said


def test_other_features_are_refused(trial, tmp_path):
    other = tmp_path / "north.npz"
    np.savez(other, X=np.ones((40, 12)), features=[f"gene {j}" for j in range(12)])
    said = join_and_read(trial.toml, "--data", other, "--key", trial.root / "north.key", "--folder", tmp_path / "n")
    assert "does not fit the agreed features" in said
    assert "'feature 0'" in said


def test_an_unregistered_key_is_turned_away(trial, tmp_path):
    keys.make_key(tmp_path / "eve.key", "eve")
    said = join_and_read(trial.toml, "--data", trial.files["north"], "--key", tmp_path / "eve.key")
    assert "lists no party with the key" in said
    # Eve writes herself into her own copy: now the server does not know her.
    content = {**trial.terms.content, "parties": {**trial.terms.content["parties"]}}
    content["parties"]["eve"] = {"key": keys.public_line(tmp_path / "eve.key.pub")}
    terms_writer.save(tmp_path / "federation.toml", content)
    said = join_and_read(
        tmp_path / "federation.toml", "--data", trial.files["north"], "--key", tmp_path / "eve.key",
        "--folder", tmp_path / "eve",
    )  # fmt: skip
    assert "does not know this key" in said


def test_a_wrong_certificate_is_not_spoken_to(trial, tmp_path):
    other = certificates.make_authority(tmp_path / "other", "other")
    content = {**trial.terms.content, "server": {**trial.terms.content["server"], "certificate": other.read_text()}}
    terms_writer.save(tmp_path / "federation.toml", content)
    said = join_and_read(
        tmp_path / "federation.toml", "--data", real.write_rows(tmp_path, seed=2)["north"],
        "--key", trial.root / "north.key", "--folder", tmp_path / "north",
    )  # fmt: skip
    assert "certificate is not the one that federation.toml names" in said


def test_tls_is_spoken_and_plain_text_is_not(trial):
    with socket.create_connection(("127.0.0.1", trial.coordinator.port), timeout=60) as line:
        line.sendall(b"GET /fedfactor/1/terms HTTP/1.1\r\nHost: x\r\n\r\n")
        line.settimeout(60)
        assert b"200" not in line.recv(64)


@pytest.mark.parametrize("name", [name for name in real.CASES if name != "PooledNMF"])  # which the kills are about
def test_the_bits_are_those_of_the_local_engine(trial, tmp_path, name):
    found = real.compare(trial, name, tmp_path, PATIENCE)
    assert found.get("largest_difference") == 0.0, found


def test_noise_of_laplace_is_added_by_the_parties_and_counted_by_the_server(trial, tmp_path):
    files, rounds = real.write_rows(tmp_path), 3
    changes = real.terms("FedAvgNMF", rounds, weights="equal")
    links = [{"link": "Laplace", "norm": 1.0, "epsilon": 0.5}]
    changes["privacy"] |= {"links": links, "report_error": False}
    real.everybody_joins(trial, files, changes)
    trial.coordinator.start(again=True, sure=True)
    assert trial.coordinator.wait(PATIENCE)["state"] == "finished"
    ledger = Ledger(next(trial.coordinator.folder.rglob("ledger.jsonl")))
    assert [entry.epsilon for entry in ledger.entries()] == [0.5] * rounds
    said = json.loads((trial.coordinator.folder / "result" / "run.json").read_bytes())["privacy"]
    assert (said["channel"], said["unit"], said["epsilon_each"]) == (["Laplace"], "client", 0.5)
    assert said["epsilon"] == pytest.approx(1.5)
    assert said["sees"]["server"] == "every client's noisy upload in each round"
    assert said["simulation"] == []
    # Noise of scale 2 on each upload: no draw of it is that of this machine.
    assert real.largest_difference(real.factors(trial), real.local(files, trial).factors) > 1e-3


def test_noise_under_the_secure_sum_is_paid_once_by_each_party_whoever_is_killed(trial, tmp_path):
    files, rounds = real.write_rows(tmp_path, seed=1), 8  # rows that no other ledger has spent on
    changes = real.terms("PooledNMF", rounds, {"deadline": PATIENCE, "gather": PATIENCE})
    changes["privacy"] |= {"protect": "dp", "epsilon": 1.0, "row_bound": 5.0, "rows": 135.0, "report_error": False}
    books = {name: tmp_path / f"{name}.jsonl" for name in files}
    real.everybody_joins(trial, files, changes, {name: ("--ledger", str(path)) for name, path in books.items()})
    try:
        trial.coordinator.start(again=True, sure=True)
        real.wait_for_round(trial, 1, PATIENCE)
        reached = real.hold(trial, "south")
        assert 1 <= reached < rounds
        real.kill_member(trial, "south")
        trial.join("south")
        real.wait_for_round(trial, reached + 1, PATIENCE)
        real.kill_server(trial)
        trial.serve()
        trial.coordinator.start()
        assert trial.coordinator.wait(PATIENCE)["state"] == "finished"
        for path in books.values():
            assert [entry.round for entry in Ledger(path).entries()] == list(range(rounds))
            assert 0.99 < Ledger(path).epsilon() <= 1.0 == Ledger(path).budget
        said = json.loads((trial.coordinator.folder / "result" / "run.json").read_bytes())["privacy"]
        assert (said["mode"], said["unit"]) == ("dp", "row")
        trial.coordinator.start(again=True, sure=True)
        status = trial.coordinator.wait(PATIENCE)
        assert status["state"] == "paused"
        assert REFUSAL in status["reason"]
        assert "beyond their budget" in ClientFolder(trial.folder("north")).sent()[-1]["reason"]
        assert all(len(Ledger(path).entries()) == rounds for path in books.values())
    finally:
        for name in files:  # the books of these rows end with them: other tests bring other rows into these folders
            for book in (trial.folder(name) / "ledger.path", trial.folder(name) / "ledger.jsonl"):
                book.unlink(missing_ok=True)
            (trial.root / f"{name}.key.books").unlink(missing_ok=True)


def test_bad_uploads_are_left_out_and_named_as_on_the_local_engine(trial, tmp_path, monkeypatch):
    """Two parties whose software sends NaN, or sums that no ratings can give: same record, same bits."""
    files = real.write_ratings(tmp_path)
    (tmp_path / "sitecustomize.py").write_text(
        "from fedfactor.algorithms import PooledCF\n"
        "from tests.engines.bad_uploads import spoiled\n"
        "PooledCF.client_step = spoiled(PooledCF.client_step)\n"
    )
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)  # of the parties only: this process has begun
        changes = real.terms("PooledCF", 5, {"minimum": 1}, tol=0.0)
        real.everybody_joins(trial, files, changes | {"preprocess": {"missing_values": "unstored"}})
    trial.coordinator.start(again=True, sure=True)
    status = trial.coordinator.wait(PATIENCE)
    assert status["state"] == "finished", status
    monkeypatch.setattr(PooledCF, "client_step", spoiled(PooledCF.client_step))
    run = real.local(files, trial)
    wanted = [(list(record.participants), list(record.rejected)) for record in run.history]
    assert [rejected for _, rejected in wanted] == [[], ["south"], ["west"], ["south", "west"], []]
    assert [(record["participants"], record["rejected"]) for record in real.history(trial)] == wanted
    assert real.largest_difference(real.factors(trial), run.factors) == 0.0


def test_late_and_doubled_uploads_are_counted_and_never_happened(trial, tmp_path, monkeypatch):
    """One party sends everything twice; another brings an answer when the others are two rounds further."""
    files, rounds = real.write_rows(tmp_path), 40
    (tmp_path / "sitecustomize.py").write_text(
        "from fedfactor.network.https.client import PartyClient\n"
        "from tests.network.odd_senders import spoil\nspoil(PartyClient)\n"
    )
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)  # of the parties only: this process has begun
        patch.setenv("FEDFACTOR_TEST_STATUS", str(trial.coordinator.folder / "status.json"))
        policy = {"minimum": 2, "absent": 1, "deadline": PATIENCE}
        real.everybody_joins(trial, files, real.terms("PooledNMF", rounds, policy, tol=0.0))
    trial.coordinator.start(again=True, sure=True)
    status = trial.coordinator.wait(PATIENCE)
    assert status["state"] == "finished", status
    rejected = json.loads((trial.coordinator.folder / "result" / "run.json").read_bytes())["rejected"]
    assert rejected["duplicate south"] > 0
    assert rejected["stale west"] > 0
    came = [entry["participants"] for entry in real.history(trial)]
    assert came[0] == came[-1] == ["north", "south", "west"]
    assert came[1] == ["north", "south"]
    away = fedfactor.run(
        trial.terms.algorithm(), Federation({name: load_shard(file) for name, file in files.items()}), rounds=rounds,
        seed=trial.terms.content["run"]["seed"], engine=fedfactor.LocalEngine(workers=2),
        participation=lambda at, names: came[at.index],
    )  # fmt: skip
    assert real.largest_difference(real.factors(trial), away.factors) == 0.0
    assert unnamed(trial) == []  # of all the tests before this one, too: the folders are the same


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_nothing_calls_home(tmp_path):
    """No name is looked up and no address but this machine's is spoken to, in all of ``fedfactor federation try``."""

    def elsewhere(*command):
        trace = tmp_path / "trace"
        words = [
            "strace",
            "-f",
            "-qq",
            "--seccomp-bpf",
            "-e",
            "trace=connect,sendto,sendmsg,sendmmsg",
            "-o",
            str(trace),
        ]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FLWR")}
        done = subprocess.run(
            [*words, sys.executable, *command], capture_output=True, text=True, timeout=PATIENCE, check=False,
            env=environment,
        )  # fmt: skip
        spoken = [line for line in trace.read_text(errors="replace").splitlines() if "AF_INET" in line]
        assert spoken
        here = ('"127.0.0.1"', '"::1"')
        return done, [line for line in spoken if not any(h in line for h in here) or "htons(53)" in line]

    # A datagram socket that is tied to an address sends nothing, but a trace shows it: so would it show a look-up.
    tie = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    assert elsewhere("-c", tie)[1]
    done, lines = elsewhere("-m", "fedfactor", "federation", "try", str(tmp_path / "all"), "--rounds", "2")
    assert "finished after 2 rounds" in done.stdout, done.stdout + done.stderr
    assert not lines, lines[:5]
