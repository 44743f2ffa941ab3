from typing import Any

from sklearn.base import BaseEstimator

def check_is_fitted(estimator: object, attributes: str | list[str] | None = ...) -> None: ...
def validate_data(
    _estimator: BaseEstimator, /, X: Any, *, reset: bool = ..., skip_check_array: bool = ..., **check_params: Any
) -> Any: ...
