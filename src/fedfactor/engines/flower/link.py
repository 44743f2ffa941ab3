"""Run Flower's SuperLink as a child, with a gate in front of it.

One port carries three things: letters of nodes (signed with registered keys), control (start a run, register a key) and
the server app's own traffic. Only the first is for other machines; the gate lets the others in from this machine alone,
because Flower asks nobody who they are before it runs what they submit.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
from types import SimpleNamespace
from typing import Any

OPEN = ("/v1/fleet/", "/health")
"""Paths that other machines may use."""


class Gate:
    """Answers 403 to other machines, except on the paths that nodes need."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Let through, or refuse."""
        if scope["type"] in ("http", "websocket") and not self._admits(scope):
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"Only nodes may speak to this server from elsewhere.\n"})
            return
        await self._app(scope, receive, send)

    @staticmethod
    def _admits(scope: dict[str, Any]) -> bool:
        if scope["path"].startswith(OPEN):
            return True
        try:
            peer = ipaddress.ip_address(scope["client"][0])
            # A connection of this machine to its own outer address comes from that very address.
            return peer.is_loopback or peer == ipaddress.ip_address(scope["server"][0])
        except (ValueError, TypeError, KeyError):
            return False


def main() -> None:
    """Serve until the parent ends."""
    import uvicorn
    from flwr.supercore.app_utils import start_parent_process_monitor

    module: Any = importlib.import_module("flwr.superlink.cli.flower_superlink")

    start_parent_process_monitor(os.getppid())

    def run(app: Any, **options: Any) -> None:
        uvicorn.run(app=Gate(app), **options)

    if getattr(module, "uvicorn", None) is not uvicorn:
        raise SystemExit("This version of Flower starts its server in another way: the gate would not stand. Use 1.41.")
    module.uvicorn = SimpleNamespace(run=run)
    module.flower_superlink()


if __name__ == "__main__":
    main()
