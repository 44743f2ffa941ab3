"""Integers that wrap around, narrow and wide."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.core.errors import ProtocolError
from fedfactor.privacy.secure_aggregation.fixed_point import (
    WIDE_FRACTION,
    add,
    from_wide,
    join,
    quantise,
    subtract,
    to_wide,
)

NUMBERS = [0.0, 1.0, -1.0, 2.0**-64, -(2.0**-64), 1e16, -1e16, 3.25, -0.75]


def test_wide_numbers_come_back():
    assert from_wide(to_wide(NUMBERS)) == NUMBERS
    assert WIDE_FRACTION == 64
    assert from_wide(to_wide([1e30, -1e30])) == [2.0**56, -(2.0**56)]


@pytest.mark.parametrize("a", NUMBERS[:5])
@pytest.mark.parametrize("b", NUMBERS[:5])
def test_sums_and_differences_carry_from_the_low_word_to_the_high_one(a, b):
    values = np.array([5, -7], np.int64)
    left, right = join(values, [a, 3.0]), join(values, [b, -1.0])
    total, rest = add(left, right, 2), subtract(left, right, 2)
    assert total[:2].view(np.int64).tolist() == [10, -14]
    assert rest[:2].view(np.int64).tolist() == [0, 0]
    assert from_wide(total[2:]) == [a + b, 2.0]
    assert from_wide(rest[2:]) == [a - b, 4.0]


def test_without_wide_numbers_words_are_only_words():
    top = np.array([2**64 - 1, 2**64 - 1], np.uint64)
    one = np.array([1, 1], np.uint64)
    assert add(top, one, 0).tolist() == [0, 0]
    assert subtract(np.zeros(2, np.uint64), one, 0).tolist() == top.tolist()


def test_numbers_are_rounded_to_the_nearest_step():
    assert quantise(np.array([0.5, -0.25, 0.13, np.nan]), 3, 4).tolist() == [4, -2, 1, 0]


@pytest.mark.parametrize("terms", [1, 4, 0])
def test_the_largest_that_no_sum_lets_wrap(terms, caplog):
    most = float(2**62 // max(terms, 1)) / 2**8
    assert quantise(np.array([most, -most]), 8, terms).tolist() == [2**62 // max(terms, 1), -(2**62 // max(terms, 1))]
    with pytest.raises(ProtocolError, match=r"at 8 fractional bits .*SecureSum\(fractional_bits=5\)"):
        quantise(np.array([most * 1.5]), 8, terms)
    with pytest.raises(ProtocolError, match=r"SecureSum\(fractional_bits=1\)"):
        quantise(np.array([most * 1e9]), 8, terms)
    assert not caplog.records
    assert quantise(np.array([most * 1.5]), 8, terms, cut=True).tolist() == [2**62 // max(terms, 1)]
    assert "They were cut" in caplog.text
