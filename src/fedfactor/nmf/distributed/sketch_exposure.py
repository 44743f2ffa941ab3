"""How much published sketches give away: when the sketched matrix can be solved for, and the attack that does it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from fedfactor.core.pytree import Array

__all__ = ["Exposure", "effective_support", "recover"]


@dataclass(frozen=True, slots=True)
class Exposure:
    r"""What T published sketches ``Sₜᵀ X`` of width d reveal about X with n rows.

    Parameters
    ----------
    size : int
        Rows n of what is sketched: the unknowns in each of its columns.
    width : int
        Columns d of one sketch: the equations for each column that one publication brings.
    times : int
        Publications T.
    support : float, optional
        Non-zeros in a column of X, when X is sparse and non-negative; such columns fall much earlier. See
        :func:`effective_support` for columns whose small entries are not quite zero.

    Notes
    -----
    ``T d ≥ n`` equations determine any X. A non-negative column with s non-zeros is found from about

    .. math:: \delta = \min_\tau\; s (1 + \tau^2) + (n - s) \int_\tau^\infty (u - \tau)^2 \varphi(u)\, du

    equations on [1]_ [2]_. The passage is about :math:`\sqrt{2 \delta (1 - \delta/n)}` wide; two widths before it count
    as solvable here. With s = n this is n.

    References
    ----------
    .. [1] D. L. Donoho, J. Tanner, "Sparse nonnegative solution of underdetermined linear equations by linear
       programming", PNAS 102 (2005). doi:10.1073/pnas.0502269102
    .. [2] D. Amelunxen, M. Lotz, M. B. McCoy, J. A. Tropp, "Living on the edge: phase transitions in convex programs
       with random data", Information and Inference 3 (2014). doi:10.1093/imaiai/iau005

    Examples
    --------
    >>> Exposure(500, 50, 9).solvable, Exposure(500, 50, 10).solvable, Exposure(500, 50, 2, support=25).solvable
    (False, True, True)
    """

    size: int
    width: int
    times: int
    support: float | None = None

    @property
    def equations(self) -> int:
        """Equations published for each column: T d."""
        return self.width * self.times

    @property
    def threshold(self) -> int:
        """Equations from which on X counts as solvable."""
        if self.support is None or self.support <= 0:
            return self.size
        passage = _passage(self.size, min(self.support, self.size))
        width = math.sqrt(2 * passage * max(0.0, 1 - passage / self.size))
        return max(1, min(self.size, math.ceil(passage - 2 * width)))

    @property
    def solvable(self) -> bool:
        """Whether the publications so far may determine X."""
        return self.equations >= self.threshold

    @property
    def rounds_left(self) -> int:
        """Publications in all that stay below the threshold."""
        return max(0, (self.threshold - 1) // self.width)

    def told(self, what: str) -> str:
        """Return it as a sentence.

        Examples
        --------
        >>> Exposure(500, 50, 10).told("X")
        'X may be solved for: 10 sketches of width 50 give 500 equations, and 500 can be enough (safe: 9 sketches).'
        """
        which = (
            ""
            if self.support is None
            else f" for columns in which some {self.support:.0f} of {self.size} entries count"
        )
        return (
            f"{what} may be solved for: {self.times} sketches of width {self.width} give {self.equations} equations, "
            f"and {self.threshold} can be enough{which} (safe: {self.rounds_left} sketches)."
        )


def _passage(size: int, support: float) -> float:
    """Return the equations around which a non-negative column with so many non-zeros begins to be found."""

    def dimension(tau: float) -> float:
        tail, density = ndtr(-tau), math.exp(-tau * tau / 2) / math.sqrt(2 * math.pi)
        return support * (1 + tau * tau) + (size - support) * ((1 + tau * tau) * tail - tau * density)

    return float(minimize_scalar(dimension, bounds=(0, 10), method="bounded").fun)


def effective_support(X: Array) -> float:
    """Return ``‖x‖₁² / ‖x‖₂²`` of the column where it is least: how many entries of it weigh something.

    Examples
    --------
    >>> effective_support(np.array([[1.0, 1.0], [1.0, 1e-9], [1.0, 0.0]]))
    1.0
    """
    X = np.asarray(X, np.float64)
    squares = np.sum(X * X, axis=0)
    alive = squares > 0
    if not alive.any():
        return float(X.shape[0])
    return float(round(np.min(np.sum(np.abs(X), axis=0)[alive] ** 2 / squares[alive]), 6))


def recover(Y: Array, S: Array, *, nonnegative: bool = False) -> np.ndarray:
    """Attack: solve ``Sᵀ X = Y`` for X, by least squares or by non-negative least squares column by column.

    Parameters
    ----------
    Y : array, shape (w, m)
        Published sketches, stacked.
    S : array, shape (n, w)
        The sketches' random matrices, side by side; every party can draw them.
    nonnegative : bool
        Use that X ≥ 0, which finds sparse columns long before w reaches n.

    Returns
    -------
    X : ndarray, shape (n, m)
        The guess.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, S = rng.random((6, 2)), rng.standard_normal((6, 6))
    >>> bool(np.allclose(recover(S.T @ X, S), X))
    True
    """
    if nonnegative:
        from scipy.optimize import nnls

        return np.stack([nnls(S.T, y)[0] for y in np.asarray(Y).T], axis=1)
    return np.linalg.lstsq(np.asarray(S).T, np.asarray(Y), rcond=None)[0]
