"""Parties whose every message is answered by another process, as behind a SuperNode of Flower."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor import algorithms
from fedfactor.network.client import RemoteClient
from tests.network.in_process import AnyFolder, Office

rng = np.random.default_rng(0)
OWNERS = {name: rng.random((20, 12)) for name in ("north", "south", "west")}


class Fresh:
    """Answers each message with a client that knows nothing but its folder."""

    def __init__(self, folder):
        self.folder = folder

    def answer(self, data):
        return RemoteClient(AnyFolder(self.folder)).answer(data)


@pytest.mark.parametrize("protect", ["none", "secure-sum"])
def test_they_get_the_bits_of_parties_that_stay(tmp_path, protect):
    found = []
    for kind in ("lasting", "fresh"):
        more = {"protect": protect, "least": (1, 1)} if protect != "none" else {}
        office = Office(tmp_path / kind, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=2, **more)
        if kind == "fresh":
            office.clerks.update({name: Fresh(tmp_path / kind / name) for name in OWNERS})
        office.server().run()
        found.append(office.factors("north").V)
    np.testing.assert_array_equal(*found)
