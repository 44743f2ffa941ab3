"""Secure sums: exact, blind, tolerant of drop-outs, and stubborn where a server asks for too much."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from scipy.stats import chisquare

from fedfactor.core.entropy import Entropy
from fedfactor.core.errors import ProtocolError
from fedfactor.privacy.secure_aggregation.masked_sum import AbortError, Advert, SecureClient, SecureServer
from fedfactor.privacy.secure_aggregation.shamir import join, split

pytest.importorskip("cryptography")
from fedfactor.privacy.secure_aggregation.primitives import Identity, KeyAgreement

SIZE, WIDE = 50, 2


class Room:
    """All parties of one round, and the messages between them."""

    def __init__(self, n: int = 10, threshold: int = 7, least: int = 3, registry=None) -> None:
        self.names = [f"c{i:02d}" for i in range(n)]
        self.identities = {name: Identity() for name in self.names}
        known = {name: identity.public for name, identity in self.identities.items()} if registry is None else registry
        self.clients = {n: SecureClient(n, self.identities[n], known, least, Entropy()) for n in self.names}
        self.about = (b"run", 0, self.names, threshold, (SIZE, WIDE))
        self.server = SecureServer(*self.about)
        self.values = {name: Entropy.seeded(1, name).words(SIZE) for name in self.names}

    def keys(self) -> None:
        self.adverts = {name: client.advertise(*self.about) for name, client in self.clients.items()}
        self.sealed = {name: client.share(self.adverts) for name, client in self.clients.items()}
        self.server.register(self.adverts, self.sealed)

    def send(self, name: str) -> np.ndarray:
        to_me = {by: self.sealed[by][name] for by in self.names if by != name}
        return self.clients[name].mask(to_me, self.values[name])

    def run(self, gone=()) -> np.ndarray:
        self.keys()
        for name in self.names:
            if name not in gone:
                self.server.take(name, self.send(name))
        return self.unmask()

    def unmask(self) -> np.ndarray:
        listed = self.server.listed()
        signatures = {name: self.clients[name].agree(listed) for name in listed}
        dropped = self.server.dropped
        return self.server.total({n: self.clients[n].unmask(listed, dropped, signatures) for n in listed})

    def plain(self, gone=()) -> tuple[list[int], list[int]]:
        """The sum in Python's own integers: 64-bit words, then 128-bit numbers."""
        there = [self.values[name].tolist() for name in self.names if name not in gone]
        words = [sum(v[i] for v in there) % 2**64 for i in range(SIZE - 2 * WIDE)]
        low, high = SIZE - 2 * WIDE, SIZE - WIDE
        wide = [sum(v[low + i] + (v[high + i] << 64) for v in there) % 2**128 for i in range(WIDE)]
        return words, wide


def as_integers(total: np.ndarray) -> tuple[list[int], list[int]]:
    v, low, high = total.tolist(), SIZE - 2 * WIDE, SIZE - WIDE
    return v[:low], [v[low + i] + (v[high + i] << 64) for i in range(WIDE)]


@pytest.mark.parametrize("gone", [(), ("c00",), ("c01", "c05", "c09")])
def test_the_sum_is_exact_with_up_to_thirty_per_cent_gone(gone):
    room = Room()
    assert as_integers(room.run(gone)) == room.plain(gone)


def test_below_the_threshold_the_round_is_left():
    with pytest.raises(AbortError, match=r"Only 6 of 10 .* 7 are needed"):
        Room().run(("c00", "c01", "c02", "c03"))


@pytest.mark.slow
def test_one_message_alone_is_uniform():
    seen = []
    for _ in range(60):
        room = Room(n=3, threshold=3)
        room.values = dict.fromkeys(room.names, np.zeros(SIZE, np.uint64))
        room.keys()
        seen.append(room.send("c01"))
    nibbles = (np.concatenate(seen) >> np.uint64(60)).astype(int)
    assert chisquare(np.bincount(nibbles, minlength=16)).pvalue > 1e-4


