"""How boldly V is extrapolated, and for whom sums speak when some clients are away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfactor.algorithms import PooledNMF
from fedfactor.core.algorithm import Meta, Round
from fedfactor.linalg.nnls import solve_rows
from fedfactor.nmf.pooled.extrapolation import (
    Extrapolation,
    as_leaf,
    beside,
    cohort,
    is_zero,
    margin,
    stand_in,
)
from fedfactor.nmf.pooled.losses.squared_error import SquaredError, Sums


def test_it_speeds_up_while_the_loss_falls_and_slows_down_when_it_rises():
    pace = Extrapolation(0.8, 1.0, 2)
    faster = pace.after(9.0, 10.0, tol=0.0)
    assert (faster.beta, faster.most, faster.good) == (pytest.approx(0.84), 1.0, True)
    slower = pace.after(11.0, 10.0, tol=0.0)
    assert (slower.beta, slower.most, slower.good) == (pytest.approx(0.8 / 1.5), 0.8, False)
    # It may not grow past what failed but by five per cent a round.
    again = slower.after(9.0, 11.0, tol=0.0)
    assert (again.beta, again.most) == (pytest.approx(0.56), pytest.approx(0.84))
    for _ in range(40):
        again = again.after(9.0, 10.0, tol=0.0)
    assert again.beta == again.most == 1.0


def test_it_counts_rounds_that_hardly_help():
    pace = Extrapolation(0.5, 1.0, 1)
    assert pace.after(9.9999, 10.0, tol=1e-4).flat == 2
    assert pace.after(9.9, 10.0, tol=1e-4).flat == 0
    assert pace.after(10.1, 10.0, tol=1e-4).flat == 0
    assert pace.after(9.9999, np.inf, tol=1e-4).flat == 0
    unseen = pace.after(None, 10.0, tol=1e-4)
    assert (unseen.beta, unseen.flat, unseen.good) == (0.5, 0, False)


def test_those_who_stay_away_speak_through_the_last_sums():
    last, now = Sums(np.full((1, 1), 8.0), np.full((1, 2), 4.0)), Sums(np.full((1, 1), 2.0), np.full((1, 2), 3.0))
    blended = stand_in(now, 0.25, last)
    assert (float(blended.G[0, 0]), float(blended.A[0, 0])) == (0.75 * 8 + 2, 0.75 * 4 + 3)
    alone = stand_in(now, 0.25, None)
    assert float(alone.G[0, 0]) == 8.0
    assert stand_in(now, 1.0, last) is now


def test_the_server_blends_when_a_client_is_away():
    rng = np.random.default_rng(0)
    meta = Meta(4, ("a", "b"), n_rows=20)
    algorithm = PooledNMF(2, start="random", server_steps=3)
    state, _ = algorithm.init_server(meta, Round(0, 0, None, meta.clients))

    def upload(rows):
        U, X = rng.random((rows, 2)), rng.random((rows, 4))
        return Sums(U.T @ U, U.T @ X, total=np.float64(np.sum(X**2)))

    both, one = upload(20), upload(10)
    state, _ = algorithm.server_step(state, both, Round(0, 0, None, ("a", "b")))
    assert int(state.cohort) == cohort(("a", "b"))
    after, down = algorithm.server_step(state, one, Round(0, 1, None, ("a",)))
    G, A = 0.5 * both.G + one.G, 0.5 * both.A + one.A
    V = solve_rows(state.sent.T, G, A.T, sweeps=3).T
    np.testing.assert_allclose(down.V, V / np.linalg.norm(V, axis=1, keepdims=True), rtol=1e-12)
    assert int(after.flat) == 0


@pytest.mark.parametrize(("loss", "before"), [(9.0, 10.0), (11.0, 10.0), (9.9999, 10.0), (10.0, np.inf)])
def test_a_card_is_told_the_same_as_the_processor(loss, before):
    torch = pytest.importorskip("torch")

    def there(number):
        return torch.tensor(number, dtype=torch.float64)

    plain = Extrapolation(0.7, 0.72, 2).after(loss, before, tol=1e-4)
    pace = Extrapolation(*beside(there(0.0), 0.7, 0.72), there(2.0)).after(there(loss), there(before), tol=1e-4)
    found = [float(each) for each in (pace.beta, pace.most, pace.flat, pace.good)]
    assert found == pytest.approx([plain.beta, plain.most, plain.flat, float(plain.good)], rel=1e-14)
    assert float(margin(5.0, there(loss))) == margin(5.0, loss)
    assert as_leaf(pace.beta) is pace.beta
    assert not is_zero(there(0.0))


def test_the_loss_counts_what_else_owners_pay_and_what_v_pays():
    """Told from sums alone: the squares left, the owners' own part, and twice the price of the new V."""
    rng = np.random.default_rng(0)
    U, X, V = rng.random((9, 2)), rng.random((9, 5)), rng.random((2, 5))
    up = Sums(U.T @ U, U.T @ X, total=np.float64(np.sum(X**2)), extra=np.float64(0.7))
    for share, pay in ((1.0, (0.0, 0.0)), (1.0, (0.2, 0.3)), (0.5, (0.2, 0.3))):
        step = SquaredError().step(V, up, up, share, 3, pay)
        left = np.sum((X - U @ step.V) ** 2)
        paid = pay[0] * step.V.sum() + pay[1] / 2 * np.sum(step.V**2)
        assert step.sse == pytest.approx(left, rel=1e-12)
        assert step.loss == pytest.approx(left + 0.7 + 2 * share * paid, rel=1e-12)
    without = SquaredError().step(V, replace(up, total=None), up, 1.0, 3, (0.2, 0.3))
    assert (without.loss, without.sse) == (None, None)
