"""From the reference's random starts FELB and FALB recover planted tiles in 5 of 5 seeds without noise and in at least
4 of 5 at 5 % flips, and FELB to the letter of the paper in fewer; so do they from our own starts, as the best of three
by summed loss, and from one start in at least 17 of 20 seeds.

1000 × 200 cells, five overlapping tiles, ten clients, κ = λ = 0.01, rate 1.005, β = 0.01, 100 rounds of 10 steps. A
seed counts when the loss (mean over clients) is within 0.02 of that of the planted tiles. The table of settings is
compared with that of a reference written apart from this library in plain NumPy; from the same start the losses must
be the same to 0.02. The defaults begin with least squares, so that of the reference they have the data alone; their
rounds are those of the paper's traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import fedfactor
from fedfactor.algorithms import FALB, FELB
from fedfactor.boolean.felb import Local
from fedfactor.datasets.boolean_tiles import even_tiles
from fedfactor.metrics import boolean_metrics
from papers.felb.cells import rounds_of_paper

SEEDS = range(5)


class ReferenceStart:
    """Draws U and V of all clients one after the other from ``default_rng([7, seed])``, as the reference does."""

    __slots__ = ()

    def init_client(self, shard, meta, at) -> Local:
        """Draw for all clients, keep one's own: the reference has a single stream."""
        rng, k = np.random.default_rng([7, at.seed]), self.n_components
        ones = float((shard.X**2).sum())
        U = {name: rng.random((shard.n_rows, k)) for name in meta.clients}[at.client]
        V = rng.random((k, shard.n_features))
        if self.init == "shared":
            return Local(U, U, np.float64(ones), V)
        V = {name: rng.random(V.shape) for name in meta.clients}[at.client]
        return Local(U, U, np.float64(ones), V)


@dataclass(frozen=True, slots=True)
class FELBThere(ReferenceStart, FELB):
    """FELB from the reference's start."""


@dataclass(frozen=True, slots=True)
class FALBThere(ReferenceStart, FALB):
    """FALB from the reference's start."""


# Settings, then loss without flips and at 5 % flips as the reference has them, whose clients start apart, uniform, and
# send rows as they are; U is rounded unless it says refit.
THERE = {"init": "independent", "start": "uniform", "row_max": "free"}
PLAIN = {"refit": "none", **THERE}
TABLE = {
    "FELB": (FELBThere(5, **PLAIN), 0.000, 0.257),
    "FELB, refit": (FELBThere(5, **THERE), 0.000, 0.240),
    "FELB, common start": (FELBThere(5, **{**PLAIN, "init": "shared"}), 0.040, 0.265),
    "FELB, larger step": (FELBThere(5, step="elbmf", **PLAIN), 0.000, 0.232),
    "FELB, rate 1.01": (FELBThere(5, rate=1.01, **PLAIN), 0.000, 0.232),
    "FELB, no inertia": (FELBThere(5, beta=0.0, **PLAIN), 0.001, 0.257),
    "FELB, spectral": (FELBThere(5, norm="spectral", **PLAIN), 0.140, 0.259),
    "FELB, plain mean": (FELBThere(5, server_prox=False, **PLAIN), 0.205, 0.289),
    "FELB, t counts rounds": (FELBThere(5, schedule="rounds", **PLAIN), 0.118, 0.257),
    "FELB to the letter": (FELBThere.paper(5), 0.096, 0.327),
    "FALB": (FALBThere(5, **PLAIN), 0.000, 0.257),
    "FALB, refit": (FALBThere(5, **THERE), 0.000, 0.240),
    "FALB, unscaled": (FALBThere(5, scale_prox=False, **PLAIN), 0.178, 0.408),
}
DEFAULTS = {"FELB, the default": FELB(5), "FALB, the default": FALB(5)}
OWN = {"FELB": FELB(5), "FALB": FALB(5), "FELB to the letter": FELB.paper(5)}


def recovered(V, U, data) -> tuple[float, bool]:
    loss = boolean_metrics(data.owners, U, V).loss
    return loss, bool(loss < data.floor + 0.02)


def figures(algorithm, flips: float, seeds=SEEDS) -> dict[str, float]:
    losses, hits, gaps = [], 0, []
    for seed in seeds:
        data = even_tiles(1000, 200, 5, 10, flips=flips, seed=seed)
        run = fedfactor.run(algorithm, data.owners, rounds=rounds_of_paper(algorithm, 200), seed=seed)
        loss, hit = recovered(run.V, {name: kept.U for name, kept in run.factors.items()}, data)
        losses.append(loss)
        hits += hit
        gaps.append(run.history[-1].metrics["integrality_gap"])
    means = {"loss": round(float(np.mean(losses)), 4), "gap": round(float(np.mean(gaps)), 4)}
    return {**means, "recovered": hits, "of": len(seeds)}


def best_of_three(face, flips: float) -> int:
    hits = 0
    for seed in SEEDS:
        data = even_tiles(1000, 200, 5, 10, flips=flips, seed=seed)
        model = face(n_components=5, n_init=3, random_state=seed).fit(data.owners)
        hits += recovered(model.components_, model.client_factors_, data)[1]
    return hits


def from_the_reference(flips: float, least: int) -> tuple[dict, bool]:
    found, holds = {}, True
    for name, (algorithm, *expected) in TABLE.items():
        found[name] = one = figures(algorithm, flips)
        one["reference"] = expected[flips > 0]
        holds = holds and abs(one["loss"] - one["reference"]) < 0.02
        print(f"{flips:.0%} flips, reference start, {name}: {one}", flush=True)
    for name, algorithm in DEFAULTS.items():
        found[name] = figures(algorithm, flips)
        print(f"{flips:.0%} flips, reference start, {name}: {found[name]}", flush=True)
    sound = ("FELB", "FELB, refit", "FALB", "FALB, refit", *DEFAULTS)
    literal = found["FELB to the letter"]
    better = all(literal["recovered"] < found[name]["recovered"] >= least for name in sound)
    return {f"reference start, {name}, {flips:.0%} flips": one for name, one in found.items()}, holds and better


def from_our_own(flips: float, least: int) -> tuple[dict, bool]:
    found, holds = {}, True
    for face in (fedfactor.FELB, fedfactor.FALB):
        hits = best_of_three(face, flips)
        print(f"{flips:.0%} flips, {face.__name__}, best of three: {hits} of 5", flush=True)
        found[f"{face.__name__}, best of three, {flips:.0%} flips: recovered of 5"] = hits
        holds = holds and hits >= least
    many = {}
    for name, algorithm in OWN.items():
        many[name] = figures(algorithm, flips, range(20))
        print(f"{flips:.0%} flips, {name}, 20 seeds: {many[name]}", flush=True)
    found |= {f"{name}, {flips:.0%} flips, 20 seeds": one for name, one in many.items()}
    literal = many["FELB to the letter"]["recovered"]
    return found, holds and min(many["FELB"]["recovered"], many["FALB"]["recovered"]) >= max(17, literal + 1)


def claim() -> dict:
    found, holds = {}, True
    for part in (from_the_reference, from_our_own):
        for flips, least in ((0.0, 5), (0.05, 4)):
            more, good = part(flips, least)
            found |= more
            holds = holds and good
    return {**found, "holds": bool(holds)}
