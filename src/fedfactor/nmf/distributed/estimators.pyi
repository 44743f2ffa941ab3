# Written by `make format` from the declared settings. Change those, not this.
from typing import Any, Literal

from fedfactor.engines.engine import Engine
from fedfactor.estimators.base import FederatedTransformer
from fedfactor.estimators.columns import GridFace, SecureFace

class DSANLS(GridFace):
    n_components: int
    sketch: Literal["subsampling", "gaussian", "count", "srht"]
    ratio: float
    solver: Literal["proximal", "gradient"]
    rule: Literal["relative", "absolute"]
    schedule_start: float | None
    growth: float | None
    init: Literal["scaled", "unit"]
    leak: Literal["warn", "refuse", "ignore"]
    iterations: int
    collect: bool
    cap: float | None
    def __init__(
        self,
        n_components: int = 2,
        *,
        sketch: Literal["subsampling", "gaussian", "count", "srht"] = "subsampling",
        ratio: float = 0.1,
        solver: Literal["proximal", "gradient"] = "proximal",
        rule: Literal["relative", "absolute"] = "relative",
        schedule_start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit"] = "scaled",
        leak: Literal["warn", "refuse", "ignore"] = "warn",
        iterations: int = 100,
        collect: bool = True,
        cap: float | None = None,
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

class DistributedNMF(FederatedTransformer):
    n_components: int
    solver: Literal["hals", "mu", "bpp"]
    tol: float
    def __init__(
        self,
        n_components: int = 2,
        *,
        solver: Literal["hals", "mu", "bpp"] = "hals",
        tol: float = 0.0,
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

class GridNMF(GridFace):
    n_components: int
    solver: Literal["hals", "mu", "bpp"]
    local_steps: int
    tol: float
    def __init__(
        self,
        n_components: int = 2,
        *,
        solver: Literal["hals", "mu", "bpp"] = "hals",
        local_steps: int = 1,
        tol: float = 0.0,
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

class SynSD(SecureFace):
    n_components: int
    local_steps: int
    align: bool
    solver: Literal["proximal", "gradient"]
    rule: Literal["relative", "absolute"]
    schedule_start: float | None
    growth: float | None
    init: Literal["scaled", "unit", "small"]
    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 10,
        align: bool = True,
        solver: Literal["proximal", "gradient"] = "proximal",
        rule: Literal["relative", "absolute"] = "relative",
        schedule_start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit", "small"] = "scaled",
        split: Literal["rows", "columns"] = "rows",
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

class SynSSD(SecureFace):
    n_components: int
    sketch: Literal["uv", "u", "v"]
    kind: Literal["subsampling", "gaussian", "count", "srht"]
    ratio: float
    local_steps: int
    align: bool
    solver: Literal["proximal", "gradient"]
    rule: Literal["relative", "absolute"]
    schedule_start: float | None
    growth: float | None
    init: Literal["scaled", "unit", "small"]
    def __init__(
        self,
        n_components: int = 2,
        *,
        sketch: Literal["uv", "u", "v"] = "uv",
        kind: Literal["subsampling", "gaussian", "count", "srht"] = "subsampling",
        ratio: float = 0.1,
        local_steps: int = 10,
        align: bool = True,
        solver: Literal["proximal", "gradient"] = "proximal",
        rule: Literal["relative", "absolute"] = "relative",
        schedule_start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit", "small"] = "scaled",
        split: Literal["rows", "columns"] = "rows",
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

class AsynSD(SecureFace):
    n_components: int
    local_steps: int
    align: bool
    solver: Literal["proximal", "gradient"]
    rule: Literal["relative", "absolute"]
    schedule_start: float | None
    growth: float | None
    init: Literal["scaled", "unit", "small"]
    server: Literal["history", "harmonic", "constant"]
    omega: float | None
    weights: Literal["equal", "rows"]
    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 10,
        align: bool = True,
        solver: Literal["proximal", "gradient"] = "proximal",
        rule: Literal["relative", "absolute"] = "relative",
        schedule_start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit", "small"] = "scaled",
        server: Literal["history", "harmonic", "constant"] = "history",
        omega: float | None = None,
        weights: Literal["equal", "rows"] = "equal",
        split: Literal["rows", "columns"] = "rows",
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

class AsynSSD(SecureFace):
    n_components: int
    kind: Literal["subsampling", "gaussian", "count", "srht"]
    ratio: float
    local_steps: int
    align: bool
    solver: Literal["proximal", "gradient"]
    rule: Literal["relative", "absolute"]
    schedule_start: float | None
    growth: float | None
    init: Literal["scaled", "unit", "small"]
    server: Literal["history", "harmonic", "constant"]
    omega: float | None
    weights: Literal["equal", "rows"]
    def __init__(
        self,
        n_components: int = 2,
        *,
        kind: Literal["subsampling", "gaussian", "count", "srht"] = "subsampling",
        ratio: float = 0.1,
        local_steps: int = 10,
        align: bool = True,
        solver: Literal["proximal", "gradient"] = "proximal",
        rule: Literal["relative", "absolute"] = "relative",
        schedule_start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit", "small"] = "scaled",
        server: Literal["history", "harmonic", "constant"] = "history",
        omega: float | None = None,
        weights: Literal["equal", "rows"] = "equal",
        split: Literal["rows", "columns"] = "rows",
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
