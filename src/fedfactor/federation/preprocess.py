"""Agreed preprocessing: the same steps, in the same order, at every party."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfactor.core.checks import is_sparse
from fedfactor.core.errors import DataError

STEPS = ("library-size", "log1p", "binarise", "tf-idf", "scale")
"""``library-size N``: each row sums to N. ``log1p``: ln(1 + x). ``binarise T``: 1 where x > T. ``tf-idf`` and ``scale``
weigh columns by what all owners' columns add up to, and come last."""


@dataclass(frozen=True, slots=True)
class Preprocess:
    """Steps that every party applies to its own rows.

    Examples
    --------
    >>> steps = Preprocess.of({"missing_values": "none", "steps": ["library-size 10", "log1p"]})
    >>> np.round(steps.apply(np.array([[1.0, 4.0]])), 3)
    array([[1.099, 2.197]])
    """

    steps: tuple[tuple[str, float | None], ...] = ()
    missing_values: float | str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Preprocess:
        """Read ``[preprocess]``."""
        steps = tuple(_step(text) for text in given["steps"])
        weighing = [name for name, _ in steps if name in ("tf-idf", "scale")]
        if weighing and (len(weighing) > 1 or steps[-1][0] not in weighing):
            raise DataError("one of tf-idf and scale may be used, as the last step.")
        return cls(steps, _missing(given["missing_values"]))

    @property
    def survey(self) -> str:
        """Name the step that needs column sums of all owners; empty when none does."""
        return self.steps[-1][0] if self.steps and self.steps[-1][0] in ("tf-idf", "scale") else ""

    def apply(self, X: Any) -> Any:
        """Apply all steps that need nobody else."""
        for name, value in self.steps:
            if name == "library-size":
                X = _library_size(X, float(value or 0))
            elif name == "log1p":
                X = X.log1p() if is_sparse(X) else np.log1p(X)
            elif name == "binarise":
                X = _binarise(X, float(value or 0))
        return X


def _step(text: Any) -> tuple[str, float | None]:
    name, _, rest = str(text).partition(" ")
    if name not in STEPS:
        raise DataError(f"[preprocess] knows no step {name!r}. Its steps are {', '.join(STEPS)}.")
    wants = name in ("library-size", "binarise")
    try:
        value = float(rest) if rest else {"library-size": 10_000.0, "binarise": 0.0}.get(name)
    except ValueError:
        raise DataError(f"[preprocess] {text!r}: {rest!r} is not a number.") from None
    if rest and not wants:
        raise DataError(f"[preprocess] {name} takes no number, but {rest!r} was given.")
    if value is not None and (not math.isfinite(value) or (name == "library-size" and value <= 0)):
        raise DataError(f"[preprocess] {text!r}: the number must be finite and, for a library size, positive.")
    if value is not None and name == "binarise" and value < 0:
        raise DataError("[preprocess] binarise needs a threshold of at least 0, so that absent cells stay 0.")
    return name, value


def _missing(value: Any) -> float | str | None:
    if value == "none":
        return None
    if value == "unstored":
        return "unstored"
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"[preprocess] missing_values = {value!r}: use 'none', 'nan', 'unstored' or a number."
        ) from None


def _library_size(X: Any, target: float) -> Any:
    totals = np.asarray(X.sum(axis=1), np.float64).ravel()
    factors = np.divide(target, totals, out=np.zeros_like(totals), where=totals > 0)
    if is_sparse(X):
        X = X.copy()
        X.data = (X.data * np.repeat(factors, np.diff(X.indptr))).astype(X.data.dtype)
        return X
    return (X * factors[:, None]).astype(X.dtype)


def _binarise(X: Any, threshold: float) -> Any:
    if is_sparse(X):
        X = X.copy()
        X.data = (X.data > threshold).astype(X.data.dtype)
        X.eliminate_zeros()
        return X
    return (X > threshold).astype(X.dtype)
