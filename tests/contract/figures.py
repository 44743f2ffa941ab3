"""Small runs of every algorithm, and the figures that they gave: ``python -m tests.contract.figures`` writes them.

The contract says what all algorithms have in common, the tests beside this file what each paper claims. Neither notices
that a run gives another, equally plausible V. These figures do: whoever changes them must mean to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import numpy as np

import fedfactor
from fedfactor import algorithms
from fedfactor.core.algorithm import Algorithm, Meta, Round, download_for
from fedfactor.core.parameters import Setting, settings_of_class
from fedfactor.testing.data import federation_for, small_data, variants
from tests.contract.test_algorithms import CONFIGS

WRITTEN = Path(__file__).parent / "figures.json"
ROUNDS = {"FedSPLIT": 12, "PooledBMF": 40, "PooledCF": 12}
"""Of those that have several phases; five of all others."""
LATE = "PooledNMF(n_components=3,loss=kullback-leibler)", 33
"""A case whose later rounds differ from the first: it looks ahead from the thirtieth on."""
UNIT = 2.0**-9
"""What small data are multiplied by: sums of squares are below one then, and nothing but the units has changed."""
CLIPPED = {"row_clip": 0.8, "row_count": 131.0}
"""Settings that a privacy plan makes; no noise is added here."""
LONG = {"sinkhorn_rho", "elbmf", "zhang"}
"""Words of settings that take a while: once is enough."""
ABOUT = (
    "domain", "handles_missing", "handles_tensors", "default_rounds", "pooled", "layout", "asynchronous",
    "weighs_means",
)  # fmt: skip

# Settings beside those of the contract.
MORE: dict[str, list[dict[str, Any]]] = {
    "AsynSD": [{"n_components": 2, "local_steps": 2, "weights": "rows", "rule": "absolute", "init": "unit"}],
    "AsynSSD": [{"n_components": 2, "local_steps": 2, "server": "constant", "omega": 0.3, "kind": "gaussian"}],
    "BooleanVotes": [
        {"n_components": 3, "vote": "average", "tie": "zero"},
        {"n_components": 3, "solver": "mebf", "tie": "zero"},
        {"n_components": 2, "solver": "elbmf", "align": "none", "vote": "or", "refit": "none"},
        {"n_components": 3, "solver": "primp"},
        {"n_components": 3, "solver": "zhang"},
    ],
    "DSANLS": [{"n_components": 3, "ratio": 0.5, "init": "unit", "solver": "gradient", "leak": "ignore", "cap": 2.0}],
    "DistributedNMF": [{"n_components": 3, "tol": 1e-2}],
    "FALB": [{"n_components": 3, "local_steps": 3, "gamma": 3.0, "eps": 0.1, "prox": "printed"}],
    "FCF": [{"n_components": 2, "feedback": "implicit", "weight": 3.0, "lam": 1.0, "learning_rate": 0.1}],
    "FELB": [
        {"n_components": 3, "local_steps": 3, "init": "independent", "start": "uniform", "row_max": "free"},
        {"n_components": 3, "step": "elbmf", "norm": "spectral", "schedule": "rounds", "server_prox": False},
        {"n_components": 2, "step": "falling", "prox": "printed", "rate": 1.1, "beta": 0.2},
        {"n_components": 3, "local_steps": 2, "start": "random"},
    ],
    "FNMF": [
        {"n_components": 3, "scale_gamma": True, "pull_from": 0, "align_every": 1, "local_solver": "hals"},
        {"n_components": 3, "alignment": "knn", "neighbours": 2, "tol": 0.5, "patience": 1},
    ],
    "FedDMF": [{"n_components": 2, "hidden": 4, "epochs": 1, "share": "tower", "negatives": 2, "patience": 1}],
    "FedMF": [{"n_components": 2, "lam": 0.5, "learning_rate": 0.1, "momentum": 0.0, "local_steps": 3}],
    "FedProxNMF": [{"n_components": 3, "mu": 0.5, "relative": True, "pull_from": 0, "row_norm": "unit"}],
    "FedSPLIT": [
        {"n_components": 3, "select": "size", "min_ratings": 500, "iterations": 5, "by_count": False},
        {"n_components": 3, "unrated": "mean", "scale": (0.0, 1.0), "iterations": 4, "refine": 3, "joint_rounds": 2},
        {"n_components": 3, "joint": "sum", "joint_rounds": 3, "iterations": 4, "select": "quality", "max_error": 0.3},
    ],
    "OneShotNMF": [{"n_components": 3, "local_steps": 5, "alignment": "sinkhorn", "weights": "rows"}],
    "PooledBMF": [
        {"n_components": 3, "solver": "proximal", **CLIPPED},
        {"n_components": 3, "min_rows": 12, "trials": 2, "patience": 1, "search_rounds": 12},
        {"n_components": 8, "patience": 0, "thresholds": (0.8,), "penalties": (1, 3)},
        {"n_components": 3, "solver": "proximal", "step": "elbmf", "norm": "spectral", "prox": "printed"},
    ],
    "PooledCF": [
        {"n_components": 2, "iterations": 4, "validation": 0.3, "ridge": 2.0, "ridge_floor": 0.5},
        {"n_components": 2, "feedback": "implicit", "counts": "raw", "iterations": 3, "ridge": 0.3},
        {"n_components": 2, "tol": 0.5, "validation": 0.2, "bias_ridge": 0.5, "min_ratings": 35},
    ],
    "PooledCNMF": [{"n_components": 2, "tol": 0.5, "by_count": False, "alpha": 1.0, "start_scale": 0.5}],
    "PooledEASE": [{"ridge": 5.0, "balance": 1.0, "counts": "binary"}, {"min_users": 1, **CLIPPED}],
    "PooledNMF": [
        {"n_components": 3, **CLIPPED},
        {"n_components": 3, "noisy_step": "newton", "row_noise": 2.0, **CLIPPED},
        {"n_components": 2, "loss": "itakura-saito"},
        {"n_components": 2, "loss": 3.0},
        {"n_components": 3, "start": "wide", "tol": 0.1},
        {"n_components": 3, "start": "stacked"},
        {"n_components": 2, "n_private": 1, "private_penalty": 0.3, "weights": "mean"},
        {"n_components": 2, "weights": {"east": 2.0, "north": 1.0, "west": 0.5}, "ridge": 0.1},
    ],
    "Popularity": [CLIPPED],
    "SynSD": [{"n_components": 2, "local_steps": 2, "solver": "gradient", "init": "unit", "growth": 0.5}],
    "SynSSD": [{"n_components": 2, "local_steps": 2, "kind": "count", "ratio": 0.5, "align": False}],
}


def _absent(at: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Let one owner stay away in every second round."""
    return names if at.index % 2 == 0 else tuple(name for i, name in enumerate(names) if i != at.index % len(names))