class TestRefusals:
    def test_both_shares_of_one_client(self):
        room = Room()
        room.keys()
        for name in room.names:
            room.server.take(name, room.send(name))
        listed = room.server.listed()
        signatures = {name: room.clients[name].agree(listed) for name in listed}
        with pytest.raises(AbortError, match="both shares of 'c03'"):
            room.clients["c00"].unmask(listed, ["c03"], signatures)

    def test_unmasking_another_list_than_was_signed(self):
        room = Room()
        room.keys()
        for name in room.names:
            room.server.take(name, room.send(name))
        listed = room.server.listed()
        signatures = {name: room.clients[name].agree(listed) for name in listed}
        for name, keys in (("c00", [listed[-1]]), ("c01", [])):
            with pytest.raises(AbortError, match="another list"):
                room.clients[name].unmask(listed[:-1], keys, signatures)

    def test_a_list_that_too_few_signed(self):
        room = Room()
        room.keys()
        for name in room.names:
            room.server.take(name, room.send(name))
        listed = room.server.listed()
        signatures = {name: room.clients[name].agree(listed) for name in listed[:3]}
        forged = signatures | {name: signatures["c00"] for name in listed[3:]}
        with pytest.raises(AbortError, match="only 3 clients signed"):
            room.clients["c00"].unmask(listed, [], forged)

    def test_fewer_clients_than_its_own_minimum(self):
        with pytest.raises(AbortError, match="its minimum is 5"):
            Room(n=4, threshold=3, least=5).keys()

    def test_a_threshold_of_half_or_less(self):
        with pytest.raises(AbortError, match="refuses threshold 5 of 10"):
            Room(threshold=5).keys()

    def test_clients_it_does_not_know(self):
        room = Room(n=4, threshold=3)
        stranger = Room(n=4, threshold=3, registry={name: i.public for name, i in list(room.identities.items())[:3]})
        with pytest.raises(AbortError, match="does not know 'c03'"):
            stranger.keys()

    def test_keys_that_somebody_replaced(self):
        room = Room(n=4, threshold=3)
        adverts = {name: client.advertise(*room.about) for name, client in room.clients.items()}
        theirs = KeyAgreement.fresh(Entropy())
        adverts["c02"] = Advert(theirs.public, theirs.public, adverts["c02"].signature)
        with pytest.raises(AbortError, match="not signed by 'c02'"):
            room.clients["c00"].share(adverts)

    def test_its_own_keys_of_an_earlier_try(self):
        room = Room(n=4, threshold=3)
        known = {name: identity.public for name, identity in room.identities.items()}
        old = SecureClient("c00", room.identities["c00"], known, 3, Entropy()).advertise(*room.about)
        adverts = {name: client.advertise(*room.about) for name, client in room.clients.items()}
        with pytest.raises(AbortError, match="its own keys"):
            room.clients["c00"].share(adverts | {"c00": old})

    def test_keys_of_another_round(self):
        room = Room(n=4, threshold=3)
        other = Room(n=4, threshold=3)
        other.identities, other.clients = room.identities, room.clients
        adverts = {name: c.advertise(b"run", 1, room.names, 3, (SIZE, WIDE)) for name, c in room.clients.items()}
        known = {name: identity.public for name, identity in room.identities.items()}
        fresh = SecureClient("c00", room.identities["c00"], known, 3, Entropy())
        mine = fresh.advertise(*room.about)
        with pytest.raises(AbortError, match="not signed by 'c01'"):
            fresh.share(adverts | {"c00": mine})

    def test_shares_that_somebody_touched(self):
        room = Room(n=4, threshold=3)
        room.keys()
        sealed = {by: room.sealed[by]["c00"] for by in room.names if by != "c00"}
        sealed["c01"] = sealed["c01"][:-1] + bytes([sealed["c01"][-1] ^ 1])
        with pytest.raises(ProtocolError, match="damaged or forged"):
            room.clients["c00"].mask(sealed, room.values["c00"])

    def test_steps_out_of_order(self):
        room = Room(n=4, threshold=3)
        with pytest.raises(AbortError, match="out of order"):
            room.clients["c00"].share({})

    def test_a_second_run_through_the_same_round(self):
        room = Room(n=4, threshold=3)
        room.run()
        with pytest.raises(AbortError, match="out of order"):
            room.clients["c00"].unmask(room.names, [], {})


class TestShamir:
    def test_any_threshold_of_shares_restores(self):
        secret = Entropy().take(32)
        shares = split(secret, 6, 4, Entropy())
        for chosen in ([0, 1, 2, 3], [2, 3, 4, 5], [0, 2, 3, 5]):
            assert join({i + 1: shares[i] for i in chosen}) == secret

    def test_fewer_do_not(self):
        secret = Entropy().take(32)
        shares = split(secret, 6, 4, Entropy())
        with contextlib.suppress(ValueError):  # the usual answer: what comes out is no secret at all
            assert join({i + 1: shares[i] for i in range(3)}) != secret


def test_after_a_refusal_nothing_more_is_answered():
    """A client that had refused false keys went on to the next question, and ended in an error of another kind."""
    names, registry = ("a", "b", "c"), {}
    identities = {name: Identity(name.encode() * 32) for name in names}
    registry = {name: identity.public for name, identity in identities.items()}
    client = SecureClient("a", identities["a"], registry, 3, Entropy())
    mine = client.advertise(b"run", 0, names, 3, (4, 0))
    with pytest.raises(AbortError, match="not signed by"):
        client.share({name: mine for name in names})
    for step, words in (("share", ({},)), ("mask", ({}, np.zeros(4, np.uint64))), ("agree", (names,)),
                        ("unmask", (names, (), {}))):  # fmt: skip
        with pytest.raises(AbortError, match="after a refusal: out of order"):
            getattr(client, step)(*words)
