"""Errors that tell what to do, and warnings that point at the caller."""

from __future__ import annotations

import warnings

from fedfactor.core import errors


def test_a_missing_extra_is_told_with_both_commands():
    text = str(errors.MissingExtraError.named("torch", "deep", "FedDMF"))
    assert text.startswith("FedDMF needs the package 'torch', which is not installed. Run: pip install torch (or")
    assert "pip install '.[deep]'" in text


def inside(depth):
    """Warn from within the library, as deep as asked."""
    code = "def warn(depth):\n    if depth: return warn(depth - 1)\n    tell('x', UserWarning, level())\n"
    room = {"__name__": "fedfactor.inner", "tell": warnings.warn, "level": errors.callers_level}
    exec(code, room)
    room["warn"](depth)


def test_a_warning_points_at_the_line_that_called_the_library():
    for depth in (0, 3):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            inside(depth)
        assert told[0].filename == __file__
        assert told[0].lineno == inside.__code__.co_firstlineno + 5
