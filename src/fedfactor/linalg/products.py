"""Products of the data with thin factors: the only place that knows sparse from dense.

`X` (n × m) is NumPy or torch, dense, or SciPy CSR/CSC, or torch ``sparse_csr``. Factors are dense, of the same library.
``benchmarks/layout.py`` prints the table behind the choices made here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace, device, is_torch_array

from fedfactor.core.memory_mapped import read_ahead
from fedfactor.core.pytree import Array, is_numpy
from fedfactor.core.threads import for_blocks
from fedfactor.linalg.compiled.compile import kernel
from fedfactor.linalg.cuda import launch as cuda
from fedfactor.linalg.memoize import once

__all__ = ["as_like", "cross", "gram", "gram_rows", "is_sparse", "squared_norm", "sums", "total", "values", "zeros"]

# Below this many multiplications a product takes some microseconds, less than handing it to another thread.
_SMALL = 200_000
# Columns of a factor that are multiplied with each other at a time.
_WIDE = 4096
# Cells of a block of dense rows, or of a sum of squares.
_BLOCK = 1 << 19
# Reductions in double precision convert this many entries at a time: few enough that OpenBLAS keeps a dot product on
# one thread. Longer ones wake a second thread, which on a busy machine took up to 150 times as long.
_CHUNK = 1 << 13
# Entries of a file that are fetched together.
_STRETCH = 1 << 24


def is_sparse(X: Array) -> bool:
    """Return whether `X` stores its non-zero cells only.

    Examples
    --------
    >>> import numpy as np, scipy.sparse
    >>> is_sparse(np.eye(2)), is_sparse(scipy.sparse.csr_array(np.eye(2)))
    (False, True)
    """
    if is_numpy(X):
        return False
    return scipy.sparse.issparse(X) or (is_torch_array(X) and X.layout != _strided())


def streamed(X: Array) -> bool:
    """Return whether a GPU reads the rows block by block, through ``X.blocks()``.

    Examples
    --------
    >>> streamed(np.eye(2))
    False
    """
    return getattr(X, "layout", None) == "streamed"


def values(X: Array) -> Array:
    """Return the stored values of `X`: all entries of a dense array, the non-zeros of a sparse one."""
    if scipy.sparse.issparse(X):
        return X.data
    return X.values() if is_sparse(X) else X


def as_like(A: Array, X: Array) -> Array:
    """Return `A` with the library, type and device of the values of `X`; the same object when it has them already.

    Examples
    --------
    >>> import numpy as np
    >>> as_like(np.arange(3), np.ones(2, np.float32)).dtype
    dtype('float32')
    """
    if is_numpy(X) or scipy.sparse.issparse(X):
        if is_torch_array(A):
            A = A.detach().cpu().numpy()
        return np.asarray(A, dtype=X.dtype)
    if is_torch_array(X) or streamed(X):
        import torch

        # Rows in half precision are multiplied with factors in single.
        real = torch.float32 if X.dtype in (torch.bfloat16, torch.float16) else X.dtype
        return torch.as_tensor(_writable(A), dtype=real, device=X.device)
    return array_namespace(X).asarray(A, dtype=X.dtype, device=X.device)


def zeros(shape: tuple[int, ...], X: Array) -> Array:
    """Return zeros with the library, type and device of factors of `X`, made where they are needed.

    Examples
    --------
    >>> zeros((1, 2), np.ones(2, np.float32))
    array([[0., 0.]], dtype=float32)
    """
    like = as_like(np.zeros(0), X)
    return array_namespace(like).zeros(shape, dtype=like.dtype, device=device(like))


def cross(X: Array, V: Array) -> Array:
    """Return ``X Vᵀ`` (n × k), C-contiguous.

    Parameters
    ----------
    X : array or sparse matrix, shape (n, m)
    V : array, shape (k, m)

    Examples
    --------
    >>> import numpy as np
    >>> cross(np.array([[1.0, 2.0]]), np.array([[1.0, 1.0], [0.0, 1.0]]))
    array([[3., 2.]])
    """
    if is_numpy(X):
        # With X first, OpenBLAS took 1.1 to 2 times as long in double precision, and in single when X is F-ordered 1.2
        # to 1.4.
        turned = X.size > _SMALL and (X.dtype == np.float64 or not X.flags.c_contiguous)
        out = np.empty((X.shape[0], V.shape[0]), np.result_type(X, V))

        def part(start: int, stop: int) -> None:
            out[start:stop] = (V @ X[start:stop].T).T if turned else X[start:stop] @ V.T

        for_blocks(part, X.shape[0], _rows_of_block(X))
        return out
    if scipy.sparse.issparse(X):
        if X.format == "csc":
            return np.ascontiguousarray(_scatter(X.T, V.T).T)
        return _gather(X, once(_transposed, V))
    if streamed(X):
        return array_namespace(V).concat([cross(block, V) for _, _, block in X.blocks()])
    if cuda.ready(X, V.shape[0]):
        return cuda.cross(X, V).T.contiguous()
    return (X @ V.T).contiguous() if is_torch_array(X) else X @ V.T


def sums(U: Array, X: Array) -> Array:
    """Return ``Uᵀ X`` (k × m), C-contiguous.

    Parameters
    ----------
    U : array, shape (n, k)
    X : array or sparse matrix, shape (n, m)

    Examples
    --------
    >>> import numpy as np
    >>> sums(np.array([[1.0], [2.0]]), np.eye(2))
    array([[1., 2.]])
    """
    if is_numpy(X):
        # In single precision an F-ordered X is better read as Xᵀ; in double precision U first was faster but for one
        # wide case (k = 5).
        turned = X.size > _SMALL and X.dtype == np.float32 and not X.flags.c_contiguous
        rows = max(_rows_of_block(X), -(-X.shape[0] // 16))  # each block has a sum of its own
        parts: dict[int, np.ndarray] = {}

        def part(start: int, stop: int) -> None:
            parts[start] = (X[start:stop].T @ U[start:stop]).T if turned else U[start:stop].T @ X[start:stop]

        for_blocks(part, X.shape[0], rows)
        if not parts:
            return np.zeros((U.shape[1], X.shape[1]), np.result_type(X, U))
        total = np.ascontiguousarray(parts[0])
        for start in sorted(parts)[1:]:
            total += parts[start]
        return total
    if scipy.sparse.issparse(X):
        if X.format == "csc":
            return np.ascontiguousarray(_gather(X.T, U).T)
        return _scatter(X, U)
    if streamed(X):
        return as_like(sum(sums(U[a:b], block).double() for a, b, block in X.blocks()), U)
    if cuda.ready(X, U.shape[1]):
        return cuda.sums(U.T.contiguous(), X).to(U.dtype)
    if is_sparse(X):
        return (X.t() @ U).t().contiguous()
    return (U.T @ X).contiguous() if is_torch_array(X) else U.T @ X


def _rows_of_block(X: np.ndarray) -> int:
    """Return rows enough for some hundred microseconds of work; by the shape alone, as is the order of sums."""
    return max(64, _BLOCK // max(1, X.shape[1]))


def gram_rows(V: Array) -> Array:
    """Return ``V Vᵀ`` (k × k).

    Examples
    --------
    >>> import numpy as np
    >>> gram_rows(np.array([[1.0, 2.0]]))
    array([[5.]])
    """
    return once(_gram_rows, V)


def _gram_rows(V: Array) -> Array:
    if cuda.ready(V, V.shape[0]):
        return cuda.sums(V.contiguous(), V.T).to(V.dtype)
    if not is_numpy(V) or V.shape[1] <= _WIDE:
        return V @ V.T
    parts = np.empty((-(-V.shape[1] // _WIDE), V.shape[0], V.shape[0]), V.dtype)

    def part(a: int, b: int) -> None:
        parts[a // _WIDE] = V[:, a:b] @ V[:, a:b].T

    for_blocks(part, V.shape[1], _WIDE)
    return parts.sum(axis=0, dtype=V.dtype)


def _transposed(V: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(V.T)


def gram(U: Array) -> Array:
    """Return ``Uᵀ U`` (k × k).

    Examples
    --------
    >>> import numpy as np
    >>> gram(np.array([[1.0], [2.0]]))
    array([[5.]])
    """
    return cuda.sums(U.T.contiguous(), U).to(U.dtype) if cuda.ready(U, U.shape[1]) else U.T @ U


def stored_rows(X: Array) -> np.ndarray:
    """Return the row of each stored cell of CSR `X`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse
    >>> stored_rows(scipy.sparse.csr_array(np.eye(2)))
    array([0, 1])
    """
    n: int = X.shape[0]
    return np.repeat(np.arange(n), np.diff(X.indptr))


def squared_norm(X: Array) -> float:
    """Return ``‖X‖²``, summed in double precision without a copy of `X`.

    Examples
    --------
    >>> import numpy as np
    >>> squared_norm(np.full((2, 2), 3.0, np.float32))
    36.0
    """
    if streamed(X):
        return sum(squared_norm(block) for _, _, block in X.blocks())
    stored = values(X)
    if is_torch_array(stored):
        import torch

        return float(array_namespace(stored).linalg.vector_norm(stored, dtype=torch.float64) ** 2)
    run = kernel("squares", stored.dtype)
    if run is None or not stored.flags.forc:
        return sum(float(chunk @ chunk) for chunk in _double_chunks(stored))
    flat = np.asarray(stored).ravel(order="K")
    parts = np.zeros(-(-flat.size // _BLOCK))

    def part(place: int, _: int) -> None:
        arrive(place)
        parts[place] = run(flat, place * _BLOCK, min((place + 1) * _BLOCK, flat.size))

    with read_ahead(len(parts), lambda place: [flat[place * _BLOCK : (place + 1) * _BLOCK]]) as arrive:
        for_blocks(part, len(parts), 1)
    return float(parts.sum())


def total(X: Array) -> float:
    """Return the sum of all entries, in double precision without a copy of `X`.

    Examples
    --------
    >>> import numpy as np
    >>> total(np.ones((2, 3), np.float32))
    6.0
    """
    stored = values(X)
    if is_torch_array(stored):
        import torch

        return float(stored.sum(dtype=torch.float64))
    return sum(float(chunk.sum()) for chunk in _double_chunks(stored))


def _double_chunks(stored: np.ndarray):
    """Yield the entries as short float64 vectors."""
    if stored.ndim == 2 and not stored.flags.forc:
        rows = max(1, _CHUNK // max(1, stored.shape[1]))
        for start in range(0, stored.shape[0], rows):
            yield stored[start : start + rows].astype(np.float64).ravel()
        return
    flat = stored.ravel(order="K")
    with read_ahead(-(-flat.size // _STRETCH), lambda i: [flat[i * _STRETCH : (i + 1) * _STRETCH]]) as arrive:
        for start in range(0, flat.size, _CHUNK):
            if start % _STRETCH == 0:
                arrive(start // _STRETCH)
            yield flat[start : start + _CHUNK].astype(np.float64, copy=False)


def csr_parts(X: Array, real: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indptr, indices and data of a CSR matrix with one index type, as the compiled loops want them.

    One that is stored by columns is turned first: loops do not look whether a place exists before they write to it.
    """
    X = X if X.format == "csr" else X.tocsr()
    indices = np.ascontiguousarray(X.indices)
    return np.asarray(X.indptr, dtype=indices.dtype), indices, np.ascontiguousarray(X.data, dtype=real)


