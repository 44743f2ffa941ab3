"""A plugin for pytest: try faults in copies of one process in which all tests are collected already.

A run of its own for every fault takes seconds before the first test begins. Here the tests are collected once. For each
fault the process is forked; the fork gets the faulty code of the functions concerned and runs the tests that reach the
line. What is decided on import (defaults, constants, fields, decorators) is not changed by that, and is tried in a
process of its own (see ``__main__``).
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from mutants.faults import Fault

SURVIVED, CAUGHT, NO_FUNCTION = 0, 1, 2
PATIENCE = 20
"""Seconds of the processor for a fault beside twice those that its tests take, and four times as many to wait."""
NOT_HERE = "not in a function"


class InPlace:
    """Tries faults, each in a fork of this process; `fates` says what became of those that were noticed."""

    def __init__(
        self, faults: Iterable[Fault], tests_of: Callable[[Fault], tuple[list[str], float]], workers: int,
        tell: Callable[[Fault, str, int], None], collected: Callable[[Iterable[str]], None],
        until: float,
    ) -> None:  # fmt: skip
        self.waiting = list(faults)[::-1]
        self.tests_of, self.workers, self.tell = tests_of, workers, tell
        self.collected, self.until = collected, until
        self.sound: set[str] = set()
        self.unsound: set[str] = set()
        self.items: dict[str, pytest.Item] = {}
        self.failed: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first failure."""
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try every fault instead of running the tests."""
        self.items = {item.nodeid: item for item in session.items}
        self.collected(self.items)
        if not self.waiting:
            return True
        self.functions: dict[str, list[FunctionType]] = {}
        for found in gc.get_objects():
            if type(found) is FunctionType and "/src/fedfactor/" in found.__code__.co_filename:
                self.functions.setdefault(os.path.realpath(found.__code__.co_filename), []).append(found)
        self._warm_up()
        gc.freeze()
        self.folder = Path(tempfile.mkdtemp())
        running: dict[int, tuple[Fault, list[str], float, bool]] = {}
        try:
            while self.waiting or running:
                if time.monotonic() > self.until:
                    self.waiting.clear()
                while self.waiting and len(running) < self.workers:
                    self._begin(running, self.waiting.pop())
                if not running:
                    continue
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid:
                    self._end(running, pid, os.waitstatus_to_exitcode(status))
                    continue
                for late in [pid for pid, (*_, until, _control) in running.items() if time.monotonic() > until]:
                    os.killpg(late, signal.SIGKILL)
                time.sleep(0.01)
        finally:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def _warm_up(self) -> None:
        """Run small calls of everything once, so that no fork has to load compiled loops and libraries for itself."""
        items = [
            item
            for name, item in self.items.items()
            if "/test_figures.py::test_figures_are_those_written_down[" in name and "plain" not in name
        ]
        for item, after in pairwise([*items, None]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        self.failed = None

    def _begin(self, running: dict, one: Fault, control: list[str] | None = None) -> None:
        tests, seconds = self.tests_of(one) if control is None else (control, PATIENCE)
        tests = [test for test in tests if test in self.items]
        if not tests:
            return
        patience = int(PATIENCE + 2 * seconds)
        if pid := os.fork():
            running[pid] = one, tests, time.monotonic() + 4 * patience, control is not None
            return
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (patience, patience + 5))
            signal.alarm(8 * patience)  # for whoever is left when the run itself is killed
            code = self._run(None if control else one, tests)
        except BaseException:
            code = CAUGHT
        os._exit(code)

    def _run(self, one: Fault | None, tests: list[str]) -> int:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        if one is not None and not put(one, self.functions.get(str(one.path), [])):
            return NO_FUNCTION
        own = self.folder / str(os.getpid())
        own.mkdir()
        items = [self.items[test] for test in tests]
        items[0].config._tmp_path_factory._basetemp = own  # type: ignore[attr-defined]
        for item, after in pairwise([*items, None]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self.failed is not None:
                (self.folder / f"{os.getpid()}.failed").write_text(self.failed)
                return CAUGHT
        return SURVIVED

    def _end(self, running: dict, pid: int, code: int) -> None:
        one, tests, _, control = running.pop(pid)
        shutil.rmtree(self.folder / str(pid), ignore_errors=True)
        noted = self.folder / f"{pid}.failed"
        if control:
            (self.unsound if code else self.sound).add(tests[-1])
            self.waiting.append(one)
        elif code == CAUGHT and noted.exists() and (by := noted.read_text()) not in self.sound:
            self._begin(running, one, [by])  # a test that fails in a fork without any fault tells nothing
        elif code == CAUGHT or code < 0:
            self.tell(one, "caught" if code > 0 else "never ended", len(tests))
        else:
            self.tell(one, "survived" if code == SURVIVED else NOT_HERE, len(tests))


def put(one: Fault, functions: list[FunctionType]) -> bool:
    """Give the functions of a file their code with the fault in it; False when none of them has it."""
    new: dict[tuple[str, int], list[CodeType]] = {}
    _list(compile(one.tree, str(one.path), "exec", dont_inherit=True), new)
    changed = False
    for function in functions:
        found = new.get((function.__code__.co_qualname, function.__code__.co_firstlineno), [])
        if len(found) == 1 and found[0] != function.__code__:
            function.__code__ = found[0].replace(co_filename=function.__code__.co_filename)
            changed = True
    return changed


def _list(code: CodeType, into: dict[tuple[str, int], list[CodeType]]) -> None:
    into.setdefault((code.co_qualname, code.co_firstlineno), []).append(code)
    for part in code.co_consts:
        if isinstance(part, CodeType):
            _list(part, into)
