"""Run Flower's SuperLink as a child, with a gate in front of it.

One port carries three things: messages of nodes (signed with registered keys), control (start a run, register a key)
and the server app's own traffic. Only the first is for other machines; the gate lets the others in from this machine
alone, because Flower asks nobody who they are before it runs what they submit.
"""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import os
from types import SimpleNamespace
from typing import Any

OPEN = ("/v1/fleet/", "/health")
"""Paths that other machines may use."""


BODY = 32 << 20
"""Most bytes of one request: Flower cuts arrays into pieces of 5 MiB, so nobody honest sends more."""


class TooLong(Exception):
    """A request was longer than it may be."""


class Gate:
    """Answers 403 to other machines, except on the paths that nodes need, and 413 to requests that are too long."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Let through, or refuse."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not self._admits(scope):
            await _refuse(send, 403, b"Only nodes may speak to this server from elsewhere.")
        elif _declared(scope) > BODY:
            await _refuse(send, 413, b"Too long.")
        else:
            with contextlib.suppress(TooLong):  # whoever says less than it sends gets no answer
                await self._app(scope, _counted(receive), send)

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


def _declared(scope: dict[str, Any]) -> int:
    sizes = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    return int(sizes[0]) if sizes and sizes[0].isdigit() else 0


def _counted(receive: Any) -> Any:
    """Stop reading a request when it has become too long, before anybody has put it together."""
    left = BODY

    async def take() -> Any:
        nonlocal left
        part = await receive()
        left -= len(part.get("body", b""))
        if left < 0:
            raise TooLong
        return part

    return take


async def _refuse(send: Any, status: int, why: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": why + b"\n"})


def serve_gated(app: Any, **options: Any) -> None:
    """Serve behind the gate, which must see who really speaks: no header may name somebody else."""
    import uvicorn

    options["proxy_headers"] = False
    uvicorn.run(app=Gate(app), **options)


def main() -> None:
    """Serve until the parent ends."""
    import uvicorn
    from flwr.supercore.app_utils import start_parent_process_monitor

    module: Any = importlib.import_module("flwr.superlink.cli.flower_superlink")

    start_parent_process_monitor(os.getppid())
    if getattr(module, "uvicorn", None) is not uvicorn:
        raise SystemExit("This version of Flower starts its server in another way: the gate would not stand. Use 1.41.")
    module.uvicorn = SimpleNamespace(run=serve_gated)
    module.flower_superlink()


if __name__ == "__main__":
    main()
