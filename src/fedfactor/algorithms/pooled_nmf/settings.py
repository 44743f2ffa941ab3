"""What the settings of PooledNMF mean, and which of them go together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from fedfactor.core.errors import IncompatibleError
from fedfactor.core.protocol import Meta
from fedfactor.kernels.nmf.missing_cells import Penalty

_CHOICES = {
    "loss": ("frobenius", "kullback-leibler"),
    "start": ("auto", "wide", "random", "stacked"),
}


def check_settings(algorithm: Any, meta: Meta) -> None:
    """Refuse settings that cannot work, say why, and what to do."""
    for name, known in _CHOICES.items():
        if getattr(algorithm, name) not in known:
            raise ValueError(f"{name}={getattr(algorithm, name)!r} is not known. Use one of {', '.join(known)}.")
    steps = algorithm.local_steps, algorithm.server_steps
    if min(steps) < 1:
        raise ValueError(f"local_steps={steps[0]} and server_steps={steps[1]} must be at least 1.")
    for name in ("tol", "alpha_U", "l1_ratio", "private_penalty", "ridge"):
        _check_number(name, getattr(algorithm, name))
    if algorithm.alpha_V != "same":
        _check_number("alpha_V", algorithm.alpha_V)
    if algorithm.l1_ratio > 1:
        raise ValueError(f"l1_ratio={algorithm.l1_ratio} must lie between 0 and 1.")
    if algorithm.n_private != int(algorithm.n_private) or algorithm.n_private < 0:
        raise ValueError(f"n_private={algorithm.n_private} must be a whole number, 0 or more.")
    _check_weights(algorithm.weights, meta)
    _check_together(algorithm, meta)
    if algorithm.row_clip is not None:
        _check_row_clip(algorithm, meta)


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < math.inf:
        raise ValueError(f"{name}={value!r} must be a number, 0 or more.")


def _check_weights(weights: Any, meta: Meta) -> None:
    if isinstance(weights, str):
        if weights not in ("rows", "equal"):
            raise ValueError(f"weights={weights!r} is not known. Use 'rows', 'equal', or a mapping of owner to weight.")
        return
    if not isinstance(weights, Mapping):
        raise ValueError(f"weights={weights!r} must be 'rows', 'equal', or a mapping of owner to weight.")
    lacking = [name for name in meta.clients if name not in weights]
    if lacking:
        raise ValueError(f"weights says nothing about owner {lacking[0]!r}. Give every owner a weight.")
    for name in meta.clients:
        _check_number(f"weights[{name!r}]", weights[name])
    if not any(weights[name] > 0 for name in meta.clients):
        raise ValueError("All weights are zero: nobody would be listened to.")


def _check_row_clip(algorithm: Any, meta: Meta) -> None:
    """Refuse what would let a row count for more than its clip, or what the clipped gradient does not cover."""
    bound, count = algorithm.row_clip, algorithm.row_count
    if meta.masked:
        raise IncompatibleError(
            "row_clip bounds the gradient of whole rows, but some cells are missing. Fill them, or leave row_clip out."
        )
    if not 0 < bound < math.inf or count is None or not 0 < count < math.inf:
        raise ValueError(f"row_clip={bound} and row_count={count} must both be given, positive and finite.")
    plain = {"loss": "frobenius", "alpha_U": 0, "n_private": 0, "weights": "rows"}
    odd = [name for name, usual in plain.items() if getattr(algorithm, name) != usual]
    if algorithm.start in ("wide", "stacked"):
        odd.append("start")
    if odd:
        raise IncompatibleError(
            f"With row_clip only plain squared loss from a public start is protected. Leave {', '.join(odd)} alone."
        )


def _check_together(algorithm: Any, meta: Meta) -> None:
    squares = algorithm.loss == "frobenius"
    if algorithm.start in ("wide", "stacked") and (meta.masked or not squares):
        raise IncompatibleError(
            f"start={algorithm.start!r} folds sums of squares over complete rows, but "
            f"{'some cells are missing' if squares else 'this loss has none'}. Use start='auto'."
        )
    if algorithm.n_private and not squares:
        raise IncompatibleError(
            "Components of owners' own need the squared loss. Use loss='frobenius', or n_private=0."
        )
    if algorithm.n_private + algorithm.n_components > meta.n_features:
        raise ValueError(
            f"n_components={algorithm.n_components} and n_private={algorithm.n_private} together exceed the "
            f"{meta.n_features} features. Take fewer."
        )
    paid_V = algorithm.alpha_U if algorithm.alpha_V == "same" else algorithm.alpha_V
    if paid_V and not algorithm.alpha_U:
        raise ValueError(
            f"alpha_V={paid_V} without alpha_U would only make V short and U long. Set alpha_U too, or alpha_V=0."
        )
    if paid_V and meta.n_rows is None:
        raise IncompatibleError("alpha_V counts for each row, but the number of rows is not known here. Set alpha_V=0.")


def pay_of_U(algorithm: Any, n_features: int, width: int | None = None) -> Penalty:
    """Return what U pays: scaled by the number of features as in scikit-learn, and more for an owner's own components.

    Examples
    --------
    >>> from fedfactor.algorithms import PooledNMF
    >>> pay_of_U(PooledNMF(2, alpha_U=0.1, l1_ratio=0.5, ridge=0.0), 10)
    Penalty(l1=0.5, l2=0.5, ridge=0.0)
    """
    alpha, share, k = float(algorithm.alpha_U), float(algorithm.l1_ratio), algorithm.n_components
    l2: Any = alpha * (1 - share) * n_features
    own = algorithm.n_private if width is None else width - k
    if own:
        l2 = np.concatenate([np.full(k, l2), np.full(own, l2 + algorithm.private_penalty)])
    return Penalty(alpha * share * n_features, l2, float(algorithm.ridge))


def pay_of_V(algorithm: Any, n_rows: float) -> tuple[float, float]:
    """Return what V pays for its sum and for its squares, scaled by the number of rows as in scikit-learn."""
    alpha = float(algorithm.alpha_U if algorithm.alpha_V == "same" else algorithm.alpha_V)
    share = float(algorithm.l1_ratio)
    return (alpha * share * n_rows, alpha * (1 - share) * n_rows) if alpha else (0.0, 0.0)


def weight_of(weights: Any, name: str | None, n_rows: int, meta: Meta) -> float:
    """Return what one row of an owner counts.

    Examples
    --------
    >>> weight_of("equal", "a", 10, Meta(3, ("a", "b"), n_rows=40)), weight_of({"a": 2.0}, "a", 10, Meta(3, ("a",)))
    (2.0, 2.0)
    """
    if not isinstance(weights, str):
        return float(weights[str(name)])
    if weights == "rows":
        return 1.0
    return (1.0 if meta.n_rows is None else meta.n_rows / meta.n_clients) / max(1, n_rows)
