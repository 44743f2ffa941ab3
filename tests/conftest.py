"""Scripts that tests start under mpiexec are not tests themselves, and no test holds a doctest: none is looked for."""

from __future__ import annotations

import pytest

collect_ignore_glob = ["mpi/job_*.py"]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    found = yield
    return [one for one in found if not isinstance(one, pytest.DoctestItem) and type(one).__name__ != "DoctestModule"]
