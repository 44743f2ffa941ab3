"""Who owns which row: split one matrix into clients' matrices, without copying where the rows lie together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.errors import DataError
from fedfactor.core.pytree import is_numpy
from fedfactor.core.random_streams import stream
from fedfactor.linalg.products import zeros

__all__ = ["by_class", "by_label_skew", "join_rows", "row_positions", "split_evenly", "split_rows"]


def split_rows(X: Any, labels: Any) -> dict[str, Any]:
    """Give each client its rows.

    Parameters
    ----------
    X : ndarray, sparse matrix, data frame or torch tensor of shape (n, m)
        The rows of all clients.
    labels : array-like of shape (n,)
        The client of each row. Clients are named ``str(label)``.

    Returns
    -------
    dict of str to matrix
        In the order in which clients first appear. Rows keep their order.

    Notes
    -----
    A client whose rows lie together gets a view: of the array, or of the CSR's ``data`` and ``indices`` with its own
    ``indptr``. Any other client gets a copy of its rows, so all clients together never hold more than one copy of
    ``X``. Other sparse layouts are turned into CSR first.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.io.partition import split_rows
    >>> X = np.arange(8).reshape(4, 2)
    >>> parts = split_rows(X, ["south", "south", "north", "north"])
    >>> list(parts), np.shares_memory(parts["north"], X)
    (['south', 'north'], True)
    """
    if not hasattr(X, "shape"):
        X = np.asarray(X)
    positions = row_positions(labels)
    n = sum(map(len, positions.values()))
    if n != X.shape[0]:
        raise DataError(
            f"{n} labels were given for {X.shape[0]} rows. Give each row its owner, in the order of the rows."
        )
    if sparse.issparse(X):
        X = X.tocsr()
    return {name: _take(X, rows) for name, rows in positions.items()}


def row_positions(labels: Any) -> dict[str, np.ndarray]:
    """Return which rows each client holds, so that results can be put back in order.

    Parameters
    ----------
    labels : array-like of shape (n,)
        The client of each row.

    Returns
    -------
    dict of str to ndarray of int
        Row numbers, rising, by client; clients in the order in which they first appear.

    Raises
    ------
    DataError
        If a label is missing (None or NaN), or two different labels read the same as text (1 and "1").

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.io.partition import row_positions
    >>> positions = row_positions(["b", "a", "b"])
    >>> {name: rows.tolist() for name, rows in positions.items()}
    {'b': [0, 2], 'a': [1]}
    >>> out = np.empty(3)
    >>> for name, rows in positions.items():
    ...     out[rows] = {"a": 1.0, "b": 2.0}[name]
    >>> out.tolist()
    [2.0, 1.0, 2.0]
    """
    codes, names = _encode(labels)
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(names))
    return dict(zip(names, np.split(order, np.cumsum(counts)[:-1]), strict=True))


def join_rows(parts: Mapping[str, Any], positions: Mapping[str, np.ndarray]) -> Any:
    """Undo :func:`split_rows`: put the rows of each client where :func:`row_positions` says that they were.

    Examples
    --------
    >>> join_rows({"a": np.array([[1.0]]), "b": np.array([[2.0], [3.0]])}, row_positions(["b", "a", "b"])).tolist()
    [[2.0], [1.0], [3.0]]
    """
    first = next(iter(parts.values()))
    out = zeros((sum(map(len, positions.values())), first.shape[1]), first)
    for name, rows in positions.items():
        out[rows] = parts[name]
    return out


def _plain(value: Any) -> Any:
    """Return a scalar of NumPy as that of Python."""
    return value.item() if hasattr(value, "item") else value


def _encode(labels: Any) -> tuple[np.ndarray, list[str]]:
    """Number the clients in order of first appearance."""
    labels = labels.to_numpy() if hasattr(labels, "to_numpy") else labels
    if is_numpy(labels) and labels.ndim == 1 and labels.dtype.kind in "biuU" and labels.size:
        return _encode_uniform(labels)
    values: list[Any] = labels.tolist() if hasattr(labels, "tolist") else list(map(_plain, labels))
    if not values:
        raise DataError("No labels were given: each row needs the name of its owner.")
    seen: dict[Any, int] = {}
    try:
        # 1, 1.0 and True are equal keys in Python but read differently, so the type belongs to the key.
        codes = np.fromiter(
            (seen.setdefault((type(v), v), len(seen)) for v in values), dtype=np.intp, count=len(values)
        )
    except TypeError as error:
        raise DataError(
            f"Labels must be one name for each row, but one of them is not a single value ({error})."
        ) from error
    names: dict[str, Any] = {}
    for _, value in seen:
        if value is None or value != value or str(value) in ("NaT", "<NA>"):
            row = next(i for i, v in enumerate(values) if v is value or v != v)
            raise DataError(f"Row {row} has no owner (its label is {value}). Label every row, or leave such rows out.")
        name = str(value)
        if name in names:
            raise DataError(
                f"The labels {names[name]!r} and {value!r} are different values but both read {name!r}, and owners are "
                "known by name. Use one type for all labels."
            )
        names[name] = value
    return codes, list(names)


def _encode_uniform(labels: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Do the same without a Python loop where no label can be missing or clash."""
    values, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[codes], [str(value) for value in values[order].tolist()]


