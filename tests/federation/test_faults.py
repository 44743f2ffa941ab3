"""Faults of the table in the docs that need no processes: each happens for real, in folders and virtual time."""

from __future__ import annotations

import contextlib
import errno
import json
import resource
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.command_line import CliRunner

pytest.importorskip("cryptography")

from claims import _flower as real
from fedfactor import algorithms
from fedfactor.cli import app
from fedfactor.core.errors import DataError
from fedfactor.core.hash_chain import ChainError
from fedfactor.federation import certificates, keys, terms_writer
from fedfactor.federation.connectivity import moment
from fedfactor.federation.coordinator import REMOVED, Coordinator
from fedfactor.federation.features import write_names
from fedfactor.federation.party import Member, together
from fedfactor.federation.processes import ChildError, PassingError
from fedfactor.federation.terms import Terms
from fedfactor.federation.trial import Trial
from fedfactor.network.coordinator_journal import Journal
from fedfactor.network.exchange import Arrival, NotEnough
from fedfactor.network.message_format import read_head
from fedfactor.network.server import AbandonedError, Lock
from tests.network.in_process import Office

run = CliRunner().invoke
rng = np.random.default_rng(0)
X = rng.gamma(0.5, 1.0, (70, 4)) @ rng.gamma(0.6, 1.0, (4, 12))
OWNERS = {"north": X[:20], "south": X[20:40], "west": X[40:]}


@pytest.fixture
def trial(tmp_path):
    return Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 3))


def office(folder, rounds=4):
    return Office(folder, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=rounds)


def undisturbed(folder):
    made = office(folder)
    made.server().run()
    return made.factors("north").V


def dies(made, name, index):
    """Let a party's answer to a step be the moment of a fault; returns a list that is filled when it has come."""
    happened = []

    def tamper(who, answer):
        if who == name and read_head(answer).kind == "step" and read_head(answer).index == index and not happened:
            happened.append(1)
            made.post.here.clear()
            return []
        return [Arrival(who, answer)] if made.post.here else []

    made.post.tamper = tamper
    return happened


@pytest.mark.slow
def test_a_network_that_is_cut_for_an_hour_costs_time_and_no_bit(tmp_path):
    made = office(tmp_path / "a")
    happened = dies(made, "south", 2)
    with pytest.raises(NotEnough, match="no answer"):
        made.server(deadline=600.0, dropouts="wait").run()
    assert happened
    made.clock.sleep(3600.0)
    made.post.here = dict.fromkeys(OWNERS, "2")
    outcome = made.server(deadline=600.0, dropouts="wait").run()
    assert [len(record.participants) for record in outcome.history] == [3] * 4
    np.testing.assert_array_equal(made.factors("north").V, undisturbed(tmp_path / "b"))


@pytest.mark.slow
def test_a_server_that_moves_takes_its_run_along(tmp_path):
    made = office(tmp_path / "a")
    dies(made, "west", 1)
    with pytest.raises(NotEnough):
        made.server(dropouts="wait").run()
    shutil.move(tmp_path / "a" / "server", tmp_path / "elsewhere")
    made.post.here = dict.fromkeys(OWNERS, "2")
    shutil.move(tmp_path / "elsewhere", tmp_path / "a" / "server")
    made.server(dropouts="wait").run()
    np.testing.assert_array_equal(made.factors("north").V, undisturbed(tmp_path / "b"))


@pytest.mark.slow
def test_a_disk_that_takes_no_more_at_the_coordinator_loses_nothing(tmp_path):
    made = office(tmp_path / "a")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    full = []

    def tamper(who, answer):
        if who == "west" and read_head(answer).kind == "step" and read_head(answer).index == 2 and not full:
            full.append(1)
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))  # every larger file fails, as on a full disk
        return [Arrival(who, answer)]

    made.post.tamper = tamper
    try:
        with pytest.raises(OSError, match="too large"):
            made.server().run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert full
    outcome = made.server().run()
    assert len(outcome.history) == 4
    np.testing.assert_array_equal(made.factors("north").V, undisturbed(tmp_path / "b"))


@pytest.mark.slow
def test_a_party_restored_from_a_backup_of_rounds_ago_goes_on_and_nothing_is_counted_twice(tmp_path):
    made = office(tmp_path)
    kept = []

    def tamper(who, answer):
        head = read_head(answer)
        if who == "north" and head.kind == "step" and head.index == 0:
            shutil.copytree(tmp_path / "north", tmp_path / "backup")
        if who == "north" and head.kind == "step" and head.index == 2 and not kept:
            kept.append(1)
            for name in ("state.safetensors", "asked.jsonl", "asked.jsonl.head", "sent.jsonl"):
                shutil.copy(tmp_path / "backup" / name, tmp_path / "north" / name)
        return [Arrival(who, answer)]

    made.post.tamper = tamper
    outcome = made.server().run()
    assert kept
    assert outcome.finished == ("north", "south", "west")
    runs, rounds = made.clerks["north"].store.answered.so_far()
    assert len(runs) == 1
    assert len(rounds) <= 4


