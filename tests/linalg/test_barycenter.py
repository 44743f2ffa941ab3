from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fedfactor.linalg.alignment.assignment import plan
from fedfactor.linalg.alignment.barycenter import (
    BARYCENTERS,
    _fixed_point,
    barycenter,
    matching_loss,
    orthogonality_gap,
)
from fedfactor.linalg.alignment.kmeans import fuzzy_means, k_means


def copies(k=10, m=60, clients=20, noise=0.0, seed=0):
    rng = np.random.default_rng([1, seed])
    truth = rng.random((k, m)) * (rng.random((k, m)) < 0.3)
    return truth, [np.maximum(truth[rng.permutation(k)] + noise * rng.normal(size=(k, m)), 0) for _ in range(clients)]


def distance(V, truth):
    return np.linalg.norm(plan(V, truth) @ V - truth) / np.linalg.norm(truth)


@pytest.mark.parametrize("how", BARYCENTERS)
@pytest.mark.parametrize("alignment", ["lap", "lap_rho", "sinkhorn", "sinkhorn_rho", "knn"])
@pytest.mark.parametrize("k", [10, 30])
def test_permuted_copies_have_an_exact_middle(how, alignment, k):
    truth, Vs = copies(k, clients=8)
    V, plans, support = barycenter(Vs, how, alignment)
    soft = alignment == "sinkhorn"
    assert distance(V, truth) < (1e-3 if soft else 1e-12)
    np.testing.assert_allclose(support, 8, rtol=1e-6)
    assert orthogonality_gap(plans) < (1e-2 if soft else 1e-6)


def test_each_iteration_lowers_the_loss():
    _, Vs = copies(30, noise=0.5)
    losses = [matching_loss(barycenter(Vs, "fixed_point", iterations=t)[0], Vs) for t in range(1, 6)]
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(losses))
    assert losses[-1] < losses[0]


def test_the_fixed_point_ends_with_the_first_step_that_is_short_enough():
    _, Vs = copies(6, 30, clients=5, noise=0.5)

    def after(iterations, tol):
        return _fixed_point(Vs, "knn", [1.0, 2.0, 1.0, 3.0, 1.0], None, iterations, tol, {"neighbours": 3})[0]

    middles = [Vs[0], *(after(t, 0.0) for t in range(1, 7))]
    moves = [np.linalg.norm(new - old) / np.linalg.norm(old) for old, new in pairwise(middles)]
    assert moves[0] > moves[1] > moves[2] > 0
    for place, move in enumerate(moves[:3]):
        np.testing.assert_array_equal(after(50, move * (1 + 1e-9)), middles[place + 1])


@pytest.mark.slow
def test_soft_alignments_win_by_their_own_loss_and_not_by_the_truth():
    truth, Vs = copies(30, noise=0.5)
    found = {
        name: barycenter(Vs, "fixed_point", alignment, **options)[0]
        for name, alignment, options in [
            ("lap", "lap", {}),
            ("sk", "sinkhorn", {}),
            ("1nn", "knn", {}),
            ("3nn", "knn", {"neighbours": 3}),
        ]
    }
    hard = matching_loss(found["lap"], Vs)
    assert matching_loss(found["sk"], Vs, "sinkhorn") < hard
    assert matching_loss(found["1nn"], Vs, "knn") < hard
    assert matching_loss(found["3nn"], Vs, "knn", neighbours=3) < matching_loss(found["1nn"], Vs, "knn")
    best = distance(found["lap"], truth)
    assert distance(found["sk"], truth) > 0.99 * best
    assert distance(found["1nn"], truth) > 1.2 * best
    assert distance(found["3nn"], truth) > 1.2 * best


def test_weights_count():
    truth, _ = copies(4)
    V, _, _ = barycenter([truth, 3 * truth[::-1]], weights=[3, 1])
    np.testing.assert_allclose(V, 1.5 * truth)


def test_rows_that_some_leave_alone_are_not_shrunk():
    truth, _ = copies(4, m=100)
    rng = np.random.default_rng(5)
    lacking = truth.copy()
    lacking[0] = rng.random(100) * (rng.random(100) < 0.1)
    V, plans, support = barycenter([truth, truth, lacking], alignment="lap_rho")
    np.testing.assert_allclose(V, truth)
    np.testing.assert_array_equal(support, [2, 3, 3, 3])
    assert plans[2][0].sum() == 0


def test_a_row_that_only_the_first_lacks_is_found():
    truth, _ = copies(4, m=100)
    rng = np.random.default_rng(5)
    first = truth.copy()
    first[2] = rng.random(100) * (rng.random(100) < 0.1)
    V, _, support = barycenter([first, truth, truth[::-1]], alignment="lap_rho")
    assert distance(V, truth) < 1e-12
    assert sorted(support.tolist()) == [2, 3, 3, 3]


@pytest.mark.parametrize("how", BARYCENTERS)
def test_the_order_of_the_start_is_kept(how):
    truth, Vs = copies(8, noise=0.05)
    V, _, _ = barycenter(Vs, how, start=truth)
    np.testing.assert_array_equal(plan(V, truth), np.eye(8))


def test_clusters_of_clear_groups():
    truth, Vs = copies(5, clients=10, noise=0.01)
    rng = np.random.default_rng(0)
    assert distance(fuzzy_means(np.vstack(Vs), 5, rng), truth) < 0.05
    assert distance(k_means(np.vstack(Vs), 5, rng), truth) < 0.9
    assert k_means(np.ones((4, 2)), 3, rng).tolist() == [[1, 1]] * 3  # fewer places than centres


def test_bad_input():
    with pytest.raises(ValueError, match="at least one factor"):
        barycenter([])
    with pytest.raises(ValueError, match="one positive weight for each of the 2"):
        barycenter([np.eye(2)] * 2, weights=[1])
    with pytest.raises(ValueError, match="how='magic' is not known"):
        barycenter([np.eye(2)], "magic")
