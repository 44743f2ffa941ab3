"""Every algorithm in the stub passes every check; a new one inherits these tests by being listed there."""

from __future__ import annotations

import pytest

from fedfactor import algorithms
from fedfactor.testing import algorithm_checks

# Settings beside the plain ones; an algorithm that is not listed is tested with its defaults and rank 3.
CONFIGS = {
    "FCF": [{"n_components": 3}, {"n_components": 2, "feedback": "implicit"}],
    "FedSPLIT": [
        {"n_components": 3},
        {
            "n_components": 2,
            "rank_rule": "paper",
            "item_bias": "mean",
            "unrated": "keep",
            "unit_rows": False,
            "refine": 0,
        },
        {"n_components": 3, "item_bias": "count", "masked": True, "iterations": 5},
        {"n_components": 3, "joint": "sum", "item_bias": "mean", "iterations": 5},
        {"n_components": 2, "joint": "sum", "masked": True, "iterations": 5, "select": "quality"},
    ],
    "PooledCF": [
        {"n_components": 3},
        {"n_components": 2, "feedback": "implicit", "weight": 4.0},
        {"n_components": 2, "validation": 0.0, "tol": 0.0, "min_ratings": 1},
    ],
    "PooledEASE": [
        {},
        {"low_rank": 3, "counts": "binary", "balance": 0.0},
        {"low_rank": "auto", "min_users": 1, "balance": 0.0},
        {"min_pairs": 3, "min_users": 20, "counts": "raw"},
    ],
    "Popularity": [{}, {"min_users": 5}],
    "PooledPCA": [
        {"n_components": 3},
        {"variance_share": 0.9, "whiten": True},
        {"n_components": 3, "solver": "subspace", "oversampling": 2},
    ],
    "PooledSVD": [{"n_components": 3}, {"n_components": 2, "solver": "subspace", "oversampling": 0}],
    "Biases": [{}, {"user_ridge": 1.0, "item_ridge": 20.0, "tol": 0.0}],
    "PooledRidge": [{"n_components": 3}, {"n_components": 30, "ridge": 1.0, "min_users": 1}],
    "PooledCNMF": [{"n_components": 3}, {"n_components": 2, "feedback": "implicit", "weight": 4.0}],
    "AsynSD": [{"n_components": 3, "local_steps": 2}, {"n_components": 2, "server": "harmonic", "align": False}],
    "AsynSSD": [{"n_components": 3, "local_steps": 2, "ratio": 0.3}, {"n_components": 1, "server": "constant"}],
    "DSANLS": [
        {"n_components": 3, "leak": "ignore"},
        {"n_components": 1, "sketch": "gaussian", "solver": "gradient", "leak": "ignore"},
        {"n_components": 2, "sketch": "count", "collect": False, "rule": "absolute", "leak": "ignore"},
        {"n_components": 2, "sketch": "srht", "iterations": 1, "leak": "ignore"},
    ],
    "DistributedNMF": [{"n_components": 3, "solver": solver} for solver in ("hals", "mu", "bpp")],
    "GridNMF": [
        {"n_components": 3},
        {"n_components": 2, "solver": "mu"},
        {"n_components": 3, "solver": "bpp", "tol": 0.1},
    ],
    "SynSD": [{"n_components": 3, "local_steps": 2}, {"n_components": 1, "align": False, "rule": "absolute"}],
    "SynSSD": [{"n_components": 3, "sketch": sketch, "local_steps": 2, "ratio": 0.3} for sketch in ("u", "v", "uv")],
    "FedAvgNMF": [
        {"n_components": 3, "local_steps": 2},
        {"n_components": 1, "local_solver": "gradient", "weights": "equal", "tol": 0.0},
        {"n_components": 3, "local_solver": "multiplicative"},
    ],
    "FedDMF": [
        {"n_components": 3, "hidden": 8, "epochs": 1, "refine": 1, "swap": 0.5, "batch_size": 64},
        {"n_components": 2, "hidden": 4, "epochs": 2, "beta": 1.0, "average": False, "start": "own", "rotate": True},
        {"n_components": 2, "hidden": 4, "share": "network", "patience": 1, "anchor": "mean", "negatives": None},
    ],
    "FNMF": [
        {"n_components": 3, "local_steps": 2, "local_solver": "hals", "diagnostics": True},
        {"n_components": 3, "barycenter": "client", "weights": "rows", "diagnostics": True},
        {"n_components": 3, "alignment": "lap_rho", "barycenter": "progressive"},
        {"n_components": 3, "alignment": "lap_rho", "barycenter": "client"},
        {"n_components": 2, "alignment": "sinkhorn", "barycenter": "hierarchical", "start": "common"},
        {"n_components": 3, "alignment": "sinkhorn_rho", "inertia": 0.2, "local_solver": "gradient"},
        {"n_components": 2, "alignment": "knn", "gamma": 0.0, "tol": 0.0},
    ],
    "FedProxNMF": [
        {"n_components": 3, "local_steps": 2, "diagnostics": True},
        {"n_components": 1, "local_solver": "gradient", "start": "own", "weights": "equal", "tol": 0.0},
        {"n_components": 3, "local_solver": "multiplicative"},
    ],
    "OneShotNMF": [
        {"n_components": 3, "local_steps": 20},
        {"n_components": 3, "local_steps": 20, "combine": "mean", "local_solver": "multiplicative"},
        {
            "n_components": 2,
            "local_steps": 20,
            "combine": "hierarchical",
            "local_solver": "gradient",
            "start": "common",
        },
    ],
    "BooleanVotes": [
        {"n_components": 3, "solver": "grecond"},
        {"n_components": 2, "solver": "mebf", "align": "none", "vote": "or", "refit": "none"},
    ],
    "FALB": [{"n_components": 3, "local_steps": 2}],
    "FELB": [
        {"n_components": 3, "local_steps": 2},
        {"n_components": 2, "init": "shared", "weights": "rows", "refit": "none", "scale_prox": False},
    ],
    "PooledBMF": [
        {"n_components": 3},
        {"n_components": 4, "thresholds": (0.5, 0.9), "penalties": (2,), "pairs": False, "candidates": 7, "sample": 60},
        {"n_components": 3, "solver": "proximal"},
        {"n_components": 2, "solver": "proximal", "gamma": 10.0, "server_steps": 1, "refit": "none"},
    ],
    "PooledNMF": [
        {"n_components": 3},
        {"n_components": 1, "momentum": False, "tol": 0.0},
        {"n_components": 4, "local_steps": 1, "server_steps": 1},
        {"n_components": 3, "start": "random"},
        {"n_components": 3, "alpha_U": 0.01, "l1_ratio": 0.5},
        {"n_components": 2, "alpha_U": 0.01, "alpha_V": 0.0},
        {"n_components": 3, "loss": "kullback-leibler"},
        {"n_components": 2, "loss": 0.5},
        {"n_components": 2, "loss": "kullback-leibler", "alpha_U": 0.01, "l1_ratio": 0.3, "tol": 0.0},
        {"n_components": 2, "n_private": 1, "weights": "equal"},
    ],
}
POOLED = {"PooledBMF", "PooledNMF"}
LONG = {"FedDMF", "FedSPLIT"}
LONG_WORDS = {"sinkhorn", "sinkhorn_rho"}
REPEATS = {
    "check_same_seed_same_bits", "check_pure_functions", "check_state_through_bytes", "check_resume",
    "check_client_order", "check_partial_participation",
}  # fmt: skip
OWNED = {"n_private", "weights"}  # settings by which the result depends on who owns which rows


def cases():
    for name in sorted(algorithms.__all__):
        for position, settings in enumerate(CONFIGS.get(name, [{"n_components": 3}])):
            algorithm = getattr(algorithms, name)(**settings)
            label = ",".join(f"{key}={value}" for key, value in settings.items())
            pooled = name in POOLED and not OWNED & set(settings)
            long = any(value in LONG_WORDS for value in settings.values() if isinstance(value, str))
            for check in algorithm_checks(algorithm, pooled=pooled or None):
                if long and str(check) in REPEATS:
                    continue  # what such words stand for is drawn from no stream, and keeps nothing in the state
                # The plain settings of every algorithm are checked with each commit, the others before each landing;
                # so are further runs of those that take long.
                later = position or (name in LONG and str(check) in REPEATS)
                marks = [pytest.mark.slow] if later else []
                yield pytest.param(check, id=f"{name}({label})-{check}", marks=marks)


@pytest.mark.parametrize("check", list(cases()))
def test_algorithm(check):
    check()


def test_tables_name_only_what_exists():
    assert set(CONFIGS) | POOLED | LONG <= set(algorithms.__all__)