@pytest.mark.slow
def test_two_parties_that_swapped_keys_are_told_under_which_name_they_speak(trial):
    shutil.move(trial.root / "north.key", trial.root / "other.key")
    shutil.move(trial.root / "south.key", trial.root / "north.key")
    shutil.move(trial.root / "other.key", trial.root / "south.key")
    assert Member(trial.toml, trial.root / "north.key").name == "south"  # join asks: take part as south?
    said = run(app, ["join", str(trial.toml), "--data", str(trial.files["north"]), "--key",
                     str(trial.root / "north.key")], input="n\n")  # fmt: skip
    assert "Take part as south on these terms?" in said.output


def test_a_second_server_in_the_same_folder_is_refused(trial):
    trial.coordinator.prepare()
    trial.coordinator._alone()
    served = (trial.coordinator.folder / "agreement.json").read_bytes()
    content = trial.terms.content
    terms_writer.save(trial.toml, {**content, "run": {**content["run"], "rounds": 7}})
    with pytest.raises(PassingError, match="is served already"):
        Coordinator(trial.toml).serve()
    assert (trial.coordinator.folder / "agreement.json").read_bytes() == served  # which a running server reads
    trial.coordinator.close()
    assert not trial.coordinator.served


def test_a_server_without_room_ends_and_says_why(trial, monkeypatch):
    trial.coordinator.serve()
    try:
        trial.coordinator.check()
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10, 10, 2048))
        with pytest.raises(ChildError, match="only 2 kB are free"):
            trial.coordinator.check()
    finally:
        trial.coordinator.close()


def test_a_run_goes_on_while_its_process_holds_the_folder_whatever_the_clock_says(trial):
    place = trial.coordinator
    place.prepare()
    place._alone()
    status = {"state": "step 3", "time": time.time() - 3600.0, "round": 3, "rounds": 9}  # the clock was set back
    (place.folder / "status.json").write_text(json.dumps(status))
    assert not place.running
    with Lock(place.folder / "lock"):
        assert place.running
        with pytest.raises(DataError, match=r"A run goes on \(round 3 of 9\)"):
            place.start()
    place.close()


def test_a_port_that_is_taken_is_named_with_the_remedy(trial):
    place = trial.coordinator
    with socket.create_server(("127.0.0.1", place.port)):
        with pytest.raises(ChildError, match=f"cannot listen on 127.0.0.1:{place.port} .*--listen HOST:PORT"):
            place.serve()
        assert not place.served
    place.serve()
    assert place.ready
    place.close()


def test_a_journal_that_somebody_changed_is_noticed(trial):
    place = trial.coordinator
    place.journal.write("started", again=False)
    place.journal.write("stopped")
    file = place.folder / "journal.jsonl"
    file.write_text(file.read_text().replace("started", "stopped", 1))
    with pytest.raises(ChainError, match="was changed, or is damaged"):
        place.journal.lines()


def test_a_party_whose_disk_is_full_is_told_of_when_it_shares_a_process():
    def full():
        raise OSError(errno.ENOSPC, "No space left on device", "north/state")

    said = []
    with pytest.raises(OSError, match="No space left"):
        together([full], said.append)
    assert said == ["[Errno 28] No space left on device: 'north/state'"]


