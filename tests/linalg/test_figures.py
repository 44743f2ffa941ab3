"""Small calls give the figures that were written down, with and without compiled loops.

``tests/linalg/figures.py`` says how to write them anew.
"""

from __future__ import annotations

import json

import pytest

from tests.linalg.figures import CASES, WRITTEN, boiled

EXPECTED = json.loads(WRITTEN.read_text())


def compared(found, expected, close, where):
    if isinstance(expected, dict):
        assert sorted(found) == sorted(expected), where
        for key, part in expected.items():
            compared(found[key], part, close, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for place, part in enumerate(expected):
            compared(found[place], part, close, f"{where}[{place}]")
    else:
        assert found == (pytest.approx(expected, rel=close, abs=close) if isinstance(expected, float) else expected), (
            where
        )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_figures_are_those_written_down(name, path):
    compared(boiled(CASES[name]()), EXPECTED[name], 1e-3 if name.endswith("f4") else 1e-6, name)


SIZES = {
    "linalg.products": {"_SMALL": 0, "_BLOCK": 64, "_CHUNK": 16},
    "boolean.solvers.asso": {"_CELLS": 40},
    "boolean.bit_matrix": {"_CELLS": 300},
    "boolean.counting": {"_CELLS": 300},
    "boolean.product": {"_WORDS": 7},
    "linalg.missing_values": {"_CELLS": 60},
    "linalg.single_pass": {"_SMALL": 1, "_CACHE": 0, "_KEPT": 0, "_LIGHT": 0},
    "recommend.feddmf.network": {"_CELLS": 30},
    "recommend.alternating_least_squares": {"CELLS": 40},
    "recommend.rating_model": {"SMALL": 0},
    "recommend.top_items": {"_CELLS": 60, "_LONG": 2},
    "nmf.distributed.hadamard": {"_CELLS": 60},
}
"""Sizes from which work is cut into blocks, small enough for the cases here."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_work_may_be_cut_into_blocks(name, path, monkeypatch):
    for module, sizes in SIZES.items():
        for size, value in sizes.items():
            monkeypatch.setattr(f"fedfactor.{module}.{size}", value)
    compared(boiled(CASES[name]()), EXPECTED[name], 1e-3 if name.endswith("f4") else 1e-6, name)


def test_no_figure_is_left_of_a_case_that_is_gone():
    assert set(EXPECTED) == set(CASES)
