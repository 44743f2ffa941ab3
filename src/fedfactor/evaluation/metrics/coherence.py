"""How well two sets of components agree, whatever their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedfactor.core.pytree import Array, is_mapping

__all__ = [
    "client_similarity",
    "cosine_similarity",
    "drift",
    "match_components",
    "matched_similarity",
    "total_drift",
]


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
    >>> from fedfactor.evaluation.metrics.coherence import cosine_similarity
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
    >>> from fedfactor.evaluation.metrics.coherence import match_components
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
    >>> from fedfactor.evaluation.metrics.coherence import matched_similarity
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
    >>> from fedfactor.evaluation.metrics.coherence import drift
    >>> drift(np.eye(2), np.eye(2)[::-1]), drift(np.eye(2), 1.5 * np.eye(2))
    (0.0, 0.5)
    """
    V, W = _components(V, W)
    if V.shape != W.shape:
        raise ValueError(f"Drift compares components of one shape, but these are {V.shape} and {W.shape}.")
    # min ‖V − PW‖² is max ⟨V, PW⟩: the norms do not depend on P.
    _, order = linear_sum_assignment(V @ W.T, maximize=True)
    size = float(np.linalg.norm(V))
    moved = float(np.linalg.norm(V - W[order]))
    return moved / size if size else (0.0 if moved == 0 else float("inf"))


def client_similarity(Vs: Any) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the matched similarity of every two clients' components.

    Parameters
    ----------
    Vs : mapping of name to array of shape (k, m), or sequence of arrays
        Components of each client, such as those it would have without a synchronisation.

    Returns
    -------
    names : tuple of str
        The clients, in the order of the mapping; positions as text for a sequence.
    similarity : ndarray of shape (C, C)
        Symmetric, with ones on the diagonal; see :func:`matched_similarity`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.evaluation.metrics.coherence import client_similarity
    >>> client_similarity({"a": np.eye(2), "b": np.eye(2)[::-1]})[1].tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    named: Mapping[str, Array] = Vs if is_mapping(Vs) else {str(i): V for i, V in enumerate(Vs)}
    factors = list(named.values())
    table = np.eye(len(factors))
    for a, V in enumerate(factors):
        for b in range(a):
            table[a, b] = table[b, a] = matched_similarity(V, factors[b])
    return tuple(named), table


def total_drift(V: Any, Vs: Any, *, aligned: bool = True) -> float:
    """Return the drift of all clients together, ``Σ_c min_P ‖V_c − P V‖²``.

    Parameters
    ----------
    V : array of shape (k, m)
        The factor that clients last received.
    Vs : iterable of arrays of shape (k, m)
        The clients' factors after their local steps.
    aligned : bool
        Take the best order of rows (the default), or the rows as they stand, as federated averaging does.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.evaluation.metrics.coherence import total_drift
    >>> total_drift(np.eye(2), [np.eye(2)[::-1]]), total_drift(np.eye(2), [np.eye(2)[::-1]], aligned=False)
    (0.0, 4.0)
    """
    total = 0.0
    for one in Vs:
        A, B = _components(V, one)
        if A.shape != B.shape:
            raise ValueError(f"Drift compares components of one shape, but these are {A.shape} and {B.shape}.")
        order = linear_sum_assignment(A @ B.T, maximize=True)[1] if aligned else slice(None)
        total += float(np.sum((A - B[order]) ** 2))
    return total


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
