"""The server as parties compute it: every method whose uploads are sums, and rounding between machines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedfactor
from fedfactor import algorithms
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.wire import Leaf
from fedfactor.network.replica import Replica, adopt, difference
from tests.network.in_process import Office

pytest.importorskip("cryptography")
rng = np.random.default_rng(0)
REAL = rng.gamma(0.5, 1.0, (360, 4)) @ rng.gamma(0.6, 1.0, (4, 12)) + 0.01
BINARY = (rng.random((360, 12)) < 0.4) * 1.0
STARS = np.where(rng.random((360, 12)) < 0.6, rng.integers(1, 6, (360, 12)), 0).astype(float)
METHODS = {
    "wide start": (algorithms.PooledNMF(3), REAL),
    "kullback-leibler": (algorithms.PooledNMF(3, loss="kullback-leibler"), np.rint(REAL) + 1),
    "itakura-saito": (algorithms.PooledNMF(3, loss="itakura-saito"), REAL),
    "half": (algorithms.PooledNMF(3, loss=0.5), REAL),
    "penalties": (algorithms.PooledNMF(3, alpha_U=1e-3, alpha_V=0, l1_ratio=0.5, tol=0.0), REAL),
    "private components": (algorithms.PooledNMF(2, n_private=1, start="random"), REAL),
    "search": (algorithms.PooledBMF(3), BINARY),
    "proximal": (algorithms.PooledBMF(3, solver="proximal"), BINARY),
    "PooledCF": (algorithms.PooledCF(3), STARS),
    "implicit": (algorithms.PooledCF(3, feedback="implicit"), STARS),
    "PooledCNMF": (algorithms.PooledCNMF(3), STARS),
    "PooledEASE": (algorithms.PooledEASE(), STARS),
    "PooledRidge": (algorithms.PooledRidge(), BINARY),
    "Popularity": (algorithms.Popularity(), STARS),
    "Biases": (algorithms.Biases(), STARS),
    "FCF": (algorithms.FCF(3), STARS),
    "FELB": (algorithms.FELB(3), BINARY),
    "FedAvgNMF": (algorithms.FedAvgNMF(3), REAL),
    "FedProxNMF": (algorithms.FedProxNMF(3), REAL),
    "DistributedNMF": (algorithms.DistributedNMF(3), REAL),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_honest_questions_are_admitted_and_the_bits_are_those_of_the_simulation(tmp_path, name):
    algorithm, rows = METHODS[name]
    owners = {"north": rows[:100], "south": rows[100:220], "west": rows[220:]}
    made = Office(tmp_path, algorithm, owners, rounds=8, protect="secure-sum", report_score=False)
    outcome = made.server(dropouts="wait").run()
    assert not outcome.rejected
    run = fedfactor.run(algorithm, owners, rounds=8, seed=5, privacy="secure-sum")
    assert (outcome.status, len(outcome.history)) == (run.status, run.rounds)
    np.testing.assert_allclose(made.factors("south").V, run.factors["south"].V, rtol=1e-12, atol=1e-14)


SPEC = {"V": Leaf("float64", (2, 3))}
ALGORITHM = algorithms.PooledNMF(2, start="random", tol=0.0)
META = Meta(3, ("a", "b", "c"))
EXPECTED = ALGORITHM.messages(META)
SERVER, DOWN = ALGORITHM.init_server(META, Round(1, 0))


@pytest.mark.parametrize(("change", "same"), [(0.0, True), (1e-12, True), (1e-8, False), (0.1, False)])
def test_floating_point_leaves_agree_within_their_tolerance(change, same):
    theirs = replace(DOWN, V=DOWN.V * (1 + change))
    assert (difference(DOWN, theirs, EXPECTED) == "") == same


def test_the_tolerance_is_that_of_the_leaf():
    theirs = replace(DOWN, V=DOWN.V * (1 + 1e-8))
    kind = type(DOWN)
    for tolerance, same in (((1e-7, 0.0), True), ((0.0, 0.0), False)):
        spec = {kind: {"V": Leaf("float64", (2, 3), tolerance=tolerance)}}
        assert (difference(DOWN, theirs, spec) == "") == same


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_and_flags_must_be_equal(dtype):
    kind = type(DOWN)
    spec = {kind: {"V": Leaf(dtype, (3,))}}
    one = replace(DOWN, V=np.array([0, 1, 1], dtype))
    assert difference(one, replace(DOWN, V=np.array([0, 1, 1], dtype)), spec) == ""
    assert difference(one, replace(DOWN, V=np.array([0, 1, 0], dtype)), spec)
    assert difference(one, replace(DOWN, V=np.array([0, 1, 1], "int32")), spec)
    assert difference(one, replace(DOWN, V=np.array([0, 1], dtype)), spec)


def test_other_parts_and_other_kinds_differ():
    assert difference(DOWN, replace(DOWN, misfit=np.float64(1)), EXPECTED)
    assert difference(DOWN, SERVER, EXPECTED)


def test_values_of_the_coordinator_are_adopted_in_the_servers_state():
    theirs = replace(DOWN, V=DOWN.V * (1 + 1e-13))
    server = adopt(SERVER, DOWN, theirs)
    np.testing.assert_array_equal(server.sent, theirs.V)
    np.testing.assert_array_equal(server.V, theirs.V)  # at the start they are one


def totals(scale=1.0):
    sums = np.abs(np.random.default_rng(3).normal(size=(40, 3)))
    U = np.abs(np.random.default_rng(4).normal(size=(40, 2)))
    kind = next(kind for kind in EXPECTED if kind.__name__ == "Sums")
    return kind(G=scale * U.T @ U, A=scale * U.T @ sums, total=np.float64(scale * (sums**2).sum()), extra=None)


def test_a_round_after_convergence_is_refused():
    """A coordinator could go on asking where an honest one stops."""
    algorithm = replace(ALGORITHM, tol=1e-2)
    replica = Replica(algorithm, META, 1, EXPECTED)
    server, total = SERVER, totals()
    for index in range(12):
        after, mine = replica.step(server, total, index)
        found, _, wrong = replica.following(server, total, index, mine)
        assert ("has converged" in wrong) == algorithm.converged(after)
        if wrong:
            assert replica.last(server, total, index, algorithm.settle(after, mine))[2] == ""
            return
        server = found
    pytest.fail("it never converged")


def test_where_rounding_decides_both_outcomes_are_admitted():
    """At the end of a run the loss rises or falls by rounding alone, and the step forks there."""
    replica = Replica(ALGORITHM, META, 1, EXPECTED)
    server, down = SERVER, DOWN
    for index in range(60):
        down = replica.step(server, totals(), index)[1]
        server = replica.step(server, totals(), index)[0]
    tie = replace(server, loss=np.float64(replica.step(server, totals(), 60)[0].loss))
    forks = [replica.step(replace(tie, loss=np.float64(np.nextafter(tie.loss, to))), totals(), 60) for to in (0, 1e9)]
    for _, mine in forks:
        assert replica.following(tie, totals(), 60, mine)[2] == ""
    far = replace(down, V=np.ascontiguousarray(down.V[:, ::-1]))
    assert replica.following(tie, totals(), 60, far)[2]


@pytest.mark.integration
@pytest.mark.federation
@pytest.mark.slow
def test_processors_that_round_differently_refuse_no_honest_question(tmp_path):
    pytest.importorskip("aiohttp")
    from claims.verified_rounding import compare, holds

    found = compare(tmp_path, 8, ["PooledNMF"])  # a hundred rounds of three methods are in the claim
    assert holds(found), found
