"""Run every benchmark once, print tables, write ``benchmarks/out/bench.json``."""

from __future__ import annotations

import argparse
import json
import math
import platform
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

from benchmarks import against, owners
from benchmarks.datasets import SETS, load
from benchmarks.measure import gemm_rate, read_bandwidth, seconds
from fedfactor.kernels.compiled import kernel
from fedfactor.threads import usable_cores

OUT = Path(__file__).parent / "out" / "bench.json"


def compile_all() -> float:
    """Load (or, the first time, compile) the loops in single precision; return the time it took."""
    real = np.dtype(np.float32)
    return seconds(lambda: [kernel(name, real) for name in ("solve_rows", "gather", "scatter")])[0]


def measure(label: str, bandwidth: float, rate: float, repeats: int) -> dict[str, Any] | None:
    """Measure one matrix, or say why not."""
    X = load(label)
    if X is None:
        print(f"{label}: skipped, its file is not in the data folder (set FEDFACTOR_DATA).", flush=True)
        return None
    ten = owners.compare(X, repeats=repeats)  # first: it also warms everything up
    limit = owners.share_of_limit(X, ten["seconds_per_round"], bandwidth, rate)
    result = {"against_sklearn": against.compare(X, repeats), "ten_owners": ten, "limit": limit}
    print(line(label, result), flush=True)
    return result


def line(label: str, result: dict[str, Any]) -> str:
    """Write one row of the table."""
    a, ten, limit = result["against_sklearn"], result["ten_owners"], result["limit"]
    stop = a["sklearn_default_tol"]
    worst = max(a["error_by_seed"].values())
    rounds = "/".join(str(count) for count in a["rounds_by_seed"].values())
    return (
        f"{label:16} {a['target']:.5f} {a['sklearn_seconds']:8.2f} {a['seconds']:7.2f} {a['ratio']:6.2f}x "
        f"{rounds:>12} {worst:.5f} {'yes' if a['reached'] else 'NO':3} | {stop['seconds']:6.2f} s {stop['error']:.5f} | "
        f"{1e3 * limit['seconds']:6.1f} {1e3 * limit['limit_seconds']:6.1f} {limit['share']:5.0%} | {ten['ratio']:.2f}x"
    )


def main() -> None:
    """Measure the machine, then every matrix."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", choices=list(SETS), help="a set; may be repeated")
    options = parser.parse_args()
    built, bandwidth, rate = compile_all(), read_bandwidth(), gemm_rate()
    print(f"{usable_cores()} cores, read {bandwidth / 1e9:.1f} GB/s, product {rate / 1e9:.0f} Gflop/s in single precision")
    print(f"compiled loops ready in {built:.2f} s (not counted below)")
    print("set              target   sklearn  ours s  ratio       rounds worst end at tgt | sklearn default | ms/round limit share | ten/one")
    results = {label: measure(label, bandwidth, rate, options.repeats) for label in options.only or SETS}
    ratios = [result["against_sklearn"]["ratio"] for result in results.values() if result]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    print(f"geometric mean of the ratios: {mean:.2f}x over {len(ratios)} sets; the least {min(ratios, default=math.nan):.2f}x")
    machine = {
        "cores": usable_cores(), "read_bytes_per_second": bandwidth, "flops_per_second": rate, "compile_seconds": built,
        "python": platform.python_version(), "numpy": np.__version__, "sklearn": sklearn.__version__,
    }  # fmt: skip
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"machine": machine, "geometric_mean": mean, "sets": results}, indent=1) + "\n")
    print(f"written: {OUT}")


if __name__ == "__main__":
    main()
