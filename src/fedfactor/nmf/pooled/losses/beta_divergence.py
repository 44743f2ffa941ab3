"""The β-divergence: one family from Itakura-Saito (β = 0) over Kullback-Leibler (1) to the squared error (2)."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import ClassVar

from fedfactor.core.pytree import Array
from fedfactor.nmf.pooled.losses.loss import Loss
from fedfactor.nmf.pooled.losses.multiplicative import MultiplicativeLoss


@dataclass(frozen=True, slots=True)
class BetaDivergence(MultiplicativeLoss):
    r"""The divergence of any order β but 0 and 1, which are its limits and have files of their own.

    .. math:: d(x, y) = \frac{x^\beta + (\beta - 1) y^\beta - \beta x y^{\beta - 1}}{\beta (\beta - 1)}

    The less β, the less do large cells count. Bounds are those of [1]_, and powers are those at which they are least,
    but for 0 < β < 1: any power up to 1 keeps the bound from rising there, and 0.9 takes fewer rounds. With a penalty
    on squares and β < 2 the power is 1 / (3 − β), since every term then lies below a square that touches it.

    References
    ----------
    .. [1] C. Févotte, J. Idier, "Algorithms for nonnegative matrix factorization with the β-divergence", Neural
       Computation 23 (2011). doi:10.1162/NECO_a_00168
    """

    name: ClassVar[str] = "a number β"
    words: ClassVar[str] = "the β-divergence, with which large cells count the less the smaller β is"

    beta: float = 0.5

    @classmethod
    def of(cls, setting: object) -> Loss | None:
        """Take any number but those of the three losses above."""
        if isinstance(setting, bool) or not isinstance(setting, Real):
            return None
        beta = float(setting)
        return cls(beta) if isfinite(beta) and beta not in (0, 1, 2) else None

    def beta_order(self) -> float | None:
        """Return β."""
        return self.beta

    @property
    def order(self) -> float:  # type: ignore[reportIncompatibleVariableOverride]
        """The β that was given."""
        return self.beta

    @property
    def positive(self) -> bool:
        """Below 0 a zero costs infinitely much."""
        return self.beta < 0

    @property
    def pole(self) -> float:
        """Weights are x y^(β − 2) and y^(β − 1)."""
        return 2 - self.beta

    def cells(self, x: Array, y: Array) -> Array:
        """Return ``d(x, y)``; the part of x alone is no part of any step, but makes the least divergence 0."""
        b = self.beta
        return (x**b + (b - 1) * y**b - b * x * y ** (b - 1)) / (b * (b - 1))

    def weights(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return ``x y^(β − 2)`` and ``y^(β − 1)``."""
        below = y ** (self.beta - 1)
        return x * below / y, below

    def power(self, squares: bool) -> float:
        """Return a power that keeps the bound of the divergence from rising."""
        b = self.beta
        if squares and b < 2:
            return 1 / (3 - b)
        if b < 1:
            return max(0.9, 1 / (2 - b)) if b > 0 else 1 / (2 - b)
        return 1.0 if b <= 2 else 1 / (b - 1)

    def fall(self, ratio: Array, N: Array, D: Array) -> Array:
        """Bound convex parts by their terms and concave ones by their tangents."""
        b = self.beta
        move = ratio - 1
        data = N * (move if b > 2 else (ratio ** (b - 1) - 1) / (b - 1))
        model = D * (move if b < 1 else (ratio**b - 1) / b)
        return data - model
