from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

class OptimizeResult:
    x: float
    fun: float

def linear_sum_assignment(
    cost_matrix: ArrayLike, maximize: bool = ...
) -> tuple[NDArray[np.intp], NDArray[np.intp]]: ...
def minimize_scalar(
    fun: Callable[[float], float], *, bounds: tuple[float, float] | None = ..., method: str | None = ...
) -> OptimizeResult: ...
def nnls(A: ArrayLike, b: ArrayLike) -> tuple[NDArray[Any], float]: ...
