"""What operators meet: nobody there, keys, certificates, clocks, a run started twice, a party that goes.

Real processes on this machine. Waits are for events, with deadlines that a busy machine keeps.
"""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from tests.command_line import CliRunner

pytest.importorskip("aiohttp")

from claims import _flower as real
from fedfactor.cli import app
from fedfactor.core.errors import DataError
from fedfactor.federation import certificates, keys, terms_writer
from fedfactor.federation.coordinator import Coordinator, UnsureError
from fedfactor.federation.results import client_status, server_status
from fedfactor.federation.trial import Trial
from tests.federation.named_files import unnamed

pytestmark = [pytest.mark.integration, pytest.mark.federation, pytest.mark.slow]
PATIENCE = 300.0
run = CliRunner().invoke


def wait_until(true, what, patience=PATIENCE):
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, what()
        time.sleep(0.2)


def said(trial, name):
    file = trial.folder(name) / "join.log"
    return file.read_text() if file.exists() else ""


def hears(trial, name, words):
    wait_until(lambda: words in said(trial, name), lambda: said(trial, name))


def present(trial):
    return server_status(trial.coordinator)["connected"]


@pytest.fixture
def trial(tmp_path):
    made = Trial(
        tmp_path / "all",
        real.write_rows(tmp_path),
        real.terms("PooledNMF", 200, {"minimum": 2, "absent": 5, "deadline": 200}, tol=0.0),
    )
    yield made
    made.__exit__(None, None, None)


