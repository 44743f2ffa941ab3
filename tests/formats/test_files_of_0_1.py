"""Files that version 0.1.0 left behind: read, or refused with the way out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import fedfactor
from fedfactor.core.errors import CheckpointError, DataError, ProtocolError
from fedfactor.core.wire import to_bytes
from fedfactor.federation.gain import worth
from fedfactor.federation.model_versions import versions
from fedfactor.federation.results import status_of, write_result
from fedfactor.federation.terms import Terms
from fedfactor.io.result_folder import FORMAT, read_components, read_private
from fedfactor.io.run_record import read_record
from fedfactor.network.client_storage import Agreement, ClientFolder
from fedfactor.network.message_format import Head, read_head, seal
from fedfactor.privacy import Ledger
from fedfactor.saved_models.run_folder import load_run

KEPT = Path(__file__).parent / "v0_1_0"


@pytest.fixture
def kept(tmp_path):
    return shutil.copytree(KEPT, tmp_path / "kept")


def test_results_are_read(kept):
    V, features = read_components(kept / "result")
    assert V.shape == (2, 5)
    assert features == ("a", "b", "c", "d", "e")
    assert read_record(kept / "result")["algorithm"] == "PooledNMF"
    rows = np.loadtxt(kept / "north.csv", delimiter=",", skiprows=1)
    U = fedfactor.load(kept / "result").transform(rows)
    assert np.linalg.norm(rows - U @ V) < 0.1 * np.linalg.norm(rows)


def test_results_from_before_there_was_a_ridge_or_anybody_was_rejected(kept):
    """Early files of 0.1 lack both: what was done then is no ridge, not the default of now."""
    file = kept / "result" / "run.json"
    record = json.loads(file.read_text())
    record["settings"].pop("ridge", None)
    for each in record["history"]:
        each.pop("rejected", None)
    file.write_text(json.dumps(record))
    run = load_run(kept / "result")
    assert run.algorithm.ridge == 0
    assert {each.rejected for each in run.history} == {()}


def test_results_of_a_later_version_are_refused(kept):
    record = json.loads((kept / "result" / "run.json").read_text())
    assert "format" not in record
    (kept / "result" / "run.json").write_text(json.dumps({"format": FORMAT + 1, **record}))
    with pytest.raises(DataError, match=f"format {FORMAT + 1}.*Install that version"):
        read_record(kept / "result")


def test_terms_are_read(kept):
    terms = Terms.read(kept / "federation.toml")
    assert terms.algorithm().n_components == 2


def test_ledgers_are_read(kept):
    ledger = Ledger(kept / "ledger.jsonl")
    entries = ledger.entries()
    assert [entry.round for entry in entries] == [0, 1, 2]
    assert {entry.algorithm for entry in entries} == {"PooledNMF"}


def test_folders_of_a_federation_are_read(kept, tmp_path):
    place = kept / "federation"
    mine = write_result(place / "north", tmp_path / "mine")
    V, features = read_components(mine)
    assert V.shape == (4, 12)
    assert len(features) == 12
    assert read_private(mine, "north")["U"].shape == (120, 4)
    assert read_record(mine)["rounds"] == 5
    np.testing.assert_array_equal(read_components(write_result(place / "server", tmp_path / "theirs"))[0], V)
    (version,) = versions(place / "server")
    assert version.parties == ("north", "south", "west")
    np.testing.assert_array_equal(version.V, V)
    assert status_of(place / "federation.toml")["took_part"] == ["north", "south", "west"]


def test_an_agreement_names_its_algorithm_wherever_that_lies(kept):
    """Files of the library move; the public names do not."""
    place = kept / "federation" / "north"
    raw = json.loads((place / "agreement.json").read_text())
    for room in ("fedfactor.algorithms.pooled", "fedfactor.algorithms"):
        (place / "agreement.json").write_text(json.dumps({**raw, "algorithm": f"{room}:PooledNMF"}))
        assert Agreement.read(place).make().n_components == 4
    assert json.loads(Agreement.read(place).to_json())["format"] == 3


@pytest.mark.parametrize("change", [{"format": 4}, {"format": 3}, {"meta": 3}, {"twist": 1}])
@pytest.mark.parametrize("look", [status_of, ClientFolder.agreement.func, worth])
def test_an_agreement_of_a_later_version_is_refused(kept, change, look):
    place = kept / "federation" / "north"
    raw = json.loads((place / "agreement.json").read_text())
    (place / "agreement.json").write_text(json.dumps({**raw, **change}))
    with pytest.raises(DataError, match=r"agreement\.json.*another version.*with the version that wrote it"):
        look(ClientFolder(place) if look is ClientFolder.agreement.func else place)


def test_an_unfinished_run_is_refused_with_the_way_out(kept):
    owners = {name: np.loadtxt(kept / f"{name}.csv", delimiter=",", skiprows=1) for name in ("north", "south")}
    method = fedfactor.algorithms.PooledNMF(2)
    with pytest.raises(CheckpointError, match=r"written by fedfactor 0\.1\.0.*finish the run with that version"):
        fedfactor.run(method, owners, rounds=10, seed=0, checkpoint=str(kept / "checkpoint"))


def test_a_message_of_another_minor_version_is_refused_by_name():
    head = Head("step", "run", 0, "north", "terms")
    assert read_head(seal(head)) == head
    with pytest.raises(ProtocolError, match=r"fedfactor '0\.1' arrived, but this is .*same minor version"):
        read_head(to_bytes({}, {"letter": "{}"}))
    with pytest.raises(ProtocolError, match=r"fedfactor '9\.9' arrived"):
        read_head(to_bytes({}, {"message": "{}", "version": "9.9"}))


def test_the_version_on_the_wire_is_that_of_the_package():
    from fedfactor.network.message_format import WIRE

    assert fedfactor.__version__.startswith(WIRE + ".") or fedfactor.__version__ == "0+unknown"
