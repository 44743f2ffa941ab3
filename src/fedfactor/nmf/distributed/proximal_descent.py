"""Steps for subproblems that are only approximately known: proximal coordinate descent, diminishing gradient steps.

A sketched or stale subproblem must not be solved exactly: its solution moves away from that of the whole problem. The
proximal term ``μ ‖W − W₀‖²`` with growing μ (or a shrinking step) keeps each step near where it began.
"""

from __future__ import annotations

from typing import Literal

from array_api_compat import array_namespace, device

from fedfactor.core.pytree import Array
from fedfactor.linalg.nnls import gradient_step, lipschitz, solve_rows

__all__ = ["check_schedule", "inexact_step", "proximal_step", "schedule"]
Solver = Literal["proximal", "gradient"]
Rule = Literal["relative", "absolute"]

_DEFAULTS = {"proximal": (0.1, 0.01), "gradient": (1.0, 0.01)}
"""Start and growth that make either solver reach the floor whatever the scale of the data."""


def proximal_step(W: Array, G: Array, B: Array, mu: float, *, sweeps: int = 1) -> Array:
    r"""Take sweeps of coordinate descent on the proximal subproblem.

    .. math:: \min_{W' \ge 0} \tfrac12\langle W'G, W'\rangle - \langle W', B\rangle + \tfrac{\mu}{2}\|W' - W\|^2

    Parameters
    ----------
    W : array, shape (n, k)
        Where the step begins, non-negative.
    G : array, shape (k, k)
    B : array, shape (n, k)
    mu : float
        Weight of staying near W; 0 gives plain coordinate descent.
    sweeps : int
        Passes over the k coordinates.

    Returns
    -------
    array, shape (n, k)

    Examples
    --------
    >>> import numpy as np
    >>> proximal_step(np.array([[1.0]]), np.eye(1), np.array([[3.0]]), mu=1.0)
    array([[2.]])
    """
    if mu == 0:
        return solve_rows(W, G, B, sweeps=sweeps)
    eye = array_namespace(G).eye(G.shape[0], dtype=G.dtype, device=device(G))
    return solve_rows(W, G + mu * eye, B + mu * W, sweeps=sweeps)


def schedule(solver: Solver, start: float | None, growth: float | None, t: int) -> float:
    """Return the weight ``start + growth t`` of the proximal solver, or the step ``start / (1 + growth t)``.

    Parameters
    ----------
    solver : {"proximal", "gradient"}
    start, growth : float or None
        None: 0.1 and 0.01 (proximal), 1 and 0.01 (gradient).
    t : int
        Iterations so far. Linear growth is what the convergence proof asks for: Σ 1/μ = ∞, Σ 1/μ² < ∞.

    Examples
    --------
    >>> schedule("proximal", None, None, 10), schedule("gradient", 1.0, 1.0, 3)
    (0.2, 0.25)
    """
    first, slope = _DEFAULTS[solver]
    start = first if start is None else start
    growth = slope if growth is None else growth
    return start + growth * t if solver == "proximal" else start / (1 + growth * t)


def check_schedule(solver: Solver, start: float | None, growth: float | None) -> None:
    """Refuse a schedule whose weights or steps would not be positive; a proximal weight may begin at 0, as published.

    Examples
    --------
    >>> check_schedule("proximal", 0.0, None)
    """
    if start is not None and not (start >= 0 if solver == "proximal" else start > 0):
        raise ValueError(f"schedule_start={start} must not be negative, and a gradient step must be above 0.")
    if growth is not None and not growth >= 0:
        raise ValueError(f"growth={growth} must not be negative.")


def inexact_step(W: Array, G: Array, B: Array, *, solver: Solver, rule: Rule, amount: float) -> Array:
    """Take one step on an approximate subproblem.

    Parameters
    ----------
    W, G, B : array
        As in :func:`proximal_step`.
    solver : {"proximal", "gradient"}
        One sweep of proximal coordinate descent, or one projected gradient step.
    rule : {"relative", "absolute"}
        ``relative``: μ is ``amount`` times the mean of the diagonal of G, and the gradient step is ``amount / ‖G‖₂``,
        so that scaled data give the same iterates. ``absolute``: μ is ``amount``, and the gradient of the un-halved
        loss is followed for ``amount``, as in the published method.
    amount : float
        From :func:`schedule`.

    Examples
    --------
    >>> import numpy as np
    >>> W, G, B = np.array([[1.0]]), np.array([[4.0]]), np.array([[12.0]])
    >>> inexact_step(W, G, B, solver="proximal", rule="relative", amount=1.0)
    array([[2.]])
    >>> inexact_step(W, G, B, solver="gradient", rule="absolute", amount=0.0625)
    array([[2.]])
    """
    if solver == "gradient":
        return gradient_step(W, G, B, step=2 * amount if rule == "absolute" else amount / lipschitz(G))
    if rule == "relative":
        amount = amount * float(array_namespace(G).linalg.trace(G)) / G.shape[0]
    return proximal_step(W, G, B, amount)
