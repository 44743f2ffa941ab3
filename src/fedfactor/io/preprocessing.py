"""Preprocessing, one vocabulary for simulations, files and federations: the same steps in the same order everywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Domain
from fedfactor.core.client_data import Federation
from fedfactor.core.column_scales import SCALES, weighted
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import check_values, is_sparse
from fedfactor.core.missing_policies import parse_missing

STEPS = ("library-size", "log1p", "binarize", "select", "tf-idf", "scale")
"""``library-size N``: each row sums to N. ``log1p``: ln(1 + x). ``binarize T``: 1 where x > T. The others weigh columns
by what all clients' columns add up to, and come last: ``select N`` keeps the N columns that spread most for their size
(the others become zero), ``tf-idf`` weighs by how rare a column is, ``scale`` divides by the root mean square, or by
what its word says: ``mean``, ``std``, ``max``, ``quantile 0.9``. ``scale declared`` needs no sums: in a federation it
divides by the upper ends of the ranges in ``[units]``."""

DECLARED = "scale declared"
_WEIGHING = ("select", "tf-idf", "scale")
_NUMBERS = {"library-size": 10_000.0, "binarize": 0.0}
_QUANTILE = 0.9


@dataclass(frozen=True, slots=True)
class Preprocess:
    """Steps that every client applies to its own rows.

    Examples
    --------
    >>> steps = Preprocess.of({"missing_values": "none", "steps": ["library-size 10", "log1p"]})
    >>> np.round(steps.apply(np.array([[1.0, 4.0]])), 3)
    array([[1.099, 2.197]])
    """

    steps: tuple[tuple[str, float | None], ...] = ()
    survey: str = ""
    """Steps that need column sums of all clients, as words; empty when none does."""
    missing_values: float | str | None = None
    declared: bool = False
    """Whether columns are divided by the upper ends of their declared ranges."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Preprocess:
        """Read ``[preprocess]``."""
        return cls.parse(given["steps"], parse_missing(given["missing_values"], "[preprocess] missing_values ="))

    @classmethod
    def parse(cls, words: Sequence[str], missing_values: float | str | None = None) -> Preprocess:
        """Read steps as words.

        Examples
        --------
        >>> Preprocess.parse(["log1p", "scale max"]).survey
        'scale max'
        """
        own: list[tuple[str, float | None]] = []
        weighing: list[str] = []
        for text in words:
            name, rest = _split(text)
            if name in _WEIGHING:
                weighing.append(_weighing(text, name, rest))
            elif weighing:
                raise DataError(f"[preprocess] {text!r} comes after {weighing[0]!r}; what weighs columns comes last.")
            else:
                own.append((name, _value(text, name, rest)))
        kinds = [word.partition(" ")[0] for word in weighing]
        if len(set(kinds)) < len(kinds) or {"tf-idf", "scale"} <= set(kinds):
            raise DataError("[preprocess] one of tf-idf and scale may be used, and select once.")
        declared = DECLARED in weighing
        if declared and (len(weighing) > 1 or any(name != "log1p" for name, _ in own)):
            raise DataError(f"[preprocess] {DECLARED!r} goes with log1p alone: ranges are of cells as they are.")
        return cls(tuple(own), "" if declared else "; ".join(weighing), missing_values, declared)

    @property
    def weighing(self) -> str:
        """Steps that weigh columns, as words."""
        return DECLARED if self.declared else self.survey

    @property
    def words(self) -> list[str]:
        """The steps as they are written, to be kept with a result."""
        own = [name if value is None else f"{name} {value:g}" for name, value in self.steps]
        return own + (self.weighing.split("; ") if self.weighing else [])

    def apply(self, X: Any, weights: np.ndarray | None = None) -> Any:
        """Apply all steps that need no other party, then the column weights that sums or declared ranges gave."""
        for name, value in self.steps:
            if name == "library-size":
                X = _library_size(X, float(value or 0))
            elif name == "log1p":
                X = X.log1p() if is_sparse(X) else np.log1p(X)
            elif name == "binarize":
                X = above(X, float(value or 0))
        return X if weights is None else weighted(X, weights)

    def undo(self, X: Any, weights: np.ndarray | None = None) -> Any:
        """Return dense rows to the units before :meth:`apply`, as far as steps can be undone.

        Column weights and log1p can. Row sums (library-size) and thresholds (binarize) are not kept: the result is in
        the units after the last such step.

        Examples
        --------
        >>> steps = Preprocess.parse(["log1p", "scale max"])
        >>> steps.undo(steps.apply(np.array([[3.0, 8.0]]), np.array([0.5, 0.1])), np.array([0.5, 0.1])).round(9)
        array([[3., 8.]])
        """
        from array_api_compat import array_namespace

        X = X if weights is None else unweighted(X, weights)
        for name, _ in reversed(self.steps):
            if name != "log1p":
                break
            X = array_namespace(X).expm1(X)
        return X


