"""A message between server and client as bytes: heads, halves, and what is refused of both."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from fedfactor.core.errors import ProtocolError
from fedfactor.core.pytree import Array, public, record
from fedfactor.core.wire import HEADER_LIMIT, Leaf, to_bytes
from fedfactor.network.message_format import (
    TEXT_LIMIT,
    WIRE,
    Head,
    most_bytes,
    narrow,
    read_head,
    seal,
    unseal,
    widen,
)

HEAD = Head("step", "run-1", 3, "north", "terms")


@record
class Sent:
    V: Array
    places: Array | None = None
    n: Array = public(default=None)


SPEC = {"V": Leaf("float64", (2, 3)), "places": Leaf("int64", (2,)), "n": Leaf("float64", ())}
EXPECTED = {Sent: SPEC}
MESSAGE = Sent(np.arange(6.0).reshape(2, 3), np.array([1, 2]), np.float64(7))


def test_defaults_of_a_head():
    assert (HEAD.attempt, HEAD.since, HEAD.session, HEAD.participants, HEAD.reason, HEAD.scales) == (
        0,
        -1,
        0,
        (),
        "",
        (),
    )


def test_a_head_survives_its_bytes():
    head = replace(HEAD, attempt=2, since=1, session=5, participants=("a", "b"), reason="why", scales=(0.5, 2))
    assert read_head(seal(head)) == head
    assert unseal(seal(HEAD, MESSAGE), HEAD, EXPECTED).V.tolist() == MESSAGE.V.tolist()


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "odd"}, {"run": "../x"}, {"run": "x" * 65}, {"run": 3}, {"client": "x" * (TEXT_LIMIT + 1)},
        {"participants": ["x", 3]}, {"index": -1}, {"index": 1.0}, {"index": True}, {"attempt": -1}, {"session": -1},
        {"since": -2}, {"index": 1 << 53}, {"scales": [0]}, {"scales": [-1.0]}, {"scales": ["x"]}, {"reason": None},
        {"participants": 3}, {"scales": [float("inf")]}, {"terms": ["x"]},
    ],
)  # fmt: skip
def test_heads_that_are_none(change):
    with pytest.raises(ProtocolError, match="The head of a message is not usable"):
        Head.of(json.dumps({**asdict(HEAD), **change}))


@pytest.mark.parametrize(
    "change",
    [{"run": ""}, {"run": "x" * 64}, {"client": "x" * TEXT_LIMIT}, {"index": 0}, {"since": -1},
     {"index": (1 << 53) - 1}, {"scales": [1, 0.25]}, {"kind": "refusal"}],
)  # fmt: skip
def test_heads_that_are(change):
    assert isinstance(Head.of(json.dumps({**asdict(HEAD), **change})), Head)


@pytest.mark.parametrize(
    "text", ["[]", "{", "null", json.dumps({"kind": "step"}), json.dumps({**asdict(HEAD), "x": 1})]
)
def test_other_fields_are_no_head(text):
    with pytest.raises(ProtocolError):
        Head.of(text)


def test_messages_of_other_versions_are_named():
    for beside, theirs in (({"version": "0.9"}, "0.9"), ({"version": "9" * 50}, "9" * 12)):
        with pytest.raises(ProtocolError, match=f"A message of fedfactor '{theirs}' arrived, but this is {WIRE}"):
            read_head(to_bytes({}, beside))
    with pytest.raises(ProtocolError, match="they have no head"):
        read_head(to_bytes({}, {}))


class TestHalves:
    def test_arrays_are_divided_by_their_largest_magnitude(self):
        small, scales = narrow(MESSAGE)
        assert scales == (5.0,)
        assert small.V.dtype == np.float16
        assert small.places is MESSAGE.places
        assert small.n is MESSAGE.n
        wide = widen(small, scales, SPEC)
        assert wide.V.dtype == np.float64
        np.testing.assert_allclose(wide.V, MESSAGE.V, atol=5e-3)
        assert narrow(Sent(np.zeros((2, 3))))[1] == (1.0,)
        assert narrow(Sent(np.array([[-8.0, 1.0]])))[1] == (8.0,)

    def test_there_and_back(self):
        data = seal(HEAD, MESSAGE, "float16")
        head = read_head(data)
        assert head.scales == (5.0,)
        np.testing.assert_allclose(unseal(data, head, EXPECTED, "float16").V, MESSAGE.V, atol=5e-3)
        assert len(data) < len(seal(HEAD, MESSAGE))
        assert read_head(seal(HEAD, None, "float16")) == HEAD

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_scales_belong_to_halves(self):
        data = seal(HEAD, MESSAGE, "float16")
        with pytest.raises(ProtocolError, match="exact payloads were agreed"):
            unseal(data, read_head(data), EXPECTED)
        with pytest.raises(ProtocolError, match="has 0 scales for 1 arrays"):
            unseal(data, HEAD, EXPECTED, "float16")
        with pytest.raises(ProtocolError, match="makes its values infinite"):
            unseal(
                data,
                replace(HEAD, scales=(1.79e308 * 0.999,)),
                {Sent: {**SPEC, "V": Leaf("float32", (2, 3))}},
                "float16",
            )
        with pytest.raises(ProtocolError):
            unseal(seal(HEAD, MESSAGE), HEAD, EXPECTED, "float16")


def test_the_most_bytes_of_a_right_message():
    assert most_bytes({Sent: SPEC, Head: {"x": Leaf("uint8", (3,))}}) == 48 + 16 + 8 + HEADER_LIMIT
