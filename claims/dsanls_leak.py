"""Published sketches give the sketched matrix away where the accounting says so, and a refusal comes before.

Sketches of data with 500 rows, width 50; sparse columns with 25 of 500 cells; and the sums that a DSANLS run itself
broadcasts, from which the row factor of all nodes is solved.
"""

from __future__ import annotations

import numpy as np

import fedfactor
from fedfactor.algorithms import DSANLS
from fedfactor.core.errors import SketchLeakError
from fedfactor.core.grid import grid_federation
from fedfactor.nmf.distributed.sketch_exposure import Exposure, effective_support, recover
from fedfactor.nmf.distributed.sketches import draw_sketch, sketch_stream
from fedfactor.testing.plain_loop import drive
from papers.dsanls.datasets import planted


def published(kind, size, width, times):
    return np.hstack([draw_sketch(kind, size, width, sketch_stream(0, "x", t)).rows() for t in range(times)])


def claim():
    rng = np.random.default_rng(0)
    X = rng.random((500, 10)) @ rng.random((10, 200)) + 0.1 * rng.random((500, 200))
    dense = {}
    for T in (1, 5, 9, 10):
        S = published("gaussian", 500, 50, T)
        dense[T] = float(np.linalg.norm(recover(S.T @ X, S) - X) / np.linalg.norm(X))
    first = next(T for T in range(1, 100) if Exposure(500, 50, T).solvable)
    sparse, early = {}, Exposure(500, 1, 1, support=25).threshold
    B = np.zeros((500, 40))
    for j in range(40):
        B[rng.choice(500, 25, replace=False), j] = 1
    for width in (25, early, 75, 100, 150):
        S = rng.standard_normal((500, width))
        guess = recover(S.T @ B, S, nonnegative=True) > 0.5
        sparse[width] = int((guess == B).all(axis=0).sum())
    return _run(dense, first, sparse, early)


def _run(dense, first, sparse, early):
    M, names = planted(60, 50, 3), ("a", "b")
    trace = drive(DSANLS(3, "gaussian", 0.3, leak="ignore"), {"a": M[:30], "b": M[30:]}, rounds=201, seed=5)
    U = np.vstack([trace.factors[name].U for name in names])
    seen = [down["a"] for down in trace.downs if type(down["a"]).__name__ == "ForV"]
    plain, signed = {}, {}
    for count in (1, 2, 3, 4, 6):
        last = seen[-count:]
        S = np.hstack([draw_sketch("gaussian", 60, 18, sketch_stream(5, "rows", int(d.drawn))).rows() for d in last])
        Y = np.vstack([d.B.T for d in last])
        for found, nonnegative in ((plain, False), (signed, True)):
            guess = recover(Y, S, nonnegative=nonnegative)
            found[count] = round(float(np.linalg.norm(guess - U) / np.linalg.norm(U)), 4)
    heard = []
    try:
        method = DSANLS(3, "gaussian", 0.3, leak="refuse")
        fedfactor.run(method, grid_federation(M, 2), seed=5, callbacks=(heard.append,))
        refused = ""
    except SketchLeakError as error:
        refused = str(error)
    sent = len([record for record in heard if record.index % 2])
    all_equations = next(T for T in range(1, 100) if Exposure(60, 18, T).solvable)
    solvable = next(T for T in range(1, 100) if Exposure(60, 18, T, effective_support(U)).solvable)
    falls = next(T for T in signed if signed[T] < 0.1)
    holds = first == 10 and dense[10] < 1e-8 and min(dense[T] for T in (1, 5, 9)) > 0.1
    holds &= sparse[early] == 0 and sparse[150] == 40 and early < 100
    holds &= plain[all_equations] < 0.05 and plain[all_equations - 1] > 0.2
    holds &= solvable <= falls <= solvable + 1 and sent < falls and signed[max(sent, 1)] > 0.5
    return {
        "dense: error of the attack after T sketches of width 50, 500 rows": dense,
        "dense: the accounting says T =": first,
        "sparse: columns of 40 found exactly, by equations": sparse,
        "sparse: the accounting says, of 500": early,
        "DSANLS: error of U solved from the last T broadcast sums": plain,
        "DSANLS: the same by who knows that U is not negative": signed,
        "DSANLS: as many equations as rows at T =": all_equations,
        "DSANLS: the accounting says T =": solvable,
        "DSANLS: sketches of U sent before the refusal": sent,
        "DSANLS: the refusal": refused,
        "holds": bool(holds),
    }
