"""A 100,000 × 20,000 sparse file is never whole in one process: peak memory of each of four ranks, and of one alone.

Twenty-six million stored cells are written in pieces, split in pieces, and factored by DSANLS with rank 50; the peaks
are the operating system's, with Python and its libraries in them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from fedfactor.io.npz_members import CsrWriter
from tests.mpi.launcher import mpiexec

ROWS, COLUMNS, CELLS = 100_000, 20_000, 300


def write(path):
    rng = np.random.default_rng(0)
    with CsrWriter(path, COLUMNS) as big:
        for _ in range(0, ROWS, 1000):
            topic = rng.integers(0, 20, 1000)[:, None] * 1000
            columns = np.sort((topic + rng.integers(0, 1000, (1000, CELLS))) % COLUMNS, axis=1)
            fresh = np.ones_like(columns, bool)
            fresh[:, 1:] = columns[:, 1:] != columns[:, :-1]
            big.add(fresh.sum(axis=1), columns[fresh], (1 + rng.random(int(fresh.sum()))).astype(np.float32))


def peak(code, *arguments):
    """Run Python code in a fresh interpreter and return its peak memory in MB."""
    tail = "\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)"
    done = subprocess.run([sys.executable, "-c", code + tail, *map(str, arguments)], capture_output=True, text=True)
    return float(done.stdout.splitlines()[-1])


def factor(home, count):
    """Factor the parts in a folder on so many ranks; return the peak of each in MB, and the relative error."""
    words = ["fit", "--engine", "mpi", "-a", "dsanls", "-k", 50, home / "parts", "-o", home / "out", "--seed", 1]
    words += ["--set", "iterations=5", "--set", "leak=ignore"]
    done = mpiexec(count, "-m", "fedfactor", *words, timeout=900)
    line = next(line for line in done.stdout.splitlines() if line.startswith("memory"))
    scale = {"MB": 1.0, "GB": 1e3}
    peaks = [float(value) * scale[unit] for value, unit in re.findall(r"rank \d+ ([\d.]+) (MB|GB)", line)]
    return peaks, json.loads((home / "out" / "shared" / "run.json").read_text())["relative_error"]


def claim():
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write(home / "big.npz")
        size = (home / "big.npz").stat().st_size / 1e6
        split = "import sys; from fedfactor.io.split_files import split_file\n"
        split += "split_file(sys.argv[1], sys.argv[2], 4, grid=True)"
        splitting = peak(split, home / "big.npz", home / "parts")
        parts = {path.name: path.stat().st_size / 1e6 for path in (home / "parts").glob("*.npz")}
        imports = "import numpy, scipy.sparse, numba, fedfactor.cli.main, fedfactor.nmf.distributed.dsanls, mpi4py.MPI"
        nothing = peak(imports)
        whole = peak(
            f"{imports}\nimport sys; from fedfactor.io.read import load_table\nload_table(sys.argv[1])",
            home / "big.npz",
        )
        ranks, error = factor(home, 4)
        (home / "one").mkdir()
        subprocess.run([sys.executable, "-c", split.replace(", 4,", ", 1,"), home / "big.npz", home / "one" / "parts"])
        alone, _ = factor(home / "one", 1)
    return {
        "file, MB": round(size),
        "largest block on disk, MB": round(max(parts.values())),
        "peak while splitting, MB": round(splitting),
        "peak of each rank, MB": ranks,
        "peak of a process that only imports, MB": round(nothing),
        "peak of a process that only loads the file, MB": round(whole),
        "peak of one rank that has it all, MB": alone,
        "relative error after 5 iterations": round(error, 4),
        "holds": bool(len(ranks) == 4 and max(ranks) < 0.6 * alone[0] and splitting < size),
    }
