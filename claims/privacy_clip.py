"""No input makes an encoded upload, or one row's part of a sum, longer than its bound: 10,000 cases of either kind.

Rows and uploads hold NaN, infinities, denormals and the largest numbers there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SPECIAL = np.array([np.nan, np.inf, -np.inf, 5e-324, -5e-324, 1.7e308, -1.7e308, 0.0, -0.0, 1e-200, 1e200, 1.0])


def _odd(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    values = rng.normal(size=shape) * 10.0 ** rng.integers(-20, 20, size=shape)
    return np.where(rng.random(shape) < 0.2, rng.choice(SPECIAL, size=shape), values)


def claim() -> dict[str, Any]:
    from fedfactor.core.algorithm import Round
    from fedfactor.core.flattened_upload import Parcel
    from fedfactor.core.transforms import Site
    from fedfactor.linalg.row_clipping import ROW_CLIP, clipped_gradient, doubles, summation_error
    from fedfactor.privacy.noise import Clip, Gaussian

    rng, site = np.random.default_rng(0), Site("a", Round(0, 0), 3, None)
    uploads = rows = 0.0
    for _ in range(10_000):
        size, norm = int(rng.integers(1, 40)), float(10.0 ** rng.uniform(-4, 4))
        grid = Gaussian(5.0, norm, whole=True, honest=3).grid(size)
        steps = np.trunc(Clip(norm).encode(Parcel(_odd(rng, (size,)), ()), site).values / grid)
        length = sum(int(step) ** 2 for step in steps) ** 0.5 * grid
        uploads = max(uploads, length / norm)
    for _ in range(10_000):
        n, k, m = (int(rng.integers(*ends)) for ends in ((1, 6), (1, 4), (2, 8)))
        V = rng.random((k, m)) + 1e-3
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        X, bound = doubles(_odd(rng, (n, m))), float(10.0 ** rng.uniform(-3, 3))
        _, D = clipped_gradient(np.zeros((n, k)), X, V, bound=bound, sweeps=3)
        _, E = clipped_gradient(np.zeros((n - 1, k)), X[1:], V, bound=bound, sweeps=3)
        rows = max(rows, float(np.linalg.norm(D - E)) / (ROW_CLIP + summation_error(n, k, m)))
    return {
        "longest_upload_over_bound": uploads,
        "longest_row_part_over_bound": rows,
        "holds": uploads <= 1 and rows <= 1,
    }
