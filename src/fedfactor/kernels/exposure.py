"""How much published sketches give away: when the sketched matrix can be solved for, and the attack that does it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Exposure", "recover"]

Array = Any


@dataclass(frozen=True, slots=True)
class Exposure:
    """What T published sketches ``Sₜᵀ X`` of width d say about X with n rows.

    Parameters
    ----------
    size : int
        Rows n of what is sketched: the unknowns in each of its columns.
    width : int
        Columns d of one sketch: the equations for each column that one publication brings.
    times : int
        Publications T.
    support : float, optional
        Non-zeros in a column of X, when X is sparse and non-negative; such columns fall much earlier.

    Notes
    -----
    ``T d ≥ n`` equations determine any X. A non-negative column with s non-zeros is the only solution from about
    ``w = 2 s ln(n / w)`` equations on (the weak threshold of Donoho and Tanner for small w/n), and columns sparser than
    the mean fall before: half of that counts as solvable here.

    References
    ----------
    .. [1] D. L. Donoho, J. Tanner, "Sparse nonnegative solution of underdetermined linear equations by linear
       programming", PNAS 102 (2005). doi:10.1073/pnas.0502269102

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
        return max(1, min(self.size, math.ceil(0.5 * _weak_threshold(self.size, self.support))))

    @property
    def solvable(self) -> bool:
        """Whether the publications so far may determine X."""
        return self.equations >= self.threshold

    @property
    def rounds_left(self) -> int:
        """Publications in all that stay below the threshold."""
        return max(0, (self.threshold - 1) // self.width)

    def told(self, what: str) -> str:
        """Say it in a sentence.

        Examples
        --------
        >>> Exposure(500, 50, 10).told("the data")
        'the data can be solved for: 10 sketches of width 50 give 500 equations, and 500 are enough (safe: 9 sketches).'
        """
        return (
            f"{what} can be solved for: {self.times} sketches of width {self.width} give {self.equations} equations, "
            f"and {self.threshold} are enough (safe: {self.rounds_left} sketches)."
        )


def _weak_threshold(size: int, support: float) -> float:
    """Solve ``w = 2 s ln(n / w)`` by bisection; the right side falls in w, so there is one solution."""
    low, high = 1e-9, float(size)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if 2 * support * math.log(size / middle) > middle else (low, middle)
    return high


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
