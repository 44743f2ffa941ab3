"""Files and messages of other versions are refused with the way out."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedfactor
from fedfactor.core.algorithm import Meta
from fedfactor.core.errors import CheckpointError, DataError, ProtocolError
from fedfactor.core.wire import to_bytes
from fedfactor.engines import checkpoint
from fedfactor.federation.results import status_of
from fedfactor.io.result_folder import FORMAT
from fedfactor.io.run_record import read_record
from fedfactor.network.client_storage import Agreement, ClientFolder
from fedfactor.network.message_format import WIRE, Head, read_head, seal


def test_results_of_another_version_are_refused(tmp_path):
    X = np.random.default_rng(0).random((12, 5))
    fedfactor.save(fedfactor.PooledNMF(2, rounds=2, random_state=0).fit({"a": X[:6], "b": X[6:]}), tmp_path / "result")
    file = tmp_path / "result" / "shared" / "run.json"
    record = json.loads(file.read_text())
    assert read_record(tmp_path / "result")["format"] == FORMAT
    for number in (FORMAT + 1, 1, "two"):
        file.write_text(json.dumps({**record, "format": number}))
        with pytest.raises(DataError, match=f"format {number}.*Install that version"):
            read_record(tmp_path / "result")


@pytest.fixture
def agreed(tmp_path):
    meta = Meta(n_features=4, clients=("north", "south"))
    settings = {"n_components": 2}
    agreement = Agreement("north", "terms", "fedfactor.algorithms:PooledNMF", settings, meta, seed=0, rounds=3)
    (tmp_path / "agreement.json").write_bytes(agreement.to_json())
    return tmp_path


def as_format_2(folder, **change):
    """Write an agreement as version 0.2 did, which is without a checksum."""
    raw = json.loads((folder / "agreement.json").read_bytes())
    del raw["sha256"]
    (folder / "agreement.json").write_text(json.dumps({**raw, "format": 2, **change}))


def test_an_agreement_names_its_algorithm_wherever_that_lies(agreed):
    """Files of the library move; the public names do not."""
    for package in ("fedfactor.algorithms.pooled", "fedfactor.algorithms"):
        as_format_2(agreed, algorithm=f"{package}:PooledNMF")
        assert Agreement.read(agreed).make().n_components == 2
        (agreed / "agreement.json").write_bytes(Agreement.read(agreed).to_json())


@pytest.mark.parametrize("change", [{"format": 4}, {"format": 3}, {"format": 1}, {"meta": 3}, {"twist": 1}])
@pytest.mark.parametrize("look", [status_of, ClientFolder.agreement.func])
def test_an_agreement_of_another_version_is_refused(agreed, change, look):
    as_format_2(agreed, **change)
    with pytest.raises(DataError, match=r"agreement\.json.*another version.*with the version that wrote it"):
        look(ClientFolder(agreed) if look is ClientFolder.agreement.func else agreed)


def test_an_unfinished_run_is_refused_with_the_way_out(tmp_path, monkeypatch):
    X = np.random.default_rng(0).random((12, 5))
    owners = {"a": X[:6], "b": X[6:]}
    method = fedfactor.algorithms.PooledNMF(2, tol=0)
    with monkeypatch.context() as former:
        former.setattr(checkpoint, "FORMAT", 1)
        fedfactor.run(method, owners, rounds=2, seed=0, checkpoint=str(tmp_path))
    with pytest.raises(CheckpointError, match=r"finish the run with that version"):
        fedfactor.run(method, owners, rounds=4, seed=0, checkpoint=str(tmp_path))


def test_a_message_of_another_minor_version_is_refused_by_name():
    head = Head("step", "run", 0, "north", "terms")
    assert read_head(seal(head)) == head
    with pytest.raises(ProtocolError, match=r"fedfactor '9\.9' arrived, but this is .*same minor version"):
        read_head(to_bytes({}, {"message": "{}", "version": "9.9"}))


def test_the_version_on_the_wire_is_that_of_the_package():
    assert fedfactor.__version__.startswith(WIRE + ".") or fedfactor.__version__ == "0+unknown"
