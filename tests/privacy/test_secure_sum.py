"""The secure sum as a link: who is needed, what is refused, and that the sum is the sum."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.algorithms import FNMF, FedAvgNMF
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.errors import IncompatibleError, ProtocolError
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.transforms import Opening
from fedfactor.privacy import SecureSum
from fedfactor.privacy.report import describe, sum_account
from fedfactor.privacy.secure_aggregation.phases import (
    SumClient,
    read_words,
    size_of,
    words_of,
)
from fedfactor.privacy.secure_aggregation.transform import sum_securely

pytest.importorskip("cryptography")
META = Meta(5, ("a", "b", "c"))


def test_defaults():
    secure = SecureSum()
    assert (secure.min_clients, secure.threshold, secure.fractional_bits) == (3, 2 / 3, 32)
    assert (secure.allow_dropouts, secure.gathered) == (False, "refuse")
    assert (secure.place, secure.hides, secure.mode) == (3, True, "secure-sum")
    assert secure.fixes_cohort()
    assert not SecureSum(allow_dropouts=True).fixes_cohort()
    assert secure.combines_only()
    assert not SecureSum(gathered="clear").combines_only()


@pytest.mark.parametrize(
    ("options", "n", "needed"),
    [
        ({}, 3, 3), ({"min_clients": 2}, 3, 2), ({}, 9, 6), ({}, 10, 7), ({"threshold": 0.51}, 10, 6),
        ({"threshold": 1.0}, 10, 10), ({"min_clients": 8}, 10, 8), ({"min_clients": 8}, 4, 4),
    ],
)  # fmt: skip
def test_how_many_are_needed(options, n, needed):
    assert SecureSum(**options).needed(n) == needed


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gathered": "x"}, "gathered='x' is not known"), ({"threshold": 0.5}, r"must lie in \(0.5, 1\]"),
        ({"threshold": 1.01}, "must lie in"), ({"fractional_bits": 0}, "between 1 and 52"),
        ({"fractional_bits": 53}, "between 1 and 52"),
        ({"min_clients": 4}, "Secure aggregation of 3 clients: the minimum is 4"),
    ],
)  # fmt: skip
def test_what_protects_nothing(options, says):
    with pytest.raises((ValueError, IncompatibleError), match=says):
        SecureSum(**options).check(None, META, {})
    for good in ({"threshold": 1.0}, {"fractional_bits": 1}, {"fractional_bits": 52}, {"min_clients": 3}):
        SecureSum(**good).check(None, META, {})
    with pytest.raises(IncompatibleError, match="Secure aggregation of 1 clients: the minimum is 2"):
        SecureSum(min_clients=1).check(None, Meta(5, ("a",)), {})
    SecureSum(min_clients=1).check(None, Meta(5, ("a", "b")), {})


@pytest.mark.parametrize("seed", [None, 3])
def test_numbers_are_summed_to_the_last_fractional_bit(seed):
    secure = SecureSum(fractional_bits=20, min_clients=2)
    box = secure.open(Opening(("a", "b", "c"), Round(0, 4), (2, 1), b"run", seed))
    given = {"a": ([1.25, -3.0], (0.5,)), "b": ([2.0**-20, 7.0], (-2.0,)), "c": ([0.1, 0.1], (1e9,))}
    for name, (values, side) in given.items():
        box.take(name, Parcel(np.array(values), side))
    total = box.total()
    np.testing.assert_allclose(total.floats, [1.35 + 2.0**-20, 4.1], atol=2.0**-20)
    assert total.side == (1e9 - 1.5,)
    assert total.grid == 2.0**-20
    assert box.present == ["a", "b", "c"]
    assert box.bytes_up > 3 * 32


def test_somebody_who_went_away_is_made_up_for():
    box = SecureSum(min_clients=2).open(Opening(("a", "b", "c"), Round(0, 0), (1, 0), b"run", None))
    for name in "ac":
        box.take(name, Parcel(np.array([5]), (), 0.5))
    assert box.total().floats.tolist() == [5.0]


def test_counts_are_summed_exactly():
    vectors = {name: np.array([i, -i, 2**40]) for i, name in enumerate("abc", 1)}
    assert sum_securely(vectors, SecureSum(), b"run").tolist() == [6, -6, 3 * 2**40]


def test_what_the_server_sees():
    said = SecureSum().sees("every client's upload in each round")
    assert said == "the sum of all uploads in each round, and no single one"


class OfChannel:
    def __init__(self, algorithm, noisy):
        self.algorithm, self.meta, self.sender, self.noisy = algorithm, META, self, noisy
        self.simulation = True


def test_what_it_does_not_cover():
    assert SecureSum().not_covered(OfChannel(FedAvgNMF(2), True)) == []
    assert len(SecureSum().not_covered(OfChannel(FedAvgNMF(2), False))) == 4
    assert "one by one" in SecureSum().not_covered(OfChannel(FNMF(2), True))[0]


class TestPhases:
    def test_parcels_in_words(self):
        assert size_of(5, 2) == (9, 2)
        words = words_of(Parcel(np.array([1.5, -2.0]), (3.0,)), 4, 3)
        assert words.size == size_of(2, 1)[0]
        found = read_words(words, 1, 2.0**-4)
        assert (found.floats.tolist(), found.side) == ([1.5, -2.0], (3.0,))
        whole = words_of(Parcel(np.array([7]), (), 0.25), 4, 3)
        assert read_words(whole, 0, 0.25).floats.tolist() == [1.75]
        with pytest.raises(ProtocolError):
            words_of(Parcel(np.array([1e30]), ()), 4, 3)
        words_of(Parcel(np.array([1e30]), ()), 4, 3, cut=True)

    def test_other_messages_are_no_part_of_it(self):
        class Nobody:
            name = "a"

        with pytest.raises(ProtocolError, match="int is no part of secure aggregation"):
            SumClient(Nobody(), (b"", 0, ("a",), 1, (1, 0))).answer(3)


def test_equations_are_counted_by_column():
    spec = FedAvgNMF(2).messages(META)
    up = next(s for kind, s in spec.items() if hasattr(kind, "uplink"))
    assert sum_account(up, Meta(5, ("a",), n_rows=9), 4) == {"equations_per_column": 8, "rows": 9}
    assert sum_account({}, Meta(0, ("a",)), 4) == {"equations_per_column": 0, "rows": None}


def test_a_report_for_people():
    report = {"mode": "dp", "epsilon": 1.2345, "delta": 1e-5, "unit": "row", "guarantee": "yes",
              "sees": {"server": "x"}, "not_covered": ["y"], "simulation": ["z"]}  # fmt: skip
    assert describe(report).splitlines() == [
        "privacy: dp; ε = 1.23, δ = 1e-05, unit row (yes)", "  server sees: x", "  not covered: y", "  a simulation: z",
    ]  # fmt: skip
    assert "ε = inf (none)" in describe({**report, "epsilon": float("inf"), "guarantee": "none"})
