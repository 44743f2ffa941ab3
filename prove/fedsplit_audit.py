"""From a group's item factors and a quarter of its ratings, the others come back where the group has 8 users and rank 7
or more, and do not where it has 30 users who rate the same items; sums give nothing back. Among MovieLens users, who
share few items, 30 users are no shelter either.
"""

from __future__ import annotations

from fedfactor.experiments.fedsplit.audit import Case, measure, support_leak
from fedfactor.experiments.fedsplit.protocol import prepared


def claim() -> dict:
    R = prepared("movielens_small")
    wanted = {
        "dense, 8 users, k=7": Case("dense", 8, 7, "as printed", "ratings", 0.25),
        "dense, 8 users, k=10": Case("dense", 8, 10, "as printed", "ratings", 0.25),
        "dense, 30 users, k=10": Case("dense", 30, 10, "as printed", "ratings", 0.25),
        "MovieLens, 3 users, k=2": Case("sparse", 3, 2, "as printed", "ratings", 0.25),
        "MovieLens, 8 users, k=7": Case("sparse", 8, 7, "as printed", "ratings", 0.25),
        "MovieLens, 30 users, k=10": Case("sparse", 30, 10, "as printed", "ratings", 0.25),
        "MovieLens, 8 users, default": Case("sparse", 8, 2, "rank n/3", "ratings", 0.25),
        "MovieLens, 8 users, sums only": Case("sparse", 8, 0, "sums only", "ratings", 0.25),
    }
    found = {name: measure(R, case) for name, case in wanted.items()}
    back = {name: one["back"] for name, one in found.items()}
    support = support_leak(R, 2)
    holds = (
        back["dense, 8 users, k=7"] > 0.8
        and back["dense, 8 users, k=10"] > 0.9
        and back["dense, 30 users, k=10"] < 0.5
        and back["MovieLens, 8 users, k=7"] > 0.9
        and found["MovieLens, 8 users, sums only"]["unknown"] > 0.85 * found["MovieLens, 8 users, sums only"]["blind"]
        and support["as printed"] > 0.99
        and support["drawn (default)"] < 0.7
    )
    return {"errors": found, "support_auc": support, "holds": bool(holds)}
