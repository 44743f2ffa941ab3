"""FELB and FALB, the best of three starts by summed loss, recover planted tiles in 5 of 5 seeds without noise and in at
least 4 of 5 at 5 % flips; from a single start FELB does so in at least 17 of 20 seeds, to the letter of the paper in
fewer.

1000 × 200 cells, five overlapping tiles, ten clients, κ = λ = 0.01, rate 1.005, β = 0.01, 100 rounds of 10 steps. A
seed counts when the loss (mean over clients) is within 0.02 of that of the planted tiles. The table of settings is over
five seeds: which of them succeed is a matter of the start, so that one or two more or less mean little.
"""

from __future__ import annotations

import numpy as np

import fedfactor
from fedfactor.algorithms import FALB, FELB
from fedfactor.experiments.felb.tiles import even_tiles
from fedfactor.metrics import boolean_metrics

SEEDS = range(5)
SETTINGS = {
    "FELB": FELB(5),
    "FELB, U rounded": FELB(5, refit="none"),
    "FELB, common start": FELB(5, init="shared", refit="none"),
    "FELB, larger step": FELB(5, step="elbmf", refit="none"),
    "FELB, rate 1.01": FELB(5, rate=1.01, refit="none"),
    "FELB, no inertia": FELB(5, beta=0.0, refit="none"),
    "FELB, spectral": FELB(5, norm="spectral", refit="none"),
    "FELB, plain mean": FELB(5, server_prox=False, refit="none"),
    "FELB, t counts rounds": FELB(5, schedule="rounds", refit="none"),
    "FELB to the letter": FELB.paper(5),
    "FALB": FALB(5),
    "FALB, unscaled": FALB(5, scale_prox=False, refit="none"),
}


def recovered(V, U, data) -> tuple[float, bool]:
    loss = boolean_metrics(data.owners, U, V).loss
    return loss, loss < data.floor + 0.02


def figures(algorithm, flips: float, seeds=SEEDS) -> dict[str, float]:
    losses, hits, gaps = [], 0, []
    for seed in seeds:
        data = even_tiles(1000, 200, 5, 10, flips=flips, seed=seed)
        run = fedfactor.run(algorithm, data.owners, seed=seed)
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


def claim() -> dict:
    found, holds = {}, True
    for flips, least in ((0.0, 5), (0.05, 4)):
        for face in (fedfactor.FELB, fedfactor.FALB):
            hits = best_of_three(face, flips)
            found[f"{face.__name__}, best of three, {flips:.0%} flips: recovered of 5"] = hits
            holds = holds and hits >= least
        many = {name: figures(SETTINGS[name], flips, range(20)) for name in ("FELB", "FALB", "FELB to the letter")}
        found |= {f"{name}, {flips:.0%} flips, 20 seeds": one for name, one in many.items()}
        literal = many["FELB to the letter"]["recovered"]
        holds = holds and min(many["FELB"]["recovered"], many["FALB"]["recovered"]) >= max(17, literal + 1)
        others = {name: a for name, a in SETTINGS.items() if name not in many}
        found |= {f"{name}, {flips:.0%} flips": figures(a, flips) for name, a in others.items()}
    return {**found, "holds": bool(holds)}
