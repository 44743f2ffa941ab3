"""The capacity calculator against runs in this process; the real ones are in ``claims/capacity.py``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from claims import capacity
from fedfactor.cli import app
from fedfactor.core.errors import DataError
from fedfactor.federation.capacity import plan
from fedfactor.federation.setup import found
from fedfactor.federation.terms import Terms
from fedfactor.network.client_storage import ClientFolder
from tests.command_line import CliRunner
from tests.federation.test_lifecycle import server
from tests.federation.test_noise_terms import federation, sign_up

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("protect", ["none", "secure-sum"])
@pytest.mark.parametrize("rounds", [3, 20])
def test_bytes_are_those_of_a_run(tmp_path, protect, rounds):
    privacy = {"protect": protect, "minimum_rows": 5, "allow": ["small-client"]}
    trial = federation(tmp_path, privacy=privacy, settings={"tol": 0.0}, run={"rounds": rounds, "seed": 5})
    need = plan(trial.terms, 40)
    for name in trial.files:
        sign_up(trial, name)
    outcome = server(trial, tmp_path / "server").run()
    in_rounds = sum(record.bytes_up + record.bytes_down for record in outcome.history)
    assert need.bytes_rounds == pytest.approx(in_rounds / 3, rel=0.05)
    sent = [sum(line["bytes"] for line in ClientFolder(trial.folder(name)).sent()) for name in trial.files]
    assert need.bytes_up == pytest.approx(max(sent), rel=0.05)


def test_a_draft_is_planned_by_a_command(tmp_path):
    about = {"algorithm": "PooledNMF", "rank": 4, "rounds": 30, "name": "", "purpose": "", "contact": "", "own": None}
    file = found(tmp_path / "study", address="127.0.0.1:8443", settings=["algorithm.tol=0"], **about)
    with pytest.raises(DataError, match="--columns"):
        plan(Terms.read(file), 200)
    run = CliRunner().invoke
    said = run(app, ["plan", str(file), "--rows", "200", "--columns", "30", "--parties", "3", "--json"])
    need = json.loads(said.output)
    assert (need["parties"], need["columns"], need["rounds"]) == (3, 30, 30)
    assert need["bytes_first"] > 2 * need["bytes_round"]  # wide initialization
    more = asdict(plan(Terms.read(file), 20_000, 3, 3000))
    assert more["party_memory"] > need["party_memory"] + 8 * 20_000 * 3000
    assert "a late one" in run(app, ["plan", str(file), "--rows", "200", "--columns", "30", "--parties", "3"]).output
    assert run(app, ["plan", str(file), "--rows", "5", "--columns", "30", "--parties", "3"]).exit_code == 2


@pytest.mark.parametrize("row", capacity.SIZES[:2], ids=str)
def test_the_sizing_table_is_that_of_the_calculator(row):
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "operations.md").read_text()
    assert capacity.HEAD in page
    (line,) = capacity.sizes([row])
    assert line in page
