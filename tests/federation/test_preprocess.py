"""Preprocessing of a federation: the weights of the pooled rows, kept with the results, applied to new rows."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from claims import _flower as real
from fedfactor.cli import app
from fedfactor.core.column_scales import column_sums
from fedfactor.core.errors import DataError
from fedfactor.federation.party import Member
from fedfactor.federation.terms import Terms, TermsError, features_hash
from fedfactor.federation.trial import Trial
from fedfactor.io.preprocessing import Preprocess
from fedfactor.io.read import open_files
from fedfactor.io.result_folder import read_components, read_private, read_row_ids
from fedfactor.io.uneven_columns import ScaleWarning, uneven
from fedfactor.network.client import RemoteClient
from fedfactor.network.server import Server
from tests.command_line import CliRunner
from tests.network.in_process import Clock, InProcessTransport

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


LAST = {"lab0": 8, "lab1": 80, "lab2": 800, "lab3": 8000, "lab4": 8, "lab5": 8}


def scaled_by_declared(**privacy):
    changes = real.terms("PooledNMF", 20, tol=0.0)
    changes["privacy"] |= privacy
    ranges = {name: {"high": float(high), "unit": "u"} for name, high in LAST.items()}
    return changes | {"preprocess": {"steps": ["scale declared"]}, "units": ranges}


@pytest.mark.slow
@pytest.mark.parametrize("protect", ["none", "secure-sum"])
def test_columns_are_scaled_by_declared_ranges_also_under_a_secure_sum(tmp_path, parties, protect):
    changes = scaled_by_declared(protect=protect, allow=["small-client"])
    trial = Trial(tmp_path / "all", parties, changes)
    clerks = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScaleWarning)  # scaled as it is advised, no column decides the fit alone
        for name, file in parties.items():
            member = Member(trial.toml, trial.root / f"{name}.key", trial.folder(name))
            clerks[name] = RemoteClient(member.sign_up(file, confirmed=True))
    rows = pd.read_csv(parties["north"]).drop(columns="patient_id").to_numpy()
    np.testing.assert_allclose(clerks["north"].store.shard.X, rows / np.array(list(LAST.values())))
    trial.coordinator.prepare()
    Server(trial.root / "server", trial.terms.agreement(), trial.terms.policy(), InProcessTransport(clerks)).run()
    for place in (trial.toml, trial.folder("north")):
        out = tmp_path / place.name
        assert call("results", place, "-o", out / "result").exit_code == 0
        kept = json.loads((out / "result" / "shared" / "run.json").read_bytes())["preprocess"]
        assert kept["steps"] == ["scale declared"]
        np.testing.assert_allclose(kept["weights"], 1 / np.array(list(LAST.values())))
        said = call("transform", out / "result", parties["north"], "-o", out / "u.csv")
        assert said.exit_code == 0, said.output
        found = pd.read_csv(out / "u.csv").iloc[:, 1:].to_numpy()
        V = read_components(out / "result")[0]
        assert np.linalg.norm(found @ V - clerks["north"].store.shard.X) < 0.2 * np.linalg.norm(
            clerks["north"].store.shard.X
        )


def test_advice_about_scales_holds_where_sums_are_hidden():
    said = uneven(["platelets", "creatinine"], column_sums(np.array([[250.0, 1.0], [300.0, 0.8]])))
    assert "under secure aggregation or noise 'scale declared'" in said
    with pytest.raises(DataError, match="goes with log1p alone"):
        Preprocess.parse(["library-size 10", "scale declared"])
    with pytest.raises(DataError, match="scale rms"):
        open_files(["a.csv"], steps=["scale declared"])
    parties = {name: {"key": name, "sign": f"{i}" * 64} for i, name in enumerate("abc", 1)}
    told = {"parties": parties, "features": {"names": ["x"], "sha256": features_hash(["x"])}}
    told |= {"privacy": {"protect": "secure-sum"}, "algorithm": {"name": "PooledNMF", "n_components": 1}}
    for steps, units, wrong in (
        (["scale"], {}, "scale declared"),
        (["scale declared"], {}, "'x' has none above 0"),
        (["scale declared"], {"x": {"low": -1.0, "high": 0.0}}, "'x' has none above 0"),
    ):
        with pytest.raises(TermsError, match=wrong):
            Terms.of({**told, "preprocess": {"steps": steps}, "units": units}).agreement()
    assert Terms.of(
        {**told, "preprocess": {"steps": ["log1p", "scale declared"]}, "units": {"x": {"high": 3.0}}}
    ).declared_weights() == pytest.approx([1 / np.log(4)])
