"""Workers and the pool that speaks to them, with threads in the place of processes: the same frames over real pipes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
from typing import ClassVar

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor import Federation
from fedfactor.algorithms import DSANLS, FedAvgNMF, PooledNMF
from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError, IncompatibleError, WorkerError
from fedfactor.core.grid import GridShard, grid_federation
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.engines.local import process_pool as processes
from fedfactor.engines.local.message_framing import read_frame, write_frame
from fedfactor.engines.local.process_pool import ProcessPool, shard_tree
from fedfactor.engines.local.worker_process import algorithm_of, serve, shard_of
from fedfactor.engines.round import Rounds
from fedfactor.testing.data import small_data
from fedfactor.testing.plain_loop import differences


class TestFrames:
    def test_what_goes_in_comes_out_in_order(self):
        pipe = io.BytesIO()
        write_frame(pipe, b"head", b"payload")
        write_frame(pipe, b"second")
        pipe.seek(0)
        assert [read_frame(pipe), read_frame(pipe), read_frame(pipe)] == [(b"head", b"payload"), (b"second", b""), None]

    @pytest.mark.parametrize("cut", [1, 15, 17, 19, 26])
    def test_a_frame_that_breaks_off_is_none(self, cut):
        pipe = io.BytesIO()
        write_frame(pipe, b"head", b"payload")
        assert pipe.tell() == 27
        assert read_frame(io.BytesIO(pipe.getvalue()[:cut])) is None


X = np.arange(12.0).reshape(3, 4)
SEEN = X % 3 > 0


class TestRows:
    @pytest.mark.parametrize(
        "shard",
        [
            Shard(X), Shard(X, SEEN), Shard(X, SEEN, holdout=~SEEN), Shard(sparse.csr_array(X), "stored"),
            Shard(sparse.csc_array(X)), Shard(X, SEEN, holdout=sparse.csr_array(X * ~SEEN)),
        ],
    )  # fmt: skip
    def test_travel_as_they_are(self, shard):
        found = shard_of(from_bytes(to_bytes(shard_tree(shard))))
        assert type(found) is Shard
        for mine, theirs in ((found.X, shard.X), (found.mask, shard.mask), (found.holdout, shard.holdout)):
            assert sparse.issparse(mine) == sparse.issparse(theirs)
            if theirs is None or isinstance(theirs, str):
                assert mine == theirs
            else:
                mine, theirs = (part.toarray() if sparse.issparse(part) else part for part in (mine, theirs))
                np.testing.assert_array_equal(mine, theirs)

    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
    def test_blocks_of_a_grid_keep_their_place_and_their_order(self, form):
        shard = grid_federation(form(X), 2).shard("1")
        found = shard_of(from_bytes(to_bytes(shard_tree(shard))))
        assert isinstance(found, GridShard)
        assert found.bounds == shard.bounds == (2, 3, 2, 4)
        assert found.X.flags.f_contiguous if form is np.asarray else found.X.format == "csc"

    def test_tensors_do_not(self):
        torch = pytest.importorskip("torch")
        with pytest.raises(IncompatibleError, match="not tensors"):
            shard_tree(Shard(torch.ones((2, 2))))


def test_an_algorithm_is_built_from_its_name_and_settings():
    made = algorithm_of(_tag(FedAvgNMF), {"n_components": 3})
    assert made == FedAvgNMF(3)
    with pytest.raises(DataError, match="is not an algorithm"):
        algorithm_of("fedfactor.core.client_data:Federation", {})
    with pytest.raises(DataError, match="is not an algorithm"):
        algorithm_of("fedfactor.core.input_validation:is_sparse", {})


def _tag(kind):
    return f"{kind.__module__}:{kind.__qualname__}"


class ThreadProcess:
    """A process that is a thread: pipes, the worker's loop, and an end."""

    made: ClassVar[list] = []

    def __init__(self, command, env, stdin, stdout):
        assert command[1:] == ["-m", "fedfactor.engines.local.worker_process"]
        assert env["PYTHONPATH"]
        (read, write), (back, out) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(write, "wb"), os.fdopen(back, "rb")
        self._thread = threading.Thread(
            target=self._run, args=(os.fdopen(read, "rb"), os.fdopen(out, "wb")), daemon=True
        )
        self._thread.start()
        ThreadProcess.made.append(self)

    def _run(self, source, out):
        try:
            serve(source, out)
        finally:
            source.close()
            with contextlib.suppress(BrokenPipeError):
                out.close()

    def wait(self, timeout=None):
        self._thread.join(timeout)
        return 7


