"""A setting is declared once: what is refused, what is documented, and what a renamed one still takes."""

from __future__ import annotations

import inspect
import math
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from fedfactor.core.docstrings import join_sections, split_sections
from fedfactor.core.settings import (
    check_settings,
    declares_settings,
    set_by_privacy,
    setting,
    settings_of_class,
)


@declares_settings
class Knobs:
    """Turn them.

    Notes
    -----
    Not too far.
    """

    n: int = setting("How many.", at_least=1)
    rate: float = setting("How fast.", default=0.5, at_least=0, below=1, because="it is a share", formerly="speed")
    step: float = setting("How far.", default=1.0, above=0)
    reach: float = setting("Most.", default=2.0, above=1, at_most=math.inf)
    how: Literal["new", "plain"] = setting("Which way.", default="new", former_values={"old": "new"})
    pay: float | Literal["same"] = setting("What is paid.", default="same", at_least=0)
    limit: float | None = setting("Seconds.", default=None, above=0)
    flag: bool = setting("Whether.", default=False)
    weights: Literal["rows", "equal"] | Mapping[str, float] = setting("Who counts.", default="rows")
    note: str = "plain fields are settings, too"
    made: float | None = set_by_privacy("Bound.")

    kind: ClassVar[str] = "knob"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("n", 0, "n=0 must be a whole number of at least 1."),
        ("n", 2.0, "n=2.0 must be a whole number of at least 1."),
        ("n", True, "n=True must be a whole number of at least 1."),
        ("rate", 1.0, "rate=1.0 must lie in [0, 1): it is a share."),
        ("rate", "fast", "rate='fast' must be a number in [0, 1): it is a share."),
        ("rate", math.nan, "rate=nan must be a number in [0, 1): it is a share."),
        ("step", 0.0, "step=0.0 must be positive."),
        ("step", math.inf, "step=inf must be a positive number."),
        ("reach", 1.0, "reach=1.0 must be above 1."),
        ("how", "odd", "how='odd' is not known. Use one of new, plain."),
        ("pay", -1.0, "pay=-1.0 must be a number of at least 0, or 'same'."),
        ("pay", "other", "pay='other' is not known. Use 'same', or a number of at least 0."),
        ("limit", 0, "limit=0 must be a positive number, or None."),
        ("flag", "yes", "flag='yes' must be True or False."),
        ("weights", "odd", "weights='odd' is not known. Use one of rows, equal, or a mapping of str to float."),
        ("note", 3, "note=3 must be a text."),
    ],
)
def test_what_the_declaration_does_not_allow_is_refused(name, value, says):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the whole text is compared)
        check_settings(Knobs(**{"n": 1, name: value}))
    assert str(raised.value) == says


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"n": np.int64(3), "rate": np.float32(0.25), "flag": np.bool_(True)},
        {"rate": 0, "step": 3, "reach": math.inf, "pay": 0, "limit": 2},
        {"weights": {"a": 1.0}, "how": "plain", "note": ""},
    ],
)
def test_what_it_allows_is_taken(given):
    check_settings(Knobs(**{"n": 1, **given}))


def test_the_class_is_a_frozen_slotted_dataclass():
    knobs = Knobs(2, 0.25)
    assert (knobs.n, knobs.rate, knobs.how) == (2, 0.25, "new")
    assert knobs == replace(Knobs(2), rate=0.25)
    assert pickle.loads(pickle.dumps(knobs)) == knobs
    assert not hasattr(knobs, "__dict__")
    with pytest.raises(FrozenInstanceError):
        knobs.n = 3
    with pytest.raises(TypeError, match="n"):
        Knobs()
    with pytest.raises(TypeError, match="odd"):
        Knobs(1, odd=2)
    with pytest.raises(TypeError, match="multiple values"):
        Knobs(1, n=2)
    assert list(inspect.signature(Knobs).parameters) == [each.name for each in fields(Knobs)]


def test_what_privacy_sets_is_documented_and_not_offered():
    assert "made" not in [each.name for each in settings_of_class(Knobs)]
    assert settings_of_class(Knobs, offered=False)[-1].set_by == "privacy"
    assert "made : float, optional\n    Bound." in Knobs.__doc__


def test_entries_stand_before_the_other_sections():
    head, sections = split_sections(Knobs.__doc__)
    assert head == "Turn them."
    assert list(sections) == ["Parameters", "Notes"]
    lines = sections["Parameters"].split("\n")
    assert lines[:4] == ["n : int, at least 1", "    How many.", "rate : float in [0, 1), default=0.5", "    How fast."]
    assert 'how : {"new", "plain"}, default="new"' in lines
    assert 'pay : float, at least 0 or "same", default="same"' in lines
    assert "limit : float, above 0, optional" in lines
    assert 'weights : {"rows", "equal"} or mapping of str to float, default="rows"' in lines
    assert join_sections(head, sections) == Knobs.__doc__


def test_old_names_and_values_are_taken_with_a_warning_that_names_the_new_ones():
    with pytest.warns(DeprecationWarning, match="'speed' of Knobs is now called 'rate'") as told:
        knobs = Knobs(1, speed=0.25)
    assert knobs.rate == 0.25
    assert told[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="how='old' of Knobs is now called 'new'"):
        assert Knobs(1, how="old").how == "new"
    with pytest.warns(DeprecationWarning, match="now called 'rate'"):
        assert knobs.speed == 0.25
    with pytest.raises(TypeError, match="both 'speed' and 'rate'"):
        Knobs(1, speed=0.1, rate=0.2)
    with pytest.raises(TypeError, match="both 'speed' and 'rate'"):
        Knobs(1, 0.2, speed=0.1)


def test_new_names_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replace(Knobs(1, rate=0.25), how="plain")


def test_a_plain_dataclass_is_looked_at_as_far_as_its_types_say():
    @dataclass(frozen=True)
    class Plain:
        steps: int = 3
        how: Literal["a", "b"] = "a"
        more: Any = None

    check_settings(Plain(more=object()))
    with pytest.raises(ValueError, match="how='c' is not known"):
        check_settings(Plain(how="c"))
    with pytest.raises(ValueError, match="steps='3' must be a whole number"):
        check_settings(Plain(steps="3"))
