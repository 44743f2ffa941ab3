"""When an algorithm ends, and what it tells on the way, from states written by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fedfactor.algorithms import (
    DSANLS,
    FCF,
    FELB,
    FNMF,
    AsynSD,
    Biases,
    BooleanVotes,
    DistributedNMF,
    FedMF,
    FedProxNMF,
    FedSPLIT,
    PooledBMF,
    PooledCF,
    PooledCNMF,
    PooledEASE,
    PooledNMF,
)
from fedfactor.boolean.pooled.server_search import DONE
from fedfactor.core.algorithm import Meta, Round
from fedfactor.nmf.distributed.dsanls import ForU, ForV, SketchOfU, SketchOfV


def still(flat):
    return SimpleNamespace(flat=np.int64(flat))


@pytest.mark.parametrize("kind", [DistributedNMF, FedProxNMF, PooledCNMF, PooledNMF])
def test_three_rounds_that_bring_nothing_are_the_end_unless_all_rounds_are_asked_for(kind):
    assert [kind(2, tol=1e-3).converged(still(flat)) for flat in (0, 2, 3, 4)] == [False, False, True, True]
    assert not kind(2, tol=0.0).converged(still(9))


def test_patience_is_a_setting_of_fnmf():
    assert [FNMF(2, patience=5).converged(still(flat)) for flat in (4, 5)] == [False, True]
    assert not FNMF(2, patience=5, tol=0.0).converged(still(9))


@pytest.mark.parametrize("method", [FELB(2, tol=0.01), PooledBMF(2, solver="proximal", tol=0.01)])
def test_a_boolean_v_that_stands_still_is_the_end(method):
    def over(moved, gap):
        return method.converged(SimpleNamespace(moved=np.float64(moved), gap=np.float64(gap)))

    assert over(0.009, 9e-5)
    assert not over(0.01, 9e-5)  # it still moves
    assert not over(0.009, 1e-4)  # it is not yet Boolean


def test_a_search_ends_in_its_last_stage():
    assert PooledBMF(2).converged(SimpleNamespace(stage=np.int64(DONE)))
    assert not PooledBMF(2).converged(SimpleNamespace(stage=np.int64(DONE - 1)))


def test_biases_stand_still_in_units_of_the_spread():
    def over(moved, tol=0.1):
        return Biases(tol=tol).converged(SimpleNamespace(moved=np.float64(moved), spread=np.float64(2.0)))

    assert over(0.2)
    assert not over(0.21)
    assert not over(0.0, tol=0.0)


def test_ratings_kept_aside_come_back_for_two_exchanges():
    def over(full, **settings):
        return PooledCF(2, **settings).converged(SimpleNamespace(full=np.int64(full)))

    assert [over(full) for full in (0, 1, 2, 3)] == [False, False, False, True]
    assert [over(full, validation=0.0) for full in (0, 1)] == [False, True]
    assert [over(full, feedback="implicit") for full in (0, 1)] == [False, True]


def test_votes_are_complete_when_all_have_voted():
    def over(voters):
        return BooleanVotes(2).converged(SimpleNamespace(voters=np.float64(voters), n_clients=np.int64(4)))

    assert [over(voters) for voters in (3, 4)] == [False, True]
    told = BooleanVotes(2).report(SimpleNamespace(voters=np.float64(3), late=np.float64(1)))
    assert told == {"voters": 3.0, "late": 1.0}


def sums(sse, total):
    return SimpleNamespace(
        sse=np.float64(sse),
        total=np.float64(total),
        agreement=np.full(4, np.nan),
        gap=np.float64(0.25),
        loss=np.float64(sse),
        mean=np.float64(sse),
        count=np.float64(9),
    )


@pytest.mark.parametrize("method", [DistributedNMF(2), PooledNMF(2), FELB(2), PooledBMF(2, solver="proximal")])
def test_the_relative_error_is_a_root_and_there_is_none_of_nothing(method):
    assert method.report(sums(4.0, 16.0))["relative_error"] == 0.5
    assert "relative_error" not in method.report(sums(0.0, 0.0))
    assert "relative_error" not in method.report(sums(np.nan, np.nan))


@pytest.mark.parametrize(("method", "count"), [(FNMF(2), 4), (FedProxNMF(2), 3)])
def test_only_agreement_that_was_measured_is_told(method, count):
    state = sums(4.0, 16.0)
    state.agreement = np.full(count, np.nan)
    assert method.report(state) == {"relative_error": 0.5}
    state.agreement = np.arange(1.0, count + 1)
    state.agreement[1] = np.nan
    told = method.report(state)
    assert told["drift"] == 1.0
    assert told["server_similarity"] == 3.0
    assert "plain_drift" not in told


def test_errors_of_ratings_are_told_once_they_are_known():
    seen = SimpleNamespace(steps=np.int64(1), sse=np.float64(18.0), n=np.float64(2.0), counts=np.array([1.0, 1.0]))
    for method in (FCF(2), FedMF(2), PooledCNMF(2)):
        assert method.report(seen) == {"rmse": 3.0}
        unknown = SimpleNamespace(**{**vars(seen), "sse": np.float64(np.nan)})
        assert method.report(unknown) == {}
        nobody = SimpleNamespace(**{**vars(seen), "n": np.float64(0.0), "counts": np.zeros(2)})
        assert method.report(nobody) == {}
    assert FCF(2).report(SimpleNamespace(**{**vars(seen), "steps": np.int64(0)})) == {}
    assert PooledCNMF(2, feedback="implicit").report(seen) == {}
    # Rounding may bring a sum of squares that is nothing below zero.
    assert PooledCNMF(2).report(SimpleNamespace(**{**vars(seen), "sse": np.float64(-1e-9)})) == {"rmse": 0.0}


def test_what_else_is_told():
    state = SimpleNamespace(error=np.float64(0.5), scale=np.float64(3.0), strength=np.float64(2.0))
    assert PooledCF(2).report(state) == {"held_out_rmse": 1.5, "ridge_strength": 2.0}
    assert PooledCF(2).report(SimpleNamespace(**{**vars(state), "error": np.float64(np.inf)})) == {}
    ended = SimpleNamespace(done=np.int64(1), columns=np.arange(7), ridge=np.float64(4.0))
    assert PooledEASE().report(ended) == {"items": 7.0, "ridge": 4.0}
    assert PooledEASE().report(SimpleNamespace(**{**vars(ended), "done": np.int64(0)})) == {}
    assert DSANLS(2).report(SimpleNamespace(error=np.float64(0.25))) == {"estimated_error": 0.25}
    assert DSANLS(2).report(SimpleNamespace(error=np.float64(np.inf))) == {}
    assert AsynSD(2).report(sums(4.0, 16.0)) == {"senders_error": 0.5}
    assert AsynSD(2).report(sums(0.0, 0.0)) == {}


def test_rounds_follow_from_settings_where_the_protocol_has_an_end():
    assert DSANLS(2, iterations=7).default_rounds == 15
    assert FedSPLIT(2).default_rounds == 2
    assert FedSPLIT(2, joint="sum", joint_rounds=7).default_rounds == 8


def test_the_server_of_dsanls_hands_sums_back():
    method, B = DSANLS(1, iterations=2), np.ones((1, 3))
    state, _ = method.init_server(Meta(6, ("a", "b"), n_rows=9), Round(0, 0))
    both, one = (Round(0, 4, participants=names) for names in (("a", "b"), ("a",)))

    def asked(state, up, at=both):
        return method.server_step(state, up, at)

    later, down = asked(state, SketchOfV(B, np.float64(4.0), np.float64(16.0)))
    assert isinstance(down, ForU)
    assert (float(later.error), int(down.drawn), int(down.t)) == (0.5, 4, 0)
    assert asked(later, SketchOfU(B), one) == (later, down)  # somebody was missing: once more
    later, down = asked(later, SketchOfU(B, np.float64(-1e-9), np.float64(16.0)))
    assert isinstance(down, ForV)
    assert (float(later.error), int(down.t), int(later.t), int(down.ends)) == (0.0, 0, 1, 0)
    later, down = asked(later, SketchOfU(B, np.float64(0.0), np.float64(0.0)))
    assert np.isnan(later.error)
    assert (int(down.t), int(down.ends)) == (1, 1)
