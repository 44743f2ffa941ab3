"""Shares of a secret."""

from __future__ import annotations

import itertools

import pytest

from fedfactor.core.entropy import Entropy
from fedfactor.privacy.secure_aggregation.shamir import SHARE_BYTES, join, split

SECRET = bytes(range(32))


@pytest.mark.parametrize(("n", "threshold"), [(1, 1), (3, 1), (4, 3), (3, 3)])
def test_any_of_so_many_restore_it(n, threshold):
    shares = split(SECRET, n, threshold, Entropy.seeded(0, "x"))
    assert len(shares) == n
    assert all(len(share) == SHARE_BYTES == 66 for share in shares)
    for points in itertools.combinations(range(1, n + 1), threshold):
        assert join({point: shares[point - 1] for point in points}) == SECRET


def test_the_largest_secret_is_one():
    top = b"\xff" * 32
    assert join(dict(enumerate(split(top, 3, 2, Entropy.seeded(0)), 1))) == top


def test_one_share_less_is_something_else():
    shares = split(SECRET, 4, 3, Entropy.seeded(0, "x"))
    with pytest.raises(ValueError, match="too few, or some are false"):
        join({1: shares[0], 2: shares[1]})


@pytest.mark.parametrize(("size", "n", "threshold"), [(31, 3, 2), (33, 3, 2), (32, 3, 0), (32, 3, 4)])
def test_what_cannot_be_cut(size, n, threshold):
    with pytest.raises(ValueError, match=f"Cannot cut {size} bytes into {n} shares with threshold {threshold}"):
        split(bytes(size), n, threshold, Entropy.seeded(0))


def test_false_shares_are_noticed():
    with pytest.raises(ValueError, match="do not restore"):
        join({1: b"\xff" * 66, 2: b"\x01" * 66})
