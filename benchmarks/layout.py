"""Time the ways of writing ``X Vᵀ`` and ``Uᵀ X``: the choices in ``fedfactor.linalg.products`` rest on this table.

Run ``python benchmarks/layout.py`` (under a minute); ``--full`` adds the wide shape and more ranks.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from threadpoolctl import threadpool_limits

SHAPES = [(4000, 2000), (20000, 784), (60, 200_000), (3, 64)]


def best(call, budget: float = 0.06) -> float:
    """Return the least time of one call, in milliseconds."""
    call()
    least, spent = np.inf, 0.0
    while spent < budget:
        start = time.perf_counter()
        call()
        took = time.perf_counter() - start
        least, spent = min(least, took), spent + took
    return 1e3 * least


def ways(X, U, V, Vt):
    """Name the candidate expressions; each leaves a C-contiguous result."""
    c = np.ascontiguousarray
    return {
        "X@V.T": lambda: X @ V.T,
        "X@c(V.T)": lambda: X @ c(V.T),
        "c((V@X.T).T)": lambda: c((V @ X.T).T),
        "c((c(Vt).T@X.T).T)": lambda: c((Vt.T @ X.T).T),
        "U.T@X": lambda: U.T @ X,
        "c(U.T)@X": lambda: c(U.T) @ X,
        "c((X.T@U).T)": lambda: c((X.T @ U).T),
    }


def main() -> None:
    """Print one line per shape, type, order, rank and thread count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    full = parser.parse_args().full
    shapes = [*SHAPES, (60, 1_000_000)] if full else SHAPES
    rng = np.random.default_rng(0)
    print(
        "shape dtype order k threads | "
        + " | ".join(ways(*[np.ones((1, 1))] * 4))
        + "   (ms, * = fastest of its group)"
    )
    for shape in shapes:
        for dtype in (np.float32, np.float64):
            base = rng.random(shape, dtype=np.float32).astype(dtype)
            for order in "CF":
                X = np.asarray(base, order=order)
                for k in (5, 20, 50) if full else (5, 20):
                    U, V = rng.random((shape[0], k)).astype(dtype), rng.random((k, shape[1])).astype(dtype)
                    for threads in (1, 2):
                        with threadpool_limits(threads):
                            took = [best(call) for call in ways(X, U, V, np.ascontiguousarray(V.T)).values()]
                        least = (min(took[:4]), min(took[4:]))
                        cells = [f"{t:.3g}{'*' if t == least[i >= 4] else ''}" for i, t in enumerate(took)]
                        print(
                            f"{shape[0]}x{shape[1]} {np.dtype(dtype).name} {order} {k} {threads} | "
                            + " | ".join(cells),
                            flush=True,
                        )


if __name__ == "__main__":
    main()
