"""Every algorithm that takes tensors, on a CUDA card: what clients send must be what they send on the processor."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

import fedfactor
from fedfactor import algorithms
from fedfactor.core.algorithm import Round, download_for
from fedfactor.core.client_data import Federation
from fedfactor.core.pytree import leaves, to_numpy
from fedfactor.engines.local.cuda_graphs import Tape
from fedfactor.linalg.cuda import launch as cuda
from fedfactor.linalg.cuda.device_rows import placed
from fedfactor.linalg.nnls import solve_rows
from fedfactor.linalg.single_pass import one_pass, passes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

ALGORITHMS = {
    "PooledNMF": lambda: algorithms.PooledNMF(4),
    "PooledNMF, random start": lambda: algorithms.PooledNMF(4, start="random"),
    "PooledNMF, penalties": lambda: algorithms.PooledNMF(4, alpha_U=0.01, l1_ratio=0.5),
    "PooledNMF, own components": lambda: algorithms.PooledNMF(4, n_private=1),
    "PooledNMF, counts": lambda: algorithms.PooledNMF(4, loss="kullback-leibler"),
    "FNMF": lambda: algorithms.FNMF(4),
    "FedAvgNMF": lambda: algorithms.FedAvgNMF(4),
    "FedProxNMF": lambda: algorithms.FedProxNMF(4),
    "OneShotNMF": lambda: algorithms.OneShotNMF(4),
    "DistributedNMF": lambda: algorithms.DistributedNMF(4),
    "FELB": lambda: algorithms.FELB(4),
    "FALB": lambda: algorithms.FALB(4),
    "PooledBMF": lambda: algorithms.PooledBMF(4),
}
BINARY = ("FELB", "FALB", "PooledBMF")


def rows(name, n=900, m=70):
    rng = np.random.default_rng(0)
    U, V = rng.random((n, 4)), rng.random((4, m)) ** 4
    X = U @ V + 0.05 * rng.random((n, m))
    return (X > np.median(X)).astype(np.float32) if name in BINARY else X.astype(np.float32)


def first_upload(algorithm, data):
    """Return what one owner sends first."""
    federation = Federation(data)
    meta = federation.prepare(algorithm.domain)
    algorithm.check(meta)
    at = Round(3, 0)
    _, down = algorithm.init_server(meta, at)
    name = meta.clients[0]
    shard, here = federation.shard(name), Round(3, 0, client=name)
    state = algorithm.init_client(shard, meta, here)
    return algorithm.client_step(shard, state, download_for(down, name), here)[1]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_first_upload_is_that_of_the_processor(name):
    X = rows(name)
    here = first_upload(ALGORITHMS[name](), {"a": X[:500], "b": X[500:]})
    there = first_upload(ALGORITHMS[name](), {"a": torch.tensor(X[:500]).cuda(), "b": torch.tensor(X[500:]).cuda()})
    for (path, mine), (_, theirs) in zip(leaves(here), leaves(there), strict=True):
        mine, theirs = to_numpy(mine).astype(np.float64), to_numpy(theirs).astype(np.float64)
        # One shot is hundreds of steps from the same start, which carry rounding further.
        assert np.abs(mine - theirs).max() <= (3e-2 if name == "OneShotNMF" else 1e-3) * np.abs(mine).max(), path


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_goes_through(name):
    X = rows(name)
    owners = {f"owner {i}": torch.tensor(part).cuda() for i, part in enumerate(np.array_split(X, 5))}
    run = fedfactor.run(ALGORITHMS[name](), owners, rounds=5, seed=1)
    assert np.isfinite(to_numpy(run.V)).all()
    assert run.V.is_cuda


@pytest.mark.parametrize("k", [1, 5, 20, 33, 50, 100])
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_kernels_are_plain_products(k, kind):
    torch.manual_seed(0)
    X = torch.rand(3001, 203, device="cuda").to(getattr(torch, kind))
    V, Ut = torch.rand(k, 203, device="cuda"), torch.rand(k, 3001, device="cuda")
    wide = X.double()
    for stored in (X, X.T.contiguous().T):
        assert close(cuda.cross(stored, V), V.double() @ wide.T) < 1e-5
        assert close(cuda.sums(Ut, stored), Ut.double() @ wide) < 1e-6


@pytest.mark.parametrize("k", [1, 5, 20, 50, 100, 200])
@pytest.mark.parametrize("tol", [0.0, 0.1])
def test_sweeps_are_those_of_the_processor(k, tol):
    rng = np.random.default_rng(0)
    X, V, W = (rng.random(shape) for shape in ((701, 3 * k + 5), (k, 3 * k + 5), (701, k)))
    expected = solve_rows(W, V @ V.T, X @ V.T, sweeps=7, tol=tol, l1=0.1, l2=0.2)
    there = [torch.tensor(part, dtype=torch.float32).cuda() for part in (W, V @ V.T, X @ V.T)]
    got = solve_rows(*there, sweeps=7, tol=tol, l1=0.1, l2=0.2)
    far = np.abs(got.double().cpu().numpy() - expected).max(axis=1) / expected.max()
    # Where a row stops is decided by a comparison that rounding may turn.
    assert (far < 1e-3).mean() > (0.99 if tol else 0.999)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("k", [4, 20, 50, 150])
def test_owners_served_together_are_served_as_one_by_one(kind, k):
    torch.manual_seed(0)
    X = torch.rand(3001, 203, device="cuda").to(getattr(torch, kind))
    V = torch.rand(k, 203, device="cuda")
    parts = [X[:1000], X[1000:1003], X[1003:]]
    Us = [torch.rand(part.shape[0], k, device="cuda") for part in parts]
    together = passes(parts, V, Us, sweeps=5, l1=0.1)
    again = passes(parts, V, [done.U for done in together], sweeps=5)
    for part, U, done, second in zip(parts, Us, together, again, strict=True):
        alone = one_pass(part, V, U, sweeps=5, l1=0.1)
        for mine, theirs in zip(done, alone, strict=True):
            assert close(mine, theirs.double()) < 1e-5
        assert close(second.A, one_pass(part, V, alone.U, sweeps=5).A.double()) < 1e-5


def test_an_upload_that_is_not_finite_is_left_out(monkeypatch):
    owners = {f"owner {i}": torch.tensor(part).cuda() for i, part in enumerate(np.array_split(rows(""), 5))}
    method = algorithms.PooledNMF(4, start="random")
    good = fedfactor.run(method, owners, rounds=6, seed=1, participation=but("owner 3"))
    plain = algorithms.PooledNMF._step

    def spoiled(self, shard, state, down, at, done=None):
        state, up = plain(self, shard, state, down, at, done)
        return state, replace(up, A=up.A * float("nan")) if at.client == "owner 3" else up

    monkeypatch.setattr(algorithms.PooledNMF, "_step", spoiled)
    run = fedfactor.run(method, owners, rounds=6, seed=1)
    assert run.rejected == ("owner 3",)
    assert all(len(record.participants) == 4 for record in run.history)
    assert close(run.V, good.V.double()) < 1e-4


def but(name):
    return lambda at, names: [each for each in names if each != name]


@pytest.mark.parametrize("tol", [0, 1e-3])
@pytest.mark.parametrize("form", ["one", "five", "sparse"])
def test_rounds_that_are_played_are_those_that_are_taken(tol, form, tmp_path, monkeypatch):
    X = torch.tensor(rows("")).cuda()
    owners = {str(i): part for i, part in enumerate(X.split(900 if form == "one" else 190))}
    if form == "sparse":
        owners = {name: part.to_sparse_csr() for name, part in owners.items()}
    method, played = algorithms.PooledNMF(4, tol=tol), []
    play = Tape.play
    monkeypatch.setattr(Tape, "play", lambda tape, ahead: played.append(1) or play(tape, ahead=ahead))
    plain = fedfactor.run(method, owners, rounds=40, seed=1)
    assert len(played) >= plain.rounds - 5
    fedfactor.run(method, owners, rounds=7, seed=1, checkpoint=tmp_path / "kept")
    again = fedfactor.run(method, owners, rounds=40, seed=1, checkpoint=tmp_path / "kept")
    monkeypatch.setattr(algorithms.PooledNMF, "steady", lambda *_: False)
    taken = fedfactor.run(method, owners, rounds=40, seed=1)
    for other in (taken, again):
        assert other.rounds == plain.rounds
        assert other.status == plain.status
        assert other.bytes_up == plain.bytes_up
        assert close(other.V, plain.V.double()) < 1e-4
        assert other.relative_error == pytest.approx(plain.relative_error, rel=1e-4)
    told, known = ([record.metrics.get("relative_error") for record in run.history] for run in (plain, taken))
    assert told[3:] == pytest.approx(known[3:], rel=1e-4)


@pytest.mark.parametrize("storage", [None, "bfloat16", "float64"])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_rows_are_moved_and_results_come_back(storage, form):
    X = rows("")
    here = fedfactor.PooledNMF(4, n_clients=3, random_state=0, rounds=40, tol=0).fit(form(X))
    there = fedfactor.PooledNMF(4, n_clients=3, random_state=0, rounds=40, tol=0, device="cuda", storage=storage)
    U = there.fit_transform(form(X))
    assert isinstance(U, np.ndarray)
    assert isinstance(there.components_, np.ndarray)
    assert isinstance(there.transform(form(X)), np.ndarray)
    exact = np.linalg.norm(X - U.astype(float) @ there.components_) / np.linalg.norm(X.astype(float))
    assert exact == pytest.approx(here.relative_error_, rel=1e-3)
    assert there.relative_error_ == pytest.approx(exact, rel=1e-3 if storage != "bfloat16" else 1e-2)


@pytest.mark.parametrize(
    "name", ["FNMF", "FedAvgNMF", "FedProxNMF", "OneShotNMF", "DistributedNMF", "FELB", "PooledBMF"]
)
def test_every_face_takes_the_device(name):
    X = rows(name)
    model = getattr(fedfactor, name)(4, n_clients=3, random_state=0, rounds=3, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert isinstance(model.fit_transform(X), np.ndarray)
    assert np.isfinite(model.components_).all()


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_rows_that_do_not_fit_are_streamed(form):
    X = rows("", n=5000)
    owners = Federation({"a": form(X[:3000]), "b": form(X[3000:])})
    moved = placed(owners, algorithms.PooledNMF(4), torch.device("cuda"), "float32", 0)
    for name in moved.names:
        moved.shard(name).X.step = 300
    there = fedfactor.run(algorithms.PooledNMF(4), moved, rounds=10, seed=0)
    here = fedfactor.run(algorithms.PooledNMF(4), owners, rounds=10, seed=0)
    assert there.V.is_cuda
    assert close(there.V.cpu(), torch.tensor(here.V).double()) < 1e-3
    assert there.relative_error == pytest.approx(here.relative_error, rel=1e-3)


def test_missing_cells_on_a_card():
    X = rows("")
    seen = np.random.default_rng(1).random(X.shape) < 0.8
    holes = np.where(seen, X, np.nan)
    here, there = (
        fedfactor.PooledNMF(4, random_state=0, rounds=5, tol=0, missing_values=np.nan, device=device).fit(holes)
        for device in (None, "cuda")
    )
    assert np.abs(here.components_ - there.components_).max() < 1e-3 * here.components_.max()


def test_sparse_rows():
    torch.manual_seed(0)
    dense = torch.rand(2000, 300, device="cuda") * (torch.rand(2000, 300, device="cuda") < 0.1)
    V, U = torch.rand(20, 300, device="cuda"), torch.zeros(2000, 20, device="cuda")
    one, other = one_pass(dense.to_sparse_csr(), V, U, sweeps=5), one_pass(dense, V, U, sweeps=5)
    for part, same in zip(one, other, strict=True):
        assert close(part, same.double()) < 1e-4
    run = fedfactor.run(algorithms.PooledNMF(5), {"a": dense.to_sparse_csr()}, rounds=5, seed=0)
    assert run.V.is_cuda


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("tf32", [False, True])
def test_the_account_of_the_error_is_exact(kind, tf32):
    torch.manual_seed(0)
    U, V = torch.rand(20_000, 10, device="cuda") ** 4, torch.rand(10, 500, device="cuda") ** 4
    X = (U @ V) * (1 + 0.1 * torch.rand(20_000, 500, device="cuda"))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        run = fedfactor.run(algorithms.PooledNMF(10), {"a": X}, rounds=60, seed=0, device="cuda", storage=kind)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    U, V = run.factors["a"].U.double(), run.V.double()
    exact = float((X.double() - U @ V).norm() / X.double().norm())
    assert run.history[-1].metrics["relative_error"] == pytest.approx(exact, rel=1e-3)
    assert run.relative_error == pytest.approx(exact, rel=1e-3)


def close(got, expected):
    return float((got.double() - expected).abs().max() / expected.abs().max())
