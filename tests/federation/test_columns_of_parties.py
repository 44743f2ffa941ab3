"""Parties that hold columns of the same rows: terms, hashed ids, a run, results; and a coordinator that guesses ids."""

from __future__ import annotations

import hashlib
import hmac
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

import fedfactor
from fedfactor.cli import app
from fedfactor.core.errors import DataError
from fedfactor.federation.party import Member
from fedfactor.federation.terms import Terms, TermsError
from fedfactor.io.file_content import Reading
from fedfactor.io.result_folder import read_components, read_private, read_row_ids
from fedfactor.io.row_matching import blinded, points_of_ids
from fedfactor.network.client import RemoteClient
from fedfactor.network.server import Server
from tests.command_line import CliRunner
from tests.network.in_process import InProcessTransport

pytest.importorskip("cryptography")
NAMES = ("imaging", "lab", "registry")
IDS = [f"P{number:04d}" for number in range(60)]


def call(*words, ends=0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == ends, done.output
    return done.output


def cells(parties=NAMES, columns=9, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((len(IDS), 3)) @ rng.random((3, columns * len(parties))) + 0.01 * rng.random(
        (60, columns * len(parties))
    )
    return {name: X[:, columns * i : columns * (i + 1)] for i, name in enumerate(parties)}


def tables(folder, parties=NAMES, seed=0):
    """Write each party's columns of some of the patients, in an order of its own."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, X in cells(parties).items():
        rows = rng.permutation(60)[:55]
        frame = pd.DataFrame(X[rows], columns=[f"{name} {j}" for j in range(X.shape[1])])
        frame.insert(0, "patient_id", [IDS[row] for row in rows])
        found[name] = folder / f"{name}.csv"
        frame.to_csv(found[name], index=False)
    return found


def found_federation(folder, files, algorithm="PooledNMF", privacy="none", blind=False, rounds=20):
    """Set up a federation by its commands; return the file of its terms, and the readings of its parties."""
    toml = folder / "study" / "federation.toml"
    call("federation", "init", folder / "study", "-a", algorithm, "-k", 3, "--rounds", rounds, "--split", "columns",
         "--privacy", privacy)  # fmt: skip
    text = (
        toml.read_text()
        .replace("minimum_rows = 100", "minimum_rows = 5")
        .replace("allow = []", 'allow = ["small-client"]')
    )
    toml.write_text(text)
    lists = []
    for name, file in files.items():
        call("keygen", name, "-o", folder / f"{name}.key")
        call("federation", "add", toml, name, folder / f"{name}.key.pub")
        lists.append(folder / f"{name}.features.json")
        how = ("--secret", folder / f"{name}.secret") if blind else ("--row-key", folder / "shared.key")
        call("features", file, "--split", "columns", "--id", "patient_id", *how, "-o", lists[-1])
    for name, file in files.items() if blind else ():
        for other in set(files) - {name}:
            call("federation", "blind", folder / f"{name}.features.json", "--secret", folder / f"{other}.secret")
        call("features", file, "--split", "columns", "--id", "patient_id", "--secret", folder / f"{name}.secret",
             "--blinded", folder / f"{name}.features.json", "-o", folder / f"{name}.features.json")  # fmt: skip
    call("federation", "agree", toml, *lists)
    readings = {name: Reading(id="patient_id", row_names=str(folder / f"{name}.row-names.json")) for name in files}
    return toml, readings


def run_in_process(folder, toml, files, readings):
    members = {name: Member(toml, folder / f"{name}.key", folder / name) for name in files}
    stores = {name: each.sign_up(files[name], reading=readings[name], confirmed=True) for name, each in members.items()}
    terms = Terms.read(toml)
    server = toml.parent / "server"
    from fedfactor.federation.coordinator import Coordinator

    Coordinator(toml).prepare()
    post = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()})
    assert Server(server, terms.agreement(), terms.policy(), post).run() is not None
    found = {}
    for name in files:
        call("results", folder / name, "-o", folder / f"out {name}")
        V, features = read_components(folder / f"out {name}")
        U = read_private(folder / f"out {name}", name)
        found[name] = (
            U["U"],
            V,
            features,
            read_row_ids(folder / f"out {name}", name),
        )
    return found


def pooled(files):
    """Join the tables of all parties by their ids, as one client with all columns would have them."""
    frames = [pd.read_csv(file).set_index("patient_id") for file in files.values()]
    return pd.concat(frames, axis=1, join="inner")


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "privacy", "blind"), [
    ("PooledNMF", "none", False), ("PooledNMF", "secure-sum", True), ("PooledPCA", "none", False),
])  # fmt: skip
def test_parties_find_the_factors_of_pooled_columns(tmp_path, algorithm, privacy, blind):
    files = tables(tmp_path)
    toml, readings = found_federation(tmp_path, files, algorithm, privacy, blind)
    found = run_in_process(tmp_path, toml, files, readings)
    whole = pooled(files)
    U, _, _, ids = found["lab"]
    assert sorted(ids) == sorted(whole.index)
    X = whole.loc[list(ids)].to_numpy()
    V = np.concatenate([V for _, V, _, _ in found.values()], axis=1)
    for name, (own, V_own, features, rows) in found.items():
        np.testing.assert_array_equal(own, U)
        assert features == tuple(f"{name} {j}" for j in range(9))
        assert V_own.shape == (3, 9)
        assert tuple(rows) == tuple(ids)
    if algorithm == "PooledPCA":
        best = PCA(3, svd_solver="full").fit(X)
        np.testing.assert_allclose(np.abs(U), np.abs(best.transform(X)), atol=1e-9)
        np.testing.assert_allclose(np.abs(V), np.abs(best.components_), atol=1e-9)
        return
    terms = Terms.read(toml)
    one = fedfactor.run(terms.algorithm(), {"all": X.T}, rounds=20, seed=terms.content["run"]["seed"])
    # Masked sums are those of fixed-point numbers.
    np.testing.assert_allclose(U, one.V.T, atol=1e-9 if privacy == "none" else 1e-6)
    np.testing.assert_allclose(V, one.factors["all"].U.T, atol=1e-9 if privacy == "none" else 1e-6)
    with pytest.raises(AssertionError, match="Ask the parties"):
        call("results", toml, "-o", tmp_path / "out server")


def everything_in(folder):
    """Return all strings of bytes that could be a key in the files of a folder."""
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return [content[at : at + 32] for content in files for at in range(0, max(1, len(content) - 31))][:20_000]


@pytest.mark.slow
def test_a_coordinator_that_hashes_all_ids_with_all_it_has_finds_none(tmp_path):
    """The coordinator has its folder, the terms and the lists; ids are few enough to be enumerated."""
    files = tables(tmp_path)
    toml, _ = found_federation(tmp_path, files)
    seen = set(Terms.read(toml).features)
    assert len(seen) > 30
    candidates = [b"", toml.parent.name.encode(), *everything_in(toml.parent)]

    def reversed_by(key):
        return {h for each in IDS[:5] if (h := hmac.digest(key, each.encode(), hashlib.sha256)[:16].hex()) in seen}

    assert not any(reversed_by(key) for key in candidates)
    plain = {hashlib.new(kind, each.encode()).hexdigest()[:32] for kind in ("sha256", "md5", "sha1") for each in IDS}
    assert not plain & seen
    every = {
        hmac.digest((tmp_path / "shared.key").read_bytes(), each.encode(), hashlib.sha256)[:16].hex() for each in IDS
    }
    assert seen <= every  # with the key of one party it reads them all, so the attack is the right one


@pytest.mark.slow
def test_a_coordinator_with_one_party_reverses_no_blinded_ids(tmp_path):
    files = tables(tmp_path)
    toml, _ = found_federation(tmp_path, files, blind=True)
    seen = set(Terms.read(toml).features)
    secrets = {name: (tmp_path / f"{name}.secret").read_bytes() for name in NAMES}
    points = points_of_ids(IDS)

    def reversed_by(*names):
        found = points
        for name in names:
            found = blinded(found, secrets[name])
        return seen & {point.hex() for point in found}

    for known in ((), ("lab",), ("imaging",), ("registry",), ("lab", "imaging"), ("lab", "registry")):
        assert not reversed_by(*known)
    assert reversed_by(*NAMES) == seen


def test_terms_refuse_what_columns_do_not_allow(tmp_path):
    call("federation", "init", tmp_path / "study", "--split", "columns")
    toml = tmp_path / "study" / "federation.toml"
    content = {section: dict(part) for section, part in Terms.read(toml).content.items()}

    def refused(section, **entries):
        with pytest.raises(TermsError) as caught:
            Terms.of({**content, section: {**content[section], **entries}})
        return str(caught.value)

    assert "does not take columns" in refused("algorithm", name="FNMF")
    assert "prepares its own columns" in refused("preprocess", steps=["log1p"])
    assert "would protect columns" in refused("privacy", protect="dp", epsilon=1.0, row_bound=1.0, rows=100.0)
    assert "n_private=0" in refused("algorithm", n_private=1)
    terms = Terms.of({**content, "privacy": {**content["privacy"], "protect": "secure-sum", "protocol": "verified"}})
    assert "U, which describes every common row" in terms.notice
    assert "can predict others from it" in call("federation", "show", toml)


@pytest.mark.slow
def test_rows_and_lists_that_do_not_fit_are_refused_with_the_remedy(tmp_path):
    files = tables(tmp_path)
    toml, readings = found_federation(tmp_path, files)
    member = Member(toml, tmp_path / "lab.key", tmp_path / "lab")
    with pytest.raises(DataError, match="--row-names"):
        member.sign_up(files["lab"], reading=Reading(id="patient_id"), confirmed=True)
    with pytest.raises(DataError, match="has no name for row"):
        member.sign_up(files["imaging"], reading=readings["lab"], confirmed=True)
    short = tmp_path / "short.csv"
    pd.read_csv(files["lab"]).iloc[:20].to_csv(short, index=False)
    with pytest.raises(DataError, match="agreed rows are not in"):
        member.sign_up(short, reading=readings["lab"], confirmed=True)
    few = tmp_path / "few.csv"
    pd.read_csv(files["lab"]).iloc[:, :4].to_csv(few, index=False)
    with pytest.raises(DataError, match="has 3 columns, but at least 5"):
        member.sign_up(few, reading=readings["lab"], confirmed=True)
    assert "either --row-key" in call("features", files["lab"], "--split", "columns", "--id", "patient_id", ends=2)
    bare = tmp_path / "bare.csv"
    pd.read_csv(files["lab"]).drop(columns="patient_id").to_csv(bare, index=False)
    assert "column of row ids" in call(
        "features", bare, "--split", "columns", "--row-key", tmp_path / "shared.key", ends=2
    )
    (tmp_path / "odd.json").write_text(json.dumps(["xyz"]))
    assert "no blinded ids" in call("federation", "blind", tmp_path / "odd.json", "--secret", tmp_path / "s", ends=2)
    (tmp_path / "odd.json").write_text(json.dumps(["00" * 32]))
    assert "no blinded id" in call("federation", "blind", tmp_path / "odd.json", "--secret", tmp_path / "s", ends=2)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.federation
def test_parties_in_processes_of_their_own_find_the_factors_over_https(tmp_path):
    pytest.importorskip("aiohttp")
    from claims.columns_federation import apart

    found = apart(tmp_path, "PooledNMF", 3)
    assert found["U"] < 1e-9
    assert found["V"] < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["pooled-nmf", "pooled-pca"])
def test_files_of_columns_are_fitted_as_one_table(tmp_path, algorithm):
    files = tables(tmp_path)
    out = tmp_path / "out"
    options = ("-k", 3, "-a", algorithm, "--split", "columns", "--id", "patient_id", "--seed", 0, "-o", out)
    call("fit", *files.values(), *options)
    V, features = read_components(out)
    U = read_private(out, "all columns")["U"]
    whole = pooled(files).loc[list(read_row_ids(out, "all columns"))]
    assert list(features) == list(whole.columns)
    model = fedfactor.load(out)
    np.testing.assert_allclose(model.transform(whole.to_numpy()), U, atol=1e-3)
    if algorithm == "pooled-pca":
        best = PCA(3, svd_solver="full").fit(whole.to_numpy())
        np.testing.assert_allclose(np.abs(model.transform(whole.to_numpy())), np.abs(best.transform(whole.to_numpy())))
    else:
        assert np.linalg.norm(whole - U @ V) / np.linalg.norm(whole) < 0.05
    assert "goes with none of" in call("fit", *files.values(), *options[:-1], tmp_path / "two", "--log1p", ends=2)
