"""DSANLS reaches the floor through sketches, whatever the scale, and says what it gives away."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor.algorithms import DSANLS, PooledNMF
from fedfactor.core.errors import DataError, ExposureWarning, SketchLeakError
from fedfactor.core.grid import GridShard, grid_federation
from fedfactor.nmf.distributed.sketch_exposure import Exposure, effective_support, recover
from fedfactor.nmf.distributed.sketches import draw_sketch, sketch_stream
from fedfactor.testing.plain_loop import drive

FLOOR = 0.0286


def low_rank(n=200, m=300, k=8):
    rng = np.random.default_rng(0)
    U, V = rng.random((n, k)), rng.random((m, k))
    U *= rng.random(U.shape) > 0.6
    V *= rng.random(V.shape) > 0.6
    return U @ V.T + 0.05 * rng.random((n, m))


def error(M, **settings):
    method = DSANLS(8, **{"iterations": 300, "leak": "ignore", **settings})
    return fedfactor.run(method, grid_federation(M, 4), seed=0).relative_error


@pytest.mark.slow
@pytest.mark.parametrize("sketch", ["gaussian", "subsampling", "count"])
def test_it_reaches_the_floor_and_does_not_feel_the_scale(sketch):
    assert error(low_rank(), sketch=sketch) < 1.06 * FLOOR
    M = low_rank()[:40]
    assert error(100 * M, sketch=sketch, iterations=10) == pytest.approx(
        error(M, sketch=sketch, iterations=10), rel=1e-6
    )


@pytest.mark.slow
def test_the_published_schedule_stalls():
    method = DSANLS.published(8, sketch="subsampling")
    method = type(method)(**{f: getattr(method, f) for f in method.__slots__} | {"iterations": 300, "leak": "ignore"})
    assert fedfactor.run(method, grid_federation(low_rank(), 4), seed=0).relative_error > 2 * FLOOR


@pytest.mark.slow
def test_the_estimated_error_is_close_to_the_true_one():
    M = low_rank(80, 90, 4)
    run = fedfactor.run(DSANLS(4, "gaussian", 0.4, iterations=60, leak="ignore"), grid_federation(M, 2), seed=0)
    late = [record.metrics["estimated_error"] for record in run.history[-20:-1]]
    assert np.mean(late) == pytest.approx(run.relative_error, rel=0.2)


def test_bytes_of_an_iteration_are_those_of_two_sketches():
    run = fedfactor.run(DSANLS(3, ratio=0.5, iterations=5, leak="ignore"), grid_federation(low_rank(60, 40), 3), seed=0)
    one = [record.bytes_up // 3 for record in run.history]
    assert one[1:3] == [8 * (3 * 30 + 2), 8 * (3 * 20 + 2)]
    assert one[-1] == 8 * 3 * 40
    assert run.status == "converged"
    assert run.rounds == 11


def test_without_collecting_nodes_keep_their_columns():
    M = low_rank(60, 40, 3)
    run = fedfactor.run(DSANLS(3, iterations=30, leak="ignore", collect=False), grid_federation(M, 3), seed=0)
    assert [kept.V.shape[1] for kept in run.factors.values()] == [14, 13, 13]
    assert run.V.shape == (3, 40)
    U = np.vstack([kept.U for kept in run.factors.values()])
    assert np.linalg.norm(M - U @ run.V) / np.linalg.norm(M) == pytest.approx(run.relative_error, rel=0.3)


@pytest.mark.integration
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_worker_processes_give_the_same_bits(layout):
    M = layout(low_rank(40, 30, 3))
    runs = [
        fedfactor.run(DSANLS(3, iterations=4, leak="ignore"), grid_federation(M, 3), engine=engine, seed=0)
        for engine in (fedfactor.LocalEngine(workers=2), fedfactor.LocalEngine("processes", workers=2))
    ]
    assert np.array_equal(runs[0].V, runs[1].V)


def test_rows_alone_are_refused():
    with pytest.raises(DataError, match="holds rows alone"):
        fedfactor.run(DSANLS(2), {"a": np.ones((3, 4)), "b": np.ones((3, 4))}, rounds=2, seed=0)


def test_blocks_that_do_not_cover_are_refused():
    whole = grid_federation(np.ones((4, 4)), 2)
    a, b = (whole.shard(name) for name in whole.names)
    moved = GridShard(b.X, columns=b.columns, row_start=2, column_start=0)
    with pytest.raises(DataError, match="columns"):
        fedfactor.run(DSANLS(1), {"a": a, "b": moved}, rounds=2, seed=0)


def test_odd_settings_are_refused():
    odd = {"ratio": 0, "sketch": "x", "iterations": 0, "schedule_start": -1.0, "growth": -0.1}
    for settings, match in (({name: value}, name) for name, value in odd.items()):
        with pytest.raises(ValueError, match=match):
            fedfactor.run(DSANLS(2, **settings), grid_federation(np.ones((6, 5)), 2), rounds=2, seed=0)


class TestLeak:
    M = low_rank(60, 50, 3)

    def test_a_run_warns_once_before_u_can_be_solved_for(self):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            fedfactor.run(DSANLS(3, ratio=0.3, iterations=6), grid_federation(self.M, 2), seed=0)
        said = [str(each.message) for each in heard if each.category is ExposureWarning]
        assert len(said) == 2  # each of two nodes, once
        assert "iteration 2: the row factor U of all nodes may be solved for" in said[0]
        assert "2 sketches of width 18 give 36 equations" in said[0]

    def test_a_refusal_comes_before_the_upload(self):
        heard = []
        with pytest.raises(SketchLeakError, match="iteration 2"):
            fedfactor.run(
                DSANLS(3, ratio=0.3, leak="refuse"), grid_federation(self.M, 2), seed=0, callbacks=(heard.append,)
            )
        assert len(heard) == 3  # the start and one iteration; the next sketch of U stayed home

    def test_what_was_broadcast_gives_u_away_once_the_accounting_says_so(self):
        algorithm = DSANLS(3, "gaussian", 0.3, iterations=100, leak="ignore")
        names = ("a", "b")
        rows = {"a": self.M[:30], "b": self.M[30:]}
        trace = drive(algorithm, rows, rounds=201, seed=5)
        U = np.vstack([trace.factors[name].U for name in names])
        seen = [down["a"] for down in trace.downs if type(down["a"]).__name__ == "ForV"]

        def attack(count, **options):
            last = seen[-count:]
            S = np.hstack(
                [draw_sketch("gaussian", 60, 18, sketch_stream(5, "rows", int(d.drawn))).rows() for d in last]
            )
            guess = recover(np.vstack([d.B.T for d in last]), S, **options)
            return np.linalg.norm(guess - U) / np.linalg.norm(U)

        assert attack(2) > 0.3
        assert attack(3) > 0.2
        assert attack(4) < 0.05
        # Whoever knows that U is not negative needs less, so a refusal must come before.
        assert attack(1, nonnegative=True) > 0.5
        assert attack(3, nonnegative=True) < 0.1
        assert Exposure(60, 18, 2, effective_support(U)).solvable
        assert not Exposure(60, 18, 1, effective_support(U)).solvable


@pytest.mark.slow
def test_same_matrix_other_methods():
    M = low_rank(80, 60, 3)
    sketched = fedfactor.run(DSANLS(3, ratio=0.5, leak="ignore"), grid_federation(M, 2), seed=0).relative_error
    pooled = fedfactor.run(PooledNMF(3), {"a": M[:30], "b": M[30:]}, seed=0).relative_error
    assert sketched < 1.1 * pooled


@pytest.mark.slow
def test_a_cap_bounds_the_factors_and_a_wide_one_changes_nothing():
    M = low_rank(60, 40, 3)
    runs = {
        cap: fedfactor.run(DSANLS(3, iterations=20, leak="ignore", cap=cap), grid_federation(M, 2), seed=0)
        for cap in (None, float(np.sqrt(2 * np.linalg.norm(M))), 0.5)
    }
    free, wide, tight = runs.values()
    np.testing.assert_array_equal(free.V, wide.V)
    assert max(tight.V.max(), *(kept.U.max() for kept in tight.factors.values())) <= 0.5 < free.V.max()
