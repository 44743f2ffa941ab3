"""Random streams: of a round, keyed by seed, party, round and name; of generated data, keyed by tag and seed."""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["round_stream", "stream"]


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
    >>> from fedfactor.core.random_streams import stream
    >>> bool(stream("rows", 0).random() == stream("columns", 0).random())
    False
    """
    return np.random.default_rng([int.from_bytes(f"fedfactor.data/{tag}".encode(), "big"), seed])


def round_stream(seed: int, party: str, index: int, name: str) -> np.random.Generator:
    """Start the stream of one party (or of ``"shared"``) for one purpose in one round of a run."""
    digest = hashlib.sha256(repr((int(seed), party, int(index), name)).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
