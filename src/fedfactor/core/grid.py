"""Nodes that own a block of rows and a block of columns of one matrix: the data-centre setting of sketched NMF."""

# Single capitals are matrices, not constants.
# pyright: reportConstantRedefinition=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedfactor.core.checks import as_matrix, is_sparse, library
from fedfactor.core.errors import DataError
from fedfactor.core.federation import Federation, Shard
from fedfactor.core.tree import Array

Bounds = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class GridShard(Shard):
    """Rows ``row_start:`` and columns ``column_start:`` of one matrix, at one node.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_rows, m)
        The block of rows. Sketches read columns of it: Fortran order or CSC is fastest.
    columns : array or sparse matrix of shape (n, n_columns)
        The block of columns. Sketches read rows of it: C order or CSR is fastest.
    row_start, column_start : int
        Where the blocks begin in the whole matrix.
    """

    columns: Array = None
    row_start: int = 0
    column_start: int = 0

    @property
    def bounds(self) -> Bounds:
        """First and last row, first and last column."""
        rows, columns = self.row_start + self.n_rows, self.column_start + int(self.columns.shape[1])
        return self.row_start, rows, self.column_start, columns

    def cast(self, dtype: str) -> Shard:
        """Bring both blocks to a floating type."""
        return replace(self, X=self.X.astype(dtype), columns=self.columns.astype(dtype))


def even_bounds(size: int, parts: int) -> list[int]:
    """Cut a range into parts whose sizes differ by one at most.

    Examples
    --------
    >>> even_bounds(7, 3)
    [0, 3, 5, 7]
    """
    whole, extra = divmod(size, parts)
    return [i * whole + min(i, extra) for i in range(parts + 1)]


def grid_federation(X: Any, nodes: int | Mapping[str, int] = 2) -> Federation:
    """Give every node a block of rows and a block of columns of one matrix.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, m)
        The matrix, at hand in a simulation. Where it is not, ``fedfactor split --grid`` writes blocks from a file.
    nodes : int, or mapping of name to number of rows
        How many nodes share the rows evenly, or who takes how many rows. Columns are always shared evenly.

    Returns
    -------
    Federation
        Of :class:`GridShard`.

    Examples
    --------
    >>> federation = grid_federation(np.ones((5, 4)), 2)
    >>> [federation.shard(name).bounds for name in federation.names]
    [(0, 3, 0, 2), (3, 5, 2, 4)]
    """
    X, features = as_matrix(X)
    if library(X) != "numpy":
        raise DataError(f"Grids are cut from NumPy or SciPy matrices, but this is {library(X)} data. Convert it first.")
    n, m = X.shape
    sizes = {str(i): size for i, size in enumerate(_sizes(n, nodes))} if isinstance(nodes, int) else dict(nodes)
    names = sorted(sizes)
    if sum(sizes.values()) != n:
        raise DataError(f"The nodes take {sum(sizes.values())} rows, but there are {n}. Share out every row once.")
    if len(names) > m:
        raise DataError(f"{len(names)} nodes cannot share {m} columns. Use at most {m} nodes.")
    row_starts = np.concatenate(([0], np.cumsum([sizes[name] for name in names])))
    columns = even_bounds(m, len(names))
    shards: dict[str, Any] = {}
    for i, name in enumerate(names):
        rows = X[row_starts[i] : row_starts[i + 1]]
        block = X[:, columns[i] : columns[i + 1]]
        rows = rows.tocsc() if is_sparse(rows) else np.asfortranarray(rows)
        block = block.tocsr() if is_sparse(block) else np.ascontiguousarray(block)
        shards[name] = GridShard(
            rows, features=features, columns=block, row_start=int(row_starts[i]), column_start=columns[i]
        )
    return Federation(shards)


def _sizes(n: int, nodes: int) -> list[int]:
    if not 1 <= nodes <= n:
        raise DataError(f"{nodes} nodes cannot share {n} rows. Use from 1 to {n} nodes.")
    bounds = even_bounds(n, nodes)
    return [bounds[i + 1] - bounds[i] for i in range(nodes)]
