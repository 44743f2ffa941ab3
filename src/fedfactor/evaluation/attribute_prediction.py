"""Predict an attribute of users, such as an interest, from the user vectors that a client has learnt."""

from __future__ import annotations

import numpy as np

from fedfactor.core.errors import DataError

__all__ = ["area_under_curve", "predict_attribute"]


def predict_attribute(
    vectors: np.ndarray,
    attribute: np.ndarray,
    *,
    folds: int = 5,
    penalty: float = 10.0,
    seed: int | np.random.Generator = 0,
) -> np.ndarray:
    """Return a score of every user by a ridge regression that was fitted without that user's fold.

    Nothing leaves the client: vectors and attributes are its own. Where an attribute is known for some users only, pass
    those, and compare scores by :func:`area_under_curve`.

    Parameters
    ----------
    vectors : array of shape (n, d)
        User vectors, such as ``run.factors[client].U`` of FedDMF, or of any other factorization.
    attribute : bool array of shape (n,)
        Whether a user has the attribute.
    folds : int
        Parts of the users; each is scored by a model of the others.
    penalty : float
        Weight of the squared coefficients, of standardized vectors.
    seed : int or Generator
        Of the folds.

    Returns
    -------
    array of shape (n,)
        Higher is more likely.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> area_under_curve(x[:, 0] > 0, predict_attribute(x, x[:, 0] > 0)) > 0.9
    True
    """
    vectors = np.asarray(vectors, dtype=float)
    attribute = np.asarray(attribute, dtype=bool)
    if vectors.ndim != 2 or attribute.shape != (len(vectors),):
        raise DataError(
            f"There must be one attribute for each user vector, but vectors are {vectors.shape} and the attribute is "
            f"{attribute.shape}."
        )
    if not 2 <= folds <= len(vectors):
        raise ValueError(f"folds={folds} must lie between 2 and the {len(vectors)} users.")
    scale = vectors.std(axis=0)
    Z = (vectors - vectors.mean(axis=0)) / np.where(scale > 0, scale, 1)
    Z = np.column_stack([Z, np.ones(len(Z))])
    rng = seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed)
    fold = rng.permutation(len(Z)) % folds
    out = np.empty(len(Z))
    for k in range(folds):
        A = Z[fold != k]
        y = attribute[fold != k] - 0.5
        out[fold == k] = Z[fold == k] @ np.linalg.solve(A.T @ A + penalty * np.eye(A.shape[1]), A.T @ y)
    return out


def area_under_curve(truth: np.ndarray, score: np.ndarray) -> float:
    """Return the chance that a true case scores above a false one, ties counting half.

    Examples
    --------
    >>> area_under_curve(np.array([True, False, True]), np.array([3.0, 2.0, 1.0]))
    0.5
    """
    order = np.sort(score[~truth])
    below = (np.searchsorted(order, score[truth], "left") + np.searchsorted(order, score[truth], "right")) / 2
    return float(below.mean() / max(1, len(order)))
