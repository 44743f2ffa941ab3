"""Speak to a SuperLink on this machine: let parties' keys in, and keep all others out."""

from __future__ import annotations

from collections.abc import Iterable

import httpx
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, UnregisterNodeRequest
from flwr.supercore.control import ControlHttpClient


def register_keys(address: str, authority: bytes, keys: Iterable[bytes]) -> None:
    """Register every key that is not yet known, and remove the nodes of keys that are no longer wanted."""
    client = ControlHttpClient.from_server_address(
        server_address=address, insecure=False, root_certificates=authority, interceptors=[]
    )
    wanted = {key.strip(): key for key in keys}
    try:
        known = {
            bytes(node.public_key).strip(): node.node_id for node in client.ListNodes(ListNodesRequest()).nodes_info
        }
        for key, node in known.items():
            if key not in wanted:
                client.UnregisterNode(UnregisterNodeRequest(node_id=node))
        for key, raw in wanted.items():
            if key in known:
                continue
            try:
                client.RegisterNode(RegisterNodeRequest(public_key=raw))
            except httpx.HTTPStatusError as error:
                if error.response.status_code != 409:  # somebody registered it in between
                    raise
    finally:
        client.close()
