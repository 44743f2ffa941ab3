"""Run every benchmark once, or some, print tables, write ``benchmarks/out/bench.json``."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

from benchmarks import against, counts, growth, missing, neighbour, owners, rivals
from benchmarks.datasets import OTHERS, SETS, load
from benchmarks.measure import gemm_rate, read_bandwidth, seconds
from fedfactor.core.threads import usable_cores
from fedfactor.linalg.compiled.compile import kernel

HEAD = (
    "                 time to scikit-learn's error after 200 passes         worst end | sklearn tol 1e-4| ms a round\n"
    "set              target   sklearn   ours   ratio          rounds (verified) |  s    error   | ours least share "
    "| ten/one owner | busy/quiet, sklearn/ours busy | cpu/wall on one thread"
)
OUT = Path(__file__).parent / "out" / "bench.json"


def compile_all() -> float:
    """Load (or, the first time, compile) the loops in single precision; return the time it took."""
    real = np.dtype(np.float32)
    names = ("dense_rows", "sparse_rows", "sparse_sums", "sweep_rows", "masked_rows", "fold_start", "squares")
    return seconds(lambda: [kernel(name, real) for name in names])[0]


def measure(label: str, repeats: int) -> dict[str, Any] | None:
    """Measure one matrix, or say why not."""
    X = load(label)
    if X is None:
        print(f"{label}: skipped, its file is not in the data folder (set FEDFACTOR_DATA).", flush=True)
        return None
    ten = owners.compare(X, repeats=repeats)  # first: it also warms everything up
    limit = owners.share_of_limit(X, repeats=repeats)
    raced = against.compare(X, repeats)
    first = raced["by_seed"][0]
    beside = neighbour.compare(X, label, first["stop"] if first["reached"] else None, repeats)
    result = {"against_sklearn": raced, "ten_owners": ten, "limit": limit, "neighbour": beside}
    print(line(label, result), flush=True)
    return result


def line(label: str, result: dict[str, Any]) -> str:
    """Write one row of the table."""
    a, ten, limit = result["against_sklearn"], result["ten_owners"], result["limit"]
    beside = result["neighbour"]
    stop, seeds = a["sklearn_default_tol"], a["by_seed"].values()
    rounds = "/".join(str(one["rounds"]) if one["reached"] else "never" for one in seeds)
    reached = [one["error"] for one in seeds if one["reached"]]
    return (
        f"{label:16} {a['target']:.6f} {a['sklearn_seconds']:7.2f} {a['seconds'] or math.nan:6.2f} "
        f"{a['ratio']:6.2f}x {rounds:>15} {max(reached, default=math.nan):.6f} "
        f"| {stop['seconds']:5.2f} {stop['error']:.6f} | "
        f"{1e3 * limit['seconds']:6.1f} {1e3 * limit['limit_seconds']:5.1f} {limit['share']:5.0%} "
        f"| {ten['ratio']:.2f}x | {beside['ratio']:.2f}x, {beside['against_sklearn_beside'] or 0:.1f}x "
        f"| {beside['one_thread_cpu_per_wall']:.2f}"
    )


def race(labels: list[str], repeats: int) -> dict[str, Any]:
    """Measure the matrices, and sum up how they stand against scikit-learn."""
    print(HEAD)
    return {label: measure(label, repeats) for label in labels}


def summary(results: dict[str, Any]) -> float:
    """Print how all matrices measured so far stand against scikit-learn; return the geometric mean."""
    told = {label: result["against_sklearn"]["ratio"] for label, result in results.items() if result}
    ratios, others = ([ratio for label, ratio in told.items() if label in group] for group in (SETS, OTHERS))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios and min(ratios) > 0 else 0.0
    print(f"ratios: geometric mean {mean:.2f}x over {len(ratios)} sets, least {min(ratios, default=math.nan):.2f}x; "
          f"sets on which nothing was tuned: least {min(others, default=math.nan):.2f}x")  # fmt: skip
    return mean


def holes() -> dict[str, Any]:
    """Compare rounds over rows with missing cells with plain ones."""
    found = {label: missing.compare(X[:4000]) for label, X in complete().items()}
    for label, one in found.items():
        print(
            f"rounds with missing cells over plain ones, {label}:", {s: round(r, 1) for s, r in one["ratios"].items()}
        )
    return found


def grown() -> dict[str, Any]:
    """Double sizes."""
    found = growth.exponents()
    print("growth of a round, exponent:", {name: round(one["exponent"], 2) for name, one in found.items()})
    print("growth of a round, a doubling:", {name: round(one["doubling"], 2) for name, one in found.items()})
    return found


def complete() -> dict[str, Any]:
    """Return the dense matrices that are here."""
    loaded = {label: load(label) for label in ("dense 4000x2000", "fashion-mnist")}
    return {label: X for label, X in loaded.items() if X is not None}


def main() -> None:
    """Measure the machine, then every part that is asked for; what was measured before stays in the file."""
    parts = {"missing": holes, "counts": counts.table, "rivals": lambda: rivals.table(complete()), "growth": grown}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", choices=[*SETS, *OTHERS], help="a set; may be repeated")
    parser.add_argument("--part", action="append", choices=["sets", *parts], help="a part; may be repeated")
    options = parser.parse_args()
    asked = options.part or (["sets"] if options.only else ["sets", *parts])
    built, bandwidth, rate = compile_all(), read_bandwidth(), gemm_rate()
    cores, busy = usable_cores(), os.getloadavg()[0]
    print(f"{cores} cores, read {bandwidth / 1e9:.1f} GB/s, product {rate / 1e9:.0f} Gflop/s in single precision")
    print(f"compiled loops ready in {built:.2f} s (not counted below)")
    if busy > cores:
        print(f"The machine is busy (load {busy:.1f} on {cores} cores): do not quote the times below.")
    told: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    if "sets" in asked:
        found = race(options.only or [*SETS, *OTHERS], options.repeats)
        told["sets"] = told.get("sets", {}) | found
        told["geometric_mean"] = summary(told["sets"])
    for name, part in parts.items():
        if name in asked:
            told[name] = part()
    told["machine"] = {
        "cores": cores, "load": [busy, os.getloadavg()[0]],
        "read_bytes_per_second": bandwidth, "flops_per_second": rate, "compile_seconds": built,
        "python": platform.python_version(), "numpy": np.__version__, "sklearn": sklearn.__version__,
    }  # fmt: skip
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(told, indent=1) + "\n")
    print(f"written: {OUT}")


if __name__ == "__main__":
    main()
