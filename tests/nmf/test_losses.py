"""Every loss of PooledNMF: against a naive formula, never uphill, the same however rows are cut, laid out or owned."""

from __future__ import annotations

import tracemalloc
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import NMF

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.cli.parameter_parsing import build
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import DataError
from fedfactor.core.pytree import leaves, tree_sum
from fedfactor.linalg.missing_values import Penalty
from fedfactor.nmf.pooled import initialization as start
from fedfactor.nmf.pooled.losses import LOSSES, find_loss
from fedfactor.nmf.pooled.losses import kullback_leibler_kernels as counts
from fedfactor.nmf.pooled.losses.divergence_kernels import divergence_rows, divergence_step, divergence_sums
from fedfactor.nmf.pooled.losses.multiplicative import MultiplicativeLoss
from fedfactor.nmf.pooled.losses.squared_error import MissingCells

EVERY = [*(kind() for kind in LOSSES.values()), *(find_loss(beta) for beta in (-0.5, 1.5, 3.0))]


def setting_of(loss):
    return getattr(loss, "beta", loss.name)


def order_of(loss):
    return getattr(loss, "beta", loss.order)


@pytest.fixture(params=EVERY, ids=lambda loss: f"{type(loss).__name__} {setting_of(loss)}")
def loss(request):
    return request.param


@pytest.mark.parametrize("each", [*EVERY, MissingCells()], ids=lambda each: f"{type(each).__name__} {setting_of(each)}")
def test_clients_say_what_they_pay_when_u_pays_for_anything(each):
    assert not each.pays(0.0, 0, 0.0)
    assert each.pays(0.01, 0, 0.0)
    assert each.pays(0.0, 1, 0.0)
    for ridge in (0.01, 1.0, "auto"):
        assert each.pays(0.0, 0, ridge) == isinstance(each, MissingCells)


def data(seed=0, n=30, m=8, k=3):
    """Return positive rows, some of them far from the rest, start values, and a mask."""
    rng = np.random.default_rng(seed)
    X = rng.gamma(0.7, size=(n, k)) @ rng.gamma(0.7, size=(k, m)) * rng.gamma(4, 0.25, (n, m)) + 1e-3
    mask = rng.random((n, m)) < 0.7
    mask[:, 0] = True
    return X, rng.random((n, k)) + 0.1, rng.random((k, m)) + 0.1, mask


CELLS = {}
"""Losses that are no β-divergences: name → cost of cells ``(x, y)``, written down here a second time."""


def naive(loss, X, U, V, M):
    """Twice the divergence, cell by cell."""
    b, x, y = order_of(loss), X[M], (U @ V)[M]
    if b is None:
        return 2 * np.sum(CELLS[loss.name](x, y))
    if b == 0:
        return 2 * np.sum(x / y - np.log(x / y) - 1)
    if b == 1:
        return 2 * np.sum(x * np.log(x / y) - x + y)
    return 2 * np.sum((x**b + (b - 1) * y**b - b * x * y ** (b - 1)) / (b * (b - 1)))


def paid(F, l1, l2):
    return 2 * l1 * F.sum() + l2 * np.sum(F**2)


def layouts(X, mask):
    stored = scipy.sparse.csr_array(np.where(mask, X, 0))
    return {
        "dense": (X, None),
        "csr": (scipy.sparse.csr_array(X), None),
        "masked": (np.where(mask, X, np.nan), mask),
        "stored": (stored, "stored"),
    }


@pytest.mark.parametrize("layout", ["dense", "csr", "masked", "stored"])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.3, 0.0), (0.2, 0.5)])
def test_rows_and_steps_lower_the_naive_loss(loss, layout, l1, l2):
    X, U, V, mask = data()
    M = mask if layout in ("masked", "stored") else np.ones(X.shape, bool)
    (matrix, how), loss = layouts(X, mask)[layout], loss.over(layout in ("masked", "stored"))
    error, cells, base = loss.error(matrix, U, V, how)
    np.testing.assert_allclose(error, naive(loss, X, U, V, M), rtol=1e-9)
    assert cells == M.sum()
    np.testing.assert_allclose(base, loss.total(matrix, how), rtol=1e-12)
    last = naive(loss, X, U, V, M) + paid(U, l1, l2)
    for _ in range(15):
        U = loss.rows(U, matrix, V, how, sweeps=1, pay=Penalty(l1, l2))
        now = naive(loss, X, U, V, M) + paid(U, l1, l2)
        # With squares the step for counts is scikit-learn's, which nothing keeps from rising; it falls here.
        assert now <= last + 1e-9 * last
        last = now
    for _ in range(15):
        up = loss.sums(U, matrix, V, how, total=loss.total(matrix, how))
        up = type(up)(**{**{name: leaf for name, leaf in leaves(up)}, "total": np.float64(loss.total(matrix, how))})
        before = naive(loss, X, U, V, M) + paid(V, l1, l2)
        step = loss.step(V, up, up, 1.0, 3, (l1, l2))
        V = step.V
        now = naive(loss, X, U, V, M) + paid(V, l1, l2)
        assert now <= before + 1e-9 * before
        assert step.loss >= now - 1e-9 * now  # what the server believes is no less than what is true
        assert step.sse >= naive(loss, X, U, V, M) * (1 - 1e-9)


