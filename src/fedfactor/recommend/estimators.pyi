# Written by `make format` from the declared settings. Change those, not this.
from typing import Any, Literal

import numpy as np

from fedfactor.engines.engine import Engine
from fedfactor.recommend.estimator_base import CatalogueRecommender, FederatedRecommender, ListRecommender

class FedSPLIT(FederatedRecommender):
    n_components: int
    local_components: int
    rank_rule: Literal["third", "paper"]
    item_bias: Literal["pooled", "count", "mean"]
    unrated: Literal["draw", "mean", "keep", "zero"]
    masked: bool
    unit_rows: bool
    joint: Literal["gather", "sum"]
    joint_rounds: int
    refine: int
    min_raters: int
    outlier: float
    select: Literal["all", "size", "quality"]
    min_ratings: int
    max_error: float
    updates: Literal["stable", "printed"]
    joint_solver: Literal["hals", "multiplicative"]
    iterations: int
    overrides: tuple[tuple[Any, tuple[tuple[str, Any], ...]], ...]
    start_scale: float
    alpha: float
    beta: float
    gamma: float
    delta: float
    eta_user: float
    eta_item: float
    by_count: bool
    def __init__(
        self,
        n_components: int = 4,
        *,
        local_components: int = 6,
        rank_rule: Literal["third", "paper"] = "third",
        item_bias: Literal["pooled", "count", "mean"] = "pooled",
        unrated: Literal["draw", "mean", "keep", "zero"] = "draw",
        masked: bool = False,
        unit_rows: bool = True,
        joint: Literal["gather", "sum"] = "gather",
        joint_rounds: int = 30,
        refine: int = 20,
        min_raters: int = 4,
        outlier: float = 20.0,
        select: Literal["all", "size", "quality"] = "all",
        min_ratings: int = 100,
        max_error: float = 1.0,
        updates: Literal["stable", "printed"] = "stable",
        joint_solver: Literal["hals", "multiplicative"] = "hals",
        iterations: int = 60,
        overrides: tuple[tuple[Any, tuple[tuple[str, Any], ...]], ...] = (),
        start_scale: float = 1.0,
        alpha: float = 0.06,
        beta: float = 0.06,
        gamma: float = 0.02,
        delta: float = 0.02,
        eta_user: float = 0.005,
        eta_item: float = 0.005,
        by_count: bool = True,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        scale: tuple[float, float] | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class PooledCF(FederatedRecommender):
    n_components: int
    feedback: Literal["explicit", "implicit"]
    ridge: float
    ridge_floor: float
    bias_ridge: float
    weight: float
    counts: Literal["log", "binary", "raw"]
    iterations: int
    validation: float
    tol: float
    min_ratings: int
    def __init__(
        self,
        n_components: int = 16,
        *,
        feedback: Literal["explicit", "implicit"] = "explicit",
        ridge: float = 0.05,
        ridge_floor: float = 6.0,
        bias_ridge: float = 3.0,
        weight: float = 3.0,
        counts: Literal["log", "binary", "raw"] = "log",
        iterations: int = 17,
        validation: float = 0.05,
        tol: float = 0.0002,
        min_ratings: int = 3,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        scale: tuple[float, float] | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class PooledCNMF(FederatedRecommender):
    n_components: int
    feedback: Literal["explicit", "implicit"]
    weight: float
    tol: float
    start_scale: float
    alpha: float
    beta: float
    gamma: float
    delta: float
    eta_user: float
    eta_item: float
    by_count: bool
    def __init__(
        self,
        n_components: int = 6,
        *,
        feedback: Literal["explicit", "implicit"] = "explicit",
        weight: float = 10.0,
        tol: float = 0.0,
        start_scale: float = 1.0,
        alpha: float = 0.06,
        beta: float = 0.06,
        gamma: float = 0.02,
        delta: float = 0.02,
        eta_user: float = 0.005,
        eta_item: float = 0.005,
        by_count: bool = True,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        scale: tuple[float, float] | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class FCF(FederatedRecommender):
    n_components: int
    feedback: Literal["explicit", "implicit"]
    weight: float
    lam: float
    learning_rate: float
    def __init__(
        self,
        n_components: int = 5,
        *,
        feedback: Literal["explicit", "implicit"] = "explicit",
        weight: float = 10.0,
        lam: float = 5.0,
        learning_rate: float = 0.05,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        scale: tuple[float, float] | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class FedMF(FederatedRecommender):
    n_components: int
    lam: float
    learning_rate: float
    momentum: float
    local_steps: int
    def __init__(
        self,
        n_components: int = 8,
        *,
        lam: float = 0.1,
        learning_rate: float = 0.5,
        momentum: float = 0.5,
        local_steps: int = 2,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        scale: tuple[float, float] | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class PooledEASE(ListRecommender):
    low_rank: int | Literal["auto"] | None
    ridge: float
    counts: Literal["log", "binary", "raw"]
    balance: float
    min_users: int
    min_pairs: int
    def __init__(
        self,
        low_rank: int | Literal["auto"] | None = None,
        *,
        ridge: float = 40.0,
        counts: Literal["log", "binary", "raw"] = "log",
        balance: float = 0.5,
        min_users: int = 3,
        min_pairs: int = 1,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class Baseline(FederatedRecommender):
    def similar_items(self, items: Any, n: int = 10, *, client: str | None = None) -> tuple[np.ndarray, np.ndarray]: ...

class Biases(Baseline):
    user_ridge: float
    item_ridge: float
    tol: float
    def __init__(
        self,
        user_ridge: float = 5.0,
        *,
        item_ridge: float = 5.0,
        tol: float = 0.001,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        scale: tuple[float, float] | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class Popularity(Baseline, ListRecommender):
    min_users: int
    def __init__(
        self,
        min_users: int = 1,
        *,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class PooledRidge(CatalogueRecommender):
    n_components: int
    ridge: float
    min_users: int
    def __init__(
        self,
        n_components: int = 32,
        *,
        ridge: float = 30.0,
        min_users: int = 3,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...

class FedDMF(CatalogueRecommender):
    n_components: int
    hidden: int
    dropout: float
    epochs: int
    batch_size: int
    learning_rate: float
    negatives: int | None
    init_scale: float
    start: Literal["common", "own"]
    average: bool
    beta: float
    margin: float
    pairs: int | None
    anchor: Literal["others", "mean"]
    swap: float
    refine: int
    rotate: bool
    share: Literal["items", "tower", "network"]
    validation: float
    patience: int
    weight_decay: float
    smooth: float
    device: str
    def __init__(
        self,
        n_components: int = 32,
        *,
        hidden: int = 64,
        dropout: float = 0.2,
        epochs: int = 30,
        batch_size: int = 2048,
        learning_rate: float = 0.008,
        negatives: int | None = 4,
        init_scale: float = 0.05,
        start: Literal["common", "own"] = "common",
        average: bool = False,
        beta: float = 0.0,
        margin: float = 0.2,
        pairs: int | None = 256,
        anchor: Literal["others", "mean"] = "others",
        swap: float = 0.5,
        refine: int = 0,
        rotate: bool = False,
        share: Literal["items", "tower", "network"] = "items",
        validation: float = 0.1,
        patience: int = 0,
        weight_decay: float = 0.15,
        smooth: float = 0.8,
        device: str = "cpu",
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None: ...
