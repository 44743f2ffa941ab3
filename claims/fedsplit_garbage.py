"""On MovieLens latest-small, one group of 39 that sends nonsense (NaN, infinity, factors that are huge, negative or
huge in one entry, impossible levels) is left out and named, and the error of the others changes by less than 1 % on
average, in FedSPLIT by default, as printed and on sums, and in PooledCNMF and PooledCF; by default and as printed it
does so for every single group.

What no check can tell from ratings (sums of a plausible sign and any size) is not tried. In a sum that the server sees
only as a sum (``privacy="secure-sum"``) nobody can be left out: a run ends there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

import fedfactor
from fedfactor.algorithms import FedSPLIT, PooledCF, PooledCNMF
from fedfactor.core.errors import ProtocolError
from fedfactor.core.pytree import leaves
from papers.fedsplit.protocol import SCALE, group_errors, make_split, prepared


def every(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what spoils one leaf wherever an upload has it."""
    return lambda up: replace(up, **{name: change(getattr(up, name))}) if getattr(up, name, None) is not None else up


def filled(value: float) -> Callable[[Any], Any]:
    """Return what fills the first leaf of every upload."""
    return lambda up: replace(up, **{(first := next(iter(leaves(up))))[0]: np.full_like(first[1], value)})


FACTORS = {
    "huge": every("V", lambda V: 1e6 * V),
    "negative": every("V", lambda V: -V),
    "one entry": every("V", lambda V: np.where(V == V.max(), 1e12, V)),
    "NaN in V": every("V", lambda V: np.where(V == V.max(), np.nan, V)),
}
ALL = {"NaN": filled(np.nan), "infinity": filled(np.inf)}
LEVELS = {
    "residuals": every("residuals", lambda r: 1e4 * r),
    "counts": every("counts", lambda n: n + 1e3),
    "total": every("total", lambda t: 1e3 * t),
}
CASES = {
    "default": (FedSPLIT(4, scale=SCALE), FACTORS | ALL | LEVELS),
    "printed": (FedSPLIT.as_printed(4, local_components=6), FACTORS | ALL | {"mean": every("mean", lambda _: 1e3)}),
    "on sums": (FedSPLIT(4, joint="sum", scale=SCALE), ALL | LEVELS),
    "PooledCNMF": (PooledCNMF(6), ALL | {"negative": every("N", lambda N: -N)}),
    "PooledCF": (PooledCF(16), ALL | {"negative": every("items", lambda A: -A)}),
}


def spoilt(algorithm: Any, who: str, spoil: Callable[[Any], Any]) -> Any:
    """Return the algorithm with one client that spoils its uploads."""
    kind = type(algorithm)

    class Spoilt(kind):
        __slots__ = ()

        def client_step(self, shard, state, down, at):
            state, up = kind.client_step(self, shard, state, down, at)
            if at.client == who:
                kinds = {path: leaf.dtype for path, leaf in leaves(up)}
                bad = spoil(up)
                up = replace(bad, **{path: np.asarray(leaf, kinds[path]) for path, leaf in leaves(bad)})
            return state, up

    return Spoilt(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})


def claim() -> dict:
    split = make_split(prepared("movielens_small"), 0)
    who = sorted(split.groups, key=lambda name: len(split.groups[name]))[len(split.groups) // 2]  # of middling size
    figures, holds = {}, True

    def errors(algorithm: Any) -> tuple[dict, tuple[str, ...]]:
        run = fedfactor.run(algorithm, split.federation, seed=0)

        def predict(name, rows, columns):
            kept = run.factors[name]
            return np.einsum("pk,pk->p", kept.U[rows], kept.V.T[columns])

        return group_errors(split, predict)["by_group"], run.rejected

    for form, (algorithm, spoilers) in CASES.items():
        clean, nobody = errors(algorithm)
        holds = holds and not nobody
        for name, spoil in spoilers.items():
            found, rejected = errors(spoilt(algorithm, who, spoil))
            change = [found[group] / clean[group] - 1 for group in found if group != who]
            worst, mean = float(np.abs(change).max()), float(abs(np.mean(change)))
            figures[f"{form}, {name}"] = {"rejected": list(rejected), "largest_change": worst, "mean_change": mean}
            print(f"{form}, {name}: rejected {rejected}, change {mean:.4f}, of one group {worst:.4f}", flush=True)
            holds = (
                holds and rejected == (who,) and mean < 0.01 and (worst < 0.01 or form not in ("default", "printed"))
            )
    try:
        fedfactor.run(spoilt(PooledCF(16), who, ALL["NaN"]), split.federation, seed=0, privacy="secure-sum", rounds=2)
        ended = False
    except ProtocolError:
        ended = True
    return {"cases": figures, "a_secure_sum_ends": ended, "holds": bool(holds and ended)}
