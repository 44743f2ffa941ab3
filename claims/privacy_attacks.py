"""Attacks succeed on raw uploads and on bare sums, and fail behind the minimums and the noise.

Rows of small clients from one upload (100 % in the clear, none under a secure sum with noise); the u of rows that alone
fill a column; a client's upload from the difference of two sums; with the minimums switched off by name, and on.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np


def claim() -> dict[str, Any]:
    import fedfactor
    from fedfactor.algorithms import PooledNMF
    from fedfactor.audit import audit
    from fedfactor.privacy import Minimums

    rng = np.random.default_rng(0)
    small = {f"c{i}": (rng.random((n, 500)) < 0.05) * 1.0 for i, n in enumerate((1, 3, 5, 8) * 10)}
    raw = _figures(audit(PooledNMF(8), small, rounds=3), "rows from one upload in the clear")
    hidden = audit(PooledNMF(8), small, privacy=fedfactor.dp(1.0), rounds=10)  # the very same clients
    behind = _figures(hidden, "rows from the sums")
    # Smooth rows, and columns that one row alone fills.
    Y = rng.random((1200, 6)) @ rng.random((6, 240)) + 0.01
    Y[:, 200:] = 0
    Y[np.arange(40), 200 + np.arange(40)] = 1.0
    parts = dict(zip("abcdef", np.array_split(Y, 6), strict=True))
    off = Minimums(allow=("rare-columns", "changed-cohort", "small-client"))
    bare, kept = (audit(PooledNMF(6), parts, privacy=p, rounds=20) for p in (("secure-sum", off), "secure-sum"))
    names = ("columns that one row fills", "difference of two sums")
    figures = {
        "in_the_clear": raw,
        "secure_sum_and_noise": behind,
        "without_minimums": {name: _figures(bare, name) for name in names},
        "with_minimums": {name: _figures(kept, name) for name in names},
        "genes_of_mouse_bladder": _genes(off),
        "verdicts": [bare.verdict, kept.verdict, hidden.verdict],
    }
    exposed = figures["without_minimums"][names[0]]["rows_exposed"]
    genes = figures["genes_of_mouse_bladder"]
    holds = (
        raw["recovered"] == raw["rows"]
        and raw["false"] == 0
        and behind["recovered"] == 0
        and exposed == 40
        and figures["with_minimums"][names[0]]["rows_exposed"] == 0
        and figures["without_minimums"][names[1]]["relative_error"] < 0.1
        and figures["with_minimums"][names[1]] == {"refused": True}
        and (not genes or genes["without_minimums"]["rows_exposed"] > 100 > 0 == genes["with_minimums"]["rows_exposed"])
    )
    return {**figures, "holds": bool(holds)}


def _genes(off: Any) -> dict[str, Any]:
    """Look at genes that one cell expresses, in the first sum of six owners; empty when the data are not here."""
    from fedfactor.algorithms import PooledNMF
    from fedfactor.audit.run_audit import singletons
    from fedfactor.core.client_data import Federation
    from fedfactor.core.errors import FedfactorError
    from fedfactor.datasets.loading import load_dataset

    try:
        X = load_dataset("mouse_bladder").X
    except (FedfactorError, OSError):
        return {}
    cuts = np.linspace(0, X.shape[0], 7).astype(int)
    cells = Federation({str(i): X[a:b] for i, (a, b) in enumerate(pairwise(cuts))})
    chosen = {"without_minimums": ("secure-sum", off), "with_minimums": ("secure-sum",)}
    return {name: singletons(PooledNMF(10), cells, privacy, 0).figures for name, privacy in chosen.items()}


def _figures(report: Any, attack: str) -> dict[str, Any]:
    return next(finding.figures for finding in report.findings if finding.attack == attack)
