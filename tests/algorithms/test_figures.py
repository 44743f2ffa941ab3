"""Small runs give the figures written down; ``python -m tests.algorithms.figures`` where a change is meant."""

from __future__ import annotations

import json

import pytest

from fedfactor import algorithms
from tests.algorithms.figures import WRITTEN, cases, figures, settings

EXPECTED = json.loads(WRITTEN.read_text())
SINGLE = ("FedDMF",)
"""Algorithms that work in single precision."""


@pytest.mark.parametrize(("name", "algorithm", "kind"), [pytest.param(*case, id=case[0]) for case in cases()])
def test_figures_are_those_written_down(name, algorithm, kind):
    if name.startswith("FedDMF"):
        pytest.importorskip("torch")
    found, expected = figures(name, algorithm, kind), EXPECTED[name]
    close = 1e-3 if name.startswith(SINGLE) else 1e-6
    assert sorted(found) == sorted(expected)
    for what, values in expected.items():
        numbers = [pytest.approx(v, rel=close, abs=close, nan_ok=True) if isinstance(v, float) else v for v in values]
        assert found[what] == numbers, what


@pytest.mark.parametrize("name", sorted(algorithms.__all__))
def test_settings_are_those_written_down(name):
    assert settings(name) == EXPECTED[name]


def test_no_figure_is_left_of_a_case_that_is_gone():
    assert set(EXPECTED) == {name for name, _, _ in cases()} | set(algorithms.__all__)
