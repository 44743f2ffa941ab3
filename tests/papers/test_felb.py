"""FELB.paper, FALB.paper and the votes agree with an implementation written from the paper alone."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import FALB, FELB, BooleanVotes
from fedfactor.boolean.proximal_maps import elastic_prox
from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Federation
from fedfactor.datasets.boolean_tiles import even_tiles
from tests.papers import felb_reference as paper


@pytest.fixture(scope="module")
def owners():
    return even_tiles(90, 30, 3, 3, flips=0.05, dense=0.9, seed=0).owners


def starts(algorithm, owners):
    federation = Federation(owners)
    meta = federation.prepare(algorithm.domain)
    made = [algorithm.init_client(federation.shard(c), meta, Round(0, 0, c)) for c in meta.clients]
    return [owners[c] for c in meta.clients], [one.U for one in made], [one.V for one in made]


def test_proximal_operators():
    z = np.linspace(-1, 2, 601)
    assert np.abs(elastic_prox(z, 0.03, 0.4, printed=True) - paper.prox(z, 0.03, 0.4)).max() < 1e-12
    inside = np.linspace(0, 1, 1001)
    found = elastic_prox(inside, 0.03, 0.4, gamma=10.0, eps=0.0, printed=True)
    assert np.abs(found - paper.adaptive_prox(inside, 0.03, 0.4)).max() < 1e-12


@pytest.mark.parametrize("rounds", [1, 3, 20])
@pytest.mark.parametrize(("kind", "prox"), [(FELB, paper.prox), (FALB, paper.adaptive_prox)])
def test_algorithm_1(owners, kind, prox, rounds):
    literal = kind.paper(3, tol=0.0)
    As, Us, Vs = starts(literal, owners)
    assert all(U.max() > 0.9 for U in Us)
    shared = paper.felb(As, Us, Vs, rounds, 10, prox=prox)
    # The run ends with V rounded; the relaxed V is what the server sent last.
    found = relaxed(literal, owners, rounds)
    assert np.abs(found - shared).max() < 1e-12
    assert (fedfactor.run(literal, owners, rounds=rounds, seed=0).V == (shared > 0.5)).all()


def relaxed(algorithm, owners, rounds):
    """Drive the algorithm itself, client by client, and return the last V that was sent."""
    federation = Federation(owners)
    meta = federation.prepare(algorithm.domain)
    states = {c: algorithm.init_client(federation.shard(c), meta, Round(0, 0, c)) for c in meta.clients}
    server, down = algorithm.init_server(meta, Round(0, 0))
    for index in range(rounds):
        ups = []
        for c in meta.clients:
            states[c], up = algorithm.client_step(federation.shard(c), states[c], down, Round(0, index, c))
            ups.append(up)
        total = type(ups[0])(sum(up.V for up in ups), sum(up.weight for up in ups))
        server, down = algorithm.server_step(server, total, Round(0, index, participants=meta.clients))
    return down.V


def test_the_defaults_are_a_variant(owners):
    assert np.abs(relaxed(FELB(3, start="random"), owners, 3) - relaxed(FELB.paper(3), owners, 3)).max() > 0.1


def test_falb_with_a_bounded_rate_is_another_reading(owners):
    literal, bounded = FALB.paper(3), FALB.paper(3, eps=0.01)
    assert 1e-3 < np.abs(relaxed(literal, owners, 3) - relaxed(bounded, owners, 3)).max() < 0.5


@pytest.mark.parametrize("rule", ["majority", "average", "or"])
def test_votes(owners, rule):
    method = BooleanVotes.paper(3, "grecond", vote=rule)
    federation = Federation(owners)
    meta = federation.prepare(method.domain)
    _, down = method.init_server(meta, Round(0, 0))
    ups = []
    for c in meta.clients:
        shard, at = federation.shard(c), Round(0, 0, c)
        ups.append(method.client_step(shard, method.init_client(shard, meta, at), down, at)[1])
    mine = paper.vote([np.asarray(up.V, float) for up in ups], rule)
    assert (np.asarray(fedfactor.run(method, owners, seed=0).V) == mine).all()
