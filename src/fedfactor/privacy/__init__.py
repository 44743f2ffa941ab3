"""Clipping, noise, accounting, secure aggregation, and what a run reports about its privacy."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import lazy_loader

if TYPE_CHECKING:
    from fedfactor.aggregation.robust import Robust as Robust
    from fedfactor.core.entropy import Entropy as Entropy

_public, _, __all__ = lazy_loader.attach_stub(__name__, __file__)

_ELSEWHERE = {"Robust": "fedfactor.aggregation.robust", "Entropy": "fedfactor.core.entropy"}
"""Public names of this module whose classes are defined in other packages."""
__all__.extend(["Entropy", "Robust"])


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    return getattr(import_module(_ELSEWHERE[name]), name) if name in _ELSEWHERE else _public(name)
