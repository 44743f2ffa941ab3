"""A plugin for pytest: which test reaches which line, and how long each test takes."""

from __future__ import annotations

import json
import os
import sys
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
        """Write the map: file → line → numbers of tests; what was known of other tests stays."""
        self.cover.stop()
        data = self.cover.get_data()
        whole: dict[str, Any] = {"tests": [], "seconds": [], "lines": {}}
        if OUT.exists():
            whole = json.loads(OUT.read_text())
        known = {name: i for i, name in enumerate(whole["tests"])}
        for name, seconds in self.seconds.items():
            if name in known:
                whole["seconds"][known[name]] = seconds
            elif name not in self.failed:
                known[name] = len(whole["tests"])
                whole["tests"].append(name)
                whole["seconds"].append(seconds)
        for file in data.measured_files():
            found = whole["lines"].setdefault(os.path.relpath(file, ROOT), {})
            for line, contexts in data.contexts_by_lineno(file).items():
                reached = {known[c] for c in contexts if c in known}
                found[str(line)] = sorted(reached | set(found.get(str(line), ())))
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(json.dumps(whole))


def main(places: list[str]) -> int:
    """Run all fast tests, or those in the places named, once under coverage."""
    chosen = [*(places or ("tests", "src")), "-q", "-p", "no:cacheprovider", "-m", "not slow and not integration"]
    return int(pytest.main(chosen, plugins=[Reach()]) > pytest.ExitCode.TESTS_FAILED)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
