"""Flower's grid as a transport, with a grid in this process."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedfactor.flower import transport
from fedfactor.flower.records import Envelope, from_record, to_record
from fedfactor.flower.signatures import sign, statement
from fedfactor.flower.transport import GridTransport

RUN, NODE, TERMS = 1, 7, "f" * 64


def message(content, *about, reply_to="", **more):
    """Stand in for a message of Flower, which can be made in a task of Flower only."""
    return SimpleNamespace(
        content=content, has_error=lambda: False, metadata=SimpleNamespace(reply_to_message_id=reply_to)
    )


class SlowNode:
    """A grid with one node, which works for some seconds on each message, one after the other."""

    def __init__(self, seconds):
        self.key = ec.generate_private_key(ec.SECP384R1())
        self.seconds, self.now, self.free, self.asked, self.ready = seconds, 0.0, 0.0, 0, {}

    def monotonic(self):
        return self.now

    def get_node_ids(self):
        return [NODE]

    def push_messages(self, messages):
        tickets = []
        for asked in messages:
            self.asked += 1
            self.free = max(self.free, self.now) + self.seconds
            self.ready[f"ticket {self.asked}"] = self.free, asked
            tickets.append(f"ticket {self.asked}")
        return tickets

    def pull_messages(self, tickets):
        found = []
        for ticket in tickets:
            if self.ready[ticket][0] <= self.now:
                question = from_record(self.ready.pop(ticket)[1].content)
                data = json.dumps({"party": "north", "terms": TERMS}).encode()
                signature = sign(self.key, statement(RUN, NODE, question.data, data))
                found.append(message(to_record(Envelope("identify", data, signature)), reply_to=ticket))
        return found


@pytest.mark.parametrize("seconds", [1.0, 30.0, 200.0])
def test_a_slow_node_is_not_asked_faster_than_it_can_answer(monkeypatch, seconds):
    grid = SlowNode(seconds)
    monkeypatch.setattr(transport, "Message", message)
    monkeypatch.setattr(transport, "time", grid)
    public = grid.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    grid_transport = GridTransport(grid, RUN, {"north": public}, TERMS)
    while not grid_transport.present():
        grid.now += 1.0
        assert grid.now < 4 * seconds + 10.0, f"asked {grid.asked} times"
    assert grid.asked <= 5
