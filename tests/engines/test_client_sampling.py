"""Who takes part in a round: drawn shares, and rules."""

from __future__ import annotations

import pytest

from fedfactor.core.algorithm import Round
from fedfactor.engines.client_sampling import participants, rule_name

NAMES = tuple("abcdefghij")


@pytest.mark.parametrize(("share", "size"), [(1.0, 10), (1, 10), (0.5, 5), (0.51, 6), (0.01, 1)])
def test_a_share_is_rounded_up(share, size):
    found = participants(share, Round(0, 0), NAMES)
    assert len(found) == size
    assert list(found) == sorted(found)


def test_a_share_is_drawn_anew_each_round_from_the_seed():
    draws = [participants(0.5, Round(0, i), NAMES) for i in range(5)]
    assert len(set(draws)) > 1
    assert draws == [participants(0.5, Round(0, i), NAMES) for i in range(5)]


def test_a_rule_names_clients_of_the_federation():
    assert participants(lambda at, names: ["c", "a"], Round(0, 0), NAMES) == ("a", "c")
    with pytest.raises(ValueError, match="participation named 'z'"):
        participants(lambda at, names: ["z"], Round(0, 0), NAMES)


@pytest.mark.parametrize("share", [0, -1, 1.5, "half", None])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\]"):
        participants(share, Round(0, 0), NAMES)


def test_rules_have_names():
    class Rule:
        def __call__(self, at, names):
            return names

    assert rule_name(0.5) == "0.5"
    assert rule_name(participants) == "participants"
    assert rule_name(Rule()).endswith("Rule")
