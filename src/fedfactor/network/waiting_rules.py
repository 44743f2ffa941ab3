"""Rules of a federation for parties that are absent: who must take part in a round, and how long the others wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class WaitingRules:
    """Who must take part, and how long the others wait.

    Parameters
    ----------
    minimum : int
        Clients that a round needs.
    dropouts : {"continue", "wait"}
        At the deadline: go on with those who answered, if they are enough; or never go on without everyone, because
        the difference of two sums shows the upload of the one who left (always so with secure aggregation).
    deadline : float
        Seconds a round waits for answers.
    gather : float
        Seconds to wait at the start until everyone is there.
    resend : float
        Seconds after which a client that is there but silent is asked again. One that came back is asked at once.
    absent : float
        With ``"continue"``: seconds that a round waits for a client that is known to be gone.
    poll : float
        Most seconds between two looks for messages.
    """

    minimum: int
    dropouts: Literal["continue", "wait"] = "continue"
    deadline: float = 600.0
    gather: float = 600.0
    resend: float = 60.0
    absent: float = 60.0
    poll: float = 0.2
