from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def X():
    """Thirty rows of rank three, with a little noise."""
    rng = np.random.default_rng(0)
    return rng.random((30, 3)) @ rng.random((3, 6)) + 0.01 * rng.random((30, 6))


@pytest.fixture
def owner():
    """Who owns each of the thirty rows, in no order."""
    return np.random.default_rng(1).permutation(["north"] * 7 + ["south"] * 11 + ["west"] * 12)
