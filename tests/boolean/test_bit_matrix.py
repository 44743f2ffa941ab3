from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean.product import (
    Cells,
    boolean_product,
    boolean_refit,
    count,
    hashed_rows,
    match_rows,
    vote,
)
from tests.linalg.problems import frozen

SHAPES = [(1, 1, 1), (5, 63, 3), (7, 64, 2), (9, 65, 8), (70, 200, 6), (3, 0, 2), (0, 10, 2)]


def problem(n, m, k, seed=0, density=0.3):
    rng = np.random.default_rng([11, seed])
    X, U, V = ((rng.random(shape) < density) * 1.0 for shape in ((n, m), (n, k), (k, m)))
    return frozen(X, U, V)


def naive_product(U, V):
    n, k = U.shape
    m = V.shape[1]
    out = np.zeros((n, m))
    for i in range(n):
        for j in range(m):
            out[i, j] = any(U[i, q] == 1 and V[q, j] == 1 for q in range(k))
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_pack_and_back(shape):
    X, _, _ = problem(*shape)
    words = bits.pack(X)
    assert words.dtype == np.uint64
    np.testing.assert_array_equal(bits.unpack(words, X.shape[1]), X)
    np.testing.assert_array_equal(bits.pack(scipy.sparse.csr_array(X)), words)
    np.testing.assert_array_equal(bits.transpose(words, X.shape[1]), bits.pack(X.T))
    np.testing.assert_array_equal(bits.ones_of(words), X.sum(axis=1))


def test_pack_of_untidy_sparse_matrices():
    X = scipy.sparse.csr_array((np.array([1.0, 0.0, 1.0]), np.array([70, 3, 2]), np.array([0, 3])), shape=(1, 90))
    np.testing.assert_array_equal(bits.unpack(bits.pack(X), 90), (X.toarray() > 0.5))


@pytest.mark.parametrize("shape", SHAPES)
def test_count_equals_the_naive_product(path, shape):
    X, U, V = problem(*shape)
    R = naive_product(U, V)
    np.testing.assert_array_equal(boolean_product(U, V), R)
    np.testing.assert_array_equal(bits.unpack(bits.product(U, bits.pack(V)), V.shape[1]), R)
    expected = Cells(X.size, int(X.sum()), int(R.sum()), int((X * R).sum()))
    for rows in (X, X.astype(np.float32), scipy.sparse.csr_array(X), scipy.sparse.csc_array(X)):
        assert count(rows, U, V) == expected
    assert expected.wrong == int((X != R).sum())


def naive_refit(X, V, sweeps=3):
    """One row and one component at a time, with no arithmetic on sets but Python's own."""
    U = np.zeros((len(X), len(V)))
    parts = [set(np.flatnonzero(v)) for v in V]
    for i, x in enumerate(X):
        ones, on = set(np.flatnonzero(x)), []

        def gain(q, chosen, ones=ones):
            fresh = parts[q] - set().union(*(parts[o] for o in chosen))
            return 2 * len(fresh & ones) - len(fresh)

        while True:
            gains = [gain(q, on) if q not in on else -1 for q in range(len(V))]
            if not gains or max(gains) <= 0:
                break
            on.append(gains.index(max(gains)))
        for _ in range(sweeps):
            before = sorted(on)
            for q in range(len(V)):
                others = [o for o in on if o != q]
                on = [*others, q] if gain(q, others) > 0 else others
            if sorted(on) == before:
                break
        U[i, on] = 1
    return U


@pytest.mark.parametrize("shape", [s for s in SHAPES if s[1]])
@pytest.mark.parametrize("density", [0.2, 0.6])
def test_refit_equals_the_naive_one(path, shape, density):
    X, _, V = problem(*shape, seed=1, density=density)
    np.testing.assert_array_equal(boolean_refit(X, V), naive_refit(X, V))
    np.testing.assert_array_equal(boolean_refit(scipy.sparse.csr_array(X), V), naive_refit(X, V))


