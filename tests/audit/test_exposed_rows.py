"""A Boolean search hands rows with a column of their own to everybody, unless few rows propose nothing."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor import Federation
from fedfactor.algorithms import PooledBMF
from fedfactor.audit import audit, row_exposure
from fedfactor.privacy import Listener

pytestmark = pytest.mark.filterwarnings("ignore::fedfactor.privacy.PrivacyWarning")


def owners(seed=0, n=120, m=40):
    rng = np.random.default_rng(seed)
    X = (rng.random((n, m)) < 0.15) * 1.0
    X[: n // 2, :6], X[n // 3 :, 8:14] = 1, 1
    rare = np.zeros((n, 8))
    rare[np.arange(0, 80, 10), np.arange(8)] = 1  # eight rows have a column of their own
    X = np.hstack([X, rare])
    return {str(i): X[i::3] for i in range(3)}


def exposed(min_rows):
    heard, data = Listener(), owners()
    fedfactor.run(PooledBMF(4, min_rows=min_rows), data, seed=0, privacy=(heard,))
    return row_exposure(heard.rounds, Federation(data))


def test_rows_with_a_column_of_their_own_are_published():
    found = exposed(1)
    assert found.verdict == "REFUTED"
    assert found.figures["rows_published"] >= 8
    assert found.figures["counts_of_one"] > 0


def test_a_minimum_of_rows_keeps_them_back():
    found = exposed(3)
    assert found.verdict == "consistent"
    assert found.figures["rows_published"] == 0
    assert found.figures["rows"] > 50
    assert found.figures["sets_received"] > 50


def test_a_pattern_of_many_rows_that_one_row_has_in_full_is_not_that_row():
    X = np.zeros((30, 8))
    X[:, :6] = 1
    X[np.arange(1, 30), np.arange(29) % 6] = 0  # each but the first lacks one of six columns
    heard, data = Listener(), {"a": X[:15], "b": X[15:]}
    fedfactor.run(PooledBMF(1), data, seed=0, privacy=(heard,))
    found = row_exposure(heard.rounds, Federation(data))
    assert found.figures["rows_met"] == 1
    assert found.verdict == "consistent"


def test_a_component_of_few_rows_is_given_up():
    X = np.zeros((60, 12))
    X[:40, :4], X[40:58, 4:8], X[58:, 8:] = 1, 1, 1
    data = {"a": X[::2], "b": X[1::2]}
    plain = fedfactor.run(PooledBMF(3), data, seed=0)
    closed = fedfactor.run(PooledBMF(3, min_rows=3), data, seed=0)
    assert plain.V[:, 8:].any()
    assert not closed.V[:, 8:].any()
    assert int(closed.score.sse) == 8


@pytest.mark.slow
def test_the_audit_tells_both_apart():
    data = Federation(owners())
    told = [
        {finding.attack: finding.verdict for finding in audit(PooledBMF(4, min_rows=least), data).findings}
        for least in (1, 3)
    ]
    assert [each["rows among the candidates"] for each in told] == ["REFUTED", "consistent"]
