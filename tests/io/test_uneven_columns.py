"""Owners with other units: which columns are named."""

from __future__ import annotations

import numpy as np

from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.column_scales import column_sums
from fedfactor.io.uneven_columns import different_units, warn_of_scales


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


def warned(rows, recwarn):
    names = ("platelets", "glucose")
    warn_of_scales(Federation({name: Shard(X, None, names) for name, X in rows.items()}))
    return " ".join(str(each.message) for each in recwarn)


def test_one_outlier_is_no_other_unit(recwarn):
    rng = np.random.default_rng(1)
    rows = {name: np.column_stack([rng.normal(250, 40, 60), rng.normal(5, 1, 60)]) for name in ("north", "south")}
    rows["north"][7, 0] = 999_999
    found = warned(rows, recwarn)
    assert "different units" not in found
    assert "Cells far from all others: 'platelets' at 'north' has 1e+06" in found


def test_values_in_another_unit_are_no_outliers(recwarn):
    rng = np.random.default_rng(1)
    rows = {name: np.column_stack([rng.normal(80, 9, 60), rng.normal(5, 1, 60)]) for name in ("north", "south")}
    rows["south"][:, 0] /= 88.4
    found = warned(rows, recwarn)
    assert "different units: 'platelets' is 90 times larger" in found
    assert "Cells far" not in found
