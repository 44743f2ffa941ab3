# Written by `make format` from the declared settings. Change those, not this.
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from fedfactor.boolean.estimator_base import BooleanTransformer
from fedfactor.boolean.solver_estimators import BooleanSolver, SeededSolver
from fedfactor.engines.engine import Engine

class AsPrinted(BooleanTransformer):
    @classmethod
    def paper(cls, n_components: int = 2, **changes: Any) -> Self: ...

class FELB(AsPrinted):
    n_components: int
    local_steps: int
    kappa: float
    lam: float
    rate: float
    beta: float
    scale_prox: bool
    prox: Literal["exact", "printed"]
    step: Literal["safe", "elbmf", "falling"]
    norm: Literal["frobenius", "spectral"]
    schedule: Literal["steps", "rounds"]
    server_prox: bool
    init: Literal["independent", "shared"]
    start: Literal["auto", "wide", "random", "uniform"]
    row_max: Literal["one", "free"]
    weights: Literal["equal", "rows"]
    refit: Literal["boolean", "none"]
    tol: float
    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 10,
        kappa: float = 0.01,
        lam: float = 0.01,
        rate: float = 1.005,
        beta: float = 0.01,
        scale_prox: bool = True,
        prox: Literal["exact", "printed"] = "exact",
        step: Literal["safe", "elbmf", "falling"] = "safe",
        norm: Literal["frobenius", "spectral"] = "frobenius",
        schedule: Literal["steps", "rounds"] = "steps",
        server_prox: bool = True,
        init: Literal["independent", "shared"] = "shared",
        start: Literal["auto", "wide", "random", "uniform"] = "auto",
        row_max: Literal["one", "free"] = "one",
        weights: Literal["equal", "rows"] = "equal",
        refit: Literal["boolean", "none"] = "boolean",
        tol: float = 1e-06,
        binarize: float | None = None,
        n_init: int | None = None,
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

class FALB(AsPrinted):
    n_components: int
    local_steps: int
    gamma: float
    eps: float
    kappa: float
    lam: float
    rate: float
    beta: float
    scale_prox: bool
    prox: Literal["exact", "printed"]
    step: Literal["safe", "elbmf", "falling"]
    norm: Literal["frobenius", "spectral"]
    schedule: Literal["steps", "rounds"]
    server_prox: bool
    init: Literal["independent", "shared"]
    start: Literal["auto", "wide", "random", "uniform"]
    row_max: Literal["one", "free"]
    weights: Literal["equal", "rows"]
    refit: Literal["boolean", "none"]
    tol: float
    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 10,
        gamma: float = 10.0,
        eps: float = 0.01,
        kappa: float = 0.01,
        lam: float = 0.01,
        rate: float = 1.005,
        beta: float = 0.01,
        scale_prox: bool = True,
        prox: Literal["exact", "printed"] = "exact",
        step: Literal["safe", "elbmf", "falling"] = "safe",
        norm: Literal["frobenius", "spectral"] = "frobenius",
        schedule: Literal["steps", "rounds"] = "steps",
        server_prox: bool = True,
        init: Literal["independent", "shared"] = "shared",
        start: Literal["auto", "wide", "random", "uniform"] = "auto",
        row_max: Literal["one", "free"] = "one",
        weights: Literal["equal", "rows"] = "equal",
        refit: Literal["boolean", "none"] = "boolean",
        tol: float = 1e-06,
        binarize: float | None = None,
        n_init: int | None = None,
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

