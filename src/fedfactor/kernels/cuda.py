"""Products and sweeps on a CUDA card, each in one launch, written in Triton.

Triton comes with torch on Linux; it is imported late, and where it is absent callers take torch's own operations. The
rows of X may be in half precision (bfloat16, float16): a factor is then split into a high and a low part of the same
type, whose products with X are exact and are added up in single precision. Factors are kept transposed (k × n), so that
a coordinate of all rows is one contiguous vector. Nothing here heeds torch's switch for TF32.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

__all__ = ["cross", "ready", "sums", "sweep"]

Array = Any

_HALVES = ("torch.bfloat16", "torch.float16")
_REALS = ("torch.float32", *_HALVES)


@functools.cache
def _kernels() -> Any | None:
    try:
        from fedfactor.kernels.loops import triton_kernels
    except ImportError:
        return None
    return triton_kernels


def ready(X: Array, k: int = 1) -> bool:
    """Tell whether a tensor is one that these kernels take: on a card, dense and single or half, or CSR and single.

    Examples
    --------
    >>> ready(None)
    False
    """
    if not getattr(X, "is_cuda", False) or X.ndim != 2 or not 0 < k <= 256 or min(X.shape) == 0:
        return False
    kinds = {"torch.strided": _REALS, "torch.sparse_csr": ("torch.float32",)}.get(str(X.layout), ())
    return str(X.dtype) in kinds and _kernels() is not None


def _padded(k: int) -> int:
    """Return the power of two that holds k components; products need sixteen at least."""
    return max(16, 1 << (k - 1).bit_length())


def cross(X: Array, V: Array) -> Array:
    """Return ``V Xᵀ`` (k × n) in single precision."""
    import torch

    run = _kernels()
    assert run is not None
    (n, m), k = X.shape, V.shape[0]
    if str(X.layout) == "torch.sparse_csr":
        return _gather(X.crow_indices(), X.col_indices(), X.values(), V.T.contiguous())
    V = V.to(torch.float32).contiguous()
    out = torch.empty((k, n), dtype=torch.float32, device=X.device)
    half, KP = str(X.dtype) in _HALVES, _padded(k)
    BN, BM, warps, stages = run.cross_tile(KP, half)
    run.cross_kernel[(-(-n // BN),)](
        X, V, out, n, m, *X.stride(), k, KP=KP, BN=BN, BM=BM, HALF=half, num_warps=warps, num_stages=stages
    )
    return out


def sums(Ut: Array, X: Array) -> Array:
    """Return ``Uᵀ X`` (k × m) in double precision; `Ut` is k × n and contiguous.

    Rows are cut into parts by the shape alone; a part is summed in single precision, parts in double.
    """
    import torch

    run = _kernels()
    assert run is not None
    (n, m), k = X.shape, Ut.shape[0]
    if str(X.layout) == "torch.sparse_csr":
        return _gather(*_turned(X), Ut.T.contiguous()).to(torch.float64)
    half, KP = str(X.dtype) in _HALVES, _padded(k)
    BN, BM, warps, stages, by_columns = run.sums_tile(KP, half)
    columns = -(-m // BM)
    parts = max(1, min(-(-n // (4 * BN)), -(-1024 // columns)))
    rows = -(-n // (parts * BN)) * BN
    parts = -(-n // rows)
    out = torch.empty((parts, k, m), dtype=torch.float32, device=X.device)
    run.sums_kernel[(columns, parts)](
        X, Ut, out, n, m, rows, *X.stride(), k,
        KP=KP, BN=BN, BM=BM, HALF=half, COLUMNS=by_columns, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out.sum(0, dtype=torch.float64)


def sweep(Wt: Array, G: Array, Bt: Array, *, sweeps: int, l1: float = 0.0, tol: float = 0.0) -> Array:
    """Improve the columns of `Wt` (k × n) by cyclic coordinate descent; all sweeps of a row in one launch."""
    import torch

    run = _kernels()
    assert run is not None
    k, n = Wt.shape
    Wt, Bt, G = Wt.contiguous(), Bt.contiguous(), G.to(Wt.dtype).contiguous()
    out = torch.empty_like(Wt)
    KP = _padded(k)
    # One warp has 32 rows, each of them in the registers of one thread.
    BLOCK, warps = (128, 4) if KP == 64 and n > 50_000 else (32, 1)
    (run.sweep_few_kernel if KP <= 32 else run.sweep_kernel)[(-(-n // BLOCK),)](
        Wt, Bt, G, out, n, sweeps, float(l1), float(tol) ** 2,
        K=k, KP=KP, BLOCK=BLOCK, TRACK=tol > 0, num_warps=warps,
    )  # fmt: skip
    return out


def _gather(starts: Array, places: Array, data: Array, D: Array) -> Array:
    """Return ``(CSR matrix @ D)ᵀ``."""
    import torch

    run = _kernels()
    assert run is not None
    n, k = starts.shape[0] - 1, D.shape[1]
    out = torch.empty((k, n), dtype=torch.float32, device=D.device)
    KP = max(2, 1 << (k - 1).bit_length())
    run.gather_kernel[(n,)](starts, places, data, D, out, n, k, KP=KP, BLOCK=max(16, 1024 // KP), num_warps=1)
    return out


_columns: dict[int, tuple[Any, tuple[Array, Array, Array]]] = {}


def _turned(X: Array) -> tuple[Array, Array, Array]:
    """Return a CSR matrix by columns, remembered while X lives, so that no two threads add to one place."""
    import torch

    key = id(X)
    found = _columns.get(key)
    if found is not None and found[0]() is X:
        return found[1]
    order = torch.argsort(X.col_indices(), stable=True)
    counts = torch.bincount(X.col_indices(), minlength=X.shape[1])
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    rows = torch.repeat_interleave(torch.arange(X.shape[0], device=X.device), X.crow_indices().diff())
    turned = starts, rows[order].to(torch.int32), X.values()[order]
    _columns[key] = (weakref.ref(X, lambda _: _columns.pop(key, None)), turned)
    return turned
