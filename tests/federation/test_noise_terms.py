"""Terms with noise: what they say, what they refuse, and a party's own books."""

from __future__ import annotations

import json

import numpy as np
import pytest

from claims import _flower as real
from fedfactor.cli import app
from fedfactor.cli.report import write_report
from fedfactor.core.errors import DataError
from fedfactor.federation import terms_writer
from fedfactor.federation.party import Member
from fedfactor.federation.results import client_status, write_result
from fedfactor.federation.setup import words
from fedfactor.federation.terms import TermsError
from fedfactor.federation.trial import Trial
from fedfactor.network.client import RemoteClient
from fedfactor.network.server import Server
from fedfactor.privacy.ledger import BudgetError, Ledger
from tests.command_line import CliRunner
from tests.federation.named_files import unnamed
from tests.network.in_process import InProcessTransport

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
ROWS = {"protect": "dp", "epsilon": 1.0, "row_bound": 5.0, "rows": 135.0, "minimum_rows": 5, "report_error": False}


def federation(tmp_path, algorithm="PooledNMF", privacy=ROWS, settings=(), binary=False, **more):
    changes = real.terms(algorithm, 3, **dict(settings))
    return Trial(tmp_path / "all", real.write_rows(tmp_path, binary=binary), {**changes, "privacy": privacy, **more})


def sign_up(trial, name="north", **more):
    member = Member(trial.toml, trial.root / f"{name}.key", trial.folder(name))
    return member.sign_up(trial.files[name], confirmed=True, **more)


def test_noise_is_the_same_at_every_party_and_at_the_server(tmp_path):
    trial = federation(tmp_path)
    here, there = trial.terms.agreement("north"), trial.terms.agreement()
    assert here.noise == there.noise
    assert here.channel().links == there.channel().links
    assert here.make().row_clip == 5.0
    assert here.make().tol == 0.0
    assert not here.report_score


@pytest.mark.slow
def test_the_terms_say_what_the_noise_promises(tmp_path):
    said = words(federation(tmp_path).terms)
    assert "ε = 1, δ = 1e-05 for each row, in one run of all its rounds" in said
    assert "unless more than 1 parties reveal their noise to the server" in said
    assert "Rare columns" not in said
    assert "how many of your rows fill each column" not in said


def test_terms_without_noise_keep_their_fingerprint_and_know_none_of_its_entries(tmp_path):
    trial = federation(tmp_path, privacy={"protect": "secure-sum", "minimum_rows": 5, "allow": ["small-client"]})
    assert "epsilon" not in trial.terms.content["privacy"]
    with pytest.raises(TermsError, match="no entry 'epsilon'"):
        terms_writer.save(trial.toml, {**trial.terms.content, "privacy": {"epsilon": 1.0}})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": 0.0}, "0 < epsilon"),
        ({"epsilon": "much"}, "must be like"),
        ({"delta": 0.05}, "is no promise"),
        ({"unit": "person"}, "is not known"),
        ({"rows": 0.0}, "needs row_bound and rows"),
        ({"unit": "client"}, "clip bounds whole uploads"),
        ({"unit": "subject"}, "subject names whose rows"),
        ({"colluding": 3}, "no client is left whose noise counts"),
        ({"cap": 0, "unit": "subject", "subject": "id"}, "at least 1"),
        ({"links": [{"link": "Clip", "norm": 1.0}]}, "leave links out"),
    ],
)
def test_noise_that_could_not_protect_is_refused(tmp_path, changes, said):
    with pytest.raises(TermsError, match=said):
        federation(tmp_path, privacy={**ROWS, **changes}).terms.agreement()


CLIENT = {"protect": "dp", "epsilon": 1.0, "unit": "client", "clip": 1.0, "minimum_rows": 5}


@pytest.mark.parametrize(
    ("algorithm", "privacy", "settings", "more", "said"),
    [
        ("PooledNMF", ROWS, {"loss": "kullback-leibler"}, {}, "only plain squared loss"),
        ("PooledNMF", ROWS, {}, {"preprocess": {"steps": ["tf-idf"]}}, "no noise covers"),
        ("PooledBMF", ROWS, {"solver": "counts"}, {}, "proximal"),
        ("PooledCF", ROWS, {}, {"preprocess": {"missing_values": "unstored"}}, "no bound on what one row"),
        ("FedSPLIT", CLIENT, {"joint": "sum"}, {"preprocess": {"missing_values": "unstored"}}, "does not bear noise"),
        ("FNMF", CLIENT, {}, {}, "must see each"),
    ],
)
def test_what_noise_cannot_protect_is_refused_with_the_reason(tmp_path, algorithm, privacy, settings, more, said):
    with pytest.raises(Exception, match=said):
        federation(tmp_path, algorithm, privacy, settings, **more).terms.agreement("north")


@pytest.mark.parametrize(
    ("algorithm", "privacy", "settings", "binary"),
    [
        ("PooledNMF", ROWS, {}, False),
        ("PooledNMF", CLIENT, {}, False),
        ("PooledNMF", CLIENT, {"loss": "kullback-leibler"}, False),
        ("PooledBMF", ROWS, {"solver": "proximal"}, True),
    ],
)
def test_what_runs_with_noise_states_its_cost(tmp_path, algorithm, privacy, settings, binary):
    made = federation(tmp_path, algorithm, privacy, settings, binary).terms.agreement("north")
    assert made.channel().report(3)["epsilon"] == pytest.approx(1.0, rel=1e-3)


