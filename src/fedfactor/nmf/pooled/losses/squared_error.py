"""The squared error: over complete rows, where two products suffice, and over observed cells, by gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedfactor.core.algorithm import Meta, Uplink
from fedfactor.core.pytree import Array, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import (
    extrapolate,
    extrapolate_to_units,
    fit_rows,
    reconstruction,
    refit_rows,
    row_norms,
    stacked,
)
from fedfactor.linalg.missing_values import Penalty, masked_step, masked_sums, observed_squared_norm
from fedfactor.linalg.missing_values_pass import masked_pass, takes
from fedfactor.linalg.nnls import account, solve_and_account, solve_rows, squared_error
from fedfactor.linalg.products import gram, squared_norm, sums
from fedfactor.linalg.single_pass import one_pass, sums_of_rows
from fedfactor.nmf.pooled.losses.loss import Loss, Step, told_by_gain
from fedfactor.nmf.pooled.regularization import price


@record("pooled_nmf.Sums")
class Sums:
    """Up: all that the best V depends on, ``UᵀU`` and ``UᵀX``, and ``‖X‖²`` so that the server can determine the loss.

    ``rest``: ``‖X − PQ‖²``, when clients have components of their own; ``UᵀX`` is then that of the rest. ``extra``:
    what U pays. ``lengths``: sums and squared norms of the columns of U, when penalties share out lengths.
    """

    uplink: ClassVar[Uplink] = Uplink.SUM

    G: Array
    A: Array
    lengths: Array | None = None
    total: Array | None = telemetry(default=None)
    rest: Array | None = telemetry(default=None)
    extra: Array | None = telemetry(default=None)


@record("pooled_nmf.MaskedSums")
class MaskedSums:
    """Up, when cells are missing: ``UᵀU``, ``Uᵀ(M ∗ X)``, ``Uᵀ(M ∗ UV)``, squared error and norm of observed cells."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    G: Array
    N: Array
    D: Array
    lengths: Array | None = None
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)
    extra: Array | None = telemetry(default=None)


