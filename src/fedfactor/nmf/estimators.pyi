# Written by `make format` from the declared settings. Change those, not this.
from collections.abc import Mapping
from typing import Any, Literal

from fedfactor.engines.engine import Engine
from fedfactor.estimators.base import FederatedTransformer
from fedfactor.estimators.signatures import Restarts
from fedfactor.nmf.incremental_fit import GoesOn

class OwnComponents(FederatedTransformer):
    components_private_: Any

class PooledNMF(Restarts, GoesOn, OwnComponents):
    n_components: int
    local_steps: int
    server_steps: int
    momentum: bool
    tol: float
    loss: float | str
    start: Literal["auto", "wide", "random", "stacked"]
    alpha_U: float
    alpha_V: float | Literal["same"]
    l1_ratio: float
    n_private: int
    private_penalty: float
    weights: Literal["rows", "equal", "mean"] | Mapping[str, float]
    ridge: float | Literal["auto"]
    noisy_step: Literal["gradient", "newton"]
    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 5,
        server_steps: int = 10,
        momentum: bool = True,
        tol: float = 0.0001,
        loss: float | str = "frobenius",
        start: Literal["auto", "wide", "random", "stacked"] = "auto",
        alpha_U: float = 0.0,
        alpha_V: float | Literal["same"] = "same",
        l1_ratio: float = 0.0,
        n_private: int = 0,
        private_penalty: float = 0.01,
        weights: Literal["rows", "equal", "mean"] | Mapping[str, float] = "rows",
        ridge: float | Literal["auto"] = "auto",
        noisy_step: Literal["gradient", "newton"] = "gradient",
        n_init: int | None = None,
        warm_start: bool = False,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        device: str | None = None,
        storage: Literal["float64", "float32", "bfloat16"] | None = None,
        missing_values: float | str | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class FedAvgNMF(FederatedTransformer):
    n_components: int
    local_steps: int
    local_solver: Literal["hals", "gradient", "multiplicative"]
    weights: Literal["rows", "equal"]
    tol: float
    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 10,
        local_solver: Literal["hals", "gradient", "multiplicative"] = "hals",
        weights: Literal["rows", "equal"] = "rows",
        tol: float = 0.0001,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        device: str | None = None,
        storage: Literal["float64", "float32", "bfloat16"] | None = None,
        missing_values: float | str | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class FedProxNMF(FederatedTransformer):
    n_components: int
    mu: float
    relative: bool
    pull_from: int
    local_steps: int
    local_solver: Literal["hals", "gradient", "multiplicative"]
    inertia: float
    start: Literal["common", "own"]
    weights: Literal["rows", "equal"]
    row_norm: Literal["unit", "usage", "free"]
    tol: float
    diagnostics: bool
    def __init__(
        self,
        n_components: int = 2,
        *,
        mu: float = 1.0,
        relative: bool = False,
        pull_from: int = 1,
        local_steps: int = 10,
        local_solver: Literal["hals", "gradient", "multiplicative"] = "hals",
        inertia: float = 0.0,
        start: Literal["common", "own"] = "common",
        weights: Literal["rows", "equal"] = "rows",
        row_norm: Literal["unit", "usage", "free"] = "free",
        tol: float = 0.0001,
        diagnostics: bool = False,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        device: str | None = None,
        storage: Literal["float64", "float32", "bfloat16"] | None = None,
        missing_values: float | str | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class OneShotNMF(FederatedTransformer):
    n_components: int
    combine: Literal["fixed_point", "progressive", "hierarchical"] | Literal["mean"]
    alignment: Literal["lap", "sinkhorn", "knn"]
    local_steps: int
    local_solver: Literal["hals", "gradient", "multiplicative"]
    local_tol: float
    start: Literal["own", "common"]
    weights: Literal["equal", "rows"]
    def __init__(
        self,
        n_components: int = 2,
        *,
        combine: Literal["fixed_point", "progressive", "hierarchical"] | Literal["mean"] = "fixed_point",
        alignment: Literal["lap", "sinkhorn", "knn"] = "lap",
        local_steps: int = 500,
        local_solver: Literal["hals", "gradient", "multiplicative"] = "hals",
        local_tol: float = 1e-06,
        start: Literal["own", "common"] = "own",
        weights: Literal["equal", "rows"] = "equal",
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        device: str | None = None,
        storage: Literal["float64", "float32", "bfloat16"] | None = None,
        missing_values: float | str | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class FNMF(OwnComponents):
    n_components: int
    alignment: Literal["lap", "lap_rho", "sinkhorn", "sinkhorn_rho", "knn", "simplex"]
    barycenter: Literal["fixed_point", "progressive", "hierarchical"] | Literal["printed", "client"]
    gamma: float
    scale_gamma: bool
    pull_from: int
    local_steps: int
    local_solver: Literal["gradient", "hals", "printed"]
    inertia: float
    align_every: int
    significance: float
    correction: Literal["bonferroni", "none"]
    epsilon: float
    neighbours: int
    start: Literal["own", "common"]
    weights: Literal["equal", "rows"]
    row_norm: Literal["unit", "usage", "free"]
    tol: float
    patience: int
    synchronisation: Literal["reorder", "replace"]
    diagnostics: bool
    def __init__(
        self,
        n_components: int = 2,
        *,
        alignment: Literal["lap", "lap_rho", "sinkhorn", "sinkhorn_rho", "knn", "simplex"] = "lap",
        barycenter: Literal["fixed_point", "progressive", "hierarchical"]
        | Literal["printed", "client"] = "fixed_point",
        gamma: float = 0.01,
        scale_gamma: bool = False,
        pull_from: int = 1,
        local_steps: int = 10,
        local_solver: Literal["gradient", "hals", "printed"] = "gradient",
        inertia: float = 0.0,
        align_every: int = 10,
        significance: float = 0.001,
        correction: Literal["bonferroni", "none"] = "bonferroni",
        epsilon: float = 0.05,
        neighbours: int = 1,
        start: Literal["own", "common"] = "own",
        weights: Literal["equal", "rows"] = "equal",
        row_norm: Literal["unit", "usage", "free"] = "unit",
        tol: float = 0.0001,
        patience: int = 3,
        synchronisation: Literal["reorder", "replace"] = "reorder",
        diagnostics: bool = False,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        device: str | None = None,
        storage: Literal["float64", "float32", "bfloat16"] | None = None,
        missing_values: float | str | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...
