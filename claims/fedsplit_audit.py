"""From a group's item factors as printed and a quarter of its ratings, the unknown ones come back where the group has 8
users and rank 7 or more, and do not where it has 30 users who rated the same items: on made-up ratings, and on
MovieLens ratings of popular movies. In MovieLens groups as they come, 30 users are no shelter, because most movies have
few raters in a group: those ratings come back. What we send by default (items of four raters or more), and sums, give
next to nothing back.

"Come back": the error on unknown ratings is at most half of what the known ratings give without the upload; "do not":
at least three quarters. "Next to nothing": at most a tenth more of them within half a star than without the upload.
"""

from __future__ import annotations

from papers.fedsplit.audit import Case, by_raters, measure, support_leak
from papers.fedsplit.protocol import prepared

SIZES = [("dense", 8, 7), ("dense", 8, 10), ("dense", 30, 10), ("shared", 8, 7), ("shared", 8, 10), ("shared", 30, 10)]
SIZES += [("shared", 30, 20), ("sparse", 3, 2), ("sparse", 8, 7), ("sparse", 30, 10), ("sparse", 30, 20)]
DEFENDED = [(8, 7, "unit rows, drawn"), (8, 2, "rank n/3"), (8, 2, "default"), (8, 0, "sums only")]
DEFENDED += [(30, 6, "rank n/3"), (30, 6, "default"), (30, 0, "sums only")]


def claim() -> dict:
    R = prepared("movielens_small")
    wanted = {f"{data}, {n} users, k={k}": Case(data, n, k, "as printed", "ratings", 0.25) for data, n, k in SIZES}
    wanted |= {f"sparse, {n} users, {sent}": Case("sparse", n, k, sent, "ratings", 0.25) for n, k, sent in DEFENDED}
    found = {name: measure(R, case) for name, case in wanted.items()}
    gain = {name: one["back"] - one["back_without"] for name, one in found.items()}
    left = {name: one["unknown"] / one["without"] for name, one in found.items()}
    raters = by_raters(R, wanted["sparse, 30 users, k=10"])
    support = support_leak(R, 2)
    holds = (
        all(left[f"{data}, 8 users, k=7"] <= 0.5 for data in ("dense", "shared", "sparse"))
        and all(left[f"{data}, 8 users, k=10"] <= 0.5 for data in ("dense", "shared"))
        and all(left[f"{data}, 30 users, k=10"] >= 0.75 for data in ("dense", "shared"))
        and raters["1"]["back"] > 0.9
        and raters["1"]["back"] - raters["16 or more"]["back"] > 0.15
        and all(gain[f"sparse, {n} users, {sent}"] < 0.1 for n in (8, 30) for sent in ("default", "sums only"))
        and support["as printed"] > 0.99
        and support["drawn (default)"] < 0.7
    )
    figures = {"errors": found, "error_left": left, "more_back": gain, "back_by_raters_30_users": raters}
    return {**figures, "support_auc": support, "holds": bool(holds)}
