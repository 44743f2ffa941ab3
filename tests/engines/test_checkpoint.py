from __future__ import annotations

import functools
import json
import os
import stat
import time
from dataclasses import replace

import numpy as np
import pytest

import fedfactor
from fedfactor import LocalEngine
from fedfactor.algorithms import FedAvgNMF, PooledNMF
from fedfactor.core.errors import CheckpointError
from fedfactor.engines import checkpoint as module
from fedfactor.engines.checkpoint import Checkpoint, Snapshot
from fedfactor.testing import Flaky, Probe
from fedfactor.testing.data import small_data, with_holes
from fedfactor.testing.plain_loop import differences

ROUNDS = 6


class Crash(Exception):
    pass


def crash_at(index):
    def watch(record):
        if record.index == index:
            raise Crash

    return watch


def fit(folder, algorithm=None, owners=None, *, rounds=ROUNDS, seed=4, **options):
    algorithm = PooledNMF(2, tol=0.0) if algorithm is None else algorithm
    options.setdefault("engine", LocalEngine(workers=1))
    return fedfactor.run(algorithm, owners or small_data(), rounds=rounds, seed=seed, checkpoint=folder, **options)


@pytest.fixture
def half(tmp_path):
    """A folder with a run that broke off in round 3."""
    folder = tmp_path / "kept"
    with pytest.raises(Crash):
        fit(folder, callbacks=(crash_at(3),))
    return folder


class TestFile:
    def test_belongs_to_its_owner_alone(self, tmp_path):
        old = os.umask(0)
        try:
            fit(tmp_path / "deep" / "kept")
        finally:
            os.umask(old)
        folder = tmp_path / "deep" / "kept"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "run.safetensors").stat().st_mode) == 0o600
        assert os.listdir(folder) == ["run.safetensors"]

    def test_is_written_every_so_many_rounds(self, tmp_path):
        seen = []

        def look(record):
            file = tmp_path / "run.safetensors"
            seen.append(Snapshot.from_bytes(file.read_bytes()).next_round if file.exists() else 0)

        fit(Checkpoint(tmp_path, every=2), callbacks=(look,))
        assert seen == [0, 0, 2, 2, 4, 4]

    def test_a_reader_finds_a_whole_file_at_any_moment(self, tmp_path):
        rounds = []

        def look(record):
            if record.index:
                rounds.append(Snapshot.from_bytes((tmp_path / "run.safetensors").read_bytes()).next_round)

        fit(tmp_path, callbacks=(look,))
        assert rounds == [1, 2, 3, 4, 5]