def test_sums_of_blocks_add_up(loss):
    X, U, V, mask = data(1)
    for how, masked in ((None, False), (mask, True), (None, True)):
        over = loss.over(masked)
        pay, parts = Penalty(0.1, 0.2), []
        for rows in (slice(0, 11), slice(11, 30)):
            some = None if how is None else how[rows]
            whole = over.total(X[rows], some)
            parts.append(over.rows_and_sums(U[rows], X[rows], V, some, sweeps=3, pay=pay, total=whole))
        U_all, up = over.rows_and_sums(U, X, V, how, sweeps=3, pay=pay, total=over.total(X, how))
        np.testing.assert_allclose(np.concatenate([part[0] for part in parts]), U_all, rtol=1e-12)
        added = dict(leaves(tree_sum(part[1] for part in parts)))
        for name, leaf in leaves(up):
            np.testing.assert_allclose(added[name], leaf, rtol=1e-9)


@pytest.mark.slow
def test_single_precision_stays_and_agrees(loss):
    X, U, V, mask = data(2)
    single = [a.astype(np.float32) for a in (X, U, V)]
    for how in (None, mask):
        over = loss.over(how is not None)
        wide = over.rows(U, X, V, how, sweeps=2, pay=Penalty())
        thin = over.rows(single[1], single[0], single[2], how, sweeps=2, pay=Penalty())
        assert thin.dtype == np.float32
        np.testing.assert_allclose(thin, wide, rtol=2e-4, atol=1e-5)
        for _, leaf in leaves(over.sums(thin, single[0], single[2], how, total=1.0)):
            assert np.ndim(leaf) == 0 or leaf.dtype == np.float32


def test_torch_agrees(loss):
    torch = pytest.importorskip("torch")
    X, U, V, mask = data(3)
    for how in (None, mask):
        over = loss.over(how is not None)
        theirs = [torch.as_tensor(a) for a in (U, X, V)]
        seen = None if how is None else torch.as_tensor(how)
        rows = over.rows(*theirs, seen, sweeps=3, pay=Penalty(0.1, 0.2))
        np.testing.assert_allclose(rows.numpy(), over.rows(U, X, V, how, sweeps=3, pay=Penalty(0.1, 0.2)), rtol=1e-10)
        ours, up = over.sums(U, X, V, how, total=1.0), over.sums(*theirs, seen, total=1.0)
        for (_, one), (_, two) in zip(leaves(ours), leaves(up), strict=True):
            np.testing.assert_allclose(np.asarray(two), one, rtol=1e-10)


@pytest.mark.slow
def test_federated_is_pooled(loss):
    X, _, _, mask = data(4, n=60)
    cuts = [slice(0, 7), slice(7, 30), slice(30, 60)]
    for seen in (None, mask):
        shards = [Shard(X[rows], None if seen is None else seen[rows]) for rows in (slice(0, 60), *cuts)]
        algorithm = PooledNMF(3, loss=setting_of(loss), tol=0)
        one = fedfactor.run(algorithm, Federation({"all": shards[0]}), rounds=12, seed=0)
        many = fedfactor.run(algorithm, Federation(dict(zip("abc", shards[1:], strict=True))), rounds=12, seed=0)
        np.testing.assert_allclose(many.V, one.V, rtol=1e-12, atol=1e-12 * one.V.max())


@pytest.mark.slow
def test_secure_sums_do(loss):
    X, *_ = data(5, n=600)
    owners, algorithm = {name: X[i::3] for i, name in enumerate("abc")}, PooledNMF(3, loss=setting_of(loss), tol=0)
    plain = fedfactor.run(algorithm, owners, rounds=8, seed=0)
    hidden = fedfactor.run(algorithm, owners, rounds=8, seed=0, privacy="secure-sum")
    np.testing.assert_allclose(hidden.V, plain.V, atol=1e-5 * plain.V.max())


