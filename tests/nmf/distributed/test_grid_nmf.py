"""NMF on a grid of blocks: the iterates of the whole matrix, and no node with more than its own block and lines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor import LocalEngine
from fedfactor.algorithms import DSANLS, GridNMF, PooledNMF
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError, IncompatibleError
from fedfactor.core.grid import block_federation
from fedfactor.core.pytree import leaves
from fedfactor.nmf.distributed.distributed_nmf import one_step
from fedfactor.privacy.noise import Clip
from fedfactor.testing.plain_loop import differences
from fedfactor.testing.unreliable_clients import Flaky

rng = np.random.default_rng(0)
X = rng.random((31, 3)) @ rng.random((3, 22)) + 0.01 * rng.random((31, 22))
X[X < 0.4] = 0
SMALL = X[:5, 10:14] + 0.1


def pooled(solver, iterations, X=X, k=4, seed=1):
    """Take the same steps on the whole matrix, from the same V, in plain NumPy but for the step itself."""
    federation = block_federation(X, (1, 1))
    start = GridNMF(k, solver).init_client(federation.shard("0-0"), federation.prepare(), Round(seed, 0, "0-0"))
    U, V = start.U, start.V
    for _ in range(iterations):
        U = one_step(solver, U, V @ V.T, X @ V.T)
        V = one_step(solver, V.T, U.T @ U, X.T @ U).T
    return U, V


@pytest.mark.parametrize("solver", ["hals", "mu", "bpp"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_every_grid_gives_the_iterates_of_the_whole_matrix(solver, kind):
    _, V = pooled(solver, 6)
    found = [
        fedfactor.run(GridNMF(4, solver), block_federation(kind(X), grid), rounds=12, seed=1)
        for grid in [(1, 1), (2, 3), (3, 2), (1, 4), (5, 1)]
    ]
    for run in found:
        assert np.abs(run.V - V).max() < 1e-10
        assert run.relative_error == pytest.approx(found[0].relative_error, rel=1e-10)


@pytest.mark.parametrize("grid", [(7, 2), (2, 6), (7, 6)])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_blocks_may_be_empty_where_there_are_more_nodes_than_rows_or_columns(grid, kind):
    run = fedfactor.run(GridNMF(2), block_federation(kind(SMALL), grid), rounds=12, seed=1)
    assert np.abs(run.V - pooled("hals", 6, SMALL, 2)[1]).max() < 1e-10
    assert {len(kept.U) for kept in run.factors.values()} == ({0, 1} if grid[0] == 7 else {2, 3})
    assert run.score.n == SMALL.size


def test_an_odd_number_of_rounds_fits_u_to_the_final_v():
    run = fedfactor.run(GridNMF(4), block_federation(X, (3, 2)), rounds=13, seed=1)
    _, V = pooled("hals", 6)
    assert np.abs(run.V - V).max() < 1e-10
    for i, bounds in enumerate([(0, 11), (11, 21), (21, 31)]):
        U = run.factors[f"{i}-0"].U
        assert np.array_equal(U, run.factors[f"{i}-1"].U)  # held by both nodes of the line
        G = (U @ V - X[slice(*bounds)]) @ V.T  # the gradient, against which no cell wants to move
        assert np.abs(np.where(U > 0, G, np.minimum(G, 0))).max() < 1e-4
    assert run.relative_error < run.history[-1].metrics["relative_error"]


def test_the_reported_error_is_that_of_the_factors():
    run = fedfactor.run(GridNMF(4), block_federation(X, (2, 2)), rounds=13, seed=1)
    U, V = pooled("hals", 6)
    error = np.linalg.norm(X - U @ V) / np.linalg.norm(X)
    assert run.history[12].metrics["relative_error"] == pytest.approx(error, rel=1e-9)
    assert "relative_error" not in run.history[0].metrics


def test_owners_of_rows_are_a_grid_of_one_column():
    rows = fedfactor.run(GridNMF(4), {"a": X[:11], "b": X[11:]}, rounds=12, seed=1)
    assert np.abs(rows.V - pooled("hals", 6)[1]).max() < 1e-10


def test_single_precision_stays():
    run = fedfactor.run(GridNMF(4), block_federation(X.astype(np.float32), (2, 3)), rounds=12, seed=1)
    assert run.V.dtype == np.float32
    assert np.abs(run.V - pooled("hals", 6)[1]).max() < 1e-3


def test_no_node_holds_or_sends_more_than_its_block_and_lines(monkeypatch):
    sizes = []
    original = GridNMF.client_step

    def watched(self, shard, state, down, at):
        result = original(self, shard, state, down, at)
        rows, columns = shard.X.shape
        for tree in (state, down, *result):
            sizes.extend((leaf.size, max(rows, columns) * 4) for _, leaf in leaves(tree))
        return result

    monkeypatch.setattr(GridNMF, "client_step", watched)
    fedfactor.run(GridNMF(4), block_federation(X, (4, 3)), rounds=5, seed=1)
    assert all(size <= most for size, most in sizes)
    assert max(size for size, _ in sizes) == 8 * 4  # eight of 31 rows, or of 22 columns


def test_blocks_are_cut_once_and_let_go_of_the_matrix():
    shards = [block_federation(X, (2, 3)).shard(f"{i}-{j}") for i in range(2) for j in range(3)]
    assert sum(shard.X.size for shard in shards) == X.size
    assert all(shard.X.flags.c_contiguous and not np.shares_memory(shard.X, X) for shard in shards)
    assert all(shard.X.base is None or shard.X.base.size == shard.X.size for shard in shards)


@pytest.mark.parametrize("solver", ["hals", "mu"])
def test_a_round_that_somebody_misses_is_asked_again(solver):
    absent = ((0, "0-1"), (2, "1-0"), (3, "1-0"), (3, "0-0"), (5, "*"))
    flaky = Flaky(GridNMF(4, solver), absent)
    run = LocalEngine().run(flaky, block_federation(X, (2, 2)), rounds=12, seed=1)
    plain = LocalEngine().run(GridNMF(4, solver), block_federation(X, (2, 2)), rounds=8, seed=1)
    assert [len(record.participants) for record in run.history] == [3, 4, 3, 2, 4, 0, 4, 4, 4, 4, 4, 4]
    for name, kept in plain.factors.items():
        assert not differences(kept, run.factors[name])


def test_it_converges():
    run = fedfactor.run(GridNMF(3, tol=1e-2), block_federation(X, (2, 2)), seed=1)
    assert run.status == "converged"
    assert run.rounds % 2 == 1  # where the sums for U have come, so that U fits V


def test_more_steps_between_sums_need_fewer_of_them():
    errors = [
        fedfactor.run(GridNMF(4, local_steps=steps), block_federation(X, (2, 2)), rounds=13, seed=1).relative_error
        for steps in (1, 4)
    ]
    assert errors[1] < errors[0]


@pytest.mark.slow
def test_processes_give_the_bits_of_threads():
    runs = [
        fedfactor.run(GridNMF(4), block_federation(kind(X), (2, 3)), engine=engine, rounds=7, seed=1)
        for kind in (np.asarray, sparse.csr_array)
        for engine in (LocalEngine(), LocalEngine("processes", workers=2))
    ]
    for one, two in (runs[:2], runs[2:]):
        for name, kept in one.factors.items():
            assert not differences(kept, two.factors[name])


def test_what_needs_whole_rows_is_refused():
    for algorithm in (PooledNMF(3), DSANLS(3)):
        with pytest.raises(IncompatibleError, match=r"needs whole rows.*Take GridNMF"):
            fedfactor.run(algorithm, block_federation(X, (2, 2)), rounds=2)


@pytest.mark.parametrize("privacy", ["secure-sum", "median", Clip(1.0), fedfactor.dp(epsilon=1.0, delta=1e-5)], ids=str)
def test_no_privacy_among_nodes_of_one_matrix(privacy):
    with pytest.raises(IncompatibleError, match=r"blocks of the same rows.*PooledNMF"):
        fedfactor.run(GridNMF(3), block_federation(X, (2, 2)), rounds=3, privacy=privacy)


def test_parties_of_a_federation_are_refused():
    from fedfactor.engines.engine import refuse_groups

    with pytest.raises(IncompatibleError, match="parties hold whole rows"):
        refuse_groups(GridNMF(3), Meta(22, ("a", "b")))
    refuse_groups(PooledNMF(3), Meta(22, ("a", "b")))


def test_blocks_that_are_no_grid_are_refused():
    shards = {name: block_federation(X, (2, 2)).shard(name) for name in ("0-0", "0-1", "1-0", "1-1")}
    with pytest.raises(DataError, match="leave a place out"):
        Federation({name: shard for name, shard in shards.items() if name != "1-0"}).prepare()
    twice = {**shards, "1-1": replace(shards["1-1"], position=(0, 1))}
    with pytest.raises(DataError, match="leave a place out, or take one twice"):
        Federation(twice).prepare()
    short = {**shards, "1-1": replace(shards["1-1"], X=shards["1-1"].X[:-1])}
    with pytest.raises(DataError, match=r"blocks of rows .* do not cover"):
        Federation(short).prepare()
    with pytest.raises(DataError, match="Bring one kind"):
        Federation({**shards, "rows": X}).prepare()


def test_a_bad_value_is_told_with_its_own_column():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(22)])
    frame.loc[30, "g20"] = -1.0
    with pytest.raises(DataError, match="g20"):
        fedfactor.run(GridNMF(3), block_federation(frame, (2, 2)), rounds=2)
