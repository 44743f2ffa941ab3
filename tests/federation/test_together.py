"""Several parties to a process: the same bits, also after one of the processes is killed."""

from __future__ import annotations

import signal

import pytest

from tests.command_line import CliRunner

pytest.importorskip("aiohttp")

from claims import _flower as real
from fedfactor.cli import app
from fedfactor.federation.trial import Trial

pytestmark = [pytest.mark.integration, pytest.mark.federation, pytest.mark.slow]
PATIENCE = 400.0


@pytest.mark.parametrize("name", ["PooledNMF", "PooledNMF secure"])
def test_parties_that_share_a_process_take_home_what_a_local_run_gives(name, tmp_path):
    files, changes = real.case(name, tmp_path)
    with Trial(tmp_path / "all", files, changes) as trial:
        first, *others = files
        trial.join_together([first])
        trial.join_together(others)
        trial.coordinator.start()
        assert trial.coordinator.wait(PATIENCE)["state"] == "finished"
        told = (trial.folder(others[0]) / "join.log").read_text()
        assert all(f"  {other}: Connected to" in told for other in others)  # each line says whose it is
        apart = real.largest_difference(real.factors(trial), real.local(files, trial).factors)
    assert apart <= (1e-6 if name.endswith("secure") else 0.0)


def test_parties_that_share_a_process_are_given_one_by_one(tmp_path):
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 2))
    join = ["join", str(trial.toml), "--yes"]
    for name in ("north", "south"):
        join += ["--key", str(trial.root / f"{name}.key"), "--folder", str(trial.folder(name))]
    north = ["--data", str(trial.files["north"])]
    assert "once for each party" in CliRunner().invoke(app, [*join, *north]).output
    for more in (["--page", "0"], ["--certificate", "x.crt"], ["--ledger", "books.jsonl"]):
        assert "are for one party" in CliRunner().invoke(app, [*join, *north, *north, *more]).output


def test_a_killed_process_of_parties_comes_back(tmp_path):
    files = real.write_rows(tmp_path)
    with Trial(tmp_path / "all", files, real.terms("PooledNMF", 8, tol=0.0)) as trial:
        first, *others = files
        trial.join_together(others)
        trial.join_together([first])
        trial.coordinator.start()
        real.wait_for_round(trial, 2, PATIENCE)
        child = trial.members[first]
        child.send_signal(signal.SIGKILL)
        child.wait()
        trial.join_together([first])
        assert trial.coordinator.wait(PATIENCE)["state"] == "finished"
        assert real.largest_difference(real.factors(trial), real.local(files, trial).factors) == 0.0
