"""Was this row there? Scores, and how much better than chance they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import beta, rankdata

__all__ = ["membership_figures", "residual_scores"]


def residual_scores(X: Any, V: np.ndarray) -> np.ndarray:
    """Score rows by how well V alone explains them (least squares): members fit better when V was fitted to few rows.

    Examples
    --------
    >>> -residual_scores(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0]]))
    array([0., 1.])
    """
    X = np.asarray(X.todense() if hasattr(X, "todense") else X, dtype=np.float64)
    rest = X - (X @ np.linalg.pinv(V)) @ V
    return -np.linalg.norm(rest, axis=1) / np.maximum(np.linalg.norm(X, axis=1), 1e-300)


def membership_figures(members: np.ndarray, others: np.ndarray, level: float = 0.95) -> dict[str, Any]:
    """Return AUC with its interval, and the true-positive rate at 0.1 % and 1 % false positives with theirs.

    Parameters
    ----------
    members, others : arrays
        Scores of rows that were in the run, and of rows that were not.
    level : float
        Of the intervals: Hanley and McNeil for the AUC, Clopper and Pearson for the rates.

    Examples
    --------
    >>> figures = membership_figures(np.arange(100) + 50.0, np.arange(1000) * 0.1)
    >>> figures["auc"] > 0.7
    True
    """
    a = members.size
    b = others.size
    ranks = rankdata(np.concatenate([members, others]))
    auc = float((ranks[:a].sum() - a * (a + 1) / 2) / (a * b))
    q1 = auc / (2 - auc)
    q2 = 2 * auc**2 / (1 + auc)
    spread = math.sqrt(max(auc * (1 - auc) + (a - 1) * (q1 - auc**2) + (b - 1) * (q2 - auc**2), 0.0) / (a * b))
    width = 1.959964 if level == 0.95 else float(np.sqrt(2) * _normal(level))
    found: dict[str, Any] = {
        "auc": auc,
        "auc_interval": [max(0.0, auc - width * spread), min(1.0, auc + width * spread)],
    }
    for name, rate in (("tpr_at_0.1%_fpr", 0.001), ("tpr_at_1%_fpr", 0.01)):
        threshold = np.quantile(others, 1 - rate, method="higher")
        hits = int((members > threshold).sum())
        found[name] = hits / a
        found[f"{name}_interval"] = _interval(hits, a, level)
        # The threshold comes from these very outsiders: of all outsiders, more may lie above it.
        found["false_alarms_" + name[4:] + "_at_most"] = _interval(int((others > threshold).sum()), b, level)[1]
        found[f"{name}_resolvable"] = bool(b * rate >= 1)  # with fewer outsiders the rate cannot be measured
    return found


def _interval(hits: int, of: int, level: float) -> list[float]:
    low = float(beta.ppf((1 - level) / 2, hits, of - hits + 1)) if hits else 0.0
    return [low, float(beta.ppf((1 + level) / 2, hits + 1, of - hits)) if hits < of else 1.0]


def _normal(level: float) -> float:
    from scipy.special import erfinv

    return float(erfinv(level))
