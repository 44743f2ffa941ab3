"""How long to wait between two looks for messages."""

from __future__ import annotations


class Backoff:
    """Waits that are short after something happened and grow while nothing does.

    Parameters
    ----------
    longest : float
        Seconds that no wait exceeds.
    shortest : float
        Seconds of the first wait.

    Examples
    --------
    >>> wait = Backoff(0.2, shortest=0.05)
    >>> [round(wait.next(), 2) for _ in range(5)]
    [0.05, 0.08, 0.11, 0.17, 0.2]
    >>> wait.hurry()
    >>> wait.next()
    0.05
    """

    def __init__(self, longest: float, shortest: float = 0.05) -> None:
        self._longest = longest
        self._shortest = min(shortest, longest)
        self._now = self._shortest

    def next(self) -> float:
        """Return the next wait."""
        now = self._now
        self._now = min(1.5 * self._now, self._longest)
        return now

    def hurry(self) -> None:
        """Begin with short waits again."""
        self._now = self._shortest
