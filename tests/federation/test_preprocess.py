"""Preprocessing of a federation: the weights of the pooled rows, kept with the results, applied to new rows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fedfactor.cli import app
from fedfactor.core.errors import DataError
from fedfactor.data.io import open_files
from fedfactor.data.preprocess import Preprocess
from fedfactor.data.results import read_private, read_row_ids
from fedfactor.engines.remote.client import RemoteClient
from fedfactor.engines.remote.server import Server
from fedfactor.federation.member import Member
from fedfactor.federation.trial import Trial
from prove import _flower as real
from tests.engines.in_process import Clock, InProcessTransport

pytest.importorskip("cryptography")


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def parties(tmp_path):
    rng = np.random.default_rng(1)
    V = rng.random((3, 6)) * [1, 10, 100, 1000, 1, 1]
    for name in ("north", "south", "west"):
        frame = pd.DataFrame(rng.gamma(0.5, 1.0, (25, 3)) @ V, columns=[f"lab{j}" for j in range(6)])
        frame.insert(0, "patient_id", rng.permutation(10**6)[:25])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return {name: tmp_path / f"{name}.csv" for name in ("north", "south", "west")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps", [["log1p", "scale max"], ["scale"], ["log1p"], ["library-size 100", "select 4", "tf-idf"]]
)
def test_transform_does_what_the_federation_did(tmp_path, parties, steps):
    changes = real.terms("PooledNMF", 20, tol=0.0) | {"preprocess": {"steps": steps}}
    trial = Trial(tmp_path / "all", parties, changes)
    assert "patient_id" not in trial.terms.features
    clerks = {}
    for name, file in parties.items():
        store = Member(trial.toml, trial.root / f"{name}.key", trial.folder(name)).sign_up(file)
        clerks[name] = RemoteClient(store)
    trial.coordinator.prepare()
    clock = Clock()
    server = Server(
        trial.root / "server",
        trial.terms.agreement(),
        trial.terms.policy(),
        InProcessTransport(clerks),
        clock=clock,
        sleep=clock.sleep,
    )
    server.run()
    # A simulation with the same steps weighs columns alike.
    together = open_files(parties.values(), steps=steps)
    for place, whose in ((trial.folder("south"), "party"), (trial.toml, "server")):
        out = tmp_path / whose
        assert call("results", place, "-o", out).exit_code == 0
        record = json.loads((out / "shared" / "run.json").read_text())
        assert record["preprocess"]["steps"] == Preprocess.parse(steps).words
        if together.preprocess["weights"] is None:
            assert record["preprocess"]["weights"] is None
        else:
            np.testing.assert_allclose(record["preprocess"]["weights"], together.preprocess["weights"], rtol=1e-12)
        done = call("transform", out, parties["south"], "-o", tmp_path / f"{whose}.npy")
        assert done.exit_code == 0, done.output
        U = read_private(tmp_path / "party", "south")["U"]
        np.testing.assert_allclose(np.load(tmp_path / f"{whose}.npy"), U, atol=0.02 * U.max())
    ids = tuple(map(str, pd.read_csv(parties["south"])["patient_id"]))
    assert read_row_ids(tmp_path / "party", "south") == ids


@pytest.mark.slow
def test_weights_that_were_lost_are_missed(tmp_path, parties):
    assert (
        call("fit", *parties.values(), "-k", 2, "--rounds", 3, "-o", tmp_path / "out", "--scale", "max", "-q").exit_code
        == 0
    )
    record = json.loads((tmp_path / "out" / "shared" / "run.json").read_text())
    for weights in (None, [1.0, 2.0]):
        record["preprocess"]["weights"] = weights
        (tmp_path / "out" / "shared" / "run.json").write_text(json.dumps(record))
        done = call("transform", tmp_path / "out", parties["north"], "-o", tmp_path / "u.csv")
        assert done.exit_code == 2
        assert "lacks the 6 column weights of 'scale max'" in done.stderr


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (["scale", "tf-idf"], "one of tf-idf and scale"),
        (["scale", "log1p"], "comes last"),
        (["scale size"], "can be scaled by rms, mean, std, max, quantile"),
        (["scale quantile 2"], "between 0 and 1"),
        (["scale max 3"], "takes no number"),
        (["select"], "how many columns"),
        (["select 0"], "how many columns"),
        (["binarize -1"], "at least 0"),
        (["zoom"], "knows no step"),
    ],
)
def test_steps_that_make_no_sense(steps, says):
    with pytest.raises(DataError, match=says):
        Preprocess.parse(steps)


def test_both_spellings():
    assert Preprocess.parse(["binarise 2"]) == Preprocess.parse(["binarize 2"])
