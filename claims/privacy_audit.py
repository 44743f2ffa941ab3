"""The audit is consistent on the real code and refutes, at ε = 1, a build whose composition is switched off.

A thousand planted rows, a hundred rounds, five seeds for each ε. The broken build adds in each round the noise that one
release would need, as the papers do; for claims of 2 and 4 its figures are reported.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def claim() -> dict[str, Any]:
    import fedfactor
    from fedfactor.audit import epsilon_lower_bound, plant_canaries, score_canaries
    from fedfactor.privacy import SecureSum, calibrate

    right: dict[str, list[float]] = {}
    broken: dict[str, list[float]] = {}
    for epsilon in (1.0, 2.0, 4.0):
        once = calibrate(epsilon, 1e-5, 1, accountant="pld")
        for seed in range(5):
            planted = plant_canaries(1000, np.random.default_rng(seed))
            public = {"row_bound": 1.0, "rows": 500, "accountant": "pld"}
            for found, privacy in (
                (right, fedfactor.dp(epsilon, 1e-5, **public)),
                (broken, fedfactor.dp(1e9, 1e-5, noise_multiplier=once, **public)),
            ):
                channel = (privacy, SecureSum(threshold=1.0))
                scores = score_canaries(planted, channel, rounds=100, n_clients=4, seed=seed)
                bound = epsilon_lower_bound(scores, planted.included, 1e-5)["epsilon"]
                found.setdefault(f"{epsilon:g}", []).append(bound)
    consistent = all(max(bounds) <= float(epsilon) for epsilon, bounds in right.items())
    return {
        "lower_bounds_on_the_real_code": {e: [min(b), max(b)] for e, b in right.items()},
        "lower_bounds_without_composition": {e: [min(b), max(b)] for e, b in broken.items()},
        "claims_refuted_without_composition": [e for e, b in broken.items() if min(b) > float(e)],
        "holds": bool(consistent and min(broken["1"]) > 1),
    }