def cases() -> Iterator[tuple[str, Algorithm, str]]:
    """Name every case: the algorithm, its settings, and the kind of data; owners stay away where cells are missing."""
    for name in sorted(algorithms.__all__):
        for settings in [*CONFIGS.get(name, [{"n_components": 3}]), *MORE.get(name, [])]:
            algorithm = getattr(algorithms, name)(**settings)
            label = ",".join(f"{key}={value}" for key, value in settings.items())
            yield f"{name}({label})", algorithm, "dense"
            whole = "row_clip" in settings or settings.get("start") in ("wide", "stacked")  # these need complete rows
            holes = algorithm.handles_missing and not whole
            if not any(value in LONG for value in settings.values() if isinstance(value, str)):
                yield f"{name}({label}) with absences", algorithm, "masked" if holes else "sparse"
        first = getattr(algorithms, name)(**CONFIGS.get(name, [{"n_components": 3}])[0])
        if first.domain != "binary":
            yield f"{name} in small units", first, "small"
        yield f"{name} before the first round", first, "unbegun"


def figures(name: str, algorithm: Algorithm, kind: str) -> dict[str, Any]:
    """Run once, and boil down what came of it."""
    plain = small_data(algorithm.domain)
    if kind == "unbegun":
        return _unbegun(algorithm, federation_for(algorithm, plain))
    small = {name: UNIT * X for name, X in plain.items()}
    owners = small if kind == "small" else variants(algorithm, plain)[kind]
    federation = federation_for(algorithm, owners, np.nan if kind == "masked" else None)
    options = {} if kind in ("dense", "small") else {"participation": _absent}
    rounds = LATE[1] if name == LATE[0] else ROUNDS.get(type(algorithm).__name__, 5)
    run = fedfactor.run(algorithm, federation, rounds=rounds, seed=4, **options)
    measured = run.measured
    found: dict[str, Any] = {
        "V": _boiled(run.V),
        "U": _boiled(np.concatenate([np.asarray(kept.U) for kept in run.factors.values()])),
        "error": [float(score.sse) for score in measured.scores.values()],
        "rounds": [run.status, run.rounds, run.bytes_up, run.bytes_down],
    }
    if getattr(algorithm, "layout", "rows") == "rows":
        west = federation.shard("west")
        mask = west.mask if west.mask is None or isinstance(west.mask, str) else west.mask[:7]
        found["new rows"] = _boiled(algorithm.fold_in(west.X[:7], run.factors["west"], mask))
    if kind == "dense":
        found["announced"] = announced(algorithm, federation.prepare(algorithm.domain))
    told: dict[str, list[float]] = {}
    for record in run.history:
        for name, value in record.metrics.items():
            told.setdefault(name, []).append(float(value))
    found |= {name: [values[0], values[-1], sum(values)] for name, values in told.items()}
    return {name: [_short(value) for value in values] for name, values in found.items()}


