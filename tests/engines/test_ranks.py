"""The MPI engine with its ranks as threads of one process: what is computed and sent, without a launcher."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from fedfactor import Federation, LocalEngine
from fedfactor.algorithms import FNMF, AsynSD, GridNMF, PooledNMF
from fedfactor.core.errors import ClientUnavailable, IncompatibleError
from fedfactor.core.grid import block_federation
from fedfactor.engines.mpi import engine as mpi_engine
from fedfactor.engines.mpi.checkpoints import progress
from fedfactor.engines.mpi.collectives import CollectiveError, Collectives
from fedfactor.engines.mpi.engine import MPIEngine
from fedfactor.testing import engine_checks
from fedfactor.testing.data import small_data
from fedfactor.testing.probe_algorithm import Probe
from tests.engines.thread_ranks import MPI, ThreadedMPI, on_ranks

WAYS = {
    "allreduce": {},
    "ordered": {"reduction": "ordered"},
    "drop-outs": {"drop_outs": True},
    "untrusted": {"trusted": False},
}
DAILY = {"check_engine_rejects", "check_engine_channel", "check_engine_stop"}
X = np.random.default_rng(0).random((40, 3)) @ np.random.default_rng(1).random((3, 8))
OWNERS = {name: X[8 * i : 8 * (i + 1)] for i, name in enumerate("abcde")}


@pytest.fixture(autouse=True)
def threads_for_ranks(monkeypatch):
    monkeypatch.setattr(mpi_engine, "load_mpi", lambda: MPI)


def cases():
    for way, settings in WAYS.items():
        for check in engine_checks():
            # Every check where clients may stay away, which is the longest way; of the others those that differ.
            if way == "drop-outs" or check.__name__ in DAILY:
                marks = (pytest.mark.slow,) if check.__name__ == "check_engine_equals_local" else ()
                yield pytest.param(settings, check, id=f"{way}-{check.__name__}", marks=marks)


@pytest.mark.parametrize(("settings", "check"), list(cases()))
def test_the_contract_of_an_engine(settings, check):
    check(lambda: ThreadedMPI(2, **settings), 1e-9)


@pytest.mark.parametrize("way", ["allreduce", "ordered"])
@pytest.mark.parametrize("ranks", [3, 4])
def test_sums_by_group_go_along_the_lines_of_a_grid(way, ranks):
    federation = block_federation(X, (2, 3))
    runs = ThreadedMPI(ranks, **WAYS[way]).all_runs(GridNMF(2), federation, rounds=6, seed=1)
    reference = LocalEngine(workers=1).run(GridNMF(2), federation, rounds=6, seed=1)
    assert sorted(name for run in runs for name in run.factors) == sorted(federation.names)
    for run in runs:
        assert [(r.bytes_up, r.bytes_down) for r in run.history] == [
            (r.bytes_up, r.bytes_down) for r in reference.history
        ]
        for name, kept in run.factors.items():
            np.testing.assert_allclose(kept.U, reference.factors[name].U, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(kept.V, reference.factors[name].V, rtol=1e-9, atol=1e-12)


def test_who_must_come_to_sums_by_group():
    federation = block_federation(X, (2, 2))
    for settings, options in (({"trusted": False}, {}), ({"drop_outs": True}, {}), ({}, {"participation": 0.5})):
        with pytest.raises(IncompatibleError, match="every client must come to every round"):
            ThreadedMPI(2, **settings).run(GridNMF(2), federation, rounds=2, seed=1, **options)


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("algorithm", [PooledNMF(2, tol=0.0), FNMF(2), Probe()], ids=lambda each: type(each).__name__)
def test_three_ranks_find_what_one_process_finds(way, algorithm):
    owners = small_data(algorithm.domain) if isinstance(algorithm, Probe) else OWNERS
    runs = ThreadedMPI(3, **WAYS[way]).all_runs(algorithm, Federation(owners), rounds=3, seed=1)
    reference = LocalEngine(workers=1).run(algorithm, Federation(owners), rounds=3, seed=1)
    for run in runs:
        assert run.scores.keys() == reference.scores.keys()
        assert run.environment["ranks"] == 3
        assert run.environment["rank_sent_bytes"] > 0
        assert [r.participants for r in run.history] == [r.participants for r in reference.history]
        assert [r.bytes_up for r in run.history] == [r.bytes_up for r in reference.history]
        for name, kept in run.factors.items():
            np.testing.assert_allclose(kept.U, reference.factors[name].U, rtol=1e-7, atol=1e-10)
            np.testing.assert_allclose(kept.V, reference.factors[name].V, rtol=1e-9, atol=1e-12)
    assert sorted(name for run in runs for name in run.factors) == sorted(owners)


def test_owners_are_dealt_to_ranks_in_name_order_as_evenly_as_they_go():
    runs = ThreadedMPI(2).all_runs(PooledNMF(2, tol=0.0), Federation(OWNERS), rounds=1, seed=0)
    assert [sorted(run.factors) for run in runs] == [["a", "b", "c"], ["d", "e"]]


def test_a_rank_without_owners_is_refused():
    few = Federation({"a": OWNERS["a"], "b": OWNERS["b"]})
    with pytest.raises(IncompatibleError, match=r"has 3 ranks but only 2 owners.*at most 2 ranks"):
        ThreadedMPI(3).run(PooledNMF(2), few, rounds=1, seed=0)
    with pytest.raises(IncompatibleError, match=r"3 ranks besides the server but only 2 owners.*at most 3 ranks"):
        ThreadedMPI(4, asynchronous=True).run(AsynSD(2), few, rounds=1, seed=0)


def test_a_run_without_rounds():
    runs = ThreadedMPI(3).all_runs(AsynSD(2), Federation(OWNERS), rounds=12, seed=0)
    assert {run.status for run in runs} == {"rounds"}
    assert len({len(run.history) for run in runs}) == 1
    assert len(runs[0].history) == 12 * len(OWNERS)
    assert {name for record in runs[0].history for name in record.participants} == set(OWNERS)
    assert sorted(runs[1].factors) == ["a", "b", "c"]
    assert sorted(runs[2].factors) == ["d", "e"]
    for run in runs:
        assert np.isfinite(run.V).all()
        assert run.relative_error < 0.3
        np.testing.assert_array_equal(run.V, runs[0].V)
    clock = [record.metrics["clock"] for record in runs[0].history]
    assert clock == sorted(clock)
    assert sum(record.seconds for record in runs[0].history) == pytest.approx(clock[-1])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"participation": 0.5}, "participation must be 1"),
        ({"checkpoint": "somewhere"}, "keeps no checkpoint"),
    ],
)
def test_what_a_run_without_rounds_refuses(options, why, tmp_path):
    with pytest.raises((IncompatibleError, SystemExit), match=f"{why}|1"):
        ThreadedMPI(2).run(AsynSD(2), Federation(OWNERS), rounds=2, seed=0, **options)


def test_merging_one_by_one_needs_a_method_for_it_and_a_second_rank():
    with pytest.raises(IncompatibleError, match="needs the uploads of all clients together"):
        ThreadedMPI(2, asynchronous=True).run(PooledNMF(2), Federation(OWNERS), rounds=1, seed=0)
    with pytest.raises(IncompatibleError, match="a rank for the server and one for clients"):
        ThreadedMPI(1, asynchronous=True).run(AsynSD(2), Federation(OWNERS), rounds=1, seed=0)
    alone = ThreadedMPI(1).run(AsynSD(2), Federation(OWNERS), rounds=2, seed=0)  # by rounds, which do the same work
    assert len(alone.history) == 2


def test_a_client_that_stays_away_is_an_error_unless_that_was_allowed(capfd):
    flaky = Probe(absent=("1 *",))
    with pytest.raises(ClientUnavailable, match="stayed away"):
        ThreadedMPI(1).run(flaky, Federation(small_data("real")), rounds=3, seed=0)
    with pytest.raises(SystemExit):
        ThreadedMPI(2).run(flaky, Federation(small_data("real")), rounds=3, seed=0)
    assert "failed in round 1, so the job ends: ClientUnavailable" in capfd.readouterr().err


class Killed(Exception):
    """Stands for a kill between two rounds."""


@pytest.mark.parametrize("way", ["ordered", "untrusted"])
def test_an_interrupted_job_goes_on_from_what_every_rank_wrote(tmp_path, way, capfd):
    method, federation = PooledNMF(2, tol=0.0), Federation(OWNERS)
    whole = ThreadedMPI(2, **WAYS[way]).run(method, federation, rounds=4, seed=3)

    def kill(record):
        if record.index == 2:
            raise Killed

    with pytest.raises((Killed, SystemExit)):
        ThreadedMPI(2, **WAYS[way]).run(method, federation, rounds=4, seed=3, checkpoint=tmp_path, callbacks=(kill,))
    assert "The same command goes on from round 2." in capfd.readouterr().err
    assert progress(tmp_path) == (3, 2)
    assert sorted(path.name for path in tmp_path.glob("round-2.*")) == [
        "round-2.rank-0.safetensors",
        "round-2.rank-1.safetensors",
    ]
    with pytest.raises(SystemExit):
        ThreadedMPI(3, **WAYS[way]).run(method, federation, rounds=4, seed=3, checkpoint=tmp_path)
    assert "job of 2 ranks, but this one has 3" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        ThreadedMPI(2, **WAYS[way]).run(method, federation, rounds=4, seed=4, checkpoint=tmp_path)
    assert "its seed was 3, now 4" in capfd.readouterr().err
    heard = []
    resumed = ThreadedMPI(2, **WAYS[way]).run(
        method, federation, rounds=4, seed=3, checkpoint=tmp_path, callbacks=(heard.append,)
    )
    assert [record.index for record in heard] == [2, 3]
    assert resumed.rounds == 4
    np.testing.assert_array_equal(resumed.V, whole.V)


def test_a_part_that_is_damaged_is_refused_on_all_ranks(tmp_path, capfd):
    method, federation = PooledNMF(2, tol=0.0), Federation(OWNERS)
    ThreadedMPI(2).run(method, federation, rounds=2, seed=3, checkpoint=tmp_path)
    (part,) = tmp_path.glob("*.rank-1.safetensors")
    part.write_bytes(part.read_bytes()[:200])
    with pytest.raises(SystemExit):
        ThreadedMPI(2).run(method, federation, rounds=4, seed=3, checkpoint=tmp_path)
    assert capfd.readouterr().err.count("rank-1.safetensors is not usable") == 2


def test_an_owner_that_cannot_be_opened_is_told_on_every_rank():
    def broken():
        raise OSError("the disk is gone")

    with pytest.raises(Exception, match="the disk is gone"):
        ThreadedMPI(2).run(PooledNMF(2), Federation({**OWNERS, "e": broken}), rounds=1, seed=0)


@pytest.mark.parametrize("size", [1, 3])
def test_bytes_come_to_where_they_should(size):
    def work(comm):
        group = Collectives(MPI, comm)
        mine = bytes([group.rank]) * (group.rank + 1)
        everyone = [bytes([rank]) * (rank + 1) for rank in range(size)]
        assert group.all_bytes(mine) == everyone
        assert group.to_root(mine) == (everyone if group.rank == 0 else [])
        assert group.from_root(everyone if group.rank == 0 else None) == mine
        assert group.from_root(b"all" if group.rank == 0 else None) == b"all"
        assert group.tell_all({"a": [1]} if group.rank == 0 else None) == {"a": [1]}
        assert group.hear_all(group.rank) == list(range(size))
        assert group.flag(2 if group.rank == 0 else 0) == 2
        assert group.add_up(np.array([1.0, group.rank])).tolist() == [size, sum(range(size))]
        assert group.ranks_here() == (size, group.rank)
        return group.sent

    sent = on_ranks(size, work)
    length = [len(str(rank)) for rank in range(size)]
    told = [(rank + 1) + 8 + (rank + 1 + 8) * (rank != 0) + (length[rank] + 8) + 16 for rank in range(size)]
    told[0] += sum(rank + 1 for rank in range(size)) + (3 + 16) + (len('{"a": [1]}') + 16)
    assert sent == told


def test_a_job_of_another_size_is_refused(monkeypatch):
    with pytest.raises(CollectiveError, match=r"3 ranks were asked for, but the job has 2. Start it with mpiexec -n 3"):
        ThreadedMPI(2, size=3).run(PooledNMF(2), Federation(OWNERS), rounds=1, seed=0)
    monkeypatch.setenv("PMI_SIZE", "4")
    with pytest.raises(CollectiveError, match=r"started 4 processes, but MPI sees only this.*threads of one"):
        ThreadedMPI(1).run(PooledNMF(2), Federation(OWNERS), rounds=1, seed=0)


def test_words_that_are_not_known_are_refused():
    with pytest.raises(ValueError, match="reduction='quick' is not known"):
        ThreadedMPI(1, reduction="quick").run(PooledNMF(2), Federation(OWNERS), rounds=1, seed=0)
    assert MPIEngine().reduction == "allreduce"


class Watched(PooledNMF):
    """Counts how many ranks take the server's step."""

    steps: ClassVar[list[int]] = []

    def server_step(self, state, up, at):
        self.steps.append(at.index)
        return PooledNMF.server_step(self, state, up, at)


