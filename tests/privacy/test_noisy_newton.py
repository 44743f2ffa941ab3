"""Newton steps from noisy sums: what one row can move, what the books say, and that they bring V further."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.pytree import leaves
from fedfactor.datasets.synthetic import planted_nmf
from fedfactor.linalg.row_clipping import LEAST_CLIP, MOST_CLIP, clipped_sums

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")


def flat(up):
    return np.concatenate([np.ravel(leaf) for _, leaf in leaves(up)])


def sent(algorithm, X, mask, down, seed):
    """Return what one client uploads, flat."""
    shard = fedfactor.Federation({"a": X}, missing_values=mask).shard("a")
    at = Round(seed, 0, "a", participants=("a",))
    meta = Meta(X.shape[1], ("a",), masked=mask is not None, n_rows=X.shape[0])
    return flat(algorithm.client_step(shard, algorithm.init_client(shard, meta, at), down, at)[1])


def one_row_less(seed, kind):
    """Return how far one row moves an upload, and how far it may: rows of all lengths, any clip that is accepted."""
    rng = np.random.default_rng(seed)
    n, m, k = int(rng.integers(2, 30)), int(rng.integers(2, 12)), int(rng.integers(1, 4))
    X = rng.exponential(size=(n, m)) * 10.0 ** rng.integers(-3, 4, (n, 1)) * (rng.random((n, m)) < 0.6)
    mask = None
    if kind == "nan":
        X[rng.random(X.shape) < 0.3] = np.nan
        mask = np.nan
    elif kind != "dense":
        X = scipy.sparse.csr_array(X)
        mask = "unstored" if kind == "unstored" else None
    algorithm = PooledNMF(min(k, m), noisy_step="newton", row_clip=1.0, row_count=float(n), row_noise=1.0)
    meta = Meta(m, ("a",), masked=mask is not None, n_rows=n)
    _, down = algorithm.init_server(meta, Round(seed, 0))
    down = replace(down, clip=np.float64(rng.uniform(LEAST_CLIP, MOST_CLIP)))
    assert not algorithm.accepts(down, meta)
    moved = np.linalg.norm(sent(algorithm, X, mask, down, seed) - sent(algorithm, X[1:], mask, down, seed))
    return moved, algorithm.sensitivity(meta)[1]


@pytest.mark.parametrize("kind", ["dense", "sparse", "nan", "unstored"])
def test_one_row_moves_what_is_sent_by_no_more_than_is_paid_for(kind):
    found = np.array([one_row_less(seed, kind) for seed in range(40)])
    assert (found[:, 0] <= found[:, 1]).all()
    assert found[:, 0].max() > 0.98  # a bound that nothing comes near would prove little
    assert found[:, 1].max() < 1.03


def test_values_of_missing_cells_are_never_read():
    rng = np.random.default_rng(0)
    X, mask = rng.random((30, 5)), rng.random((30, 5)) < 0.7
    V = X[:2] / np.linalg.norm(X[:2], axis=1, keepdims=True)
    more = {"clip": 0.1, "bound": 1.0, "sweeps": 3}
    one = clipped_sums(np.zeros((30, 2)), X, V, mask, **more)
    two = clipped_sums(np.zeros((30, 2)), np.where(mask, X, 1e9), V, mask, **more)
    assert all(np.array_equal(a, b) for a, b in zip((one[0], *one[1]), (two[0], *two[1]), strict=True))


def test_sums_of_complete_rows_are_the_same_with_a_mask():
    rng = np.random.default_rng(0)
    X = rng.random((30, 5))
    V = X[:2] / np.linalg.norm(X[:2], axis=1, keepdims=True)
    more = {"clip": 0.1, "bound": 1.0, "sweeps": 3}
    one = clipped_sums(np.zeros((30, 2)), X, V, None, **more)[1]
    two = clipped_sums(np.zeros((30, 2)), X, V, X >= 0, **more)[1]
    assert all(np.allclose(a, b, atol=1e-9) for a, b in zip(one, two, strict=True))


def test_a_clip_beyond_its_bounds_is_refused_before_rows_are_touched():
    """A tiny clip would let rounding count for more than its share of the noise."""
    algorithm = PooledNMF(2, row_clip=1.0, row_count=9.0, row_noise=1.0)
    meta = Meta(4, ("a",), n_rows=9)
    _, down = algorithm.init_server(meta, Round(0, 0))
    for clip in (LEAST_CLIP / 2, 2 * MOST_CLIP, np.nan):
        assert "clip" in algorithm.accepts(replace(down, clip=np.float64(clip)), meta)


@pytest.mark.slow
def test_missing_values_cost_little_where_the_budget_is_large():
    X = owners(3000)
    rng = np.random.default_rng(0)
    for rows in X.values():
        rows[rng.random(rows.shape) < 0.1] = np.nan
    holes = fedfactor.Federation(X, missing_values=np.nan)
    plain = fedfactor.run(PooledNMF(4), holes, rounds=60, seed=0).relative_error
    run = fedfactor.run(PooledNMF(4), holes, rounds=60, seed=0, privacy=fedfactor.dp(100.0, 1e-5))
    assert run.privacy["epsilon"] <= 100
    assert run.measured.relative_error < 1.1 * plain


def owners(n=6000, m=20, k=4):
    return dict(zip("abcde", np.array_split(planted_nmf(n, m, k, noise=0.05, seed=1).X, 5), strict=True))


@pytest.mark.slow
def test_they_come_closer_in_fewer_rounds_for_the_same_budget():
    X = owners()
    asked = fedfactor.dp(4.0, 1e-5, row_bound=float(np.quantile(np.linalg.norm(X["a"], axis=1), 0.9)), rows=6000)
    errors = {}
    for step in ("gradient", "newton"):
        runs = [
            fedfactor.run(PooledNMF(4, noisy_step=step), X, rounds=10, seed=seed, privacy=asked) for seed in range(3)
        ]
        assert all(run.privacy["epsilon"] <= 4.0 for run in runs)
        errors[step] = np.mean([run.measured.relative_error for run in runs])
    assert errors["newton"] < 0.8 * errors["gradient"]


def test_the_noise_must_be_stated_and_dp_states_it():
    X = owners(200)
    with pytest.raises(IncompatibleError, match="row_noise"):
        fedfactor.run(PooledNMF(4, noisy_step="newton", row_clip=1.0, row_count=200.0), X, rounds=2, seed=0)
    asked = fedfactor.dp(1.0, row_bound=1.0, rows=200, unit="subject", cap=2, subject={n: np.arange(40) for n in X})
    run = fedfactor.run(PooledNMF(4, noisy_step="newton"), X, rounds=2, seed=0, privacy=asked)
    assert run.algorithm.row_noise == pytest.approx(2 * run.privacy["noise_multiplier"], rel=0.1)
