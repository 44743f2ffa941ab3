"""Exceptions. Every message states what is wrong, why, and what to do."""

from __future__ import annotations

import inspect


class FedfactorError(Exception):
    """Anything this library raises on purpose."""

    passing = False
    """Whether the same command may succeed later without any change."""


class DataError(FedfactorError, ValueError):
    """The data cannot be used as given: its values, its shape, its names or its file."""


class ProtocolError(FedfactorError, ValueError):
    """A message or a stored state is not what the algorithm announced; it was rejected before use."""


class NotFiniteError(ProtocolError):
    """A message has the announced form, but holds NaN or infinity: the sender's numbers are wrong, not its code."""


class IncompatibleError(FedfactorError, TypeError):
    """Two choices do not fit together, found before the first round."""


class CheckpointError(FedfactorError, RuntimeError):
    """A checkpoint is missing, damaged, or belongs to another run."""


class ClientUnavailable(FedfactorError):
    """Raised by a client that cannot take part in this round: a drop-out, not a failure of the run."""


class WorkerError(FedfactorError, RuntimeError):
    """A worker process ended, or failed, while it served its clients."""


class MissingExtraError(FedfactorError, ImportError):
    """An optional dependency is not installed; the message holds the exact command."""

    @classmethod
    def named(cls, package: str, extra: str, why: str) -> MissingExtraError:
        """Return which package is missing, why it is needed, and how to install it."""
        return cls(
            f"{why} needs the package {package!r}, which is not installed. Run: pip install {package} (or, where the "
            f"source of fedfactor lies: pip install '.[{extra}]')."
        )


class SketchLeakError(FedfactorError, RuntimeError):
    """A run was stopped before the upload that would let others solve for what had been sketched."""


class PoorFitWarning(UserWarning):
    """What was found fits no better than something that needs no factorization."""


class ExposureWarning(UserWarning):
    """Enough sketches were published to solve for what was sketched."""


def callers_level() -> int:
    """Count the frames of this library, and of what called it on its behalf, above the line a warning is about."""
    level = 1
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        ("fedfactor.", "sklearn.", "dataclasses")
    ):
        level = level + 1
        frame = frame.f_back
    return level - 1
