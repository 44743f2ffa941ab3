"""Runs without rounds: an upload that nobody should take is left out and named, and the run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fedfactor
from fedfactor.core.errors import ProtocolError
from fedfactor.engines.local.virtual_clock import VirtualEngine
from fedfactor.network.exchange import Arrival
from tests.mpi.launcher import mpiexec, needs_mpi
from tests.network.in_process import Office
from tests.network.naughty_clients import BadStream, OnlyNaN

X = np.random.default_rng(0).gamma(0.5, 1.0, (60, 8))
OWNERS = {"north": X[:20], "south": X[20:40], "west": X[40:]}


def named(history):
    """List, for each upload of the bad client, whether it was taken in."""
    return [
        (record.participants, record.rejected) for record in history if "west" in record.participants + record.rejected
    ]


WANTED = [(("west",), ()), ((), ("west",)), ((), ("west",)), (("west",), ())]


def test_under_a_virtual_clock():
    run = fedfactor.run(BadStream(2), OWNERS, engine=VirtualEngine(durations="equal"), rounds=4, seed=0)
    assert named(run.history) == WANTED
    assert run.rejected == ("west",)
    assert np.isfinite(run.V).all()


@pytest.mark.slow
def test_between_remote_parties(tmp_path):
    office = Office(tmp_path, BadStream(2), OWNERS, rounds=4)
    outcome = office.server().run()
    assert named(outcome.history)[:4] == WANTED
    assert len(outcome.history) == 12
    assert np.isfinite(office.factors("north").V).all()


@pytest.mark.slow
def test_a_late_and_a_doubled_upload_change_nothing(tmp_path):
    plain = Office(tmp_path / "plain", BadStream(2, who=""), OWNERS, rounds=4)
    plain.server().run()
    office, seen = Office(tmp_path / "all", BadStream(2, who=""), OWNERS, rounds=4), []

    def tamper(name, answer):
        seen.append(Arrival(name, answer))
        older = [arrival for arrival in seen[:-1] if arrival.client == name]
        return [Arrival(name, answer), Arrival(name, answer), *older]

    office.post.tamper = tamper
    outcome = office.server().run()
    assert outcome.rejected["duplicate"] > 0
    assert outcome.rejected["stale"] > 0
    np.testing.assert_array_equal(office.factors("west").V, plain.factors("west").V)
    assert not any(record.rejected for record in outcome.history)


def test_nobody_waits_for_clients_that_are_all_bad():
    with pytest.raises(ProtocolError, match="The last upload of every client was left out"):
        fedfactor.run(OnlyNaN(2), OWNERS, engine=VirtualEngine(durations="equal"), rounds=4, seed=0)


@pytest.mark.integration
@needs_mpi()
def test_on_ranks():
    done = mpiexec(2, Path(__file__).parents[1] / "mpi" / "job_stream.py")
    assert done.returncode == 0, done.stderr
    histories = json.loads(done.stdout)
    assert histories[0] == histories[1]
    assert [[list(part) for part in pair] for pair in WANTED] == histories[0]
