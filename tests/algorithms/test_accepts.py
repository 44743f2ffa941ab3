"""What a party refuses of a lying server: every honest download is taken, and each lie is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor import Federation, algorithms
from fedfactor.core.protocol import download_for
from fedfactor.core.tree import leaves
from fedfactor.privacy import Listener

pytestmark = pytest.mark.filterwarnings("ignore::fedfactor.privacy.PrivacyWarning", "ignore::UserWarning")
rng = np.random.default_rng(0)
STARS = np.where(rng.random((60, 20)) < 0.5, rng.integers(1, 6, (60, 20)), 0).astype(float)
CLICKS = (rng.random((90, 20)) < 0.3) * 1.0


def rated():
    parts = {name: sparse.csr_array(part) for name, part in zip("abc", np.array_split(STARS, 3), strict=True)}
    return Federation(parts, missing_values="unstored")


def clicked():
    return Federation(dict(zip("abc", np.array_split(CLICKS, 3), strict=True)))


def positive():
    return Federation(dict(zip("abc", np.array_split(rng.random((60, 20)), 3), strict=True)))


CASES = {
    "PooledCF": (algorithms.PooledCF(2), rated),
    "PooledCNMF": (algorithms.PooledCNMF(2), rated),
    "FCF": (algorithms.FCF(2), rated),
    "FedMF": (algorithms.FedMF(2), rated),
    "PooledEASE": (algorithms.PooledEASE(), clicked),
    "PooledEASE low rank": (algorithms.PooledEASE(3), clicked),
    "PooledRidge": (algorithms.PooledRidge(3), clicked),
    "Popularity": (algorithms.Popularity(), clicked),
    "Biases": (algorithms.Biases(), rated),
    "FedSPLIT": (algorithms.FedSPLIT(3), rated),
    "BooleanVotes": (algorithms.BooleanVotes(3), clicked),
    "PooledBMF": (algorithms.PooledBMF(3), clicked),
    "PooledBMF sampled": (algorithms.PooledBMF(3, sample=40), clicked),
    "SynSD": (algorithms.SynSD(2), positive),
    "SynSSD": (algorithms.SynSSD(2, ratio=0.5), positive),
}


def heard(algorithm, federation):
    listener = Listener()
    run = fedfactor.run(algorithm, federation, rounds=30, seed=0, privacy=(listener,))
    meta = federation.prepare(algorithm.domain)
    downs = [download_for(down, federation.names[0]) for _, _, down in listener.rounds]
    return [*downs, download_for(run.down, federation.names[0])], meta


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_honest_downloads_are_taken_and_numbers_that_are_none_refused(name):
    algorithm, data = CASES[name]
    downs, meta = heard(algorithm, data())
    for down in downs:
        assert algorithm.accepts(down, meta) == ""
        for path, leaf in leaves(down):
            if np.asarray(leaf).dtype.kind == "f" and "." not in path and np.size(leaf):
                assert algorithm.accepts(replace(down, **{path: np.full_like(leaf, np.nan)}), meta)


LIES = {
    "PooledCF": {"columns": lambda x: x[::-1], "aside": lambda x: x + 2, "strength": lambda x: -x - 1},
    "PooledCNMF": {"V": lambda x: x - 1e3, "n_components": lambda x: x + 1},
    "FCF": {"n_components": lambda x: x * 0},
    "PooledEASE": {"columns": lambda x: x * 0},
    "PooledEASE low rank": {"order": lambda x: x * 0, "depth": lambda x: x + 99, "columns": lambda x: x + 1},
    "PooledRidge": {"columns": lambda x: x * 0 - 1},
    "Popularity": {"share": lambda x: x - 5},
    "BooleanVotes": {"V": lambda x: x | 0xF0},
    "PooledBMF": {"share": lambda x: x * 0 + 0.01, "columns": lambda x: x + 20, "candidates": lambda x: x | 0xF0,
                  "V": lambda x: x | 0xF0, "penalty": lambda x: x - 9},
    "SynSD": {"V": lambda x: -x},
    "SynSSD": {"V": lambda x: -x, "step": lambda x: x * 0 - 1},
}  # fmt: skip


@pytest.mark.parametrize(("name", "leaf"), [(name, leaf) for name, lies in LIES.items() for leaf in lies])
def test_lies_are_refused(name, leaf):
    algorithm, data = CASES[name]
    downs, meta = heard(algorithm, data())
    there = [down for down in downs if getattr(down, leaf, None) is not None and np.size(getattr(down, leaf)) > 0]
    there = [down for down in there if leaf != "V" or name != "PooledBMF" or down.V.dtype == np.uint8]
    if leaf == "columns":
        there = [down for down in there if np.size(down.columns) > 1]
    assert there
    for down in there:
        true = np.asarray(getattr(down, leaf))
        lie = np.asarray(LIES[name][leaf](true)).astype(true.dtype)
        assert algorithm.accepts(replace(down, **{leaf: lie}), meta)


def test_item_vectors_of_items_that_do_not_exist_are_refused():
    pytest.importorskip("torch")
    algorithm = algorithms.FedDMF(2, hidden=4, epochs=1, refine=1)
    downs, meta = heard(algorithm, clicked())
    assert [algorithm.accepts(down, meta) for down in downs] == [""] * len(downs)
    anchor = next(down for down in downs if type(down).__name__ == "Anchor")
    assert algorithm.accepts(replace(anchor, items=anchor.items + 5), meta)
    assert algorithm.accepts(replace(anchor, items=anchor.items[:-1]), meta)
    assert algorithm.accepts(replace(anchor, count=anchor.count + 9), meta)
