"""Where every label has an owner of its own (HapMap3 populations, bladder and blood cell types, newsgroups; 20
components), PooledBMF is at or below every solver on pooled rows, FELB, and votes of aligned components.

Solvers on pooled rows have 20 s each, those of an owner 5 s. PooledBMF draws no random numbers; FELB and votes have one
seed.
"""

from __future__ import annotations

import warnings

import fedfactor
from claims.boolean_best import pooled_solvers
from fedfactor.algorithms import FELB, BooleanVotes, PooledBMF
from fedfactor.metrics import boolean_metrics
from papers.felb.datasets import DATASETS, load_owners, present

LABELLED = ("hapmap", "bladder", "pbmc", "newsgroups")


def rivals(k: int) -> dict:
    votes = {f"{solver} vote": BooleanVotes(k, solver=solver, time_limit=5) for solver in ("asso", "grecond", "mebf")}
    return {"FELB": FELB(k), **votes}


def loss(algorithm, owners) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = fedfactor.run(algorithm, owners, seed=0)
    return round(boolean_metrics(owners, {who: kept.U for who, kept in run.factors.items()}, run.V).loss, 4)


def claim() -> dict:
    missing = [name for name in LABELLED if not present()[name]]
    if missing:
        return {"left out": f"{', '.join(missing)}: set FEDFACTOR_DATA to the folder that has them", "holds": False}
    figures, ahead = {}, 0
    for name in LABELLED:
        k, owners = DATASETS[name][2], load_owners(name, by="label")
        mine = loss(PooledBMF(k), owners)
        federated = {word: loss(algorithm, owners) for word, algorithm in rivals(k).items()}
        pooled = pooled_solvers(owners, k, 20.0)
        figures[name] = {"owners": len(owners), "PooledBMF": mine, "federated": federated, "pooled rows": pooled}
        ahead += mine <= min(*federated.values(), *pooled.values())
        print(name, figures[name], flush=True)
    return {**figures, "at or below all others": f"{ahead} of {len(LABELLED)}", "holds": ahead == len(LABELLED)}
