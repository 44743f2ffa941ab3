"""The local solvers against naive versions that know no bits and no shortcuts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean.product import boolean_product
from fedfactor.boolean.proximal_maps import Pull
from fedfactor.boolean.solvers.asso import asso
from fedfactor.boolean.solvers.grecond import grecond
from fedfactor.boolean.solvers.mebf import mebf
from fedfactor.boolean.solvers.primp import primp
from fedfactor.boolean.solvers.registry import SOLVERS, factor
from fedfactor.boolean.solvers.thresholds import GRID, code_length, search_thresholds, wrong_cells


def noisy(n, m, seed, density=0.3):
    rng = np.random.default_rng([13, seed])
    X = np.zeros((n, m), bool)
    for _ in range(3):
        X |= np.outer(rng.random(n) < 0.4, rng.random(m) < 0.4)
    return (X ^ (rng.random((n, m)) < density / 6)).astype(float)


def naive_asso(X, k, tau):
    n, m = X.shape
    candidates = []
    for i in range(m):
        if X[:, i].sum():
            row = tuple(float((X[:, i] * X[:, j]).sum() / X[:, i].sum() >= tau) for j in range(m))
            if row not in candidates:
                candidates.append(row)
    cover, U, V = np.zeros((n, m)), np.zeros((n, k)), np.zeros((k, m))
    for q in range(k):
        best, chosen = 0, None
        for row in candidates:
            d = np.array(row)
            gains = [sum((1 if X[r, j] else -1) for j in range(m) if d[j] and not cover[r, j]) for r in range(n)]
            score = sum(g for g in gains if g > 0)
            if score > best:
                best, chosen = score, (d, np.array([g > 0 for g in gains]))
        if chosen is None:
            break
        V[q], U[:, q] = chosen[0], chosen[1]
        cover = np.maximum(cover, np.outer(U[:, q], V[q]))
    return U, V


def naive_grecond(X, k):
    n, m = X.shape
    open_, U, V = X.astype(bool).copy(), np.zeros((n, k)), np.zeros((k, m))
    for q in range(k):
        if not open_.any():
            break
        D, E, value = set(), set(range(n)), 0
        while True:
            best = None
            for j in range(m):
                if j in D:
                    continue
                E_j = {i for i in E if X[i, j]}
                D_j = {c for c in range(m) if all(X[i, c] for i in E_j)}
                gain = sum(open_[i, c] for i in E_j for c in D_j)
                if gain > (value if best is None else best[0]):
                    best = (gain, E_j, D_j)
            if best is None:
                break
            value, E, D = best
        for i in E:
            U[i, q] = 1
        for c in D:
            V[q, c] = 1
        for i in E:
            for c in D:
                open_[i, c] = False
    return U, V


def naive_mebf(X, k, share):
    M, (n, m) = X.copy(), X.shape
    U, V = np.zeros((n, k)), np.zeros((k, m))

    def tile(u=None, v=None):
        if v is None:
            v = np.array([(M[:, j] * u).sum() >= min(share * u.sum() + 1, u.sum()) for j in range(m)]) * 1.0
        else:
            u = np.array([(M[i] * v).sum() >= min(share * v.sum() + 1, v.sum()) for i in range(n)]) * 1.0
        zeros = sum(1 for i in range(n) for j in range(m) if u[i] and v[j] and not M[i, j])
        return (u.sum() - 1) * (v.sum() - 1) - zeros, u, v

    for q in range(k):
        if not M.any():
            break
        best = (0, None, None)
        for axis in (0, 1):
            sums = M.sum(axis)
            positive = sums[sums > 0]
            if np.median(positive) <= 1:
                continue
            target = sums[sums >= np.median(positive)].min()
            for line in np.flatnonzero(sums == target):
                found = tile(u=M[:, line]) if axis == 0 else tile(v=M[line])
                if found[0] > best[0]:
                    best = found
        if best[1] is None:
            tried = []
            a, b = np.argsort(-M.sum(0), kind="stable")[:2]
            if (M[:, a] * M[:, b]).sum() > 1:
                tried.append(tile(u=M[:, a] * M[:, b]))
            a, b = np.argsort(-M.sum(1), kind="stable")[:2]
            if (M[a] * M[b]).sum() > 1:
                tried.append(tile(v=M[a] * M[b]))
            if not tried:
                break
            best = max(tried, key=lambda one: one[0])
        U[:, q], V[q] = best[1], best[2]
        M = M * (1 - np.outer(best[1], best[2]))
    return U, V


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tau", [0.4, 0.7])
def test_asso_makes_the_naive_choices(path, seed, tau):
    X = noisy(17, 12, seed)
    U, V = naive_asso(X, 4, tau)
    found = asso(X, 4, tau=tau)
    np.testing.assert_array_equal(found.V, V)
    np.testing.assert_array_equal(found.U, U)


@pytest.mark.parametrize("seed", range(4))
def test_grecond_makes_the_naive_choices(path, seed):
    X = noisy(16, 11, seed)
    U, V = naive_grecond(X, 6)
    found = grecond(X, 6)
    np.testing.assert_array_equal(found.V, V)
    np.testing.assert_array_equal(found.U, U)


@pytest.mark.parametrize("seed", range(4))
def test_repeated_rows_count_as_often_as_they_occur(path, seed):
    X = noisy(9, 12, seed)[np.random.default_rng(seed).integers(9, size=30)]
    assert len(np.unique(X, axis=0)) < 10
    for found, (U, V) in (
        (asso(X, 4, tau=0.6), naive_asso(X, 4, 0.6)),
        (grecond(X, 5), naive_grecond(X, 5)),
    ):
        np.testing.assert_array_equal(found.V, V)
        np.testing.assert_array_equal(found.U, U)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_mebf_makes_the_naive_choices(path, seed, share):
    X = noisy(18, 13, seed)
    U, V = naive_mebf(X, 6, share)
    found = mebf(X, 6, share=share, leave=0.0)
    np.testing.assert_array_equal(found.V, V)
    np.testing.assert_array_equal(found.U, U)


@pytest.mark.parametrize("seed", range(3))
def test_grecond_never_covers_a_zero_and_covers_everything_with_enough_components(path, seed):
    X = (np.random.default_rng(seed).random((40, 25)) < 0.35) * 1.0
    few, all_ = grecond(X, 5), grecond(X, 1000)
    assert ((boolean_product(few.U * 1.0, few.V * 1.0) > X).sum()) == 0
    np.testing.assert_array_equal(boolean_product(all_.U * 1.0, all_.V * 1.0), X)
    assert all_.V.any(axis=1).sum() <= 25 * 40


def test_best_of_several_thresholds():
    X = noisy(60, 30, 9)
    losses = {
        tau: wrong_cells(bits.pack(X), r.U, bits.pack(r.V)) for tau in (0.2, 0.5, 0.8) for r in [asso(X, 4, tau=tau)]
    }
    best = asso(X, 4, tau=(0.2, 0.5, 0.8))
    assert wrong_cells(bits.pack(X), best.U, bits.pack(best.V)) == min(losses.values())


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_every_solver_is_binary_and_takes_every_layout(solver):
    X = np.kron(np.eye(3), np.ones((12, 8)))
    found = {}
    for name, rows in {"dense": X, "f32": X.astype(np.float32), "csr": scipy.sparse.csr_array(X)}.items():
        one = found[name] = factor(rows, 3, solver, rng=np.random.default_rng(1))
        assert one.U.dtype == one.V.dtype == np.uint8
        assert set(np.unique(one.U)) | set(np.unique(one.V)) <= {0, 1}
        assert (one.U.shape, one.V.shape, one.finished) == ((36, 3), (3, 24), True)
    np.testing.assert_array_equal(found["dense"].V, found["csr"].V)
    assert wrong_cells(bits.pack(X), found["dense"].U, bits.pack(found["dense"].V)) == 0


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_odd_matrices(solver):
    for X in (np.zeros((4, 5)), np.ones((4, 5)), np.eye(4), np.ones((1, 1)), np.ones((1, 7))):
        found = factor(X, 2, solver, rng=np.random.default_rng(0))
        assert found.U.shape == (X.shape[0], 2)
        assert found.V.shape == (2, X.shape[1])


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_time_limit_is_told(solver):
    X = (np.random.default_rng(0).random((60, 50)) < 0.4) * 1.0
    found = factor(X, 20, solver, rng=np.random.default_rng(0), time_limit=0.0)
    assert not found.finished
    assert found.V.shape == (20, 50)
    with pytest.raises(ValueError, match="time_limit=-1 must be a number of seconds"):
        factor(X, 2, solver, rng=np.random.default_rng(0), time_limit=-1)


def test_unknown_words():
    with pytest.raises(ValueError, match="solver='magic' is not known"):
        factor(np.eye(2), 1, "magic", rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="'grecond' does not take such an option"):
        factor(np.eye(2), 1, "grecond", rng=np.random.default_rng(0), tau=0.5)
    with pytest.raises(ValueError, match=r"tau=1\.5 must lie in"):
        asso(np.eye(2), 1, tau=1.5)
    with pytest.raises(ValueError, match="cost='love' is not known"):
        primp(np.eye(2), 1, rng=np.random.default_rng(0), cost="love")


@pytest.mark.parametrize(
    ("solver", "options", "message"),
    [
        ("elbmf", {"pull": Pull(kappa=-1.0)}, "must not be negative"),
        ("elbmf", {"pull": Pull(beta=0.5)}, r"beta=0\.5 must lie in"),
        ("elbmf", {"rate": 0.9}, r"rate=0\.9 must be at least 1"),
        ("mebf", {"leave": 1.0}, r"leave=1\.0 must lie in"),
        ("asso", {"reward": 0.0}, r"reward=0\.0 must be positive"),
        ("asso", {"penalty": -1.0}, r"penalty=-1\.0 must not be negative"),
        ("primp", {"weight": -0.1}, r"weight=-0\.1 must not be negative"),
        ("zhang", {"lam": -1.0}, r"lam=-1\.0 must not be negative"),
        ("zhang", {"growth": 0.0}, r"growth=0\.0 must be positive"),
    ],
)
def test_weights_out_of_range(solver, options, message):
    with pytest.raises(ValueError, match=message):
        factor(np.eye(3), 2, solver, rng=np.random.default_rng(0), **options)


def test_elbmf_with_a_fast_rate_takes_all_steps():
    found = factor(np.eye(3), 2, "elbmf", rng=np.random.default_rng(0), rate=3.0, tol=0.0, max_iter=700)
    assert found.n_iter == 700  # 3 ** 700 is more than a float can hold


@pytest.mark.slow
def test_thresholds_full_grid_is_the_naive_minimum():
    rng = np.random.default_rng(2)
    U, V, X = rng.random((12, 3)), rng.random((3, 9)), noisy(12, 9, 3)
    words = bits.pack(X)
    naive = min(float(((((U >= a) * 1.0) @ (V >= b) > 0) != X).sum()) for a in GRID for b in GRID)
    full, coarse = search_thresholds(words, U, V, full=True), search_thresholds(words, U, V)
    assert wrong_cells(words, full.U, bits.pack(full.V)) == naive
    assert naive <= wrong_cells(words, coarse.U, bits.pack(coarse.V)) <= X.sum()


def test_code_length_prefers_real_tiles_to_spurious_ones():
    X = np.kron(np.eye(2), np.ones((20, 15)))
    words, U = bits.pack(X), np.repeat(np.eye(2, dtype=np.uint8), 20, axis=0)
    V = bits.pack(np.kron(np.eye(2), np.ones((1, 15))))
    right = code_length(words, U, V)
    assert right < code_length(words, U[:, :1], V[:1]) < code_length(words, U[:, :0], V[:0])
    # A third component that copies the first has to be paid for.
    assert right < code_length(words, U[:, [0, 1, 0]], V[[0, 1, 0]])


def test_primp_by_code_length_leaves_spare_components_empty():
    X = np.kron(np.eye(2), np.ones((20, 15)))
    found = primp(X, 2, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(boolean_product(found.U * 1.0, found.V * 1.0), X)
    assert not (found.U.any(axis=0) ^ found.V.any(axis=1)).any()
