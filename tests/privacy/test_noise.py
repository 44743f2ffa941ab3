"""Bounds and Gaussian noise, link by link: what is cut, how wide the grid is, and when the noise counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedfactor.algorithms import FNMF, FedAvgNMF, PooledNMF
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.transforms import Site
from fedfactor.core.wire import Leaf
from fedfactor.privacy.noise import CHOICES, Clip, Gaussian, clip_to, refuse_public_numbers
from fedfactor.privacy.secure_aggregation.transform import SecureSum

META = Meta(5, ("a", "b", "c"), n_rows=30)
SPEC = {"V": Leaf("float64", (2, 5))}


def site(neutral=None, n=3, seed=0):
    return Site("a", Round(0, 0), n, neutral, seed)


class TestClip:
    @pytest.mark.parametrize("norm", [0, -1.0, math.inf, math.nan])
    def test_needs_a_norm(self, norm):
        with pytest.raises(ValueError, match="positive, finite norm"):
            Clip(norm).check(FedAvgNMF(2), META, SPEC)

    def test_measures_from_the_upload_that_says_nothing_new(self):
        clip, neutral = Clip(2.0), np.array([10.0, 0.0])
        clip.check(FedAvgNMF(2), META, SPEC)
        assert clip.bound() == 2.0
        cut = clip.encode(Parcel(np.array([13.0, 4.0]), (1.0,)), site(neutral))
        np.testing.assert_allclose(cut.values, [1.2, 1.6], rtol=1e-9)
        assert cut.side == (1.0,)
        plain = clip.encode(Parcel(np.array([3.0, 4.0]), ()), site())
        np.testing.assert_allclose(plain.values, [1.2, 1.6], rtol=1e-9)
        total = Parcel(np.array([1.0, 2.0]), (2.0,))
        assert clip.decode(total, ["a", "b"], neutral).floats.tolist() == [21.0, 2.0]
        assert clip.decode(total, ["a", "b"], None) is total

    def test_what_is_short_stays_as_it_is(self):
        short = np.array([0.3, 0.4])
        assert clip_to(short, 1.0) is short
        assert clip_to(np.zeros(3), 1.0).tolist() == [0, 0, 0]
        assert clip_to(np.zeros(0), 1.0).size == 0
        np.testing.assert_array_equal(clip_to(np.array([3.0, 4.0]), 5.0), [3.0, 4.0])

    def test_what_is_not_finite_says_nothing(self):
        for odd in (np.nan, np.inf):
            assert clip_to(np.array([1.0, odd]), 1.0).tolist() == [0, 0]

    def test_neither_huge_nor_tiny_numbers_lose_their_length(self):
        for size in (1e150, 1e-150):
            np.testing.assert_allclose(clip_to(np.array([3.0, 4.0]) * size, size), np.array([0.6, 0.8]) * size)


class TestGaussian:
    def test_defaults_are_shares_among_all_that_take_part(self):
        noise = Gaussian(1.0, 2.0, True)
        assert (noise.share, noise.honest, noise.sampling, noise.touched, noise.bits) == ("distributed", 1, 1.0, 1, 22)
        assert (noise.place, noise.noisy, noise.equal_weights) == (2, True, True)

    @pytest.mark.parametrize(("z", "size"), [(0, 1), (1, 0), (math.inf, 1), (1, math.inf), (-1, 1), (1, -1)])
    def test_needs_figures_that_mean_something(self, z, size):
        with pytest.raises(ValueError, match="must be positive and finite"):
            Gaussian(z, size, True).check(FedAvgNMF(2), META, SPEC)

    def test_its_grid(self):
        assert Gaussian(2.0, 3.0, True).grid(10) == 6 / 2**22
        assert Gaussian(2.0, 3.0, True, honest=4).grid(10) == 6 / 2**23
        assert Gaussian(2.0, 3.0, True, "local", honest=4).grid(10) == 6 / 2**22
        rows = Gaussian(2.0, 3.0, False, touched=3, bits=10)
        assert rows.grid(100) == 6 / (2**10 - 2.0 * 10 * 3)

    def test_a_grid_half_filled_by_rounding_is_the_coarsest(self):
        Gaussian(1.0, 1.0, False, bits=5).grid(256)
        with pytest.raises(IncompatibleError, match=r"A grid of 2\^5 steps .* too coarse for 257 numbers"):
            Gaussian(1.0, 1.0, False, bits=5).grid(257)
        with pytest.raises(IncompatibleError, match="too coarse for 10 numbers"):
            Gaussian(40.0, 1.0, False, bits=5).check(FedAvgNMF(2), META, SPEC)

    def test_values_are_rounded_towards_zero_before_the_noise(self):
        noise = Gaussian(1.0, 1.0, True, "local", bits=4)
        step = noise.grid(2)
        drawn = noise.encode(Parcel(np.zeros(2), (1.0,)), site())
        sent = noise.encode(Parcel(np.array([2.9, -2.9]) * step, (1.0,)), site())
        assert (sent.values - drawn.values).tolist() == [2, -2]
        assert (sent.grid, sent.side) == (step, (1.0,))
        assert sent.values.dtype == np.int64

    def test_who_is_not_drawn_sends_noise_alone(self):
        sampled = Gaussian(1.0, 1.0, True, sampling=0.5, bits=10)
        whole = Gaussian(1.0, 1.0, True, bits=10)
        away = 0
        for seed in range(40):
            values = Parcel(np.full(1, 5.0), ())
            kept = sampled.encode(values, site(seed=seed)).values - whole.encode(values, site(seed=seed)).values
            u = float(site(seed=seed).entropy("sampling").uniforms(1)[0])
            assert (kept[0] != 0) == (u >= 0.5)
            away += kept[0] != 0
        assert 8 < away < 32

    def test_a_sampled_sum_stands_for_all(self):
        total = Parcel(np.array([4, 8]), (2.0,), 0.5)
        assert Gaussian(1.0, 1.0, True, sampling=0.25).decode(total, ["a"], None).floats.tolist() == [8.0, 16.0]
        assert Gaussian(1.0, 1.0, True).decode(total, ["a"], None).side == (2.0,)

    def test_an_upload_beyond_the_grid_is_refused(self):
        noise = Gaussian(1.0, 1.0, True, "local")
        step = noise.grid(1)
        noise.encode(Parcel(np.array([2.0**60 * step]), ()), site(n=1))
        for value, n in ((2.0**61 * step, 1), (2.0**60 * step, 2), (np.nan, 1)):
            with pytest.raises(IncompatibleError, match="too large for the integer grid"):
                noise.encode(Parcel(np.array([value]), ()), site(n=n))

    def test_shares_of_noise_need_a_sum_that_nobody_can_take_apart(self):
        noise, secure = Gaussian(1.0, 1.0, True), SecureSum()
        noise.check_beside([noise, secure], FedAvgNMF(2), META)
        with pytest.raises(IncompatibleError, match="add SecureSum, or share='local'"):
            noise.check_beside([noise], FedAvgNMF(2), META)
        with pytest.raises(IncompatibleError, match="the server sees each"):
            noise.check_beside([noise, secure], FNMF(2), META)
        Gaussian(1.0, 1.0, True, "local").check_beside([noise], FNMF(2), META)

    @pytest.mark.parametrize(
        ("noise", "links", "proven"),
        [
            (Gaussian(1.0, 1.0, True, "local"), [Clip(1.0)], True),
            (Gaussian(1.0, 1.0, True, "local"), [Clip(1.5)], False),
            (Gaussian(1.0, 1.0, True, "local"), [], False),
            (Gaussian(1.0, 1.0, True), [Clip(1.0)], False),
            (Gaussian(1.0, 1.0, True, honest=3), [Clip(1.0), SecureSum(threshold=1.0)], True),
            (Gaussian(1.0, 1.0, True, honest=3), [Clip(1.0), SecureSum(min_clients=2)], False),
            (Gaussian(1.0, 9.0, False, "local"), [Clip(1.0)], False),
        ],
    )
    def test_noise_counts_where_what_it_hides_is_bounded_and_all_of_it_comes(self, noise, links, proven):
        entry = noise.event([*links, noise], FedAvgNMF(2), META)
        assert entry.proven is proven
        assert (entry.unit, entry.noise_multiplier, entry.sampling) == ("client" if noise.whole else "row", 1.0, 1.0)

    def test_rows_are_bounded_by_the_algorithm(self):
        algorithm = PooledNMF(2, row_clip=1.0, row_count=30.0, tol=0)
        bound = algorithm.sensitivity(META)[1]
        assert Gaussian(1.0, bound, False, "local").event([], algorithm, META).proven
        assert not Gaussian(1.0, bound * 0.99, False, "local").event([], algorithm, META).proven

    def test_public_numbers_say_no_more_than_that_a_client_is_there(self):
        noise = Gaussian(1.0, 1.0, True)
        noise.admit(Parcel(np.ones(1), ()), "Up")
        refuse_public_numbers(Parcel(np.ones(1), (1.0, 1.0)), "Up")
        with pytest.raises(IncompatibleError, match="Up holds a public number other than 1"):
            noise.admit(Parcel(np.ones(1), (1.0, 2.0)), "Up")

    def test_what_it_says_of_itself(self):
        assert Gaussian(1.0, 1.0, True, "local").facts() == {"noise_is": "local"}
        assert Gaussian(1.0, 1.0, True).sees("every client's upload") == "every client's noisy upload"


class Asked:
    def __init__(self, colluding=0, known_to=2):
        self.colluding, self.known_to = colluding, known_to


class OfChannel:
    """The part of a channel that a link asks when it says what it does not cover."""

    def __init__(self, unit, asked=None):
        self.books, self.asked = self, asked
        self.entry = self
        self.unit = unit


@pytest.mark.parametrize(
    ("noise", "channel", "found"),
    [
        (Gaussian(1.0, 1.0, True, "local"), OfChannel("client"), []),
        (Gaussian(1.0, 1.0, False, "local"), OfChannel("row"), ["a person with several rows", "properties of a whole"]),
        (Gaussian(1.0, 1.0, False, "local"), OfChannel("subject"), ["rows at more than 1 clients"]),
        (Gaussian(1.0, 1.0, False, "local"), OfChannel("subject", Asked()), ["rows at more than 2 clients"]),
        (Gaussian(1.0, 1.0, True), OfChannel("client"), ["more than 0 clients who reveal"]),
        (Gaussian(1.0, 1.0, True), OfChannel("client", Asked(1)), ["more than 1 clients who reveal"]),
        (Gaussian(1.0, 1.0, True), OfChannel("client", Asked(0)), ["more than 0 clients", "takes its own share"]),
    ],
)
def test_what_it_does_not_cover(noise, channel, found):
    told = noise.not_covered(channel)
    assert told[-1] == CHOICES
    assert len(told) == len(found) + 1
    assert all(part in line for part, line in zip(found, told, strict=False))
