"""A party's node without Flower's SuperNode: it speaks to the server itself, so that many fit into one process.

A SuperNode is a process of its own, with a database and a second server in it, between the coordinator's server and
the process that answers: some 120 MB for each party, and every message goes twice. This node takes messages with the
party's key, has them answered in its own thread, and sends the answers, in the same requests and under the same checks
of the server. Of a run's app nothing is fetched, let alone run.
"""

# Flower's messages have no types that could be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedfactor.engines.flower.apps import answer
from fedfactor.engines.flower.objects import wait_for_pieces
from fedfactor.engines.flower.supernode import CONNECTION, HEARTBEAT, PIECES, RETRY, Watched, come_back
from fedfactor.engines.remote.backoff import Backoff
from fedfactor.engines.remote.client import RemoteClient

logger = logging.getLogger("fedfactor")

AWAY = 500
"""From here on a server says that it is being started, is too busy, or has a proxy stand in for it: that passes."""


class TurnedAway(Exception):
    """The server does not want this node."""


class LightNode:
    """Carries messages between a server and one client.

    Parameters
    ----------
    remote : RemoteClient
        Who answers.
    address : str
        Of the server, host and port.
    authority : bytes
        Certificate of whoever signed the server's, as PEM.
    key : path
        The party's private key.
    file : path
        Keeps the number under which the server knows this node; beside it lies how requests to the server go.
    poll : float
        Most seconds between two looks; a look waits at the server until there is something.
    """

    def __init__(
        self, remote: RemoteClient, address: str, authority: bytes, key: Path, file: Path, poll: float = 0.5
    ) -> None:
        private: Any = load_ssh_private_key(key.read_bytes(), None)
        self._remote, self._poll = remote, poll
        self._ended = threading.Event()
        self._public = public_key_to_bytes(private.public_key())
        self._node: Any = None  # under which the server knows it
        wait_for_pieces(PIECES)
        signs = NodeAuthHttpInterceptor(private, private.public_key())

        class Client(FleetHttpClient):
            """The connection of one node: what is changed about it is changed for no other."""

        come_back(Client, file)
        Watched(file.with_name(CONNECTION)).watch(Client)
        self._client: Any = Client.from_server_address(
            address, False, authority, interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperNode"), signs]
        )

    def serve(self, alive: Callable[[], bool]) -> None:
        """Answer until ``alive`` says no; raises when the server turns this node away."""
        idle, away = Backoff(self._poll), Backoff(float(RETRY))
        beating = threading.Thread(target=self._beat, daemon=True)
        try:
            while alive():
                try:
                    if self._node is None:
                        self._node = Node(node_id=self._activate())
                    if not beating.is_alive():
                        beating.start()
                    if self._one():
                        idle.hurry()
                    else:
                        time.sleep(idle.next())
                    away.hurry()
                except (httpx.TransportError, ConnectionError):
                    time.sleep(away.next())
                except httpx.HTTPStatusError as error:
                    if error.response.status_code < AWAY:
                        raise TurnedAway(error.response.text[:500]) from error
                    time.sleep(away.next())
        finally:
            self._ended.set()
            if self._node is not None:
                with suppress(httpx.HTTPError, RuntimeError):
                    self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))
            self._client.close()

    def _activate(self) -> int:
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        return int(self._client.ActivateNode(request).node_id)

    def _beat(self) -> None:
        """Give signs of life; the server gives a node up that is silent for twice as long as it promised."""
        while not self._ended.wait(HEARTBEAT):
            request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT)
            with suppress(httpx.HTTPError, RuntimeError):
                if not self._client.SendNodeHeartbeat(request).success:
                    self._node = None  # the server has forgotten this node: come in again

    def _one(self) -> bool:
        """Take a message, if there is one, and answer it."""
        found = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not found.messages_list:
            return False
        tree, run = found.message_object_trees[0], found.messages_list[0].metadata.run_id
        try:
            message: Any = pull_and_inflate_object_from_tree(
                tree,
                make_pull_object_fn_protobuf(self._client.PullObject, self._node, run),
                make_confirm_message_received_fn_protobuf(self._client.ConfirmMessageReceived, self._node, run),
                return_type=Message,
            )
        except httpx.HTTPError:
            raise
        except Exception:  # given up by whoever sent it; it is asked again
            logger.warning("A message could not be received whole.")
            return True
        message.metadata.__dict__["_message_id"] = tree.object_id  # known from the place it lay at, not from itself
        self._send(answer(self._remote, message), run)
        return True

    def _send(self, reply: Any, run: int) -> None:
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            request = PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[0.0],
            )
            told = self._client.PushMessages(request)
            push_objects(
                get_all_nested_objects(reply),
                make_push_object_fn_protobuf(self._client.PushObject, self._node, run, told.session_id),
                object_ids_to_push=set(told.objects_to_push),
            )
