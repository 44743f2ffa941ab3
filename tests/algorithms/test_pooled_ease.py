"""The low-rank form of PooledEASE: some rows of the Gram matrix instead of all."""

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor.algorithms import PooledEASE
from fedfactor.kernels.ratings.item_weights import gram_strip, item_weights, strip_weights


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


def test_weights_of_a_strip_are_those_of_the_matrix_that_it_stands_for():
    Z = clicks(m=30)
    G, chosen = (Z.T @ Z).toarray(), np.array([0, 2, 3, 11])
    rows, rest = gram_strip(Z, chosen)
    np.testing.assert_array_equal(rest, np.delete(np.diag(G), chosen))
    explained = G[:, chosen] @ np.linalg.solve(G[np.ix_(chosen, chosen)], G[chosen])
    stands_for = explained + np.diag(np.diag(G) - np.diag(explained))
    np.testing.assert_allclose(stands_for[chosen], G[chosen], atol=1e-10)
    F, H = strip_weights(rows, chosen, np.diag(G), 5.0)
    off = ~np.eye(30, dtype=bool)
    np.testing.assert_allclose((F @ H)[off], item_weights(stands_for, 5.0)[0][off], atol=1e-9)


def test_items_that_the_same_users_touched_may_all_be_chosen():
    X = clicks(m=20).toarray()
    X[:, 1] = X[:, 0]
    Z = sparse.csr_array(X)
    G = (Z.T @ Z).toarray()
    F, H = strip_weights(G[:5], np.arange(5), np.diag(G), 5.0)
    B, off = item_weights(G, 5.0)[0], ~np.eye(5, dtype=bool)
    assert np.isfinite(F @ H).all()
    assert np.abs((F @ H)[:5, :5] - B[:5, :5])[off].max() < 0.1


def test_all_rows_give_the_whole_form():
    owners = split(clicks(m=40))
    whole = fedfactor.run(PooledEASE(), owners, seed=0)
    strip = fedfactor.run(PooledEASE(40), owners, seed=0)
    np.testing.assert_allclose(weights(strip), whole.V, atol=1e-8)


def test_more_rows_come_closer():
    owners = split(clicks())
    whole = fedfactor.run(PooledEASE(), owners, seed=0).V
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
    assert auto.rounds == 5
    assert (
        auto.bytes_up <= (0.1 if privacy is None else 0.12) * whole.bytes_up
    )  # each exchange has keys of masks on top
    np.testing.assert_allclose(weights(auto), weights(alone), atol=1e-10 if privacy is None else 1e-6)


def test_first_the_items_of_most_users_then_what_these_explain_least():
    X = clicks(m=50)
    users = np.bincount(X.indices, minlength=50)
    at_once = fedfactor.run(PooledEASE(8, min_users=1, exchanges=1), split(X), seed=0)
    assert set(at_once.down.chosen) == set(np.argsort(-users, kind="stable")[:8])
    X = X.toarray()
    X[:, np.argsort(-users)[1]] = X[:, np.argsort(-users)[0]]  # the first explains the second
    parts = fedfactor.run(PooledEASE(8, min_users=1, exchanges=8), split(sparse.csr_array(X)), seed=0)
    assert parts.rounds == 9
    assert len(set(np.argsort(-users)[:2]) & set(parts.down.chosen)) == 1


def test_no_item_of_enough_users():
    run = fedfactor.run(PooledEASE(2, min_users=50), split(clicks(30, 10)), seed=0)
    assert not weights(run).any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedfactor.privacy.PrivacyWarning")
def test_under_noise_two_exchanges_each_no_larger_than_a_row_squared():
    X = clicks(200, 30)
    noise = fedfactor.dp(50.0, 1e-5, row_bound=2.0, rows=200, noise_seed=0)
    run = fedfactor.run(PooledEASE(5, min_users=1, exchanges=1), split(X), rounds=2, seed=0, privacy=noise)
    assert run.rounds == 2
    assert np.isfinite(weights(run)).all()


def test_what_one_row_adds_stays_within_the_announced_sensitivity():
    rng = np.random.default_rng(0)
    for _ in range(50):
        z = sparse.csr_array(rng.random((1, 12)) ** 4)
        rows, rest = gram_strip(z, np.sort(rng.choice(12, rng.integers(1, 12), replace=False)))
        assert np.sqrt((rows**2).sum() + (rest**2).sum()) <= z.power(2).sum() + 1e-12
