from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

import fedfactor
from fedfactor.core.pytree import (
    Array,
    children,
    freeze,
    is_leaf,
    is_record,
    known_type,
    leaves,
    nbytes,
    public,
    record,
    registered_identifiers,
    telemetry,
    to_numpy,
    tree_map,
    tree_sum,
    type_tag,
    visibility,
)


@record
class Pair:
    left: Array
    right: Array | None
    table: dict
    known: Array = public(default=None)
    loss: Array | None = telemetry(default=None)


def pair(seed=0):
    rng = np.random.default_rng(seed)
    return Pair(rng.random((2, 3)), None, {"b": rng.random(4), "a": rng.random(())})


def test_leaves_have_paths_in_a_fixed_order_and_skip_what_is_absent():
    assert [path for path, _ in leaves(pair())] == ["left", "table.a", "table.b"]
    assert [path for path, _ in leaves(np.ones(2))] == [""]


def test_a_record_is_frozen_and_can_be_found_by_its_tag():
    assert known_type(type_tag(Pair)) is Pair
    assert known_type("os:system") is None
    assert not hasattr(pair(), "__dict__")
    with pytest.raises(AttributeError):
        pair().left = 1


@record("test_tree.Named")
class Named:
    value: Array


def test_an_identifier_does_not_depend_on_the_module():
    assert type_tag(Named) == "test_tree.Named"
    assert known_type("test_tree.Named") is Named


def test_no_record_of_the_package_is_identified_by_its_module():
    """Files must be readable after a class has moved."""
    for module in pkgutil.walk_packages(fedfactor.__path__, "fedfactor."):
        if ".triton" not in module.name and "__main__" not in module.name:
            importlib.import_module(module.name)
    by_module = [tag for tag in registered_identifiers() if tag.startswith("fedfactor.")]
    assert by_module == []


def test_former_identifiers_lead_to_present_types():
    assert known_type("fedfactor.algorithms.pooled_nmf.algorithm:Factor") is known_type("pooled_nmf.Factor")
    assert known_type("pooled_nmf.Factor") is not None


def test_visibility():
    assert [visibility(Pair, name) for name in ("left", "known", "loss")] == ["private", "public", "telemetry"]


def test_map_keeps_types_and_absence():
    doubled = tree_map(lambda leaf: 2 * leaf, pair())
    assert type(doubled) is Pair
    assert doubled.right is None
    np.testing.assert_array_equal(doubled.table["b"], 2 * pair().table["b"])


def test_a_leaf_absent_in_one_summand_is_absent_in_the_sum():
    one = Pair(np.ones(2), np.ones(1), {})
    two = Pair(np.ones(2), None, {})
    assert tree_sum([one, two]).right is None
    assert tree_sum([two, one]).right is None


def test_sums_go_from_left_to_right():
    values = [1e16, 1.0, -1e16, 1.0]
    parts = [{"x": np.asarray(value)} for value in values]
    assert float(tree_sum(parts)["x"]) == ((1e16 + 1.0) - 1e16) + 1.0
    assert float(tree_sum(parts[::-1])["x"]) != float(tree_sum(parts)["x"])


def test_a_sum_changes_none_of_its_summands():
    parts = [{"x": np.full(3, 10.0**i), "y": np.float64(i)} for i in range(3)]
    assert tree_sum(parts)["x"].tolist() == [111.0] * 3
    assert [part["x"][0] for part in parts] == [1.0, 10.0, 100.0]
    assert tree_sum([{"x": np.float32([1])}, {"x": np.float64([2])}])["x"].dtype == np.float64


def test_frozen_leaves_refuse_writing_and_the_owner_keeps_his():
    mine = np.asfortranarray(np.ones((2, 3)))
    frozen = freeze({"x": mine, "y": 3.5, "z": np.float32(1)})
    with pytest.raises(ValueError, match="read-only"):
        frozen["x"][0, 0] = 2
    assert mine.flags.writeable
    assert frozen["x"].flags.c_contiguous
    assert frozen["y"].shape == ()
    assert frozen["z"].dtype == np.float32
    assert freeze(frozen)["x"] is frozen["x"]


def test_bytes_are_counted_without_headers():
    assert nbytes(pair()) == 8 * (6 + 1 + 4)
    assert nbytes({"x": np.zeros((3, 0)), "y": np.zeros(3, dtype=np.float32), "z": None}) == 12
    assert nbytes({"x": 1.0}) == 8


def test_kinds_of_nodes():
    assert is_record(pair())
    assert not any(is_record(node) for node in (Pair, {}, 1.0, np.ones(2)))
    assert [is_leaf(node) for node in (pair(), {}, None, np.ones(2), 3)] == [False, False, True, True, True]
    assert children({"b": 1, "a": 2}) == [("a", 2), ("b", 1)]


def test_nested_paths_have_their_prefix():
    assert [path for path, _ in leaves({"x": {"y": 1, "z": None}}, "top")] == ["top.x.y"]


def test_map_over_several_trees_and_dicts():
    first, second = {"a": np.ones(2), "b": None}, {"a": np.full(2, 3.0), "b": np.ones(1)}
    found = tree_map(lambda one, other: other - one, first, second)
    assert found["a"].tolist() == [2, 2]
    assert found["b"] is None
    both = tree_map(lambda one, other: one + other, pair(0), pair(1))
    np.testing.assert_array_equal(both.table["a"], pair(0).table["a"] + pair(1).table["a"])
    assert tree_map(abs, None) is None


def test_freezing_makes_arrays_of_numbers_and_leaves_tensors_alone():
    frozen = freeze({"a": 3.0, "b": True, "c": np.float32(2), "d": np.ones((2, 3)).T})
    assert all(isinstance(part, np.ndarray) and not part.flags.writeable for part in frozen.values())
    assert frozen["c"].dtype == np.float32
    assert frozen["d"].flags.c_contiguous
    assert freeze(frozen)["d"] is frozen["d"]
    torch = pytest.importorskip("torch")
    tensor = torch.ones(2)
    assert freeze({"a": tensor})["a"] is tensor


def test_leaves_of_other_libraries_come_home():
    class OfCupy:
        def get(self):
            return np.ones((2, 3)).T

    torch = pytest.importorskip("torch")
    assert to_numpy(OfCupy()).flags.c_contiguous
    assert to_numpy(torch.ones(2, requires_grad=True)).tolist() == [1, 1]
    assert to_numpy(np.float64(2)).shape == ()
    assert nbytes({"a": torch.ones(3, dtype=torch.float16), "b": 1.0, "c": np.ones((2, 2), "f4")}) == 6 + 8 + 16
