"""Secure aggregation where another process answers each message, as behind a SuperNode of Flower."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor import algorithms
from fedfactor.core.pytree import leaves
from fedfactor.core.wire import from_bytes
from fedfactor.network.client import RemoteClient
from fedfactor.network.exchange import NotEnough
from fedfactor.network.kept_sum import FILE, KeptSum, entropy_of
from fedfactor.network.message_format import read_head, seal
from tests.network.in_process import AnyFolder, Office

rng = np.random.default_rng(0)
OWNERS = {name: rng.random((20, 12)) for name in ("north", "south", "west")}


class Fresh:
    """Answers each message with a client that knows nothing but its folder."""

    def __init__(self, folder, **more):
        self.folder, self.more = folder, more

    def answer(self, data):
        return RemoteClient(AnyFolder(self.folder), **self.more).answer(data)


def office_of(folder, **more):
    office = Office(folder, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=2, protect="secure-sum", least=(1, 1))
    if more:
        for name in OWNERS:
            office.clerks[name] = Fresh(folder / name, **more)
    return office


def test_processes_that_live_for_one_message_give_the_bits_of_those_that_stay(tmp_path):
    lasting, fresh = office_of(tmp_path / "lasting"), office_of(tmp_path / "fresh", short_lived=True)
    for office in (lasting, fresh):
        office.server().run()
    np.testing.assert_array_equal(fresh.factors("north").V, lasting.factors("north").V)


def test_without_the_file_such_processes_cannot_take_part(tmp_path):
    with pytest.raises(NotEnough, match="needed"):
        office_of(tmp_path, short_lived=False).server().run()


def test_an_answer_is_the_same_whichever_process_gives_it(tmp_path):
    office = office_of(tmp_path, short_lived=True)
    sums = {}

    def forge(name, message):
        if name == "north" and read_head(message).kind == "sum":
            again = [from_bytes(Fresh(tmp_path / name, short_lived=True).answer(message)) for _ in range(2)]
            sums[len(sums)] = [{path: leaf.tobytes() for path, leaf in leaves(answer)} for answer in again]
        return message

    office.post.forge = forge
    office.server().run()
    assert len(sums) == 15  # five phases, before round 0 and in two rounds
    assert all(first == second for first, second in sums.values())


def test_a_session_that_is_begun_again_for_another_upload_has_other_masks(tmp_path):
    """With the same masks, the server could take them off one upload and read the other."""
    office = office_of(tmp_path, short_lived=True)
    keys, session = {}, []

    def forge(name, message):
        head = read_head(message)
        down = from_bytes(message)
        if name == "north" and head.kind == "sum" and type(down).__name__ == "Begin" and float(down.nothing) == 0.0:
            session.append(head.session)
            told = seal(type(head)(**{f: getattr(head, f) for f in head.__slots__} | {"session": session[0]}), down)
            keys[head.index] = from_bytes(Fresh(tmp_path / name, short_lived=True).answer(told)).mask.tobytes()
        return message

    office.post.forge = forge
    office.server().run()
    assert len(keys) == 2
    assert keys[0] != keys[1]


def test_randomness_hangs_on_the_secret_the_upload_and_the_question():
    def drawn(secret, up, bond):
        return entropy_of(secret, {"values": np.array(up)}, np.array(bond, np.uint8)).take(32)

    first = drawn(b"s" * 32, [1.0], [1])
    assert first == drawn(b"s" * 32, [1.0], [1])
    assert len({first, drawn(b"t" * 32, [1.0], [1]), drawn(b"s" * 32, [2.0], [1]), drawn(b"s" * 32, [1.0], [2])}) == 4


def test_the_file_keeps_the_first_question_of_each_phase_of_one_session(tmp_path):
    kept = KeptSum(tmp_path)
    assert kept.add(7, "Begin", b"q") == (b"", [])
    kept.begin(7)
    secret, before = kept.add(7, "Begin", b"q")
    assert (len(secret), before) == (32, [])
    assert kept.add(7, "Keys", b"k") == (secret, [b"q"])
    assert kept.add(7, "Keys", b"other") == (secret, [b"q", b"k"])
    kept.begin(7)
    assert KeptSum(tmp_path).load() == (7, secret, {"Begin": b"q", "Keys": b"k"})
    kept.begin(8)
    assert kept.load()[1] != secret
    assert kept.load()[2] == {}
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
