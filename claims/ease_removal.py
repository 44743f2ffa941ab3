"""A client leaves PooledEASE in one exchange with it alone, and comes back in another. On five sets dealt to ten owners
the weights are those of a fresh fit to the users who are in: bit-identical where the sums are those of whole numbers
(``counts="binary"``, ``balance=0``), else within 1e-12 of the largest. Needs ``FEDFACTOR_DATA``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from claims.ease_low_rank import stored
from claims.top_n_best import films, words
from fedfactor import PooledEASE
from fedfactor.io.partition import split_evenly

CLIENTS = 10
WHOLE = {"counts": "binary", "balance": 0.0}
SETS = {
    "films": films,
    "words of newsgroups": words,
    "words of Reuters stories": lambda: stored("reuters"),
    "genes of blood cells": lambda: stored("pbmc68k"),
    "access rights": lambda: stored("roles", binary=True),
}


def dealt(X: Any) -> dict[str, Any]:
    labels = split_evenly(X.shape[0], CLIENTS, 0)
    return {name: sparse.csr_array(X[labels == name]) for name in np.unique(labels).tolist()}


def apart(one: Any, two: Any) -> float:
    return float(np.abs(one.components_ - two.components_).max() / np.abs(two.components_).max())


def claim() -> dict:
    figures: dict[str, Any] = {}
    for name, load in SETS.items():
        owners = dealt(load())
        gone = sorted(owners)[3]
        rest = {who: R for who, R in owners.items() if who != gone}
        for kind, settings in (("whole numbers", WHOLE), ("defaults", {})):
            model = PooledEASE(**settings).fit(owners)
            whole = model.components_
            left = model.remove(client=gone)
            found = {"left": apart(left, PooledEASE(**settings).fit(rest)), "exchanges": left.n_iter_}
            found["bytes_up"] = left.run_.bytes_up
            back = left.partial_fit({gone: owners[gone]}).components_
            found["came back"] = float(np.abs(back - whole).max() / np.abs(whole).max())
            figures[f"{name}, {kind}"] = found
            print(name, kind, found, flush=True)
    limits = {name: 0.0 if "whole" in name else 1e-12 for name in figures}
    holds = all(
        max(found["left"], found["came back"]) <= limits[name] and found["exchanges"] == 1
        for name, found in figures.items()
    )
    return {"sets": figures, "holds": holds}
