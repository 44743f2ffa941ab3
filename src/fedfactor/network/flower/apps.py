"""The two apps that Flower starts. Both find what they need in a folder on their own machine."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fedfactor.core.atomic_files import read_json
from fedfactor.core.errors import DataError, ProtocolError
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import Agreement, ClientFolder
from fedfactor.network.coordinator_journal import Journal
from fedfactor.network.exchange import WaitingRules
from fedfactor.network.flower.objects import wait_for_pieces
from fedfactor.network.flower.records import from_record, to_record
from fedfactor.network.flower.transport import FlowerTransport
from fedfactor.network.mailbox.transport import Both, MailboxTransport
from fedfactor.network.server import ENDED, AbandonedError, Server

SERVER_FOLDER = "FEDFACTOR_SERVER"
"""Environment variable that names the server's folder."""

CLIENT_FOLDER = "folder"
"""Entry of a SuperNode's own configuration (``--node-config``) that names the client's folder."""

server_app = ServerApp()
client_app = ClientApp()


@server_app.main()
def _serve(grid: Any, context: Context) -> None:
    """Run all rounds."""
    folder = Path(os.environ[SERVER_FOLDER])
    about: dict[str, Any] = json.loads((folder / "server.json").read_bytes())
    agreement = Agreement.read(folder)
    policy = WaitingRules(**about["policy"])
    wait_for_pieces(policy.deadline / 4)
    keys = {name: key.encode() for name, key in about["keys"].items()}
    flower = FlowerTransport(grid, keys, ttl=max(3600.0, 2 * policy.deadline))
    transport = Both(MailboxTransport(about["address"], folder), flower, agreement.meta.clients)
    _journalled(Server(folder, agreement, policy, transport))


def _journalled(server: Server) -> None:
    """Run, and write down at the coordinator that it began and how it ended, in the words of its status."""
    journal, kept = Journal(server.folder), server.folder / "checkpoint" / "run.safetensors"
    journal.write("run goes on" if kept.exists() else "run begun", run=server.run_id)
    told = True
    try:
        server.run()
    except AbandonedError:  # whoever abandons a run writes that down
        told = False
        raise
    finally:
        if told:
            about = read_json(server.folder / "status.json")
            state = about["state"] if about["state"] in ENDED else "interrupted"
            journal.write(f"run {state}", run=server.run_id, round=about["round"], reason=about.get("reason", ""))


@client_app.query()
def _answer(message: Message, context: Context) -> Message:
    """Answer one message."""
    folder = context.node_config.get(CLIENT_FOLDER)
    if not isinstance(folder, str):
        raise DataError("This SuperNode names no client's folder. Start it with fedfactor join.")
    return answer(client_of(folder), message)


@cache
def client_of(folder: str) -> RemoteClient:
    """Open a client's folder once per process."""
    return RemoteClient(ClientFolder(folder))


def answer(client: RemoteClient, message: Message) -> Message:
    """Let a client answer a Flower message."""
    try:
        data = from_record(message.content) if message.has_content() else b""
    except ProtocolError:
        data = b""  # the client refuses it in words; without an answer a SuperNode would wait for ever
    return Message(to_record(client.answer(data)), reply_to=message)
