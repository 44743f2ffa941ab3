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
from fedfactor.data.record import read_record
from fedfactor.data.results import FORMAT, read_components
from fedfactor.engines.remote.message_bytes import Head, read_head, seal
from fedfactor.federation.terms import Terms
from fedfactor.privacy import Ledger

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
    from fedfactor.engines.remote.message_bytes import WIRE

    assert fedfactor.__version__.startswith(WIRE + ".") or fedfactor.__version__ == "0+unknown"
