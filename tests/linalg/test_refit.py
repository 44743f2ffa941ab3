"""The final solve of U for a fixed V."""

from __future__ import annotations

import numpy as np

from fedfactor.linalg.factors import fit_rows, refit_rows


def test_single_precision_refit_is_as_exact_as_its_type_allows():
    rng = np.random.default_rng(0)
    V = rng.random((5, 30))
    X = np.abs(rng.random((200, 5)) @ V + 0.1 * rng.standard_normal((200, 30)))
    exact = refit_rows(None, X, V)
    X32, V32 = X.astype(np.float32), V.astype(np.float32)
    near = fit_rows(np.zeros((200, 5), np.float32), X32, V32, sweeps=20)
    refit = refit_rows(near, X32, V32)
    assert refit.dtype == np.float32
    assert np.linalg.norm(X - refit @ V) <= np.linalg.norm(X - exact @ V) * (1 + 1e-7)
    np.testing.assert_allclose(refit, exact, atol=1e-3 * exact.max())
