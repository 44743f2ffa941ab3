"""One pass over the rows: against plain products in double precision, whatever the storage, the place, the threads."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from fedfactor.core.threads import limit_threads
from fedfactor.linalg.compiled import compile as compiled
from fedfactor.linalg.single_pass import go_together, one_pass, passes, sums_of_rows

SHAPES = [(1000, 300, 20), (301, 37, 7), (20, 3, 2), (1, 1, 1), (129, 50, 70), (260, 1999, 5), (0, 4, 2)]
STORED = ["C", "shifted", "F", "every second", "upside down", "packed", "csr", "csr64", "unsorted", "csc"]
needs_numba = pytest.mark.skipif(compiled.load_numba() is None, reason="only the compiled loops promise this")


def naive(X, V, U, sweeps, l1=0.0, l2=0.0):
    """Sweep coordinate by coordinate, then sum, in double precision."""
    X, V, U = (np.array(part, np.float64) for part in (X, V, U))
    G, B = V @ V.T + l2 * np.eye(len(V)), X @ V.T - l1
    for _ in range(sweeps):
        for t in range(len(V)):
            if G[t, t] > 0:
                U[:, t] = np.maximum(U[:, t] + (B[:, t] - U @ G[t]) / G[t, t], 0)
    return U, U.T @ U, U.T @ X


def case(shape, stored, dtype, seed=0):
    """Return X as it shall be stored, X as a plain array, V and U."""
    n, m, k = shape
    rng = np.random.default_rng(seed)
    plain = rng.random((n, m)).astype(dtype)
    V, U = rng.random((k, m)).astype(dtype), rng.random((n, k)).astype(dtype)
    if stored in ("csr", "csr64", "unsorted", "csc"):
        plain[rng.random((n, m)) > 0.2] = 0
        X = sp.csr_array(plain)
        if stored == "csr64":
            X = sp.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)
        if stored == "unsorted":
            for a, b in zip(X.indptr, X.indptr[1:], strict=False):
                X.indices[a:b], X.data[a:b] = X.indices[a:b][::-1].copy(), X.data[a:b][::-1].copy()
            X.has_sorted_indices = False
        return X.tocsc() if stored == "csc" else X, plain, V, U
    X = {
        "C": lambda: plain,
        "shifted": lambda: np.concatenate([plain[:, :1], plain], axis=1)[:, 1:],
        "F": lambda: np.asfortranarray(plain),
        "every second": lambda: np.repeat(plain, 2, axis=1)[:, ::2],
        "upside down": lambda: np.ascontiguousarray(plain[::-1, ::-1])[::-1, ::-1],
        "packed": lambda: packed(plain),
    }[stored]()
    return X, plain, V, U


def packed(plain):
    """Return rows with a byte before each, so that their distance is no whole number of cells."""
    records = np.zeros(len(plain), [("mark", "u1"), ("cells", plain.dtype, plain.shape[1:])])
    records["cells"] = plain
    return records["cells"]


def far(got, expected):
    return np.abs(np.asarray(got, np.float64) - expected).max(initial=0) / max(np.abs(expected).max(initial=0), 1e-300)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_sweeps_and_products(shape, stored, dtype, monkeypatch):
    if stored == "csr64":  # as if the owner were large: summed from a copy by columns
        monkeypatch.setattr("fedfactor.linalg.single_pass._LIGHT", 0)
    X, plain, V, U = case(shape, stored, dtype)
    before = U.copy()
    got = one_pass(X, V, U, sweeps=4, l1=0.1, l2=0.2)
    expected, _, _ = naive(plain, V, U, 4, 0.1, 0.2)
    assert far(got.U, expected) < (1e-4 if dtype == np.float32 else 1e-12)
    kept = np.array(got.U, np.float64)
    close = 1e-6 if dtype == np.float32 else 1e-13
    assert far(got.G, kept.T @ kept) < close
    assert far(got.A, kept.T @ plain) < close
    assert {part.dtype for part in got} == {np.dtype(dtype)}
    assert got.A.flags.c_contiguous
    np.testing.assert_array_equal(U, before)
    alone = one_pass(X, V, U, sweeps=4, l1=0.1, l2=0.2, sums=False)
    np.testing.assert_array_equal(alone.U, got.U)
    assert alone.A is None
    for part, other in zip(sums_of_rows(got.U, X), got[1:], strict=True):
        np.testing.assert_array_equal(part, other)


@needs_numba
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stored", ["C", "F", "csr", "unsorted"])
def test_threads_do_not_change_bits(stored, dtype, monkeypatch):
    if stored == "csr":
        monkeypatch.setattr("fedfactor.linalg.single_pass._LIGHT", 0)
    X, plain, V, U = case((3000, 400, 20) if stored == "csr" else (3000, 90, 12), stored, dtype)
    found = []
    for threads in (1, 2, 3):
        with limit_threads(threads):
            found.append(one_pass(X, V, U, sweeps=3))
    assert far(found[0].A, found[0].U.T.astype(np.float64) @ plain) < 1e-6  # of csr: several ranges of columns
    for other in found[1:]:
        for part, same in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(part, same)


@needs_numba
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stored_cells_are_summed_by_rows_or_by_columns_alike(dtype, monkeypatch):
    X, plain, V, U = case((2600, 199, 5), "csr", dtype)
    for most, few, light in ((0, 0, 0), (1 << 25, 0, 0), (1 << 25, 0, 10**8), (1 << 25, 1000, 10**8)):
        monkeypatch.setattr("fedfactor.linalg.single_pass._MANY", most)
        monkeypatch.setattr("fedfactor.linalg.single_pass._FEW", few)
        monkeypatch.setattr("fedfactor.linalg.single_pass._LIGHT", light)
        found = []
        for threads in (1, 2):
            with limit_threads(threads):
                found.append(one_pass(X, V, U, sweeps=2))
        kept = np.array(found[0].U, np.float64)
        for mine, other, right in zip(*found, (kept, kept.T @ kept, kept.T @ plain), strict=True):
            np.testing.assert_array_equal(mine, other)
            assert far(mine, right) < (1e-6 if dtype == np.float32 else 1e-13)


@needs_numba
def test_other_cells_in_place_of_those_summed_before_are_seen(monkeypatch):
    monkeypatch.setattr("fedfactor.linalg.single_pass._LIGHT", 0)  # a copy by columns is kept
    X, _, _, U = case((50, 9, 3), "csr", np.float64)
    before = sums_of_rows(U, X)[1]
    X.data = 2 * X.data
    np.testing.assert_allclose(sums_of_rows(U, X)[1], 2 * before)


@needs_numba
@pytest.mark.parametrize("light", [0, 10**8])
def test_a_long_column_in_single_precision_is_summed_in_double(light, monkeypatch):
    monkeypatch.setattr("fedfactor.linalg.single_pass._LIGHT", light)
    n = 200_000
    U, X = np.full((n, 1), 0.1, np.float32), sp.csr_array(np.full((n, 1), 0.3, np.float32))
    exact = n * float(U[0, 0]) * float(X.data[0])
    assert sums_of_rows(U, X)[1][0, 0] == pytest.approx(exact, rel=2e-6)


@needs_numba
@pytest.mark.parametrize("many", [0, 1 << 25], ids=["in parts", "in one part"])
@pytest.mark.parametrize("k", [1, 5, 20])
def test_so_is_one_long_column_among_many_short_ones(many, k, monkeypatch):
    monkeypatch.setattr("fedfactor.linalg.single_pass._MANY", many)
    n, m = 60_000, 5_000
    rows, columns = np.arange(n), np.random.default_rng(0).integers(1, m, n)
    where = np.concatenate([rows, rows]), np.concatenate([np.zeros(n, int), columns])
    X = sp.csr_array((np.full(2 * n, 0.1, np.float32), where), shape=(n, m))
    U = np.full((n, k), 0.3, np.float32)
    for part in np.asarray(sums_of_rows(U, X)[1], np.float64):  # unlike sums of different cells, these err to one side
        np.testing.assert_allclose(part, 0.3 * X.astype(np.float64).sum(axis=0), rtol=2e-5)


@needs_numba
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_sums_of_no_rows_are_zero_whatever_was_summed_before(make):
    X, _, V, U = case((50, 9, 3), "C", np.float64)
    assert one_pass(make(X), V, U, sweeps=1).A.all()
    assert not one_pass(make(X[:0]), V, U[:0], sweeps=1).A.any()


@needs_numba
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [5, 32, 64, 200])
def test_where_rows_lie_in_memory_does_not_change_bits(columns, dtype):
    X, _, V, U = case((200, columns, 6), "C", dtype)
    whole = one_pass(X, V, U, sweeps=3)
    for skip in (0, 1, 3, 7, 8, 15):
        memory = np.full(X.size + 16, np.nan, dtype)
        moved = memory[skip : skip + X.size].reshape(X.shape)
        moved[...] = X
        for part, same in zip(whole, one_pass(moved, V, U, sweeps=3), strict=True):
            np.testing.assert_array_equal(part, same)
    wider = np.full((200, columns + 3), np.nan, dtype)
    wider[:, 2:-1] = X
    for part, same in zip(whole, one_pass(wider[:, 2:-1], V, U, sweeps=3), strict=True):
        np.testing.assert_array_equal(part, same)


@needs_numba
@pytest.mark.parametrize("stored", ["C", "csr"])
@pytest.mark.parametrize("tol", [0.0, 0.2])
def test_a_row_depends_on_itself_alone(stored, tol):
    X, _, V, U = case((331, 40, 7), stored, np.float32)
    whole = one_pass(X, V, U, sweeps=6, tol=tol).U
    order = np.random.default_rng(0).permutation(331)
    np.testing.assert_array_equal(one_pass(X[order], V, U[order], sweeps=6, tol=tol).U, whole[order])
    parts = [one_pass(X[a:b], V, U[a:b], sweeps=6, tol=tol).U for a, b in ((0, 1), (1, 100), (100, 331))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("stored", ["C", "csr"])
def test_single_precision_sums_tell_the_error(stored):
    """The account ``‖X‖² − 2⟨A, V⟩ + ⟨G, VVᵀ⟩`` is a small difference of large numbers."""
    rng = np.random.default_rng(0)
    U, V = rng.random((20_000, 5)).astype(np.float32), rng.random((5, 40)).astype(np.float32)
    plain = U @ V + np.float32(0.01) * rng.random((20_000, 40), dtype=np.float32)
    X = plain if stored == "C" else sp.csr_array(plain)
    done = one_pass(X, V, U, sweeps=2)
    wide, G, A = (np.array(part, np.float64) for part in (V, done.G, done.A))
    account = (plain.astype(np.float64) ** 2).sum() - 2 * (A * wide).sum() + (G * (wide @ wide.T)).sum()
    exact = ((plain - done.U.astype(np.float64) @ wide) ** 2).sum()
    assert account == pytest.approx(exact, rel=1e-2)  # 1e-4 of X: 6e-8 of ‖X‖² is 0.5 % of it


def test_components_without_weight_stay():
    X, _, V, U = case((10, 8, 3), "C", np.float64)
    V = V.copy()
    V[1] = 0
    np.testing.assert_array_equal(one_pass(X, V, U, sweeps=2).U[:, 1], U[:, 1])


def test_without_the_compiler_it_is_the_same(monkeypatch):
    X, _, V, U = case((50, 20, 4), "C", np.float64)
    fast = one_pass(X, V, U, sweeps=3)
    monkeypatch.setattr(compiled, "load_numba", lambda: None)
    for part, same in zip(one_pass(X, V, U, sweeps=3), fast, strict=True):
        np.testing.assert_allclose(part, same, rtol=1e-12)


MAPPED = """
import numpy as np, sys
from fedfactor.linalg.single_pass import one_pass

