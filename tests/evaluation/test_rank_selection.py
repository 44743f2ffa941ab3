"""Choosing the rank: the planted one is found, and no row, no cell and no U is sent."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse

import fedfactor
from fedfactor.algorithms import FELB, FedAvgNMF, PooledNMF
from fedfactor.cli import app
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.pytree import leaves
from fedfactor.datasets.synthetic import planted_nmf
from fedfactor.evaluation.holdout import hold_out_all
from fedfactor.evaluation.rank_selection import recommend
from fedfactor.io.partition import split_rows
from fedfactor.selection import hold_out
from fedfactor.testing.plain_loop import drive
from tests.command_line import CliRunner


def planted(seed, k=3):
    data = planted_nmf(120, 20, k, noise=0.1, n_clients=3, seed=seed)
    return {f"owner {name}": rows for name, rows in split_rows(data.X, data.labels).items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_planted_rank_is_found(seed):
    found = fedfactor.select_rank(planted(seed), range(1, 6), repeats=2, rounds=40, seed=seed)
    assert found.recommended == 3
    assert found.errors.shape == (2, 5)
    assert np.all(np.diff(found.fitted.mean(axis=0)) < 0)


def test_no_row_and_no_U_is_sent():
    owners = planted(0)
    speckled = hold_out_all(Federation(owners), 0.1, 0)
    shards = {name: speckled.shard(name) for name in speckled.names}
    trace = drive(PooledNMF(3), shards, rounds=3)
    n_rows = {name: shard.n_rows for name, shard in shards.items()}
    for ups in trace.ups:
        for name, up in ups.items():
            assert type(up).uplink == "sum"
            for _, leaf in leaves(up):
                assert n_rows[name] not in np.shape(leaf)
    score = trace.scores["owner 0"]
    assert {np.shape(leaf) for _, leaf in leaves(score)} == {()}
    assert type(score).uplink == "sum"


def test_hidden_cells_are_not_read():
    owners = planted(1)
    one = hold_out_all(Federation(owners), 0.2, 3)
    two = Federation(
        {
            name: Shard(np.where(shard.holdout, 99.0, shard.X), shard.mask, None, shard.holdout)
            for name, shard in ((name, one.shard(name)) for name in one.names)
        }
    )
    left, right = (fedfactor.run(PooledNMF(3), federation, rounds=5, seed=0) for federation in (one, two))
    np.testing.assert_array_equal(left.V, right.V)
    assert right.relative_error != left.relative_error


@pytest.mark.parametrize("kind", ["dense", "masked", "stored", "sparse"])
def test_hold_out(kind):
    rng = np.random.default_rng(0)
    X = rng.random((50, 12)) * (rng.random((50, 12)) < 0.7)
    if kind == "masked":
        shard = Shard.of(np.where(X == 0, np.nan, X), missing_values=np.nan)
    elif kind == "stored":
        shard = Shard.of(scipy.sparse.csr_array(X), missing_values="unstored")
    else:
        shard = Shard.of(scipy.sparse.csr_array(X) if kind == "sparse" else X)
    kept = hold_out(shard, 0.3, rng)
    if kind == "stored":
        assert kept.X.nnz + kept.holdout.nnz == shard.X.nnz
        np.testing.assert_array_equal((kept.X + kept.holdout).toarray(), X)
        assert (np.diff(kept.X.indptr) > 0).sum() == (np.diff(shard.X.indptr) > 0).sum()
    else:
        seen = np.ones(X.shape, bool) if kind != "masked" else X != 0
        np.testing.assert_array_equal(kept.mask | kept.holdout, seen)
        assert not (kept.mask & kept.holdout).any()
        assert 0.2 < kept.holdout.sum() / seen.sum() < 0.4
        assert kept.mask.any(axis=1).all()


@pytest.mark.integration
def test_processes_carry_held_out_cells():
    X = scipy.sparse.random_array((40, 8), density=0.6, format="csr", rng=np.random.default_rng(0))
    federation = hold_out_all(Federation({"a": X[:20], "b": X[20:]}, missing_values="unstored"), 0.2, 0)
    runs = [
        fedfactor.run(PooledNMF(2), federation, rounds=2, seed=0, engine=fedfactor.LocalEngine(backend, 1))
        for backend in ("threads", "processes")
    ]
    assert runs[0].relative_error == runs[1].relative_error


def test_recommend_refuses_errors_that_tell_nothing():
    with pytest.raises(fedfactor.DataError, match="No rank predicts"):
        recommend(np.full((2, 3), np.inf))


def test_a_word_that_only_hidden_cells_have_does_not_end_the_search():
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(0.5, size=(60, 3)) @ rng.gamma(0.3, size=(3, 15)) * 2).astype(float)
    X[:, 0], X[7, 0] = 0, 5
    X[X.sum(axis=1) == 0, 1] = 1
    found = fedfactor.select_rank(
        {"a": scipy.sparse.csr_array(X[:30]), "b": scipy.sparse.csr_array(X[30:])},
        [1, 3],
        algorithm=PooledNMF(1, loss="kullback-leibler"),
        share=0.4,
        repeats=2,
        rounds=10,
        seed=0,
    )
    assert np.isfinite(found.errors).all()


def test_recommend_takes_the_smallest_of_equals():
    errors = np.array([[0.9, 0.501, 0.50, 0.6], [0.9, 0.499, 0.50, 0.6], [0.9, 0.502, 0.50, 0.6]])
    assert recommend(errors) == (2, 1)
    assert recommend(errors[:1]) == (2, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": []}, "at least one candidate"),
        ({"ranks": [0, 2]}, "whole numbers from 1"),
        ({"ranks": [2], "share": 1.0}, "must lie between 0 and 1"),
        ({"ranks": [2], "repeats": 0}, "at least 1"),
        ({"ranks": [2], "algorithm": FedAvgNMF(2)}, "needs complete rows"),
        ({"ranks": [1.7, 2]}, "whole numbers from 1"),
        ({"ranks": [2], "algorithm": fedfactor.PooledNMF}, "PooledNMF is a class. Pass an instance"),
    ],
)
def test_odd_settings(options, message):
    with pytest.raises((ValueError, fedfactor.IncompatibleError), match=message):
        fedfactor.select_rank(planted(0), **options)


def test_an_estimator_is_taken_with_its_parameters_of_the_run():
    options = {"repeats": 1, "seed": 0}
    ours = fedfactor.select_rank(planted(0), [2, 3], algorithm=fedfactor.PooledNMF(loss=1, rounds=3), **options)
    theirs = fedfactor.select_rank(planted(0), [2, 3], algorithm=PooledNMF(1, loss=1), rounds=3, **options)
    np.testing.assert_array_equal(ours.errors, theirs.errors)
    budget = fedfactor.dp(epsilon=1, delta=1e-6, unit="client", clip=1.0)
    with pytest.raises(fedfactor.IncompatibleError, match="2 ranks with repeats=1 makes 2 runs"):
        fedfactor.select_rank(planted(0), [2, 3], algorithm=fedfactor.PooledNMF(privacy=budget), **options)


def test_a_budget_is_for_one_run():
    budget = fedfactor.dp(epsilon=1, delta=1e-6, unit="client", clip=1.0)
    with pytest.raises(fedfactor.IncompatibleError, match="2 ranks with repeats=3 makes 6 runs"):
        fedfactor.select_rank(planted(0), [2, 3], rounds=2, privacy=budget)


def test_a_rank_too_high_is_told_before_the_first_run():
    seen = []
    with pytest.raises(fedfactor.DataError, match="n_components=50"):
        fedfactor.select_rank(planted(0), [2, 50], rounds=2, progress=lambda *figures: seen.append(figures))
    assert not seen


def test_a_missing_folder_is_told_before_the_first_run(tmp_path):
    np.save(tmp_path / "a.npy", planted(0)["owner 0"])
    asked = ["rank", str(tmp_path / "a.npy"), "-k", "2", "--rounds", "2", "-o", str(tmp_path / "no" / "curve.json")]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 2
    assert "there is no folder" in result.output
    assert "run 1" not in result.output


@pytest.mark.slow
def test_command_line(tmp_path):
    for name, rows in planted(0).items():
        np.save(tmp_path / f"{name}.npy", rows)
    out = tmp_path / "curve.json"
    asked = ["rank", str(tmp_path), "-k", "2-4", "--repeats", "1", "--rounds", "20", "--seed", "0", "-o", str(out)]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert "Recommended rank: 3" in result.output
    assert json.loads(out.read_text())["ranks"] == [2, 3, 4]
    wrong = CliRunner().invoke(app, ["rank", str(tmp_path), "-k", "two"])
    assert wrong.exit_code == 2


@pytest.mark.slow
def test_the_rank_is_that_of_even_columns_where_units_differ():
    rng = np.random.default_rng(2)
    X = rng.gamma(0.7, 1, (120, 3)) @ rng.gamma(1.0, 1, (3, 16)) * rng.uniform(0.9, 1.1, (120, 16))
    X, names = X * 10 ** rng.uniform(-1, 3, 16), tuple(f"lab {j}" for j in range(16))
    owners = {name: Shard(X[start::3], None, names) for start, name in enumerate("abc")}
    found = fedfactor.select_rank(Federation(owners), range(1, 6), repeats=2, rounds=40, seed=0)
    assert (found.recommended, found.scaled) == (3, True)
    bare = {name: Shard(shard.X, None, None) for name, shard in owners.items()}
    assert not fedfactor.select_rank(Federation(bare), [1, 2], repeats=1, rounds=3, seed=0).scaled


def test_boolean_methods_that_need_complete_rows_are_searched_with_one_that_does_not():
    rng = np.random.default_rng(0)
    X = ((rng.random((80, 3)) < 0.4).astype(int) @ (rng.random((3, 20)) < 0.3) > 0).astype(float)
    found = fedfactor.select_rank({"a": X[:40], "b": X[40:]}, [1, 3], algorithm=FELB(1), repeats=1, seed=0)
    assert (found.recommended, found.searched_with) == (3, "PooledBMF")