class WatchedOneByOne(FNMF):
    """The same for an algorithm whose server sees uploads one by one."""

    steps: ClassVar[list[int]] = []

    def server_step(self, state, up, at):
        self.steps.append(at.index)
        return FNMF.server_step(self, state, up, at)


@pytest.mark.parametrize(
    ("kind", "trusted", "takers"), [(Watched, True, 3), (Watched, False, 1), (WatchedOneByOne, True, 1)]
)
def test_uploads_that_not_all_may_see_come_to_the_first_rank_alone(kind, trusted, takers):
    kind.steps.clear()
    ThreadedMPI(3, trusted=trusted).run(kind(2, tol=0.0), Federation(OWNERS), rounds=2, seed=0)
    assert sorted(kind.steps) == [0] * takers + [1] * takers


def test_the_newest_part_that_every_rank_has_is_taken(tmp_path):
    """A job that ends while parts are written leaves one rank a round behind."""
    method, federation = PooledNMF(2, tol=0.0), Federation(OWNERS)
    whole = ThreadedMPI(2, reduction="ordered").run(method, federation, rounds=3, seed=3)
    folder = tmp_path / "kept" / "here"
    for rounds in (1, 2):
        ThreadedMPI(2, reduction="ordered").run(method, federation, rounds=rounds, seed=3, checkpoint=folder)
        for part in folder.iterdir():
            (tmp_path / part.name).write_bytes(part.read_bytes())
    names = ["round-1.rank-0", "round-1.rank-1", "round-2.rank-0"]
    for name in (f"{each}.safetensors" for each in names):
        (folder / name).write_bytes((tmp_path / name).read_bytes())
    (folder / "round-2.rank-1.safetensors").unlink()
    heard = []
    resumed = ThreadedMPI(2, reduction="ordered").run(
        method, federation, rounds=3, seed=3, checkpoint=folder, callbacks=(heard.append,)
    )
    assert [record.index for record in heard] == [1, 2]
    np.testing.assert_array_equal(resumed.V, whole.V)
