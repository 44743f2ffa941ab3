from typing import Any

from numpy.typing import NDArray

class NMF:
    components_: NDArray[Any]
    def __init__(self, n_components: int, *, init: str, max_iter: int, random_state: int) -> None: ...
    def fit_transform(self, X: NDArray[Any]) -> NDArray[Any]: ...
