"""What engines say to careless algorithms: the same everywhere, before anything is added up."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor import Federation, LocalEngine
from fedfactor.core.errors import NotFiniteError, ProtocolError
from fedfactor.core.grid import block_federation
from fedfactor.engines.local.virtual_clock import VirtualEngine
from fedfactor.engines.mpi import engine as mpi_engine
from fedfactor.testing.data import small_data
from fedfactor.testing.probe import Probe
from tests.engines.odd_uploads import ODD, AwayStream, BadGrid, Forgetful, Odd, TooLarge
from tests.engines.test_streams import OWNERS
from tests.engines.thread_ranks import MPI, ThreadedMPI

EAST, NORTH, WEST = sorted(small_data("real"))
ENGINES = {
    "threads": lambda: LocalEngine(workers=2),
    "virtual clock": lambda: VirtualEngine(barrier=True),
    "allreduce": lambda: ThreadedMPI(3),
    "ordered": lambda: ThreadedMPI(2, reduction="ordered"),
    "drop-outs": lambda: ThreadedMPI(2, drop_outs=True),
}


@pytest.fixture(autouse=True)
def threads_for_ranks(monkeypatch):
    monkeypatch.setattr(mpi_engine, "load_mpi", lambda: MPI)


def words(engine, algorithm, capfd, federation=None, **options):
    """Return what the user is told: by an exception, or by the rank that ended the job."""
    federation = Federation(small_data("real")) if federation is None else federation
    with pytest.raises((ProtocolError, SystemExit)) as caught:
        engine.run(algorithm, federation, rounds=4, seed=6, **options)
    return f"{caught.value} {capfd.readouterr().err}"


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_odd_upload_is_refused_in_the_same_words(engine, what, capfd):
    algorithm = Odd(gathers=False, who=NORTH, what=what)
    wanted = words(LocalEngine(workers=1), algorithm, capfd)
    assert f"Client {NORTH!r}" in wanted
    assert wanted.strip().rstrip(".") in words(ENGINES[engine](), algorithm, capfd)


@pytest.mark.slow
def test_processes_say_the_same(capfd):
    algorithm = Odd(gathers=False, who=NORTH, what="list")
    wanted = words(LocalEngine(workers=1), algorithm, capfd)
    with pytest.raises(RuntimeError) as caught:
        LocalEngine("processes", workers=2).run(algorithm, Federation(small_data("real")), rounds=4, seed=6)
    assert wanted.strip() in str(caught.value)


@pytest.mark.parametrize("engine", ["threads", "virtual clock", "drop-outs"])
def test_a_scatter_without_a_part_for_somebody_is_refused(engine, capfd):
    said = words(ENGINES[engine](), Forgetful(absent=(f"0 {NORTH}",)), capfd)
    assert f"The server has nothing for client {NORTH!r}" in said


def test_a_sum_that_is_not_finite_is_the_servers_trouble():
    with pytest.raises(NotFiniteError, match=r"The server cannot go on: Ask.V holds NaN or infinity.*too large"):
        fedfactor.run(TooLarge(gathers=False), small_data("real"), rounds=2, seed=0)


def test_a_bad_client_that_was_asked_alone_does_not_end_the_run():
    def in_turn(at, names):
        return names[at.index % 3 :][:1]

    bad = tuple(f"{index} {NORTH} NaN" for index in range(6))
    run = fedfactor.run(Probe(gathers=False, bad=bad), small_data("real"), rounds=6, seed=0, participation=in_turn)
    assert [record.rejected for record in run.history] == [(), (NORTH,), ()] * 2
    everybody = tuple(f"{index} {name} NaN" for index in range(6) for name in (EAST, NORTH, WEST))
    with pytest.raises(ProtocolError, match="Every upload of round 2 was left out"):
        fedfactor.run(Probe(gathers=False, bad=everybody), small_data("real"), rounds=6, seed=0, participation=in_turn)


@pytest.mark.parametrize("engine", ["threads", "allreduce"])
def test_a_sum_by_group_does_not_go_on_without_a_node(engine, capfd):
    X = np.random.default_rng(0).random((12, 9))
    federation = block_federation(X, (2, 3))
    said = words(ENGINES[engine](), BadGrid(2), capfd, federation)
    assert f"A sum by group lacks {federation.names[1]}, who sent NaN or infinity" in said


def test_without_rounds_nobody_waits_for_a_client_that_stays_away():
    engines = VirtualEngine(durations="equal"), ThreadedMPI(2, asynchronous=True)
    for engine in engines:
        run = engine.run(AwayStream(2), Federation(OWNERS), rounds=3, seed=0)
        came = [record.participants for record in run.history]
        assert len(came) == 9
        assert came.count(()) == 3
        assert run.rejected == ()
