"""Run Flower's SuperNode as a child: it ends when its parent does, looks for messages often, and comes back at once."""

from __future__ import annotations

import importlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import write_atomic
from fedfactor.network.backoff import Backoff
from fedfactor.network.connection_status import CONNECTION, ConnectionStatus, is_foreign, told
from fedfactor.network.flower.objects import wait_for_pieces
from fedfactor.network.mailbox.boxes import TERMS as TERMS_HEADER

POLL = "FEDFACTOR_NODE_POLL"
"""Environment variable: most seconds between two looks for messages; Flower's own 3 s when it is not set."""

IDLE = 3
"""Seconds that Flower's SuperNode waits when there was no message; its other waits are for the answer to some."""

NODE = "FEDFACTOR_NODE_FILE"
"""Environment variable: the file that keeps the number under which the server knows this node."""

TERMS = "FEDFACTOR_NODE_TERMS"
"""Environment variable: fingerprint of what the party agreed to."""

HEARTBEAT = 10
"""Seconds between two signs of life, at most: a server gives a silent node up after twice as long."""

PIECES = 15.0
"""Seconds to wait for a piece of a message: the server has all of them beside it, unless it died."""

RETRY = 3
"""Most seconds between two tries to reach a server that is away."""


class _Clock:
    """Stands in for the ``time`` module where Flower's SuperNode waits; everything but long sleeps is the real one."""

    def __init__(self, poll: float) -> None:
        self._idle, self._poll = Backoff(poll), poll

    def sleep(self, seconds: float) -> None:
        """Sleep, but not longer than agreed, and shortly while messages come and go."""
        if seconds < IDLE:
            self._idle.hurry()
            time.sleep(min(seconds, self._poll, 0.05))
        else:
            time.sleep(self._idle.next())

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def come_back(connection: Any, file: Path) -> None:
    """Let a node in whose last process was killed, so that the server takes it for alive.

    The owner's lock says that no other process of this node lives: its old presence is ended in its own name.
    """
    import httpx
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest

    activate: Any = connection.ActivateNode

    def again(self: Any, request: Any) -> Any:
        try:
            response = activate(self, request)
        except httpx.HTTPStatusError:
            if not file.exists():
                raise
            with suppress(httpx.HTTPStatusError):
                self.DeactivateNode(DeactivateNodeRequest(node_id=int(file.read_text())))
            response = activate(self, request)
        write_atomic(file, str(response.node_id).encode())
        return response

    connection.ActivateNode = again


def watch(connection: Any, status_file: ConnectionStatus, terms: str = "") -> None:
    """Stand between a class of connections and what it sends, name the party's terms, and write down how that goes.

    A server whose certificate ended, or whose clock runs apart, is tried again like one that is away: Flower's node
    would end in silence, and stay away after its server was mended. One of another authority is given up at once,
    because it may be somebody else's.
    """
    import httpx

    send: Any = connection._send

    def watched(client: Any, context: Any) -> Any:
        if terms:
            context.request.headers[TERMS_HEADER] = terms
        try:
            response = send(client, context)
        except httpx.TransportError as error:
            text = f"{error}" or type(error).__name__
            status_file.write(error=text)
            if "certificate" in text.lower() and not is_foreign(text):
                # Without the word at which Flower gives up.
                raise httpx.ConnectError("the server shows a paper that is no longer right") from None
            raise
        if response.status_code < 400:
            status_file.write()
        else:
            status_file.write(status=response.status_code, error=told(response))
        return response

    connection._send = watched


def main() -> None:
    """Serve until the parent ends."""
    from flwr.supercore.app_utils import start_parent_process_monitor
    from flwr.supernode.cli import flower_supernode

    start_parent_process_monitor(os.getppid())
    speaking: Any = importlib.import_module("flwr.supernode.fleet_http_connection")
    poll = os.environ.get(POLL)
    if poll:  # its waits are written into the code
        waiting: Any = importlib.import_module("flwr.supernode.start_client_internal")
        waiting.time = _Clock(float(poll))
        # What it promises and what it does are two constants: a node that beats less often than it says seems to die.
        beating: Any = importlib.import_module("flwr.supercore.heartbeat")
        retrying: Any = importlib.import_module("flwr.supercore.retry.http_retry")
        speaking.HEARTBEAT_DEFAULT_INTERVAL = beating.HEARTBEAT_DEFAULT_INTERVAL = HEARTBEAT
        retrying.MAX_RETRY_DELAY = RETRY
        wait_for_pieces(PIECES)
    if os.environ.get(NODE):
        file = Path(os.environ[NODE])
        watch(speaking.FleetHttpClient, ConnectionStatus(file.with_name(CONNECTION)), os.environ.get(TERMS, ""))
        come_back(speaking.FleetHttpClient, file)
    flower_supernode()


if __name__ == "__main__":
    main()
