"""The low-rank form of PooledEASE: some entries of the Gram matrix instead of all."""

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor.algorithms import PooledEASE
from fedfactor.recommend.item_weights import gram_pairs, item_weights, likely_pairs, pair_weights, which_pairs


def clicks(n=300, m=200, seed=0, least=0.0):
    """Users of five tastes, items of unlike popularity."""
    rng = np.random.default_rng(seed)
    popular = np.clip(1.5 / np.arange(1, m + 1) ** 0.7, least, 0.5)
    taste = 0.3 + 2.0 * (rng.integers(0, 5, n)[:, None] == rng.integers(0, 5, m)[None, :])
    return sparse.csr_array((rng.random((n, m)) < popular * taste).astype(float))


def split(X, owners=3):
    return {str(i): X[part] for i, part in enumerate(np.array_split(np.arange(X.shape[0]), owners))}


def weights(run):
    kept = next(iter(run.factors.values()))
    B = kept.F @ kept.V
    np.fill_diagonal(B, 0.0)
    return B


def gram(m, d, seed=0):
    Z = clicks(m=m, seed=seed)
    G = (Z.T @ Z).toarray()
    return Z, G, *likely_pairs(np.diag(G), d)


def stands_for(G, order, depth):
    """Fill in what was not sent: item by item, by what its known pairs explain of the first items."""
    d, known = int(depth.max()), which_pairs(depth)
    full = np.zeros((len(order), d))
    for place, item in enumerate(order):
        first = order[: depth[place]]
        T = np.linalg.cholesky(G[np.ix_(first, first)])
        full[place, : len(first)] = np.linalg.solve(T, G[first, item])
    S = np.empty_like(G)
    S[np.ix_(order, order)] = full @ full.T
    np.fill_diagonal(S, np.diag(G))
    sent = np.zeros_like(G, bool)
    sent[np.ix_(order[:d], order)] = known
    np.testing.assert_allclose(S[sent], G[sent], atol=1e-9)
    return S


def test_weights_are_those_of_the_matrix_that_the_pairs_stand_for():
    Z, G, order, depth = gram(40, 15)
    assert 1 < depth[20] < depth[15] <= 15  # light items have fewer pairs
    F, H = pair_weights(gram_pairs(Z, order, depth), np.diag(G), order, depth, 5.0)
    off = ~np.eye(40, dtype=bool)
    np.testing.assert_allclose((F @ H)[off], item_weights(stands_for(G, order, depth), 5.0)[0][off], atol=1e-6)


def test_each_pair_is_sent_once_and_none_that_chance_makes_rarer():
    Z, G, order, depth = gram(40, 6)
    marked = which_pairs(depth)
    assert len(gram_pairs(Z, order, depth)) == marked.sum()
    heavy = np.diag(G)[order]
    chance = np.outer(heavy[:6], heavy)
    assert marked[0].all()  # every item has at least one pair
    away = np.triu(np.ones_like(marked), 1)[1:]
    assert chance[1:][marked[1:] & away].min() >= heavy[5] ** 2 > chance[1:][~marked[1:] & away].max()


def test_items_that_the_same_users_touched():
    X = clicks(m=20).toarray()
    X[:, 1] = X[:, 0]
    Z = sparse.csr_array(X)
    G = (Z.T @ Z).toarray()
    order, depth = likely_pairs(np.diag(G), 20)
    B, off = item_weights(G, 5.0)[0], ~np.eye(20, dtype=bool)
    F, H = pair_weights(gram_pairs(Z, order, depth), np.diag(G), order, depth, 5.0)
    np.testing.assert_allclose((F @ H)[off], B[off], atol=1e-6)


def test_all_pairs_give_the_whole_form():
    owners = split(clicks(m=40))
    whole = fedfactor.run(PooledEASE(ridge=40.0), owners, seed=0)
    every = fedfactor.run(PooledEASE(40), owners, seed=0)
    np.testing.assert_allclose(weights(every), whole.V, atol=1e-6)


def test_more_pairs_come_closer():
    owners = split(clicks())
    whole = fedfactor.run(PooledEASE(ridge=40.0), owners, seed=0).V
    off = [np.linalg.norm(weights(fedfactor.run(PooledEASE(d), owners, seed=0)) - whole) for d in (5, 40, 120)]
    assert off[0] > off[1] > off[2]


@pytest.mark.filterwarnings("ignore::fedfactor.privacy.PrivacyWarning")
@pytest.mark.parametrize("privacy", [None, "secure-sum"])
def test_owners_together_find_what_one_would_and_a_tenth_is_sent(privacy):
    X = clicks(400, 300, least=0.15)
    owners = split(X, 5)
    method = PooledEASE("auto")
    alone = fedfactor.run(method, {"all": X}, seed=0)
    auto = fedfactor.run(method, owners, seed=0, privacy=privacy)
    whole = fedfactor.run(PooledEASE(), owners, seed=0, privacy=privacy)
    assert auto.rounds == whole.rounds + 1 == 3
    assert auto.bytes_up <= (0.1 if privacy is None else 0.11) * whole.bytes_up  # keys of masks come on top
    np.testing.assert_allclose(weights(auto), weights(alone), atol=1e-10 if privacy is None else 1e-6)


def test_no_item_of_enough_users():
    run = fedfactor.run(PooledEASE(2, min_users=50), split(clicks(30, 10)), seed=0)
    assert not weights(run).any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedfactor.privacy.PrivacyWarning")
def test_under_noise_there_are_two_exchanges():
    X = clicks(200, 30)
    noise = fedfactor.dp(50.0, 1e-5, row_bound=2.0, rows=200, noise_seed=0)
    run = fedfactor.run(PooledEASE(5, min_users=1), split(X), rounds=2, seed=0, privacy=noise)
    assert run.rounds == 2
    assert np.isfinite(weights(run)).all()


def test_what_one_row_adds_stays_within_the_announced_sensitivity():
    rng = np.random.default_rng(0)
    for _ in range(50):
        z = sparse.csr_array(rng.random((1, 12)) ** 4)
        order, depth = likely_pairs(rng.random(12), int(rng.integers(1, 12)))
        assert np.linalg.norm(gram_pairs(z, order, depth)) <= z.power(2).sum() + 1e-12
