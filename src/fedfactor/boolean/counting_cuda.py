"""What a client counts in the search for Boolean components, on a CUDA GPU: the counts of the processor, exactly.

One bit a cell goes to the GPU and counts come back, so that rows stay packed where the processor keeps them, too.
Triton comes with torch on Linux; where it is absent the processor counts.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fedfactor.core.pytree import Array

__all__ = ["card_of", "choose", "column_votes", "cover_gains", "packed", "serves", "swap_gains"]
_MOST = 63  # components: which of them a row has are the bits of one number, less its sign
_WIDEST = 512  # words of a row that a program holds
_CELLS = 1 << 24  # cells of a block that are spread out while they are packed


@functools.cache
def _kernels() -> Any | None:
    try:
        from fedfactor.linalg.cuda import triton_boolean
    except ImportError:
        return None
    return triton_boolean


def card_of(X: Array) -> Any | None:
    """Return the GPU that rows lie on and that can count there, or None.

    Examples
    --------
    >>> card_of([[1.0, 0.0]]) is None
    True
    """
    return X.device if getattr(X, "is_cuda", False) and _kernels() is not None else None


def serves(card: Any | None, V: np.ndarray) -> bool:
    """Return whether these components, packed, can be counted with on the GPU.

    Examples
    --------
    >>> import numpy as np
    >>> serves(None, np.zeros((3, 1), np.uint64))
    False
    """
    return card is not None and 0 < len(V) <= _MOST and 0 < V.shape[1] <= _WIDEST


def packed(X: Array) -> np.ndarray:
    """Pack a 0/1 tensor on its GPU, so that a bit and not a number travels for each cell."""
    import torch

    n, m = X.shape
    words = -(-m // 64)
    out = np.empty((n, words), np.uint64)
    bit = torch.arange(64, device=X.device)
    step = max(1, _CELLS // max(1, 64 * words))
    for start in range(0, n, step):
        cells = torch.nn.functional.pad((X[start : start + step] > 0.5).to(torch.int64), (0, 64 * words - m))
        found = (cells.reshape(-1, words, 64) << bit).sum(-1)
        out[start : start + step] = found.cpu().numpy().view(np.uint64)
    return out


def _there(words: np.ndarray, card: Any) -> Any:
    import torch

    return torch.as_tensor(np.ascontiguousarray(words).view(np.int64), device=card)


def _numbers(U: np.ndarray, card: Any) -> Any:
    """Turn which components rows have into one number a row."""
    import torch

    bit = torch.arange(U.shape[1], device=card)
    return (torch.as_tensor(np.ascontiguousarray(U, np.uint8), device=card).to(torch.int64) << bit).sum(1)


def _shape(words: int) -> tuple[int, int, int]:
    """Return the words of a program's rows as a power of two, its rows, and its warps."""
    W = 1 << (words - 1).bit_length()
    return W, max(2, 256 // W), 1 if W <= 128 else 4


def choose(
    card: Any,
    ones: np.ndarray,
    zeros: np.ndarray,
    V: np.ndarray,
    hint: np.ndarray | None,
    penalty: int,
    thorough: bool,
    sweeps: int,
) -> tuple[np.ndarray, tuple[int, int]]:
    """Choose components for each row; see :func:`fedfactor.boolean.counting.choose`."""
    import torch

    run, (n, words), k = _kernels(), ones.shape, len(V)
    assert run is not None
    W, block, warps = _shape(words)
    out = torch.zeros(n, dtype=torch.int64, device=card)
    cost = torch.zeros((n, 2), dtype=torch.int32, device=card)
    start = out if hint is None else _numbers(hint, card)
    run.choose_kernel[(-(-n // block),)](
        _there(ones, card),
        _there(zeros, card),
        _there(V, card),
        start,
        out,
        cost,
        n,
        words,
        penalty,
        sweeps,
        K=k,
        W=W,
        BLOCK=block,
        HINT=hint is not None,
        THOROUGH=thorough,
        num_warps=warps,
    )
    U = ((out[:, None] >> torch.arange(k, device=card)) & 1).to(torch.uint8)
    alone, best = cost.sum(0, dtype=torch.int64).cpu().numpy()
    return U.cpu().numpy(), (int(alone), int(best))


def cover_gains(
    card: Any, ones: np.ndarray, zeros: np.ndarray, covered: np.ndarray, candidates: np.ndarray, penalty: int
) -> np.ndarray:
    """Add up the gains of the rows that would take each candidate."""
    import torch

    run, (n, words), size = _kernels(), ones.shape, len(candidates)
    assert run is not None
    W, block, warps = _shape(words)
    each = 64
    out = torch.zeros(size, dtype=torch.int64, device=card)
    run.cover_gains_kernel[(-(-n // block), -(-size // each))](
        *(_there(part, card) for part in (ones, zeros, covered, candidates)),
        out,
        n,
        size,
        words,
        penalty,
        W=W,
        BLOCK=block,
        EACH=each,
        num_warps=warps,
    )
    return out.cpu().numpy()


def swap_gains(
    card: Any, ones: np.ndarray, zeros: np.ndarray, U: np.ndarray, V: np.ndarray, pool: np.ndarray
) -> np.ndarray:
    """Add up what it would gain to put each row of the pool in the place of each component, or beside all (last)."""
    import torch

    run, (n, words), k, size = _kernels(), ones.shape, len(V), len(pool)
    assert run is not None
    W, block, warps = _shape(words)
    each = 32
    out = torch.zeros((k + 1, size), dtype=torch.int64, device=card)
    run.swap_gains_kernel[(-(-n // block), -(-size // each))](
        _there(ones, card),
        _there(zeros, card),
        _numbers(U, card),
        _there(V, card),
        _there(pool, card),
        out,
        n,
        size,
        words,
        K=k,
        W=W,
        BLOCK=block,
        EACH=each,
        num_warps=warps,
    )
    return out.cpu().numpy()


def column_votes(
    card: Any, ones: np.ndarray, zeros: np.ndarray, U: np.ndarray, V: np.ndarray, m: int, penalty: int
) -> np.ndarray:
    """Count what each component would gain from covering each column."""
    import torch

    run, (n, words), k = _kernels(), ones.shape, len(V)
    assert run is not None
    block = 32
    step = max(block, -(-n // (64 * block)) * block)
    out = torch.zeros((k, words * 64), dtype=torch.int64, device=card)
    run.votes_kernel[(words, -(-n // step))](
        _there(ones, card),
        _there(zeros, card),
        _numbers(U, card),
        _there(V, card),
        out,
        n,
        words,
        penalty,
        step,
        K=k,
        BLOCK=block,
        num_warps=4,
    )
    return out[:, :m].cpu().numpy()