def test_books_belong_to_the_rows_and_hold_the_budget(tmp_path):
    trial = federation(tmp_path)
    store = sign_up(trial, budget=2.5)
    assert (store.ledger.budget, store.ledger.rows) == (2.5, store.rows)
    assert "of 2.5 is spent" in store.spent()
    with pytest.raises(TermsError, match=r"more than the ε = 2.5.*--raise-budget"):
        sign_up(trial, budget=3.0)
    assert store.ledger.budget == 2.5
    again = sign_up(trial, budget=3.0, raise_budget=True)
    assert again.ledger.budget == 3.0


def test_what_was_spent_on_rows_that_were_replaced_stays_spent(tmp_path):
    trial = federation(tmp_path)
    first = sign_up(trial)
    trial.files["north"] = trial.files["south"]
    second = sign_up(trial, replace_data=True)
    assert first.rows != second.rows == second.ledger.rows
    assert second.ledger.path == first.ledger.path


def test_books_of_other_rows_are_refused_when_a_party_signs_up(tmp_path):
    trial = federation(tmp_path)
    Ledger(tmp_path / "patients.jsonl", epsilon=1.0).belong("other rows")
    with pytest.raises(BudgetError, match="books of other rows"):
        sign_up(trial, ledger=tmp_path / "patients.jsonl")


def test_a_party_with_more_rows_than_were_assumed_is_refused(tmp_path):
    trial = federation(tmp_path, privacy={**ROWS, "rows": 10.0})
    with pytest.raises(DataError, match="assume 10 of all parties"):
        sign_up(trial)


@pytest.mark.slow
def test_of_each_subject_only_the_agreed_rows_take_part(tmp_path):
    rng, files = np.random.default_rng(0), {}
    for name in real.PARTIES:
        files[name] = tmp_path / f"{name}.csv"
        lines = [f"p{i // 3}," + ",".join(f"{x:.3f}" for x in row) for i, row in enumerate(rng.random((30, 6)))]
        files[name].write_text("\n".join(["patient," + ",".join("abcdef"), *lines]) + "\n")
    privacy = {**ROWS, "unit": "subject", "subject": "patient", "cap": 2, "known_to": 2}
    changes = {**real.terms("PooledNMF", 3), "privacy": privacy}
    trial = Trial(tmp_path / "all", files, changes)
    store = sign_up(trial)
    np.testing.assert_array_equal(store.counted, np.tile([True, True, False], 10))
    noise = store.agreement.channel().links[0]
    assert noise.sensitivity == pytest.approx(4 * store.agreement.make().sensitivity(store.agreement.meta)[1])
    assert noise.touched == 2
    assert store.agreement.channel().books.entry.unit == "subject"
    assert "each subject named by patient (at most 2 of its rows, at 2 of the parties)" in words(trial.terms)


@pytest.mark.slow
def test_each_party_takes_home_what_its_own_books_say_of_the_run(tmp_path):
    trial = federation(tmp_path)
    post = InProcessTransport({name: RemoteClient(sign_up(trial, name)) for name in trial.files})
    trial.coordinator.prepare()
    place = trial.coordinator.folder
    Server(place, trial.terms.agreement(), trial.terms.policy(), post).run()
    write_result(trial.folder("south"), tmp_path / "out")
    told = json.loads((tmp_path / "out" / "shared" / "run.json").read_text())["privacy"]
    assert told["epsilon"] == pytest.approx(1.0, rel=1e-3) == told["data_set_epsilon"]
    assert (told["mode"], told["unit"], told["rows"]) == ("dp", "row", 135.0)
    assert "relative_error" not in json.loads((tmp_path / "out" / "shared" / "run.json").read_text())
    assert client_status(trial.folder("south"))["budget"].startswith("ε = 1 of 1 is spent")
    for where, folder in ((trial.folder("north"), "party"), (place, "everybody")):
        write_result(where, tmp_path / folder)
        page = write_report(tmp_path / folder).read_text(encoding="utf-8")
        assert ("This party sent" in page) == (folder == "party")
        assert ("All owners together sent" in page) == (folder == "everybody")
        assert "almost as likely without any one row: likelier or less likely by a factor of at most 2.7" in page
        assert ("By your own ledger your rows have cost ε = 1 in all runs" in page) == (folder == "party")
    assert unnamed(trial) == []


def test_a_ledger_is_for_terms_with_noise(tmp_path):
    trial = federation(tmp_path, privacy={"minimum_rows": 5})
    with pytest.raises(TermsError, match="these have none"):
        sign_up(trial, budget=1.0)


@pytest.mark.slow
def test_the_command_shows_the_noise(tmp_path):
    trial = federation(tmp_path)
    said = CliRunner().invoke(app, ["federation", "show", str(trial.toml)])
    assert said.exit_code == 0
    assert "Noise        ε = 1" in said.output
