from __future__ import annotations

import contextlib
import json
import os
import shutil
import time

import pytest

from tests.command_line import CliRunner

pytest.importorskip("cryptography")

from claims import _flower as real
from fedfactor.cli import app
from fedfactor.core.errors import DataError
from fedfactor.federation import terms_writer
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.data_deletion import forget_old, leave
from fedfactor.federation.party import Member
from fedfactor.federation.setup import words
from fedfactor.federation.terms import TermsError
from fedfactor.federation.trial import Trial
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.exchange import Arrival, NotEnough
from fedfactor.network.server import Server
from tests.network.in_process import InProcessTransport

run = CliRunner().invoke
pytestmark = pytest.mark.slow


@pytest.fixture
def trial(tmp_path):
    return Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 3))


def runs_once(trial):
    place = Coordinator(trial.toml)
    members = {name: Member(trial.toml, trial.root / f"{name}.key", trial.folder(name)) for name in trial.files}
    stores = {n: members[n].sign_up(file, accept_changes=True) for n, file in trial.files.items()}
    place.prepare()
    post = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()})
    outcome = Server(place.folder, place.terms.agreement(), place.terms.policy(), post).run()
    return place, stores["north"], outcome


def test_results_can_be_kept_and_read_after_the_rows_are_gone(trial, tmp_path):
    _, store, outcome = runs_once(trial)
    assert "results of all your runs" in run(app, ["federation", "forget", "--help"]).output.replace("\n", " ")
    said = run(app, ["federation", "forget", str(store.folder), "--keep-results", "--yes"])
    assert said.exit_code == 0, said.output
    assert "the results of" not in said.output
    assert not (store.folder / "data").exists()
    assert not (store.folder / "agreement.json").exists()
    said = run(app, ["results", str(store.folder), "-o", str(tmp_path / "out")])
    assert said.exit_code == 0, said.output
    assert json.loads((tmp_path / "out" / "shared" / "run.json").read_bytes())["run"] == outcome.run


def test_a_party_forgets_its_rows_factors_and_what_it_sent_but_not_that_it_did(trial):
    _, store, _ = runs_once(trial)
    sent = store.sent()
    said = run(app, ["federation", "forget", str(store.folder)], input="n\n")
    assert said.exit_code == 1
    assert "your factors, which are the results of all your runs" in said.output
    assert "--keep-results" in said.output
    assert (store.folder / "data").exists()
    said = run(app, ["federation", "forget", str(store.folder), "--only", "sent", "--yes"])
    assert said.exit_code == 0, said.output
    assert not (store.folder / "sent").exists()
    assert (store.folder / "data").exists()
    said = run(app, ["federation", "forget", str(store.folder), "--yes"])
    left = {path.name for path in store.folder.iterdir()}
    assert not left & {"data", "result", "runs", "state.safetensors", "rows.json", "sent"}
    assert {"sent.jsonl", "asked.jsonl", "signed.json", "forgotten.jsonl"} <= left
    assert store.sent() == sent
    # With the file it can come back, and what it answered still counts.
    again = Member(trial.toml, trial.root / "north.key", store.folder).sign_up(trial.files["north"], replace_data=True)
    assert again.left().split()[1:4] == ["9", "of", "10"]


def test_who_left_does_not_join_by_mistake(trial):
    _, store, _ = runs_once(trial)
    said = run(app, ["federation", "leave", str(store.folder)])
    assert "federation remove federation.toml north" in said.output
    assert f"federation forget {store.folder}" in said.output
    words = [
        "join",
        str(trial.toml),
        "--data",
        str(trial.files["north"]),
        "--key",
        str(trial.root / "north.key"),
        "--yes",
    ]
    said = run(app, [*words, "--folder", str(store.folder)])
    assert said.exit_code == 2
    assert "left the federation for good" in said.output
    with pytest.raises(DataError, match="no party's folder"):
        leave(trial.root)
    assert run(app, ["federation", "forget", str(store.folder), "--yes"]).exit_code == 0
    said = run(app, ["status", str(store.folder)])
    assert said.exit_code == 2
    assert "of a party that left at 2" in " ".join(said.output.split())


