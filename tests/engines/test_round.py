"""The round, piece by piece: what a receiver takes in, and what a run does around its rounds."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from fedfactor.algorithms import FNMF, FedAvgNMF, PooledNMF
from fedfactor.core.algorithm import Meta, Round, Scatter
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import CheckpointError, MissingExtraError, ProtocolError
from fedfactor.core.pytree import Array, record
from fedfactor.core.run import RoundRecord
from fedfactor.core.wire import Leaf, to_bytes
from fedfactor.engines import round as module
from fedfactor.engines.callbacks import Callbacks
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.engines.local.thread_pool import ThreadPool
from fedfactor.engines.mpi import engine as mpi
from fedfactor.engines.mpi.checkpoints import RankCheckpoints, mark_of
from fedfactor.engines.mpi.collectives import frames, launched, missing, pack_kinds, unframe, unpack_kinds
from fedfactor.engines.round import Clients, Receiver, Rounds, Told, receive_bytes
from fedfactor.testing.data import small_data


@record
class Summed:
    uplink = "sum"
    A: Array


@record
class Seen:
    uplink = "gather"
    A: Array


EXPECTED = {Summed: {"A": Leaf("float64", (2,))}, Seen: {"A": Leaf("float64", (2,))}}


class OnCard(np.ndarray):
    """An array that says that it lies on a card."""

    is_cuda = True

    def sum(self, dtype=None):
        return np.asarray(self).sum()


def card(*values):
    return np.array(values).view(OnCard)


class TestReceiver:
    def test_sums_are_running_and_bytes_are_counted(self):
        box = Receiver(EXPECTED)
        for name, value in (("a", 1.0), ("b", 2.0)):
            box.add(name, Summed(np.full(2, value)))
        assert box.combined.A.tolist() == [3.0, 3.0]
        assert (box.present, box.bytes_up, box.rejected) == (["a", "b"], 32, {})

    def test_gathered_ones_are_kept_by_name(self):
        box = Receiver(EXPECTED)
        box.add("a", Seen(np.ones(2)))
        assert list(box.combined) == ["a"]

    def test_bad_ones_are_left_out_and_named(self):
        box = Receiver(EXPECTED, doubt=lambda up: "it lies" if up.A[0] > 5 else "")
        box.add("a", Summed(np.array([np.nan, 1.0])))
        box.add("b", Summed(np.full(2, 9.0)))
        with pytest.raises(ProtocolError, match=r"No upload could be used\. a: .* b: it lies"):
            _ = box.combined
        box.add("c", Summed(np.ones(2)))
        assert box.combined.A.tolist() == [1.0, 1.0]
        assert (box.present, box.bytes_up) == (["c"], 16)
        assert box.rejected["b"] == "it lies"

    def test_other_forms_and_kinds_raise_with_the_clients_name(self):
        box = Receiver(EXPECTED)
        with pytest.raises(ProtocolError, match=r"Client 'a': .*announced"):
            box.add("a", Summed(np.ones(3)))
        box.add("a", Summed(np.ones(2)))
        with pytest.raises(ProtocolError, match="Client 'b' sent Seen in a round of Summed"):
            box.add("b", Seen(np.ones(2)))

    def test_nothing_is_nothing(self):
        assert Receiver(EXPECTED).combined is None
        assert Receiver(EXPECTED).settle() is False

    def test_a_sum_that_was_formed_elsewhere(self):
        box = Receiver(EXPECTED)
        box.replace_by("total", {"a": 3, "b": 4}, {"c": "why"})
        assert (box.combined, box.present, box.bytes_up, box.rejected) == ("total", ["a", "b"], 7, {"c": "why"})

    def test_uploads_on_a_card_are_looked_at_together(self, monkeypatch):
        pytest.importorskip("torch")
        box = Receiver(EXPECTED)
        for name, first in (("a", 1.0), ("b", np.nan), ("c", 2.0)):
            box.add(name, Summed(card(first, 1.0)))
        assert (box.present, box.bytes_up) == (["a", "b", "c"], 48)
        assert box.settle() is True
        assert (box.present, box.bytes_up, list(box.rejected)) == (["a", "c"], 32, ["b"])
        assert np.asarray(box.combined.A).tolist() == [3.0, 2.0]
        box.add("d", Summed(card(1.0, 1.0)))
        assert box.settle() is False
        box.add("e", Summed(card(np.inf, 1.0)))
        assert box.settle() is True
        assert np.asarray(box.combined.A).tolist() == [4.0, 3.0]
        monkeypatch.setattr(module, "MOST_UNSURE", 2)
        few = Receiver(EXPECTED)
        few.add("a", Summed(card(np.nan, 1.0)))
        assert few.present == ["a"]
        few.add("b", Summed(card(1.0, 1.0)))
        assert few.present == ["b"]  # two are held at most

    def test_bytes_are_read_before_they_are_taken_in(self):
        box = Receiver(EXPECTED)
        receive_bytes(box, "a", to_bytes(Summed(np.ones(2))), EXPECTED)
        receive_bytes(box, "b", to_bytes(Summed(np.array([1.0, np.inf]))), EXPECTED)
        assert box.present == ["a"]
        assert "b" in box.rejected
        with pytest.raises(ProtocolError, match="Client 'c': "):
            receive_bytes(box, "c", b"noise", EXPECTED)
        assert module.MOST_UNSURE == 64


class Still(Clients):
    """Clients that send nothing."""

    def exchange(self, down, at, receiver):
        self.asked = at

    def end(self, down):
        return iter(())


def test_what_clients_do_unless_an_engine_says_more():
    still = Still()
    assert (still.holds_server, still.speaks, still.apart) == (True, True, False)
    assert still.states() == {}
    assert still.play(None, None, None, ahead=False) is None
    assert still.stopped() is False
    assert still.decide("x") == "x"
    assert still.about() == {}
    told = Told()
    assert still.publish(told, 3) == (told, 3)
    assert (told.present, told.rejected, told.bytes_up, told.bytes_down, told.metrics) == ((), (), 0, 0, None)
    entry = RoundRecord(0, (), 0, 0, 0.0)
    assert still.note(entry, None, None) is entry


class Kept:
    def __init__(self, every=1, saved=None):
        self.every, self.saved, self.marks = every, [] if saved is None else [saved], []

    def load(self, mark):
        self.marks.append(mark)
        return self.saved[-1] if self.saved else None

    def save(self, snapshot):
        self.saved.append(snapshot)


def rounds(algorithm=None, many=4, clients=None, **options):
    algorithm, federation = algorithm or PooledNMF(2, tol=0.0), Federation(small_data())
    meta = federation.prepare()
    clients = clients or ThreadPool(algorithm, federation, meta, 1)
    return Rounds(algorithm, meta, clients, many, 0, **options)


class TestRounds:
    def test_a_run_is_kept_at_its_start_and_every_so_often(self):
        kept = Kept(every=3)
        loop = rounds(many=5, kept=kept, mark={"x": 1})
        assert loop.run() == "rounds"
        assert [snapshot.next_round for snapshot in kept.saved] == [0, 3]
        assert kept.marks == [{"x": 1, "participation": "1.0"}]
        assert all(set(snapshot.clients) == set(small_data()) for snapshot in kept.saved)
        assert len(loop.snapshot.history) == 5

    def test_what_was_kept_goes_on_and_not_back(self):
        first = Kept()
        whole = rounds(many=4)
        whole.run()
        rounds(many=2, kept=first).run()
        loop = rounds(many=4, kept=Kept(saved=first.saved[-1]))
        told = []

        class Told:
            def start(self, algorithm, meta, many, begin):
                told.append((many, begin))

            def round(self, record):
                return False

        loop.callbacks = Told()
        assert loop.run() == "rounds"
        assert told == [(4, 2)]
        np.testing.assert_array_equal(loop.snapshot.down.V, whole.snapshot.down.V)
        with pytest.raises(CheckpointError, match="has gone 2 rounds, more than rounds=1"):
            rounds(many=1, kept=Kept(saved=first.saved[-1])).run()
        ended = rounds(many=2, kept=Kept(saved=first.saved[-1]))
        assert ended.run() == "rounds"

    def test_callbacks_and_whoever_stands_outside_may_stop_it(self):
        assert rounds(callbacks=Callbacks([lambda record: record.index == 1])).run() == "stopped"
        loop, kept = rounds(), Kept()
        loop.kept, loop.clients.stopped = kept, lambda: len(kept.saved) == 2
        assert loop.run() == "stopped"
        assert kept.saved[-1].ended == "stopped"
        assert kept.saved[-1].next_round == 1

    def test_a_budget_ends_it(self):
        class Channel:
            def affords(self, index):
                return index < 2

            def open(self, expected, at, down, encoded):
                return Receiver(expected)

            def settled(self, index):
                self.behind = index

        loop = rounds()
        loop.channel = Channel()
        assert loop.run() == "budget"
        assert loop.snapshot.next_round == 2

    def test_a_round_in_which_nobody_sent_changes_nothing(self):
        loop = rounds(clients=Still(), many=2)
        assert loop.run() == "rounds"
        assert [record.participants for record in loop.snapshot.history] == [(), ()]
        assert loop.clients.asked.participants == tuple(sorted(small_data()))

    def test_a_round_of_bad_uploads_only_ends_the_run(self):
        class Lying(Still):
            def exchange(self, down, at, receiver):
                receiver.reject("east", "NaN")

        with pytest.raises(ProtocolError, match=r"Every upload of round 0 was left out.*east sent NaN"):
            rounds(clients=Lying()).run()

    def test_who_was_left_out_is_named_once(self, caplog):
        class Half(ThreadPool):
            def exchange(self, down, at, receiver):
                super().exchange(down, at, receiver)
                receiver.reject("odd", "NaN")

        algorithm, federation = PooledNMF(2, tol=0.0), Federation(small_data())
        meta = federation.prepare()
        with caplog.at_level(logging.WARNING, logger="fedfactor"):
            loop = Rounds(algorithm, meta, Half(algorithm, federation, meta, 1), 3, 0)
            loop.run()
        assert [record.rejected for record in loop.snapshot.history] == [("odd",)] * 3
        assert len([r for r in caplog.records if "'odd' was left out" in r.message]) == 1

    def test_without_rounds_a_bad_upload_changes_nothing_until_all_are_bad(self):
        loop = rounds()
        snapshot = loop.begin()
        names = loop.meta.clients
        for name in names[:-1]:
            snapshot = loop.arrival(snapshot, name, lambda box, name=name: box.reject(name, "NaN"), 0.0)
        assert [record.rejected for record in snapshot.history] == [(name,) for name in names[:-1]]
        with pytest.raises(ProtocolError, match="The last upload of every client was left out"):
            loop.arrival(snapshot, names[-1], lambda box: box.reject(names[-1], "NaN"), 0.0)
        good = replace(snapshot, history=(*snapshot.history, RoundRecord(9, ("a",), 0, 0, 0.0)))
        loop.arrival(good, names[-1], lambda box: box.reject(names[-1], "NaN"), 0.0)

    def test_downloads_that_were_not_announced_are_refused(self):
        loop = rounds(FedAvgNMF(2))
        down = loop.begin().down
        assert loop.checked(down).V.flags.writeable is False
        scattered = loop.checked(Scatter(dict.fromkeys(loop.meta.clients, down)))
        assert isinstance(scattered, Scatter)
        with pytest.raises(ProtocolError, match="The server cannot go on: Summed was sent"):
            loop.checked(Summed(np.ones(2)))
        with pytest.raises(ProtocolError, match="The server cannot go on: Summed was sent"):
            loop.checked(Scatter(dict.fromkeys(loop.meta.clients, Summed(np.ones(2)))))
        with pytest.raises(ProtocolError, match="nothing for client 'east'"):
            loop.checked(Scatter({"west": down}))

    def test_recorded_rounds_are_played_where_the_same_take_part(self):
        played = []

        class Playing(ThreadPool):
            def play(self, server, down, at, *, ahead):
                played.append((at.index, ahead))
                return (server, down, server) if at.index == 2 else None

        algorithm, federation = PooledNMF(2, tol=0.0), Federation(small_data())
        meta = federation.prepare()
        loop = Rounds(algorithm, meta, Playing(algorithm, federation, meta, 1), 4, 0)
        assert loop.run() == "rounds"
        assert played == [(1, True), (2, True), (3, False)]
        history = loop.snapshot.history
        assert [record.index for record in history] == [0, 1, 2, 3]
        assert history[2].participants == history[1].participants
        assert history[2].bytes_up == history[1].bytes_up


class TestRanks:
    def test_named_bytes_in_one(self):
        parts = [("a", b"12"), ("b", b""), ("c", b"3")]
        assert unframe(frames(parts)) == parts
        assert unframe(frames([])) == []

    def test_leaves_of_one_dtype_lie_end_to_end(self):
        tree = {"a": np.arange(3.0), "b": np.arange(2, dtype="i4"), "c": np.ones((2, 2))}
        packed = pack_kinds(tree)
        assert {kind: len(part) for kind, part in packed.items()} == {"float64": 7, "int32": 2}
        again = unpack_kinds(packed, tree)
        for name, part in tree.items():
            np.testing.assert_array_equal(again[name], part)

    def test_what_is_missing_is_told(self):
        assert "pip install mpi4py" in str(missing(ImportError("No module named 'mpi4py'")))
        for error in (ImportError("cannot load MPI library; mpi4py"), RuntimeError("mpi4py"), ImportError("libmpi.so")):
            found = missing(error)
            assert isinstance(found, MissingExtraError)
            assert "found no MPI library" in str(found)

    def test_what_a_launcher_says(self, monkeypatch):
        for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS"):
            monkeypatch.delenv(name, raising=False)
        assert launched() == 1
        monkeypatch.setenv("PMI_SIZE", "x")
        assert launched() == 1
        monkeypatch.setenv("PMIX_SIZE", "5")
        assert launched() == 5

    def test_each_rank_takes_a_card_of_its_own(self, monkeypatch):
        torch = pytest.importorskip("torch")
        taken = []
        mpi.take_card(1)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
        monkeypatch.setattr(torch.cuda, "set_device", taken.append)
        for place in (0, 3, 5):
            mpi.take_card(place)
        assert taken == [0, 3, 1]

    def test_an_engine_unless_said_otherwise(self):
        made = mpi.MPIEngine()
        assert (made.size, made.trusted, made.drop_outs, made.asynchronous, made.comm) == (
            None,
            True,
            False,
            None,
            None,
        )
        assert (made.apart, made.channels) == (True, True)


class Group:
    """Two ranks, of which the other says what it is told to."""

    rank, size = 0, 2

    def __init__(self, other):
        self.other, self.comm = other, self

    def Barrier(self):
        return None

    def tell_all(self, value):
        return value

    def hear_all(self, value):
        return [value, self.other if isinstance(value, list) else ""]


class TestRankCheckpoints:
    def test_the_newest_that_every_rank_has_is_read(self, tmp_path):
        folder = tmp_path / "a" / "b"
        loop = rounds(many=1)
        first = loop.begin()
        kept = RankCheckpoints(Checkpoint(folder), Group([0]))
        assert kept.load({}) is None
        kept.save(first)
        newer = folder / "round-3.rank-0.safetensors"
        newer.write_bytes(replace(first, next_round=3).to_bytes())
        (folder / "round-7.rank-1.safetensors").write_bytes(b"another rank's")
        assert kept.load({}).next_round == 0
        assert kept.last == 0
        assert RankCheckpoints(Checkpoint(folder), Group([0, 3])).load({}).next_round == 3
        kept.save(replace(first, next_round=4))
        assert sorted(path.name for path in folder.glob("*.rank-0.*")) == ["round-4.rank-0.safetensors"]
        assert (folder / "round-7.rank-1.safetensors").exists()
        with pytest.raises(CheckpointError, match="its seed was None, now 5"):
            RankCheckpoints(Checkpoint(folder), Group([4])).load({"seed": 5})


def test_a_rank_is_known_by_its_own_rows_and_by_everyone():
    data = small_data()
    meta, first = Federation(data).prepare(), next(iter(data))
    ranks = Federation(data), Federation({first: data[first]}), None
    marks = [mark_of(PooledNMF(2), mine, meta, 5, 1, Group([])) for mine in ranks]
    assert [mark["clients"] for mark in marks] == [list(meta.clients), [first], []]
    assert [sorted(mark["data"]) for mark in marks] == [mark["clients"] for mark in marks]
    assert all(mark["everyone"] == list(meta.clients) and mark["seed"] == 5 for mark in marks)


def test_methods_whose_uploads_are_seen_gather_them():
    algorithm, federation = FNMF(2), Federation(small_data())
    meta = federation.prepare()
    pool = ThreadPool(algorithm, federation, meta, 1)
    pool.begin(0)
    box = Receiver(algorithm.messages(meta))
    down = algorithm.init_server(meta, Round(0, 0))[1]
    pool.exchange(down, Round(0, 0, participants=meta.clients), box)
    assert sorted(box.combined) == sorted(small_data())
    assert isinstance(meta, Meta)
