"""Rows that lie in a file and are mapped, not read: they are fetched from disk while the rows before are worked on.

Memory then holds what is worked on and what comes next, whatever the size of the file. Nothing here changes a result:
who does not wait for the pages gets them all the same, one by one.
"""

from __future__ import annotations

import itertools
import mmap
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["in_turn", "is_mapped", "read_ahead"]

WORTH = 1 << 26
"""Bytes from which on a thread that fetches pays."""

_LEAD = 2
"""Parts that may be fetched beyond those that are worked on."""

_PIECE = 1 << 22
"""Bytes that are touched in one go."""

_PAGE = 4096
_turns = itertools.count()


def is_mapped(*arrays: Any) -> bool:
    """Return whether one of these arrays, or what it is a view of, lies in a file.

    Examples
    --------
    >>> is_mapped(np.zeros(3))
    False
    """
    return any(_map_of(array) is not None for array in arrays)


def _map_of(array: Any) -> mmap.mmap | None:
    while array is not None and not isinstance(array, mmap.mmap):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array


def in_turn(count: int, arrays: Sequence[Any]) -> Sequence[int]:
    """Return the order in which to visit parts: of mapped rows now from the front, now from the back.

    What was read last is still in memory then, and is read first.

    Examples
    --------
    >>> list(in_turn(3, [np.zeros(3)]))
    [0, 1, 2]
    """
    order = range(count)
    return order[::-1] if is_mapped(*arrays) and next(_turns) % 2 else order


@contextmanager
def read_ahead(count: int, parts: Callable[[int], Sequence[np.ndarray]]) -> Generator[Callable[[int], None]]:
    """Fetch mapped parts from disk, one after the other, in a thread of its own.

    Parameters
    ----------
    count : int
        How many parts there are.
    parts : callable
        Gives the arrays that part i reads, C-contiguous; others are not fetched.

    Yields
    ------
    callable
        To be called with i when part i is about to be worked on, roughly in order: it waits until the part is there.

    Examples
    --------
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> with read_ahead(3, lambda i: [X[i]]) as arrive:
    ...     arrive(0)
    """
    first: Sequence[np.ndarray] = parts(0) if count else ()
    if sum(array.nbytes for array in first) * count < WORTH or not is_mapped(*first):
        yield lambda _: None
        return
    for found in filter(None, map(_map_of, first)):
        if hasattr(mmap, "MADV_SEQUENTIAL"):
            found.madvise(mmap.MADV_SEQUENTIAL)  # larger reads, begun earlier
    ahead = _Ahead(count, parts)
    thread = threading.Thread(target=ahead.fetch, name="fedfactor-read-ahead", daemon=True)
    thread.start()
    try:
        yield ahead.arrive
    finally:
        ahead.tell(over=True)
        thread.join()


class _Ahead:
    """How far the thread that fetches is, and how far the work: each waits for the other."""

    def __init__(self, count: int, parts: Callable[[int], Sequence[np.ndarray]]) -> None:
        self.count = count
        self.parts = parts
        self.fetched = self.begun = 0
        self.over = False
        self.changed = threading.Condition()

    def fetch(self) -> None:
        """Fetch part after part, not too far ahead."""
        try:
            for place in range(self.count):
                with self.changed:
                    self.changed.wait_for(lambda place=place: self.over or place < self.begun + _LEAD)
                if not all(map(self._touch, self.parts(place))):
                    return
                self.tell(fetched=place + 1)
        finally:  # whatever happened: nothing may wait for it
            self.tell(fetched=self.count)

    def arrive(self, place: int) -> None:
        """Wait until a part is there."""
        with self.changed:  # all of it: several threads may work
            self.begun = max(self.begun, place + 1)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.fetched > place)

    def tell(self, **news: int | bool) -> None:
        """Let the other side know."""
        with self.changed:
            vars(self).update(news)
            self.changed.notify_all()

    def _touch(self, array: np.ndarray) -> bool:
        """Read one byte of every page, which brings the page; stop, and report it, when it is not needed any more."""
        if array.flags.c_contiguous:
            flat = array.reshape(-1).view(np.uint8)
            for start in range(0, flat.size, _PIECE):
                if self.over:
                    return False
                flat[start : start + _PIECE : _PAGE].max()
        return True
