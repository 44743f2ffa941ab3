"""The server's side of PooledNMF: the step on V, and its scale."""

from __future__ import annotations

from typing import NamedTuple

from array_api_compat import array_namespace

from fedfactor.algorithms.pooled_nmf.messages import CountSums, MaskedSums, Upload
from fedfactor.core.tree import Array
from fedfactor.kernels.factors import extrapolate, row_norms
from fedfactor.kernels.nmf.counts import count_step
from fedfactor.kernels.nmf.missing_step import masked_step
from fedfactor.kernels.nmf.scales import balance, row_sums
from fedfactor.kernels.nmf.steps import solve_rows, squared_error
from fedfactor.kernels.products import squared_norm, total

FLOOR = 0.1
"""Share of an entry that an extrapolated step for counts leaves: a multiplicative step never leaves zero again."""


class Step(NamedTuple):
    """A new V, the loss there (a bound of it where sums do not tell more), and its part that is error; None: untold."""

    V: Array
    loss: float | None
    sse: float | None


def descend(V: Array, up: Upload, pooled: Upload, share: float, sweeps: int, pay: tuple[float, float]) -> Step:
    """Improve V on the pooled sums; tell the loss of those who took part."""
    l1, l2 = pay
    extra = 0.0 if up.extra is None else float(up.extra)
    if isinstance(pooled, (MaskedSums, CountSums)):
        if isinstance(pooled, CountSums):
            new, gain = count_step(V, pooled.N, pooled.D, l1=l1, l2=l2)
        else:
            new, gain = masked_step(V, pooled.G, pooled.N, pooled.D, sweeps=sweeps, l1=l1, l2=l2)
        if up.sse is None:
            return Step(new, None, None)
        sse = float(up.sse) - 2 * share * (gain - price(V, pay) + price(new, pay))
        return Step(new, max(float(up.sse) + extra + share * 2 * (price(V, pay) - gain), 0.0), max(sse, 0.0))
    new = solve_rows(V.T, pooled.G, pooled.A.T, sweeps=sweeps, l1=l1, l2=l2).T
    whole = up.total if up.rest is None else up.rest
    if whole is None:
        return Step(new, None, None)
    sse = squared_error(float(whole), up.A, up.G, new)
    return Step(new, sse + extra + 2 * share * price(new, pay), sse)


def price(V: Array, pay: tuple[float, float]) -> float:
    """Return what V pays."""
    return (pay[0] * total(V) if pay[0] else 0.0) + (0.5 * pay[1] * squared_norm(V) if pay[1] else 0.0)


def ahead(V: Array, V_last: Array, beta: float, counts: bool) -> Array:
    """Extrapolate; for counts no entry falls to zero."""
    bold = extrapolate(V, V_last, beta)
    return array_namespace(V).maximum(bold, FLOOR * V) if counts else bold


def lengths(V: Array, up: Upload, counts: bool, pay_U: tuple[float, float], pay_V: tuple[float, float]) -> Array:
    """Return what to divide the rows of V by: their norm, their sum for counts, or what makes penalties smallest."""
    if up.lengths is not None:
        return balance(V, up.lengths[1], up.lengths[0], pay_U, pay_V)
    return row_sums(V) if counts else row_norms(V)
