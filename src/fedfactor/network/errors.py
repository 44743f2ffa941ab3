"""Errors between a coordinator and the parties."""

from __future__ import annotations

from fedfactor.core.errors import FedfactorError

__all__ = ["Refused"]


class Refused(FedfactorError, ValueError):
    """A client will not do what a message asks; the reason stays in its own log."""