class TestResume:
    def test_goes_on_where_it_stopped(self, half):
        heard = []
        run = fit(half, callbacks=(lambda record: heard.append(record.index),))
        assert heard == [3, 4, 5]
        assert run.rounds == ROUNDS
        assert [record.index for record in run.history] == list(range(ROUNDS))

    def test_of_a_finished_run_computes_nothing(self, tmp_path):
        one = fit(tmp_path)
        heard = []
        two = fit(tmp_path, callbacks=(lambda record: heard.append(record.index),))
        assert heard == []
        assert two.V.tobytes() == one.V.tobytes()
        assert two.history == one.history

    @pytest.mark.parametrize("way", ["converged", "stopped"])
    def test_of_a_run_that_ended_early_ends_the_same_way(self, tmp_path, way):
        algorithm = PooledNMF(2, tol=1e9 if way == "converged" else 0.0)
        watch = (lambda record: way == "stopped" and record.index == 2,)
        one, two = (fit(tmp_path, algorithm, rounds=20, callbacks=watch) for _ in range(2))
        assert one.status == two.status == way
        assert two.V.tobytes() == one.V.tobytes()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "algorithm",
        [
            Probe(),
            FedAvgNMF(2),
            Flaky(PooledNMF(2), ((1, "east"), (2, "*"), (4, "west"))),
            Probe(absent=("0 east", "3 *")),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("every", [1, 2])
    def test_is_bit_identical_with_scatters_dicts_and_drop_outs(self, tmp_path, algorithm, every):
        owners = small_data(algorithm.domain)
        whole = fit(None, algorithm, owners)
        for stop in (1, 3, 4):
            with pytest.raises(Crash):
                fit(Checkpoint(tmp_path / str(stop), every), algorithm, owners, callbacks=(crash_at(stop),))
            run = fit(Checkpoint(tmp_path / str(stop), every), algorithm, owners)
            assert all(not differences(whole.factors[name], run.factors[name]) for name in owners)
            assert [r.participants for r in run.history] == [r.participants for r in whole.history]

    def test_with_missing_cells(self, tmp_path):
        def make():
            return fedfactor.Federation(with_holes(small_data()), missing_values=np.nan)

        whole = fit(None, owners=make())
        with pytest.raises(Crash):
            fit(tmp_path, owners=make(), callbacks=(crash_at(3),))
        assert fit(tmp_path, owners=make()).V.tobytes() == whole.V.tobytes()

    @pytest.mark.slow
    def test_a_thread_run_may_go_on_in_processes(self, half):
        whole = fit(None)
        # One worker each, so that products use the same number of threads.
        run = fit(half, engine=LocalEngine("processes", workers=1))
        assert run.V.tobytes() == whole.V.tobytes()


class TestRefusal:
    def refused(self, folder, words, *args, **options):
        with pytest.raises(CheckpointError, match=words):
            fit(folder, *args, **options)

    def test_another_seed(self, half):
        self.refused(half, "its seed was 4, now it is 5", seed=5)

    def test_another_algorithm(self, half):
        self.refused(half, "its algorithm was '.*PooledNMF'", FedAvgNMF(2))

    def test_other_settings(self, half):
        self.refused(half, r"its settings\.local_steps was", PooledNMF(2, tol=0.0, local_steps=6))

    def test_a_rank_that_came_from_numpy_is_the_same_rank(self, half):
        assert fit(half, PooledNMF(np.int64(2), tol=0.0)).rounds == ROUNDS

    def test_another_dtype(self, half):
        owners = {name: X.astype(np.float32) for name, X in small_data().items()}
        self.refused(half, "dtype", owners=owners)

    def test_other_owners(self, half):
        owners = small_data()
        owners["south"] = owners.pop("east")
        self.refused(half, "clients", owners=owners)

    def test_other_values(self, half):
        owners = small_data()
        owners["east"][0, 0] += 1
        self.refused(half, "data", owners=owners)

    def test_the_same_rows_in_another_order(self, half):
        owners = small_data()
        owners["east"] = owners["east"][::-1]
        self.refused(half, "data", owners=owners)

    def test_the_same_cells_with_others_missing(self, tmp_path):
        X = np.ones((6, 4))
        X[0, :2] = 0.0  # a missing cell is kept as zero, so only the masks tell these two apart
        one, two = np.ones((2, 6, 4), dtype=bool)
        one[0, 0] = two[0, 1] = False
        fit(tmp_path, owners={"a": fedfactor.Shard(X, one)})
        self.refused(tmp_path, "data", owners={"a": fedfactor.Shard(X, two)})

    def test_more_threads_in_a_product(self, half, monkeypatch):
        monkeypatch.setattr(LocalEngine, "_share_out", lambda self, n: (1, 7))
        self.refused(half, "blas_threads was . now it is 7".replace(" now", ", now"))

    @pytest.mark.parametrize("package", ["fedfactor", "numpy", "scipy", "numba"])
    def test_another_version(self, half, monkeypatch, package):
        real = module._version  # it asks once a process
        monkeypatch.setattr(module, "_version", lambda name: "0.0" if name == package else real(name))
        self.refused(half, f"its {package} was")

    def test_less_privacy(self, tmp_path):
        with pytest.raises(Crash):
            fit(tmp_path, privacy="secure-sum", callbacks=(crash_at(3),))
        with pytest.raises(CheckpointError, match=r"its privacy was \[.*Secure.* now it is None"):
            fit(tmp_path)

    def test_names_the_owner_or_the_setting_alone(self, half):
        owners = small_data()
        owners["north"] = owners["north"] + 1
        with pytest.raises(CheckpointError, match=r"its data of north was '\(.*', now it is '\(.*'\. Going"):
            fit(half, owners=owners)
        with pytest.raises(CheckpointError, match=r"its settings\.local_steps was 5, now it is 6\. Going"):
            fit(half, PooledNMF(2, tol=0.0, local_steps=6))

    def test_another_rule_of_participation(self, tmp_path):
        with pytest.raises(Crash):
            fit(tmp_path, participation=functools.partial(_all_but, "north"), callbacks=(crash_at(3),))
        fit(tmp_path, participation=functools.partial(_all_but, "north"))  # another object, the same rule
        with pytest.raises(CheckpointError, match=r"its participation was 'partial', now it is '1\.0'"):
            fit(tmp_path)

    def test_fewer_rounds_than_it_has_gone(self, half):
        self.refused(half, "has gone 3 rounds, more than rounds=2", rounds=2)
        assert fit(half, rounds=3).rounds == 3

    def test_tells_what_to_do(self, half):
        self.refused(half, "Use another folder, or delete this one", seed=5)


class TestDamage:
    def damage(self, folder, data):
        (folder / "run.safetensors").write_bytes(data)
        with pytest.raises(CheckpointError, match="Delete it to start again"):
            fit(folder)

    @pytest.mark.parametrize("data", [b"", b"x", b"\x00" * 100, b"{}" * 50, os.urandom(300)])
    def test_rubbish(self, half, data):
        self.damage(half, data)

    def test_cut_off_anywhere(self, half):
        whole = (half / "run.safetensors").read_bytes()
        for share in (0.01, 0.1, 0.5, 0.9, 0.999):
            self.damage(half, whole[: int(share * len(whole))])

    @pytest.mark.slow
    def test_any_flipped_byte_is_noticed(self, half):
        whole = (half / "run.safetensors").read_bytes()
        chance = np.random.default_rng(0)
        for position in (*chance.integers(len(whole), size=60), len(whole) - 1, 8, 0):
            data = bytearray(whole)
            data[position] ^= 1 << int(chance.integers(8))
            (half / "run.safetensors").write_bytes(bytes(data))
            with pytest.raises(CheckpointError):
                fit(half)

    def test_a_message_is_no_checkpoint(self, half):
        from fedfactor.core.wire import to_bytes

        self.damage(half, to_bytes({"x": np.ones(3)}))
        self.damage(half, to_bytes({"x": np.ones(3)}, {"about": json.dumps([1, 2])}))
        self.damage(half, to_bytes({"x": np.ones(3)}, {"about": json.dumps({"next_round": 1})}))


def _all_but(absent, at, names):
    return [name for name in names if name != absent]


@pytest.mark.parametrize("every", [0, -1])
def test_an_interval_that_never_comes(tmp_path, every):
    with pytest.raises(ValueError, match=f"every={every} must be at least 1"):
        Checkpoint(tmp_path, every)


@pytest.mark.slow
def test_a_thousand_names_do_not_swell_the_history(tmp_path):
    owners = {f"owner {i}": np.ones((1, 2)) * (1 + i % 3) for i in range(200)}
    fit(tmp_path, PooledNMF(1, tol=0.0), owners, rounds=3)
    three = (tmp_path / "run.safetensors").stat().st_size
    fit(tmp_path / "b", PooledNMF(1, tol=0.0), owners, rounds=9)
    assert (tmp_path / "b" / "run.safetensors").stat().st_size - three < 6 * 400


def test_snapshot_survives_its_bytes():
    run = fit(None)
    snapshot = Snapshot(
        2, {"x": np.ones(2)}, {"V": np.ones(1)}, {"a": {"U": np.ones((0, 2))}}, run.history, {"seed": 1}
    )
    again = Snapshot.from_bytes(snapshot.to_bytes())
    assert again.history == snapshot.history
    assert replace(again, server=0, down=0, clients=0) == replace(snapshot, server=0, down=0, clients=0)


def test_writing_takes_little_time(tmp_path):
    begin = time.perf_counter()
    fit(tmp_path, rounds=20)
    assert time.perf_counter() - begin < 5
