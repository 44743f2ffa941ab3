"""A plugin for pytest: which test reaches which line, and how long each test takes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / ".mutants" / "reach.json"


class Reach:
    """Switches coverage's context with every test, and writes the map down at the end."""

    def __init__(self) -> None:
        self.cover = coverage.Coverage(data_file=None, source=[str(ROOT / "src" / "fedfactor")], config_file=False)
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_sessionstart(self) -> None:
        """Begin to watch."""
        self.cover.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Give the lines of this test to this test."""
        self.cover.switch_context(item.nodeid)
        began = time.perf_counter()
        yield
        self.seconds[item.nodeid] = round(time.perf_counter() - began, 3)
        self.cover.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out a test that fails without any fault: it could not tell one."""
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the map: file → line → numbers of tests."""
        self.cover.stop()
        data = self.cover.get_data()
        tests = [name for name in self.seconds if name not in self.failed]
        number = {name: i for i, name in enumerate(tests)}
        lines: dict[str, dict[str, list[int]]] = {}
        for file in data.measured_files():
            found: dict[str, list[int]] = {}
            for line, contexts in data.contexts_by_lineno(file).items():
                found[str(line)] = sorted(number[c] for c in contexts if c in number)
            lines[os.path.relpath(file, ROOT)] = found
        OUT.parent.mkdir(exist_ok=True)
        whole: dict[str, Any] = {"tests": tests, "seconds": [self.seconds[name] for name in tests], "lines": lines}
        OUT.write_text(json.dumps(whole))


def main() -> int:
    """Run the fast tests of the rooms once under coverage; those of other rooms should not be needed."""
    rooms = ("core", "engines", "privacy", "kernels", "algorithms")
    places = [f"tests/{name}" for name in (*rooms, "contract", "mpi", "dask")] + [
        f"src/fedfactor/{name}" for name in rooms
    ]
    chosen = [*places, "-q", "-p", "no:cacheprovider", "-m", "not slow and not integration"]
    return int(pytest.main(chosen, plugins=[Reach()]) > pytest.ExitCode.TESTS_FAILED)


if __name__ == "__main__":
    raise SystemExit(main())
