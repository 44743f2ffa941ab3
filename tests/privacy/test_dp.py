"""The words of a budget."""

from __future__ import annotations

import math

import pytest

from fedfactor.core.errors import IncompatibleError
from fedfactor.privacy import dp
from fedfactor.privacy.dp import asked_of, refuse_repeats, refuse_start


def test_defaults():
    made = dp(1)
    assert (made.epsilon, made.delta, made.unit, made.noise, made.accountant) == (
        1.0,
        1e-5,
        "row",
        "distributed",
        "rdp",
    )
    assert (made.cap, made.known_to, made.colluding, made.sampling) == (1, 1, 0, 1.0)
    assert made.clip is made.row_bound is made.rows is made.subject is made.noise_multiplier is made.noise_seed is None


@pytest.mark.parametrize(
    "given",
    [
        {}, {"delta": 0.5}, {"unit": "client", "clip": 1.0}, {"unit": "client", "clip": 1.0, "sampling": 0.5},
        {"unit": "subject", "subject": "who", "cap": 3, "known_to": 2}, {"noise": "local"}, {"accountant": "pld"},
        {"colluding": 2}, {"rows": 3.0, "row_bound": 0.5}, {"noise_multiplier": 2.0},
    ],
)  # fmt: skip
def test_budgets_that_can_be_kept(given):
    assert dp(2.0, **given).epsilon == 2.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"epsilon": 0}, "0 < epsilon < inf"), ({"epsilon": math.inf}, "0 < epsilon < inf"),
        ({"delta": 0}, "0 < delta < 1"), ({"delta": 1}, "0 < delta < 1"),
        ({"unit": "cell"}, "unit='cell' is not known"),
        ({"noise": "odd"}, "noise='odd' is not known"), ({"accountant": "x"}, "accountant='x' is not known"),
        ({"clip": 1.0}, "clip bounds whole uploads"), ({"unit": "client"}, "clip bounds whole uploads"),
        ({"subject": "who"}, "subject names whose rows"), ({"unit": "subject"}, "subject names whose rows"),
        ({"sampling": 0}, "sampling must lie"), ({"sampling": 1.5}, "sampling must lie"),
        ({"sampling": 0.5}, "sampling must lie"), ({"colluding": -1}, "colluding=-1"), ({"cap": 2}, "cap and known_to"),
        ({"unit": "client", "clip": 1.0, "sampling": 0.5, "noise": "local"}, "sampling must lie"),
        ({"unit": "subject", "subject": "who", "cap": 0}, "cap and known_to"), ({"known_to": 2}, "cap and known_to"),
        ({"unit": "subject", "subject": "who", "known_to": 1.5}, "cap and known_to"),
        ({"rows": 0}, "rows=0 must be positive"), ({"row_bound": math.inf}, "row_bound=inf"),
        ({"noise_multiplier": -1}, "noise_multiplier=-1"),
    ],
)  # fmt: skip
def test_budgets_that_cannot(given, says):
    with pytest.raises(ValueError, match=says):
        dp(**{"epsilon": 1.0, **given})


def test_a_budget_is_found_among_other_words():
    made = dp(1.0)
    assert asked_of(made) is asked_of(("secure-sum", made)) is asked_of([made]) is made
    assert asked_of(None) is asked_of(("secure-sum",)) is asked_of("secure-sum") is None


def test_a_private_run_is_not_repeated_and_starts_anew():
    refuse_repeats(dp(1.0), 1, "x")
    refuse_repeats("secure-sum", 5, "x")
    refuse_start(None, "x")
    with pytest.raises(IncompatibleError, match=r"n_init=3 makes 3 runs, but dp\(epsilon=1\) is the budget of one"):
        refuse_repeats(dp(1.0), 3, "n_init=3")
    with pytest.raises(IncompatibleError, match=r"init='x' starts at components .* dp\(epsilon=2\)"):
        refuse_start(dp(2.0), "init='x'")