@pytest.fixture
def threads(monkeypatch):
    ThreadProcess.made = []
    monkeypatch.setattr(processes.subprocess, "Popen", ThreadProcess)
    return ThreadProcess


def pool(algorithm, owners, workers=2):
    federation = Federation(owners) if isinstance(owners, dict) else owners
    meta = federation.prepare(algorithm.domain)
    return ProcessPool(algorithm, federation, meta, workers, 1), meta


class TestPool:
    @pytest.mark.parametrize("algorithm", [PooledNMF(2, tol=0.0), FedAvgNMF(2)])
    def test_gives_the_bits_of_a_run_in_one_process(self, threads, algorithm):
        clients, meta = pool(algorithm, small_data())
        assert len(threads.made) == 2
        rounds = Rounds(algorithm, meta, clients, 3, 0)
        found = rounds.finish(rounds.run(), 1, None)
        clients.close()
        wanted = fedfactor.run(algorithm, small_data(), rounds=3, seed=0)
        assert not differences(found.down, wanted.down)
        for name in wanted.factors:
            assert not differences(found.factors[name], wanted.factors[name])
        assert found.history[-1].participants == wanted.history[-1].participants
        assert all(not process._thread.is_alive() for process in threads.made)

    def test_blocks_of_a_grid(self, threads):
        data = np.vstack(list(small_data().values()))
        algorithm = DSANLS(2)
        clients, meta = pool(algorithm, grid_federation(data, 2), workers=1)
        rounds = Rounds(algorithm, meta, clients, 2, 0)
        found = rounds.finish(rounds.run(), 1, None)
        clients.close()
        wanted = fedfactor.run(algorithm, grid_federation(data, 2), rounds=2, seed=0)
        np.testing.assert_array_equal(found.V, wanted.V)

    def test_states_are_handed_out_and_taken_up(self, threads):
        algorithm = FedAvgNMF(2)
        clients, meta = pool(algorithm, small_data())
        clients.begin(0)
        before = clients.states()
        assert set(before) == set(meta.clients)
        rounds = Rounds(algorithm, meta, clients, 1, 0)
        rounds.run()
        assert differences(clients.states(), before)
        clients.restore(before)
        assert not differences(clients.states(), before)
        clients.close()
        clients.close()

    def test_a_client_that_fails_is_named(self, threads):
        algorithm = PooledNMF(2)
        clients, _ = pool(algorithm, small_data(), workers=1)
        with pytest.raises(WorkerError, match=r"Client 'nobody' failed in its worker: KeyError"):
            clients._ask(0, {"do": "state", "name": "nobody"}) or clients._answer(0)
        with pytest.raises(WorkerError, match=r"ended with code 7 in the middle of its work|ended before it was given"):
            clients.begin(0)
        clients.close()

    def test_bad_rows_end_all_workers(self, threads):
        torch = pytest.importorskip("torch")
        with pytest.raises(IncompatibleError, match="not tensors"):
            pool(PooledNMF(2), {"a": torch.ones((4, 3)), "b": torch.ones((4, 3))})
        assert all(process.stdin.closed for process in threads.made)

    def test_a_client_that_is_away_sends_nothing(self, threads):
        algorithm = PooledNMF(2)
        clients, meta = pool(algorithm, small_data())
        clients.begin(0)
        down = algorithm.init_server(meta, Round(0, 0))[1]
        heard = []

        class Receiver:
            def add(self, name, up):
                heard.append(name)

        clients.exchange(down, Round(0, 0, participants=meta.clients[1:]), Receiver())
        assert tuple(heard) == meta.clients[1:]
        clients.close()

    def test_an_algorithm_of_the_main_script_is_refused_before_anything_starts(self, threads):
        class Here(PooledNMF):
            pass

        Here.__module__ = "__main__"
        with pytest.raises(IncompatibleError, match="defined in the main script"):
            pool(Here(2), small_data())
        assert not threads.made


def test_a_broken_pipe_ends_a_worker_in_silence():
    class Gone(io.BytesIO):
        def write(self, data):
            raise BrokenPipeError

    orders = io.BytesIO()
    about = {"do": "job", "algorithm": _tag(PooledNMF), "settings": {"n_components": 2}, "threads": 1}
    meta = {"n_features": 3, "clients": ["a"], "dtype": "float64", "masked": False, "n_rows": 4}
    write_frame(orders, json.dumps({**about, "meta": meta}).encode())
    orders.seek(0)
    serve(orders, Gone())
