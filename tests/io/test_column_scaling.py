"""Owners with other units: which columns are named."""

from __future__ import annotations

import numpy as np

from fedfactor.core.column_statistics import column_sums
from fedfactor.io.column_scaling import different_units


def said(here, there):
    return different_units(["glucose", "age"], {"north": column_sums(here), "south": column_sums(there)})


def test_steady_values_eighteen_times_larger_are_other_units_and_rare_ones_are_not():
    rng = np.random.default_rng(0)
    glucose, age = rng.normal(5.5, 1.0, (60, 1)), rng.normal(50, 9, (60, 1))
    assert "'glucose' is 18 times larger at 'south'" in said(np.hstack([glucose, age]), np.hstack([18 * glucose, age]))
    assert not said(np.hstack([glucose, age]), np.hstack([3 * glucose, age]))
    rare = np.zeros((60, 1))
    rare[:2] = 5.0
    assert not said(np.hstack([rare, age]), np.hstack([18 * rare, age]))
