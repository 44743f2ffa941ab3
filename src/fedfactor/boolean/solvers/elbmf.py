"""ELBMF: relaxed factors drawn to {0, 1} by two elastic nets whose weight grows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedfactor.boolean.product import round_half
from fedfactor.boolean.proximal_maps import Pull, prox_step
from fedfactor.boolean.solvers.result import Clock, Factored
from fedfactor.core.pytree import Array
from fedfactor.linalg.nnls import squared_error
from fedfactor.linalg.products import as_like, cross, gram, gram_rows, squared_norm, sums

__all__ = ["elbmf", "relaxed_steps"]


def elbmf(
    X: Array,
    k: int,
    *,
    rng: np.random.Generator,
    pull: Pull | None = None,
    rate: float = 1.02,
    max_iter: int = 3000,
    tol: float = 1e-8,
    time_limit: float | None = None,
) -> Factored:
    r"""Factor a Boolean matrix with ELBMF.

    .. math:: \min_{U, V \in [0, 1]} \tfrac12 \|X - UV\|^2 + R_t(U) + R_t(V)

    by alternating inertial proximal steps, with R of :class:`~fedfactor.boolean.proximal_maps.Pull` and
    :math:`\lambda_t = \lambda \cdot \text{rate}^t`; then cells above ½ become ones.

    Parameters
    ----------
    X : array or sparse matrix of 0 and 1, shape (n, m)
    k : int
        Components.
    rng : Generator
        Draws the start, uniform on [0, 1].
    pull : Pull, optional
        By default κ = 0.01, λ = 0.02, β = 1e-4, as the authors' code has them, with the step that descends.
    rate : float
        Growth of λ in each step.
    max_iter : int
        Most alternating steps.
    tol : float
        Stop when the squared error moves less than this.
    time_limit : float, optional
        Seconds; the factors of that moment are rounded.

    Returns
    -------
    Factored

    References
    ----------
    .. [1] S. Dalleiger, J. Vreeken, "Efficiently factorizing Boolean matrices using proximal gradient descent", NeurIPS
       2022.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.kron(np.eye(2), np.ones((4, 3)))
    >>> found = elbmf(X, 2, rng=np.random.default_rng(0))
    >>> bool(((found.U @ found.V > 0) == X).all())
    True
    """
    pull = Pull(lam=0.02, beta=1e-4) if pull is None else pull
    _check(pull, rate)
    last = 600 / math.log(rate) if rate > 1 else math.inf  # beyond it λ is at its most, and the power overflows
    clock = Clock(time_limit)
    total = squared_norm(X)
    before = np.inf
    U = as_like(rng.random((X.shape[0], k)), X)
    V = as_like(rng.random((k, X.shape[1])), X)
    U_prev = U
    V_prev = V
    t = 0
    for t in range(max_iter):
        now = replace(pull, lam=min(pull.lam * rate ** min(t, last), 1e12))
        U, U_prev, V, V_prev, error = relaxed_steps(X, U, U_prev, V, V_prev, now, total)
        if abs(error - before) < tol or clock.over():
            break
        before = error
    return Factored(_bytes(U), _bytes(V), finished=not clock.rang, n_iter=t + 1)


def relaxed_steps(
    X: Array,
    U: Array,
    U_prev: Array,
    V: Array,
    V_prev: Array,
    pull: Pull,
    total: float | None = None,
) -> tuple[Array, Array, Array, Array, float]:
    """Step U, then V with the new U; return both with what they were, and ``‖X − UV‖²`` when ``‖X‖²`` is given."""
    U, U_prev = prox_step(U, U_prev, gram_rows(V), cross(X, V), pull), U
    G = gram(U)
    A = sums(U, X)
    V, V_prev = prox_step(V.T, V_prev.T, G, A.T, pull).T, V
    return U, U_prev, V, V_prev, squared_error(total, A, G, V) if total is not None else np.nan


def _check(pull: Pull, rate: float) -> None:
    if not (pull.kappa >= 0 and pull.lam >= 0 and rate >= 1):
        raise ValueError(
            f"kappa={pull.kappa} and lam={pull.lam} must not be negative, and rate={rate} must be at least 1."
        )
    if not 0 <= pull.beta < 0.5:
        raise ValueError(f"beta={pull.beta} must lie in [0, 0.5): the step size would not be positive.")


def _bytes(A: Array) -> np.ndarray:
    return as_like(round_half(A), np.empty(0)).astype(np.uint8)
