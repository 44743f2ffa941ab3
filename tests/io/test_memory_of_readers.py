"""Every public name of the two rooms can be had, and none of them wakes a heavy guest."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fedfactor.data
import fedfactor.metrics


def test_every_listed_name_exists() -> None:
    for room in (fedfactor.data, fedfactor.metrics):
        assert len(room.__all__) > 5
        for name in room.__all__:
            assert getattr(room, name).__doc__


@pytest.mark.slow
def test_optional_packages_stay_asleep() -> None:
    code = (
        "import sys, fedfactor.data as d, fedfactor.metrics as m\n"
        "[getattr(r, n) for r in (d, m) for n in r.__all__]\n"
        "print(sorted({'torch', 'pandas', 'pyarrow', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
