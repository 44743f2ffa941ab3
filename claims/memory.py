"""Ten rounds of PooledNMF on 200,000 × 2,000 cells (1 % stored, 50 owners, rank 20)
hold at most twice the rows, and U.

Slices: all that the process holds above an idle one, the caller's rows among it. Random groups: what the run adds to
the caller's rows, since each owner then has a copy of its own. A thousand owners of 20 × 500 rows take less than 1 GB.
"""

from __future__ import annotations

from claims._memory import LARGE_SPARSE, MANY_OWNERS, measure

GIGABYTE = 10**9


def claim() -> dict:
    many = measure(MANY_OWNERS)
    slices, groups = (measure(LARGE_SPARSE, kind) for kind in ("slices", "random"))
    for found in (slices, groups):
        found["limit"] = 2 * found["data_bytes"] + found["U_bytes"]
    lean = slices["peak_above_start"] <= slices["limit"] and groups["peak_above_rows"] <= groups["limit"]
    holds = many["peak_rss"] < GIGABYTE and lean
    return {"thousand_owners": many, "slices": slices, "random_groups": groups, "holds": bool(holds)}
