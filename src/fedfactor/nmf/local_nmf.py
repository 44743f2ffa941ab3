"""A client on its own: alternate between U and V on its own rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from array_api_compat import array_namespace, device

from fedfactor.core.pytree import Array
from fedfactor.linalg.nnls import gradient_step, lipschitz, multiplicative_step, solve_rows, squared_error
from fedfactor.linalg.products import cross, gram, gram_rows, sums

__all__ = ["SOLVERS", "Solver", "alternate"]

Solver = Literal["hals", "gradient", "multiplicative"]
"""Coordinate descent, projected gradient steps (with inertia: iPALM), multiplicative updates."""

SOLVERS = get_args(Solver)

_LOOK = 10
"""How often the loss is looked at when a tolerance is given."""


def alternate(
    X: Array,
    U: Array,
    V: Array,
    *,
    steps: int,
    solver: Solver | Literal["printed"] = "gradient",
    inertia: float = 0.0,
    mu: float = 0.0,
    relative: bool = False,
    anchor: Array | None = None,
    pull: Callable[[Array, int, float], Array] | None = None,
    sq_norm: float | None = None,
    tol: float = 0.0,
) -> tuple[Array, Array, float | None]:
    r"""Take alternating steps on U and V.

    .. math:: \min_{U, V \ge 0} \tfrac12 \|X - UV\|^2 + \tfrac{\mu}{2}\|V - \mathrm{anchor}\|^2

    Parameters
    ----------
    X : array or sparse matrix, shape (n, m)
    U, V : array, shape (n, k) and (k, m)
        Where to start.
    steps : int
        Most steps; one step changes U once and V once.
    solver : {"hals", "gradient", "multiplicative", "printed"}
        How each factor is changed. With ``mu`` the multiplicative step takes the anchor into its numerator.
        ``"printed"``: gradient steps of the lengths that the FNMF paper prints, ``1/‖UUᵀ‖₂`` for U and ``1/‖VᵀV‖₂`` for
        V, which belong to the other block; they diverge.
    inertia : float
        Share β of the last move that is added before a gradient step, in [0, 0.5); the step then has the length
        ``(1−2β)/(1+2β)/L``.
    mu, anchor : float, array of shape (k, m)
        Weight and target of the proximal term.
    relative : bool
        Take mu times the mean squared norm of the columns of U for the weight.
    pull : function (V, step, η) -> V, optional
        Called after each step on V, with the number of the step and its length.
    sq_norm : float, optional
        ``‖X‖²``; with it the loss of the received V can be computed.
    tol : float
        Stop when ten steps lower the loss by less than this share; needs ``sq_norm``.

    Returns
    -------
    U, V : array
    sse : float or None
        ``‖X − U V‖²`` of the V that was given, after one step on U.

    Notes
    -----
    Two products with X per step, O(nnz k). Step lengths come from the other block: ``1/‖V Vᵀ‖₂`` for U, ``1/‖UᵀU‖₂``
    for V.

    References
    ----------
    .. [1] T. Pock, S. Sabach, "Inertial proximal alternating linearized minimization (iPALM) for nonconvex and
       nonsmooth problems", SIAM J. Imaging Sci. 9 (2016). doi:10.1137/16M1064064

    Examples
    --------
    >>> import numpy as np
    >>> X = np.outer([1.0, 2.0], [3.0, 1.0])
    >>> U, V, _ = alternate(X, np.ones((2, 1)), np.ones((1, 2)), steps=50)
    >>> bool(np.allclose(U @ V, X))
    True
    """
    first = None
    loss = None
    U_last = U
    V_last = V
    for step in range(steps):
        U, U_last = _move(U, U_last, gram_rows(V), cross(X, V), solver, inertia), U
        G = gram(U)
        A = sums(U, X)
        if sq_norm is not None and (step == 0 or (tol > 0 and step % _LOOK == 0)):
            now = squared_error(sq_norm, A, G, V)
            first = now if step == 0 else first
            if tol > 0 and loss is not None and loss - now <= tol * loss:
                break
            loss = now
        if mu:
            assert anchor is not None, "a proximal term needs a target"
            xp = array_namespace(G)
            k = G.shape[0]
            weight = mu * float(xp.linalg.trace(G)) / k if relative else mu
            G = G + weight * xp.eye(k, dtype=G.dtype, device=device(G))
            A = A + weight * anchor
        V, V_last = _move(V.T, V_last.T, G, A.T, solver, inertia).T, V
        if pull is not None:
            V = pull(V, step, 1.0 / lipschitz(G))
    return U, V, first


def _move(W: Array, W_last: Array, G: Array, B: Array, solver: str, inertia: float) -> Array:
    if solver == "hals":
        return solve_rows(W, G, B)
    if solver == "multiplicative":
        return multiplicative_step(W, G, B)
    if solver == "printed":
        return gradient_step(W, G, B, step=1.0 / lipschitz(gram(W)))
    if solver != "gradient":
        raise ValueError(f"solver={solver!r} is not known. Use one of {', '.join(SOLVERS)}.")
    if not inertia:
        return gradient_step(W, G, B)
    step = (1 - 2 * inertia) / (1 + 2 * inertia) / lipschitz(G)
    return gradient_step(W + inertia * (W - W_last), G, B, step=step)
