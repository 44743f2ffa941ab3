"""Deep matrix factorization: the network that turns a user vector and an item vector into a probability.

With user vectors p and item vectors q (rows), and ``r`` the positive part,

    a = r(p F_u + f_u) W_u,    b = r(q F_i + f_i) W_i + w,    ŷ = σ(r(a + b) · h + c).

Written so, the layer that joins both sides costs one product per user and per item instead of one per pair. Everything
here works on NumPy arrays and on torch tensors alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from fedfactor.core.pytree import Array

__all__ = ["LAYERS", "draw_network", "item_part", "pair_logits", "probabilities", "probability", "user_part"]
_LOWEST = -80.0  # log-odds below this would overflow in single precision on their way to 0
_CELLS = 1 << 22  # numbers of a block of pairs × hidden units that may exist at one time

LAYERS = ("user_weight", "user_bias", "item_weight", "item_bias", "join_user", "join_item", "join_bias", "out", "level")


def draw_network(n_components: int, hidden: int, rng: np.random.Generator, dtype: Any = np.float64) -> dict[str, Any]:
    """Draw the weights of all layers, evenly within ±1/√(inputs), as is usual for such layers.

    Examples
    --------
    >>> net = draw_network(3, 5, np.random.default_rng(0))
    >>> {name: net[name].shape for name in ("user_weight", "join_item", "out", "level")}
    {'user_weight': (3, 5), 'join_item': (5, 5), 'out': (5,), 'level': ()}
    """
    d = n_components
    h = hidden
    sizes = {
        "user_weight": ((d, h), d),
        "user_bias": ((h,), d),
        "item_weight": ((d, h), d),
        "item_bias": ((h,), d),
        "join_user": ((h, h), 2 * h),
        "join_item": ((h, h), 2 * h),
        "join_bias": ((h,), 2 * h),
        "out": ((h,), h),
        "level": ((), h),
    }
    return {name: np.asarray(rng.uniform(-1, 1, shape) / np.sqrt(n), dtype) for name, (shape, n) in sizes.items()}


def user_part(net: Mapping[str, Array], P: Array) -> Array:
    """Return what users bring to the hidden layer (rows of user vectors in, rows of hidden units out)."""
    return _positive(P @ net["user_weight"] + net["user_bias"]) @ net["join_user"]


def item_part(net: Mapping[str, Array], Q: Array) -> Array:
    """Return what items bring to the hidden layer."""
    return _positive(Q @ net["item_weight"] + net["item_bias"]) @ net["join_item"] + net["join_bias"]


def pair_logits(net: Mapping[str, Array], a: Array, b: Array, keep: Array | None = None) -> Array:
    """Return the log-odds of pairs from both parts; ``keep`` multiplies hidden units (dropout)."""
    h = _positive(a + b)
    return (h if keep is None else h * keep) @ net["out"] + net["level"]


def probability(logits: Array) -> Array:
    """Turn log-odds into probabilities.

    Examples
    --------
    >>> probability(np.array([-500.0, 0.0], np.float32)).round(3).tolist()
    [0.0, 0.5]
    """
    return 1 / (1 + array_namespace(logits).exp(-logits.clip(min=_LOWEST)))


def probabilities(net: Mapping[str, Array], P: Array, Q: Array) -> Array:
    """Return the probability of every (user, item) pair.

    Parameters
    ----------
    net : mapping of str to array
        Weights as :func:`draw_network` makes them.
    P : array of shape (n, d)
        User vectors.
    Q : array of shape (m, d)
        Item vectors.

    Returns
    -------
    array of shape (n, m)

    Notes
    -----
    Time n m h. The n × m × h hidden units never exist at once.

    Examples
    --------
    >>> net = draw_network(3, 5, np.random.default_rng(0))
    >>> probabilities(net, np.zeros((2, 3)), np.zeros((4, 3))).shape
    (2, 4)
    """
    xp = array_namespace(P, Q)
    a = user_part(net, P)
    b = item_part(net, Q)
    step = max(1, _CELLS // max(1, b.shape[0] * b.shape[1]))
    blocks = [
        probability(pair_logits(net, a[start : start + step, None, :], b[None])) for start in range(0, a.shape[0], step)
    ]
    return xp.concat(blocks) if blocks else a @ b.T  # no users: an empty matrix of the right width


def _positive(x: Array) -> Array:
    return x.clip(min=0)
