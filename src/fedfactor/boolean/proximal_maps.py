"""Proximal maps that draw numbers to 0 and 1, and the inertial step that uses them.

The step works on one factor as :mod:`fedfactor.linalg.nnls` does: W (n × k) with ``G = V Vᵀ``, ``B = X Vᵀ`` for
U; for V pass ``W = Vᵀ``, ``G = UᵀU``, ``B = (UᵀX)ᵀ``. Nothing is written to the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from array_api_compat import array_namespace

from fedfactor.core.pytree import Array, is_numpy
from fedfactor.linalg.compiled.compile import kernel
from fedfactor.linalg.nnls import lipschitz

__all__ = ["Pull", "adaptive_rate", "elastic_prox", "integrality_gap", "prox_step", "step_size", "tent_prox"]
_LEAST = 1e-4  # no Lipschitz constant is taken below this


@dataclass(frozen=True, slots=True)
class Pull:
    r"""How factors are drawn to {0, 1}: the weights of the regulariser, and the form of the step.

    .. math:: R(z) = \min\{\kappa|z| + \tfrac{\lambda}{2} z^2,\ \kappa|z-1| + \tfrac{\lambda}{2}(z-1)^2\}

    Parameters
    ----------
    kappa, lam : float
        Weights of the two elastic nets; λ is that of the present step.
    beta : float
        Inertia.
    gamma : float
        Above 0: λ is divided by ``1 − exp(−gamma d)`` in each cell, d its distance to the nearest of {0, 1}.
    eps : float
        Smallest such distance.
    scale : bool
        Weigh the pull by the step size, as the theory of proximal gradients asks.
    bound : {"safe", "elbmf"}
        Step ``(1−2β)/(1+2β)/L``, which descends although R is not convex, or ``2(1−β)/(1+2β)/L``.
    norm : {"frobenius", "spectral"}
        L of the Gram matrix.
    printed : bool
        Shrink by κ without stopping at 0 (and 1), as printed in the FELB paper.
    slow : float
        Divides the step.
    """

    kappa: float = 0.01
    lam: float = 0.01
    beta: float = 0.01
    gamma: float = 0.0
    eps: float = 1e-2
    scale: bool = True
    bound: Literal["safe", "elbmf"] = "safe"
    norm: Literal["frobenius", "spectral"] = "frobenius"
    printed: bool = False
    slow: float = 1.0


def elastic_prox(
    Z: Array, kappa: float, lam: float, *, gamma: float = 0.0, eps: float = 1e-2, printed: bool = False
) -> Array:
    r"""Minimise ``½(w − z)² + R(w)`` over the unit interval, cell by cell.

    .. math:: R(w) = \min\{\kappa|w| + \tfrac{\lambda}{2} w^2,\ \kappa|w-1| + \tfrac{\lambda}{2}(w-1)^2\}

    Parameters
    ----------
    Z : array
        Any shape.
    kappa, lam : float
        Weights, already multiplied by the step size where one was taken.
    gamma, eps : float
        Above 0: λ is replaced in each cell by :func:`adaptive_rate` of z (held fixed, so that this is then no longer
        exactly the minimiser of that regulariser).
    printed : bool
        The formula of the FELB paper, which shrinks by κ past 0 and past 1.

    Returns
    -------
    array
        Of the shape and type of `Z`, in [0, 1]. At z = ½ both branches are minimisers; it goes to 0.

    References
    ----------
    .. [1] S. Dalleiger, J. Vreeken, "Efficiently factorizing Boolean matrices using proximal gradient descent", NeurIPS
       2022.

    Examples
    --------
    >>> import numpy as np
    >>> elastic_prox(np.array([-1.0, 0.05, 0.3, 0.7, 0.95]), 0.1, 0.0).round(6)
    array([0. , 0. , 0.2, 0.8, 1. ])
    """
    xp = array_namespace(Z)
    upper = Z > 0.5
    x = xp.where(upper, Z - 1, Z)
    size = xp.abs(x) - kappa
    shrunk = xp.sign(x) * (size if printed else xp.clip(size, 0, None))
    weight = adaptive_rate(Z, lam, gamma, eps) if gamma > 0 else lam
    shrunk = shrunk / (1 + weight)
    return xp.clip(xp.where(upper, 1 + shrunk, shrunk), 0, 1)


def adaptive_rate(Z: Array, lam: float, gamma: float = 10.0, eps: float = 1e-2) -> Array:
    """Return ``λ / (1 − exp(−Γ d))``, d the distance of z to the nearest of {0, 1}, clipped to [eps, 1 − eps].

    It grows without bound as d → 0 and is hardly more than λ at ½; `eps` keeps it finite where z lies at or beyond 0
    or 1.

    Examples
    --------
    >>> import numpy as np
    >>> adaptive_rate(np.array([0.0, 0.5, 1.0]), 1.0).round(3)
    array([10.508,  1.007, 10.508])
    """
    xp = array_namespace(Z)
    near = xp.clip(xp.where(Z > 0.5, 1 - Z, Z), eps, 1 - eps)
    with np.errstate(divide="ignore"):  # with eps=0 the rate is infinite at 0 and 1
        return lam / (1 - xp.exp(-gamma * near))


def tent_prox(Z: Array, weight: float) -> Array:
    """Move each cell by ``2 weight`` away from ½ and clip to [0, 1]: the prox of ``1 − |1 − 2z|`` (PRIMP).

    Examples
    --------
    >>> import numpy as np
    >>> tent_prox(np.array([0.1, 0.4, 0.6, 0.95]), 0.1).round(6)
    array([0. , 0.2, 0.8, 1. ])
    """
    xp = array_namespace(Z)
    return xp.clip(xp.where(Z > 0.5, Z + 2 * weight, Z - 2 * weight), 0, 1)


def step_size(G: Array, pull: Pull) -> float:
    """Return the step for a Gram matrix, see :class:`Pull`.

    Examples
    --------
    >>> import numpy as np
    >>> step_size(np.eye(1), Pull(beta=0.0)), step_size(np.eye(1), Pull(beta=0.0, bound="elbmf"))
    (1.0, 2.0)
    """
    beta = pull.beta
    if pull.norm == "spectral":
        L = lipschitz(G)
    else:
        L = float(array_namespace(G).sum(G * G)) ** 0.5
    top = 1 - 2 * beta if pull.bound == "safe" else 2 * (1 - beta)
    return top / (1 + 2 * beta) / max(L, _LEAST) / pull.slow


def prox_step(W: Array, W_prev: Array, G: Array, B: Array, pull: Pull) -> Array:
    """Take one inertial proximal gradient step on a factor (iPALM).

    Parameters
    ----------
    W, W_prev : array, shape (n, k)
        The factor now and one step ago.
    G : array, shape (k, k)
        Gram matrix of the fixed factor.
    B : array, shape (n, k)
        Products of the data with the fixed factor.
    pull : Pull
        The regulariser and the form of the step.

    Returns
    -------
    array, shape (n, k)
        In [0, 1]. Row i depends on row i of `W`, `W_prev` and `B`, and on `G`.

    References
    ----------
    .. [1] T. Pock, S. Sabach, "Inertial proximal alternating linearized minimization (iPALM) for nonconvex and
       nonsmooth problems", SIAM J. Imaging Sci. 9 (2016). doi:10.1137/16M1064064

    Examples
    --------
    >>> import numpy as np
    >>> W = np.full((1, 1), 0.6)
    >>> prox_step(W, W, np.eye(1), np.ones((1, 1)), Pull(kappa=0.0, lam=0.0, beta=0.0))
    array([[1.]])
    """
    eta = step_size(G, pull)
    weight = eta if pull.scale else 1.0
    Y = W + pull.beta * (W - W_prev) if pull.beta else W
    bounded = pull.eps > 0 or not pull.gamma  # compiled code does not divide by zero
    run = kernel("prox_step", W.dtype) if is_numpy(W) and bounded else None
    if run is None:
        Z = Y - eta * (Y @ G - B)
        return elastic_prox(
            Z, weight * pull.kappa, weight * pull.lam, gamma=pull.gamma, eps=pull.eps, printed=pull.printed
        )
    # A factor that came as a transpose is worked on as it lies in memory; G is symmetric.
    lies = W.flags.f_contiguous and not W.flags.c_contiguous
    Y, B = (Y.T, B.T) if lies else (Y, B)
    Y = np.ascontiguousarray(Y)
    B = np.ascontiguousarray(B, dtype=W.dtype)
    YG = np.ascontiguousarray(G @ Y if lies else Y @ G, dtype=W.dtype)
    out = np.empty(Y.shape, W.dtype)
    run(Y, YG, B, out, eta, weight * pull.kappa, weight * pull.lam, pull.gamma, pull.eps, int(pull.printed))
    return out.T if lies else out


def integrality_gap(V: Array) -> float:
    """Return the mean distance of cells in [0, 1] to the nearest of {0, 1}: 0 for a Boolean matrix, ½ at most.

    Examples
    --------
    >>> import numpy as np
    >>> integrality_gap(np.array([[0.0, 0.25], [1.0, 0.75]]))
    0.125
    """
    xp = array_namespace(V)
    return float(xp.mean(xp.minimum(V, 1 - V))) if V.shape[0] and V.shape[1] else 0.0