def test_who_is_away_knows_it_and_a_run_is_not_lost_by_mistake_or_by_one_who_leaves(trial, tmp_path):
    place = trial.coordinator
    # Nobody serves: a party is told so, by the command that waits and by the one that looks.
    trial.join("north")
    hears(trial, "north", "NOT connected")
    assert "nothing listens at 127.0.0.1" in said(trial, "north")
    assert client_status(trial.folder("north"))["connection"].startswith("NOT connected since")
    trial.serve()
    hears(trial, "north", "Connected to 127.0.0.1")
    # Before any run, the coordinator sees who is connected.
    wait_until(lambda: present(trial) == ["north"], lambda: server_status(place))
    about = server_status(place)
    assert about["state"] == "not started"
    assert about["not_connected"] == ["south (never came)", "west (never came)"]
    looked = run(app, ["federation", "check", str(trial.toml), "--key", str(trial.root / "north.key"),
                       "--folder", str(trial.folder("north"))])  # fmt: skip
    assert looked.exit_code == 0, looked.output
    for words in ("the server knows it as north's", "serves these very terms", "s against the server's", "397 days"):
        assert words in " ".join(looked.output.split())
    for name in ("south", "west"):
        trial.join(name)
    place.start()
    with pytest.raises(DataError, match="A run goes on"):
        place.start()
    real.wait_for_round(trial, 2, PATIENCE)
    with pytest.raises(UnsureError, match="ends it and forgets"):
        place.start(again=True)
    refused = run(app, ["start", str(trial.toml), "--again"])
    assert refused.exit_code == 2
    assert "--yes" in refused.output
    first = place.status()["run"]
    place.start(again=True, sure=True)
    wait_until(lambda: place.status().get("run") not in (None, first), place.status)
    # One is killed and does not come back; the run goes on without it, and waits no 200 s for each round.
    real.wait_for_round(trial, 1, PATIENCE)
    real.kill_member(trial, "west")
    wait_until(lambda: place.status()["participants"] == ["north", "south"], place.status)
    wait_until(lambda: present(trial) == ["north", "south"], lambda: server_status(place))
    assert server_status(place)["not_connected"][0].startswith("west (last came 20")
    assert run(app, ["status", str(trial.toml)]).exit_code == 3  # somebody is away
    gone = run(app, ["federation", "remove", str(trial.toml), "west"])
    assert "under the same terms" in gone.output
    status = place.wait(PATIENCE)
    assert status["state"] == "finished", status
    record = json.loads((place.folder / "result" / "run.json").read_bytes())
    assert record["finished"] == ["north", "south"]
    waited = [entry["seconds"] for entry in record["history"] if "west" not in entry["participants"]]
    assert waited
    assert np.median(waited) < 60
    assert "Round 2 of 200" in said(trial, "north")
    # The party's own results are of this run alone.
    result = run(app, ["results", str(trial.folder("north")), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    mine = json.loads((tmp_path / "out" / "shared" / "run.json").read_bytes())
    assert mine["run"] == record["run"]
    assert mine["rounds"] == record["rounds"]
    # West is shut out, and hears it.
    west = trial.join("west")
    west.wait(PATIENCE)
    assert "does not know this key" in said(trial, "west")
    deeds = [line["deed"] for line in place.journal.lines()]
    ran = ["started", "run begun"]
    assert deeds == ["served", *ran, "abandoned", *ran, "key revoked", "removed", "run finished"]
    assert unnamed(trial) == []


def test_a_run_whose_party_does_not_come_back_is_ended_with_what_was_reached(trial, tmp_path):
    """The whole path: paused because a party is unavailable, told so, ended by ``fedfactor stop``, results there."""
    content = trial.terms.content
    policy = {**content["policy"], "minimum": 3, "dropouts": "wait", "deadline": 10, "absent": 1}
    trial.terms = terms_writer.save(trial.toml, {**content, "policy": policy})
    trial.coordinator = place = Coordinator(trial.toml)
    trial.serve()
    for name in trial.files:
        trial.join(name)
    place.start()
    real.wait_for_round(trial, 2, PATIENCE)
    real.kill_member(trial, "west")
    assert place.wait(PATIENCE)["state"] == "paused"
    looked = run(app, ["status", str(trial.toml)])
    assert looked.exit_code == 3
    assert "Start it again when west is connected" in " ".join(looked.output.split())
    about = server_status(place)
    assert (about["unavailable"], about["refusing"]) == (["west"], [])
    stopped = run(app, ["stop", str(trial.toml)])
    assert stopped.exit_code == 0, stopped.output
    ended = place.wait(PATIENCE)
    assert (ended["state"], ended["reason"]) == ("finished", "stopped")
    result = run(app, ["results", str(trial.toml), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out" / "shared" / "run.json").read_bytes())
    assert record["rounds"] == about["round"] >= 2
    assert record["finished"] == ["north", "south"]
    again = run(app, ["stop", str(trial.toml)])
    assert again.exit_code == 2
    assert "the last one is finished" in again.output


def test_keys_come_and_go_and_come_back_and_certificates_end(trial, tmp_path):
    content, place = dict(trial.terms.content), trial.coordinator
    keys.make_key(tmp_path / "west2.key", "west")
    other = {"key": keys.public_line(tmp_path / "west2.key.pub"), "sign": keys.signing_key(tmp_path / "west2.key.pub")}
    # Replaced, served twice, and the old key comes back: each time it starts.
    for west in (content["parties"]["west"], other, other, content["parties"]["west"]):
        terms_writer.save(trial.toml, {**content, "parties": {**content["parties"], "west": west}})
        served = Coordinator(trial.toml)
        served.serve()
        served.close()
    # A certificate that ends while it is shown: parties are told, and come back by themselves after it was renewed.
    certificates.make_server_certificate(place.folder, ["127.0.0.1"], days=25 / 86400)
    place.serve()
    wait_until(lambda: certificates.expires(place.folder / "server.pem").timestamp() < time.time(), str)
    trial.join("west")
    hears(trial, "west", "certificate has expired")
    assert "fedfactor federation certify" in said(trial, "west")
    place.close()
    certificates.make_server_certificate(place.folder, ["127.0.0.1"])
    place.serve()
    hears(trial, "west", "Connected to")
    place.close()


def test_faults_in_a_run_are_seen_and_leave_its_bits(tmp_path):
    """Three of those of ``claims/faults.py``, which has them all."""
    from claims import faults

    names = ("the cable is cut", "a party's state is cut off", "an upgrade in mid-run")
    world = faults.World(tmp_path, real.terms("PooledNMF", 100_000, {"deadline": 200, "absent": 200}, tol=0.0), False)
    try:
        found = faults.one_by_one(world, names)
        assert not [seen for seen in found.values() if isinstance(seen, str) and seen.startswith("FAILED")], found
        assert faults.same_bits(world) == 0.0
    finally:
        world.close()
