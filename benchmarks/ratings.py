"""Memory and time of PooledCF as ratings grow: ``python -m benchmarks.ratings [millions ...]``.

Each size runs in a process of its own, so that its peak is its own: synthetic ratings, ten owners, three exchanges.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import numpy as np
from scipy import sparse

SIZES = (1, 5, 20)
EXCHANGES = 3


def made(millions: int) -> sparse.csr_array:
    """Return that many million ratings of users who rate 150 items each, popular ones more often."""
    rng = np.random.default_rng(0)
    per_user, m = 150, 20_000
    n = millions * 1_000_000 // per_user
    # One draw from each of 150 stretches of the catalogue: no item twice, and no sorting.
    stretch = m // per_user
    inside = np.minimum((rng.random((n, per_user), np.float32) ** 2 * stretch).astype(np.int32), stretch - 1)
    inside += np.arange(per_user, dtype=np.int32) * stretch
    data = rng.integers(1, 6, n * per_user).astype(np.float32)
    return sparse.csr_array((data, inside.ravel(), np.arange(0, n * per_user + 1, per_user)), shape=(n, m))


def measure(millions: int) -> None:
    """Run one size, and print a line."""
    import fedfactor
    from fedfactor.algorithms import PooledCF

    R = made(millions)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = np.array_split(np.arange(R.shape[0]), 10)
    owners = {f"{i}": R[part[0] : part[-1] + 1] for i, part in enumerate(rows)}
    federation = fedfactor.Federation(owners, missing_values="unstored")
    began = time.process_time()
    fedfactor.run(PooledCF(16), federation, rounds=EXCHANGES, seed=0, engine=fedfactor.LocalEngine(workers=1))
    seconds = (time.process_time() - began) / EXCHANGES
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"| {millions} | {R.nnz:,} | {seconds:.1f} | {before:,.0f} | {peak:,.0f} |", flush=True)


def main() -> None:
    """Run every size in a process of its own."""
    sizes = [int(word) for word in sys.argv[1:]] or list(SIZES)
    print("| million ratings | stored | CPU seconds an exchange | MB of the data | MB at the peak |")
    print("|---|---|---|---|---|", flush=True)
    for size in sizes:
        subprocess.run([sys.executable, "-c", f"from benchmarks.ratings import measure; measure({size})"], check=True)


if __name__ == "__main__":
    main()
