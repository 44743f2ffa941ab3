"""What a party refuses of a lying server: every honest download is taken, and each lie is named."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor import Federation, algorithms
from fedfactor.core.algorithm import Meta, download_for
from fedfactor.core.pytree import leaves
from fedfactor.nmf.distributed.secure_steps import row_length
from fedfactor.privacy import Listener
from fedfactor.recommend.fedsplit.messages import Means, Stats
from fedfactor.testing.data import small_data
from fedfactor.testing.plain_loop import drive
from tests.contract.test_algorithms import CONFIGS

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


@functools.cache
def case(name):
    """Run a case once for all that is said of it."""
    algorithm, data = CASES[name]
    return algorithm, *heard(algorithm, data())


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_honest_downloads_are_taken_and_numbers_that_are_none_refused(name):
    algorithm, downs, meta = case(name)
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
    algorithm, downs, meta = case(name)
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


@pytest.mark.parametrize("name", sorted(set(algorithms.__all__) - {"FedDMF"}))
def test_honest_messages_are_neither_refused_nor_doubted(name):
    for settings in CONFIGS.get(name, [{"n_components": 3}])[:2]:
        algorithm = getattr(algorithms, name)(**settings)
        trace = drive(algorithm, small_data(algorithm.domain), rounds=4)
        for downs in trace.downs:
            for down in downs.values():
                assert algorithm.accepts(down, trace.meta) == ""
        for ups in trace.ups:
            assert [algorithm.doubt(up) for up in ups.values()] == [""] * len(ups)


DOUBTED = {
    "PooledCF": {"Levels": ("counts",), "Sums": ("items",)},
    "PooledCNMF": {"Counts": ("counts",), "Sums": ("N", "D")},
    "Popularity": {"Touched": ("users",)},
    "Biases": {"Sums": ("counts",)},
    "FedSPLIT": {"Stats": ("weight", "counts")},
}


@pytest.mark.parametrize("name", DOUBTED)
def test_numbers_that_no_ratings_give_are_doubted(name):
    algorithm, data = CASES[name]
    federation = data()
    trace = drive(algorithm, {n: federation.shard(n) for n in federation.names}, rounds=3)
    seen = set()
    for ups in trace.ups:
        up = ups["a"]
        for leaf in DOUBTED[name].get(type(up).__name__, ()):
            seen.add((type(up).__name__, leaf))
            assert algorithm.doubt(replace(up, **{leaf: -getattr(up, leaf)}))
    assert seen == {(kind, leaf) for kind, found in DOUBTED[name].items() for leaf in found}


def test_levels_outside_the_scale_of_the_ratings_are_doubted():
    """Half a rating and a thousandth of their number are left for rounding."""
    algorithm = algorithms.FedSPLIT(2, scale=(1.0, 5.0))

    def doubt(total, weight, **more):
        return algorithm.doubt(Stats(np.float64(total), np.float64(weight), **more))

    assert doubt(30.0, 10.0) == ""
    assert [doubt(total, 10.0) == "" for total in (9.4, 9.5, 50.5, 50.6)] == [False, True, True, False]
    assert [doubt(total, 1000.0) == "" for total in (998.4, 998.6, 5001.4, 5001.6)] == [False, True, True, False]
    assert "negative" in doubt(0.0, -0.6)
    assert algorithms.FedSPLIT(2).doubt(Stats(np.float64(0.0), np.float64(-0.5))) == ""
    counts = np.array([4.0, 6.0])
    plain = {"residuals": np.array([16.0, -24.0]), "counts": counts}
    assert doubt(30.0, 10.0, **plain) == ""
    assert "contradict" in doubt(30.0, 10.0, **plain | {"counts": counts + 1})
    assert "contradict" in doubt(30.0, 10.0, **plain | {"counts": np.array([-1.0, 11.0])})
    assert "Residuals" in doubt(30.0, 10.0, **plain | {"residuals": np.array([16.1, 0.0])})
    assert [algorithm.doubt(Means(np.float64(mean))) == "" for mean in (0.9, 1.0, 5.0, 5.1)] == [
        False,
        True,
        True,
        False,
    ]
    assert algorithms.FedSPLIT(2).doubt(Means(np.float64(99.0))) == ""


def test_rows_longer_than_any_party_makes_them_are_refused():
    algorithm, meta = algorithms.SynSD(2), Meta(4, ("a", "b"))
    V = np.zeros((2, 4))
    V[0, 0] = 1.001 * np.sqrt(3) * row_length(4, "scaled")
    down = drive(algorithm, {"a": np.ones((5, 4)), "b": np.ones((5, 4))}, rounds=1).downs[0]["a"]
    assert algorithm.accepts(replace(down, V=V), meta) == ""
    assert "longer" in algorithm.accepts(replace(down, V=V * 1.0001), meta)
    assert replace(algorithm, align=False).accepts(replace(down, V=V * 1.0001), meta) == ""
