"""Multiplicative steps for β-divergences on a GPU: rows of U, and their sums, in one launch each.

The same steps written with torch's own operations allocate several n × m arrays each; here a tile of the fit lives in
registers only, so that X is read once for a step and nothing else of its size is read or written.
"""

from __future__ import annotations

import functools
from typing import Any

from fedfactor.core.pytree import Array
from fedfactor.linalg.cuda.launch import by_columns, padded

__all__ = ["fits", "improve_rows", "sum_rows"]

_LARGEST_RANK = 64
_LARGEST_RANK_STORED = 256
"""Components for which the sums of a tile of dense rows, or of one sparse row, fit into registers."""


@functools.cache
def _kernels() -> Any | None:
    try:
        from fedfactor.linalg.cuda import triton_divergence
    except ImportError:
        return None
    return triton_divergence


def fits(X: Array, mask: Any, k: int) -> bool:
    """Return whether these kernels take the rows: on a GPU, in single precision, dense or complete CSR, small rank.

    Examples
    --------
    >>> fits(None, None, 3)
    False
    """
    if not getattr(X, "is_cuda", False) or X.ndim != 2 or k < 1 or min(X.shape) == 0:
        return False
    if str(X.dtype) != "torch.float32" or isinstance(mask, str) or _kernels() is None:
        return False
    if str(X.layout) == "torch.sparse_csr":
        return mask is None and k <= _LARGEST_RANK_STORED
    return str(X.layout) == "torch.strided" and k <= _LARGEST_RANK


def improve_rows(
    X: Array,
    U: Array,
    V: Array,
    mask: Array | None,
    *,
    order: float,
    sweeps: int,
    penalties: tuple[float, float],
    mass: Array | None = None,
    power: float = 1.0,
    further: bool = False,
    floor: float = 0.0,
) -> Array:
    """Return U after some multiplicative steps.

    Parameters
    ----------
    X : tensor of shape (n, m)
        Rows for which :func:`fits` is true.
    U, V : tensors of shapes (n, k) and (k, m)
        Factors in single precision.
    mask : Boolean tensor of shape (n, m), optional
        Observed cells.
    order : float
        β of the divergence; CSR rows need 1.
    sweeps : int
        Number of steps.
    penalties : tuple of float
        Weights ``l1`` and ``l2`` of ``Σ U`` and ``‖U‖² / 2``.
    mass : tensor of shape (1, k) or (n, k), optional
        What each component sums to over a row's observed cells; needed for order 1 only.
    power : float, default=1
        Power of the multiplicative factor.
    further : bool, default=False
        Take the longer steps of Kullback-Leibler instead of a power.
    floor : float, default=0
        Least value of the fit that weights of other orders are computed with.
    """
    import torch

    run = _kernels()
    assert run is not None
    n, m = X.shape
    k = V.shape[0]
    U = U.contiguous()
    V = V.contiguous()
    out = torch.empty_like(U)
    l1, l2 = (float(weight) for weight in penalties)
    KP = padded(k)
    if str(X.layout) == "torch.sparse_csr":
        assert mass is not None
        run.stored_rows_kernel[(n,)](
            X.crow_indices(),
            X.col_indices(),
            X.values(),
            U,
            V.T.contiguous(),
            mass.contiguous(),
            out,
            k,
            sweeps,
            l1,
            l2,
            FURTHER=further,
            KP=KP,
            BLOCK=max(16, 1024 // KP),
            num_warps=1,
        )
        return out
    BN, BM, warps, stages = run.rows_tile(KP)
    costs = U if mass is None else mass.contiguous()  # other orders sum their costs themselves
    run.rows_kernel[(-(-n // BN),)](
        X,
        _as_bytes(mask, X),
        U,
        V,
        costs,
        out,
        n,
        m,
        *X.stride(),
        0 if costs.shape[0] == 1 else k,
        k,
        sweeps,
        l1,
        l2,
        float(floor),
        ORDER=_constant(order),
        POWER=power,
        FURTHER=further,
        MASKED=mask is not None,
        KP=KP,
        BN=BN,
        BM=BM,
        num_warps=warps,
        num_stages=stages,
    )
    return out


def sum_rows(
    X: Array, U: Array, V: Array, mask: Array | None, *, order: float, floor: float = 0.0
) -> tuple[Array, Array | None, float]:
    """Return ``Uᵀ above``, ``Uᵀ below`` (None for Kullback-Leibler over complete rows), and the divergence.

    `above` and `below` are the two parts of the slope of the divergence with respect to the fit. For CSR rows the
    divergence leaves out ``Σ (uv − x)``. Rows are cut into stretches by the shapes alone; a stretch is summed in
    single precision, stretches in double.
    """
    import torch

    run = _kernels()
    assert run is not None
    (n, m), k = X.shape, V.shape[0]
    U = U.contiguous()
    V = V.contiguous()
    KP = padded(k)
    if str(X.layout) == "torch.sparse_csr":
        turned = torch.empty((m, k), dtype=torch.float32, device=X.device)
        logs = torch.empty(m, dtype=torch.float64, device=X.device)
        run.stored_sums_kernel[(m,)](
            *by_columns(X), U, V.T.contiguous(), turned, logs, k, KP=KP, BLOCK=max(16, 1024 // KP), num_warps=1
        )
        return turned.T.contiguous(), None, float(logs.sum())
    BN, BM, warps, stages = run.sums_tile(KP)
    columns = -(-m // BM)
    parts = max(1, min(-(-n // (4 * BN)), -(-2048 // columns)))
    stretch = -(-n // (parts * BN)) * BN
    both = mask is not None or order != 1
    N = torch.empty((parts, k, m), dtype=torch.float32, device=X.device)
    D = torch.empty_like(N) if both else N
    losses = torch.empty((parts, m), dtype=torch.float64, device=X.device)
    run.sums_kernel[(columns, parts)](
        X,
        _as_bytes(mask, X),
        U,
        V,
        N,
        D,
        losses,
        n,
        m,
        *X.stride(),
        k,
        stretch,
        float(floor),
        ORDER=_constant(order),
        MASKED=mask is not None,
        KP=KP,
        BN=BN,
        BM=BM,
        num_warps=warps,
        num_stages=stages,
    )
    total = N.sum(0, dtype=torch.float64).to(torch.float32)
    return total, D.sum(0, dtype=torch.float64).to(torch.float32) if both else None, float(losses.sum())


def _as_bytes(mask: Array | None, X: Array) -> Array:
    """Return the mask as bytes; any tensor stands in where there is none and none is read."""
    import torch

    return X if mask is None else mask.contiguous().view(torch.uint8)


def _constant(order: float) -> float | int:
    """Return an order as kernels compare it: whole numbers as such, so that 1 and 1.0 are one compilation."""
    return int(order) if order in (0, 1) else float(order)
