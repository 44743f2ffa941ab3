"""The Kullback-Leibler divergence, for counts: the sums are those of a multiplicative step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedfactor.core.algorithm import Meta, Uplink
from fedfactor.core.pytree import Array, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.cuda import divergence as gpu
from fedfactor.linalg.factors import row_sums, stacked
from fedfactor.linalg.missing_values import Penalty
from fedfactor.linalg.products import as_like
from fedfactor.nmf.pooled.losses.kullback_leibler_kernels import (
    count_error,
    count_rows,
    count_step,
    count_sums,
    flat_divergence,
)
from fedfactor.nmf.pooled.losses.loss import HIDDEN_BACKGROUND, LAST_STEPS, Loss, Step, mixed_with_mean, told_by_gain


@record("pooled_nmf.CountSums")
class CountSums:
    """Up, for counts: ``Uᵀ(X / UV)``, the sums of U over observed cells, the divergence and that of flat rows."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    N: Array
    D: Array
    lengths: Array | None = None
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)
    extra: Array | None = telemetry(default=None)


@dataclass(frozen=True, slots=True)
class KullbackLeibler(Loss):
    """``Σ x log(x / uv) − x + uv``, by multiplicative steps; rows of V have sum 1.

    Of sparse counts only stored cells are touched, and D is one number for each component, while no cell is missing.
    """

    name: ClassVar[str] = "kullback-leibler"
    order: ClassVar[float | None] = 1.0
    words: ClassVar[str] = "the divergence Σ x log(x / uv) − x + uv, which suits counts"
    starts_wide: ClassVar[bool] = True
    private: ClassVar[bool] = True
    # Extrapolated from the first round on it ended 2 to 3 % higher, in another optimum.
    quiet_rounds: ClassVar[int] = 30

    masked: bool = False

    def over(self, masked: bool) -> Loss:
        """Sum U for every column where cells are missing."""
        return KullbackLeibler(masked)

    def messages(self, k: int, meta: Meta) -> tuple[type, Spec]:
        """One product with the data, and the sums of U."""
        wide = Leaf(meta.dtype, (k, meta.n_features))
        D = wide if self.masked else Leaf(meta.dtype, (k, 1))
        return CountSums, {"N": wide, "D": D, "sse": Leaf("float64", ())}

    def reads_sparse_tensors(self, X: Array) -> bool:
        """Read CSR tensors in single precision on a GPU."""
        return gpu.fits(X, None, 1)

    @property
    def start_power(self) -> float:
        """Roots of counts all scatter alike: their squared error is near the divergence."""
        return 0.5

    def first_private(self, Q: Array) -> Array:
        """Mix in the mean component, and a little of a flat one."""
        return mixed_with_mean(Q)

    def private_step(self, U: Array, X: Array, V: Array, Q: Array, mask: Any, *, sweeps: int) -> Array:
        """Take one multiplicative step on Q."""
        N, D, _ = count_sums(U, X, stacked(V, Q), mask)
        k = V.shape[0]
        return count_step(Q, N[k:], D[k:], bold=True)[0]

    def first_from(self, V: Array, columns: Array | None = None) -> Array:
        """Mix in the mean component, and a little of a flat one."""
        return mixed_with_mean(V)

    def total(self, X: Array, mask: Any) -> float:
        """Return twice the divergence of rows that are flat."""
        return flat_divergence(X, mask)

    def rows(self, U: Array, X: Array, V: Array, mask: Any, *, sweeps: int, pay: Penalty) -> Array:
        """Take multiplicative steps on U."""
        return count_rows(U, X, V, mask, sweeps=sweeps, l1=pay.l1, l2=pay.l2, bold=True)

    def sums(self, U: Array, X: Array, V: Array, mask: Any, *, total: float, own: Array | None = None) -> CountSums:
        """Sum both halves of the step on V."""
        N, D, loss = count_sums(U, X, stacked(V, own), mask)
        N = N[: V.shape[0]]
        D = D[: V.shape[0]]
        if self.masked and D.shape != N.shape:
            D = D + 0 * N  # this client has every cell, another has not
        return CountSums(N, D, sse=np.float64(2 * loss))

    def solve(self, U: Array | None, X: Array, V: Array, mask: Any, pay: Penalty) -> Array:
        """Take many multiplicative steps."""
        U = as_like(np.zeros((X.shape[0], V.shape[0])), X) if U is None else U
        return self.rows(U, X, V, mask, sweeps=LAST_STEPS, pay=pay)

    def error(self, X: Array, U: Array, V: Array, mask: Any, *, hidden: bool = False) -> tuple[float, int, float]:
        """Return twice the divergence, the number of cells, and twice the divergence of rows that are flat."""
        return count_error(X, U, V, mask, background=HIDDEN_BACKGROUND if hidden else 0.0)

    def step(
        self, V: Array, up: CountSums, pooled: CountSums, share: float, sweeps: int, pay: tuple[float, float]
    ) -> Step:
        """Take one multiplicative step; more of them would need the products of U with V again."""
        new, gain = count_step(V, pooled.N, pooled.D, l1=pay[0], l2=pay[1], bold=True)
        return told_by_gain(up, V, new, gain, share, pay)

    def lengths(self, V: Array) -> Array:
        """Return the sums of the rows."""
        return row_sums(V)
