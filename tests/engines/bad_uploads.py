"""A client whose software sends what no rows can give; parties of a real federation load it when they start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedfactor.core.pytree import tree_map

BAD = {"1 south": "NaN", "2 west": "lie", "3 south": "lie", "3 west": "NaN"}
"""Who sends what in which round."""


def spoiled(client_step: Any, bad: Mapping[str, str] = BAD) -> Any:
    """Wrap the step of an algorithm whose sums are never negative."""

    def step(self: Any, shard: Any, state: Any, down: Any, at: Any) -> Any:
        state, up = client_step(self, shard, state, down, at)
        word = bad.get(f"{at.index} {at.client}")
        if word is None:
            return state, up
        return state, tree_map(lambda leaf: np.full_like(leaf, np.nan if word == "NaN" else -1.0), up)

    return step
