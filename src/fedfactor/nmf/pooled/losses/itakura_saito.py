"""The Itakura-Saito divergence, for powers and other positive data: it looks at ratios, not at differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from fedfactor.core.pytree import Array
from fedfactor.nmf.pooled.losses.multiplicative import MultiplicativeLoss


@dataclass(frozen=True, slots=True)
class ItakuraSaito(MultiplicativeLoss):
    r"""``Σ x / uv − log(x / uv) − 1``: a cell twice as large as predicted costs the same, be it small or large.

    Its bound [1]_ is least at a step with square roots, and no higher than before at any power up to 1. Powers near 1
    overshoot the bound and take half as many rounds; at 1 itself the bound promises nothing.

    References
    ----------
    .. [1] C. Févotte, J. Idier, "Algorithms for nonnegative matrix factorization with the β-divergence", Neural
       Computation 23 (2011). doi:10.1162/NECO_a_00168
    """

    name: ClassVar[str] = "itakura-saito"
    order: ClassVar[float | None] = 0.0
    words: ClassVar[str] = "the divergence Σ x / uv − log(x / uv) − 1, for positive data such as powers of a spectrum"

    @property
    def positive(self) -> bool:
        """A zero costs infinitely much."""
        return True

    @property
    def pole(self) -> float:
        """Weights are x / y² and 1 / y."""
        return 2.0

    def cells(self, x: Array, y: Array) -> Array:
        """Return ``x / y − log(x / y) − 1``."""
        ratio = x / y
        return ratio - array_namespace(ratio).log(ratio) - 1

    def weights(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return ``x / y²`` and ``1 / y``."""
        inverse = 1 / y
        return x * inverse * inverse, inverse

    def power(self, squares: bool) -> float:
        """Return 0.9; ⅓ where squares are paid for, which grow faster than the bound of the divergence."""
        return 1 / 3 if squares else 0.9

    def fall(self, ratio: Array, N: Array, D: Array) -> Array:
        """Bound x / y by its terms (it is convex) and log y by its tangent (it is concave)."""
        return N * (1 - 1 / ratio) - D * (ratio - 1)
