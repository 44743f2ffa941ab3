"""Draw a seeded sample of faults, put each to the tests that reach its line, and name those that nobody noticed."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from mutants.faults import Fault, fault, number_of_faults
from mutants.reach import OUT as REACH

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("core", "engines", "privacy", "kernels", "algorithms")
LEAST = 0.9
MOST_TESTS, MOST_SECONDS, MOST_WAITING = 60, 30.0, 240.0


def sample(rooms: tuple[str, ...], size: int, seed: int) -> list[Fault]:
    """Draw faults evenly from the rooms, every possible fault of a room being as likely as any other."""
    draw = random.Random(seed)
    found: list[Fault] = []
    for room in rooms:
        files = sorted((ROOT / "src" / "fedfactor" / room).rglob("*.py"))
        spots = [(path, i) for path in files for i in range(number_of_faults(path))]
        found += [fault(path, i) for path, i in draw.sample(spots, min(len(spots), size // len(rooms)))]
    return found


def tests_of(one: Fault, reach: dict[str, Any]) -> list[str]:
    """Choose the tests of a fault: those that reach its line, its own room's first, the quick ones before the slow."""
    name = one.path.relative_to(ROOT).as_posix()
    room = name.split("/")[2]
    lines: dict[str, list[int]] = reach["lines"].get(name, {})
    numbers = lines.get(str(one.line), [])
    if not numbers:  # run on import, or a line within a statement: all tests that reach the file
        numbers = sorted(set().union(*lines.values()))
    if "/loops/" in name:  # compiled, so coverage does not see its lines: all tests of the kernels
        numbers = [i for i, test in enumerate(reach["tests"]) if test.startswith("tests/kernels/")]
    seconds, tests = reach["seconds"], reach["tests"]
    order = sorted(numbers, key=lambda i: (f"/{room}/" not in tests[i], seconds[i]))
    chosen: list[str] = []
    spent = 0.0
    for i in order:
        if len(chosen) >= MOST_TESTS or (spent > MOST_SECONDS and chosen):
            break
        chosen.append(tests[i])
        spent += seconds[i]
    return chosen


def survives(one: Fault, tests: list[str], tree: Path) -> bool:
    """Put the fault into a copy of the source, run its tests, and take it out again."""
    target = tree / one.path.relative_to(ROOT)
    before = target.read_text()
    target.write_text(one.source)
    environment = os.environ | {
        "PYTHONPATH": f"{tree / 'src'}:{tree}",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=MOST_WAITING)
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False  # a run that never ends is noticed, too
    finally:
        target.write_text(before)


def main() -> int:
    """Run; the exit code tells whether enough faults were caught."""
    asked = argparse.ArgumentParser(prog="mutants", description=__doc__)
    asked.add_argument("--room", choices=ROOMS)
    asked.add_argument("--sample", type=int, default=200)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--workers", type=int, default=2)
    given = asked.parse_args()
    if not REACH.exists():
        print("First the map of tests and lines (once; remove .mutants/ after tests have changed).", flush=True)
        if subprocess.run([sys.executable, "-m", "mutants.reach"], cwd=ROOT).returncode:
            return 2
    reach = json.loads(REACH.read_text())
    faults = sample((given.room,) if given.room else ROOMS, given.sample, given.seed)
    trees: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(given.workers):
            tree = Path(folder) / str(i)
            for part in ("src", "tests", "docs", "prove", "examples", "benchmarks", "pyproject.toml", "Makefile"):
                source = ROOT / part
                copy = shutil.copytree if source.is_dir() else shutil.copy2
                tree.mkdir(exist_ok=True)
                copy(source, tree / part)
            trees.put(tree)

        def judge(one: Fault) -> tuple[Fault, bool, int]:
            tests = tests_of(one, reach)
            tree = trees.get()
            try:
                return one, not tests or survives(one, tests, tree), len(tests)
            finally:
                trees.put(tree)

        survivors = 0
        with ThreadPoolExecutor(given.workers) as pool:
            for done, (one, alive, tests) in enumerate(pool.map(judge, faults), 1):
                survivors += alive
                if alive:
                    where = f"{one.path.relative_to(ROOT)}:{one.line}"
                    print(f"survived: {where} {one.words} ({tests} tests reach it)", flush=True)
                if done % 20 == 0:
                    print(f"{done} of {len(faults)}, {done - survivors} caught", flush=True)
    caught = len(faults) - survivors
    print(f"{caught} of {len(faults)} caught ({caught / len(faults):.0%}; at least {LEAST:.0%} are asked for)")
    return int(caught < LEAST * len(faults))


if __name__ == "__main__":
    raise SystemExit(main())
