"""What may be published of a run, decided in one place: files, :class:`~fedfactor.core.run.Run` and faces go by it.

A run with noise promises an ε for what is published of it. The promise covers the shared factor, the settings and the
number of rounds, which are functions of noisy sums and of public numbers. It does not cover what is measured of rows
without noise, however useful: errors, numbers of rows, times. These belong to the clients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedfactor.core.run import OwnersOnly, Run

__all__ = ["promises", "seal", "split_record"]

COVERED = frozenset(
    {
        "format",
        "algorithm",
        "settings",
        "seed",
        "status",
        "rounds",
        "clients",
        "bytes_up",
        "bytes_down",
        "environment",
        "privacy",
        "history",
        "asked",
        "preprocess",
        "terms",
        "run",
        "finished",
    }
)
"""Entries of a record that may be published of a run with a promise."""

OF_A_ROUND = frozenset({"index", "participants", "bytes_up", "bytes_down", "rejected"})
"""Entries of each round that may be."""

OF_OWNERS = frozenset({"owners", "errors", "worst_client", "notes", "quality"})
"""Entries about single clients: theirs, as soon as anything protects single uploads."""

OF_A_PARTY = frozenset({"relative_error", "bytes_sent", "letters", "party"})
"""Entries that a party of a federation knows of itself."""


def promises(privacy: Mapping[str, Any] | None) -> bool:
    """Return whether a run makes a promise that exact figures beside it would break.

    Examples
    --------
    >>> promises(None), promises({"mode": "secure-sum", "epsilon": "inf"}), promises({"mode": "dp", "epsilon": 1.0})
    (False, False, True)
    """
    return privacy is not None and math.isfinite(float(privacy.get("epsilon", math.inf)))


def seal(run: Run) -> Run:
    """Put what a promise does not cover under the clients' name; a run without a promise stays as it is."""
    if not promises(run.privacy):
        return run
    own = OwnersOnly(run.scores, tuple(r.seconds for r in run.history), tuple(dict(r.metrics) for r in run.history))
    history = tuple(replace(record, seconds=math.nan, metrics={}) for record in run.history)
    return replace(run, scores={}, history=history, owners_only=own)


def split_record(record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the record of a run into what may be published and what is the clients' own.

    Examples
    --------
    >>> split_record({"rounds": 3, "relative_error": 0.5, "privacy": {"mode": "dp", "epsilon": 1.0}})[1]
    {'relative_error': 0.5}
    """
    privacy: Any = record.get("privacy")
    if "party" in record:
        hidden = OF_A_PARTY | OF_OWNERS
    elif promises(privacy):
        hidden = frozenset(record) - COVERED
    else:
        hidden = OF_OWNERS if privacy and privacy.get("mode") == "secure-sum" else frozenset[str]()
    shared = {name: value for name, value in record.items() if name not in hidden}
    private = {name: value for name, value in record.items() if name in hidden}
    if promises(privacy) and "history" in shared:
        rounds = shared["history"]
        private["history"] = [{name: v for name, v in entry.items() if name not in OF_A_ROUND} for entry in rounds]
        shared["history"] = [{name: v for name, v in entry.items() if name in OF_A_ROUND} for entry in rounds]
    return shared, private
