"""The best items, against sorting everything."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from fedfactor.linalg.compiled import compile as compiled
from fedfactor.recommend.top_items import best_items


@pytest.mark.parametrize("numba", [True, False])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("n", [1, 5, 40])
def test_the_same_as_sorting(numba, skip, n, monkeypatch):
    if not numba:
        monkeypatch.setattr(compiled, "load_numba", lambda: None)
    rng = np.random.default_rng(0)
    U, V = rng.integers(0, 3, (30, 2)).astype(float), rng.integers(0, 3, (2, 40)).astype(float)  # many ties
    seen = scipy.sparse.csr_array((rng.random((30, 40)) < 0.3).astype(float))
    columns, scores = best_items(U, V, seen, n, skip_seen=skip)
    full = U @ V
    if skip:
        full[seen.toarray() > 0] = -np.inf
    order = np.argsort(-full, axis=1, kind="stable")[:, :n]
    np.testing.assert_array_equal(scores, np.take_along_axis(full, order, axis=1))
    fine = np.isfinite(scores)
    np.testing.assert_array_equal(columns[fine], order[fine])