def test_first_and_last_day_and_how_long_things_are_kept_are_agreed_and_kept_to(trial):
    limits = {**trial.terms.content["limits"], "since": "2999-01-01", "keep": 30}
    terms = terms_writer.save(trial.toml, {**trial.terms.content, "limits": limits})
    assert "from 2999-01-01" in words(terms)
    assert "deleted after 30 days" in words(terms)
    with pytest.raises(NotEnough):
        runs_once(trial)
    refused = ClientFolder(trial.folder("north")).sent()[-1]
    assert "the first day that was agreed on is 2999-01-01" in refused["reason"]
    with pytest.raises(TermsError, match=r"\[limits\] since"):
        terms_writer.save(trial.toml, {**trial.terms.content, "limits": {**limits, "since": "soon"}})
    terms_writer.save(trial.toml, {**trial.terms.content, "limits": {**limits, "since": ""}})
    shutil.rmtree(trial.coordinator.folder / "checkpoint", ignore_errors=True)
    _, store, _ = runs_once(trial)
    assert forget_old(store.folder, 30) == []
    for path in (store.folder / "sent").iterdir():
        os.utime(path, (0, time.time() - 31 * 86400))
    assert len(forget_old(store.folder, 30)) >= 4
    assert (store.folder / "result").exists()
    assert forget_old(store.folder, 30, now=time.time() + 31 * 86400) == ["result"]


def test_versions_are_kept_with_where_they_come_from(trial, tmp_path):
    place, _, first = runs_once(trial)
    place.forget()
    _, store, second = runs_once(trial)
    assert list(store.results()) == [first.run, second.run]
    for where, folder in ((str(trial.toml), "c"), (str(store.folder), "p")):
        for number, outcome in enumerate((first, second), 1):
            out = tmp_path / f"{folder}{number}"
            assert run(app, ["results", where, "-o", str(out), "--run", outcome.run]).exit_code == 0
            about = json.loads((out / "shared" / "run.json").read_bytes())["lineage"]
            assert (about["version"], about["run"]) == (number, outcome.run)
            assert about["earlier"] == [first.run][: number - 1]
            assert about["parties"] == ["north", "south", "west"]
    said = run(app, ["results", str(store.folder), "-o", str(tmp_path / "x"), "--run", "nothing"])
    assert f"It holds: {first.run}, {second.run}" in said.output


def test_a_fourth_hospital_has_its_own_u_at_once_from_the_published_v(trial, tmp_path):
    runs_once(trial)
    assert run(app, ["results", str(trial.toml), "-o", str(tmp_path / "published")]).exit_code == 0
    rows = real.write_rows(tmp_path / "all", seed=4)["south"]
    said = run(app, ["transform", str(tmp_path / "published"), str(rows), "-o", str(tmp_path / "u.npy")])
    assert said.exit_code == 0, said.output
    assert (tmp_path / "u.npy").exists()


def test_results_asked_for_in_mid_run_name_the_run_its_rounds_and_its_terms(trial, tmp_path):
    place = Coordinator(trial.toml)
    members = {name: Member(trial.toml, trial.root / f"{name}.key", trial.folder(name)) for name in trial.files}
    clerks = {name: RemoteClient(members[name].sign_up(file)) for name, file in trial.files.items()}
    place.prepare()

    def breaks_off(stop):
        letters = []

        def tamper(name, answer):
            letters.append(name)
            if stop and len(letters) > 6:  # in the third round
                raise ConnectionError("the line is cut")
            return [Arrival(name, answer)]

        server = Server(place.folder, place.terms.agreement(), place.terms.policy(), InProcessTransport(clerks, tamper))
        with contextlib.suppress(ConnectionError):
            server.run()
        return server.run_id

    def asked(where, name):
        return " ".join(run(app, ["results", str(where), "-o", str(tmp_path / name)]).output.split())

    broken, terms = breaks_off(True), f"terms {place.terms.fingerprint[:16]}"
    for where, rounds in ((trial.toml, 2), (trial.folder("north"), 3)):
        assert f"holds no result yet. Run {broken} has not ended: round {rounds} of 3, {terms}" in asked(where, "none")
    whole = breaks_off(False)
    assert whole == broken
    place.forget()
    later = breaks_off(True)
    for number, where in enumerate((trial.toml, trial.folder("north"))):
        said = asked(where, f"out{number}")
        assert f"Run {whole}: 3 rounds, {terms}." in said
        assert f"Run {later} has not ended: round {2 + number} of 3, {terms}; this is the last that did." in said
