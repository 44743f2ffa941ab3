"""How much a run holds at most; the same figures are a claim in claims/memory.py."""

from __future__ import annotations

import pytest

from claims._memory import LARGE_SPARSE, MANY_OWNERS, measure

pytestmark = [pytest.mark.slow, pytest.mark.integration]


def test_a_thousand_owners_fit_into_a_gigabyte():
    found = measure(MANY_OWNERS)
    assert found["rounds"] == 10
    assert found["peak_rss"] < 10**9


@pytest.mark.parametrize(
    ("kind", "measured"),
    # Slices are views, so the caller's own rows count; random groups are copies, so what the run adds to them counts.
    [("slices", "peak_above_start"), ("random", "peak_above_rows")],
)
def test_a_large_sparse_matrix_is_held_at_most_twice(kind, measured):
    found = measure(LARGE_SPARSE, kind)
    assert found["rounds"] == 10
    assert found[measured] <= 2 * found["data_bytes"] + found["U_bytes"], found
