"""A channel's parts: order, plain sums, gathered uploads, and what a link says unless it says more."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.aggregation import Robust
from fedfactor.algorithms import FedAvgNMF
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.pytree import Array, public, record
from fedfactor.core.transforms import Gathered, Opening, PlainSum, Sender, Site, Transform, check_order
from fedfactor.privacy import Clip, Gaussian, SecureSum


@record
class Up:
    V: Array
    n: Array = public()


def test_a_link_that_says_nothing_does_nothing():
    link, parcel = Transform(), Parcel(np.ones(2), ())
    flags = (link.place, link.noisy, link.hides, link.mode, link.equal_weights, link.forgiving)
    assert flags == (0, False, False, "", False, False)
    assert link.encode(parcel, None) is link.decode(parcel, [], None) is parcel
    assert link.open(Opening((), None, (1, 0), b"", None)) is link.bound() is link.grid(3) is None
    assert link.event([], None, None) is None
    assert (link.needed(5), link.fixes_cohort(), link.combines_only()) == (1, False, False)
    assert link.sees("x") == "x"
    assert link.not_covered(None) == []
    assert link.facts() == {}
    assert Robust().combines_only()
    assert not Clip(1.0).combines_only()


@pytest.mark.parametrize(
    ("links", "says"),
    [
        ([SecureSum(), Clip(1.0)], r"\(SecureSum → Clip\) is in the wrong order"),
        ([Gaussian(1, 1, True), Clip(1.0)], "wrong order"),
        ([Gaussian(1, 1, True), Gaussian(1, 1, True)], "two links that do the same"),
        ([Robust(), SecureSum()], "two links that do the same"),
    ],
)
def test_orders_that_protect_nothing(links, says):
    with pytest.raises(IncompatibleError, match=says):
        check_order(links)


def test_orders_that_do():
    check_order([])
    check_order([Clip(1.0), Clip(2.0), Transform(), Gaussian(1, 1, True), Transform(), SecureSum()])


def test_a_plain_sum():
    box = PlainSum()
    assert (box.present, box.bytes_up) == ([], 0)
    box.take("a", Parcel(np.array([1, 2]), (1.0,), 0.5))
    box.take("b", Parcel(np.array([3, 4]), (2.0,), 0.5))
    total = box.total()
    assert (total.values.tolist(), total.side, total.grid) == ([4, 6], (3.0,), 0.5)
    assert box.present == ["a", "b"]
    assert box.bytes_up == 2 * 24
    formed = PlainSum(["x"], total)
    assert (formed.present, formed.bytes_up, formed.total()) == (["x"], 24, total)


def test_gathered_uploads_are_kept_by_name():
    box = Gathered(lambda parcel: parcel.values.sum())
    box.take("b", Parcel(np.ones(2), ()))
    box.take("a", Parcel(np.ones(3), (1.0,)))
    assert box.total() == {"b": 2.0, "a": 3.0}
    assert box.present == ["b", "a"]
    assert box.bytes_up == 16 + 32


def test_a_clients_entropy_is_secret_unless_the_run_is_a_simulation():
    at = Round(0, 3)
    assert Site("a", at, 2, None).entropy("x").secret
    known = Site("a", at, 2, None, 7).entropy("x").take(8)
    assert Site("a", at, 2, None, 7).entropy("x").take(8) == known
    for other in (Site("b", at, 2, None, 7), Site("a", Round(0, 4), 2, None, 7), Site("a", at, 2, None, 8)):
        assert other.entropy("x").take(8) != known
    assert Site("a", at, 2, None, 7).entropy("y").take(8) != known


class Kept:
    """An outbox in memory."""

    def __init__(self):
        self.parcels = {}

    def find(self, site):
        return self.parcels.get((site.name, site.at.index))

    def keep(self, site, parcel):
        self.parcels[site.name, site.at.index] = parcel


def test_what_was_sent_once_is_sent_again():
    algorithm = FedAvgNMF(2)
    down = algorithm.init_server(Meta(3, ("a", "b")), Round(0, 0))[1]
    sender = Sender([Clip(1.0), Gaussian(1.0, 1.0, True, "local", bits=10)], algorithm, None, Kept())
    assert sender.noisy
    at = Round(0, 0, participants=("a", "b"))
    up = next(kind for kind in algorithm.messages(Meta(3, ("a", "b"))) if hasattr(kind, "uplink"))
    made = up(**{name: np.ones(leaf.shape) for name, leaf in algorithm.messages(Meta(3, ("a", "b")))[up].items()})
    first, _ = sender.encode("a", made, at, down)
    again, _ = sender.encode("a", made, at, down)
    assert again is first
    assert not np.array_equal(sender.encode("b", made, at, down)[0].values, first.values)
    bare = Sender([], algorithm)
    assert not bare.noisy
    assert bare.encode("a", made, at, down)[0].grid is None
    assert type(bare.sent("a", made, at, down)) is up