@pytest.mark.parametrize(("columns", "components", "density"), [(16, 12, 0.3), (24, 16, 0.3)])
def test_refit_takes_components_back_that_it_had_left(path, columns, components, density):
    """Seldom does a component gain once another was left: in one of these rows."""
    rng = np.random.default_rng(0)
    X = (rng.random((300, columns)) < (0.5 if columns == 16 else 0.6)).astype(float)
    V = (rng.random((components, columns)) < density).astype(float)
    expected = naive_refit(X, V)
    assert (naive_refit(X, V, sweeps=0) < expected).any()
    np.testing.assert_array_equal(boolean_refit(X, V), expected)


def test_refit_finds_the_planted_rows_and_never_loses_to_nothing(path):
    rng = np.random.default_rng(0)
    U, V = (rng.random((50, 4)) < 0.4) * 1.0, np.kron(np.eye(4), np.ones((1, 9)))
    np.testing.assert_array_equal(boolean_refit(boolean_product(U, V), V), U)
    X = (rng.random((50, 36)) < 0.5) * 1.0
    assert count(X, boolean_refit(X, V), V).wrong <= X.sum()


def test_refit_keeps_dtype_and_library():
    X, _, V = problem(6, 20, 3)
    assert boolean_refit(X.astype(np.float32), V).dtype == np.float32
    torch = pytest.importorskip("torch")
    found = boolean_refit(torch.as_tensor(X.copy()), V)
    np.testing.assert_array_equal(found.numpy(), boolean_refit(X, V))


def test_sparse_rows_are_not_made_dense():
    import tracemalloc

    X = scipy.sparse.random_array((2000, 200_000), density=1e-4, format="csr", rng=np.random.default_rng(0))
    X.data[:] = 1
    V = np.zeros((2, 200_000), np.uint8)
    V[0, :50] = 1
    boolean_refit(X[:5], V)
    tracemalloc.start()
    U = boolean_refit(X, V)
    count(X, U, V)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6  # dense float64 rows would take 3.2 GB


def test_ratios_of_empty_data():
    nothing, missed = Cells(10, 0, 0, 0), Cells(10, 4, 0, 0)
    assert (nothing.loss, nothing.recall, nothing.precision, nothing.similarity) == (0, 1, 1, 1)
    assert (missed.loss, missed.recall, missed.precision) == (1, 0, 0)


def test_hashed_rows_do_not_depend_on_order_or_layout():
    X, _, _ = problem(20, 300, 1)
    salt = np.random.default_rng(0).integers(0, 256, (4, 300))
    U = hashed_rows(X, salt)
    np.testing.assert_array_equal(hashed_rows(X[::-1].copy(), salt)[::-1], U)
    np.testing.assert_array_equal(hashed_rows(scipy.sparse.csr_array(X), salt), U)
    np.testing.assert_allclose(hashed_rows(X.astype(np.float32), salt), U, atol=1e-6)
    assert 0 <= U.min() <= U.max() < 1
    assert len(np.unique(U)) > 40


def test_match_rows_undoes_a_permutation():
    _, _, V = problem(1, 60, 7)
    order = np.random.default_rng(0).permutation(7)
    np.testing.assert_array_equal(V[order][match_rows(V[order], V)], V)


def test_average_and_majority_differ_in_ties_only():
    counts = np.arange(7)[None]
    assert (vote(counts, 6, "average") != vote(counts, 6, "majority")).tolist() == [[False] * 3 + [True] + [False] * 3]
    np.testing.assert_array_equal(vote(counts, 6, "average"), vote(counts, 6, "majority", tie="zero"))
    np.testing.assert_array_equal(vote(counts, 7, "average"), vote(counts, 7, "majority"))
    assert not vote(np.zeros((1, 2)), 0, "majority").any()
    with pytest.raises(ValueError, match="vote='veto' is not known"):
        vote(counts, 6, "veto")
