"""Values that no setting should take: each is refused in words that name it, never by accident somewhere inside."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

import fedfactor
from fedfactor import algorithms
from fedfactor.algorithm_names import algorithm_class, algorithm_names
from fedfactor.core.parameters import check_settings, settings_of_class

VALUES = [
    None, math.nan, math.inf, -1, 10**400, 2**63, "", "3", True, np.float32(2), np.array(3), np.array([1.0, 2.0]),
    np.array([]), [1, 2], (1,), {"a": 1}, b"x", Decimal("2"), 1j, object(), lambda: 3,
]  # fmt: skip


@pytest.mark.parametrize("name", algorithm_names())
def test_a_hostile_value_is_taken_or_refused_by_name(name):
    kind = algorithm_class(name)
    settings = settings_of_class(kind, offered=False)
    given = {"n_components": 2} if "n_components" in {each.name for each in settings} else {}
    for each in settings:
        said = [refusal(kind(**{**given, each.name: value}), each) for value in VALUES]
        assert all(text.startswith(each.name) for text in said if text), said
        assert any(said) or not each.declared.check or each.set_by == "run", each.name


def refusal(algorithm, setting):
    try:
        check_settings(algorithm, [setting])
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        (algorithms.PooledCF(2, feedback=np.array([1.0, 2.0])), "feedback"),  # decides which rows are taken
        (algorithms.PooledNMF(2, loss=np.array([1.0, 2.0])), "loss"),
        (algorithms.PooledNMF(2, loss=10**400), "loss"),
        (algorithms.PooledBMF(2, thresholds=np.array([])), "thresholds"),
        (algorithms.PooledBMF(2, thresholds=0.5), "thresholds"),
        (algorithms.PooledBMF(2, penalties=(1.5,)), "penalties"),
        (algorithms.BooleanVotes(2, options=None), "options"),
        (algorithms.FedSPLIT(2, scale=5.0), "scale"),
        (algorithms.FedSPLIT(2, overrides=(1,)), "overrides"),
    ],
)
def test_a_run_refuses_it(algorithm, name):
    X = np.eye(4)
    with pytest.raises(ValueError, match=f"^{name}"):
        fedfactor.run(algorithm, {"a": X, "b": X})


@pytest.mark.parametrize("name", ["callbacks", "checkpoint", "missing_values"])
@pytest.mark.parametrize(
    "value",
    [3.5j, np.array([1.0, 2.0]), 10**400, (1,), b"x", object],
    ids=["complex", "array", "huge", "tuple", "bytes", "class"],
)
def test_settings_of_every_run_are_refused_by_name_too(name, value):
    with pytest.raises((TypeError, ValueError), match=f"^{name}="):
        fedfactor.PooledNMF(2, rounds=1, **{name: value}).fit(np.ones((9, 4)))


def test_a_single_function_is_no_list_of_callbacks():
    with pytest.raises(TypeError, match=r"callbacks=.* must be a list .* \[print\]"):
        fedfactor.PooledNMF(2, callbacks=print).fit(np.ones((9, 4)))
    with pytest.raises(TypeError, match=r"callbacks=.* must be a list"):
        fedfactor.run(algorithms.PooledNMF(2), {"a": np.ones((9, 4))}, callbacks=print)
