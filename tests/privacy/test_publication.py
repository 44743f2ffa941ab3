"""What may be published of a run, and what is its owners' own."""

from __future__ import annotations

import math

import numpy as np

from fedfactor.core.algorithm import LocalFactors, Score
from fedfactor.core.run import RoundRecord, Run
from fedfactor.privacy.publication import promises, seal, split_record

HISTORY = [{"index": 0, "participants": ["a"], "bytes_up": 1, "seconds": 2.0, "metrics": {"loss": 3.0}}]
RECORD = {"algorithm": "X", "relative_error": 0.5, "owners": {}, "worst_client": {}, "history": HISTORY, "seconds": 1.0}


def test_a_promise_is_a_finite_epsilon():
    assert promises({"epsilon": 2.0})
    assert not promises({"epsilon": math.inf})
    assert not promises({"epsilon": "inf"})
    assert not promises({})
    assert not promises(None)


def made(privacy):
    factors = {"a": LocalFactors(np.ones((1, 1)), np.ones((1, 2)))}
    history = (RoundRecord(0, ("a",), 8, 16, 0.5, {"error": 0.25}),)
    return Run(None, 0, "rounds", history, factors, {"a": Score.of(1, 2, 4)}, None, privacy=privacy)


def test_a_promise_puts_exact_figures_under_the_owners_name():
    run = seal(made({"epsilon": 1.0}))
    assert run.scores == {}
    assert math.isnan(run.history[0].seconds)
    assert run.history[0].metrics == {}
    assert run.history[0].bytes_up == 8
    assert run.owners_only.seconds == (0.5,)
    assert run.owners_only.metrics == ({"error": 0.25},)
    assert run.owners_only.relative_error == 0.5
    plain = made({"epsilon": math.inf})
    assert seal(plain) is plain


def test_records_without_protection_are_shared_whole():
    for privacy in (None, {}, {"mode": "robust", "epsilon": "inf"}):
        assert split_record({**RECORD, "privacy": privacy}) == ({**RECORD, "privacy": privacy}, {})


def test_a_secure_sum_keeps_single_owners_out():
    shared, private = split_record({**RECORD, "privacy": {"mode": "secure-sum"}})
    assert set(private) == {"owners", "worst_client"}
    assert shared["relative_error"] == 0.5
    assert shared["history"] == HISTORY


def test_a_promise_keeps_out_all_that_it_does_not_cover():
    shared, private = split_record({**RECORD, "privacy": {"mode": "dp", "epsilon": 1.0}})
    assert set(shared) == {"algorithm", "history", "privacy"}
    assert shared["history"] == [{"index": 0, "participants": ["a"], "bytes_up": 1}]
    assert set(private) == {"relative_error", "owners", "worst_client", "seconds", "history"}
    assert private["history"] == [{"seconds": 2.0, "metrics": {"loss": 3.0}}]
    shared, private = split_record({"algorithm": "X", "privacy": {"epsilon": 1.0}})
    assert "history" not in shared
    assert private == {}


def test_what_a_party_knows_of_itself_is_its_own():
    record = {"party": "a", "relative_error": 0.5, "run": "r", "privacy": None}
    assert split_record(record) == ({"run": "r", "privacy": None}, {"party": "a", "relative_error": 0.5})
