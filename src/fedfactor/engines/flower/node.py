"""Run Flower's SuperNode as a child: it ends when its parent does, and looks for mail more often than every 3 s."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

POLL = "FEDFACTOR_NODE_POLL"
"""Environment variable: seconds between two looks for mail; Flower's own 3 s when it is not set."""


HEARTBEAT = 10
"""Seconds between two signs of life: a server gives a silent node up after twice as long."""


class _Clock:
    """Stands in for the ``time`` module where Flower's SuperNode waits; everything but long sleeps is the real one."""

    def __init__(self, poll: float) -> None:
        self._poll = poll

    def sleep(self, seconds: float) -> None:
        """Sleep, but not longer than agreed."""
        time.sleep(min(seconds, self._poll))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def main() -> None:
    """Serve until the parent ends."""
    from flwr.supercore.app_utils import start_parent_process_monitor
    from flwr.supernode.cli import flower_supernode

    waiting: Any = importlib.import_module("flwr.supernode.start_client_internal")

    start_parent_process_monitor(os.getppid())
    poll = os.environ.get(POLL)
    if poll:  # its waits are written into the code
        waiting.time = _Clock(float(poll))
        speaking: Any = importlib.import_module("flwr.supernode.fleet_http_connection")
        speaking.HEARTBEAT_DEFAULT_INTERVAL = min(HEARTBEAT, speaking.HEARTBEAT_DEFAULT_INTERVAL)
    flower_supernode()


if __name__ == "__main__":
    main()
