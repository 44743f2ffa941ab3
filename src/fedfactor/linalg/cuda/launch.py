"""Products and sweeps on a CUDA GPU, each in one launch, written in Triton.

Triton comes with torch on Linux; it is imported late, and where it is absent callers take torch's own operations. The
rows of X may be in half precision (bfloat16, float16): a factor is then split into a high and a low part of the same
type, whose products with X are exact and are added up in single precision. Factors are kept transposed (k × n), so that
a coordinate of all rows is one contiguous vector. Nothing here heeds torch's switch for TF32.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Sequence
from typing import Any

from fedfactor.core.pytree import Array

__all__ = ["account", "alike", "cross", "ready", "starts", "sums", "sums_each", "sweep"]

_HALVES = ("torch.bfloat16", "torch.float16")
_REALS = ("torch.float32", *_HALVES)


@functools.cache
def _kernels() -> Any | None:
    try:
        from fedfactor.linalg.cuda import triton_nmf
    except ImportError:
        return None
    return triton_nmf


def ready(X: Array, k: int = 1) -> bool:
    """Return whether a tensor is one that these kernels take: on a GPU, dense and single or half, or CSR and single.

    Examples
    --------
    >>> ready(None)
    False
    """
    if not getattr(X, "is_cuda", False) or X.ndim != 2 or not 0 < k <= 256 or min(X.shape) == 0:
        return False
    kinds = {"torch.strided": _REALS, "torch.sparse_csr": ("torch.float32",)}.get(str(X.layout), ())
    return str(X.dtype) in kinds and _kernels() is not None


def padded(k: int) -> int:
    """Return the power of two that holds k components; products need sixteen at least."""
    return max(16, 1 << (k - 1).bit_length())


def alike(Xs: Sequence[Array], k: int = 1) -> bool:
    """Return whether the rows of several clients can be worked on in one launch: dense, of one type and one order.

    Examples
    --------
    >>> alike([None])
    False
    """
    if not ready(Xs[0], k) or str(Xs[0].layout) != "torch.strided":
        return False
    first = _kind(Xs[0])
    return all(len(X.shape) == 2 and X.shape[0] > 0 and _kind(X) == first for X in Xs[1:])


def _kind(X: Array) -> tuple[Any, ...]:
    return X.dtype, X.layout, X.device, X.shape[1], X.stride()


def starts(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return where each client's rows begin when they lie side by side, and the length of all: in steps of sixteen.

    Examples
    --------
    >>> starts([3, 20])
    ([0, 16], 48)
    """
    ends = list(itertools.accumulate(-(-size // 16) * 16 for size in sizes))
    return [0, *ends[:-1]], ends[-1]


def cross(X: Any, V: Array) -> Array:
    """Return ``V Xᵀ`` (k × n) in single precision; of several clients' rows, which must be alike, at their `starts`."""
    import torch

    run = _kernels()
    assert run is not None
    if str(getattr(X, "layout", "")) == "torch.sparse_csr":
        return _gather(X.crow_indices(), X.col_indices(), X.values(), V.T.contiguous())
    Xs: Sequence[Any] = X if isinstance(X, (list, tuple)) else (X,)
    one, k, m = Xs[0], *V.shape
    V = V.to(torch.float32).contiguous()
    n = one.shape[0] if X is one else starts([each.shape[0] for each in Xs])[1]
    # What lies between clients takes part in sweeps.
    whole = n == sum(each.shape[0] for each in Xs)
    out = (torch.empty if whole else torch.zeros)((k, n), dtype=torch.float32, device=one.device)
    half = str(one.dtype) in _HALVES
    for a, b in _pieces(k, run.MOST):
        KP = padded(b - a)
        BN, BM, warps, stages = run.cross_tile(KP, half)
        table, aligned = _table(_places(Xs), one.stride(0), one.element_size(), one.device, BN)
        run.cross_kernel[(table.shape[0],)](
            one,
            V[a:b],
            out[a:b],
            table,
            n,
            m,
            *one.stride(),
            b - a,
            KP=KP,
            BN=BN,
            BM=BM,
            HALF=half,
            ALIGNED=aligned,
            LEVEL=16,
            num_warps=warps,
            num_stages=stages,
        )
    return out


def sums(Ut: Array, X: Array) -> Array:
    """Return ``Uᵀ X`` (k × m) in double precision; `Ut` is k × n and contiguous."""
    import torch

    if str(X.layout) == "torch.sparse_csr":
        return _gather(*by_columns(X), Ut.T.contiguous()).to(torch.float64)
    return sums_each(Ut, (X,))[0]


def sums_each(Ut: Array, Xs: Sequence[Array]) -> Array:
    """Return ``Uᵀ X`` of each of several clients (clients × k × m) in double precision; `Ut` has their U at `starts`.

    Rows are cut into parts by the shapes alone; a part is summed in single precision, parts in double.
    """
    import torch

    run = _kernels()
    assert run is not None
    X, (k, n) = Xs[0], Ut.shape
    m = X.shape[1]
    half = str(X.dtype) in _HALVES
    most = max(each.shape[0] for each in Xs)
    found = []
    for a, b in _pieces(k, run.MOST):
        KP = padded(b - a)
        BN, BM, warps, stages, by_columns = run.sums_tile(KP, half, m)
        columns = -(-m // BM)
        parts = max(1, min(-(-most // (4 * BN)), -(-1024 // (columns * len(Xs)))))
        table, aligned = _table(_places(Xs), X.stride(0), X.element_size(), X.device, BN, parts)
        out = torch.empty((len(Xs), parts, b - a, m), dtype=torch.float32, device=X.device)
        run.sums_kernel[(columns, len(Xs) * parts)](
            X,
            Ut[a:b],
            out,
            table,
            n,
            m,
            *X.stride(),
            b - a,
            KP=KP,
            BN=BN,
            BM=BM,
            HALF=half,
            COLUMNS=by_columns,
            ALIGNED=aligned,
            LEVEL=16,
            num_warps=warps,
            num_stages=stages,
        )
        found.append(out.sum(1, dtype=torch.float64))
    return found[0] if len(found) == 1 else torch.cat(found, 1)


def _pieces(k: int, most: int) -> list[tuple[int, int]]:
    """Cut k components into about equal pieces of some at most.

    Examples
    --------
    >>> _pieces(50, 64), _pieces(150, 64)
    ([(0, 50)], [(0, 50), (50, 100), (100, 150)])
    """
    step = -(-k // -(-k // most))
    return [(a, min(a + step, k)) for a in range(0, k, step)]


def account(A: Array, G: Array, V: Array) -> Array:
    """Return ``⟨G V − 2 A, V⟩`` as a tensor without dimensions, in double precision, without waiting for it."""
    import torch

    run = _kernels()
    assert run is not None
    k, m = V.shape
    KP = padded(k)
    BM = max(16, 2048 // KP)
    out = torch.empty(-(-m // BM), dtype=torch.float64, device=V.device)
    run.account_kernel[(out.shape[0],)](A.contiguous(), G.contiguous(), V.contiguous(), out, m, k, KP=KP, BM=BM)
    return out.sum()


def _places(Xs: Sequence[Array]) -> tuple[bool, tuple[tuple[int, int], ...]]:
    """Return whether the first rows begin at sixteen bytes, how far from there others' begin, and their sizes."""
    origin = Xs[0].data_ptr()
    return origin % 16 == 0, tuple((X.data_ptr() - origin, X.shape[0]) for X in Xs)


@functools.lru_cache(maxsize=256)
def _table(
    places: tuple[bool, tuple[tuple[int, int], ...]], down: int, size: int, device: Any, block: int, parts: int = 0
) -> tuple[Array, int]:
    """Cut clients' rows into blocks, or each client's into some parts of whole blocks, and bring the cuts to the GPU.

    Returns
    -------
    table : array, shape (cuts, 3)
        Where a cut begins, counted in numbers from the first client's rows on; its place among all rows; its rows.
    aligned : int
        A number that divides all beginnings and lets sixteen bytes be read at a time, or 1.
    """
    import torch

    (level, owners), lines = places, []
    for (distance, n), first in zip(owners, starts([n for _, n in owners])[0], strict=True):
        step = block if parts == 0 else -(-n // (parts * block)) * block
        for i in range(-(-n // block) if parts == 0 else parts):
            at = min(i * step, n)
            # Nothing where a client has fewer rows than parts.
            lines.append((distance // size + at * down, first + at, min(step, n - at)) if at < n else (0, 0, 0))
    level = level and all(begin * size % 16 == 0 for begin, _, _ in lines)
    return torch.tensor(lines, dtype=torch.int64, device=device), 16 // size if level else 1


def sweep(Wt: Array, G: Array, Bt: Array, *, sweeps: int, l1: float = 0.0, tol: float = 0.0) -> Array:
    """Improve the columns of `Wt` (k × n) by cyclic coordinate descent; all sweeps of a row in one launch."""
    import torch

    run = _kernels()
    assert run is not None
    k, n = Wt.shape
    Wt, Bt, G = Wt.contiguous(), Bt.contiguous(), G.to(Wt.dtype).contiguous()
    out = torch.empty_like(Wt)
    KP = padded(k)
    # One warp has 32 rows, each of them in the registers of one thread.
    BLOCK, warps = (128, 4) if KP == 64 and n > 50_000 else (32, 1)
    kernel = run.sweep_few_kernel if KP <= 32 else run.sweep_kernel if KP <= 64 else run.sweep_many_kernel
    kernel[(-(-n // BLOCK),)](
        Wt,
        Bt,
        G,
        out,
        n,
        sweeps,
        float(l1),
        float(tol) ** 2,
        K=k,
        KP=KP,
        BLOCK=BLOCK,
        TRACK=tol > 0,
        num_warps=warps,
    )
    return out


def _gather(starts: Array, places: Array, data: Array, D: Array) -> Array:
    """Return ``(CSR matrix @ D)ᵀ``."""
    import torch

    run = _kernels()
    assert run is not None
    n = starts.shape[0] - 1
    k = D.shape[1]
    out = torch.empty((k, n), dtype=torch.float32, device=D.device)
    KP = max(2, 1 << (k - 1).bit_length())
    run.gather_kernel[(n,)](starts, places, data, D, out, n, k, KP=KP, BLOCK=max(16, 1024 // KP), num_warps=1)
    return out


_columns: dict[int, tuple[Any, tuple[Array, Array, Array]]] = {}


def by_columns(X: Array) -> tuple[Array, Array, Array]:
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
