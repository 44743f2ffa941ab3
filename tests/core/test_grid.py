"""One matrix, cut into blocks of rows and of columns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from fedfactor.core.errors import DataError
from fedfactor.core.grid import GridShard, even_bounds, even_nodes, grid_federation

X = np.arange(35.0).reshape(7, 5)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_blocks_are_those_of_the_matrix_in_the_layout_that_is_read(form):
    federation = grid_federation(form(X), 3)
    for name, (a, b), (c, d) in zip(federation.names, [(0, 3), (3, 5), (5, 7)], [(0, 2), (2, 4), (4, 5)], strict=True):
        shard = federation.shard(name)
        assert shard.bounds == (a, b, c, d)
        rows, columns = (part if form is np.asarray else part.toarray() for part in (shard.X, shard.columns))
        np.testing.assert_array_equal(rows, X[a:b])
        np.testing.assert_array_equal(columns, X[:, c:d])
        if form is np.asarray:
            assert shard.X.flags.f_contiguous
            assert shard.columns.flags.c_contiguous
        else:
            assert (shard.X.format, shard.columns.format) == ("csc", "csr")
    assert len(grid_federation(X)) == 2


def test_rows_by_name():
    federation = grid_federation(X, {"b": 2, "a": 5})
    assert [federation.shard(name).bounds for name in "ab"] == [(0, 5, 0, 3), (5, 7, 3, 5)]
    np.testing.assert_array_equal(federation.shard("b").X, X[5:])


def test_casting_takes_both_blocks_along():
    shard = grid_federation(X, 2).shard("1").cast("float32")
    assert shard.X.dtype == shard.columns.dtype == np.float32
    assert shard.bounds == (4, 7, 3, 5)
    assert GridShard(X, columns=X).bounds == (0, 7, 0, 5)


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (0, "0 nodes cannot share 7 rows"),
        (8, "8 nodes cannot share 7 rows"),
        (6, "6 nodes cannot share 5 columns"),
        ({"a": 3, "b": 3}, "take 6 rows, but there are 7"),
    ],
)
def test_what_cannot_be_shared_out(nodes, says):
    with pytest.raises(DataError, match=says):
        grid_federation(X, nodes)


def test_as_many_nodes_as_there_are_rows_or_columns():
    assert len(grid_federation(X, 5)) == 5
    assert len(grid_federation(X.T, 5)) == 5
    assert len(grid_federation(X[:1], 1)) == 1


def test_tensors_are_not_cut():
    torch = pytest.importorskip("torch")
    with pytest.raises(DataError, match="but this is torch data"):
        grid_federation(torch.ones((3, 3)))


@pytest.mark.parametrize(("size", "parts", "bounds"), [(6, 3, [0, 2, 4, 6]), (2, 3, [0, 1, 2, 2]), (5, 1, [0, 5])])
def test_even_parts(size, parts, bounds):
    assert even_bounds(size, parts) == bounds


def test_names_of_nodes_sort_as_their_numbers_do():
    assert even_nodes(7, 1) == {"0": 7}
    assert even_nodes(9, 9) == {str(i): 1 for i in range(9)}
    found = even_nodes(25, 12)
    assert list(found) == sorted(found)
    assert (list(found)[-1], list(found.values())) == ("11", [3] + [2] * 11)
    assert list(even_nodes(10, 10))[:2] == ["00", "01"]