def unweighted(X: Any, weights: np.ndarray) -> Any:
    """Divide every column by its weight; a column of weight 0 was left out and becomes NaN."""
    from fedfactor.linalg.products import as_like  # with it comes SciPy, which reading settings needs not

    known = np.where(weights > 0, weights, np.nan)
    return X / as_like(known, X)


def _split(text: Any) -> tuple[str, str]:
    name, _, rest = str(text).strip().partition(" ")
    name = "binarize" if name == "binarise" else name
    if name not in STEPS:
        raise DataError(f"[preprocess] knows no step {name!r}. Its steps are {', '.join(STEPS)}.")
    return name, rest.strip()


def _weighing(text: Any, name: str, rest: str) -> str:
    if name == "tf-idf":
        if rest:
            raise DataError(f"[preprocess] tf-idf takes no number, but {rest!r} was given.")
        return name
    if name == "select":
        if not rest.isdecimal() or int(rest) < 1:
            raise DataError(f"[preprocess] {text!r}: say how many columns to keep, for example 'select 2000'.")
        return f"select {int(rest)}"
    kind, _, share = rest.partition(" ")
    if kind and kind not in (*SCALES, "declared"):
        raise DataError(f"[preprocess] {text!r}: a column can be scaled by {', '.join(SCALES)} or declared.")
    if kind != "quantile":
        if share:
            raise DataError(f"[preprocess] {text!r}: {kind} takes no number.")
        return f"scale {kind}" if kind else "scale"
    try:
        part = float(share) if share else _QUANTILE
    except ValueError:
        part = math.nan
    if not 0 < part <= 1:
        raise DataError(f"[preprocess] {text!r}: a quantile lies between 0 and 1, for example 'scale quantile 0.9'.")
    return f"scale quantile {part:g}"


def _value(text: Any, name: str, rest: str) -> float | None:
    try:
        value = float(rest) if rest else _NUMBERS.get(name)
    except ValueError:
        raise DataError(f"[preprocess] {text!r}: {rest!r} is not a number.") from None
    if rest and name not in _NUMBERS:
        raise DataError(f"[preprocess] {name} takes no number, but {rest!r} was given.")
    if value is not None and (not math.isfinite(value) or (name == "library-size" and value <= 0)):
        raise DataError(f"[preprocess] {text!r}: the number must be finite and, for a library size, positive.")
    if value is not None and name == "binarize" and value < 0:
        raise DataError("[preprocess] binarize needs a threshold of at least 0, so that absent cells stay 0.")
    return value


def _library_size(X: Any, target: float) -> Any:
    totals = np.asarray(X.sum(axis=1), np.float64).ravel()
    factors = np.divide(target, totals, out=np.zeros_like(totals), where=totals > 0)
    if is_sparse(X):
        X = X.copy()
        X.data = (X.data * np.repeat(factors, np.diff(X.indptr))).astype(X.data.dtype)
        return X
    return (X * factors[:, None]).astype(X.dtype)


def above(X: Any, threshold: float) -> Any:
    """Return ``X > threshold`` as zeros and ones of the type of X; sparse rows stay sparse."""
    if not is_sparse(X):
        from fedfactor.linalg.products import as_like  # with it comes SciPy, which reading settings needs not

        return as_like(X > threshold, X)
    if threshold < 0:
        raise DataError(
            f"binarize={threshold:g} would turn every unstored cell of a sparse matrix into a one. Use a threshold "
            "of at least 0, or pass a dense matrix."
        )
    X = X.copy()
    X.data = (X.data > threshold).astype(X.dtype)
    X.eliminate_zeros()
    return X


def binarized(federation: Federation, threshold: float | None) -> Federation:
    """Replace every client's rows by ``X > threshold``, after the checks that it would hide; None: as they are."""
    if threshold is None:
        return federation
    if isinstance(threshold, bool) or not isinstance(threshold, Real) or not math.isfinite(threshold):
        raise ValueError(f"binarize={threshold!r} must be a number, or None when the rows are zeros and ones already.")
    shards = {name: federation.shard(name) for name in federation.names}
    for name, shard in shards.items():
        check_values(name, shard.X, shard.mask, Domain.REAL)
    made = {name: replace(shard, X=above(shard.X, float(threshold))) for name, shard in shards.items()}
    return Federation(made, missing_values=federation.missing_values)