def over_rows(work: Callable[[int, int, int], object], indptr: np.ndarray, blocks: int) -> None:
    """Call ``work(block, start, stop)`` for blocks of rows, on several threads when allowed."""
    if blocks == 1:
        work(0, 0, indptr.size - 1)
        return
    bounds = row_bounds(indptr, blocks)
    for_blocks(lambda b, _: work(b, bounds[b], bounds[b + 1]), blocks, 1)


def row_bounds(indptr: np.ndarray, blocks: int) -> np.ndarray:
    """Cut the rows into blocks of about equal numbers of stored cells; depends on the data only, not on threads."""
    targets = np.linspace(0, int(indptr[-1]), blocks + 1)[1:-1]
    inner = np.searchsorted(indptr, targets)
    return np.concatenate(([0], inner, [indptr.size - 1]))


def scatter_blocks(X: Array, k: int) -> int:
    """Return how many row blocks may own a buffer (m × k): in all at most a quarter of the data's memory."""
    if X.nnz * k < _SMALL:
        return 1
    room = X.nnz * (X.data.itemsize + X.indices.itemsize) // (4 * max(1, X.shape[1]) * k * X.data.itemsize)
    return int(min(8, max(1, room)))


def _gather(X: Array, D: np.ndarray) -> np.ndarray:
    """Return X D for CSR X: every row gathers the rows of D it needs."""
    run = kernel("gather", X.dtype, X.indices.dtype) if D.dtype == X.dtype else None
    if run is None:
        return np.ascontiguousarray(X @ D)
    D = np.ascontiguousarray(D)
    parts = csr_parts(X, X.dtype)
    out = np.empty((X.shape[0], D.shape[1]), X.dtype)
    # Rows are independent, so the number of blocks is a matter of balance only.
    blocks = 1 if X.nnz * D.shape[1] < _SMALL else 16
    over_rows(lambda _, start, stop: run(*parts, D, start, stop, out), parts[0], blocks)
    return out