def _unbegun(algorithm: Algorithm, federation: Any) -> dict[str, Any]:
    """Tell what an owner keeps of a run that ends before its first round."""
    meta = federation.prepare(algorithm.domain)
    _, down = algorithm.init_server(meta, Round(4, 0))
    name = meta.clients[-1]
    shard = federation.shard(name)
    state = algorithm.init_client(shard, meta, Round(4, 0, name))
    kept = algorithm.finish(shard, state, download_for(down, name))
    found = {"V": _boiled(kept.V), "U": _boiled(kept.U), "error": [float(algorithm.score(shard, kept, down).sse)]}
    return {name: [_short(value) for value in values] for name, values in found.items()}


def announced(algorithm: Algorithm, meta: Meta) -> list[str]:
    """Tell the most bytes of each message, and how many of its leaves may be smaller."""
    return [
        f"{kind.__name__} {sum(leaf.nbytes for leaf in spec.values())} {sum(not leaf.exact for leaf in spec.values())}"
        for kind, spec in algorithm.messages(meta).items()
    ]


def settings(name: str) -> list[str]:
    """Tell names, types, bounds and defaults of all settings, and what else a class says of itself."""
    kind = getattr(algorithms, name)
    first, meta = kind(**CONFIGS.get(name, [{"n_components": 3}])[0]), Meta(7, ("a", "b"), n_rows=9)
    about = {word: getattr(first, word, None) for word in ABOUT}
    said = [f"{word} = {value}" for word, value in about.items() if isinstance(value, str | int)]
    published = [repr(kind.paper(n_components=3))] if hasattr(kind, "paper") else []
    return [
        *map(_heading, settings_of_class(kind)),
        *said,
        *announced(first, meta),
        *published,
    ]


def _heading(each: Setting) -> str:
    """Return name, type and default of a parameter as numpydoc writes them."""
    named = f"{each.name} : {each.type_words}"
    if each.default is MISSING:
        return named
    if each.default is None:
        return f"{named}, optional"
    default = f'"{each.default}"' if isinstance(each.default, str) else repr(each.default)
    return f"{named}, default={default}"


def _short(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value


def _boiled(F: Any) -> list[float]:
    """Sum a factor with weights of its cells: another factor gives other sums."""
    F = np.asarray(F, np.float64)
    return [float(np.sum(F * np.cos(np.arange(F.size).reshape(F.shape) + turn))) for turn in (0.0, 1.0)]


def main() -> None:
    """Write the figures of all cases down."""
    found: dict[str, Any] = {name: figures(name, algorithm, kind) for name, algorithm, kind in cases()}
    found |= {name: settings(name) for name in sorted(algorithms.__all__)}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(found[name])}" for name in found)
    WRITTEN.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
