from typing import Any, Self, TypeVar

T = TypeVar("T")

class BaseEstimator:
    @classmethod
    def _get_param_names(cls) -> list[str]: ...
    def get_params(self, deep: bool = ...) -> dict[str, Any]: ...
    def set_params(self, **params: Any) -> Self: ...
    def __getstate__(self) -> dict[str, Any]: ...
    def __setstate__(self, state: dict[str, Any]) -> None: ...
    def __sklearn_tags__(self) -> Tags: ...

class ClassNamePrefixFeaturesOutMixin:
    def get_feature_names_out(self, input_features: Any = ...) -> Any: ...

class TransformerMixin:
    def fit_transform(self, X: Any, y: Any = ..., **fit_params: Any) -> Any: ...
    def set_output(self, *, transform: str | None = ...) -> Self: ...

class InputTags:
    sparse: bool
    positive_only: bool
    allow_nan: bool
    two_d_array: bool
    string: bool
    pairwise: bool

class TransformerTags:
    preserves_dtype: list[str]

class Tags:
    input_tags: InputTags
    transformer_tags: TransformerTags
    non_deterministic: bool
    requires_fit: bool
    no_validation: bool

def clone(estimator: T, *, safe: bool = ...) -> T: ...
