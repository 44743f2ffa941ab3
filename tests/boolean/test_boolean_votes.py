"""Votes: positions fail, aligned components recover; what travels; who is heard."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import BooleanVotes
from fedfactor.core.errors import ClientUnavailable
from fedfactor.datasets.boolean_tiles import even_tiles
from fedfactor.metrics import boolean_metrics
from fedfactor.testing.unreliable_clients import Flaky


def loss_of(run, owners):
    return boolean_metrics(owners, {name: kept.U for name, kept in run.factors.items()}, run.V).loss


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["asso", "grecond", "zhang"])
def test_unaligned_votes_fail_and_aligned_ones_recover(solver):
    data = even_tiles(500, 80, 4, 6, seed=0)
    published = loss_of(fedfactor.run(BooleanVotes.paper(4, solver), data.owners, seed=0), data.owners)
    aligned = loss_of(fedfactor.run(BooleanVotes(4, solver), data.owners, seed=0), data.owners)
    assert published > 0.3
    assert aligned < 0.02


def test_refit_none_puts_the_kept_rows_in_the_order_of_the_elected_components():
    data = even_tiles(1000, 200, 5, 10, seed=0)
    run = fedfactor.run(BooleanVotes(5, "grecond", refit="none"), data.owners, seed=0)
    assert loss_of(run, data.owners) < 0.02


def test_what_travels():
    rows = {"a": np.eye(20), "b": np.eye(20)}
    bits = fedfactor.run(BooleanVotes(4), rows, seed=0)
    assert bits.bytes_up == 2 * (4 * 3 + 16)  # 20 cells are three bytes; two numbers beside
    numbers = fedfactor.run(BooleanVotes(4, align="none"), rows, seed=0)
    assert numbers.bytes_up == 2 * (4 * 20 * 8 + 16)
    assert bits.rounds == numbers.rounds == 1


def test_votes_are_counted():
    X = np.kron(np.eye(2), np.ones((6, 3)))
    owners = {"a": X, "b": X, "c": X[:6], "d": X[:6]}
    counts = {}
    for vote in ("majority", "average", "or"):
        run = fedfactor.run(BooleanVotes(2, "grecond", vote=vote, align="none", tie="one"), owners, seed=0)
        counts[vote] = run.V.sum(axis=1).tolist()
    # The second tile is known to two of four clients: a tie.
    assert counts == {"majority": [3, 3], "average": [3, 0], "or": [3, 3]}
    tied = fedfactor.run(BooleanVotes(2, "grecond", align="none", tie="zero"), owners, seed=0)
    assert tied.V.sum(axis=1).tolist() == [3, 0]


def test_running_out_of_time_is_recorded():
    X = (np.random.default_rng(0).random((400, 300)) < 0.5) * 1.0
    run = fedfactor.run(BooleanVotes(50, "grecond", time_limit=1e-6), {"a": X, "b": X}, seed=0)
    assert run.history[-1].metrics == {"voters": 2.0, "late": 2.0}


def test_a_later_round_hears_those_who_were_away():
    X = np.kron(np.eye(2), np.ones((6, 3)))
    flaky = Flaky(BooleanVotes(2, "grecond"), absent=((0, "b"),))
    run = fedfactor.run(flaky, {"a": X, "b": X}, rounds=3, seed=0)
    assert [one.metrics["voters"] for one in run.history][:2] == [1.0, 2.0]
    assert issubclass(ClientUnavailable, Exception)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"solver": "oracle"}, "solver='oracle' is not known"),
        ({"vote": "veto"}, "vote='veto' is not known"),
        ({"time_limit": -1.0}, "time_limit=-1.0 must be a positive number"),
        ({"options": (("colour", 1),)}, "'asso' does not take such an option"),
        ({"options": (("tau", 2.0),)}, "tau=2.0 must lie in"),
    ],
)
def test_bad_settings_are_refused_before_any_work(settings, message):
    with pytest.raises(ValueError, match=message):
        fedfactor.run(BooleanVotes(2, **settings), {"a": np.eye(4)}, seed=0)
