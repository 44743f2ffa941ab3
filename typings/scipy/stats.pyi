from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

class _Continuous:
    def ppf(self, q: float, *shapes: float) -> np.float64: ...

class _Discrete:
    @overload
    def pmf(self, k: int, *shapes: float) -> np.float64: ...
    @overload
    def pmf(self, k: NDArray[Any], *shapes: float) -> NDArray[Any]: ...
    def sf(self, k: int, *shapes: float) -> np.float64: ...

beta: _Continuous
t: _Continuous
binom: _Discrete

def rankdata(a: ArrayLike) -> NDArray[Any]: ...
