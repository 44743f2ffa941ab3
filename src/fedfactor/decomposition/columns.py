"""Factorizations of columns that lie with several clients who know the same rows (a vertical federation)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError, IncompatibleError
from fedfactor.core.pytree import Array
from fedfactor.core.run import Run
from fedfactor.decomposition.pca import PooledPCA, PooledSVD
from fedfactor.decomposition.row_matching import common_hashes, hashes_of_ids, positions_of
from fedfactor.engines.run import run
from fedfactor.nmf.pooled.algorithm import PooledNMF
from fedfactor.privacy.dp import asked_of

__all__ = ["ColumnFactors", "factor_columns"]


@dataclass(frozen=True, slots=True, eq=False)
class ColumnFactors:
    """What a vertical federation leaves: U for the common rows, which all clients have, and each client's columns of V.

    Attributes
    ----------
    U : array of shape (n, k)
        One row for each common row; known to all clients.
    V : dict of str to array of shape (k, m_p)
        The columns of V of each client, which stay there.
    rows : dict of str to array of int of shape (n,)
        Where each common row lies at each client.
    run : Run
        The run on the transposed columns: history, traffic, settings.
    """

    U: Array
    V: Mapping[str, Array]
    rows: Mapping[str, np.ndarray]
    run: Run


def factor_columns(
    algorithm: Algorithm, tables: Mapping[str, Any], *, key: bytes | None = None, **options: Any
) -> ColumnFactors:
    r"""Factor columns that lie with several clients, ``[X_1, …, X_P] ≈ U [V_1, …, V_P]``, as one client with all would.

    With U common and each :math:`V_p` private, U depends on the columns through the sums over clients
    :math:`\sum_p X_p V_p^\top` (n × k) and :math:`\sum_p V_p V_p^\top` (k × k), and so on the transposed problem
    :math:`X_p^\top \approx V_p^\top U^\top` in just the way in which V depends on rows: the algorithm for rows runs on
    :math:`X_p^\top`, and its iterates are those of one client with all columns.

    Parameters
    ----------
    algorithm : PooledNMF, PooledPCA or PooledSVD
        As for rows. Penalties on U and V change places. The Gram solver of PCA and SVD sends n(n + 1)/2 numbers for n
        rows, the subspace solver (k + oversampling) n numbers in each exchange.
    tables : mapping of str to matrix, data frame or Shard
        The columns of each client. Where all have row ids (the index of a frame is not one: use ``fedfactor.read`` or
        ``Shard(row_ids=...)``), rows are matched by them; else all must have the same rows in the same order.
    key : bytes, optional
        For ids: the secret that the clients share, see :func:`~fedfactor.decomposition.row_matching.hashes_of_ids`.
    **options
        Of :func:`fedfactor.run`: engine, rounds, seed, privacy, ...

    Returns
    -------
    ColumnFactors

    Notes
    -----
    U describes every row to every client and to the server: a client that knows the values of some columns for some
    rows can predict from U what their other columns may be. Secure aggregation hides what a single client adds from the
    server; it does not protect rows. Noise is refused: that of a run protects what the algorithm takes for rows, which
    are columns here, and one row of X has a part in the uploads of all clients.

    All tables are in this process, as in any simulation, and rows are matched here.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.algorithms import PooledPCA
    >>> X = np.random.default_rng(0).standard_normal((30, 6))
    >>> found = factor_columns(PooledPCA(2), {"lab": X[:, :4], "clinic": X[:, 4:]}, seed=0)
    >>> found.U.shape, found.V["lab"].shape
    ((30, 2), (2, 4))
    """
    if not isinstance(algorithm, (PooledNMF, PooledPCA, PooledSVD)):
        raise IncompatibleError(
            f"{type(algorithm).__name__} does not take columns. Use PooledNMF, PooledPCA or PooledSVD; SynSD and its "
            "like take split='columns'."
        )
    if asked_of(options.get("privacy")) is not None:
        raise IncompatibleError(
            "Noise of a run on columns would protect columns, not the rows of X, each of which is in the uploads of "
            "all clients. Use privacy='secure-sum', or leave privacy out."
        )
    if not tables:
        raise DataError("No client has columns. Give at least one table.")
    shards = {str(name): Shard.of(table) for name, table in tables.items()}
    rows = _matched(shards, key)
    turned = {name: _turned(shard, rows[name]) for name, shard in shards.items()}
    if isinstance(algorithm, PooledNMF):
        found = run(algorithm, turned, **options)
        return ColumnFactors(found.V.T, {name: kept.U.T for name, kept in found.factors.items()}, rows, found)
    return _spectral(algorithm, turned, rows, options)


def _spectral(
    algorithm: PooledPCA | PooledSVD, turned: dict[str, Any], rows: Mapping[str, np.ndarray], options: dict[str, Any]
) -> ColumnFactors:
    """Find U from the sums of outer products of columns: PCA subtracts the mean of each column at its client."""
    centered = isinstance(algorithm, PooledPCA)
    shared = ("n_components", "variance_share", "solver", "oversampling")
    plain = PooledSVD(**{name: getattr(algorithm, name) for name in shared})
    if centered:
        turned = {name: _centered(X) for name, X in turned.items()}
    found = run(plain, turned, **options)
    sizes = np.asarray(found.algorithm.fitted[1], found.V.dtype)
    safe = np.where(sizes > 0, sizes, 1)
    U = found.V.T * sizes
    V = {name: (kept.U / safe).T for name, kept in found.factors.items()}
    if centered and getattr(algorithm, "whiten", False):
        U = U * (np.sqrt(max(len(U) - 1, 1)) / safe)
    return ColumnFactors(U, V, rows, found)


def _centered(X: Any) -> Any:
    if hasattr(X, "tocsr"):
        raise IncompatibleError(
            "Columns that are centered are not sparse. Use PooledSVD, or pass dense columns where they fit into memory."
        )
    return X - X.mean(axis=1, keepdims=True)


def _matched(shards: Mapping[str, Shard], key: bytes | None) -> dict[str, np.ndarray]:
    """Return where the common rows lie at each client."""
    with_ids = [name for name, shard in shards.items() if shard.row_ids is not None]
    if not with_ids:
        sizes = {name: shard.n_rows for name, shard in shards.items()}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{name!r} has {size}" for name, size in sizes.items())
            raise DataError(f"Clients that hold columns must have the same rows, but {told}. Give row ids to match by.")
        return {name: np.arange(size) for name, size in sizes.items()}
    if len(with_ids) < len(shards):
        bare = next(name for name in shards if name not in with_ids)
        raise DataError(f"Client {with_ids[0]!r} has row ids but {bare!r} has none. Give row ids for all, or for none.")
    if key is None:
        raise ValueError("Rows are matched by keyed hashes of their ids. Pass key=secrets.token_bytes(32).")
    hashed = {name: hashes_of_ids(shard.row_ids or (), key) for name, shard in shards.items()}
    common = common_hashes(hashed)
    if not len(common):
        raise DataError("The clients have no row in common. Compare how their ids are written.")
    return {name: positions_of(common, own) for name, own in hashed.items()}


def _turned(shard: Shard, rows: np.ndarray) -> Any:
    if shard.mask is not None:
        raise IncompatibleError("Columns with missing values cannot be matched. Impute them first.")
    X = shard.X[rows]
    return X.T.tocsr() if hasattr(X, "tocsr") else np.ascontiguousarray(X.T)
