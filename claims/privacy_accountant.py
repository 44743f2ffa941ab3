"""The tight books agree with the analytic Gaussian to 0.1 %, and the certified ones lie above them everywhere.

Full participation is compared with an independent numerical accountant and with an independent calibration; with
sampling, the certified figure with the tight one.
"""

from __future__ import annotations

from itertools import product
from typing import Any


def claim() -> dict[str, Any]:
    import dp_accounting
    from dp_accounting.pld import accountant, common

    from fedfactor.privacy.accounting import Release, calibrate, epsilon_of

    worst = above = 0.0
    for epsilon, rounds in product((0.5, 1.0, 4.0, 8.0), (1, 10, 100)):
        theirs = accountant.get_smallest_gaussian_noise(common.DifferentialPrivacyParameters(epsilon, 1e-5), rounds, 1)
        ours = calibrate(epsilon, 1e-5, rounds, accountant="pld")
        worst = max(worst, abs(ours / theirs - 1))
        above = max(above, calibrate(epsilon, 1e-5, rounds) / theirs)
    numerical = 0.0
    for z, rounds in ((5.0, 10), (10.0, 100), (37.3, 100)):
        books = dp_accounting.pld.PLDAccountant()
        books.compose(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(z), rounds))
        exact = epsilon_of([Release(z)] * rounds, 1e-5, "pld")
        numerical = max(numerical, abs(exact / books.get_epsilon(1e-5) - 1))
    order = []
    for z, q, rounds in product((1.0, 4.0), (0.01, 0.1, 1.0), (10, 100)):
        releases = [Release(z, q)] * rounds
        order.append(epsilon_of(releases, 1e-5, "rdp") / epsilon_of(releases, 1e-5, "pld"))
    return {
        "largest_gap_to_an_independent_calibration": worst,
        "largest_gap_to_a_numerical_accountant": numerical,
        "certified_noise_over_tight_at_most": above,
        "certified_over_tight_epsilon": [min(order), max(order)],
        "holds": bool(worst <= 1e-3 and numerical <= 1e-3 and min(order) >= 1 and above < 1.2),
    }
