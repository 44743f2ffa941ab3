"""How well two sets of components agree, whatever their order."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

__all__ = ["cosine_similarity", "drift", "match_components", "matched_similarity"]


def cosine_similarity(V: Any, W: Any) -> np.ndarray:
    """Return the cosine of the angle between every component of V and every component of W.

    Parameters
    ----------
    V, W : array of shape (k, m) and (l, m)
        Components as rows. A zero row has similarity 0 with everything.

    Returns
    -------
    ndarray of shape (k, l)
        Between -1 and 1.

    Examples
    --------
    >>> from fedfactor.metrics.coherence import cosine_similarity
    >>> cosine_similarity([[2.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[1.0, 0.0]]
    """
    V, W = _components(V, W)
    return np.clip(_unit(V) @ _unit(W).T, -1.0, 1.0)


def match_components(V: Any, W: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pair the components of V and W so that the sum of their cosine similarities is largest.

    Parameters
    ----------
    V, W : array of shape (k, m) and (l, m)
        Components as rows.

    Returns
    -------
    of_V, of_W : ndarray of int of shape (min(k, l),)
        ``V[of_V[i]]`` belongs with ``W[of_W[i]]``; ``of_V`` rises.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.metrics.coherence import match_components
    >>> match_components(np.eye(3), np.eye(3)[[2, 0, 1]])[1].tolist()
    [1, 2, 0]
    """
    return linear_sum_assignment(cosine_similarity(V, W), maximize=True)


def matched_similarity(V: Any, W: Any) -> float:
    """Return the mean cosine similarity of matched components.

    Parameters
    ----------
    V, W : array of shape (k, m) and (l, m)
        Components as rows. With k ≠ l the components left over count as 0.

    Returns
    -------
    float
        1 when one is the other in another order and on other scales.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.metrics.coherence import matched_similarity
    >>> matched_similarity(np.eye(3), 2 * np.eye(3)[[2, 0, 1]])
    1.0
    """
    similarity = cosine_similarity(V, W)
    of_V, of_W = linear_sum_assignment(similarity, maximize=True)
    return float(similarity[of_V, of_W].sum() / max(similarity.shape))


def drift(V: Any, W: Any) -> float:
    """Return how far W has moved from V, after the best reordering of its rows: ``min_P ‖V − P W‖ / ‖V‖``.

    Parameters
    ----------
    V, W : array of shape (k, m)
        Components as rows, such as the server's and a client's, or those of two rounds.

    Returns
    -------
    float
        0 when W is V in another order. Unlike :func:`matched_similarity` it sees scale.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.metrics.coherence import drift
    >>> drift(np.eye(2), np.eye(2)[::-1]), drift(np.eye(2), 1.5 * np.eye(2))
    (0.0, 0.5)
    """
    V, W = _components(V, W)
    if V.shape != W.shape:
        raise ValueError(f"Drift compares components of one shape, but these are {V.shape} and {W.shape}.")
    # min ‖V − PW‖² is max ⟨V, PW⟩: the norms do not depend on P.
    _, order = linear_sum_assignment(V @ W.T, maximize=True)
    size, moved = float(np.linalg.norm(V)), float(np.linalg.norm(V - W[order]))
    return moved / size if size else (0.0 if moved == 0 else float("inf"))


def _components(V: Any, W: Any) -> tuple[np.ndarray, np.ndarray]:
    V, W = (np.asarray(A.detach().cpu() if hasattr(A, "detach") else A, dtype=np.float64) for A in (V, W))
    if V.ndim != 2 or W.ndim != 2 or V.shape[1] != W.shape[1]:
        raise ValueError(f"Components are rows over the same columns, but the shapes are {V.shape} and {W.shape}.")
    if not (np.isfinite(V).all() and np.isfinite(W).all()):
        raise ValueError(
            "Components must be finite, but some are NaN or infinite: the run that made them has diverged."
        )
    return V, W


def _unit(V: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(V, axis=1, keepdims=True)
    return np.divide(V, norms, out=np.zeros_like(V), where=norms > 0)
