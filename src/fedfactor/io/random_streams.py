"""Random streams of the data room, each with a tag of its own."""

from __future__ import annotations

import numpy as np

__all__ = ["stream"]


def stream(tag: str, seed: int) -> np.random.Generator:
    """Start a stream that depends on the seed and on what it is for.

    Without the tag, data planted with seed 0 and a solver started with seed 0 may draw the same numbers in the same
    order, and the solver starts at the solution.

    Parameters
    ----------
    tag : str
        What the stream is for.
    seed : int
        A non-negative number.

    Returns
    -------
    numpy.random.Generator
        Same tag and seed, same numbers.

    Examples
    --------
    >>> from fedfactor.io.random_streams import stream
    >>> bool(stream("rows", 0).random() == stream("columns", 0).random())
    False
    """
    return np.random.default_rng([int.from_bytes(f"fedfactor.data/{tag}".encode(), "big"), seed])
