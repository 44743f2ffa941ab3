"""Every way of the local engine returns what the reference returns."""

from __future__ import annotations

import pytest

from fedfactor import LocalEngine
from fedfactor.testing import algorithm_checks, engine_checks
from fedfactor.testing.probe import Probe

ENGINES = {
    "one thread": lambda: LocalEngine(workers=1),
    "two threads": lambda: LocalEngine(workers=2),
    "more threads than clients": lambda: LocalEngine(workers=9),
    "two processes": lambda: LocalEngine("processes", workers=2),
}
SLOW = {"two processes"}


def cases():
    for label, make in ENGINES.items():
        for check in engine_checks():
            # One check with processes is quick enough for every day; each of the others starts a dozen interpreters.
            daily = label not in SLOW or check.__name__ == "check_engine_drop_outs"
            marks = () if daily else (pytest.mark.slow,)
            yield pytest.param(make, check, id=f"{label}-{check.__name__}", marks=marks)


@pytest.mark.parametrize(("make", "check"), list(cases()))
def test_engine(make, check):
    check(make, 0.0)


@pytest.mark.parametrize("check", list(algorithm_checks(Probe())), ids=str)
def test_the_probe_is_itself_a_sound_algorithm(check):
    check()