def _scatter(X: Array, U: np.ndarray) -> np.ndarray:
    """Return Uᵀ X for CSR X: every row adds to the columns it touches, block by block, added up in block order."""
    run = kernel("scatter", X.dtype, X.indices.dtype) if U.dtype == X.dtype else None
    if run is None:
        return np.ascontiguousarray((X.T @ U).T)
    U = np.ascontiguousarray(U)
    parts = csr_parts(X, X.dtype)
    blocks = scatter_blocks(X, U.shape[1])
    k = U.shape[1]
    # Single precision fills a vector register with eight numbers; a ragged end costs more than the padding.
    buffers = np.zeros((blocks, X.shape[1], -(-k // 8) * 8 if X.dtype == np.float32 else k), X.dtype)
    over_rows(lambda b, start, stop: run(*parts, U, start, stop, buffers[b]), parts[0], blocks)
    for other in buffers[1:]:
        buffers[0] += other
    out = np.empty((k, X.shape[1]), X.dtype)
    transpose = kernel("transpose", X.dtype)
    assert transpose is not None  # since scatter is there
    transpose(buffers[0], out, 0, X.shape[1])
    return out


def _strided():
    import torch

    return torch.strided


def _writable(A: Array) -> Array:
    """Return `A`, copied when NumPy marks it read-only: torch cannot share such memory safely."""
    return A.copy() if is_numpy(A) and not A.flags.writeable else A