def test_hidden_cells_that_were_held_to_be_impossible_cost_a_finite_amount(loss):
    X = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]])
    U, V = np.ones((2, 1)), np.array([[0.0, 2.0, 3.0]])
    held = np.array([[True, False, False], [False, True, False]])
    error, cells, base = loss.over(True).error(X, U, V, held, hidden=True)
    assert np.isfinite([error, base]).all()
    assert cells == 2


@pytest.mark.slow
def test_the_rank_is_found_with_every_loss(loss):
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(90, 2)) @ rng.exponential(size=(2, 12)) * rng.uniform(0.9, 1.1, (90, 12))
    found = fedfactor.select_rank(
        {"a": X[:30], "b": X[30:]}, [1, 2, 4], algorithm=PooledNMF(1, loss=setting_of(loss)), repeats=2, seed=0
    )
    assert found.recommended == 2
    assert np.isfinite(found.errors).all()


def test_rows_without_an_observed_cell_say_nothing(loss):
    X, _, V, mask = data(6)
    mask[4] = False
    U = loss.over(True).solve(None, np.where(mask, X, np.nan), V, mask, Penalty())
    assert np.isfinite(U).all()
    assert not U[4].any()


def test_a_number_names_a_loss():
    assert find_loss(2.0) == find_loss("frobenius")
    assert find_loss(1) == find_loss("kullback-leibler")
    assert find_loss(0) == find_loss("itakura-saito")
    assert find_loss(0.5).beta == 0.5
    assert build("pooled-nmf", {"n_components": 2}, ["loss=0.5"]).loss == 0.5
    assert build("pooled-nmf", {"n_components": 2}, ["loss=itakura-saito"]).loss == "itakura-saito"
    with pytest.raises(ValueError, match="loss=True is not known"):
        find_loss(True)


@pytest.mark.parametrize("beta", [0, -0.5])
def test_zeros_are_refused_where_they_cost_infinitely_much(beta):
    X, _, _, mask = data(8)
    zero = np.where(mask, X, 0)
    for rows in (zero, scipy.sparse.csr_array(zero)):
        with pytest.raises(fedfactor.DataError, match=rf"Owner 'b' has {(~mask[15:]).sum()} cells of value 0"):
            fedfactor.run(PooledNMF(2, loss=beta), {"a": X[:15], "b": rows[15:]}, rounds=2, seed=0)
    missing = fedfactor.PooledNMF(2, loss=beta, rounds=5, missing_values=0, random_state=0).fit(zero)
    assert np.isfinite(missing.relative_error_)
    tiny = np.where(mask, X, 1e-30).astype(np.float32)
    with pytest.raises(fedfactor.DataError, match="positive values below"):
        fedfactor.run(PooledNMF(2, loss=beta), {"a": tiny}, rounds=2, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0, 0.5, 1.5])
