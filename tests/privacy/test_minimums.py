"""The least that must be there before a client sends anything."""

from __future__ import annotations

import warnings

import pytest

from fedfactor.privacy.minimums import Minimums, PrivacyWarning, RefusedError, judge_rows

ROWS = {"a": 100, "b": 300, "c": 100}


def quiet(what, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        what(*args, **options)


def test_defaults():
    least = Minimums()
    assert (least.client_rows, least.clients, least.column_rows, least.column_clients) == (None, 3, 5, 2)
    assert (least.coordinator_is_client, least.strict, least.allow, least.rare_columns) == (
        False,
        False,
        (),
        "withhold",
    )


@pytest.mark.parametrize(("options", "rank", "rows"), [({}, 5, 100), ({}, 11, 110), ({"client_rows": 7}, 11, 7)])
def test_fewest_rows(options, rank, rows):
    assert Minimums(**options).rows_for(rank) == rows


@pytest.mark.parametrize(
    ("options", "says"), [({"allow": ("few",)}, "is not a minimum"), ({"rare_columns": "x"}, "not k")]
)
def test_words_that_are_not_known(options, says):
    with pytest.raises(ValueError, match=says):
        Minimums(**options).check()
    for word in ("withhold", "merge", "refuse"):
        Minimums(rare_columns=word, allow=("few-clients", "changed-cohort")).check()


def test_refused_between_parties_warned_of_in_a_simulation_silent_when_allowed():
    with pytest.raises(
        RefusedError, match=r'Too few\. To override, pass Minimums\(allow=\("few-clients",\)\) or --allow few-clients\.'
    ):
        Minimums().judge("few-clients", "Too few", simulation=False)
    with pytest.raises(RefusedError):
        Minimums(strict=True).judge("few-clients", "Too few", simulation=True)
    with pytest.warns(PrivacyWarning, match="simulation continues; a real federation refuses it"):
        Minimums().judge("few-clients", "Too few", simulation=True)
    quiet(Minimums(allow=("few-clients",), strict=True).judge, "few-clients", "Too few", simulation=False)


def test_clients_and_their_sizes():
    quiet(Minimums().judge_clients, ROWS, 10, simulation=False)
    quiet(Minimums(coordinator_is_client=True, clients=2).judge_clients, ROWS, 10, simulation=False)
    with pytest.raises(RefusedError, match="2 clients that do not collude with the server, 3 are wanted"):
        Minimums(coordinator_is_client=True).judge_clients(ROWS, 10, simulation=False)
    with pytest.raises(
        RefusedError, match=r"2 of 3 clients have fewer than 110 rows \(the smallest, 'a', has 100; the"
    ):
        Minimums().judge_clients(ROWS, 11, simulation=False)
    with pytest.raises(RefusedError, match="the smallest, 'b', has 3"):
        Minimums().judge_clients({"a": 4, "b": 3, "c": 500}, 1, simulation=False)


def test_rows_in_the_clear():
    quiet(judge_rows, 2, {"a": 3, "b": 3}, simulation=False)
    quiet(judge_rows, 9, {"a": 3}, simulation=False)  # alone, there is nobody to tell
    with pytest.raises(RefusedError, match=r"1 of 2 clients have no more rows than components \(the first is 'b'\)"):
        judge_rows(3, {"a": 4, "b": 3}, simulation=False)
    quiet(judge_rows, 3, {"a": 4, "b": 3}, Minimums(allow=("small-client",)), simulation=False)
