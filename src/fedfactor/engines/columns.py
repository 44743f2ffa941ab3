"""Factorizations of columns that lie with several clients who know the same rows (a vertical federation)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.core.algorithm import Algorithm, LocalFactors, Score
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.pytree import Array
from fedfactor.core.run import Run
from fedfactor.engines.capabilities import for_columns
from fedfactor.io.row_matching import matched_rows
from fedfactor.privacy.dp import asked_of

__all__ = ["ColumnFactors", "columns_as_rows", "factor_columns", "refuse_noise"]


ALL = "all columns"
"""The client of a run as one client with all columns would have it."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnFactors:
    """Result of a vertical federation: U of the common rows, which all clients have, and each client's columns of V.

    Attributes
    ----------
    U : array of shape (n, k)
        One row for each common row; known to all clients.
    V : dict of str to array of shape (k, m_p)
        The columns of V of each client, which stay there.
    rows : dict of str to array of int of shape (n,)
        Position of each common row at each client.
    run : Run
        The run on the transposed columns: history, traffic, settings.
    """

    U: Array
    V: Mapping[str, Array]
    rows: Mapping[str, np.ndarray]
    run: Run

    def joined(self, tables: Mapping[str, Any]) -> tuple[Run, Federation]:
        """Return the run as one client with all columns would have it, and that client's rows; in a simulation.

        Parameters
        ----------
        tables : mapping of str to matrix, data frame or Shard
            As in the run.

        Returns
        -------
        Run
            With the factors of one client, ``"all columns"``.
        Federation
        """
        shards = {name: Shard.of(tables[name]) for name in self.V}
        first = next(iter(shards))
        parts: list[Any] = [shard.X[self.rows[name]] for name, shard in shards.items()]
        sparse = any(hasattr(part, "tocsr") for part in parts)
        X: Any = scipy.sparse.hstack(parts, format="csr") if sparse else np.concatenate(parts, axis=1)
        names = [name for shard in shards.values() for name in shard.features or ()]
        features = tuple(names) if len(names) == X.shape[1] == len(set(names)) else None
        own = shards[first].row_ids
        ids = None if own is None else tuple(own[int(row)] for row in self.rows[first])
        masks = [None if shard.mask is None else np.asarray(shard.mask)[self.rows[n]] for n, shard in shards.items()]
        seen = [np.ones(part.shape, bool) if mask is None else mask for part, mask in zip(parts, masks, strict=True)]
        mask = None if all(each is None for each in masks) else np.concatenate(seen, axis=1)
        shard = Shard(X, mask, features, row_ids=ids, id_name=shards[first].id_name)
        algorithm: Any = self.run.algorithm
        if hasattr(algorithm, "for_rows"):
            algorithm = algorithm.for_rows(np.asarray(X.mean(axis=0)).ravel(), X.shape[0])
        V = np.concatenate([np.asarray(part) for part in self.V.values()], axis=1)
        scores = self.run.scores.values()
        whole = Score.of(*(sum(float(getattr(each, part)) for each in scores) for part in ("sse", "n", "total")))
        factors = {ALL: LocalFactors(self.U, V)}
        run = replace(self.run, algorithm=algorithm, factors=factors, scores={ALL: whole}, feature_names=features)
        return run, Federation({ALL: shard})


def refuse_noise(privacy: Any) -> None:
    """Reject noise for columns: it would not protect what users take for a row."""
    if asked_of(privacy) is not None:
        raise IncompatibleError(
            "Noise of a run on columns would protect columns, not the rows of X, each of which is in the uploads of "
            "all clients. Use privacy='secure-sum', or leave privacy out."
        )


def factor_columns(algorithm: Algorithm, tables: Mapping[str, Any], **options: Any) -> ColumnFactors:
    r"""Factor columns that lie with several clients, ``[X_1, …, X_P] ≈ U [V_1, …, V_P]``, as one client with all would.

    With U common and each :math:`V_p` private, U depends on the columns through the sums over clients
    :math:`\sum_p X_p V_p^\top` (n × k) and :math:`\sum_p V_p V_p^\top` (k × k), and so on the transposed problem
    :math:`X_p^\top \approx V_p^\top U^\top` in just the way in which V depends on rows: the algorithm for rows runs on
    :math:`X_p^\top`, and its iterates are those of one client with all columns.

    Parameters
    ----------
    algorithm : PooledNMF, PooledPCA or PooledSVD
        As for rows. The weights of penalties on U and V change places. The Gram solver of PCA and SVD sends n(n + 1)/2
        numbers for n rows, the subspace solver (k + oversampling) n numbers in each exchange.
    tables : mapping of str to matrix, data frame or Shard
        The columns of each client. Where all have row ids (the index of a frame is not one: use ``fedfactor.read`` or
        ``Shard(row_ids=...)``), rows are matched by them; else all must have the same rows in the same order.
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

    All tables are in this process, as in any simulation, and rows are matched here; between real parties ids are hashed
    first (``fedfactor features --split columns``).

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.algorithms import PooledPCA
    >>> X = np.random.default_rng(0).standard_normal((30, 6))
    >>> found = factor_columns(PooledPCA(2), {"lab": X[:, :4], "clinic": X[:, 4:]}, seed=0)
    >>> found.U.shape, found.V["lab"].shape
    ((30, 2), (2, 4))
    """
    from fedfactor.engines.run import run  # late: it offers this as one of its options

    method = for_columns(algorithm)
    refuse_noise(options.get("privacy"))
    shards = {str(name): Shard.of(table) for name, table in tables.items()}
    rows = matched_rows(shards)
    turned = {name: columns_as_rows(shard, rows[name]) for name, shard in shards.items()}
    found = run(method, turned, split="rows", **options)
    return ColumnFactors(found.V.T, {name: kept.U.T for name, kept in found.factors.items()}, rows, found)


def columns_as_rows(shard: Shard, rows: np.ndarray, names: tuple[str, ...] | None = None) -> Shard:
    """Return the columns of a client as rows of the transposed problem.

    Parameters
    ----------
    shard : Shard
        The columns of a client.
    rows : array of int of shape (n,)
        Positions of the common rows, in the common order.
    names : tuple of str, optional
        What all clients call these rows.

    Returns
    -------
    Shard
        Of shape (m_p, n); its row ids are the names of the columns.
    """
    if isinstance(shard.mask, str):
        raise IncompatibleError(
            "missing_values='unstored' describes ratings, and these cannot be cut into columns. Pass dense columns, "
            "with NaN where a value is missing."
        )
    cells = shard.X[rows]
    X = cells.T.tocsr() if hasattr(cells, "tocsr") else np.ascontiguousarray(cells.T)
    mask = None if shard.mask is None else np.ascontiguousarray(np.asarray(shard.mask)[rows].T)
    return Shard(X, mask, names, row_ids=shard.features)
