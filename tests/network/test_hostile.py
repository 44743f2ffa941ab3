from __future__ import annotations

import contextlib
import tracemalloc

import numpy as np
import pytest

from fedfactor import algorithms
from fedfactor.core.errors import ProtocolError
from fedfactor.network.exchange import Arrival
from fedfactor.network.message_format import read_head, unseal
from tests.network.hostile import KINDS
from tests.network.in_process import Office

rng = np.random.default_rng(0)
OWNERS = {name: rng.random((20, 12)) for name in ("north", "south", "west")}
CAP = 2 * (1 << 20)


@pytest.fixture(scope="module")
def without_west(tmp_path_factory):
    office = Office(tmp_path_factory.mktemp("honest"), algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3)
    office.post.tamper = lambda name, answer: (
        []
        if (name, read_head(answer).kind, read_head(answer).index) == ("west", "step", 1)
        else [Arrival(name, answer)]
    )
    office.server(minimum=2).run()
    return office.factors("north").V


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_answer_is_rejected_counted_and_changes_nothing(tmp_path, kind, without_west):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3)
    used = []

    def tamper(name, answer):
        head = read_head(answer)
        if (name, head.kind, head.index) != ("west", "step", 1):
            return [Arrival(name, answer)]
        forged = KINDS[kind](answer)
        assert forged != answer
        used.append(len(forged))
        return [Arrival(name, forged)]

    office.post.tamper = tamper
    outcome = office.server(minimum=2).run()
    assert used
    assert [len(r.participants) for r in outcome.history] == [3, 2, 3]
    assert sum(n for key, n in outcome.rejected.items() if key.endswith(" west")) == len(used)
    np.testing.assert_array_equal(office.factors("north").V, without_west)


@pytest.mark.slow
def test_hostile_answers_cost_no_memory(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=1)
    answers = []
    office.post.tamper = lambda name, answer: answers.append(answer) or [Arrival(name, answer)]
    server = office.server()
    server.run()
    forged = {kind: make(answers[0]) for kind, make in KINDS.items()}
    uploads = {kind: spec for kind, spec in server.expected.items() if hasattr(kind, "uplink")}
    tracemalloc.start()
    try:
        for kind, data in forged.items():
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            with contextlib.suppress(ProtocolError):
                unseal(data, read_head(data), uploads)
            assert tracemalloc.get_traced_memory()[1] - before < CAP, kind
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_duplicates_and_replays_are_counted_and_change_nothing(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3)
    plain = Office(tmp_path / "plain", algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3)
    plain.server().run()
    seen = []

    def tamper(name, answer):
        seen.append(Arrival(name, answer))
        older = [arrival for arrival in seen[:-1] if arrival.client == name]
        return [Arrival(name, answer), Arrival(name, answer), *older, Arrival("stranger", answer)]

    office.post.tamper = tamper
    outcome = office.server().run()
    np.testing.assert_array_equal(office.factors("north").V, plain.factors("north").V)
    assert outcome.rejected["duplicate"] > 0
    assert outcome.rejected["stale"] > 0
    assert outcome.rejected["unknown"] > 0
