"""Uploads laid out flat and put together again."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.core.errors import IncompatibleError
from fedfactor.core.flattened_upload import Parcel, flatten, restore
from fedfactor.core.pytree import Array, public, record, telemetry


@record
class Up:
    A: Array
    table: dict
    n: Array = public()
    single: Array = None
    loss: Array | None = telemetry(default=None)


@record
class Shown:
    A: Array
    seen: Array = public()


UP = Up(np.arange(6.0).reshape(2, 3), {"b": np.array([1, 2], "i4"), "a": {"c": np.float32(9)}}, np.float64(3), 2.0, 5.0)


def test_without_noise_single_numbers_travel_apart():
    parcel, layout = flatten(UP, noisy=False)
    assert layout.private == ("A", "table.b")
    assert layout.side == ("table.a.c", "n", "single", "loss")
    assert parcel.values.tolist() == [0, 1, 2, 3, 4, 5, 1, 2]
    assert parcel.side == (9.0, 3.0, 2.0, 5.0)
    assert parcel.nbytes == 8 * 8 + 8 * 4


def test_under_noise_only_public_numbers_do_and_telemetry_stays_at_home():
    parcel, layout = flatten(UP, noisy=True)
    assert layout.private == ("A", "table.a.c", "table.b", "single")
    assert layout.side == ("n",)
    assert layout.like.loss is None
    assert parcel.values.tolist() == [0, 1, 2, 3, 4, 5, 9, 1, 2, 2]


@pytest.mark.parametrize("noisy", [False, True])
def test_put_together_again(noisy):
    found = restore(*flatten(UP, noisy=noisy))
    np.testing.assert_array_equal(found.A, UP.A)
    assert found.table["b"].tolist() == [1, 2]
    assert found.table["b"].dtype == np.int32
    assert found.table["a"]["c"] == 9
    assert found.table["a"]["c"].dtype == np.float32
    assert (float(found.n), float(found.single)) == (3.0, 2.0)
    assert (found.loss is None) is noisy


def test_whole_numbers_are_rounded_and_grids_are_scaled():
    parcel, layout = flatten(UP, noisy=False)
    moved = Parcel(parcel.values + 0.4, parcel.side)
    assert restore(moved, layout).table["b"].tolist() == [1, 2]
    assert restore(moved, layout).A[0, 0] == 0.4
    steps = Parcel(np.arange(8), parcel.side, 0.5)
    assert steps.floats.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]
    assert restore(steps, layout).A[0].tolist() == [0, 0.5, 1]


def test_public_arrays_cannot_travel_beside_noise():
    shown = Shown(np.ones(2), np.ones(2))
    assert flatten(shown, noisy=False)[1].private == ("A", "seen")
    with pytest.raises(IncompatibleError, match=r"Shown\.seen is an array that is not private"):
        flatten(shown, noisy=True)


def test_an_upload_of_single_numbers_has_no_values():
    parcel, _ = flatten(Shown(np.float64(1), np.float64(2)), noisy=False)
    assert parcel.values.size == 0
    assert parcel.side == (1.0, 2.0)


@pytest.mark.parametrize("grid", [None, 0.25])
def test_parcels_are_kept_as_they_are(grid):
    parcel = Parcel(np.arange(3), (1.0, 2.0), grid)
    again = Parcel.of(parcel.tree())
    assert again.values is parcel.values
    assert (again.side, again.grid) == (parcel.side, parcel.grid)
    assert ("grid" in parcel.tree()) is (grid is not None)
