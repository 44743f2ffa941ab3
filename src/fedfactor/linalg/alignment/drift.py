"""How far factors have drifted apart, with and without regard to the order of their components."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import linear_sum_assignment

from fedfactor.core.pytree import Array
from fedfactor.linalg.alignment.assignment import to_host

__all__ = ["agreement", "mean_similarity"]


def agreement(V: Array, reference: Array) -> tuple[float, float, float]:
    """Return how far V is from a reference: after the best reordering of rows, as it stands, and by the angle of rows.

    Parameters
    ----------
    V, reference : array, shape (k, m)

    Returns
    -------
    drift, plain_drift : float
        ``min_P ‖reference − P V‖ / ‖reference‖`` over permutations, and the same without any reordering.
    similarity : float
        Mean cosine of rows, paired so that it is largest.

    Examples
    --------
    >>> import numpy as np
    >>> drift, plain, similarity = agreement(np.eye(2)[::-1], np.eye(2))
    >>> drift, round(plain, 3), similarity
    (0.0, 1.414, 1.0)
    """
    products = to_host(reference @ V.T)
    ours, theirs = (np.sqrt(to_host(array_namespace(A).sum(A * A, axis=1))) for A in (reference, V))
    size = float(np.sum(ours**2))
    apart = size + float(np.sum(theirs**2))
    best = products[linear_sum_assignment(products, maximize=True)].sum()
    norms = ours[:, None] * theirs[None, :]
    cosines = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    similarity = cosines[linear_sum_assignment(cosines, maximize=True)].sum() / max(1, len(ours))
    # ‖A − B‖² = ‖A‖² + ‖B‖² − 2⟨A, B⟩; what rounding leaves below zero is zero.
    drifts = (np.sqrt(max(apart - 2 * float(inner), 0.0) / size) if size else 0.0 for inner in (best, products.trace()))
    drift, plain = drifts
    return float(drift), float(plain), float(similarity)


def mean_similarity(Vs: Sequence[Array], rng: np.random.Generator, *, most: int = 64) -> float:
    """Return the mean matched cosine over pairs of factors: all pairs, or a random choice when they are many.

    Parameters
    ----------
    Vs : sequence of arrays, shape (k, m)
    rng : Generator
        Chooses.
    most : int
        Pairs to compare at most.

    Returns
    -------
    float
        1 when there are no pairs.

    Examples
    --------
    >>> import numpy as np
    >>> mean_similarity([np.eye(2), np.eye(2)[::-1]], np.random.default_rng(0))
    1.0
    """
    pairs: list[tuple[int, int]] = list(combinations(range(len(Vs)), 2))
    if len(pairs) > most:
        pairs = [pairs[i] for i in rng.choice(len(pairs), most, replace=False)]
    return float(np.mean([agreement(Vs[a], Vs[b])[2] for a, b in pairs])) if pairs else 1.0