def _take(X: Any, rows: np.ndarray) -> Any:
    start = int(rows[0])
    stop = int(rows[-1]) + 1
    together = stop - start == len(rows)
    if sparse.issparse(X):
        return _csr_view(X, start, stop) if together else X[rows]
    if hasattr(X, "iloc"):
        return X.iloc[start:stop] if together else X.iloc[rows]
    return X[start:stop] if together else X[rows]


def _csr_view(X: Any, start: int, stop: int) -> Any:
    # SciPy's own X[start:stop] copies data and indices, and so does its constructor when they are views of something
    # more than twice as long. A shifted indptr over views, put into an empty matrix, does not.
    first = X.indptr[start]
    last = X.indptr[stop]
    view = type(X)((stop - start, X.shape[1]), dtype=X.dtype)
    view.data = X.data[first:last]
    view.indices = X.indices[first:last]
    view.indptr = X.indptr[start : stop + 1] - first
    view.has_sorted_indices = X.has_sorted_indices
    view.has_canonical_format = X.has_canonical_format
    return view


def split_evenly(n_rows: int, n_clients: int, seed: int | None = 0) -> np.ndarray:
    """Deal rows to clients in equal numbers.

    Parameters
    ----------
    n_rows, n_clients : int
        Every client gets ``n_rows // n_clients`` rows, or one more.
    seed : int or None, default=0
        None: contiguous runs, which :func:`split_rows` does not copy. Else rows are dealt at random.

    Returns
    -------
    ndarray of int of shape (n_rows,)
        The client of each row, 0 to ``n_clients - 1``.

    Examples
    --------
    >>> from fedfactor.io.partition import split_evenly
    >>> split_evenly(5, 2, seed=None).tolist()
    [0, 0, 0, 1, 1]
    """
    if not 1 <= n_clients <= n_rows:
        raise DataError(f"{n_rows} rows cannot be dealt to {n_clients} clients. Use 1 to {n_rows} clients.")
    labels = np.sort(np.arange(n_rows) % n_clients)
    return labels if seed is None else stream("even split", seed).permutation(labels)


def by_label_skew(y: Any, n_clients: int, alpha: float = 0.5, seed: int = 0) -> np.ndarray:
    """Deal the rows of each class to clients in shares drawn from a Dirichlet distribution.

    Parameters
    ----------
    y : array-like of shape (n,)
        The class of each row.
    n_clients : int
        Every one of them gets at least one row.
    alpha : float, default=0.5
        Concentration. Large: all clients see the same mixture of classes. Towards 0: each class goes to one client.
    seed : int, default=0
        Same seed, same labels.

    Returns
    -------
    ndarray of int of shape (n,)
        The client of each row.

    References
    ----------
    .. [1] Hsu, Qi, Brown (2019). Measuring the effects of non-identical data distribution for federated visual
       classification. arXiv:1909.06335.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.io.partition import by_label_skew
    >>> np.unique(by_label_skew([0, 0, 0, 1, 1, 1], n_clients=3, alpha=0.1)).tolist()
    [0, 1, 2]
    """
    codes, names = _encode(y)
    n = len(codes)
    if not alpha > 0:
        raise DataError(f"alpha must be positive, not {alpha}: it is the concentration of a Dirichlet distribution.")
    if not 1 <= n_clients <= n:
        raise DataError(f"{n} rows cannot be dealt to {n_clients} clients. Use 1 to {n} clients.")
    rng = stream("label skew", seed)
    labels = np.empty(n, dtype=np.intp)
    for code in range(len(names)):
        rows = rng.permutation(np.flatnonzero(codes == code))
        # Rounded cumulative shares: sizes that sum to the class without a remainder to place.
        edges = np.rint(np.cumsum(rng.dirichlet(np.full(n_clients, alpha)))[:-1] * len(rows)).astype(np.intp)
        for client, part in enumerate(np.split(rows, edges)):
            labels[part] = client
    counts = np.bincount(labels, minlength=n_clients)
    for client in np.flatnonzero(counts == 0):
        donor = int(counts.argmax())
        labels[rng.choice(np.flatnonzero(labels == donor))] = client
        counts[donor] -= 1
        counts[client] += 1
    return labels


def by_class(y: Any) -> np.ndarray:
    """Make each class one client: the most uneven split there is.

    Parameters
    ----------
    y : array-like of shape (n,)
        The class of each row.

    Returns
    -------
    ndarray of str of shape (n,)
        The client of each row, named after its class.

    Examples
    --------
    >>> from fedfactor.io.partition import by_class
    >>> by_class([3, 1, 3]).tolist()
    ['3', '1', '3']
    """
    codes, names = _encode(y)
    return np.array(names)[codes]
