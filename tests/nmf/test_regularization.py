"""What U and V of PooledNMF pay, against sums written out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core.algorithm import Meta
from fedfactor.linalg.missing_values import Penalty
from fedfactor.nmf.pooled.regularization import (
    column_lengths,
    misfit_after,
    paid,
    pay_of_U,
    pay_of_V,
    price,
    weight_of,
)
from fedfactor.testing.data import federation_for, small_data, variants

rng = np.random.default_rng(0)
U, V, X = rng.random((5, 2)), rng.random((2, 4)), rng.random((5, 4))
MASK = rng.random((5, 4)) < 0.7
MASK[:, 0] = True


@pytest.mark.parametrize("share", [{"ridge": 0.3}, {"scarce": 0.3}, {"few": 0.3}, {"ridge": 0.1, "few": 0.2}])
def test_a_ridge_counts_where_cells_are_missing(share):
    pay = Penalty(l1=0.5, l2=np.array([1.0, 2.0]), **share)
    plain = 2 * 0.5 * U.sum() + (U**2).sum(axis=0) @ [1.0, 2.0]
    expected = plain
    for u, seen in zip(U, MASK, strict=True):
        cells = seen.sum()
        square = (V[:, seen] ** 2).sum() / len(V)
        expected += (pay.ridge + pay.scarce / cells + pay.few / cells**2) * square * (u**2).sum()
    assert float(paid(U, pay, X, MASK, V)) == pytest.approx(expected)
    assert float(paid(U, pay, X, None, V)) == pytest.approx(plain)
    # A pass over the rows may have told the ridge already.
    assert float(paid(U, pay, X, MASK, V, ridge=7.0)) == pytest.approx(plain + 7)


def test_without_a_ridge_missing_cells_cost_nothing():
    assert float(paid(U, Penalty(l1=1.0), X, MASK, V, ridge=7.0)) == pytest.approx(2 * U.sum())


def test_v_pays_for_every_row():
    def pay(**settings):
        return pay_of_V(PooledNMF(2, **settings), 10.0)

    assert pay(alpha_U=0.2, l1_ratio=0.25) == pytest.approx((0.5, 1.5))
    assert pay(alpha_U=0.2, alpha_V=0.4, l1_ratio=0.25) == pytest.approx((1.0, 3.0))
    assert pay(alpha_U=0.2, alpha_V=0) == (0.0, 0.0)
    assert pay_of_V(SimpleNamespace(alpha_U=0.0, alpha_V="same", l1_ratio=0.5), float("nan")) == (0.0, 0.0)
    assert price(V, (0.5, 2.0)) == pytest.approx(0.5 * V.sum() + (V**2).sum())
    assert price(V, (0.0, 2.0)) == pytest.approx((V**2).sum())
    assert price(V, (0.5, 0.0)) == pytest.approx(0.5 * V.sum())


def test_lengths_of_columns_are_sums_and_squares():
    np.testing.assert_allclose(column_lengths(U), [U.sum(axis=0), (U**2).sum(axis=0)])


def test_what_one_row_of_an_owner_counts():
    meta = Meta(4, ("a", "b"), n_rows=40)
    assert weight_of("rows", "a", 10, meta) == 1.0
    assert weight_of("mean", "a", 10, meta) == 0.1
    assert weight_of("equal", "a", 10, meta) == 2.0
    assert weight_of("equal", "a", 10, Meta(4, ("a", "b"))) == 0.1
    assert (weight_of("mean", "a", 0, meta), weight_of("equal", "a", 0, meta)) == (1.0, 20.0)
    assert weight_of({"a": 3, "b": 1}, "a", 10, meta) == 3.0


def test_u_pays_for_every_feature_and_more_for_components_of_an_owners_own():
    pay = pay_of_U(PooledNMF(2, alpha_U=0.1, l1_ratio=0.25, n_private=1, private_penalty=0.5, ridge=0.2), 10)
    assert (pay.l1, pay.ridge, pay.scarce, pay.few) == (0.25, 0.2, 0.0, 0.0)
    np.testing.assert_allclose(pay.l2, [0.75, 0.75, 1.25])
    assert len(pay_of_U(PooledNMF(2), 10, width=5).l2) == 5
    counts = pay_of_U(PooledNMF(2, loss="kullback-leibler", alpha_U=0.1, n_private=1, private_penalty=0.5), 10)
    np.testing.assert_allclose(counts.l1, [0.0, 0.0, 0.5])
    assert counts.l2 == 1.0
    assert np.ndim(pay_of_U(PooledNMF(2, n_private=1), 10, width=2).l2) == 0


def test_the_ridge_follows_from_what_is_left_unexplained():
    auto = PooledNMF(2)
    assert pay_of_U(auto, 10, misfit=0.5)[2:] == pytest.approx((0.0, 4 * 0.5 * 2, 0.01 * 4))
    assert pay_of_U(auto, 10)[2:] == pytest.approx((0.0, 4 * 0.001 * 2, 0.01 * 4))
    assert pay_of_U(PooledNMF(2, misfit=0.25), 10).scarce == pytest.approx(2.0)
    assert pay_of_U(PooledNMF(2, n_private=1), 10, misfit=0.5)[3:] == pytest.approx((4 * 0.5 * 3, 0.01 * 9))


def test_the_share_that_is_left_never_rises():
    def after(sse, total):
        return float(misfit_after(np.float64(0.5), SimpleNamespace(sse=sse, total=total)))

    assert [after(*pair) for pair in ((1.0, 4.0), (3.0, 4.0), (0.125, 0.5))] == [0.25, 0.5, 0.25]
    assert [after(*pair) for pair in ((None, 4.0), (1.0, None), (1.0, 0.0), (1.0, np.nan))] == [0.5] * 4


def _all_but_one(at, names):
    """Let one owner stay away in every second round."""
    return names if at.index % 2 == 0 else tuple(name for i, name in enumerate(names) if i != at.index % len(names))


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"loss": 3.0, "alpha_U": 1.0, "alpha_V": 2.0}, "masked"),
        ({"loss": 2.5, "alpha_U": 0.05, "l1_ratio": 0.5}, "sparse"),
    ],
)
def test_penalties_that_leave_nothing_leave_zeros(settings, kind):
    """With missing cells and owners who stay away, too: no length of nothing is a number that V could be divided by."""
    method = PooledNMF(2, **settings)
    rows = variants(method, small_data(method.domain))[kind]
    owners = federation_for(method, rows, np.nan if kind == "masked" else None)
    run = fedfactor.run(method, owners, rounds=20, seed=4, participation=_all_but_one)
    assert np.abs(run.V).max() < 1e-6
    assert all(np.isfinite(kept.U).all() for kept in run.factors.values())
