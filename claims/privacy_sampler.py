"""The discrete Gaussian sampler has the exact distribution: uniform chi-square values, right spread in two million.

Where OpenDP is installed, its draws are compared too.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy.stats import chisquare, ks_2samp, kstest


def _p_value(draws: np.ndarray, sigma: int) -> float:
    support = np.arange(-12 * sigma, 12 * sigma + 1)
    chance = np.exp(-(support**2) / (2 * sigma**2))
    expected = chance / chance.sum() * draws.size
    seen = np.bincount(np.clip(draws, support[0], support[-1]) - support[0], minlength=support.size)
    common = expected > 8
    rest = max(draws.size - expected[common].sum(), 1e-9)
    table = np.append(seen[common], draws.size - seen[common].sum()), np.append(expected[common], rest)
    return float(chisquare(*table, sum_check=False).pvalue)


def claim() -> dict[str, Any]:
    from fedfactor.core.entropy import Entropy
    from fedfactor.privacy.discrete_gaussian import discrete_gaussian

    uniform = {}
    for bits in (0, 2, 4, 6):
        found = [_p_value(discrete_gaussian(50_000, bits, Entropy()), 1 << bits) for _ in range(25)]
        uniform[1 << bits] = float(kstest(found, "uniform").pvalue)
    errors = {}
    for bits in (6, 11, 20):
        draws = discrete_gaussian(2_000_000, bits, Entropy()) / 2.0**bits
        errors[1 << bits] = float((draws.std() - 1) * np.sqrt(2 * draws.size))
    began = time.perf_counter()
    discrete_gaussian(250_000, 20, Entropy())
    seconds = time.perf_counter() - began
    figures: dict[str, Any] = {
        "seconds_for_250k": seconds,
        "ks_of_chi_square": uniform,
        "spread_in_standard_errors": errors,
    }
    try:
        import opendp.prelude as opendp

        opendp.enable_features("contrib")
        space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T=float)
        theirs = opendp.m.make_gaussian(*space, scale=2048.0)([0] * 100_000)
        figures["ks_against_opendp"] = float(ks_2samp(theirs, discrete_gaussian(100_000, 11, Entropy())).pvalue)
    except ImportError:
        figures["ks_against_opendp"] = None
    # Fresh randomness every time: thresholds that a right sampler misses once in thousands of runs.
    right = min(uniform.values()) > 5e-4 and max(map(abs, errors.values())) < 4
    return {**figures, "holds": bool(right and (figures["ks_against_opendp"] or 1) > 5e-4)}
