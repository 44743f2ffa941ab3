"""One page for an ethics board, from terms, books and an audit."""

from __future__ import annotations

import copy
import json
import re
from types import SimpleNamespace

import pytest

from fedfactor.cli import app
from fedfactor.cli.dossier import OPEN, _of_other_terms
from fedfactor.federation import keys, terms_writer, vouching
from fedfactor.federation.fingerprint_words import terms_words
from fedfactor.federation.terms import DEFAULTS, features_hash
from fedfactor.network.coordinator_journal import Journal
from fedfactor.privacy.ledger import Entry, Ledger
from tests.command_line import CliRunner

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def terms(tmp_path):
    made = copy.deepcopy(DEFAULTS)
    made["federation"] |= {"name": "Three <hospitals>", "purpose": "patterns of \x1b[31mlaboratory values"}
    made["privacy"]["protect"] = "secure-sum"
    made["features"] |= {"names": ["a", "b", "c", "d", "e", "f"]}
    made["features"]["sha256"] = features_hash(made["features"]["names"])
    made["parties"] = {}
    for name in ("north", "south", "west"):
        keys.make_key(tmp_path / f"{name}.key", name)
        made["parties"][name] = vouching.read_public(tmp_path / f"{name}.key.pub")
    return terms_writer.save(tmp_path / "federation.toml", made)


def audited(folder, verdict="consistent", algorithm="PooledNMF", privacy="secure-sum", **about):
    about = {"algorithm": algorithm, "privacy": [privacy], **about}
    folder.mkdir()
    findings = [{"attack": "rows from the sums", "verdict": verdict, "figures": {}}]
    (folder / "audit.json").write_text(json.dumps({"verdict": verdict, "about": about, "findings": findings}))
    return folder


@pytest.mark.slow
def test_it_says_who_learns_what_and_that_nothing_was_examined(tmp_path, terms):
    result = call("federation", "dossier", tmp_path / "federation.toml", "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page.html").read_text()
    assert "Audit: Not tested" in page
    assert "ε is infinite" in page
    assert "A lying coordinator" in page
    assert terms_words(terms.fingerprint) in page
    assert "<hospitals>" not in page
    assert "\x1b" not in page


@pytest.mark.slow
def test_it_has_the_books_and_the_audit(tmp_path, terms):
    ledger = Ledger(tmp_path / "north.jsonl", epsilon=2.0, delta=1e-5, unit="row")
    ledger.debit(Entry("run", 0, 10.0, "row"))
    call("federation", "dossier", tmp_path / "federation.toml", "-o", tmp_path / "page.html", "--ledger",
         tmp_path / "north.jsonl", "--audit", audited(tmp_path / "audit"))  # fmt: skip
    page = (tmp_path / "page.html").read_text()
    assert f"ε = {ledger.epsilon():.4g} of 2" in page
    assert "Audit: Attack did not succeed" in page
    assert "rows from the sums" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [{"algorithm": "FNMF"}, {"privacy": "none"}, {"privacy": "DP(...)"}, {"rounds": 1}],
    ids=lambda other: next(iter(other)),
)
def test_an_audit_of_something_else_is_told(tmp_path, terms, other):
    call("federation", "dossier", tmp_path / "federation.toml", "-o", tmp_path / "page.html", "--audit",
         audited(tmp_path / "audit", **other))  # fmt: skip
    page = (tmp_path / "page.html").read_text()
    assert ": the audit is of" in page
    assert "Audit: Not tested" in page


@pytest.mark.parametrize(
    ("privacy", "same"),
    [("DP(epsilon=2.0, delta=1e-06, unit='row')", True), ("DP(epsilon=0.5, delta=1e-06, unit='row')", False),
     ("DP(epsilon=2.0, delta=0.001, unit='row')", False), ("DP(epsilon=2.0, delta=1e-06, unit='client')", False)],
)  # fmt: skip
def test_an_audit_of_another_budget_is_told(terms, privacy, same):
    content = copy.deepcopy(dict(terms.content))
    content["privacy"] |= {"protect": "dp", "epsilon": 2, "delta": 1e-6, "unit": "row"}
    report = {"about": {"algorithm": "PooledNMF", "privacy": [privacy]}}
    assert (_of_other_terms(SimpleNamespace(content=content), report) == []) is same


def test_what_is_not_there_is_told(tmp_path, terms):
    for option in ("--ledger", "--audit"):
        result = call("federation", "dossier", tmp_path / "federation.toml", option, tmp_path / "none.json")
        assert result.exit_code == 2
        assert "none.json" in result.output


@pytest.mark.slow
def test_the_record_of_processing_has_stated_agreed_and_open_fields(tmp_path, terms):
    Journal(tmp_path / "server").write("run begun", run="r1", round=0)
    Journal(tmp_path / "server").write("run finished", run="r1", round=20, reason="")
    record = tmp_path / "record.toml"
    record.write_text('controller = "Hospital <North>"\nlegal_basis = "Article 9(2)(j) GDPR"\n')
    page = tmp_path / "page.html"
    result = call("federation", "dossier", tmp_path / "federation.toml", "-o", page, "--record", record)
    assert result.exit_code == 0, result.output
    rows = dict(re.findall(r"<tr><th>(.*?)</th><td>(.*?)</td></tr>", page.read_text()))
    assert rows["Controller, and joint controllers"] == "Hospital &lt;North&gt;"
    assert rows["Legal basis"] == "Article 9(2)(j) GDPR"
    assert "laboratory values" in rows["Purpose of the processing"]
    assert rows["Retention"] == OPEN
    assert "secure aggregation" in rows["Technical safeguards"]
    assert rows["Inference that a person took part"].startswith("Measure: none.")
    assert "run finished: r1, round 20" in page.read_text()


@pytest.mark.parametrize("text", ["controllers = 'x'", "controller = 3", "controller"])
def test_a_wrong_field_of_the_record_is_refused(tmp_path, terms, text):
    record = tmp_path / "record.toml"
    record.write_text(text)
    result = call("federation", "dossier", tmp_path / "federation.toml", "--record", record)
    assert result.exit_code == 2
    assert "record.toml" in result.output
