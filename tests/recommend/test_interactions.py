from __future__ import annotations

import numpy as np
import pytest

from fedfactor.core.client_items import ItemShard, held_columns, open_columns
from fedfactor.core.errors import DataError
from fedfactor.data import ItemTable, interactions_of

NORTH = ItemTable([[1, 0, 2], [0, 1, 0]], users=["ann", "bob"], items=["tea", "jam", "ink"], withheld=["ink"])
SOUTH = ItemTable([[0, 1], [1, 1]], users=["ann", "cat"], items=["jam", "pen"])


def test_items_are_matched_by_id_and_users_are_not():
    found = interactions_of({"south": SOUTH, "north": NORTH})
    assert found.items.tolist() == ["ink", "jam", "pen", "tea"]
    np.testing.assert_array_equal(found.owners["north"].toarray(), [[1, 0, 0, 1], [0, 1, 0, 0]])
    np.testing.assert_array_equal(found.owners["south"].toarray(), [[0, 0, 1, 0], [0, 1, 1, 0]])
    assert found.users["north"].tolist() == ["ann", "bob"]
    assert found.common.tolist() == [1]


def test_shards_know_what_is_held_and_what_is_withheld():
    federation = interactions_of({"south": SOUTH, "north": NORTH}).federation()
    federation.prepare("binary")
    assert held_columns(federation.shard("north")).tolist() == [0, 1, 3]
    assert open_columns(federation.shard("north")).tolist() == [1, 3]
    assert federation.shard("south").features == ("ink", "jam", "pen", "tea")


def test_held_survives_another_dtype():
    shard = ItemShard(np.ones((2, 3), np.float32), held=np.array([1]))
    assert held_columns(shard.cast("float64")).tolist() == [1]


def test_a_catalogue_may_list_what_nobody_touched():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"user": [1, 2], "item": ["b", "c"], "rating": [5.0, 0.5], "owner": ["n", "s"]})
    found = interactions_of(frame, "owner", catalogues={"n": ["a", "b"]})
    assert found.items.tolist() == ["a", "b", "c"]
    assert {name: columns.tolist() for name, columns in found.held.items()} == {"n": [0, 1], "s": [2]}
    np.testing.assert_array_equal(found.owners["s"].toarray(), [[0, 0, 1]])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: {"n": ItemTable(np.ones((2, 2)), [1, 2], ["a"])}, "2 users and 1 items"),
        (lambda: {"n": ItemTable(np.ones((2, 2)), [1, 1], ["a", "b"])}, "each of them once"),
        (lambda: {"n": ItemTable(np.ones((1, 1)), [1], ["a"], withheld=["z"])}, "'z', which no client holds"),
    ],
)
def test_bad_tables_are_refused(make, words):
    with pytest.raises(DataError, match=words):
        interactions_of(make())


def test_what_is_withheld_by_a_numbered_owner_is_found_and_a_misspelt_owner_refused():
    found = interactions_of({0: NORTH, 1: SOUTH}, withheld={1: ["jam"]})
    assert {name: found.items[columns].tolist() for name, columns in found.withheld.items()} == {
        "0": ["ink"],
        "1": ["jam"],
    }
    assert not len(found.common)
    with pytest.raises(DataError, match="No owner is called 'nroth'"):
        interactions_of({"north": NORTH, "south": SOUTH}, withheld={"nroth": ["tea"]})


def test_touching_what_the_catalogue_does_not_list_is_refused():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"user": [1], "item": ["b"], "rating": [5.0], "owner": ["n"]})
    with pytest.raises(DataError, match="'b', which its catalogue does not list"):
        interactions_of(frame, "owner", catalogues={"n": ["a"]})


@pytest.mark.parametrize("held", [[2, 1], [0, 3], [1, 1]])
def test_held_columns_must_rise_and_exist(held):
    with pytest.raises(DataError, match="rising"):
        held_columns(ItemShard(np.ones((2, 3)), held=np.array(held)))
