from __future__ import annotations

import csv
import re

import numpy as np
import pytest

from tests.command_line import CliRunner

pytest.importorskip("cryptography")

from claims import _flower as real
from fedfactor.cli import app
from fedfactor.core.errors import DataError
from fedfactor.federation.gain import worth
from fedfactor.federation.party import Member
from fedfactor.federation.trial import Trial
from fedfactor.network.client import RemoteClient
from fedfactor.network.server import Server
from tests.network.in_process import InProcessTransport

run = CliRunner().invoke
pytestmark = pytest.mark.slow


@pytest.fixture
def ran(tmp_path):
    """Three parties with common patterns, of whom north has few rows and keeps some of them out."""
    files = real.write_rows(tmp_path, rows=60)
    kept = np.load(files["north"])
    ids = [f"patient-{i}" for i in range(len(kept["X"]))]
    head = ",".join(["patient_id", *map(str, kept["features"])])
    lines = [",".join([name, *(f"{cell:.6f}" for cell in row)]) for name, row in zip(ids, kept["X"], strict=True)]
    files["north"] = tmp_path / "north.csv"
    files["north"].write_text("\n".join([head, *lines]) + "\n")
    trial = Trial(tmp_path / "all", files, real.terms("PooledNMF", 20))
    members = {name: Member(trial.toml, trial.root / f"{name}.key", trial.folder(name)) for name in files}
    stores = {n: members[n].sign_up(f, keep_out=0.25 if n == "north" else 0.0) for n, f in files.items()}
    trial.coordinator.prepare()
    post = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()})
    Server(trial.coordinator.folder, trial.terms.agreement(), trial.terms.policy(), post).run()
    return trial, stores


def test_a_party_sees_on_rows_that_took_no_part_whether_it_was_worth_it(ran):
    trial, stores = ran
    assert stores["north"].shard.n_rows == 45
    found = worth(trial.folder("north"))
    assert found.rows == 15
    assert 0 < found.joint < 0.3
    assert 0 < found.alone < 0.5
    assert found.use.sum() == pytest.approx(1.0)
    before = len(stores["north"].sent())
    said = run(app, ["federation", "worth", str(trial.folder("north"))])
    assert said.exit_code == 0, said.output
    assert re.search(r"15 rows that took no part: error 0\.\d+ together, 0\.\d+ alone", said.output)
    assert len(stores["north"].sent()) == before
    with pytest.raises(DataError, match="--keep-out"):
        worth(trial.folder("south"))
    other = worth(trial.folder("south"), trial.files["west"])
    assert other.rows == 70


def test_joining_again_with_another_share_is_another_set_of_rows(ran):
    trial, _ = ran
    member = Member(trial.toml, trial.root / "north.key", trial.folder("north"))
    with pytest.raises(DataError, match="is not the file"):
        member.sign_up(trial.files["north"])
    with pytest.raises(DataError, match=r"at most 0\.5"):
        member.sign_up(trial.files["north"], keep_out=0.9, replace_data=True)


def test_a_hospital_can_open_its_result(ran, tmp_path):
    trial, _ = ran
    said = run(app, ["results", str(trial.folder("north")), "-o", str(tmp_path / "out")])
    assert said.exit_code == 0, said.output
    lines = list(csv.reader((tmp_path / "out" / "private" / "north.csv").open()))
    assert lines[0] == ["row", "component_0", "component_1", "component_2"]
    assert len(lines) == 46
    assert lines[1][0].startswith("patient-")
    assert (tmp_path / "out" / "private" / "north.csv").stat().st_mode & 0o077 == 0
    table = list(csv.reader((tmp_path / "out" / "shared" / "components.csv").open()))
    assert [line[0] for line in table[1:]] == list(trial.terms.features)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "your own rows" in page
    assert "feature 3" in page
    assert run(app, ["results", str(trial.toml), "-o", str(tmp_path / "c")]).exit_code == 0
    assert "worst owner" in (tmp_path / "c" / "report.html").read_text()
