"""Divergences on a GPU: the steps and sums are those of the processor in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core.pytree import to_numpy
from fedfactor.linalg.cuda import divergence as gpu
from fedfactor.linalg.missing_values import Penalty
from fedfactor.nmf.pooled.losses.beta_divergence import BetaDivergence
from fedfactor.nmf.pooled.losses.itakura_saito import ItakuraSaito
from fedfactor.nmf.pooled.losses.kullback_leibler import KullbackLeibler

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

LOSSES = {
    "kullback-leibler": KullbackLeibler(),
    "itakura-saito": ItakuraSaito(),
    "0.5": BetaDivergence(0.5),
    "1.5": BetaDivergence(1.5),
    "3": BetaDivergence(3.0),
}


def problem(n, m, k, *, zeros=False, seed=0):
    rng = np.random.default_rng(seed)
    U, V = rng.gamma(1.0, size=(n, k)), rng.gamma(1.0, size=(k, m))
    V /= V.sum(axis=1, keepdims=True)
    X = U @ V * rng.gamma(5.0, 0.2, size=(n, m)) + 1e-3 / m
    if zeros:
        X[rng.random((n, m)) < 0.3] = 0
    return X, U, V


def on_gpu(*arrays):
    return [torch.tensor(array, dtype=torch.float32).cuda() for array in arrays]


def far(found, expected):
    return np.abs(to_numpy(found).astype(np.float64) - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (701, 203, 5), (130, 1025, 33), (2000, 64, 64)], ids=str)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weights", [(0.0, 0.0), (0.1, 0.2)], ids=str)
def test_steps_and_sums_are_those_of_the_processor(name, shape, masked, weights):
    loss = LOSSES[name].over(masked)
    n, m, k = shape
    X, U, V = problem(n, m, k, zeros=name in ("kullback-leibler", "0.5", "1.5", "3"))
    mask = np.random.default_rng(1).random((n, m)) < 0.7 if masked else None
    there = None if mask is None else torch.tensor(mask).cuda()
    X32, U32, V32 = on_gpu(X, U, V)
    assert gpu.fits(X32, there, k)
    pay = Penalty(l1=weights[0], l2=weights[1])
    expected = loss.rows(U, X, V, mask, sweeps=4, pay=pay)
    assert far(loss.rows(U32, X32, V32, there, sweeps=4, pay=pay), expected) < 1e-4
    wanted = loss.sums(U, X, V, mask, total=1.0)
    found = loss.sums(U32, X32, V32, there, total=1.0)
    assert far(found.N, wanted.N) < 1e-4
    assert far(found.D, wanted.D) < 1e-4
    scale = loss.error(X, 0 * U + U.mean(), 0 * V + V.mean(), mask)[0]
    assert abs(float(found.sse) - float(wanted.sse)) < 1e-4 * scale
    for mine, theirs in zip(loss.error(X32, U32, V32, there), loss.error(X, U, V, mask), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-4 * scale)


@pytest.mark.parametrize("k", [1, 20, 100])
def test_sparse_counts_are_those_of_dense_ones(k):
    X, U, V = problem(500, 310, k, zeros=True)
    X[np.random.default_rng(2).random(X.shape) < 0.8] = 0
    X32, U32, V32 = on_gpu(X, U, V)
    stored = X32.to_sparse_csr()
    loss, pay = KullbackLeibler(), Penalty(l1=0.1, l2=0.0)
    assert far(loss.rows(U32, stored, V32, None, sweeps=4, pay=pay), loss.rows(U, X, V, None, sweeps=4, pay=pay)) < 1e-4
    found, wanted = loss.sums(U32, stored, V32, None, total=1.0), loss.sums(U, X, V, None, total=1.0)
    assert far(found.N, wanted.N) < 1e-4
    assert float(found.sse) == pytest.approx(float(wanted.sse), rel=1e-3)


@pytest.mark.parametrize("loss", ["kullback-leibler", "itakura-saito", 0.5, 1.5])
@pytest.mark.parametrize("owners", [1, 3])
def test_a_run_reaches_the_error_of_the_processor(loss, owners):
    X, _, _ = problem(600, 90, 4)
    X = X.astype(np.float32)
    parts = {f"client {i}": part for i, part in enumerate(np.array_split(X, owners))}
    there = {name: torch.tensor(part).cuda() for name, part in parts.items()}
    mine = fedfactor.run(PooledNMF(4, loss=loss), there, rounds=30, seed=0)
    theirs = fedfactor.run(PooledNMF(4, loss=loss), parts, rounds=30, seed=0)
    assert mine.V.is_cuda
    assert mine.relative_error == pytest.approx(theirs.relative_error, rel=2e-3)


def test_sparse_counts_run():
    X, _, _ = problem(400, 80, 4, zeros=True)
    X = np.where(np.random.default_rng(3).random(X.shape) < 0.7, 0, X).astype(np.float32)
    mine = fedfactor.run(
        PooledNMF(4, loss="kullback-leibler"), {"all": torch.tensor(X).cuda().to_sparse_csr()}, rounds=30, seed=0
    )
    theirs = fedfactor.run(PooledNMF(4, loss="kullback-leibler"), {"all": X}, rounds=30, seed=0)
    assert mine.relative_error == pytest.approx(theirs.relative_error, rel=2e-3)
