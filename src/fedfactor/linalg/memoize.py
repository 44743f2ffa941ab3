"""Remember what was computed from an array that cannot change.

The clients of a simulation all receive the same V; its Gram matrix and its transpose need to be made once, not by each.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from fedfactor.core.pytree import is_numpy

__all__ = ["once"]

_known: dict[tuple[Any, ...], tuple[weakref.ref[np.ndarray], np.ndarray]] = {}


def once(fn: Callable[..., np.ndarray], A: np.ndarray, *more: Any) -> np.ndarray:
    """Return ``fn(A, *more)``, remembered for as long as a read-only `A` lives; a writable one may change.

    Examples
    --------
    >>> A = np.ones((2, 3))
    >>> A.flags.writeable = False
    >>> once(np.square, A) is once(np.square, A)
    True
    """
    if not is_numpy(A) or A.flags.writeable:
        return fn(A, *more)
    key = (fn.__qualname__, id(A), *more)
    found = _known.get(key)
    if found is not None and found[0]() is A:
        return found[1]
    result = fn(A, *more)
    if np.may_share_memory(result, A):  # as a turned vector does: what is remembered would keep A alive, for ever
        return result
    result.flags.writeable = False
    # Two threads may both get here; they find the same result, and one of the two is kept.
    _known[key] = (weakref.ref(A, lambda _, known=_known: known.pop(key, None)), result)
    return result
