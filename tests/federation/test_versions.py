"""The next version of a model: it starts at the last one, with whoever is in the federation by then."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.command_line import CliRunner

pytest.importorskip("cryptography")

import fedfactor
from claims import _flower as real
from fedfactor.cli import app
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError, FedfactorError
from fedfactor.core.pytree import freeze
from fedfactor.core.wire import fingerprint_of, from_bytes
from fedfactor.federation import keys
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.model_versions import put_start, versions
from fedfactor.federation.party import Member
from fedfactor.federation.removal import check_certificate
from fedfactor.federation.setup import words
from fedfactor.federation.terms import Terms, TermsError
from fedfactor.federation.trial import Trial
from fedfactor.io.read import load_shard
from fedfactor.io.result_folder import read_components
from fedfactor.network.client import REFUSAL, RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.message_format import Head, read_head, seal
from fedfactor.network.server import Server
from fedfactor.nmf.pooled.warm_start import Begin
from tests.federation.named_files import unnamed
from tests.network.in_process import InProcessTransport

run = CliRunner().invoke
PARTIES = ("east", "north", "south", "west")


def write_rows(folder):
    """Write rows of four parties with patterns in common."""
    rng = np.random.default_rng(0)
    V, files = rng.gamma(0.6, 1.0, (3, 12)), {}
    for name in PARTIES:
        files[name] = folder / f"{name}.npz"
        X = rng.gamma(0.5, 1.0, (40, 3)) @ V + 0.05 * rng.random((40, 12))
        np.savez(files[name], X=X, features=[f"feature {j}" for j in range(12)])
    return files


def runs_once(trial):
    """Run a version in this process, with the parties that the file names."""
    place = Coordinator(trial.toml)
    post = {}
    for name in place.terms.names:
        member = Member(trial.toml, trial.root / f"{name}.key", trial.folder(name))
        post[name] = RemoteClient(member.sign_up(trial.files[name], accept_changes=True, confirmed=True))
    if (place.folder / "result" / "run.json").exists():
        place.forget()
    place.prepare()
    put_start(place.terms, place.folder)
    return Server(place.folder, place.terms.agreement(), place.terms.policy(), InProcessTransport(post)).run()


def local(trial, files, V):
    """Run the same on the local engine, from the same start."""
    method = fedfactor.algorithms.PooledNMF(3, tol=0.0, begin=Begin(freeze(V)))
    owners = Federation({name: load_shard(file) for name, file in files.items()})
    told = trial.terms.content["run"]
    engine = fedfactor.LocalEngine(workers=2)
    return fedfactor.run(method, owners, rounds=told["rounds"], seed=told["seed"], engine=engine)


@pytest.mark.slow
def test_a_fourth_hospital_takes_part_in_the_next_version_which_starts_at_the_last(tmp_path):
    files = write_rows(tmp_path)
    three = {name: files[name] for name in PARTIES if name != "east"}
    trial = Trial(tmp_path / "all", three, real.terms("PooledNMF", 6, tol=0.0))
    said = run(app, ["federation", "next", str(trial.toml)])
    assert "no finished run" in said.output
    first = runs_once(trial)
    keys.make_key(trial.root / "east.key", "east")
    trial.files["east"] = files["east"]
    assert run(app, ["federation", "add", str(trial.toml), "east", str(trial.root / "east.key.pub")]).exit_code == 0
    said = run(app, ["federation", "next", str(trial.toml)])
    assert said.exit_code == 0, said.output
    trial.terms = Terms.read(trial.toml)
    folder = trial.coordinator.folder
    assert trial.terms.start == versions(folder)[0].components == fingerprint_of(first.down.V)
    assert f"Starts at    the components {trial.terms.start}" in words(trial.terms)
    second = runs_once(trial)
    wanted = local(trial, files, first.down.V)
    for name in PARTIES:
        found = from_bytes((trial.folder(name) / "result" / "factors.safetensors").read_bytes())["factors"]
        np.testing.assert_array_equal(found.V, wanted.factors[name].V)
        np.testing.assert_array_equal(found.U, wanted.factors[name].U)
    began, ended = (outcome.history[i].metrics["relative_error"] for outcome, i in ((second, 0), (first, -1)))
    assert began < 1.3 * ended  # with the rows of one who was not there before
    for where, party in ((trial.toml, "c"), (trial.folder("north"), "p")):
        assert run(app, ["results", str(where), "-o", str(tmp_path / party)]).exit_code == 0
        about = json.loads((tmp_path / party / "shared" / "run.json").read_bytes())["lineage"]
        assert about["parents"] == [trial.terms.start]
        assert about["parties"] == list(PARTIES)
        assert fingerprint_of(read_components(tmp_path / party)[0]) == versions(folder)[1].components
    # In a process of its own, as people ask: nothing there has imported the algorithm before.
    command = [sys.executable, "-m", "fedfactor", "federation", "versions", str(trial.toml)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"begun at {trial.terms.start}" in listed
    assert listed.count("run ") == 2
    cosines = listed.partition("found here: ")[2].splitlines()[0].split(", ")
    assert len(cosines) == 3
    assert all(0.9 < float(each) <= 1.0 for each in cosines)  # one more hospital, the same patterns
    with pytest.raises(DataError, match="No version"):
        put_start(trial.terms, tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"run": {"start": "the last one"}}, "no fingerprint"),
        ({"privacy": {"protect": "dp", "epsilon": 1.0, "row_bound": 5.0, "rows": 160.0}}, "would not count"),
        ({"algorithm": {"name": "FNMF"}}, "FNMF cannot start"),
        ({"run": {"start": f"sha256:{'0' * 64}", "payload": "float16"}}, "would round"),
    ],
)
def test_a_start_that_cannot_be_is_refused(changes, said):
    start = {"run": {"start": f"sha256:{'0' * 64}"}}
    with pytest.raises(TermsError, match=said):
        Terms.of({**start, **changes})
    assert "start" not in Terms.of({}).content["run"]  # terms without one keep their fingerprint


@pytest.mark.slow
def test_a_party_answers_only_the_start_that_was_agreed_on(tmp_path):
    files = write_rows(tmp_path)
    trial = Trial(tmp_path / "all", files, real.terms("PooledNMF", 3, tol=0.0))
    first = runs_once(trial)
    assert run(app, ["federation", "next", str(trial.toml)]).exit_code == 0
    second = runs_once(trial)  # at the agreed components all of them answer
    assert second.finished == PARTIES
    north = ClientFolder(trial.folder("north"))
    kind = type(first.down)
    for number, V in enumerate((first.down.V[::-1], first.down.V)):
        head = Head("step", f"{number:016x}", 0, "north", north.agreement.terms, participants=PARTIES)
        told = read_head(RemoteClient(north).answer(seal(head, kind(np.ascontiguousarray(V)))))
        assert told.kind == ("refusal", "step")[number]
        assert told.reason == (REFUSAL, "")[number]
    assert "other components than the agreed ones" in [s for s in north.sent() if s["kind"] == "refusal"][-1]["reason"]
    content = Terms.read(trial.toml).content
    float32 = Terms.of({**content, "run": {**content["run"], "dtype": "float32"}})
    with pytest.raises(DataError, match="Agree on float64"):
        put_start(float32, trial.coordinator.folder)


@pytest.mark.slow
def test_a_removal_with_refit_starts_at_the_last_components_and_certifies_what_was_done(tmp_path):
    trial = Trial(tmp_path / "all", write_rows(tmp_path), real.terms("PooledNMF", 20, tol=0.0))
    first = runs_once(trial)
    V = versions(trial.coordinator.folder)[0].V
    note = tmp_path / "west.json"
    said = run(app, ["federation", "remove", str(trial.toml), "west", "--refit", "--certificate", str(note)])
    assert said.exit_code == 0, said.output
    after = Terms.read(trial.toml)
    assert after.names == ("east", "north", "south")
    assert after.start == fingerprint_of(V)
    second = runs_once(trial)
    assert second.finished == ("east", "north", "south")
    pem = trial.coordinator.folder / "server.pem"
    statement = check_certificate(note, pem)
    assert statement["party"] == "west"
    assert statement["runs_with_its_rows"] == [first.run]
    assert statement["components_with_its_rows"] == [fingerprint_of(V)]
    assert (statement["terms_before"], statement["terms_after"]) == (trial.terms.fingerprint, after.fingerprint)
    assert any("each upload of this party" in line for line in statement["cannot_be_unsent"])
    note.write_text(note.read_text().replace('"west"', '"east"'))
    with pytest.raises(FedfactorError, match="not signed by"):
        check_certificate(note, pem)


def test_a_refit_that_shows_what_the_leaving_party_sent_needs_the_consent_of_the_terms(tmp_path):
    files = write_rows(tmp_path)
    changes = real.terms("PooledNMF", 3, tol=0.0)
    changes["privacy"] |= {"protect": "secure-sum", "allow": ["small-client"]}
    trial = Trial(tmp_path / "all", files, changes)
    runs_once(trial)
    before = trial.toml.read_bytes()
    said = run(app, ["federation", "remove", str(trial.toml), "west", "--refit"])
    assert said.exit_code == 2
    assert "differ by what the leaving party sent" in " ".join(said.output.split())
    assert trial.toml.read_bytes() == before
    # The same in two steps: the party leaves by a new agreement, and the next run is to start at the sums with it.
    assert run(app, ["federation", "remove", str(trial.toml), "west"]).exit_code == 0
    assert run(app, ["federation", "next", str(trial.toml)]).exit_code == 2
    agreed = tmp_path / "agreed"
    agreed.mkdir()
    changes["privacy"] |= {"allow": ["removal", "small-client"]}
    trial = Trial(agreed / "all", write_rows(agreed), changes)
    runs_once(trial)
    assert run(app, ["federation", "remove", str(trial.toml), "west", "--refit"]).exit_code == 0


@pytest.mark.integration
@pytest.mark.federation
@pytest.mark.slow
def test_the_others_go_on_after_one_left_a_secure_sum_by_a_new_agreement(tmp_path):
    pytest.importorskip("aiohttp")
    files = write_rows(tmp_path)
    changes = real.terms("PooledNMF", 3, {"deadline": 400, "gather": 400}, tol=0.0)
    changes["privacy"] |= {"protect": "secure-sum", "allow": ["removal", "small-client"]}
    with Trial(tmp_path / "all", files, changes) as trial:
        place = trial.coordinator
        trial.join_together(PARTIES)
        place.start()
        assert place.wait(400)["state"] == "finished"
        V = versions(place.folder)[0].V
        said = run(app, ["federation", "remove", str(trial.toml), "west"])
        assert "new agreement" in said.output
        assert run(app, ["federation", "next", str(trial.toml)]).exit_code == 0
        trial.terms = place.terms = Terms.read(trial.toml)
        assert trial.terms.names == ("east", "north", "south")
        child = trial.members.pop(PARTIES[0])
        real.kill_family(child.pid)
        trial.end_server()
        trial.serve()
        for name in trial.terms.names:
            trial.join(name, "--accept-changes")
        place.start(again=True)
        status = place.wait(400)
        assert status["state"] == "finished", status
        left = trial.files.pop("west")
        wanted = local(trial, trial.files, V)
        assert real.largest_difference(real.factors(trial), wanted.factors) < 1e-5
        now = versions(place.folder)[-1]
        assert now.parents == (fingerprint_of(V),)
        assert now.parties == ("east", "north", "south")
        deeds = [line["deed"] for line in place.journal.lines()]
        ran = ["served", "started", "run begun", "run finished"]
        assert deeds == [*ran, "key revoked", "removed", "next version agreed", *ran]
        trial.files["west"] = left  # its folder is there still
        assert unnamed(trial) == []
