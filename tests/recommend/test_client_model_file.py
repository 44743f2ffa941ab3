"""A recommender's file of one owner: what is no such file, another class's or another version's is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedfactor
from fedfactor import DataError

RATINGS = np.array([[5, 0, 3, 1], [4, 2, 0, 1], [0, 1, 5, 4], [1, 0, 4, 5]], dtype=float)


@pytest.fixture
def saved(tmp_path):
    from scipy import sparse

    model = fedfactor.Popularity().fit({"north": sparse.csr_array(RATINGS)})
    model.save(tmp_path / "north.npz", client="north")
    return tmp_path / "north.npz"


def changed(path, change):
    with np.load(path) as found:
        parts = dict(found)
    about = change(json.loads(parts["about"].tobytes()))
    np.savez(path, **(parts | {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}))


def test_it_comes_back(saved):
    assert fedfactor.Popularity.load(saved).users_["north"].tolist() == [0, 1, 2, 3]


def test_that_of_another_class_is_named(saved):
    with pytest.raises(DataError, match=r"holds a Popularity, not a FCF\. Read it with Popularity\.load"):
        fedfactor.FCF.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about | {"format": "fedfactor recommender 2"},
        lambda about: about | {"settings": about["settings"] | {"twist": 3}},
        lambda about: {name: value for name, value in about.items() if name != "owner"},
        lambda about: about | {"settings": 3},
    ],
)
def test_that_of_another_version_is_refused_with_the_way_out(saved, change):
    changed(saved, change)
    with pytest.raises(DataError, match=r"Another version wrote it.*read it with the version that wrote it"):
        fedfactor.Popularity.load(saved)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"[]"])
def test_what_save_did_not_write_is_refused(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataError, match="no file that save wrote"):
        fedfactor.Popularity.load(tmp_path / "x.npz")
