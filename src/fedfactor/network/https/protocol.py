"""Paths, headers and limits of the wire protocol; docs/reference/wire_protocol.md specifies them."""

from __future__ import annotations

VERSION = 1
"""Version of the wire protocol. It is part of every path, so that both ends agree before anything else is read."""

ROOT = f"/fedfactor/{VERSION}"
EXCHANGE = f"{ROOT}/exchange"
"""POST: deliver the last answer and wait for the next request."""

ALIVE = f"{ROOT}/alive"
"""POST: a sign of life while a request is being computed."""

TERMS_PATH = f"{ROOT}/terms"
"""GET: the fingerprint of the terms that are served, and the versions of the packages that decide the bits."""

AGREEMENT = f"{ROOT}/agreement"
"""GET: the terms that are served, whole, as JSON."""

SESSION = "fedfactor-session"
"""Header: identifies the process of a party."""

AFTER = "fedfactor-after"
"""Header: session of an earlier process of the same party that has ended and may be replaced at once."""

HAVE = "fedfactor-have"
"""Header: ticket of the request that the party received last."""

HOLD_FOR = "fedfactor-hold"
"""Header: most seconds that the server shall hold this request; shorter where a proxy ends silent connections."""

TERMS = "fedfactor-terms"
"""Header: fingerprint of the terms that the party agreed to."""

TICKET = "fedfactor-ticket"
"""Header of an answer of the server: identifies the request in its body."""

OWN = (SESSION, AFTER, HAVE, HOLD_FOR, TERMS)
"""Headers of a party. One that occurs twice is refused."""

UNKNOWN_KEY = "This key is not registered"
OTHER_TERMS = "Other terms are served here"
SECOND_PROCESS = "Another process of this party is connected"
ENDING = "The server is ending"
VERSIONS = "The server speaks the wire protocol in version"

HOLD = 20.0
"""Most seconds that a request of a party is held. Proxies end connections that are silent for 30 s or more."""

LIFE = 20.0
"""Seconds without a request after which a party counts as disconnected."""

SHORT = 64 << 10
"""Most bytes of a body that is no upload."""

HEAD_BYTES = 8190
"""Most bytes of one line of a request's head."""

HEAD_SECONDS = 20.0
"""Seconds in which the head of a request must have arrived on a connection that serves none."""

BODY_SECONDS = 20.0
"""Seconds that any body may take, in addition to its length divided by :data:`SLOWEST`."""

SLOWEST = 16 << 10
"""Bytes per second: a slower body is not waited for."""

QUEUED = 2
"""Answers of one party that wait for the run. When another one arrives, the oldest is discarded."""


def seconds_for(size: int) -> float:
    """Return how long a body of this size may take.

    Examples
    --------
    >>> seconds_for(16 << 20)
    1044.0
    """
    return BODY_SECONDS + size / SLOWEST
