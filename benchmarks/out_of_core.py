"""Rows larger than memory: ``python -m benchmarks.out_of_core --gigabytes 40 --folder DIR``.

Writes a float32 ``.npy`` of that size (and removes it), factors it through the public path, and compares a round with
what the disk and the products allow, both measured in the same run. Memory is the process's anonymous memory: pages of
the mapped file are the system's, which takes them back when it needs room.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.linalg.single_pass import one_pass

_BLOCK = 1 << 28  # bytes written at a time
_READ = 1 << 24  # bytes read at a time where the disk is measured


def write(path: Path, rows: int, columns: int, rank: int) -> float:
    """Write planted rows with noise, block by block; return bytes a second."""
    rng = np.random.default_rng(0)
    V = rng.gamma(0.5, 1, (rank, columns)).astype(np.float32)
    step = max(1, _BLOCK // (4 * columns))
    noise = 0.1 * rng.random((step, columns), dtype=np.float32)
    began = time.perf_counter()
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)})
        for start in range(0, rows, step):
            U = rng.gamma(0.5, 1, (min(step, rows - start), rank)).astype(np.float32)
            file.write((U @ V + noise[: len(U)]).data)
        file.flush()
        os.fsync(file.fileno())
    return path.stat().st_size / (time.perf_counter() - began)


def disk_rate(path: Path, size: int) -> float:
    """Return bytes a second at which a stretch of the file that is not in memory is read, the best of two ways."""
    rates = []
    for threads in (1, 2):
        with open(path, "rb") as file:
            start = (threads - 1) * size
            os.posix_fadvise(file.fileno(), start, size, os.POSIX_FADV_DONTNEED)
            places = iter(range(start, start + size, _READ))

            def take(places: Any = places, handle: int = file.fileno()) -> None:
                held = bytearray(_READ)
                for place in places:
                    os.preadv(handle, [held], place)

            workers = [threading.Thread(target=take) for _ in range(threads)]
            began = time.perf_counter()
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            rates.append(size / (time.perf_counter() - began))
            os.posix_fadvise(file.fileno(), start, size, os.POSIX_FADV_DONTNEED)
    return max(rates)


def product_rate(X: np.ndarray, rank: int, sweeps: int) -> float:
    """Return bytes a second at which rows in memory go through a pass, the best of three."""
    rng = np.random.default_rng(0)
    V, U = rng.random((rank, X.shape[1]), dtype=np.float32), np.zeros((len(X), rank), np.float32)
    times = []
    for _ in range(4):
        began = time.perf_counter()
        one_pass(X, V, U, sweeps=sweeps)
        times.append(time.perf_counter() - began)
    return X.nbytes / min(times[1:])


class Memory:
    """Watches this process's anonymous memory."""

    def __init__(self) -> None:
        self.peak, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def now(self) -> int:
        """Return the bytes held now."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.peak = max(self.peak, self.now())

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()


def measure(path: Path, rank: int, rounds: int) -> dict[str, Any]:
    """Factor one file, and compare."""
    table = fedfactor.read(path)
    X, size = table.X, path.stat().st_size
    algorithm = PooledNMF(rank, tol=0)
    some = np.array(X[: max(1, len(X) // max(1, X.nbytes >> 29))])  # half a gigabyte
    products = product_rate(some, rank, algorithm.local_steps)
    del some
    disk = disk_rate(path, min(size // 4, 4 << 30) // _READ * _READ)
    with Memory() as memory:
        before = memory.now()
        began = time.perf_counter()
        run = fedfactor.run(algorithm, {"all": table}, rounds=rounds, seed=0)
        took = time.perf_counter() - began
    plain = [record.seconds for record in run.history if "relative_error" in record.metrics]
    limit = size / min(disk, products)
    return {
        "gigabytes": size / 1e9, "shape": X.shape, "rank": rank, "rounds": run.rounds,
        "memory_of_machine": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "before": before, "peak_anonymous": memory.peak,
        "disk_bytes_per_second": disk, "product_bytes_per_second": products,
        "seconds_of_rounds": [record.seconds for record in run.history], "seconds_in_all": took,
        "seconds_of_a_plain_round": statistics.median(plain), "limit_seconds": limit,
        "share_of_limit": limit / statistics.median(plain), "relative_error": run.history[-1].metrics["relative_error"],
    }  # fmt: skip


def main() -> None:
    """Write, factor, remove."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.out_of_core", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "out")
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6, help="two of them with three times the rank")
    parser.add_argument("--keep", action="store_true", help="leave the file, and take it if it is there")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "out_of_core.npy"
    try:
        if not (options.keep and path.exists()):
            rate = write(path, int(options.gigabytes * 1e9 / (4 * options.columns)), options.columns, options.rank)
            print(f"written at {rate / 1e9:.2f} GB/s", flush=True)
        result = measure(path, options.rank, options.rounds)
    finally:
        if not options.keep:
            path.unlink(missing_ok=True)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