@dataclass(frozen=True, slots=True)
class Squares(Loss):
    """What both have in common: coordinate descent on U, rows of V of norm 1."""

    name: ClassVar[str] = "frobenius"
    order: ClassVar[float | None] = 2.0
    words: ClassVar[str] = "squared error"
    squared: ClassVar[bool] = True
    starts_wide: ClassVar[bool] = True
    private: ClassVar[bool] = True

    def first_V(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """Draw V; its scale does not matter, because U starts from zero."""
        return rng.exponential(size=shape)

    def check(self, X: Array, mask: Any, owner: str | None) -> None:
        """Take what other losses cannot read."""

    def total(self, X: Array, mask: Any) -> float:
        """Return the squared norm of the observed cells."""
        return squared_norm(X) if mask is None else observed_squared_norm(X, mask)

    def rows(self, U: Array, X: Array, V: Array, mask: Any, *, sweeps: int, pay: Penalty) -> Array:
        """Sweep over U by coordinate descent."""
        return fit_rows(U, X, V, mask, sweeps=sweeps, penalty=pay)

    def solve(self, U: Array | None, X: Array, V: Array, mask: Any, pay: Penalty) -> Array:
        """Sweep until rows stand still."""
        return refit_rows(U, X, V, mask, pay)

    def private_step(self, U: Array, X: Array, V: Array, Q: Array, mask: Any, *, sweeps: int) -> Array:
        """Sweep over Q; what V explains is taken off the data first."""
        k = V.shape[0]
        own = U[:, k:]
        if mask is None:
            A = sums(own, X) - (own.T @ U[:, :k]) @ V
            return solve_rows(Q.T, gram(own), A.T, sweeps=sweeps).T
        N, D, _ = masked_sums(U, X, mask, stacked(V, Q))
        return masked_step(Q, gram(own), N[k:], D[k:], sweeps=sweeps)[0]

    def error(self, X: Array, U: Array, V: Array, mask: Any, *, hidden: bool = False) -> tuple[float, int, float]:
        """Return the squared residual, the number of cells, and their squared norm."""
        return reconstruction(X, U, V, mask)

    def ahead(self, V: Array, V_last: Array, beta: float) -> Array:
        """Extrapolate; what falls below zero is zero, and may rise again."""
        return extrapolate(V, V_last, beta)

    def lengths(self, V: Array) -> Array:
        """Return the norms of the rows."""
        return row_norms(V)

    def ahead_in_units(self, V: Array, V_last: Array, beta: Any) -> tuple[Array, Array, Array]:
        """Do all of it in one go."""
        return extrapolate_to_units(V, V_last, beta)


@dataclass(frozen=True, slots=True)
class SquaredError(Squares):
    """``½‖X − UV‖²``: the best V depends on the data through UᵀU and UᵀX alone."""

    def over(self, masked: bool) -> Loss:
        """Return the squared error over observed cells where some are missing."""
        return MissingCells() if masked else self

    def messages(self, k: int, meta: Meta) -> tuple[type, Spec]:
        """Two products."""
        return Sums, {"G": Leaf(meta.dtype, (k, k)), "A": Leaf(meta.dtype, (k, meta.n_features))}

    def penalty(self, pay: Penalty, V: Array, mask: Any, *, own: bool = False) -> Penalty:
        """Return what U pays."""
        return pay

    def sums(self, U: Array, X: Array, V: Array, mask: Any, *, total: float, own: Array | None = None) -> Sums:
        """Sum the two products; what a client's own components explain is taken off the data first."""
        k, (G, A) = V.shape[0], sums_of_rows(U, X)
        if own is None:
            return Sums(G, A)
        rest = np.float64(squared_error(total, A[k:], G[k:, k:], own))
        return Sums(G[:k, :k], A[:k] - G[:k, k:] @ own, rest=rest)

    def rows_and_sums(
        self, U: Array, X: Array, V: Array, mask: Any, *, sweeps: int, pay: Penalty, total: float
    ) -> tuple[Array, Sums]:
        """Do both while a block of rows is in cache."""
        U, G, A = one_pass(X, V, U, sweeps=sweeps, l1=pay.l1, l2=pay.l2)
        return U, Sums(G, A)

    def step(self, V: Array, up: Sums, pooled: Sums, share: float, sweeps: int, pay: tuple[float, float]) -> Step:
        """Sweep over V; the loss follows from the sums without a further message."""
        whole = up.total if up.rest is None else up.rest
        if whole is not None and pooled is up and not any(pay):
            new, sse = solve_and_account(V.T, up.G, up.A.T, float(whole), sweeps=sweeps)
            return Step(new.T, sse if up.extra is None else sse + float(up.extra), sse)
        new = solve_rows(V.T, pooled.G, pooled.A.T, sweeps=sweeps, l1=pay[0], l2=pay[1]).T
        if whole is None:
            return Step(new, None, None)
        sse = account(float(whole), up.A, up.G, new)
        extra = 0.0 if up.extra is None else float(up.extra)
        return Step(new, sse + extra + 2 * share * price(new, pay), sse)


@dataclass(frozen=True, slots=True)
class MissingCells(Squares):
    """``½‖M ∗ (X − UV)‖²`` with M the observed cells; clients without missing cells take part as if they had a mask."""

    def messages(self, k: int, meta: Meta) -> tuple[type, Spec]:
        """Two products with the data, and one of U."""
        wide = Leaf(meta.dtype, (k, meta.n_features))
        return MaskedSums, {"G": Leaf(meta.dtype, (k, k)), "N": wide, "D": wide, "sse": Leaf("float64", ())}

    def pays(self, alpha_U: float, n_private: int, ridge: float | str) -> bool:
        """Return whether U pays for anything; rows with missing cells pay the ridge."""
        return alpha_U > 0 or n_private > 0 or ridge != 0

    def penalty(self, pay: Penalty, V: Array, mask: Any, *, own: bool = False) -> Penalty:
        """Let rows without missing cells pay as if they lay beside those of others."""
        return pay.complete(V) if mask is None and not own else pay

    def sums(self, U: Array, X: Array, V: Array, mask: Any, *, total: float, own: Array | None = None) -> MaskedSums:
        """Sum both halves of the gradient; a client's own components count as explained."""
        k = V.shape[0]
        both = stacked(V, own)
        if mask is not None:
            N, D, sse = masked_sums(U, X, mask, both)
            return MaskedSums(gram(U[:, :k]), N[:k], D[:k], sse=np.float64(sse))
        G, A = sums_of_rows(U, X)
        sse = np.float64(squared_error(total, A, G, both))
        return MaskedSums(G[:k, :k], A[:k], (G @ both)[:k], sse=sse)

    def rows_and_sums(
        self, U: Array, X: Array, V: Array, mask: Any, *, sweeps: int, pay: Penalty, total: float
    ) -> tuple[Array, MaskedSums]:
        """Do both while a block of rows is in cache, where rows are dense."""
        if not takes(X, mask, U):
            U = self.rows(U, X, V, mask, sweeps=sweeps, pay=pay)
            return U, self.sums(U, X, V, mask, total=total)
        done = masked_pass(X, mask, V, U, sweeps=sweeps, pay=pay)
        return done.U, MaskedSums(done.G, done.N, done.D, sse=np.float64(done.sse), extra=np.float64(done.ridge))

    def step(
        self, V: Array, up: MaskedSums, pooled: MaskedSums, share: float, sweeps: int, pay: tuple[float, float]
    ) -> Step:
        """Take the better of two bounds in every column."""
        new, gain = masked_step(V, pooled.G, pooled.N, pooled.D, sweeps=sweeps, l1=pay[0], l2=pay[1])
        return told_by_gain(up, V, new, gain, share, pay)
