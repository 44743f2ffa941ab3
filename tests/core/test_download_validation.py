"""What a client checks of a download before it touches a row."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.core.algorithm import Score
from fedfactor.core.download_validation import NOT_NEGATIVE, SLACK, odd_columns, odd_numbers, odd_octets
from fedfactor.core.pytree import Array, record


@record
class Sent:
    """A download with words and numbers."""

    V: Array
    places: Array | None = None


@pytest.mark.parametrize(
    ("cells", "bounds", "odd"),
    [
        ([0.0, 5.0], NOT_NEGATIVE, False),
        ([0.0, 1e30], NOT_NEGATIVE, False),
        ([-1e-9, 1.0], NOT_NEGATIVE, True),
        ([1.0, 1.0 + SLACK], (0.0, 1.0), False),
        ([1.0, 1.0 + 2 * SLACK], (0.0, 1.0), True),
        ([100.0 + 50 * SLACK], (0.0, 100.0), False),  # room grows with the bound
        ([100.0 + 200 * SLACK], (0.0, 100.0), True),
        ([0.1 + SLACK], (0.0, 0.1), False),  # and is never below that of one
        ([], (0.0, 1.0), False),
    ],
)
def test_numbers_lie_where_the_method_promises(cells, bounds, odd):
    said = odd_numbers(Sent(np.array(cells)), {"V": bounds, "absent": (0.0, 0.0)})
    assert said == (f"Sent.V holds a number outside of {bounds[0]:g} to {bounds[1]:g}" if odd else "")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_are_numbers(value):
    assert odd_numbers(Sent(np.array([1.0, value]))) == "Sent.V holds a cell that is no number"


def test_without_promises_anything_finite_goes():
    assert odd_numbers(Sent(np.array([-1e300]), np.array([2**40]))) == ""
    assert odd_numbers(Score.of(1.0, 2, 3.0)) == ""


@pytest.mark.parametrize(
    ("columns", "odd"),
    [([], False), ([0, 3], False), ([0, 4], True), ([-1, 2], True), ([2, 2], True), ([3, 1], True), ([0], False)],
)
def test_columns_exist_and_rise(columns, odd):
    assert bool(odd_columns(np.array(columns, int), 4)) is odd


def test_what_belongs_to_columns_has_as_many():
    columns = np.array([0, 2])
    assert odd_columns(columns, 4, (np.ones((3, 2)), 1), (np.ones(2), 0)) == ""
    assert "another number of them" in odd_columns(columns, 4, (np.ones((3, 2)), 0))
    assert "another number of them" in odd_columns(columns, 4, (np.ones(2), 0), (np.ones((2, 3)), 1))


@pytest.mark.parametrize(("byte", "n", "odd"), [(0xFF, 8, False), (0x80, 7, True), (0x40, 7, False), (0x01, 0, True)])
def test_no_bit_beyond_the_last_column(byte, n, odd):
    assert bool(odd_octets(np.array([[0, byte]], np.uint8), 8 + n)) is odd
