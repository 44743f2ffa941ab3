"""A real SuperLink and three SuperNodes on this machine, over TLS, with registered keys."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedfactor.core.errors import ProtocolError
from fedfactor.federation import certificates, document, keys
from fedfactor.federation.trial import Trial
from prove import _flower as real

pytestmark = [pytest.mark.integration, pytest.mark.federation, pytest.mark.slow]


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    root = tmp_path_factory.mktemp("federation")
    files = real.write_rows(root)
    made = Trial(root / "all", files, real.terms("PooledNMF", 6, tol=0.0))
    with made:
        yield made


def join_and_read(trial, *words, patience=90.0):
    """Run a join that must fail, and return what it said."""
    command = [sys.executable, "-m", "fedfactor", "join", *map(str, words), "--yes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def test_killed_parties_and_servers_leave_no_trace_in_the_factors(trial):
    for name in trial.files:
        trial.join(name)
    trial.coordinator.start()
    assert real.wait_for_round(trial, 1)["round"] < 6
    real.kill_member(trial, "south")
    trial.join("south")
    real.wait_for_round(trial, 3)
    real.kill_server(trial)
    assert trial.coordinator.status()["round"] < 6
    trial.coordinator.serve()
    trial.coordinator.start()
    assert trial.coordinator.wait(300)["state"] == "finished"
    run = real.local(trial.files, trial)
    assert real.largest_difference(real.factors(trial), run.factors) == 0.0
    record = json.loads((trial.coordinator.folder / "result" / "run.json").read_bytes())
    assert record["relative_error"] == pytest.approx(run.relative_error, rel=1e-12)
    assert all(entry["bytes_up"] > 0 for entry in record["history"])


def test_a_changed_federation_toml_is_refused_by_those_who_signed_the_old_one(trial):
    from fedfactor.federation.server import Coordinator

    old = trial.toml.read_text()
    trial.coordinator.close()
    run = {**trial.terms.content["run"], "rounds": 2}
    policy = {**trial.terms.content["policy"], "deadline": 60}
    document.save(trial.toml, {**trial.terms.content, "run": run, "policy": policy})
    changed = Coordinator(trial.toml)
    try:
        changed.serve()
        changed.start(again=True)
        status = changed.wait(240)
    finally:
        changed.close()
        trial.toml.write_text(old)
    assert status["state"] == "paused"
    assert "not the one this party signed up for" in status["reason"]
    trial.coordinator.serve()


def test_other_features_are_refused(trial, tmp_path):
    other = tmp_path / "north.npz"
    np.savez(other, X=np.ones((40, 12)), features=[f"gene {j}" for j in range(12)])
    said = join_and_read(
        trial, trial.toml, "--data", other, "--key", trial.root / "north.key", "--folder", tmp_path / "n"
    )
    assert "does not fit the agreed features" in said
    assert "'feature 0'" in said


def test_an_unregistered_key_is_turned_away(trial, tmp_path):
    keys.make_key(tmp_path / "eve.key", "eve")
    said = join_and_read(trial, trial.toml, "--data", trial.files["north"], "--key", tmp_path / "eve.key")
    assert "lists no party with the key" in said
    # Eve writes herself into her own copy: now the server does not know her.
    content = {**trial.terms.content, "parties": {**trial.terms.content["parties"]}}
    content["parties"]["eve"] = {"key": keys.public_line(tmp_path / "eve.key.pub")}
    document.save(tmp_path / "federation.toml", content)
    said = join_and_read(
        trial, tmp_path / "federation.toml", "--data", trial.files["north"], "--key", tmp_path / "eve.key",
        "--folder", tmp_path / "eve", "--patience", "1",
    )  # fmt: skip
    assert "does not know this key" in said


def test_a_wrong_certificate_is_not_spoken_to(trial, tmp_path):
    other = certificates.make_authority(tmp_path / "other", "other")
    content = {**trial.terms.content, "server": {**trial.terms.content["server"], "certificate": other.read_text()}}
    document.save(tmp_path / "federation.toml", content)
    said = join_and_read(
        trial, tmp_path / "federation.toml", "--data", trial.files["north"], "--key", trial.root / "north.key",
        "--folder", tmp_path / "north",
    )  # fmt: skip
    assert "certificate is not the one that federation.toml names" in said


def test_control_is_for_this_machine_only(trial):
    """Other machines may not start runs: the gate tells them apart by address, so this one is asked as a stranger."""
    from fedfactor.engines.flower.link import Gate

    def admits(path, client, server="10.0.0.1"):
        return Gate._admits({"path": path, "client": (client, 1), "server": (server, 8000)})

    assert admits("/v1/fleet/pull-messages", "10.0.0.9")
    assert not admits("/v1/control/start-run", "10.0.0.9")
    assert not admits("/v1/runtime/acquire-task", "10.0.0.9")
    assert admits("/v1/control/start-run", "127.0.0.1")
    assert admits("/v1/control/start-run", "10.0.0.1")
    context = ssl.create_default_context(cafile=str(trial.coordinator.folder / "ca.pem"))
    with urllib.request.urlopen(
        f"https://127.0.0.1:{trial.coordinator.port}/health", context=context, timeout=20
    ) as page:
        assert page.status == 200


def test_long_requests_are_cut_off():
    import asyncio

    from fedfactor.engines.flower.link import BODY, Gate

    async def ask(headers, parts):
        said, read = [], []

        async def app(scope, receive, send):
            while (part := await receive()).get("more_body"):
                read.append(len(part["body"]))
            await send({"type": "http.response.start", "status": 200, "headers": []})

        queue = [{"type": "http.request", "body": body, "more_body": True} for body in parts]
        queue.append({"type": "http.request", "body": b"", "more_body": False})

        async def receive():
            return queue.pop(0)

        async def send(message):
            said.append(message)

        scope = {"type": "http", "path": "/v1/fleet/push-object", "client": ("10.0.0.9", 1), "server": ("10.0.0.1", 1)}
        await Gate(app)({**scope, "headers": headers}, receive, send)
        return [message["status"] for message in said if "status" in message], sum(read)

    assert asyncio.run(ask([(b"content-length", str(BODY + 1).encode())], []))[0] == [413]
    piece = b"x" * (8 << 20)
    status, read = asyncio.run(ask([], [piece] * 10))
    assert status == []
    assert read <= BODY
    assert asyncio.run(ask([], [piece] * 2)) == ([200], 16 << 20)


def test_plain_text_is_not_spoken(trial):
    with socket.create_connection(("127.0.0.1", trial.coordinator.port), timeout=20) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        line.settimeout(10)
        assert b"200" not in line.recv(64)


def test_records_that_are_no_letter_are_rejected():
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    from fedfactor.engines.flower.records import from_record, to_record

    assert from_record(to_record(b"abc")) == b"abc"
    array = Array(dtype="uint8", shape=(3,), stype="safetensors", data=b"abc")
    for content in (
        RecordDict(),
        RecordDict({"letter": ConfigRecord({"letter": b"abc"})}),
        RecordDict({"letter": ArrayRecord()}),
        RecordDict({"letter": ArrayRecord({"letter": Array(np.zeros(3))})}),
        RecordDict({"letter": ArrayRecord({"letter": array, "more": array})}),
        RecordDict({"letter": ArrayRecord({"letter": array}), "more": ArrayRecord({"letter": array})}),
        RecordDict({"other": ArrayRecord({"letter": array})}),
        None,
    ):
        with pytest.raises(ProtocolError):
            from_record(content)
    with pytest.raises(ProtocolError, match="2 can be right"):
        from_record(to_record(b"abc"), limit=2)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_nothing_calls_home(tmp_path):
    """No name is looked up and no address but this machine's is spoken to."""
    real.write_rows(tmp_path)
    trace = tmp_path / "trace"
    script = (
        "import sys, pathlib; from prove import _flower as real; from fedfactor.federation.trial import Trial\n"
        f"root = pathlib.Path({str(tmp_path)!r})\n"
        "files = {n: root / f'{n}.npz' for n in real.PARTIES}\n"
        "t = Trial(root / 'all', files, real.terms('PooledNMF', 1, tol=0.0))\n"
        "with t:\n"
        "    [t.join(n) for n in files]; t.coordinator.start(); print(t.coordinator.wait(300)['state'])\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FLWR")}
    command = ["strace", "-f", "-qq", "-e", "trace=connect,sendto", "-o", str(trace), sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert "finished" in done.stdout, done.stdout + done.stderr
    spoken = [line for line in trace.read_text(errors="replace").splitlines() if "AF_INET" in line]
    assert spoken
    elsewhere = [line for line in spoken if '"127.0.0.1"' not in line and '"::1"' not in line]
    assert not elsewhere, elsewhere[:5]
