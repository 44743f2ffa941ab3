"""What arrives is measured before it is read."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.core import wire
from fedfactor.core.errors import ProtocolError
from fedfactor.core.pytree import Array, record
from fedfactor.core.wire import Leaf, receive, to_bytes


@record
class Note:
    uplink = "sum"

    V: Array


EXPECTED = {Note: {"V": Leaf("float64", (2, 3))}}


def test_a_message_of_the_announced_size_is_read():
    V = np.arange(6.0).reshape(2, 3)
    assert (receive(to_bytes(Note(V)), EXPECTED).V == V).all()


def test_the_last_byte_that_may_come_may_come(monkeypatch):
    data = to_bytes(Note(np.ones((2, 3))))
    monkeypatch.setattr(wire, "HEADER_LIMIT", len(data) - 6 * 8)
    assert (receive(data, EXPECTED).V == 1).all()
    monkeypatch.setattr(wire, "HEADER_LIMIT", len(data) - 6 * 8 - 1)
    with pytest.raises(ProtocolError, match="at most"):
        receive(data, EXPECTED)


def test_a_longer_one_is_rejected_before_its_header_is_read(monkeypatch):
    monkeypatch.setattr(wire, "read_header", lambda *_: pytest.fail("the header was read"))
    most = 6 * 8 + wire.HEADER_LIMIT
    with pytest.raises(ProtocolError, match=rf"{most + 1} bytes arrived where at most {most}"):
        receive(bytes(most + 1), EXPECTED)
