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
from fedfactor.privacy.noise import Clip
from fedfactor.privacy.planner import make_plan
from fedfactor.testing.data import small_data
from fedfactor.testing.probe_algorithm import Probe
from tests.engines.odd_uploads import ODD, AwayStream, BadGrid, Forgetful, Odd, Tells, TooLarge
from tests.engines.test_streams import OWNERS
from tests.engines.thread_ranks import MPI, ThreadedMPI
from tests.network.in_process import InProcessEngine

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


@pytest.mark.parametrize("engine", ENGINES)
def test_what_one_client_leaves_out_is_in_no_sum(engine):
    federation, quiet = Federation(small_data("real")), (f"0 {NORTH} quiet", f"2 {EAST} quiet")
    told = []
    for each in (ENGINES[engine](), LocalEngine(workers=1)):
        run = each.run(Tells(gathers=False, bad=quiet), federation, rounds=4, seed=6)
        told.append([(record.participants, record.bytes_up, record.metrics["moved"]) for record in run.history])
    assert [(size, loss == 1e9) for _, size, loss in told[1]] == [(328, True), (336, False), (328, True), (336, False)]
    for ours, theirs in zip(*told, strict=True):
        assert ours[:2] == theirs[:2]
        assert ours[2] == pytest.approx(theirs[2], rel=1e-12)


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


LINKS = {"clip": (Clip(0.5),), "median": "median"}
CARRIERS = ("threads", "virtual clock", "drop-outs")


class TestThroughAChannel:
    """What is sent through links is looked at as what is sent in the clear."""

    @staticmethod
    def owners():
        return {name: np.vstack([X] * 3) for name, X in small_data("real").items()}

    def run(self, engine, algorithm, links):
        return fedfactor.run(algorithm, self.owners(), engine=engine, rounds=3, seed=6, privacy=LINKS[links])

    @pytest.mark.parametrize("engine", CARRIERS)
    @pytest.mark.parametrize("what", ["NaN", "list", "quiet"])
    def test_a_clip_does_not_turn_a_mistake_into_zeros(self, engine, what, capfd):
        bad = Odd(gathers=False, who=NORTH) if what == "list" else Probe(gathers=False, bad=(f"1 {NORTH} {what}",))
        with pytest.raises((ProtocolError, SystemExit)) as caught:
            self.run(ENGINES[engine](), bad, "clip")
        said = f"{caught.value} {capfd.readouterr().err}"
        wanted = {"NaN": f"Client {NORTH!r}: Total.sums holds NaN", "list": f"Client {NORTH!r}: Total.sums is a list"}
        assert wanted.get(what, "Only some clients sent Total.loss in round 1, 'north' not") in said

    @pytest.mark.parametrize("engine", CARRIERS)
    @pytest.mark.parametrize("what", ["NaN", "lie", "shape"])
    def test_a_median_leaves_out_and_names(self, engine, what):
        bad = Odd(gathers=False, who=NORTH, what=what) if what == "shape" else None
        run = self.run(ENGINES[engine](), bad or Probe(gathers=False, bad=(f"1 {NORTH} {what}",)), "median")
        assert [record.rejected for record in run.history] == [(), (NORTH,), ()]
        assert run.history[1].participants == (EAST, WEST)

    def test_between_parties_a_median_does_so_too(self, tmp_path):
        federation, bad = Federation(self.owners()), Probe(gathers=False, bad=(f"1 {NORTH} NaN",))
        plan = make_plan("median", bad, federation, 3, simulation=True)
        run = InProcessEngine(tmp_path).run(bad, federation, rounds=3, seed=6, channel=plan.channel)
        assert [record.rejected for record in run.history] == [(), (NORTH,), ()]

    def test_between_parties_an_owner_reads_of_its_own_nan_under_a_clip(self, tmp_path, caplog):
        federation, bad = Federation(self.owners()), Probe(gathers=False, bad=(f"1 {NORTH} NaN",))
        plan = make_plan((Clip(0.5),), bad, federation, 3, simulation=True)
        run = InProcessEngine(tmp_path).run(bad, federation, rounds=3, seed=6, channel=plan.channel)
        assert run.rejected == ()  # a refusal would tell of rows
        told = [record.message for record in caplog.records if "were sent instead" in record.message]
        assert len(told) == 1
        assert told[0].startswith("Round 1: Total.sums holds NaN or infinity. Zeros")
