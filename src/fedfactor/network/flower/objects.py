"""How long Flower's processes wait for the pieces of a message that was announced."""

from __future__ import annotations

import importlib
from typing import Any

FIRST = 0.05
"""Seconds before the second look for a piece; Flower's own 1 s is most of a round."""

LONGEST = 1.0
"""Seconds between two later looks."""


def wait_for_pieces(patience: float | None = None) -> None:
    """Look for pieces often, and give a message up whose sender died in the middle of it.

    Parameters
    ----------
    patience : float, optional
        Seconds after which a piece that is still on its way is given up; Flower's own two hours when not set, of which
        it waits three minutes for a dead sender, with everybody else's messages behind it.
    """
    module: Any = importlib.import_module("flwr.supercore.inflatable.inflatable_utils")
    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        # The waits are defaults of functions, which other modules have imported by name.
        defaults: dict[str, Any] = getattr(getattr(module, name, None), "__kwdefaults__", None) or {}
        wanted = {"initial_backoff": FIRST, "backoff_cap": LONGEST, "max_tries_per_object": None}
        if patience is not None:
            wanted["max_time"] = patience
        defaults.update({key: value for key, value in wanted.items() if key in defaults})
