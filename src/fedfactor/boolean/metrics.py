"""How good a Boolean reconstruction is: by client, on average, and against the noise floor where it is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfactor.boolean.counting import column_counts
from fedfactor.boolean.product import Cells, count
from fedfactor.core.pytree import Array

__all__ = ["BooleanMetrics", "boolean_metrics", "simplest"]


@dataclass(frozen=True, slots=True)
class BooleanMetrics:
    """Quality of Boolean factors over all clients.

    Attributes
    ----------
    loss, recall, precision, similarity : float
        Means over clients, each client counting alike, of :class:`~fedfactor.boolean.product.Cells`: wrong cells
        over ones, share of the ones found, share of the found that are ones, share of equal cells.
    pooled : Cells
        The counts of all clients together, with the same four ratios.
    by_client : dict of str to Cells
        The counts of each client.
    floor : float or None
        The loss of the factors that the data were made from, where they are known.
    """

    loss: float
    recall: float
    precision: float
    similarity: float
    pooled: Cells
    by_client: dict[str, Cells]
    floor: float | None = None

    @property
    def excess(self) -> float | None:
        """Loss above the noise floor; None where that is not known."""
        return None if self.floor is None else self.loss - self.floor

    @property
    def worst_client(self) -> tuple[str, float]:
        """The client with the largest loss, and that loss; of equals the first by name."""
        return max(((name, self.by_client[name].loss) for name in sorted(self.by_client)), key=lambda one: one[1])


def boolean_metrics(
    X: Mapping[str, Array],
    U: Mapping[str, Array],
    V: Array | Mapping[str, Array],
    *,
    floor: float | None = None,
    masks: Mapping[str, Array | str | None] | None = None,
) -> BooleanMetrics:
    """Compare each client's rows with ``U ∘ V``.

    Parameters
    ----------
    X, U : mapping of name to matrix of 0 and 1
        Each client's rows and row factor.
    V : array of shape (k, m), or mapping of name to array
        The shared components, or each client's own.
    floor : float, optional
        The loss that no factorization of this rank is expected to undercut, such as ``Planted.floor``.
    masks : mapping of name to mask, optional
        Which cells of each client count, as in :class:`~fedfactor.core.client_data.Shard`; by default all.

    Returns
    -------
    BooleanMetrics

    Notes
    -----
    The FELB paper prints the ratio of Frobenius norms without squares, a recall that counts all equal cells, and a
    similarity that is a sum of products; here all are counts of cells, so that they have their usual meaning.

    Examples
    --------
    >>> import numpy as np
    >>> X = {"north": np.eye(2), "south": np.ones((1, 2))}
    >>> found = boolean_metrics(X, {"north": np.eye(2), "south": np.zeros((1, 2))}, np.eye(2))
    >>> found.loss, found.pooled.loss, found.worst_client
    (0.5, 0.5, ('south', 1.0))
    """
    if not X:
        raise ValueError("No client was given: pass the rows of at least one client.")
    if set(X) != set(U):
        odd = sorted(set(X) ^ set(U))[0]
        raise ValueError(f"Rows and row factors must belong to the same clients, but {odd!r} is in only one of them.")
    seen = dict.fromkeys(X) if masks is None else masks
    cells = {
        name: count(rows, U[name], V[name] if isinstance(V, Mapping) else V, seen[name]) for name, rows in X.items()
    }
    means = {
        ratio: sum(getattr(one, ratio) for one in cells.values()) / len(cells)
        for ratio in ("loss", "recall", "precision", "similarity")
    }
    pooled = sum(cells.values(), Cells(0, 0, 0, 0))
    return BooleanMetrics(**means, pooled=pooled, by_client=cells, floor=floor)


def poor_fit(loss: float, V: Array, X: Mapping[str, Array], masks: Mapping[str, Any]) -> str:
    """Return a note if no component, the most frequent columns or one row for all would fit as well; else empty.

    Examples
    --------
    >>> import numpy as np
    >>> X, V = np.array([[1, 1, 0], [1, 1, 1]]), np.array([[1, 0, 0]])
    >>> poor_fit(0.6, V, {"a": X}, {"a": None})
    'has loss 0.600, where one and the same row for all would have 0.200'
    """
    found = simplest(X, masks, len(V))
    if found is None:
        return ""
    (name, best), empty = found, not bool((V > 0.5).any())
    if not (loss > best + 1e-9 or empty):
        return ""
    what = "found no components: V is empty" if empty else f"has loss {loss:.3f}"
    return f"{what}, where {name} would have {best:.3f}"


def simplest(X: Mapping[str, Array], masks: Mapping[str, Any], k: int) -> tuple[str, float] | None:
    """Name the best of three guesses that take no search, and its loss, from column counts; None without any ones.

    Examples
    --------
    >>> import numpy as np
    >>> simplest({"a": np.array([[1, 1, 0], [1, 1, 1]])}, {"a": None}, 1)
    ('one and the same row for all', 0.2)
    """
    counts = zip(*(column_counts(X[name], masks[name]) for name in X), strict=True)
    ones, seen = (np.sum(parts, axis=0) for parts in counts)
    total = int(ones.sum())
    if not total:
        return None
    wrong = {
        "no components at all": total,
        f"the {k} most frequent columns, one for each component,": total - int(np.sort(ones)[::-1][:k].sum()),
        "one and the same row for all": int(np.minimum(ones, seen - ones).sum()),
    }
    name = min(wrong, key=lambda each: wrong[each])
    return name, wrong[name] / total
