from __future__ import annotations

import numpy as np
import pytest

from claims import _flower as real
from fedfactor.cli import app
from fedfactor.core.errors import DataError
from fedfactor.federation import certificates, terms_writer
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.party import Member
from fedfactor.federation.preflight import check_coordinator, check_party
from fedfactor.federation.row_loading import prepare_rows
from fedfactor.federation.setup import words
from fedfactor.federation.terms import Terms, TermsError
from fedfactor.federation.trial import Trial
from tests.command_line import CliRunner

pytest.importorskip("aiohttp")
run = CliRunner().invoke
NOWHERE = "a" * 64 + ".invalid"
"""A name that no DNS can hold, so that none is asked."""


@pytest.fixture
def trial(tmp_path):
    return Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 3))


def by_name(lines):
    return {line.what: line for line in lines}


@pytest.mark.slow
def test_a_party_that_cannot_start_reads_why(trial, tmp_path):
    member = Member(trial.toml, trial.root / "north.key", tmp_path / "north")
    (trial.root / "north.key").chmod(0o644)
    found = by_name(check_party(member, trial.files["north"]))
    assert found["key file"].state == "wrong"
    assert found["key file"].remedy.startswith("chmod 600")
    assert "nothing listens" in found["server"].found
    assert "fedfactor serve" in found["server"].remedy
    assert found["terms"].found.startswith(f"fingerprint {trial.terms.fingerprint[:16]}")
    assert found["rows"].state == "note"
    assert "no ranges are declared" in found["rows"].found
    assert {"disk", "memory", "address"} <= set(found)
    command = ["federation", "check", str(trial.toml), "--key", str(trial.root / "north.key")]
    said = run(app, command)
    assert said.exit_code == 3
    assert "WRONG" in said.output


@pytest.mark.slow
def test_the_coordinator_reads_about_its_certificate_and_port(trial):
    found = by_name(check_coordinator(trial.coordinator))
    assert (found["certificate"].state, found["port"].state) == ("ok", "note")
    certificates.make_server_certificate(trial.coordinator.folder, ["127.0.0.1"], days=3.5)
    assert "fedfactor federation certify" in by_name(check_coordinator(trial.coordinator))["certificate"].remedy
    server = {**trial.terms.content["server"], "address": f"{NOWHERE}:8000"}
    terms_writer.save(trial.toml, {**trial.terms.content, "server": server})
    found = by_name(check_coordinator(Coordinator(trial.toml)))
    assert found["address"].state == "wrong"
    assert f"not made out for {NOWHERE}" in found["certificate"].found
    (trial.coordinator.folder / "server.key").chmod(0o640)
    assert "chmod 600" in by_name(check_coordinator(trial.coordinator))["key file"].remedy


@pytest.mark.slow
def test_other_units_are_found_at_the_party_that_has_them(trial, tmp_path):
    table = tmp_path / "units.csv"
    table.write_text("column,low,high,unit\nfeature 0,0,30,mmol/l\nfeature 3,,50,\n")
    said = run(app, ["federation", "units", str(trial.toml), str(table)])
    assert said.exit_code == 0, said.output
    terms = Terms.read(trial.toml)
    assert terms.fingerprint != trial.terms.fingerprint
    assert "feature 0 0…30 mmol/l" in words(terms)
    assert "feature 11" in words(terms)
    prepare_rows(trial.files["north"], terms, "north")
    kept = np.load(trial.files["south"])
    factors = np.where(np.isin(np.arange(12), (0, 3)), 884.0, 1.0)
    np.savez(tmp_path / "south.npz", X=kept["X"] * factors, features=kept["features"])
    with pytest.raises(
        DataError, match=r"in 2 of 2 columns.*'feature 0': nine tenths .* declared is 0 to 30 mmol/l; 'feature 3':"
    ):
        prepare_rows(tmp_path / "south.npz", terms, "south")
    with pytest.raises(TermsError, match="'hb', 'na' are not among the agreed columns"):
        Terms.of({**terms.content, "units": {"hb": {"low": 1.0}, "na": {"low": 1.0}}})
    with pytest.raises(TermsError, match="low below high"):
        Terms.of({**terms.content, "units": {"feature 0": {"low": 3.0, "high": 1.0}}})
