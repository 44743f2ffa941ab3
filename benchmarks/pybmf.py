"""GreConD and MEBF beside those of the PyBMF package, on the same matrices: ``pip install PyBMF``, then run this file.

The two packages read the papers differently where the papers leave room, so equal factors are expected only where there
is one best choice, without noise. PyBMF's GreConD goes on from a better concept as soon as it meets one within a pass
over the columns; ours, like the paper, finishes the pass. Its MEBF tries the one line in the middle of the sorted sums,
ours all lines with the median sum; it keeps columns with more than a share t of the rows, ours with at least
min(t |u| + 1, |u|).
"""

from __future__ import annotations

import contextlib
import io
import time

import numpy as np
from scipy.sparse import csr_matrix

from fedfactor.boolean.product import count
from fedfactor.boolean.solvers.grecond import grecond
from fedfactor.boolean.solvers.mebf import mebf
from fedfactor.datasets.boolean_tiles import even_tiles


def theirs(name: str, X: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    from PyBMF import models

    # A tolerance that is never met: when an exact fit meets it, PyBMF drops the last component it found.
    model = models.GreConD(k=k, tol=-1) if name == "GreConD" else models.MEBF(k=k, tol=-1, t=0.8)
    quiet = {"task": "reconstruction", "verbose": False, "display": False, "show_logs": False, "save_model": False}
    with contextlib.redirect_stdout(io.StringIO()):
        model.fit(X_train=csr_matrix(X), **quiet, show_result=False)
    return np.asarray(model.U.todense()), np.asarray(model.V.todense()).T


def same(one: np.ndarray, two: np.ndarray) -> bool:
    """Tell whether two matrices have the same rows, in whatever order; empty rows do not count."""
    return {row.tobytes() for row in one.astype(np.uint8) if row.any()} == {
        row.tobytes() for row in two.astype(np.uint8) if row.any()
    }


def main() -> None:
    blocks = np.kron(np.diag([1, 1, 1, 1]), np.ones((12, 9)))
    matrices = {"disjoint tiles": blocks}
    for flips in (0.0, 0.05):
        matrices[f"planted tiles, {flips:.0%} flips"] = np.vstack(
            list(even_tiles(200, 60, 4, 2, flips=flips, seed=0).owners.values())
        )
    grecond(blocks, 1), mebf(blocks, 1)  # compile
    for name, X in matrices.items():
        for method, ours in (("GreConD", grecond), ("MEBF", mebf)):
            began = time.perf_counter()
            found = ours(X, 4)
            mine = time.perf_counter() - began
            began = time.perf_counter()
            try:
                U, V = theirs(method, X, 4)
            except Exception as error:  # whatever stops the other package is a result of this benchmark
                print(f"{name:26} {method:8} ours {count(X, found.U, found.V).loss:.3f}, theirs did not run: {error!r}")
                continue
            other = time.perf_counter() - began
            print(
                f"{name:26} {method:8} loss ours {count(X, found.U, found.V).loss:.3f}, theirs "
                f"{count(X, U, V).loss:.3f}; same components: {same(found.V, V)}; seconds {mine:.4f}, {other:.2f}"
            )


if __name__ == "__main__":
    main()
