"""Small things that mislead an operator: wrong names, certificates out of their time, numbers and full stops."""

from __future__ import annotations

import datetime
import errno
import json

import pytest
import typer

pytest.importorskip("cryptography")

from claims import _flower as real
from fedfactor.cli import app
from fedfactor.cli.console import polite
from fedfactor.core.errors import DataError
from fedfactor.federation import certificates
from fedfactor.federation.preflight import check_coordinator
from fedfactor.federation.progress_lines import run_words
from fedfactor.federation.trial import Trial
from tests.command_line import CliRunner

run = CliRunner().invoke


@pytest.fixture
def place(tmp_path):
    made = Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 3)).coordinator
    made.prepare()
    return made


def test_the_status_of_a_file_that_does_not_exist_is_an_error(place):
    said = run(app, ["status", str(place.file.with_name("typo.toml"))])
    assert said.exit_code == 2
    assert "typo.toml does not exist" in said.output


def test_an_authority_that_has_ended_signs_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "AUTHORITY_DAYS", 2)
    certificates.make_authority(tmp_path, "study")
    made = certificates.make_server_certificate(tmp_path, ["127.0.0.1"])
    assert certificates.expires(made) <= certificates.now() + datetime.timedelta(days=2)  # not its own 397 days
    later = certificates.now() + datetime.timedelta(days=3)
    monkeypatch.setattr(certificates, "now", lambda: later)
    with pytest.raises(DataError, match=r"The authority .* ended on"):
        certificates.make_server_certificate(tmp_path, ["127.0.0.1"])


def test_a_certificate_that_is_not_valid_yet_is_found(place, monkeypatch):
    early = certificates.now() - datetime.timedelta(days=2)
    monkeypatch.setattr(certificates, "now", lambda: early)
    lines = {line.what: line for line in check_coordinator(place)}
    assert lines["certificate"].state == "wrong"
    assert "is not valid before" in lines["certificate"].found


def test_a_check_is_written_for_programs_too(place):
    said = run(app, ["federation", "check", str(place.file), "--json"])
    lines = {line["what"]: line for line in json.loads(said.output)}
    assert lines["certificate"]["state"] == "ok"
    assert set(lines["certificate"]) == {"what", "state", "found", "remedy"}
    assert said.exit_code == (3 if any(line["state"] == "wrong" for line in lines.values()) else 0)


def test_a_reason_that_ends_with_a_full_stop_gets_no_second_one():
    status = {"state": "paused", "run": "a1", "round": 3, "reason": "Start it again when south is connected."}
    assert run_words(status).endswith("is connected.")
    assert not run_words(status).endswith("..")


def test_a_check_with_a_bad_key_still_checks_the_rest(place, tmp_path):
    bad = tmp_path / "bad.key"
    for content in (None, "no key", ""):
        if content is not None:
            bad.write_text(content)
        said = run(app, ["federation", "check", str(place.file), "--key", str(bad), "--json"])
        assert said.exit_code == 3, said.output
        lines = {line["what"]: line["state"] for line in json.loads(said.output)}
        assert lines["files"] == "wrong"
        assert "server" in lines


def test_a_read_only_folder_is_explained():
    with pytest.raises(typer.Exit) as ended, polite():
        raise OSError(errno.EROFS, "Read-only file system", "north/witness.path")
    assert ended.value.exit_code == 75


@pytest.mark.parametrize(
    "words", [["federation", "versions"], ["plan"], ["results"], ["federation", "worth"], ["status"]]
)
def test_commands_with_numbers_write_json(words):
    said = run(app, [*words, "--help"], env={"COLUMNS": "200"})
    assert "--json" in said.output