def held():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1])

X = np.load(sys.argv[1], mmap_mode="r")
V, U = np.ones((5, X.shape[1]), X.dtype), np.zeros((X.shape[0], 5), X.dtype)
one_pass(X[:200], V, U[:200], sweeps=1)
before = held()
one_pass(X, V, U, sweeps=1)
print(held() - before)
"""


@pytest.mark.slow
@needs_numba
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's account of memory")
def test_mapped_rows_are_not_copied(tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).random((30_000, 500), dtype=np.float32))
    ran = subprocess.run(
        [sys.executable, "-c", MAPPED, str(tmp_path / "rows.npy")], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 10_000  # kilobytes; the rows are 60,000


@needs_numba
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(100, 20, 24), (17, 33, 33), (5, 20, 20), (40, 3, 8), (0, 4, 4)])
def test_rows_and_columns_exchanged(shape, dtype):
    rows, columns, stored = shape
    wide = np.random.default_rng(0).random((rows, stored)).astype(dtype)
    out = np.full((columns, rows), np.nan, dtype)
    compiled.kernel("transpose", np.dtype(dtype))(wide, out, 0, wide.shape[0])
    np.testing.assert_array_equal(out, wide[:, :columns].T)


@needs_numba
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_passes_of_several_owners_are_those_of_each_to_the_bit(dtype):
    kinds = ["C", "csr", "F", "csr64", "unsorted", "C"]
    cases = [case((30 + 7 * i, 50, 5), kind, dtype, seed=i) for i, kind in enumerate(kinds)]
    Xs, Us, V = [each[0] for each in cases], [each[3] for each in cases], cases[0][2]
    assert go_together(Xs, 5)
    alone = [one_pass(X, V, U, sweeps=2, l1=0.1, l2=0.2) for X, U in zip(Xs, Us, strict=True)]
    for threads in (1, 3):
        with limit_threads(threads):
            found = passes(Xs, V, Us, sweeps=2, l1=0.1, l2=0.2)
        for mine, theirs in zip(found, alone, strict=True):
            assert all(np.array_equal(*pair) for pair in zip(mine, theirs, strict=True))


@needs_numba
def test_rows_without_a_compiled_loop_do_not_go_together():
    X = np.ones((2, 3))
    assert go_together([X, sp.csr_array(X)], 1)
    assert not go_together([X, sp.csc_array(X)], 1)
    assert not go_together([X, X.astype(np.float32)], 1)
    assert not go_together([X.astype(int)], 1)
