"""Folding: the compiled loop takes the steps that plain products take, whatever the sizes and the threads."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.core.threads import limit_threads
from fedfactor.linalg.compiled import compile as compiled
from fedfactor.nmf.pooled.fold_components import _Problem, fold_components

needs_numba = pytest.mark.skipif(compiled.load_numba() is None, reason="there is one way only")


def sums(K, m, seed=0, n=200):
    """Return what a server has: the sums of a wide factor, and its components."""
    rng = np.random.default_rng(seed)
    X = rng.gamma(0.5, size=(n, 5)) @ rng.gamma(0.5, size=(5, m)) + 0.1 * rng.random((n, m))
    W, wide = rng.gamma(0.5, size=(n, K)), rng.random((K, m))
    return W.T @ W, W.T @ X, wide


@needs_numba
@pytest.mark.parametrize("true", [False, True])
@pytest.mark.parametrize(("K", "m", "k"), [(6, 3, 2), (15, 64, 5), (70, 131, 21), (9, 300, 9)])
def test_compiled_steps_are_plain_steps(K, m, k, true):
    G, A, wide = sums(K, m)
    problem = _Problem(A, G) if true else _Problem(wide)
    plain = _Problem(A, G) if true else _Problem(wide)
    plain._run, plain.R = None, A if true else wide
    rng = np.random.default_rng(1)
    V, left = rng.random((k, m)), rng.random((K, k))
    for got, expected in zip(problem.descend(left, V, 7), plain.descend(left, V, 7), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_change_bits(threads):
    G, A, wide = (part.astype(np.float32) for part in sums(12, 90))
    found = []
    for many in (1, threads):
        with limit_threads(many):
            found.append(fold_components(G, A, wide, 4, np.random.default_rng(0), starts=4, steps=(3, 3, 3)))
    np.testing.assert_array_equal(*found)


def test_single_precision_ends_where_double_does():
    G, A, wide = sums(15, 80)
    double, single = (
        fold_components(*(part.astype(kind) for part in (G, A, wide)), 5, np.random.default_rng(0), starts=2,
                        steps=(10, 10, 20))
        for kind in (np.float64, np.float32)
    )  # fmt: skip
    np.testing.assert_allclose(single, double, atol=1e-3)
