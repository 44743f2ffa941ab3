"""With a ridge of 0.03 on rows with missing cells, held-out cells of the digits are foretold sanely.

10, 30 and 60 % of the cells hidden, ranks 5, 10, 20: the held-out relative error stays below 0.7, the fitted one within
a fifth of that without a ridge, which foretells some hidden cells hundreds of times too large.
"""

from __future__ import annotations

from sklearn.datasets import load_digits

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core.federation import Federation
from fedfactor.data.partition import by_class, split_rows
from fedfactor.selection.holdout import hold_out_all

SHARES, RANKS, RIDGES = (0.1, 0.3, 0.6), (5, 10, 20), (0.0, 0.01, 0.03, 0.1)


def claim() -> dict:
    X, y = load_digits(return_X_y=True)
    owners = Federation(split_rows(X, by_class(y)))
    held, fitted = {}, {}
    for share in SHARES:
        speckled = hold_out_all(owners, share, 1)
        for rank in RANKS:
            name = f"{share:.0%} missing, rank {rank}"
            runs = [fedfactor.run(PooledNMF(rank, ridge=ridge), speckled, rounds=60, seed=0) for ridge in RIDGES]
            held[name] = {str(ridge): run.relative_error for ridge, run in zip(RIDGES, runs, strict=True)}
            fitted[name] = {
                str(ridge): run.history[-1].metrics["relative_error"] for ridge, run in zip(RIDGES, runs, strict=True)
            }
            print(name, held[name], flush=True)
    sane = all(line["0.03"] < 0.7 for line in held.values())
    close = all(line["0.03"] < 1.2 * line["0.0"] for line in fitted.values())
    return {"held_out": held, "fitted": fitted, "holds": bool(sane and close)}
