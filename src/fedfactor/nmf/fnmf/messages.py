"""What FNMF's parties send each other, and what they keep."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedfactor.core.algorithm import Uplink
from fedfactor.core.pytree import Array, public, record, telemetry
from fedfactor.linalg.products import as_like


@record("fnmf.Middle")
class Middle:
    """Down: the middle of the clients' factors, and how many of how many clients stand behind each component."""

    V: Array
    support: Array
    mass: Array
    clients: Array = public()
    round: Array = public()


@record("fnmf.Own")
class Own:
    """Up, for a barycenter at the server: its factor as it is, and its weight."""

    uplink: ClassVar[Uplink] = Uplink.GATHER

    V: Array
    weight: Array = public()
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)
    agreement: Array | None = telemetry(default=None)


@record("fnmf.Aligned")
class Aligned:
    """Up, aligned by the client: its factor in the order of the last middle, times its weight, and each row's mass."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    V: Array
    mass: Array
    support: Array
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)
    agreement: Array | None = telemetry(default=None)


@record("fnmf.Local")
class Local:
    """Stays home: both factors, ``‖X‖²``, which components are the client's own, and what it sent when (-1: never)."""

    U: Array
    V: Array
    total: Array
    private: Array
    sent: Array | None
    sent_mass: Array | None
    sent_round: Array


@record("fnmf.Server")
class Server:
    """The middle, its support, how long it has stood still, and figures of the round."""

    V: Array
    support: Array
    flat: Array
    sse: Array
    total: Array
    agreement: Array


def lonely(down: Middle) -> np.ndarray:
    """Return which components of the middle only one client stands behind, where there were others who could have."""
    return as_like(down.support, np.empty(0)) < min(1.5, int(down.clients) - 0.5)