def test_summer_time_changes_nothing_that_is_said_or_kept(monkeypatch):
    said = []
    for zone in ("Europe/Berlin", "America/New_York", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        said.append([moment(seconds) for seconds in (1_774_745_999, 1_774_746_001)])  # around a change in Berlin
    monkeypatch.undo()
    time.tzset()
    assert said[0] == said[1] == said[2]
    assert said[0][0].endswith("UTC")


def test_what_is_agreed_on_is_in_the_journal(trial, tmp_path):
    names = write_names(tmp_path / "north.features.json", trial.terms.features)
    (tmp_path / "units.csv").write_text("column,low,high,unit\nfeature 0,0,30,mmol/l\n")
    for command in (["agree", names], ["units", tmp_path / "units.csv"]):
        said = run(app, ["federation", command[0], str(trial.toml), str(command[1])])
        assert said.exit_code == 0, said.output
    agreed, declared = trial.coordinator.journal.lines()
    assert (agreed["deed"], agreed["columns"], agreed["how"]) == ("columns agreed", 12, "same")
    assert (declared["deed"], declared["ranges"]) == ("units declared", 1)
    assert declared["terms"] == Terms.read(trial.toml).fingerprint != agreed["terms"]


@pytest.mark.parametrize(
    ("raised", "deeds"),
    [
        (None, ["run begun", "run finished"]),
        (NotEnough("north is away"), ["run begun", "run paused"]),
        (AbandonedError("another one"), ["run begun"]),
        (SystemExit(1), ["run begun", "run interrupted"]),
    ],
)
def test_how_a_run_ended_is_in_the_journal_in_the_words_of_its_status(tmp_path, raised, deeds):
    pytest.importorskip("aiohttp")
    from fedfactor.federation.serving import journalled

    owners = {name: np.random.default_rng(i).random((9, 4)) for i, name in enumerate(("a", "b"))}
    made = Office(tmp_path, algorithms.PooledNMF(2, tol=0.0), owners, rounds=2)
    server = made.server()
    if raised is not None:

        def tamper(name, answer):
            raise raised

        made.post.tamper = tamper
    with contextlib.nullcontext() if raised is None else pytest.raises(type(raised)):
        journalled(server)
    lines = Journal(server.folder).lines()
    assert [line["deed"] for line in lines] == deeds
    assert {line["run"] for line in lines} == {server.run_id}
    if raised is None:
        assert (lines[-1]["round"], lines[-1]["reason"]) == (2, "rounds")
    if deeds[-1] == "run interrupted":
        assert json.loads((server.folder / "status.json").read_bytes())["state"] == "interrupted"


def written_status(place, **about):
    raw = {"state": "step 3", "time": time.time(), "round": 3, "rounds": 9, "run": "a1"}
    (place.folder / "status.json").write_text(json.dumps({**raw, **about}))
    return run(app, ["status", str(place.file)]), run(app, ["status", str(place.file), "--json"])


def test_a_killed_server_and_a_stopped_one_leave_the_same_state(trial):
    place = trial.coordinator
    place.prepare()
    for raw in ("step 3", "interrupted"):  # killed before it could write anything, and stopped in order
        shown, told = written_status(place, state=raw)
        assert shown.exit_code == told.exit_code == 3
        about = json.loads(told.output)
        assert about["state"] == "interrupted"
        assert (about["round"], about["rounds"], about["served"]) == (3, 9, False)
        assert about["seconds_since"] < 60
        assert "fedfactor start" in about["advice"]


@pytest.mark.parametrize(
    ("who", "right", "wrong"),
    [
        ({"refusing": ["north"], "unavailable": []}, "starting again does not change that", "is connected"),
        ({"refusing": [], "unavailable": ["south"]}, "when south is connected", "refuse"),
    ],
)
def test_status_tells_a_party_that_refuses_from_one_that_is_unavailable(trial, who, right, wrong):
    place = trial.coordinator
    place.prepare()
    shown, told = written_status(place, state="paused", reason="step 3 got 2 answers", **who)
    assert shown.exit_code == 3
    about = json.loads(told.output)
    assert {name: about[name] for name in who} == who
    assert right in about["advice"]
    assert wrong not in about["advice"]
    assert right in " ".join(shown.output.split())


@pytest.mark.slow
def test_several_parties_are_let_in_at_once_and_one_that_was_removed_comes_back(trial, tmp_path):
    server = trial.coordinator.folder
    (server / REMOVED).write_text(json.dumps(["south", "west"]))
    keys = [str(trial.root / f"{name}.key.pub") for name in ("north", "west")]
    said = run(app, ["federation", "add", str(trial.toml), *keys])
    assert said.exit_code == 0, said.output
    assert said.output.count("in words") == 2
    assert trial.coordinator.removed() == ["south"]
    assert [line["deed"] for line in trial.coordinator.journal.lines()] == ["added", "added"]
    odd = run(app, ["federation", "add", str(trial.toml), "a.pub", "b.pub", "c"])
    assert "NAME.key.pub" in odd.output


def code_of(*words, **more):
    """Exit code of a command in a process of its own, as a service manager sees it."""
    command = [sys.executable, "-m", "fedfactor", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more).returncode


def test_exit_codes_tell_what_passes_from_what_a_person_decides(trial, tmp_path):
    place = trial.coordinator
    keys.make_key(tmp_path / "other.key", "other")
    join = ["join", trial.toml, "--data", trial.files["north"], "--key", tmp_path / "other.key", "--yes"]
    with socket.create_server(("127.0.0.1", place.port)):
        assert code_of("serve", trial.toml) == 75  # the port is taken: perhaps by a server that still ends
    place._alone()
    try:
        assert code_of("serve", trial.toml) == 75
    finally:
        place.close()
    assert code_of(*join) == 2  # the key is not in the terms
    certificates.make_server_certificate(place.folder, ["127.0.0.1"], days=1 / 86400)
    time.sleep(2.0)  # it has ended
    assert code_of("serve", trial.toml) == 2
    assert code_of("serve", tmp_path / "typo.toml") == 2
    place.prepare()
    assert code_of("status", trial.toml) == 3
    assert code_of("federation", "check", trial.toml) == 3
