"""How much of the data the factors leave unexplained, in all and client by client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedfactor.core.pytree import Array
from fedfactor.linalg.nnls import squared_error
from fedfactor.linalg.products import as_like, gram, is_sparse, squared_norm, sums

__all__ = ["per_client_errors", "pooled_error", "relative_error", "squared_residual", "worst_client"]

_CELLS = 1 << 20  # cells of U V that may exist at one time
# Below this share of ‖X‖² the cheap formula has lost its digits: a difference of large numbers.
_TOO_SMALL = {4: 1e-3, 8: 1e-9}


def squared_residual(X: Array, U: Array, V: Array, mask: Array | str | None = None) -> tuple[float, float]:
    """Return ``‖X − U V‖²`` and ``‖X‖²``, over the observed cells.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, m)
        The data.
    U : array of shape (n, k)
        Row factor.
    V : array of shape (k, m)
        Components.
    mask : bool array of shape (n, m), "stored" or None
        The observed cells: those marked True, those stored in a sparse matrix, or all.

    Returns
    -------
    residual, total : float
        Summed in double precision.

    Notes
    -----
    U V is never formed. Without a mask: ``‖X‖² − 2⟨UᵀX, V⟩ + ⟨UᵀU, VVᵀ⟩``, O(nnz k); that difference loses its digits
    when the fit is nearly exact, and then the residual is summed over blocks of rows instead, O(n m k).

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.evaluation.metrics.reconstruction import squared_residual
    >>> squared_residual(np.array([[3.0, 4.0]]), np.array([[1.0]]), np.array([[3.0, 0.0]]))
    (16.0, 25.0)
    """
    U = as_like(U, X)
    V = as_like(V, X)
    if isinstance(mask, str):
        return _stored(X, U, V)
    if mask is not None:
        return _blocks(X, U, V, mask)
    total = squared_norm(X)
    residual = squared_error(total, sums(U, X), gram(U), V)
    if residual < _TOO_SMALL.get(V.dtype.itemsize, 1e-3) * total:
        return _blocks(X, U, V, None)
    return residual, total


def _blocks(X: Array, U: Array, V: Array, mask: Array | None) -> tuple[float, float]:
    residual = total = 0.0
    step = max(1, _CELLS // max(1, V.shape[1]))
    for start in range(0, X.shape[0], step):
        rows = slice(start, start + step)
        block = X[rows]
        if is_sparse(block):
            block = block.toarray() if hasattr(block, "toarray") else block.to_dense()
        left = block - U[rows] @ V
        if mask is not None:
            left = left * mask[rows]
            block = block * mask[rows]
        residual += squared_norm(left)
        total += squared_norm(block)
    return residual, total


def _stored(X: Any, U: np.ndarray, V: np.ndarray) -> tuple[float, float]:
    """Sum over the stored cells of a CSR matrix only."""
    residual = 0.0
    columns = np.ascontiguousarray(V.T)
    step = max(1, _CELLS // max(1, V.shape[0]))
    for start in range(0, X.nnz, step):
        cells = np.arange(start, min(start + step, X.nnz))
        rows = np.searchsorted(X.indptr, cells, side="right") - 1
        fit = np.einsum("ik,ik->i", U[rows], columns[X.indices[cells]])
        residual += squared_norm(X.data[cells] - fit)
    return residual, squared_norm(X)


def relative_error(X: Array, U: Array, V: Array, mask: Array | str | None = None) -> float:
    """Return ``‖X − U V‖ / ‖X‖`` over the observed cells.

    Parameters
    ----------
    X, U, V, mask
        As in :func:`squared_residual`.

    Returns
    -------
    float
        0 for an exact fit, 1 for U V = 0. For X = 0: 0 if U V = 0 there, else infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.evaluation.metrics.reconstruction import relative_error
    >>> relative_error(np.array([[3.0, 4.0]]), np.array([[1.0]]), np.array([[3.0, 0.0]]))
    0.8
    """
    return _ratio(*squared_residual(X, U, V, mask))


def per_client_errors(
    X: Mapping[str, Array],
    U: Mapping[str, Array],
    V: Array | Mapping[str, Array],
    mask: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Return each client's relative error.

    Parameters
    ----------
    X, U : mapping of name to matrix
        Each client's rows and row factor.
    V : array of shape (k, m), or mapping of name to array
        The shared components, or each client's own.
    mask : mapping of name to mask, optional
        As in :func:`squared_residual`.

    Returns
    -------
    dict of str to float
        In the order of ``X``.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.evaluation.metrics.reconstruction import per_client_errors
    >>> X = {"north": np.eye(2), "south": np.ones((1, 2))}
    >>> U = {"north": np.eye(2), "south": np.zeros((1, 2))}
    >>> per_client_errors(X, U, np.eye(2))
    {'north': 0.0, 'south': 1.0}
    """
    return {name: _ratio(*pair) for name, pair in _pairs(X, U, V, mask).items()}


def pooled_error(
    X: Mapping[str, Array],
    U: Mapping[str, Array],
    V: Array | Mapping[str, Array],
    mask: Mapping[str, Any] | None = None,
) -> float:
    """Return the relative error of all clients' rows taken together.

    Parameters
    ----------
    X, U, V, mask
        As in :func:`per_client_errors`.

    Returns
    -------
    float
        ``sqrt(Σ‖X_c − U_c V‖² / Σ‖X_c‖²)``.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.evaluation.metrics.reconstruction import pooled_error
    >>> pooled_error({"a": np.eye(2), "b": np.eye(2)}, {"a": np.eye(2), "b": np.zeros((2, 2))}, np.eye(2)) ** 2
    0.5000000000000001
    """
    pairs = _pairs(X, U, V, mask).values()
    return _ratio(math.fsum(residual for residual, _ in pairs), math.fsum(total for _, total in pairs))


def worst_client(errors: Mapping[str, float]) -> tuple[str, float]:
    """Return the client that is served worst, to be shown beside every total.

    Parameters
    ----------
    errors : mapping of name to error
        As given by :func:`per_client_errors`.

    Returns
    -------
    name, error : str, float
        NaN counts as worst; of equals the first by name.

    Examples
    --------
    >>> from fedfactor.evaluation.metrics.reconstruction import worst_client
    >>> worst_client({"north": 0.1, "south": 0.3})
    ('south', 0.3)
    """
    if not errors:
        raise ValueError("There are no errors to compare: give those of at least one client.")
    return max(sorted(errors.items()), key=lambda item: math.inf if math.isnan(item[1]) else item[1])


def _pairs(X: Any, U: Any, V: Any, mask: Any) -> dict[str, tuple[float, float]]:
    if set(X) != set(U):
        odd = sorted(set(X) ^ set(U))[0]
        raise ValueError(f"Rows and row factors must belong to the same clients, but {odd!r} is in only one of them.")
    return {
        name: squared_residual(
            rows, U[name], V[name] if isinstance(V, Mapping) else V, None if mask is None else mask.get(name)
        )
        for name, rows in X.items()
    }


def _ratio(residual: float, total: float) -> float:
    if total == 0:
        return 0.0 if residual == 0 else math.inf
    return math.sqrt(residual / total)
