"""Compare the working tree with a reference commit on this machine, bit by bit.

Every part of the library is recorded by one program (``record.py``) in fresh processes, once with the source of the
reference and once with the working tree. Whatever the reference gave must come out the same; what the tree adds is
counted. Differences that are meant are listed in ``intended.toml``, with a reason each. The exit status is 1 when
anything else differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REFERENCE = "8a127e78"
PARTS = (
    "signatures", "terms", "commands", "read", "local", "private", "virtual", "parties", "mpi", "processes", "dask",
)  # fmt: skip
ABOUT = {
    "signatures": "public names, parameters, defaults",
    "terms": "fingerprints of ten agreements, format 1",
    "commands": "exit codes and result folders",
    "read": "results, checkpoints, ledger, parties of the reference",
    "local": "all algorithms, threads, all kinds of data",
    "private": "all algorithms, all privacy modes",
    "virtual": "all algorithms, virtual clock",
    "parties": "all algorithms, remote parties in one process",
    "mpi": "all algorithms, two MPI ranks",
    "processes": "all algorithms, worker processes",
    "dask": "all algorithms, Dask cluster",
}

Table = dict[str, Any]


def check_out(commit: str, folder: Path) -> Path:
    """Write the files of a commit to a folder, unless they are there."""
    if not folder.exists():
        made = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        with subprocess.Popen(["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE) as packed:
            subprocess.run(["tar", "-x", "-C", str(made)], stdin=packed.stdout, check=True)
        made.rename(folder)
    return folder


def record(tree: Path, part: str, file: Path, *more: Path) -> Table:
    """Record one part with the source of a tree, in a process of its own."""
    variables = {
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)]),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
    }
    call = [sys.executable, str(HERE / "record.py"), part, str(file), *map(str, more)]
    if part == "mpi":
        call = [str(Path(sys.executable).parent / "mpiexec"), "-n", "2", *call]
    found = subprocess.run(call, env={**os.environ, **variables}, cwd=tree, capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"Recording {part} with {tree} failed:\n{found.stderr[-4000:]}")
    return json.loads(file.read_text())


def both(part: str, reference: Path, keep: Path) -> tuple[Table, Table]:
    """Record a part with the reference (or take what was recorded before, by the same program) and with the tree."""
    files = [HERE / name for name in ("record.py", "stored.py", "terms.toml")]
    program = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    known = keep / f"{reference.name}-{part}-{program}.json"
    if part != "read":
        before = json.loads(known.read_text()) if known.exists() else record(reference, part, known)
        return before, record(ROOT, part, keep / f"tree-{part}.json")
    written = keep / f"{reference.name}-files-{program}"
    if not written.exists():
        made = Path(tempfile.mkdtemp(dir=keep))
        record(reference, "write", keep / "written.json", made)
        made.rename(written)
    with tempfile.TemporaryDirectory() as place:
        if not known.exists():
            record(reference, part, known, shutil.copytree(written, Path(place) / "reference"))
        now = record(ROOT, part, keep / f"tree-{part}.json", shutil.copytree(written, Path(place) / "tree"))
    return json.loads(known.read_text()), now


def compare(part: str, before: Table, now: Table, intended: list[dict[str, str]]) -> tuple[Counter[str], list[str]]:
    """Count what is the same, added, different on purpose, and different; list the last."""
    counts: Counter[str] = Counter(added=len(now.keys() - before.keys()))
    lines: list[str] = []
    for key, value in before.items():
        if key in now and now[key] == value:
            counts["same"] += 1
        elif any(fnmatchcase(f"{part}/{key}", each["what"]) for each in intended):
            counts["intended"] += 1
        else:
            counts["different"] += 1
            lines.append(f"{key}: {str(value)[:80]} -> {str(now.get(key, 'absent'))[:80]}")
    return counts, lines


def main() -> int:
    """Read the command line, compare, print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.comparison", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"one or more of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--reference", default=REFERENCE, help="commit to compare with (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="folder for the reference and its recordings, to be used again")
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    call = ["git", "-C", str(ROOT), "rev-parse", "--short=12", f"{asked.reference}^{{commit}}"]
    commit = subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip()
    intended = tomllib.loads((HERE / "intended.toml").read_text(encoding="utf-8")).get("difference", [])
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="comparison-") as scratch:
        keep = (asked.keep or Path(scratch)).resolve()
        reference = check_out(commit, keep / commit)
        print(f"{commit} against the working tree of {ROOT}")
        print(f"{'part':<11}{'what':<56}{'same':>7}{'added':>7}{'intended':>10}{'different':>11}{'s':>6}")
        for part in asked.parts or PARTS:
            began = time.perf_counter()
            counts, lines = compare(part, *both(part, reference, keep), intended)
            figures = f"{counts['same']:>7}{counts['added']:>7}{counts['intended']:>10}{counts['different']:>11}"
            print(f"{part:<11}{ABOUT[part]:<56}{figures}{time.perf_counter() - began:>6.0f}", flush=True)
            for line in lines[:20]:
                print(f"    {line}")
            if len(lines) > 20:
                print(f"    ... and {len(lines) - 20} more")
            wrong += counts["different"]
    print("identical, but for what intended.toml lists" if not wrong else f"{wrong} differences")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
