from __future__ import annotations

import numpy as np

from fedfactor.recommend.feddmf import network as dmf


def naive(net, p, q):
    """One pair as the paper draws it: two layers, joined end to end, one layer, one unit."""
    a = np.maximum(p @ net["user_weight"] + net["user_bias"], 0)
    b = np.maximum(q @ net["item_weight"] + net["item_bias"], 0)
    joined = np.concatenate([a, b]) @ np.concatenate([net["join_user"], net["join_item"]]) + net["join_bias"]
    return 1 / (1 + np.exp(-(np.maximum(joined, 0) @ net["out"] + net["level"])))


def test_probabilities_are_those_of_the_network_as_drawn():
    rng = np.random.default_rng(0)
    net = dmf.draw_network(3, 5, rng)
    P, Q = rng.normal(size=(4, 3)), rng.normal(size=(6, 3))
    expected = [[naive(net, p, q) for q in Q] for p in P]
    np.testing.assert_allclose(dmf.probabilities(net, P, Q), expected)


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    net = dmf.draw_network(3, 5, rng)
    P, Q = rng.normal(size=(7, 3)), rng.normal(size=(6, 3))
    whole = dmf.probabilities(net, P, Q)
    monkeypatch.setattr(dmf, "_CELLS", 60)
    np.testing.assert_allclose(dmf.probabilities(net, P, Q), whole)


def test_no_users_give_an_empty_matrix():
    net = dmf.draw_network(3, 5, np.random.default_rng(0))
    assert dmf.probabilities(net, np.zeros((0, 3)), np.zeros((4, 3))).shape == (0, 4)
