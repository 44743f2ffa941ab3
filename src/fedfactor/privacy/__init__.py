"""Clipping, noise, accounting, secure aggregation, and what a run reports about its privacy."""

from importlib import import_module
from typing import Any

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


_ELSEWHERE = {"Robust": "fedfactor.aggregation.robust", "Entropy": "fedfactor.core.entropy"}
"""Public names of this module whose classes are defined in other packages."""


def __getattr__(name: str) -> Any:
    return getattr(import_module(_ELSEWHERE[name]), name) if name in _ELSEWHERE else _public(name)
