"""What one row can change in the histogram that a private run pays for before it starts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedfactor.core.client_data import Federation
from fedfactor.privacy import row_statistics as module


def histogram(X, monkeypatch):
    """The vector that one owner of these rows would send, without its noise."""
    sent = {}

    def record(vectors, *rest):
        sent.update(vectors)
        return next(iter(vectors.values()))

    monkeypatch.setattr(module, "noisy_sum", record)
    noise = module.Gaussian(1.0, 1.0, whole=False, share="local")
    module.row_survey(Federation({"all": X}), noise, None, b"run", None)
    return np.asarray(sent["all"], float)


def test_no_row_changes_the_histogram_by_more_than_is_paid_for(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((9, 4)) * 10.0 ** rng.integers(-3, 4, (9, 1))
    whole = histogram(X, monkeypatch)
    moved = [np.linalg.norm(whole - histogram(np.delete(X, i, 0), monkeypatch)) for i in range(len(X))]
    # Counted by hand: one in the number of rows, and one in a bin.
    assert max(moved) == np.sqrt(2)
    assert max(moved) <= module.SENSITIVITY * (1 + 1e-12)


def test_lengths_that_nine_rows_in_ten_do_not_exceed():
    edges = module._EDGES
    assert (edges[0], edges[80], edges[-1], edges.size) == (2.0**-20, 1.0, 2.0**40, 241)
    counts = np.zeros(edges.size)
    counts[[100, 120, 140]] = 45, 45, 10
    assert module._bound(counts, 0.0, 100.0) == edges[120]
    counts[[120, 140]] = 44, 11
    assert module._bound(counts, 0.0, 100.0) == edges[140]
    assert module._bound(counts, 3.0, 100.0) == edges[120]  # 11 of 100 do not stand out from the noise any more
    assert module._bound(counts, 1000.0, 100.0) == 1.0


def test_wider_bins_where_single_ones_do_not_stand_out():
    counts = np.zeros(module._EDGES.size)
    counts[96:104] = 6
    assert module._bound(counts, 2.0, 48.0) == module._EDGES[103]
    counts[:] = 0
    counts[-2:] = 50
    assert module._bound(counts, 0.0, 100.0) == module._EDGES[-1]


def test_a_survey_without_noise_to_speak_of(monkeypatch):
    X = np.full((40, 1), 3.0)
    X[-3:] = 0.0
    noise = module.Gaussian(1e-6, module.SENSITIVITY, whole=False, share="local", bits=22)
    rows, bound = module.row_survey(Federation({"a": X[:20], "b": X[20:]}), noise, None, b"run", 0)
    assert rows == 37.0 or abs(rows - 37) < 1e-3
    assert bound == module._EDGES[np.searchsorted(module._EDGES, 3.0)]


def test_rows_are_one_at_least():
    noise = module.Gaussian(1e-6, module.SENSITIVITY, whole=False, share="local", bits=22)
    assert module.row_survey(Federation({"a": np.zeros((3, 2))}), noise, None, b"run", 0) == (1.0, 1.0)


class Kept:
    def __init__(self):
        self.parcels, self.released = {}, []

    def find(self, site):
        return self.parcels.get(site.name)

    def keep(self, site, parcel):
        self.parcels[site.name] = parcel

    def release(self, at, names):
        self.released.append((at.index, names))


def test_a_survey_that_was_sent_is_sent_again():
    noise, box = module.Gaussian(1.0, 1.0, whole=False, share="local", bits=10), Kept()
    vectors = {"b": np.ones(3), "a": np.ones(3)}
    first = module.noisy_sum(vectors, noise, None, b"run", None, box)
    again = module.noisy_sum(vectors, noise, None, b"run", None, box)
    np.testing.assert_array_equal(first, again)
    assert box.released == [(-1, ["a", "b"])] * 2
    assert not np.array_equal(first, module.noisy_sum(vectors, noise, None, b"run", None))


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_bins_are_joined_until_they_stand_out_from_the_noise(width):
    counts = np.zeros(240)
    counts[32:48] = 10.0
    # Sixteen bins of ten rows: `width` of them together are more than four deviations of their noise, half as many not.
    spread = 10 / 4 * math.sqrt(0.75 * width)
    first_groups = math.ceil(0.9 * 16 / width)
    assert module._bound(counts, spread, 160.0) == 2.0 ** ((32 + first_groups * width - 1 - 80) / 4)
    assert module._bound(counts, 10 / 4 * math.sqrt(20), 160.0) == 1.0
