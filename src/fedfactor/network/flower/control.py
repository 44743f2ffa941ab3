"""Speak to a SuperLink on this machine: let parties' keys in, and see who is connected."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest
from flwr.supercore.control import ControlHttpClient

from fedfactor.core.errors import FedfactorError

if TYPE_CHECKING:
    from collections.abc import Generator


class KeyTakenError(FedfactorError, RuntimeError):
    """Flower's database holds a key as removed, and takes it back never."""


@contextmanager
def _speaking(address: str, authority: bytes) -> Generator[Any]:
    client = ControlHttpClient.from_server_address(
        server_address=address, insecure=False, root_certificates=authority, interceptors=[]
    )
    try:
        yield client
    finally:
        client.close()


def register_keys(address: str, authority: bytes, keys: Iterable[bytes]) -> None:
    """Register every key that is not yet known.

    Keys that are no longer wanted stay in Flower's database: what it removed it would refuse for ever, also when the
    party comes back. The gate in front of it speaks to the keys in ``server.json`` alone.
    """
    with _speaking(address, authority) as client:
        known = {bytes(node.public_key).strip() for node in client.ListNodes(ListNodesRequest()).nodes_info
                 if node.status != "unregistered"}  # fmt: skip
        for key in keys:
            if key.strip() in known:
                continue
            try:
                client.RegisterNode(RegisterNodeRequest(public_key=key))
            except httpx.HTTPStatusError as error:
                if error.response.status_code == 409:
                    raise KeyTakenError("a key was removed by an earlier version and is wanted again") from None
                raise


def connected(address: str, authority: bytes) -> dict[bytes, tuple[bool, str]]:
    """Tell for each registered key whether its node is online, and since when (or when it was last activated)."""
    with _speaking(address, authority) as client:
        nodes = client.ListNodes(ListNodesRequest()).nodes_info
    return {bytes(node.public_key).strip(): (node.status == "online", str(node.last_activated_at)) for node in nodes}
