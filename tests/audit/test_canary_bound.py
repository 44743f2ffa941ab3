"""The lower bound of ε must hold at its level although it tries several numbers of guesses."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.audit.one_run_canaries import epsilon_lower_bound


@pytest.mark.slow
def test_guesses_that_know_nothing_rarely_refute_anything():
    rng = np.random.default_rng(0)
    found = [epsilon_lower_bound(rng.random(200), rng.random(200) < 0.5, 0.0)["epsilon"] for _ in range(500)]
    # Of 500 runs in truth private (ε = 0) at most 5 % may show more, up to three deviations of their count. At the
    # full level for each of the five tries it would be far more.
    assert np.mean(np.array(found) > 0) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 500)
