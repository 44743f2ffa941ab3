"""What arrives is measured before it is read."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.core import wire
from fedfactor.core.errors import ProtocolError
from fedfactor.core.tree import Array, record
from fedfactor.core.wire import Leaf, receive, to_bytes


@record
class Note:
    uplink = "sum"

    V: Array


EXPECTED = {Note: {"V": Leaf("float64", (2, 3))}}


def test_a_message_of_the_announced_size_is_read():
    V = np.arange(6.0).reshape(2, 3)
    assert (receive(to_bytes(Note(V)), EXPECTED).V == V).all()


def test_a_longer_one_is_rejected_before_its_header_is_read(monkeypatch):
    monkeypatch.setattr(wire, "read_header", lambda *_: pytest.fail("the header was read"))
    most = 6 * 8 + wire.HEADER_LIMIT
    with pytest.raises(ProtocolError, match=rf"{most + 1} bytes arrived where at most {most}"):
        receive(bytes(most + 1), EXPECTED)
