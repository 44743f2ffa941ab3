"""A loss that multiplicative steps minimise: all of it but the divergence of a cell."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedfactor.core.algorithm import Meta, Uplink
from fedfactor.core.errors import DataError
from fedfactor.core.pytree import Array, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import row_sums
from fedfactor.linalg.missing_values import Penalty, row_blocks
from fedfactor.linalg.products import as_like, values
from fedfactor.nmf.pooled.losses.divergence_kernels import (
    divergence_error,
    divergence_rows,
    divergence_step,
    divergence_sums,
    floor_of,
)
from fedfactor.nmf.pooled.losses.loss import HIDDEN_BACKGROUND, LAST_STEPS, Loss, Step, mixed_with_mean, told_by_gain

LEAST_START_POWER = 0.5
"""The least power of the cells that wide rounds fit."""


@record("pooled_nmf.DivergenceSums")
class DivergenceSums:
    """Up, for a divergence: U times both weights of the observed cells, the divergence and that of flat rows."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    N: Array
    D: Array
    lengths: Array | None = None
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)
    extra: Array | None = telemetry(default=None)


@dataclass(frozen=True, slots=True)
class MultiplicativeLoss(Loss):
    """A sum of divergences of cells, by multiplicative steps; rows of V have sum 1.

    A divergence defines what one cell costs, the two weights of its slope, and how bold a step may be: see
    :class:`~fedfactor.nmf.pooled.losses.divergence_kernels.Divergence`.
    """

    starts_wide: ClassVar[bool] = True
    # Extrapolated from the first round on, runs ended up to 10 % higher, in another optimum.
    quiet_rounds: ClassVar[int] = 30
    # Plain steps are slow near a saddle: only steps that are extrapolated show that nothing is left to gain.
    least_rounds: ClassVar[int] = 35
    # With two, starts ended up to 7 % apart; wide components in units of rows and columns settle later.
    wide_rounds: ClassVar[int] = 8

    def beta_order(self) -> float | None:
        """Return the β of a β-divergence; None for any other divergence."""
        return self.order

    @property
    def positive(self) -> bool:
        """Whether a zero costs infinitely much, whatever is predicted."""
        return False

    @property
    @abstractmethod
    def pole(self) -> float:
        """The highest power of ``1 / y`` in the weights."""

    @abstractmethod
    def cells(self, x: Array, y: Array) -> Array:
        """Return ``d(x, y)``."""

    @abstractmethod
    def weights(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return both parts of the slope, ``∂d/∂y = below − above``."""

    @abstractmethod
    def power(self, squares: bool) -> float:
        """Return the power of a step that never raises the loss, with or without a penalty on squares."""

    @abstractmethod
    def fall(self, ratio: Array, N: Array, D: Array) -> Array:
        """Return by how much, for each unit of V, the loss falls at least when V is multiplied by `ratio`."""

    @property
    def start_power(self) -> float:
        """Half of β, where cells scatter alike, but no less than a quarter: at 0 that would be a logarithm."""
        return 0.5 if self.order is None else max(self.order / 2, LEAST_START_POWER)

    @property
    def start_scaling(self) -> float:
        """What the power lacks: a small error of a cell costs ``y^(β − 2)`` times its square."""
        return 0.0 if self.order is None else 1 - self.order / (2 * self.start_power)

    def first_from(self, V: Array, columns: Array | None = None) -> Array:
        """Mix in the mean component, and a little of a flat one; then take columns back to their level.

        Of cells that are never zero the level is a power of that of their powers.
        """
        V = mixed_with_mean(V)
        return V if columns is None else V * columns ** (1 / self.start_power if self.positive else 1.0)

    def messages(self, k: int, meta: Meta) -> tuple[type, Spec]:
        """Two products with weights of the data."""
        wide = Leaf(meta.dtype, (k, meta.n_features))
        return DivergenceSums, {"N": wide, "D": wide, "sse": Leaf("float64", ())}

    def check(self, X: Array, mask: Any, owner: str | None) -> None:
        """Refuse zeros where they cost infinitely much, and positive values that weights would turn to infinity."""
        Loss.check(self, X, mask, owner)
        cells = values(X)
        seen = cells if mask is None or isinstance(mask, str) else cells[mask]
        unstored = X.shape[0] * X.shape[1] - seen.shape[0] if mask is None and seen.ndim == 1 else 0
        least = floor_of(self, X.dtype)
        zeros = unstored
        tiny = False
        for rows in row_blocks(seen if seen.ndim == 2 else seen[:, None]):  # they may lie in a file
            zeros += int((seen[rows] == 0).sum())
            tiny |= bool(((seen[rows] > 0) & (seen[rows] < least)).any())
        if self.positive and zeros:
            raise DataError(
                f"Owner {owner!r} has {zeros} cells of value 0, but loss={self.name!r} needs positive data: a zero "
                "costs infinitely much. Say missing_values=0 (or 'unstored') if zeros are missing cells, add a small "
                "constant to all cells, or take loss='kullback-leibler'."
            )
        if tiny:
            raise DataError(
                f"Owner {owner!r} has positive values below {least:.1g}, whose inverse powers do not fit into "
                f"{X.dtype}. Take smaller units, or double precision if this is single."
            )

    def total(self, X: Array, mask: Any) -> float:
        """Return twice the divergence of rows that are flat."""
        nothing = as_like(np.zeros((X.shape[0], 1)), X), as_like(np.zeros((1, X.shape[1])), X)
        return divergence_error(self, X, *nothing, mask)[2]

    def rows(self, U: Array, X: Array, V: Array, mask: Any, *, sweeps: int, pay: Penalty) -> Array:
        """Take multiplicative steps on U."""
        return divergence_rows(self, U, X, V, mask, sweeps=sweeps, l1=pay.l1, l2=pay.l2)

    def sums(
        self, U: Array, X: Array, V: Array, mask: Any, *, total: float, own: Array | None = None
    ) -> DivergenceSums:
        """Sum both halves of the step on V."""
        N, D, loss = divergence_sums(self, U, X, V, mask)
        return DivergenceSums(N, D, sse=np.float64(2 * loss))

    def solve(self, U: Array | None, X: Array, V: Array, mask: Any, pay: Penalty) -> Array:
        """Take many multiplicative steps."""
        U = as_like(np.zeros((X.shape[0], V.shape[0])), X) if U is None else U
        return self.rows(U, X, V, mask, sweeps=LAST_STEPS, pay=pay)

    def error(self, X: Array, U: Array, V: Array, mask: Any, *, hidden: bool = False) -> tuple[float, int, float]:
        """Return twice the divergence, the number of cells, and twice the divergence of rows that are flat."""
        return divergence_error(self, X, U, V, mask, background=HIDDEN_BACKGROUND if hidden else 0.0)

    def step(
        self, V: Array, up: DivergenceSums, pooled: DivergenceSums, share: float, sweeps: int, pay: tuple[float, float]
    ) -> Step:
        """Take one multiplicative step; more of them would need the products of U with V again."""
        new, gain = divergence_step(self, V, pooled.N, pooled.D, l1=pay[0], l2=pay[1])
        return told_by_gain(up, V, new, gain, share, pay)

    def lengths(self, V: Array) -> Array:
        """Return the sums of the rows."""
        return row_sums(V)
