"""What is looked for in these files, and what is not loaded or looked at again and again."""

from __future__ import annotations

import gc
import importlib.util
import re

import pytest

collect_ignore_glob = ["mpi/job_*.py"]  # scripts that tests start under mpiexec

_WHOLE = re.compile(r"^pytestmark = .*\bmark\.(slow|integration)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path, config):
    """Leave out files of which no test is wanted: some load Dask or a web server."""
    if not config.option.markexpr or not collection_path.name.startswith("test_"):
        return None
    whole = _WHOLE.search(collection_path.read_text())
    return True if whole and f"not {whole[1]}" in config.option.markexpr else None


def pytest_collection_modifyitems(items):
    """Skip what trains FedDMF where torch is not installed: its doctests and the contract's tests name it."""
    if importlib.util.find_spec("torch"):
        return
    for item in items:
        if re.search(r"FedDMF|feddmf|item_vector_membership", item.nodeid):
            item.add_marker(pytest.mark.skip(reason="torch is not installed"))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """No test holds a doctest: none is looked for."""
    found = yield
    return [one for one in found if not isinstance(one, pytest.DoctestItem) and type(one).__name__ != "DoctestModule"]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Take what was collected for what stays, so that the garbage collector need not go through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(params=["compiled", "plain"])
def path(request, monkeypatch):
    """Run a test with numba and as if it were not installed."""
    from fedfactor.linalg.compiled import compile as compiled

    if request.param == "plain":
        monkeypatch.setattr(compiled, "load_numba", lambda: None)
    elif compiled.load_numba() is None:
        pytest.skip("numba is not installed")
    return request.param
