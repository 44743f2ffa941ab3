"""Newton steps from noisy sums: what one row can move, what the books say, and that they bring V further."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.pytree import leaves
from fedfactor.datasets.synthetic import planted_nmf

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")


def flat(up):
    return np.concatenate([np.ravel(leaf) for _, leaf in leaves(up)])


@pytest.mark.parametrize("seed", range(20))
def test_one_row_moves_what_is_sent_by_no_more_than_is_paid_for(seed):
    rng = np.random.default_rng(seed)
    n, m, k = int(rng.integers(1, 30)), int(rng.integers(2, 12)), int(rng.integers(1, 4))
    X = rng.exponential(size=(n, m)) * 10.0 ** rng.integers(-3, 4, (n, 1)) * (rng.random((n, m)) < 0.6)
    algorithm = PooledNMF(min(k, m), noisy_step="newton", row_clip=1.0, row_count=float(n), row_noise=1.0)
    meta = Meta(m, ("a",), n_rows=n)
    _, down = algorithm.init_server(meta, Round(seed, 0))
    sent = []
    for rows in (X, X[1:]):
        shard = fedfactor.Federation({"a": rows}).shard("a")
        at = Round(seed, 0, "a", participants=("a",))
        _, up = algorithm.client_step(shard, algorithm.init_client(shard, meta, at), down, at)
        sent.append(flat(up))
    _, most = algorithm.sensitivity(meta)
    assert np.linalg.norm(sent[0] - sent[1]) <= most
    assert most < 1.1 * PooledNMF(min(k, m), row_clip=1.0, row_count=float(n)).sensitivity(meta)[1]


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
