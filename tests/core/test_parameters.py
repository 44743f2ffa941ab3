"""A setting is declared once: what is refused, and what is documented."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from fedfactor.core.parameters import (
    Declared,
    Setting,
    check_settings,
    declares_settings,
    set_by_privacy,
    set_by_run,
    setting,
    settings_of_class,
)

TOO_LARGE = "x is larger than any number that processors compute with."


@declares_settings
class Knobs:
    """Turn them.

    Notes
    -----
    Not too far.
    """

    n: int = setting("How many.", at_least=1)
    rate: float = setting("How fast.", default=0.5, at_least=0, below=1, because="it is a share")
    step: float = setting("How far.", default=1.0, above=0)
    reach: float = setting("Most.", default=2.0, above=1, at_most=math.inf)
    how: Literal["new", "plain"] = setting("Which way.", default="new")
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


def test_what_privacy_sets_is_not_offered():
    assert "made" not in [each.name for each in settings_of_class(Knobs)]
    assert settings_of_class(Knobs, offered=False)[-1].set_by == "privacy"


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


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({}, ""),
        ({"at_least": 0}, "at least 0"),
        ({"above": 0}, "above 0"),
        ({"above": 1, "at_most": math.inf}, "above 1"),
        ({"at_least": 1, "at_most": math.inf}, "at least 1"),
        ({"at_most": 2}, "at most 2"),
        ({"below": 2.5}, "below 2.5"),
        ({"at_least": 0, "at_most": 1}, "in [0, 1]"),
        ({"above": 0, "below": 1}, "in (0, 1)"),
        ({"above": 0, "at_most": 1}, "in (0, 1]"),
    ],
)
def test_bounds_in_words(declared, words):
    assert Setting("x", float, 1.0, Declared(**declared)).bounds == words


@pytest.mark.parametrize(
    ("kind", "default", "declared", "words"),
    [
        (int, MISSING, {}, "int"),
        (int, 3, {"at_least": 1}, "int, at least 1"),
        (float, 0.5, {"above": 0, "below": 1}, "float in (0, 1)"),
        (int | None, None, {"at_least": 1}, "int, at least 1"),
        (int | None, 2, {}, "int or None"),
        (str | int | None, MISSING, {}, "str, int or None"),
        (bool, True, {}, "bool"),
        (Literal["a"], "a", {}, '"a"'),
        (float | Literal["a", "b"], 1.0, {"at_least": 0}, 'float, at least 0 or {"a", "b"}'),
        (Literal["a"] | float | Literal["b"], 1.0, {}, '{"a", "b"} or float'),
        (Any, None, {}, "object"),
        (Mapping[str, float], MISSING, {}, "mapping of str to float"),
        (tuple[int, ...], MISSING, {}, "tuple of int"),
        (tuple[int, int], MISSING, {}, "tuple of int"),
        (tuple[int, str], MISSING, {}, "tuple"),
        (list[str], MISSING, {}, "list of str"),
        (dict[str, Any] | None, None, {}, "mapping of str to object"),
        (np.ndarray, MISSING, {"shown": "array of shape (n, k)"}, "array of shape (n, k)"),
    ],
)
def test_types_in_words_are_those_of_numpydoc(kind, default, declared, words):
    assert Setting("x", kind, default, Declared(**declared)).type_words == words


@pytest.mark.parametrize(
    ("kind", "declared", "value", "says"),
    [
        (float, {}, "no", "x='no' must be a number."),
        (float, {}, math.inf, "x=inf must be a number."),
        (float, {"at_least": 0, "at_most": 1}, 2, "x=2 must lie in [0, 1]."),
        (float, {"at_most": 1}, 2, "x=2 must be at most 1."),
        (float, {"at_most": 1}, True, "x=True must be a number of at most 1."),
        (float, {"at_least": 0}, np.float32(-1), "x=-1.0 must be at least 0."),
        (int, {"above": 0}, 0, "x=0 must be a positive whole number."),
        (int, {"below": 9}, 9, "x=9 must be a whole number below 9."),
        (int | None, {"at_least": 1}, "2", "x='2' must be a whole number of at least 1, or None."),
        (bool | None, {}, 2, "x=2 must be True or False, or None."),
        (Literal["a"], {}, "b", "x='b' is not known. Use 'a'."),
        (Literal["a", "b"], {"because": "so it is"}, "c", "x='c' is not known. Use one of a, b: so it is."),
        (Literal["a", "b"], {}, 3, "x=3 must be 'a' or 'b'."),
        (Literal[1, 2], {}, True, "x=True must be 1 or 2."),
        (Literal["a"] | str, {}, 3, "x=3 must be 'a', or a text."),
        (int, {}, 10**400, TOO_LARGE),
        (float | None, {}, 10**400, TOO_LARGE),
        (float, {}, Fraction(10**400, 3), TOO_LARGE),
        (int, {"at_least": 1}, 2**63, TOO_LARGE),
        (bool, {}, np.array([1, 2]), "x=array([1, 2]) must be True or False."),
        (bool, {}, np.array([]), "x=array([], dtype=float64) must be True or False."),
        (tuple[float, ...], {}, 3.0, "x=3.0 must be a tuple of numbers."),
        (tuple[float, ...], {}, "34", "x='34' must be a tuple of numbers."),
        (tuple[float, ...], {}, (0.5, "a"), "x=(0.5, 'a') must be a tuple of numbers."),
        (tuple[float, ...], {"at_least": 0}, (1, -1), "x=(1, -1) must be a tuple of numbers at least 0."),
        (tuple[float, float] | None, {}, (1,), "x=(1,) must be a tuple of 2 numbers, or None."),
        (tuple[tuple[str, Any], ...], {}, None, "x=None must be a tuple of parts."),
        (Mapping[str, float], {}, 3, "x=3 must be a mapping of str to float."),
    ],
)
def test_refusals(kind, declared, value, says):
    assert Setting("x", kind, None, Declared(**declared)).refusal(value) == says


@pytest.mark.parametrize(
    ("kind", "declared", "value"),
    [
        (float, {"at_least": 0, "at_most": 1}, 0),
        (float, {"at_least": 0, "at_most": 1}, 1),
        (float, {"above": 0, "at_most": math.inf}, math.inf),
        (float, {}, -3),
        (Literal["a"] | str, {}, "anything"),
        (Any, {}, object()),
        (np.ndarray, {}, "whatever"),  # a type that is not looked at
        (np.ndarray | int, {}, "whatever"),
        (int, {"check": False}, "whatever"),
        (int | None, {"at_least": 1}, None),
        (int, {}, np.int64(2**63 - 1)),
        (bool, {}, np.True_),
        (tuple[float, ...], {}, (0.5, 1)),
        (tuple[float, ...], {}, np.array([0.5, 1.0])),
        (tuple[float, ...], {}, []),
        (tuple[float, float] | None, {}, [1, 2]),
        (tuple[tuple[str, Any], ...], {}, (("a", object()),)),
        (Mapping[str, float], {}, {"a": 1.0}),
    ],
)
def test_what_is_not_refused(kind, declared, value):
    assert Setting("x", kind, None, Declared(**declared)).refusal(value) is None


def test_settings_are_checked_and_offered_unless_said_otherwise():
    assert Declared() == Declared(check=True)
    assert "made" in [each.name for each in settings_of_class(Knobs, offered=False)]
    assert settings_of_class(int) == []
    assert setting("x").default is MISSING
    assert set_by_run().metadata["set_by"] == "run"
    assert set_by_run().default is None
    assert set_by_privacy().default is None


def test_an_annotation_that_cannot_be_read_is_not_looked_at():
    @dataclass(frozen=True)
    class Odd:
        x: Unknown = 3  # noqa: F821

    assert settings_of_class(Odd)[0].kind is Any


def test_keyword_settings_of_a_base_come_last():
    @dataclass(frozen=True)
    class Base:
        rounds: int = field(default=1, kw_only=True)

    @dataclass(frozen=True)
    class Sub(Base):
        n: int = 2

    assert [each.name for each in settings_of_class(Sub)] == ["n", "rounds"]


def test_the_first_bad_value_is_told_and_given_settings_are_those_looked_at():
    bad = Knobs(0, rate=7)
    with pytest.raises(ValueError, match="n=0 must"):
        check_settings(bad)
    with pytest.raises(ValueError, match="rate=7 must"):
        check_settings(bad, settings_of_class(Knobs)[1:])
    check_settings(bad, [])


def test_a_number_may_come_in_many_types():
    shares = Setting("x", tuple[float, ...], (), Declared(at_least=0, at_most=1))
    assert shares.refusal(np.array([0.5, 1], dtype=np.float32)) is None
    assert shares.refusal([Fraction(1, 2), np.int8(1)]) is None
    assert shares.refusal([0.5, math.nan]) == "x=[0.5, nan] must be a tuple of numbers in [0, 1]."
    assert shares.refusal((0.5, np.float64(1.5))) is not None


def test_bounds_that_contradict_are_refused_by_the_library():
    with pytest.raises(ValueError, match="Cannot specify both `gt` and `ge`"):
        Setting("x", float, 1.0, Declared(at_least=0, above=0)).refusal(1.0)


def test_any_value_may_stand_beside_words():
    assert Setting("start", Literal["own"] | Any, "own", Declared()).refusal("other") is None
    assert (
        Setting("start", Literal["own"], "own", Declared()).refusal("other") == "start='other' is not known. Use 'own'."
    )
