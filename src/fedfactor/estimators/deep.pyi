# Written by `make format` from the declared settings. Change those, not this.
from typing import Any, Literal

import numpy as np

from fedfactor.data.user_table import DeepTable
from fedfactor.engines.base import Engine
from fedfactor.estimators._recommender import CatalogueRecommender

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
    run_: Any
    n_iter_: Any
    items_: Any
    users_: Any
    components_: Any
    client_factors_: Any
    support_: Any
    tables_: Any
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
    def predict_proba(self, client: str, users: Any, items: Any) -> np.ndarray: ...
    def fold_in(self, ratings: Any, *, client: str | None = None) -> DeepTable: ...
    def score(self, ratings: Any, y: Any = None, *, client: str | None = None) -> float: ...
