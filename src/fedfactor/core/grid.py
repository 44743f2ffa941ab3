"""One matrix on the nodes of a cluster: a block of rows and a block of columns each, or one block of a grid each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import as_matrix, is_sparse, library
from fedfactor.core.pytree import Array

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
        rows = self.row_start + self.n_rows
        columns = self.column_start + int(self.columns.shape[1])
        return self.row_start, rows, self.column_start, columns

    def cast(self, dtype: str) -> Shard:
        """Bring both blocks to a floating type."""
        return replace(self, X=self.X.astype(dtype), columns=self.columns.astype(dtype))


@dataclass(frozen=True, slots=True, eq=False)
class BlockShard(Shard):
    """One block of a p × q grid over a matrix, held once. It may be empty, where a grid has more lines than the matrix.

    Parameters
    ----------
    X : array or sparse matrix
        The block. ``features``, where there are names, are those of all columns of the matrix.
    position : (int, int)
        Row and column of the grid.
    starts : (int, int)
        Row and column of the matrix at which the block begins.
    width : int
        Columns of the whole matrix.
    """

    position: tuple[int, int] = (0, 0)
    starts: tuple[int, int] = (0, 0)
    width: int = 0

    @property
    def n_features(self) -> int:
        """Number of columns of the whole matrix."""
        return self.width

    @property
    def place(self) -> tuple[int, int]:
        """Row and column of the grid."""
        return self.position

    @property
    def bounds(self) -> Bounds:
        """First and last row, first and last column."""
        (row, column), (rows, columns) = self.starts, self.X.shape
        return row, row + int(rows), column, column + int(columns)

    @property
    def named(self) -> tuple[str, ...] | None:
        """Names of the block's own columns."""
        return None if self.features is None else self.features[slice(*self.bounds[2:])]


def even_bounds(size: int, parts: int) -> list[int]:
    """Cut a range into parts whose sizes differ by one at most.

    Examples
    --------
    >>> even_bounds(7, 3)
    [0, 3, 5, 7]
    """
    whole, extra = divmod(size, parts)
    return [i * whole + min(i, extra) for i in range(parts + 1)]


def grid_of(nodes: int, shape: tuple[int, int]) -> tuple[int, int]:
    """Choose the p × q grid whose nodes send least: about ``n / p + m / q`` numbers for each component.

    Examples
    --------
    >>> grid_of(4, (1000, 1000)), grid_of(4, (100_000, 10))
    ((2, 2), (4, 1))
    """
    n, m = shape
    choices = [(p, nodes // p) for p in range(1, nodes + 1) if nodes % p == 0]
    # A sum over one node alone costs nothing.
    # Of equal ones, take the squarest.
    return min(choices, key=lambda pq: ((pq[1] > 1) * n / pq[0] + (pq[0] > 1) * m / pq[1], abs(pq[0] - pq[1])))


def grid_blocks(shape: tuple[int, int], grid: tuple[int, int]) -> dict[str, tuple[tuple[int, int], Bounds]]:
    """Return the names of the blocks of an even grid by lines, with the place and the bounds of each.

    Examples
    --------
    >>> grid_blocks((4, 6), (2, 2))["1-0"]
    ((1, 0), (2, 4, 0, 3))
    """
    if min(grid) < 1:
        raise DataError(f"A grid of {grid[0]} × {grid[1]} has no blocks. Use at least one line each way.")
    (p, q), rows, columns = grid, even_bounds(shape[0], grid[0]), even_bounds(shape[1], grid[1])
    return {
        f"{i:0{len(str(p - 1))}d}-{j:0{len(str(q - 1))}d}": (
            (i, j),
            (rows[i], rows[i + 1], columns[j], columns[j + 1]),
        )
        for i in range(p)
        for j in range(q)
    }


def block_federation(X: Any, grid: tuple[int, int], names: Sequence[str] | None = None) -> Federation:
    """Cut a matrix into the blocks of a p × q grid, one for each node; no cell is at two nodes.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, m)
        The matrix, at hand in a simulation. Of a file nodes read their own blocks: ``fedfactor.data.open_blocks``.
    grid : (int, int)
        Lines of nodes along rows and along columns; :func:`grid_of` finds the one that sends least.
    names : sequence of str, optional
        Of the nodes, line by line; by default ``"0-0"``, ``"0-1"``, ...

    Returns
    -------
    Federation
        Of :class:`BlockShard`.

    Examples
    --------
    >>> federation = block_federation(np.ones((5, 4)), (2, 2))
    >>> [federation.shard(name).bounds for name in federation.names]
    [(0, 3, 0, 2), (0, 3, 2, 4), (3, 5, 0, 2), (3, 5, 2, 4)]
    """
    X, features = _cuttable(X)
    shards: dict[str, Any] = {}
    blocks = grid_blocks(X.shape, grid)
    for name, (place, (a, b, c, d)) in zip(names or blocks, blocks.values(), strict=True):
        block = X[a:b][:, c:d].tocsr() if is_sparse(X) else X[a:b, c:d]
        shards[name] = BlockShard(block, features=features, position=place, starts=(a, c), width=int(X.shape[1]))
    return Federation(shards)


def _cuttable(X: Any) -> tuple[Any, tuple[str, ...] | None]:
    X, features = as_matrix(X)
    if library(X) != "numpy":
        raise DataError(f"Grids are cut from NumPy or SciPy matrices, but this is {library(X)} data. Convert it first.")
    return X, features


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
    X, features = _cuttable(X)
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


def even_nodes(n: int, nodes: int) -> dict[str, int]:
    """Name nodes so that their names sort as their numbers do, and share rows among them evenly.

    Examples
    --------
    >>> even_nodes(5, 2), even_nodes(5, 1)
    ({'0': 3, '1': 2}, {'0': 5})
    """
    return {f"{i:0{len(str(nodes)) if nodes > 1 else 1}d}": size for i, size in enumerate(_sizes(n, nodes))}


def _sizes(n: int, nodes: int) -> list[int]:
    if not 1 <= nodes <= n:
        raise DataError(f"{nodes} nodes cannot share {n} rows. Use from 1 to {n} nodes.")
    bounds = even_bounds(n, nodes)
    return [bounds[i + 1] - bounds[i] for i in range(nodes)]
