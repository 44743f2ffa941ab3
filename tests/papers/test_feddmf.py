"""FedDMF.paper agrees with an implementation written from the paper alone."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.algorithms import FedDMF
from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Federation
from fedfactor.recommend.feddmf import training
from fedfactor.recommend.feddmf.messages import Vectors
from tests.papers import feddmf_reference as paper

pytest.importorskip("torch")
N_USERS, N_ITEMS = 12, 9


@pytest.fixture(scope="module")
def owners():
    rng = np.random.default_rng(0)
    return {name: (rng.random((N_USERS, N_ITEMS)) < 0.4).astype(float) for name in "ab"}


def begin(method, owners):
    federation = Federation(owners)
    meta = federation.prepare(method.domain)
    return federation, meta, method.init_client(federation.shard("a"), meta, Round(0, 0, "a"))


def cells(size, seed=1):
    rng = np.random.default_rng(seed)
    y = (rng.random(size) < 0.3).astype(float)
    return rng.integers(N_USERS, size=size), rng.integers(N_ITEMS, size=size), y


@pytest.mark.parametrize("beta", [0.0, 100.0])
def test_three_steps_of_equations_1_2_4_5(owners, beta):
    literal = FedDMF.paper(4, hidden=6, dropout=0.0, beta=beta, batch_size=32)
    _, _, state = begin(literal, owners)
    rng = np.random.default_rng(3)
    place, z = np.arange(7), rng.standard_normal((7, 4))
    rows, items, y = cells(96)
    batches = [(rows[i : i + 32], items[i : i + 32], y[i : i + 32]) for i in (0, 32, 64)]
    expected = paper.train(state.weights, batches, place, z, beta, 0.2, 0.001)
    found = training.train(literal, state, (rows, items, y), (place, z), 0.0, (), 0).weights
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() < 1e-12, name


def test_the_gradient_of_the_reference_is_that_of_its_loss(owners):
    _, _, state = begin(FedDMF.paper(4, hidden=6), owners)
    rows, items, y = cells(40)
    rest = (rows, items, y, np.arange(7), np.random.default_rng(3).standard_normal((7, 4)), 100.0, 0.2)
    g = paper.gradient(state.weights, *rest)
    for name, value in state.weights.items():
        place = (0,) * np.ndim(value)
        losses = []
        for side in (1e-6, -1e-6):
            moved = {**state.weights, name: np.array(value)}
            moved[name][place] += side
            losses.append(paper.loss(moved, *rest))
        assert (losses[0] - losses[1]) / 2e-6 == pytest.approx(np.asarray(g[name])[place], abs=1e-6), name


def test_drawn_pairs_are_a_variant_with_the_same_mean(owners):
    literal = FedDMF.paper(4, hidden=6, dropout=0.0)
    _, _, state = begin(literal, owners)
    z = np.random.default_rng(3).standard_normal((7, 4))
    rows, items, y = cells(32)
    outs = [
        training.train(FedDMF.paper(4, hidden=6, dropout=0.0, pairs=pairs), state, (rows, items, y), (np.arange(7), z),
                       0.0, (), 0).weights["Q"]
        for pairs in (None, 2)
    ]  # fmt: skip
    assert np.abs(outs[0] - outs[1]).max() > 1e-6
    assert literal.pairs is None
    assert FedDMF(4).pairs == 256


def test_equation_3(owners):
    method = FedDMF(4, hidden=6, average=True, share="network")
    federation, meta, _ = begin(method, owners)
    server, down = method.init_server(meta, Round(0, 0))
    states = {c: method.init_client(federation.shard(c), meta, Round(0, 0, c)) for c in meta.clients}
    for index in range(2):
        ups = []
        for c in meta.clients:
            states[c], up = method.client_step(federation.shard(c), states[c], down, Round(0, index, c))
            ups.append(up)
        server, down = method.server_step(server, added(ups), Round(0, index, participants=meta.clients))
    mean = paper.federated_average([states[c].weights["Q"] for c in meta.clients])
    assert np.abs(down.total / down.count[:, None] - mean).max() < 1e-12
    for name, value in down.net.items():
        assert np.abs(value - paper.federated_average([states[c].weights[name] for c in meta.clients])).max() < 1e-12


def added(ups):
    """Sum messages leaf by leaf, as every engine does."""
    first = ups[0]
    if not isinstance(first, Vectors):
        return type(first)(sum(up.count for up in ups))
    net = {name: sum(up.net[name] for up in ups) for name in first.net}
    return Vectors(sum(up.Q for up in ups), sum(up.count for up in ups), net, sum(up.weight for up in ups))
