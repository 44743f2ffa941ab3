"""The singular-vector start agrees with scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.decomposition._nmf import _initialize_nmf

from fedfactor.linalg.nndsvd import nndsvd, randomized_svd


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_agrees_with_scikit_learn(store):
    X = load_digits().data
    # Five components: with more, scikit-learn itself iterates less and is the less exact of the two.
    U, V = nndsvd(store(X), 5, seed=3)
    want_U, want_V = _initialize_nmf(X, 5, init="nndsvd", random_state=0)
    np.testing.assert_allclose(U, want_U, atol=1e-4)
    np.testing.assert_allclose(V, want_V, atol=1e-4)


def test_svd_is_exact_at_full_width():
    X = np.random.default_rng(0).random((9, 6))
    left, sizes, right = randomized_svd(X, 6)
    np.testing.assert_allclose((left * sizes) @ right, X, atol=1e-10)


def test_types_zero_and_bounds():
    X = np.zeros((4, 3), np.float32)
    U, V = nndsvd(X, 2)
    assert U.dtype == V.dtype == np.float32
    assert not U.any()
    torch = pytest.importorskip("torch")
    A = np.random.default_rng(1).random((12, 8)).astype(np.float32)
    np.testing.assert_allclose(nndsvd(torch.tensor(A), 3)[0].numpy(), nndsvd(A, 3)[0], atol=1e-4)
    with pytest.raises(ValueError, match="n_components"):
        nndsvd(X, 4)
