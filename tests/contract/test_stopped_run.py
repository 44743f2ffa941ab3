"""A run that a callback stops ends on the V it reached, not on the extrapolated one that was to go out."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.datasets.synthetic import planted_nmf


@pytest.mark.parametrize("stop", range(8, 24, 3))
def test_a_stopped_run_is_as_good_as_it_said(stop):
    X = planted_nmf(120, 40, 6, noise=0.1, density=0.6).X
    run = fedfactor.run(
        PooledNMF(6, tol=0), {"a": X[:50], "b": X[50:]}, rounds=200, seed=1, callbacks=[lambda r: r.index == stop]
    )
    assert run.status == "stopped"
    assert run.relative_error <= run.history[-1].metrics["relative_error"] * (1 + 1e-12)
    np.testing.assert_allclose(np.linalg.norm(run.V, axis=1), 1)
