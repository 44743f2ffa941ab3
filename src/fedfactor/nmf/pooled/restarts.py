"""Restarts: recognise a V that the steps of a run cannot leave, before the run counts as converged."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor.core.pytree import Array, record, to_numpy
from fedfactor.linalg.factors import unit_rows
from fedfactor.linalg.products import as_like

MOST_RESTARTS = 2
"""Restarts of one run."""

COLLINEAR = 0.999
"""Cosine from which on two components count as one, each column divided by its mean over the components."""

LEAST_SHARE = 1e-8
"""Share of what all components contribute below which one of them is dead."""

LOCKED = 1e-6
"""Share of its column's mean below which a cell of V is locked: multiplicative steps do not bring it back."""

LOCKED_SLOPE = 3.0
"""Ratio of both parts of the slope from which on a locked cell counts: near the end many lie a little above 1."""

LOCKED_GAIN = 0.05
"""Share of the loss that locked cells may promise to save."""

SAME_LOSS = 0.99
"""A restart that leaves at least this share of the loss has found nothing better."""


@record("pooled_nmf.Begun")
class Begun:
    """The server's memory of the initialization: wide rounds so far, and the restarts.

    ``index``: the round in which the last restart was decided; ``loss``: the loss there.
    """

    wide: Array
    index: Array
    restarts: Array
    loss: Array


def first_begun() -> Begun:
    """Return the memory of a run that has not begun."""
    return Begun(wide=np.int64(0), index=np.int64(0), restarts=np.int64(0), loss=np.float64(np.inf))


def is_stuck(V: Array, N: Array, D: Array, loss: Any) -> bool:
    """Return whether V has collinear, dead or locked components, at which multiplicative steps stand still.

    Parameters
    ----------
    V : array, shape (k, m)
    N, D : array, shape (k, m); D may have one column
        Both parts of the slope of the loss at V, summed over rows.
    loss : float or None
        Twice the loss.

    Examples
    --------
    >>> V, slope = np.full((2, 4), 0.25), np.ones((2, 4))
    >>> is_stuck(V, slope, slope, 1.0), is_stuck(np.array([[0.7, 0.3], [0.3, 0.7]]), np.eye(2), np.eye(2), 1.0)
    (True, False)
    """
    V, N, D = (np.asarray(to_numpy(part), np.float64) for part in (V, N, D))
    mean = V.mean(axis=0)
    seen = mean > 0
    shares = (V * D).sum(axis=1)
    if (_cosines(V) > COLLINEAR).any() or (shares < LEAST_SHARE * shares.sum()).any():
        return True
    # What the slope promises where a cell that is next to zero takes the value that the other components have there.
    usual = np.where(seen, mean, float(V.mean()))
    locked = (V < LOCKED * usual) & (N > LOCKED_SLOPE * D)
    promised = np.where(locked, (N - D) * usual, 0).sum()
    return loss is not None and bool(2 * promised > LOCKED_GAIN * float(loss))


def shares_of(V: Array, up: Any) -> np.ndarray:
    """Return what each component contributes to the squares of the product, from sums of the squared error."""
    V = np.asarray(to_numpy(V), np.float64)
    return np.diag(np.asarray(to_numpy(up.G), np.float64)) * np.square(V).sum(axis=1)


def split(V: Array, shares: np.ndarray, rng: np.random.Generator) -> Array | None:
    """Return V with collinear and dead components replaced by parts of others; None where there are none.

    The components of a group share out each column of their sum at random: as long as they have equal U, the product
    is what it was, but each of them now has a slope of its own. A dead component joins the largest one.

    Examples
    --------
    >>> V = np.array([[0.6, 0.8], [0.6, 0.8], [1.0, 0.0]])
    >>> parts = split(V, np.ones(3), np.random.default_rng(0))
    >>> (parts[0] + parts[1]).round(6).tolist(), parts[2].tolist()
    ([1.2, 1.6], [1.0, 0.0])
    >>> split(V[1:], np.ones(2), np.random.default_rng(0)) is None
    True
    """
    old = np.asarray(to_numpy(V), np.float64)
    near = _cosines(old) > COLLINEAR
    dead = shares <= LEAST_SHARE * shares.sum()
    near[dead, :] = near[:, dead] = False
    largest = int(np.argmax(shares))
    near[dead, largest] = near[largest, dead] = True
    if dead.all() or not near.any():
        return None
    # Paths of any length: the power of a relation between k components ends after k products.
    joined = np.linalg.matrix_power((near | np.eye(len(old), dtype=bool)).astype(float), len(old)) > 0
    group = joined.argmax(axis=1)
    new = old.copy()
    for label in np.flatnonzero(np.bincount(group) > 1):
        members = np.flatnonzero(group == label)
        parts = rng.exponential(size=(len(members), old.shape[1]))
        new[members] = parts / parts.sum(axis=0) * old[members].sum(axis=0)
    return as_like(new, V)


def _cosines(V: np.ndarray) -> np.ndarray:
    """Return cosines between components, each column divided by its mean over them; 0 with themselves."""
    mean = V.mean(axis=0)
    seen = mean > 0
    relative = unit_rows(V[:, seen] / mean[seen])
    cosines = relative @ relative.T
    np.fill_diagonal(cosines, 0.0)
    return cosines