class PooledBMF(BooleanTransformer):
    n_components: int
    solver: Literal["counts", "proximal"]
    thresholds: tuple[float, ...]
    penalties: tuple[int, ...]
    pairs: bool
    candidates: int
    min_rows: int
    trials: int
    patience: int
    search_rounds: int
    sample: int
    local_steps: int
    server_steps: int
    kappa: float
    lam: float
    rate: float
    beta: float
    gamma: float
    scale_prox: bool
    prox: Literal["exact", "printed"]
    step: Literal["safe", "elbmf"]
    norm: Literal["frobenius", "spectral"]
    refit: Literal["boolean", "none"]
    tol: float
    def __init__(
        self,
        n_components: int = 2,
        *,
        solver: Literal["counts", "proximal"] = "counts",
        thresholds: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        penalties: tuple[int, ...] = (1, 2, 4),
        pairs: bool = True,
        candidates: int = 1000,
        min_rows: int = 1,
        trials: int = 8,
        patience: int = 2,
        search_rounds: int = 80,
        sample: int = 5000,
        local_steps: int = 10,
        server_steps: int = 10,
        kappa: float = 0.01,
        lam: float = 0.01,
        rate: float = 1.005,
        beta: float = 0.01,
        gamma: float = 0.0,
        scale_prox: bool = True,
        prox: Literal["exact", "printed"] = "exact",
        step: Literal["safe", "elbmf"] = "safe",
        norm: Literal["frobenius", "spectral"] = "frobenius",
        refit: Literal["boolean", "none"] = "boolean",
        tol: float = 1e-06,
        binarize: float | None = None,
        n_init: int | None = None,
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

class BooleanVotes(AsPrinted):
    n_components: int
    solver: Literal["asso", "elbmf", "grecond", "mebf", "primp", "zhang"]
    vote: Literal["majority", "average", "or"]
    align: Literal["lap", "none"]
    refit: Literal["boolean", "none"]
    tie: Literal["one", "zero"]
    options: tuple[tuple[str, Any], ...] | Mapping[str, Any]
    time_limit: float | None
    def __init__(
        self,
        n_components: int = 2,
        *,
        solver: Literal["asso", "elbmf", "grecond", "mebf", "primp", "zhang"] = "asso",
        vote: Literal["majority", "average", "or"] = "majority",
        align: Literal["lap", "none"] = "lap",
        refit: Literal["boolean", "none"] = "boolean",
        tie: Literal["one", "zero"] = "one",
        options: tuple[tuple[str, Any], ...] | Mapping[str, Any] = (),
        time_limit: float | None = None,
        binarize: float | None = None,
        n_init: int | None = None,
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

class ASSO(BooleanSolver):
    tau: float | Sequence[float]
    reward: float
    penalty: float
    def __init__(
        self,
        n_components: int = 2,
        *,
        tau: float | Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        reward: float = 1.0,
        penalty: float = 1.0,
        time_limit: float | None = None,
        binarize: float | None = None,
    ) -> None: ...

class GreConD(BooleanSolver):
    def __init__(
        self, n_components: int = 2, *, time_limit: float | None = None, binarize: float | None = None
    ) -> None: ...

class MEBF(BooleanSolver):
    share: float | Sequence[float]
    leave: float
    def __init__(
        self,
        n_components: int = 2,
        *,
        share: float | Sequence[float] = 0.8,
        leave: float = 0.05,
        time_limit: float | None = None,
        binarize: float | None = None,
    ) -> None: ...

class ELBMF(SeededSolver):
    kappa: float
    lam: float
    rate: float
    beta: float
    max_iter: int
    tol: float
    def __init__(
        self,
        n_components: int = 2,
        *,
        kappa: float = 0.01,
        lam: float = 0.02,
        rate: float = 1.02,
        beta: float = 0.0001,
        max_iter: int = 3000,
        tol: float = 1e-08,
        time_limit: float | None = None,
        binarize: float | None = None,
        random_state: Any = None,
    ) -> None: ...

class ZhangBMF(SeededSolver):
    lam: float
    growth: float
    max_iter: int
    full_grid: bool
    def __init__(
        self,
        n_components: int = 2,
        *,
        lam: float = 1.0,
        growth: float = 1.0,
        max_iter: int = 1000,
        full_grid: bool = False,
        time_limit: float | None = None,
        binarize: float | None = None,
        random_state: Any = None,
    ) -> None: ...

class PRIMP(SeededSolver):
    weight: float
    cost: Literal["error", "mdl"]
    max_iter: int
    tol: float
    full_grid: bool
    def __init__(
        self,
        n_components: int = 2,
        *,
        weight: float = 0.1,
        cost: Literal["error", "mdl"] = "mdl",
        max_iter: int = 1000,
        tol: float = 1e-08,
        full_grid: bool = False,
        time_limit: float | None = None,
        binarize: float | None = None,
        random_state: Any = None,
    ) -> None: ...
