"""Which columns of numbers are taken for identifiers."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.core.id_columns import looks_like_ids, names_ids

COUNTED = np.arange(20)
LONG = 10_000 + 7 * np.arange(20)


@pytest.mark.parametrize("name", ["id", "ID", "patient_id", "Patient", "sample no", "userId", "MRN", " id ", "cell"])
def test_names_that_say_so(name):
    assert names_ids(name)


@pytest.mark.parametrize("name", ["grid", "acid", "age", "cells", "number", "candid", ""])
def test_names_that_do_not(name):
    assert not names_ids(name)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("id", [5, 1, 3], True),
        ("id", [5, 1], False),  # too few to tell
        ("id", [5, 1, 1], False),
        ("id", [5, 1, 2.5], False),
        ("id", [5, 1, np.nan], False),
        ("id", [5, 1, np.inf], False),
        ("case no", [5, 1, 3], True),
        ("lot number", [5, 1, 3], True),
        ("", [5, 1, 3], True),
        ("age", [5, 1, 3], False),
        ("age", COUNTED, True),
        ("age", COUNTED + 1, True),
        ("age", COUNTED + 2, False),
        ("age", COUNTED[::-1], False),
        ("age", COUNTED[:19], False),
        ("age", LONG, True),
        ("age", LONG - 1, False),  # the first has four digits
        ("age", 99_990 + COUNTED, False),  # not all of one length
        ("age", LONG[:19], False),
    ],
)
def test_columns(name, values, expected):
    assert looks_like_ids(name, np.asarray(values)) is expected
