"""Owners that hold a part of a catalogue."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.core.client_data import Shard
from fedfactor.core.client_items import ItemShard, held_columns, open_columns
from fedfactor.core.errors import DataError

X = np.ones((2, 3))


def test_all_columns_unless_the_shard_says_otherwise():
    for shard in (Shard(X), ItemShard(X)):
        assert held_columns(shard).tolist() == open_columns(shard).tolist() == [0, 1, 2]
    assert held_columns(ItemShard(X, held=np.array([], int))).tolist() == []
    assert open_columns(ItemShard(X, withheld=np.array([1]))).tolist() == [0, 2]


@pytest.mark.parametrize("held", [[-1, 2], [0, 3], [2, 0], [1, 1], [[0, 1]]])
def test_columns_that_cannot_be_held(held):
    with pytest.raises(DataError, match="columns below 3 in rising order"):
        held_columns(ItemShard(X, held=np.array(held)))


@pytest.mark.parametrize("held", [[0], [2], [0, 2], [0, 1, 2]])
def test_columns_that_can(held):
    found = held_columns(ItemShard(X, held=np.array(held, "int32")))
    assert found.tolist() == held
    assert found.dtype == np.int64
