"""Input of the estimators, as scikit-learn takes it: a matrix in one of many forms, and seeds."""

from __future__ import annotations

import secrets
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from fedfactor.core import input_validation as row_checks
from fedfactor.core.errors import DataError
from fedfactor.core.pytree import Array


def matrix(estimator: BaseEstimator, X: Any, *, reset: bool) -> Array:
    """Turn one matrix into floating rows, set or compare its features as scikit-learn does; values come later."""
    if "sparse" in str(getattr(X, "layout", "")):
        raise DataError(
            "This is a sparse tensor of torch, which cannot be cut into rows. Pass a SciPy CSR matrix, a dense tensor, "
            "or a mapping from owner to sparse CSR tensor."
        )
    if hasattr(X, "detach") or hasattr(X, "__cuda_array_interface__"):
        X, _ = row_checks.as_matrix(X.detach() if hasattr(X, "detach") else X)
        validate_data(estimator, X=X, reset=reset, skip_check_array=True)
        return X
    row_checks.refuse_masked(X)
    if row_checks.is_named(X):
        return _named_matrix(estimator, X, reset=reset)
    row_checks.check_unique(list(getattr(X, "columns", ())))
    if row_checks.is_frame(X):
        row_checks.check_frame(X)
    # Finite or not is looked at when shards are checked, with a message that knows the client and the remedy.
    kinds = [np.float32] if row_checks.fits_single(X) else [np.float64, np.float32]
    return validate_data(estimator, X=X, reset=reset, accept_sparse="csr", dtype=kinds, ensure_all_finite=False)


def _named_matrix(estimator: Any, X: Any, *, reset: bool) -> Array:
    """Take a matrix with names beside it (a table as read, AnnData) as scikit-learn takes a frame."""
    rows, features = row_checks.as_matrix(X)
    known = getattr(estimator, "feature_names_in_", None)
    if not reset and features is not None and known is not None:
        order = row_checks.check_features("X", features, "fit", tuple(known))
        rows = rows if order is None else rows[:, np.asarray(order)]
    validate_data(estimator, X=rows, reset=reset, skip_check_array=True)
    if reset and features is not None:
        vars(estimator)["feature_names_in_"] = np.array(features, dtype=object)
    return rows


def draw_seed(random_state: Any) -> int:
    """Turn what scikit-learn calls a random state into one seed.

    Examples
    --------
    >>> draw_seed(3), draw_seed(np.random.RandomState(0)) == draw_seed(np.random.RandomState(0))
    (3, True)
    """
    if random_state is None:
        return secrets.randbits(63)
    if isinstance(random_state, Integral):
        if random_state is True or random_state is False or random_state < 0:
            raise ValueError(f"random_state={random_state!r} must be a whole number of at least 0.")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    return int(check_random_state(random_state).randint(2**31))
