"""What FedSPLIT's server does with sums: believe them, if some ratings could give them, and join factors."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from fedfactor.core.errors import ProtocolError
from fedfactor.core.pytree import Array
from fedfactor.linalg.missing_values import masked_step
from fedfactor.linalg.nnls import solve_rows
from fedfactor.recommend.fedsplit.messages import JointSums, Stats

__all__ = ["as_joint", "check_stats", "doubtful_stats"]


def check_stats(up: Stats, scale: tuple[float, float] | None = None) -> None:
    """Refuse sums that no ratings can give. Secure aggregation hides which client sent invalid values, so none can be
    left out.
    """
    wrong = doubtful_stats(up, scale)
    if wrong:
        raise ProtocolError(
            f"{wrong} A party sent nonsense, and a sum does not show which, so the run ends here. Without secure "
            "aggregation single uploads are seen, and such ones left out."
        )


def doubtful_stats(up: Stats, scale: tuple[float, float] | None) -> str:
    """Return why no ratings can give these sums, or nothing; the sum of such sums must pass as well."""
    n = float(up.weight)
    slack = 0.5 + 1e-3 * abs(n)
    if n < -0.5:
        return "The number of ratings is negative."
    if scale is not None and not scale[0] * n - slack <= float(up.total) <= scale[1] * n + slack:
        return f"The sum of {n:.0f} ratings is {float(up.total):.6g}, outside the scale {scale}."
    if up.counts is None:
        return ""
    if float(up.counts.min(initial=0)) < -0.5 or abs(float(up.counts.sum()) - n) > slack:
        return "The numbers of ratings contradict each other."
    if (
        scale is not None
        and (np.abs(cast("Any", up.residuals)) > (scale[1] - scale[0] + 1e-3) * (up.counts + 1e-3)).any()
    ):
        return f"Residuals are larger than ratings on the scale {scale} can have."
    return ""


def as_joint(V: Array, up: JointSums, *, sweeps: int) -> np.ndarray:
    """Return the joint V that these sums ask for; at one scale, so that M keeps its meaning from round to round."""
    if up.D is None:
        new = solve_rows(V.T, up.G, up.N.T, sweeps=sweeps).T
    else:
        new, _ = masked_step(V, up.G, up.N, up.D, sweeps=sweeps)
    return np.ascontiguousarray(new)
