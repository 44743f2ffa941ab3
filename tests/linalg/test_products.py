"""Products: every way of storing X gives the product that NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfactor.core.threads import limit_threads
from fedfactor.linalg import products
from fedfactor.linalg.compiled import compile as compiled
from tests.linalg.problems import frozen, problem

STORES = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "csc": sp.csc_array,
}


def stored(X, how):
    out = STORES[how](X)
    frozen(*([out.data, out.indices, out.indptr] if sp.issparse(out) else [out, out]))
    return out


@pytest.mark.parametrize("how", STORES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 64), (37, 21), (700, 400)])
def test_products(path, how, dtype, shape):
    X, U, V = problem(*shape, 6, dtype=dtype, density=0.3)
    held = stored(X, how)
    close = {"rtol": 1e-4 if dtype == np.float32 else 1e-11, "atol": 1e-4 if dtype == np.float32 else 1e-11}
    for got, want in ((products.cross(held, V), X @ V.T), (products.sums(U, held), U.T @ X)):
        np.testing.assert_allclose(got, want, **close)
        assert got.dtype == dtype
        assert got.flags.c_contiguous
    assert products.squared_norm(held) == pytest.approx((X.astype(float) ** 2).sum())
    assert products.total(held) == pytest.approx(X.astype(float).sum())
    assert products.is_sparse(held) == (not isinstance(held, np.ndarray))
    assert products.values(held).dtype == dtype


@settings(deadline=None, max_examples=40)
@given(n=st.integers(0, 40), m=st.integers(1, 40), k=st.integers(1, 20), seed=st.integers(0, 10_000))
def test_sparse_equals_dense(n, m, k, seed):
    X, U, V = problem(n, m, k, seed, density=0.2)
    for held in (sp.csr_array(X), sp.csc_matrix(X)):
        np.testing.assert_allclose(products.cross(held, V), X @ V.T, atol=1e-12)
        np.testing.assert_allclose(products.sums(U, held), U.T @ X, atol=1e-12)


def test_threads_do_not_change_sparse_bits():
    if compiled.load_numba() is None:
        pytest.skip("only the compiled loops promise this")
    X = sp.random_array((5000, 300), density=0.05, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    _, U, V = problem(5000, 300, 20, dtype=np.float32)
    assert products.scatter_blocks(X, 20) > 1
    seen = []
    for threads in (1, 2):
        with limit_threads(threads):
            seen.append((products.cross(X, V), products.sums(U, X)))
    np.testing.assert_array_equal(seen[0][0], seen[1][0])
    np.testing.assert_array_equal(seen[0][1], seen[1][1])


def test_rows_of_a_sparse_product_do_not_depend_on_the_others():
    if compiled.load_numba() is None:
        pytest.skip("only the compiled loops promise this")
    X = sp.random_array((4000, 200), density=0.1, format="csr", rng=np.random.default_rng(1))
    V = np.random.default_rng(2).random((10, 200))
    whole = products.cross(X, V)
    np.testing.assert_array_equal(products.cross(X[100:107], V), whole[100:107])


def test_scatter_buffers_stay_below_the_data():
    for rows, cols, cells in ((200_000, 2_000, 4_000_000), (4_000, 2_000, 80_000), (60, 1_000_000, 600_000)):
        indptr = np.linspace(0, cells, rows + 1).astype(np.int32)
        X = sp.csr_array((np.ones(cells, np.float32), np.zeros(cells, np.int32), indptr), shape=(rows, cols))
        blocks = products.scatter_blocks(X, 20)
        assert blocks == 1 or blocks * cols * 20 * 4 <= cells * 8 / 4


def test_long_sums_are_kept_in_double_precision():
    X = np.full((3000, 1000), 0.1, np.float32)
    exact = float(np.float32(0.1))
    assert products.total(X) == pytest.approx(3e6 * exact, rel=1e-12)
    assert products.squared_norm(X) == pytest.approx(3e6 * exact**2, rel=1e-12)


def test_mixed_index_types():
    X = sp.csr_array(np.eye(5))
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    np.testing.assert_array_equal(products.cross(X, np.eye(5)), np.eye(5))
    np.testing.assert_array_equal(products.sums(np.eye(5), sp.csr_array(np.eye(5, dtype=int))), np.eye(5))


def test_as_like():
    A = np.ones(3)
    assert products.as_like(A, np.zeros(2)) is A
    assert products.as_like(A, sp.csr_array(np.eye(2, dtype=np.float32))).dtype == np.float32


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_torch():
    torch = pytest.importorskip("torch")
    X, U, V = problem(30, 20, 4, dtype=np.float32)
    dense = torch.tensor(X)
    for held in (dense, dense.to_sparse_csr()):
        got = products.cross(held, torch.tensor(V)), products.sums(torch.tensor(U), held)
        for mine, want in zip(got, (X @ V.T, U.T @ X), strict=True):
            np.testing.assert_allclose(mine.numpy(), want, rtol=1e-4)
            assert mine.is_contiguous()
            assert mine.dtype == torch.float32
        assert products.squared_norm(held) == pytest.approx(float((X.astype(float) ** 2).sum()))
        assert products.total(held) == pytest.approx(float(X.astype(float).sum()))
    assert products.is_sparse(dense.to_sparse_csr())
    assert not products.is_sparse(dense)
    assert products.as_like(U, dense).dtype == torch.float32
    assert products.as_like(dense, X).dtype == np.float32


def test_products_of_wide_components_do_not_depend_on_threads():
    V = np.random.default_rng(0).random((3, 10_000), dtype=np.float32)
    found = []
    for threads in (1, 2, 3):
        with limit_threads(threads):
            found.append(products.gram_rows(V))
    wide = V.astype(np.float64)
    np.testing.assert_allclose(found[0], wide @ wide.T, rtol=1e-6)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("store", [sp.csr_array, sp.csc_array])
def test_factors_of_another_precision(store):
    X, U, V = problem(12, 9, 3, density=0.5)
    rows = store(X.astype(np.float32))
    np.testing.assert_allclose(products.cross(rows, V), X @ V.T, rtol=1e-6)
    np.testing.assert_allclose(products.sums(U, rows), U.T @ X, rtol=1e-6)
