"""Rows for a card: what is refused without one, and moving, rounding and streaming, tried on the processor."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse

import fedfactor
from fedfactor.algorithms import DSANLS, FedAvgNMF, PooledNMF
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import DataError, IncompatibleError, MissingExtraError
from fedfactor.linalg.cuda.device_rows import Streamed, _fetched, check_device, home, move, placed, rounded

torch = pytest.importorskip("torch")


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return (rng.random((300, 4)) ** 2 @ rng.random((4, 40)) + 0.05 * rng.random((300, 40))).astype(np.float32)


@pytest.fixture
def owners(X):
    return Federation({"a": X[:200], "b": X[200:]})


def on_cpu(owners, storage="float32", room=1e9, algorithm=None):
    return placed(owners, algorithm or PooledNMF(4), torch.device("cpu"), storage, room)


def test_without_torch_the_command_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"device='cuda' needs the package 'torch'.*pip install torch"):
        check_device("cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_card_the_reason_is_told(owners):
    with pytest.raises(ValueError, match=r"device='cuda' needs a CUDA GPU, but torch .* finds none: .*device='cpu'"):
        fedfactor.run(PooledNMF(4), owners, device="cuda")


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:", 1])
def test_unknown_devices_are_refused(device):
    with pytest.raises(ValueError, match=r"is not known. Use 'cpu' or 'cuda'"):
        check_device(device)


def test_storage_belongs_to_a_card(owners):
    with pytest.raises(ValueError, match="storage='bfloat16' is for rows on a GPU, but device is None"):
        fedfactor.run(PooledNMF(4), owners, storage="bfloat16")
    with pytest.raises(ValueError, match="storage='int8' is not known"):
        check_device("cuda", "int8")


def test_the_processor_is_where_rows_are_anyway(owners):
    assert move(owners, PooledNMF(4), "cpu") is owners
    one, other = (fedfactor.run(PooledNMF(4), owners, rounds=3, seed=0, device=device) for device in (None, "cpu"))
    assert np.array_equal(one.V, other.V)


def test_what_needs_the_processor_is_refused(owners, monkeypatch):
    monkeypatch.setattr("fedfactor.linalg.cuda.device_rows.check_device", lambda *_: None)
    monkeypatch.setattr("fedfactor.engines.run.check_device", lambda *_: None)
    with pytest.raises(IncompatibleError, match="DSANLS works on the processor only"):
        move(owners, DSANLS(4), "cuda")
    with pytest.raises(IncompatibleError, match="storage='bfloat16' is for methods that touch rows by products alone"):
        move(owners, FedAvgNMF(4), "cuda", "bfloat16")
    with pytest.raises(IncompatibleError, match="Leave out privacy, or device='cuda'"):
        fedfactor.run(PooledNMF(4), owners, device="cuda", privacy="secure-sum")
    with pytest.raises(IncompatibleError, match="for runs in one process"):
        fedfactor.run(PooledNMF(4), owners, device="cuda", engine=fedfactor.LocalEngine(backend="processes"))


@pytest.mark.slow
@pytest.mark.parametrize("room", [1e9, 200 * 40 * 4, 0], ids=["all fit", "one fits", "none fits"])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_blocks_give_what_all_rows_give(X, room, form):
    owners = Federation({"a": form(X[:200]), "b": form(X[200:])})
    room = room and max(room, 200 * 40 * 12 if form is scipy.sparse.csr_array else 0)
    moved = on_cpu(owners, room=room)
    kinds = [isinstance(moved.shard(name).X, Streamed) for name in moved.names]
    assert kinds == {1e9: [False, False], 0: [True, True]}.get(room, [False, True])
    for name in moved.names:
        if isinstance(moved.shard(name).X, Streamed):
            moved.shard(name).X.step = 37
    there = home(fedfactor.run(PooledNMF(4), moved, rounds=8, seed=0), owners)
    here = fedfactor.run(PooledNMF(4), owners, rounds=8, seed=0)
    assert isinstance(there.V, np.ndarray)
    assert isinstance(there.factors["a"].U, np.ndarray)
    assert np.allclose(there.V, here.V, atol=1e-3)  # the start is folded in single precision here, in double there
    assert there.relative_error == pytest.approx(here.relative_error, rel=1e-3)
    told, known = (run.history[-1].metrics["relative_error"] for run in (there, here))
    assert told == pytest.approx(known, rel=1e-3)


def test_rows_that_do_not_fit_are_refused_where_all_are_needed(owners):
    with pytest.raises(DataError, match="FedAvgNMF with these settings and rows needs all of them there"):
        on_cpu(owners, room=10, algorithm=FedAvgNMF(4))
    holes = Federation({"a": np.where(np.eye(30, 6), np.nan, 1.0)}, missing_values=np.nan)
    with pytest.raises(DataError, match="room for"):
        on_cpu(holes, room=10)


def test_missing_cells_go_along(X):
    seen = np.random.default_rng(1).random(X.shape) < 0.8
    owners = Federation({"a": np.where(seen, X, np.nan)}, missing_values=np.nan)
    moved = on_cpu(owners)
    assert moved.shard("a").mask.dtype == torch.bool
    there = fedfactor.run(PooledNMF(4), moved, rounds=5, seed=0)
    assert np.allclose(there.V.numpy(), fedfactor.run(PooledNMF(4), owners, rounds=5, seed=0).V, atol=1e-3)
    sparse = Federation({"a": scipy.sparse.csr_array(np.eye(30, 6))}, missing_values="unstored")
    with pytest.raises(IncompatibleError, match="sparse rows with missing cells"):
        on_cpu(sparse)


def test_rounding_is_right_on_average_and_what_it_adds_is_known(owners, X):
    shard = on_cpu(owners, "bfloat16").shard("a")
    true, stored = X[:200].astype(np.float64), shard.X.double().numpy()
    assert shard.X.dtype == torch.bfloat16
    assert np.abs(stored / true - 1).max() <= 2**-7
    assert shard.lost == pytest.approx(((stored - true) ** 2).sum())
    # No factor sees it: ‖stored − M‖² is ‖X − M‖² + lost for any M that does not look at the chance.
    for M in (np.zeros_like(true), true, true.mean(axis=0)):
        excess = ((stored - M) ** 2).sum() - ((true - M) ** 2).sum()
        assert excess == pytest.approx(
            shard.lost, abs=6 * np.sqrt(shard.lost / true.size) * np.linalg.norm(true - M) + 1e-9
        )


def test_rounding_leaves_zeros_and_small_whole_numbers_alone():
    whole = torch.arange(0, 257, dtype=torch.float32)[None]
    assert torch.equal(rounded(whole, torch.Generator().manual_seed(0)).float(), whole)


def test_rounding_depends_on_the_owner_alone(owners):
    one, other = on_cpu(owners, "bfloat16"), on_cpu(owners, "bfloat16")
    assert torch.equal(one.shard("a").X, other.shard("a").X)


@pytest.mark.slow
def test_a_streamed_run_goes_on_from_its_checkpoint(owners, tmp_path):
    whole = fedfactor.run(PooledNMF(4), on_cpu(owners, room=0), rounds=6, seed=0)
    fedfactor.run(PooledNMF(4), on_cpu(owners, room=0), rounds=3, seed=0, checkpoint=tmp_path / "kept")
    again = fedfactor.run(PooledNMF(4), on_cpu(owners, room=0), rounds=6, seed=0, checkpoint=tmp_path / "kept")
    assert np.allclose(np.asarray(again.V), np.asarray(whole.V), atol=1e-6)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_reason_why_there_is_no_card(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ValueError, match="it was built without CUDA"):
        check_device("cuda")
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    with pytest.raises(ValueError, match="no GPU, or no driver for it, is there"):
        check_device("cuda:1")


def test_cards_are_numbered_from_zero(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for device in ("cuda", "cuda:0", "cuda:1"):
        check_device(device, "float32")
    with pytest.raises(ValueError, match=r"device='cuda:2': there are 2 GPUs here"):
        check_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=r"device='cuda': there are 0 GPUs here"):
        check_device("cuda")


def test_a_card_is_filled_to_seven_tenths_of_what_is_free(owners, monkeypatch):
    given = []
    monkeypatch.setattr("fedfactor.linalg.cuda.device_rows.check_device", lambda *_: None)
    monkeypatch.setattr("fedfactor.linalg.cuda.device_rows.placed", lambda *all_of_it: given.append(all_of_it))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda target: (1000, 3000))
    move(owners, PooledNMF(4), "cuda")
    move(owners, PooledNMF(4), "cuda:1", "bfloat16")
    assert [(str(target), storage, room) for _, _, target, storage, room in given] == [
        ("cuda", "float32", 700.0),
        ("cuda:1", "bfloat16", 700.0),
    ]
    assert move(owners, PooledNMF(4), None) is owners


@pytest.mark.parametrize(
    ("form", "storage", "bytes_of_one"),
    [
        (np.asarray, "float32", 300 * 40 * 4),
        (np.asarray, "float64", 300 * 40 * 8),
        (np.asarray, "bfloat16", 300 * 40 * 2),
        (scipy.sparse.csr_array, "float32", 300 * 40 * 12),
        (scipy.sparse.csr_array, "bfloat16", 300 * 40 * 12),
    ],
)
def test_rows_that_just_fit_are_moved(X, form, storage, bytes_of_one):
    for room, streamed in ((bytes_of_one, False), (bytes_of_one - 1, True)):
        moved = on_cpu(Federation({"a": form(X)}), storage, room).shard("a").X
        assert isinstance(moved, Streamed) is streamed
        if not streamed and form is np.asarray:
            assert moved.dtype == getattr(torch, storage)


def test_each_owner_takes_its_share_of_the_room(X):
    owners = Federation({name: X[:10] for name in "abc"})
    moved = on_cpu(owners, room=2 * 10 * 40 * 4)
    assert [isinstance(moved.shard(name).X, Streamed) for name in "abc"] == [False, False, True]


def test_a_mask_takes_a_byte_a_cell(X):
    seen = np.random.default_rng(1).random(X.shape) < 0.8
    owners = Federation({"a": np.where(seen, X, np.nan)}, missing_values=np.nan)
    on_cpu(owners, room=X.size * 5)
    with pytest.raises(DataError, match=r"has rows of 6e-05 GB, but the GPU has room for 6e-05 GB"):
        on_cpu(owners, room=X.size * 5 - 1)


def test_blocks_cover_all_rows_once(X):
    for rows in (X, scipy.sparse.csr_array(X)):
        streamed = Streamed(rows, torch.device("cpu"), block=4 * 40 * 7 + 3)
        assert (streamed.step, streamed.shape, streamed.is_cuda, streamed.ndim) == (7, (300, 40), False, 2)
        found = list(streamed.blocks())
        assert [(a, b) for a, b, _ in found][-2:] == [(287, 294), (294, 300)]
        dense = torch.cat([part.to_dense() if rows is not X else part for _, _, part in found])
        assert np.array_equal(dense.numpy(), X)
    assert Streamed(X, torch.device("cpu"), block=1).step == 1
    assert Streamed(X[:0], torch.device("cpu"), block=400).step == 400
    assert Streamed(X, torch.device("cpu")).step == 2**28 // 160


def test_moved_rows_are_those_of_the_owner(X, monkeypatch):
    monkeypatch.setattr("fedfactor.linalg.cuda.device_rows._BLOCK", 8 * 40 * 7)
    held = np.zeros(X.shape, bool)
    held[0, 0] = True
    shard = Shard(X, ~held, holdout=held)
    for given in (shard, Shard(torch.from_numpy(X), torch.from_numpy(~held), holdout=torch.from_numpy(held))):
        moved = on_cpu(Federation({"a": given}), "float64").shard("a")
        assert moved.X.dtype == torch.float64
        assert np.array_equal(moved.X.numpy(), X)
        assert np.array_equal(moved.mask.numpy(), ~held)
        assert np.array_equal(moved.holdout.numpy(), held)
        assert moved.lost == 0.0
    kept = on_cpu(Federation({"a": Shard(X, holdout=scipy.sparse.csr_array(held.astype("f4")))})).shard("a")
    assert scipy.sparse.issparse(kept.holdout)
    assert kept.mask is None


def test_what_rounding_lost_is_added_up_over_blocks(X, monkeypatch):
    monkeypatch.setattr("fedfactor.linalg.cuda.device_rows._BLOCK", 8 * 40 * 7)
    moved = on_cpu(Federation({"a": X}), "bfloat16").shard("a")
    assert moved.X.dtype == torch.bfloat16
    known = float(((moved.X.double().numpy() - X.astype("f8")) ** 2).sum())
    assert moved.lost == pytest.approx(known, rel=1e-12)
    assert moved.lost > 0
    again = on_cpu(Federation({"a": X}), "bfloat16").shard("a")
    assert torch.equal(again.X, moved.X)


def test_what_streams_comes_home_as_it_was(X):
    streamed = on_cpu(Federation({"a": X}), room=0)
    back = _fetched(streamed.shard("a"))
    assert back.X is X
    assert back.lost == 0.0


def test_a_moved_federation_keeps_what_was_said_of_it(X):
    owners = Federation({"a": X}, missing_values=-1.0)
    owners.preprocess = {"steps": "log"}
    moved = on_cpu(owners)
    assert moved.missing_values == -1.0
    assert moved.preprocess == {"steps": "log"}


def test_factors_come_home_to_the_library_of_the_rows(X):
    owners = Federation({"a": X[:20]})
    ran = fedfactor.run(PooledNMF(2), on_cpu(owners), rounds=1, seed=0)
    assert isinstance(ran.V, torch.Tensor)
    assert isinstance(home(ran, owners).V, np.ndarray)
    assert isinstance(home(ran, owners).down.V, np.ndarray)
    there = home(ran, on_cpu(owners))
    assert isinstance(there.V, torch.Tensor)
    assert isinstance(home(home(ran, owners), on_cpu(owners)).V, np.ndarray)  # what is no tensor stays as it is
