"""Draw a seeded sample of faults, put each to the tests that reach its line, and name those that nobody noticed."""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from mutants.faults import ON_CARDS, Fault, fault, number_of_faults
from mutants.in_place import NOT_HERE, InPlace
from mutants.reach import OUT as REACH

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("core", "engines", "network", "privacy", "linalg", "nmf", "boolean", "recommend")
LEAST = 0.9
CAUGHT = ("caught", "never ended")
MOST_TESTS, MOST_SECONDS = 400, 30.0
STARTING = {False: 60.0, True: 240.0}
"""Seconds of the processor for the start of a run; compiled loops are compiled anew for each fault."""
RESULTS = Path(__file__).parent / "results.json"
"""What became of each fault of a seed when the rooms were last tried."""
TRIED = REACH.parent / "tried.txt"
"""What became of faults so far, for ``--resume``: one line each, so that a run may be broken off."""
FAST, FASTEST = ("-q", "-p", "no:xdist"), "not slow and not integration"


def sample(rooms: tuple[str, ...], size: int, seed: int) -> list[Fault]:
    """Draw faults evenly from the rooms, every possible fault of a room being as likely as any other."""
    found: list[Fault] = []
    for room in rooms:
        draw = random.Random(f"{seed} {room}")  # a room alone gets the faults that it gets among the others
        files = sorted((ROOT / "src" / "fedfactor" / room).rglob("*.py"))
        files = [path for path in files if not path.as_posix().endswith(ON_CARDS)]
        spots = [(path, i) for path in files for i in range(number_of_faults(path))]
        found += [fault(path, i) for path, i in draw.sample(spots, min(len(spots), size // len(ROOMS)))]
    return found


def tests_of(one: Fault, reach: dict[str, Any]) -> tuple[list[str], float]:
    """Choose the tests of a fault: those that reach its line, its file's own first, then its room's, the quick first.

    Returns them with the seconds that they take.
    """
    name = one.path.relative_to(ROOT).as_posix()
    room = name.split("/")[2]
    lines: dict[str, list[int]] = reach["lines"].get(name, {})
    seconds, tests = reach["seconds"], reach["tests"]
    subject = "" if one.path.parent.name == room else one.path.parent.name
    own = re.compile(rf"/test_({one.path.stem.strip('_')}|{subject})\.py")
    everywhere = set[int]().union(*lines.values())
    # What is run by whoever comes first is not seen with the others: a file's own tests always count.
    numbers = {*lines.get(str(one.line), ()), *(i for i in everywhere if own.search(tests[i]))}
    if not lines.get(str(one.line)) or not _in_function(one):  # all tests that reach the file, or name it
        files = {test.split("::")[0] for test in tests}
        named = {test for test in files if test.startswith("tests/") and _names(ROOT / test, name)}
        classes = [node.name for node in ast.parse(one.path.read_text()).body if isinstance(node, ast.ClassDef)]
        about = (i for i, test in enumerate(tests) if test.split("::")[0] in named or any(c in test for c in classes))
        numbers |= everywhere.union(about)
    if "/loops/" in name:
        numbers = _tests_of_loop(one, reach)
    numbers = {i for i in numbers if tests[i] not in reach.get("gone", ())}
    order = sorted(numbers, key=lambda i: (not own.search(tests[i]), f"/{room}/" not in tests[i], seconds[i]))
    chosen: list[str] = []
    spent = 0.0
    for i in order:
        if len(chosen) >= MOST_TESTS or (spent > MOST_SECONDS and chosen):
            break
        chosen.append(tests[i])
        spent += seconds[i]
    return chosen, spent


def _in_function(one: Fault) -> bool:
    """Tell whether a fault lies in the body of a function: anything else is decided on import."""
    functions = (node for node in ast.walk(ast.parse(one.path.read_text())) if isinstance(node, ast.FunctionDef))
    return any(node.body[0].lineno <= one.line <= (node.end_lineno or 0) for node in functions)


@cache
def _imports(path: Path) -> set[str]:
    """List the modules that a test file imports, and what it imports from modules, by their whole names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())) if path.exists() else ():
        if isinstance(node, ast.Import):
            found |= {part.name for part in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{part.name}" for part in node.names)}
    return found


def _names(test: Path, source: str) -> bool:
    return source.removeprefix("src/").removesuffix(".py").replace("/", ".") in _imports(test)


def _tests_of_loop(one: Fault, reach: dict[str, Any]) -> set[int]:
    """Find the tests of a compiled loop, whose lines coverage does not see: those where it is asked for by its name."""
    inside: dict[str, set[str]] = {}
    wanted: set[str] = set()
    for path in (ROOT / "src" / "fedfactor" / "linalg" / "compiled").rglob("*.py"):
        for function in ast.parse(path.read_text()).body:
            if isinstance(function, ast.FunctionDef):
                called = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
                inside.setdefault(function.name, set()).update(called)
                if path == one.path and function.lineno <= one.line <= (function.end_lineno or 0):
                    wanted.add(function.name)
    size = -1
    while len(wanted) > size:  # those who call it, and those who call them
        size = len(wanted)
        wanted |= {name for name, called in inside.items() if called & wanted}
    found: set[int] = set()
    for path in (ROOT / "src" / "fedfactor").rglob("*.py"):
        lines: dict[str, list[int]] = reach["lines"].get(path.relative_to(ROOT).as_posix(), {})
        for number, text in enumerate(path.read_text().splitlines(), 1):
            if "kernel" in text and any(f'"{name}"' in text for name in wanted):
                found.update(lines.get(str(number), ()))
    return found or {
        i
        for i, test in enumerate(reach["tests"])
        if test.startswith(("tests/linalg/", "tests/boolean/", "tests/recommend/"))
    }


def fate(one: Fault, tests: list[str], seconds: float, tree: Path, sound: dict[str, bool]) -> str:
    """Put the fault into a copy of the source, run its tests, and take it out again; say what became of it.

    A test that fails in the copy without any fault tells nothing: `sound` says which do not, and grows.
    """
    tests = [test for test in tests if sound.get(test, True)]
    if not tests:
        return "unreached"
    patience = STARTING["/loops/" in one.path.as_posix()] + 2 * seconds
    with _inside(one, tree):
        code, failed = _run(tests, tree, patience)
    if code in (-signal.SIGTERM, -signal.SIGKILL):
        raise KeyboardInterrupt("the run was broken off, which catches no fault")
    if code == -signal.SIGXCPU:
        return "never ended"  # which is noticed, too
    for test in failed:
        if test not in sound:
            found = _run([test] if "::" in test else ["--collect-only", test], tree, patience)[0]
            sound[test] = found in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if sound[test]:
            return "caught"
    if not failed:
        return "caught" if code else "survived"
    left = [test for test in tests if test not in failed and test.split("::")[0] not in failed]
    return fate(one, left, seconds, tree, sound) if len(left) < len(tests) else "survived"


@contextmanager
def _inside(one: Fault, tree: Path) -> Iterator[None]:
    """Keep a fault in a copy, and leave the copy as it was, compiled loops included."""
    target = tree / one.path.relative_to(ROOT)
    before, times = target.read_text(), target.stat()
    compiled, aside = tree / "src" / "fedfactor" / "linalg" / "compiled" / "__pycache__", tree / ".compiled"
    if loops := "/loops/" in one.path.as_posix():
        shutil.copytree(compiled, aside)
    target.write_text(one.source)
    try:
        yield
    finally:
        target.write_text(before)
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
        if loops:
            shutil.rmtree(compiled)
            aside.rename(compiled)


def _run(tests: list[str], tree: Path, patience: float) -> tuple[int, list[str]]:
    """Run tests in a copy until the first failure; returns the exit code and what failed.

    Patience is counted in seconds of the processor, and four times as many for who waits for ever: a machine that is
    busy with other things catches no fault.
    """
    environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}:{tree}"}
    kept = tree / ".cache"
    shutil.rmtree(kept, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-x", "-o", f"cache_dir={kept}", "-m", FASTEST, *FAST, *tests]
    limited = ["sh", "-c", 'ulimit -S -t "$0" && exec "$@"', str(int(patience)), *command]
    try:
        code = subprocess.run(limited, cwd=tree, env=environment, capture_output=True, timeout=4 * patience).returncode
    except subprocess.TimeoutExpired:
        code = -signal.SIGXCPU
    found = kept / "v" / "cache" / "lastfailed"
    return code, list(json.loads(found.read_text())) if found.exists() else []


def main() -> int:
    """Run; the exit code tells whether enough faults were caught."""
    asked = argparse.ArgumentParser(prog="mutants", description=__doc__)
    asked.add_argument("--room", choices=ROOMS)
    asked.add_argument("--sample", type=int, default=200)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--workers", type=int, default=2)
    asked.add_argument("--resume", action="store_true", help="take what was found out before as found out")
    asked.add_argument("--minutes", type=float, default=600, help="begin nothing new after that; --resume goes on")
    given = asked.parse_args()
    until = time.monotonic() + 60 * given.minutes
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    if not REACH.exists():
        print("First the map of tests and lines (python -m mutants.reach FILES adds new tests to it).", flush=True)
        if subprocess.run([sys.executable, "-m", "mutants.reach"], cwd=ROOT).returncode:
            return 2
    reach = json.loads(REACH.read_text())
    faults = sample((given.room,) if given.room else ROOMS, given.sample, given.seed)
    tried = _tried() if given.resume else {}

    def note(one: Fault, became: str, tests: int) -> None:
        tried[_key(one)] = became
        with TRIED.open("a") as file:
            file.write(f"{_key(one)}\t{became}\t{'' if became in CAUGHT else _state()}\n")
        if became not in (*CAUGHT, NOT_HERE):
            print(f"{became}: {_where(one)}:{one.line} {one.words} ({tests} tests reach it)", flush=True)

    def note_fork(one: Fault, became: str, tests: int) -> None:
        lines = reach["lines"].get(one.path.relative_to(ROOT).as_posix(), {})
        unseen = became == "survived" and not lines.get(str(one.line))  # run on import, perhaps
        note(one, NOT_HERE if unseen else became, tests)

    def chosen(one: Fault) -> tuple[list[str], float]:
        return tests_of(one, reach | {"gone": reach["gone"] | trials.unsound})

    def collected(tests: Iterable[str]) -> None:
        reach["gone"] = set(reach["tests"]) - set(tests)
        if unknown := sorted({test.split("::")[0] for test in set(tests) - set(reach["tests"])}):
            more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
            print(f"Not all tests are in the map: python -m mutants.reach {' '.join(unknown[:10])}{more}", flush=True)

    quick = [one for one in faults if _key(one) not in tried and "/loops/" not in one.path.as_posix()]
    trials = InPlace(quick, chosen, given.workers, note_fork, collected, until)
    pytest.main(["tests", "src", "-s", "-p", "no:cacheprovider", *FAST, "-m", FASTEST], plugins=[trials])
    open_ = [one for one in faults if tried.get(_key(one), NOT_HERE) == NOT_HERE]
    print(f"{len(faults) - len(open_)} of {len(faults)} settled; the others in processes of their own.", flush=True)
    in_trees(open_, reach, given.workers, note, until)
    if time.monotonic() > until and any(tried.get(_key(one), NOT_HERE) == NOT_HERE for one in faults):
        print("Time is over before all were tried: go on with --resume.", flush=True)
        return 3
    found: dict[str, list[str]] = {}
    for one in faults:
        became = tried.get(_key(one), "survived")
        found.setdefault(_where(one).split("/")[0], []).append(became)
        if became not in CAUGHT:
            found.setdefault("survivors", []).append(f"{_where(one)}:{one.line} {one.words}")
    return tell(found, given.seed)


def in_trees(
    faults: list[Fault], reach: dict[str, Any], workers: int, note: Callable[[Fault, str, int], None], until: float
) -> None:
    """Try faults in copies of the repository, each in a process of its own."""
    trees: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(workers):
            tree = Path(folder) / str(i)
            for source in ROOT.iterdir():  # all that a test may read beside the source
                if not source.name.startswith("."):
                    copy = shutil.copytree if source.is_dir() else shutil.copy2
                    tree.mkdir(exist_ok=True)
                    copy(source, tree / source.name)
            trees.put(tree)

        sound: dict[str, bool] = {}

        def judge(one: Fault) -> tuple[Fault, str, int] | None:
            if time.monotonic() > until:
                return None
            tests, seconds = tests_of(one, reach)
            tree = trees.get()
            try:
                return one, fate(one, tests, seconds, tree, sound), len(tests)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(workers) as pool:
            for done, outcome in enumerate(pool.map(judge, faults), 1):
                if outcome is None:
                    break
                note(*outcome)
                if done % 10 == 0:
                    print(f"{done} of {len(faults)}", flush=True)


def _where(one: Fault) -> str:
    return one.path.relative_to(ROOT / "src" / "fedfactor").as_posix()


def _key(one: Fault) -> str:
    text = hashlib.sha256(one.path.read_bytes()).hexdigest()[:12]
    return f"{_where(one)} {text} {one.position}"


@cache
def _state() -> str:
    """Name the state of source and tests: what survived may be caught in another."""
    found = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def _tried() -> dict[str, str]:
    """Read what became of faults: what was caught is caught while its file is the same, the rest if nothing changed."""
    lines = [line.split("\t") for line in TRIED.read_text().splitlines()] if TRIED.exists() else []
    return {key: became for key, became, state in lines if became in CAUGHT or state == _state()}


def tell(found: dict[str, list[str]], seed: int) -> int:
    """Write down and print what became of the faults; the exit code tells whether enough were caught."""
    whole = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results = whole.setdefault(f"seed {seed}", {})
    survivors = found.pop("survivors", [])
    for room, fates in found.items():
        named = [line for line in survivors if line.startswith(f"{room}/")]
        results[room] = {**{word: fates.count(word) for word in sorted(set(fates))}, "survivors": named}
    RESULTS.write_text(json.dumps(whole, indent=1) + "\n")
    fates = [became for each in found.values() for became in each]
    caught = sum(became in CAUGHT for became in fates)
    print(f"{caught} of {len(fates)} caught ({caught / len(fates):.0%}; at least {LEAST:.0%} are asked for)")
    return int(caught < LEAST * len(fates))


if __name__ == "__main__":
    raise SystemExit(main())
