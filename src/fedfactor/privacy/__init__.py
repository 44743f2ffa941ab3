"""Clipping, noise, accounting, secure aggregation, and what a run reports about its privacy."""

from importlib import import_module
from typing import Any

import lazy_loader

_public, _dir, _all = lazy_loader.attach_stub(__name__, __file__)

_ELSEWHERE = {"Robust": "fedfactor.aggregation.robust", "Entropy": "fedfactor.core.entropy"}
"""Public names of this module whose classes are defined in other packages."""

__all__ = sorted([*_all, *_ELSEWHERE])


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    return getattr(import_module(_ELSEWHERE[name]), name) if name in _ELSEWHERE else _public(name)