def test_the_level_of_scikit_learn_is_reached(beta):
    rng = np.random.default_rng(0)
    X = (rng.gamma(0.7, size=(120, 4)) @ rng.gamma(0.7, size=(4, 25)) + 1e-3) * rng.gamma(4, 0.25, (120, 25))
    pooled = []
    for seed in range(3):
        model = NMF(4, solver="mu", beta_loss=beta, init="random", random_state=seed, max_iter=500, tol=1e-8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pooled.append(model.fit(X).reconstruction_err_)
    owners = {name: X[i::3] for i, name in enumerate("abc")}
    run = fedfactor.run(PooledNMF(4, loss=beta, tol=0), owners, rounds=150, seed=0)
    assert np.sqrt(float(run.score.sse)) < 1.01 * min(pooled)


def test_zeros_are_data_above_0():
    X, _, _, mask = data(9)
    zero = np.where(mask, X, 0)
    dense, sparse = (
        fedfactor.run(PooledNMF(2, loss=0.5, tol=0), {"a": kind(zero)}, rounds=5, seed=0)
        for kind in (np.asarray, scipy.sparse.csr_array)
    )
    np.testing.assert_allclose(sparse.V, dense.V, rtol=1e-12)
    assert np.isfinite(dense.relative_error)


@dataclass(frozen=True, slots=True)
class Counts(MultiplicativeLoss):
    """Kullback-Leibler, as anyone would write a loss of their own: by cells and weights."""

    name: ClassVar[str] = "counts"
    words: ClassVar[str] = "counts"
    pole: ClassVar[float] = 1.0  # type: ignore[reportAssignmentType]

    def cells(self, x, y):
        return x * np.log(np.where(x > 0, x, 1) / y) - x + y

    def weights(self, x, y):
        return x / y, np.ones_like(y)

    def power(self, squares):
        return 0.5 if squares else 1.0

    def fall(self, ratio, N, D):
        return N * np.log(ratio) - D * (ratio - 1)


@pytest.mark.parametrize("layout", ["dense", "csr", "masked", "stored"])
def test_a_loss_by_cells_and_weights_is_the_one_written_out(layout):
    X, U, V, mask = data(7)
    X, (matrix, how) = np.floor(3 * X) + 1, layouts(np.floor(3 * X) + 1, mask)[layout]
    own = divergence_rows(Counts(), U, matrix, V, how, sweeps=3, l1=0.2)
    np.testing.assert_allclose(own, counts.count_rows(U, matrix, V, how, sweeps=3, l1=0.2), rtol=1e-12)
    (N, D, value), theirs = divergence_sums(Counts(), U, matrix, V, how), counts.count_sums(U, matrix, V, how)
    np.testing.assert_allclose(N, theirs[0], rtol=1e-12)
    np.testing.assert_allclose(D, theirs[1] + 0 * N, rtol=1e-12)
    np.testing.assert_allclose(value, theirs[2], rtol=1e-12)
    (own_V, own_gain), (V, gain) = divergence_step(Counts(), V, N, D, l1=0.1), counts.count_step(V, N, D, l1=0.1)
    np.testing.assert_allclose(own_V, V, rtol=1e-12)
    np.testing.assert_allclose(own_gain, gain, rtol=1e-9)
    assert Counts().error(matrix, U, V, how)[1:] == pytest.approx(counts.count_error(matrix, U, V, how)[1:], rel=1e-12)


@pytest.mark.parametrize(
    ("beta", "plain", "squares"),
    [
        (-1.0, 1 / 3, 1 / 4), (0.5, 0.9, 1 / 2.5), (0.95, 1 / 1.05, 1 / 2.05), (1.5, 1.0, 1 / 1.5),
        (2.5, 1 / 1.5, 1 / 1.5), (3.0, 0.5, 0.5),
    ],
)  # fmt: skip
def test_powers_of_steps_by_the_order_of_the_divergence(beta, plain, squares):
    loss = find_loss(beta)
    assert loss.power(False) == pytest.approx(plain)
    assert loss.power(True) == pytest.approx(squares)
    assert loss.positive == (beta < 0)


def test_numbers_of_losses_with_a_name_are_those_losses():
    assert [find_loss(number).name for number in (0, 1, 2)] == ["itakura-saito", "kullback-leibler", "frobenius"]
    for odd in (True, np.nan, np.inf):
        with pytest.raises(ValueError, match="loss="):
            find_loss(odd)


@pytest.mark.parametrize("loss", ["kullback-leibler", "itakura-saito", 1.5])
def test_a_sparse_tensor_is_refused_by_losses_that_cannot_read_it(loss):
    torch = pytest.importorskip("torch")
    rows = torch.eye(6).to_sparse_csr()
    with pytest.raises(DataError, match=r"sparse tensor of torch.*SciPy CSR"):
        fedfactor.run(PooledNMF(2, loss=loss), {"north": rows}, rounds=1, seed=0)


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_roots_of_counts_are_taken_of_a_part_of_the_rows_at_a_time(make, monkeypatch):
    counts = np.random.default_rng(0).poisson(1.0, (400, 60)).astype(np.float64)
    V, roots = np.random.default_rng(1).random((6, 60)), find_loss("kullback-leibler").rows_for_start
    whole = start.wide_sums(roots(make(counts)), V, np.float64(1))
    monkeypatch.setattr(start, "_CELLS", 1 << 9)
    sizes = []
    found = start.wide_sums(make(counts), V, np.float64(1), lambda part, _: (sizes.append(part.shape), roots(part))[1])
    assert len(sizes) > 20
    assert sum(rows for rows, _ in sizes) == 400
    np.testing.assert_allclose(found.G, whole.G, rtol=1e-12)
    np.testing.assert_allclose(found.A, whole.A, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["kullback-leibler", "itakura-saito"])
def test_a_run_makes_no_copy_of_the_rows(loss, monkeypatch):
    monkeypatch.setattr(start, "_CELLS", 1 << 15)
    monkeypatch.setattr("fedfactor.linalg.missing_values._CELLS", 1 << 13)
    rows = 1 + np.random.default_rng(0).poisson(1.0, (6000, 50)).astype(np.float32)
    method = PooledNMF(2, loss=loss, local_steps=1)
    fedfactor.run(method, {"north": rows[:50]}, rounds=4, seed=0)  # loops are compiled
    tracemalloc.start()
    fedfactor.run(method, {"north": rows}, rounds=3, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * rows.nbytes
