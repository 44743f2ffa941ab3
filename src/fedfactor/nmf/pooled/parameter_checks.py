"""Which settings of PooledNMF go together."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from fedfactor.core.algorithm import Meta
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.pytree import is_mapping
from fedfactor.nmf.pooled.losses import find_loss


def check_together(algorithm: Any, meta: Meta) -> None:
    """Refuse parameters that cannot work, with the reason and the remedy."""
    find_loss(algorithm.loss)
    _check_weights(algorithm.weights, meta)
    _check_pairs(algorithm, meta)
    if algorithm.row_clip is not None:
        _check_row_clip(algorithm, meta)


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{name}={value!r} must be a number, 0 or more.")


def _check_weights(weights: Any, meta: Meta) -> None:
    if isinstance(weights, str):
        if weights not in ("rows", "equal", "mean"):
            raise ValueError(
                f"weights={weights!r} is not known. Use 'rows', 'equal', 'mean', or a mapping of owner to weight."
            )
        return
    if not is_mapping(weights):
        raise ValueError(f"weights={weights!r} must be 'rows', 'equal', or a mapping of owner to weight.")
    lacking = [name for name in meta.clients if name not in weights]
    if lacking:
        raise ValueError(f"weights says nothing about owner {lacking[0]!r}. Give every owner a weight.")
    for name in meta.clients:
        _check_number(f"weights[{name!r}]", weights[name])
    if not any(weights[name] > 0 for name in meta.clients):
        raise ValueError("All weights are zero: at least one client needs a positive weight.")


def _check_row_clip(algorithm: Any, meta: Meta) -> None:
    """Refuse what would let a row count for more than its clip, or what the clipped gradient does not cover."""
    bound = algorithm.row_clip
    count = algorithm.row_count
    if not 0 < bound < math.inf or count is None or not 0 < count < math.inf:
        raise ValueError(f"row_clip={bound} and row_count={count} must both be given, positive and finite.")
    if algorithm.noisy_step == "newton" and algorithm.row_noise is None:
        raise IncompatibleError(
            "noisy_step='newton' is damped by the noise, which must be stated (row_noise). Use noisy_step='gradient'."
        )
    if meta.masked and (algorithm.noisy_step == "gradient" or algorithm.row_noise is None):
        raise IncompatibleError(
            "With missing values, noise protects the sums of Newton steps alone. Use noisy_step='newton', or 'auto'."
        )
    plain = {"alpha_U": 0, "n_private": 0, "weights": "rows"}
    odd = [] if find_loss(algorithm.loss).squared else ["loss"]
    odd += [name for name, usual in plain.items() if getattr(algorithm, name) != usual]
    if algorithm.start in ("wide", "stacked"):
        odd.append("start")
    if odd:
        raise IncompatibleError(
            f"With row_clip only plain squared loss from a public start is protected. Leave {', '.join(odd)} alone."
        )


def able_to_start_wide(algorithm: Any, meta: Meta) -> bool:
    """Return whether wide rounds suit a loss.

    With missing cells they are too rough for the squared error, unless clients have components of their own: from drawn
    shared components these often end in the place of shared ones.
    """
    loss = find_loss(algorithm.loss)
    return loss.starts_wide and not (meta.masked and loss.squared and not algorithm.n_private)


def _check_pairs(algorithm: Any, meta: Meta) -> None:
    loss = find_loss(algorithm.loss)
    squares = loss.squared
    able = {"wide": loss.starts_wide, "stacked": squares}.get(algorithm.start, True)
    missing = meta.masked and squares and not (algorithm.start == "wide" and algorithm.n_private)
    if algorithm.start in ("wide", "stacked") and (missing or not able):
        raise IncompatibleError(
            f"start={algorithm.start!r} folds sums of squares over complete rows, but "
            f"{'some cells are missing' if able else 'this loss has none'}. Use start='auto'."
        )
    if algorithm.n_private and not loss.private:
        raise IncompatibleError(
            f"Components of single clients are for the squared and the Kullback-Leibler loss, not {algorithm.loss!r}. "
            "Use loss='frobenius' or 'kullback-leibler', or n_private=0."
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
    if paid_V and algorithm.weights == "mean":
        raise IncompatibleError(
            "alpha_V counts for each row, but with weights='mean' (as privacy of whole owners sets it) no client "
            "learns how many rows there are. Set alpha_V=0."
        )
    if paid_V and meta.n_rows is None:
        raise IncompatibleError("alpha_V counts for each row, but the number of rows is not known here. Set alpha_V=0.")
