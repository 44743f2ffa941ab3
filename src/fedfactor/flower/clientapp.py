"""The ClientApp that Flower starts: by default in a process of its own for each message, so it imports little."""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedfactor.core.errors import DataError
from fedfactor.flower.party import Party
from fedfactor.flower.records import Envelope, from_record, to_record

logger = logging.getLogger("fedfactor")

client_app = ClientApp()


@client_app.query()
def _answer(message: Message, context: Context) -> Message:
    """Answer one message."""
    return answer(message, context)


def answer(message: Message, context: Context) -> Message:
    """Answer a Flower message for the party whose folder the SuperNode names: the body of :data:`client_app`.

    Parameters
    ----------
    message : flwr.app.Message
        A message from :func:`serve`.
    context : flwr.app.Context
        Its ``node_config`` holds ``folder`` and ``key``, as given with ``flower-supernode --node-config``.

    Returns
    -------
    flwr.app.Message
        The answer, signed with the party's key.
    """
    try:
        asked = from_record(message.content)
        party = _party_of(context)
        data = party.answer(asked.kind, asked.data)
        signature = party.sign(message.metadata.run_id, message.metadata.dst_node_id, asked.data, data)
    except Exception:
        logger.exception("A message could not be answered.")
        # Flower sends the text of an exception to the server, and a reason can depend on rows.
        raise RuntimeError("the party could not answer; its own log says why") from None
    return Message(to_record(Envelope(asked.kind, data, signature)), reply_to=message)


def _party_of(context: Context) -> Party:
    node = context.node_config
    run = context.run_config
    if "folder" in node and "key" in node:
        folder = Path(str(node["folder"]))
        key = Path(str(node["key"]))
    elif "partition-id" in node:
        from fedfactor.flower import simulation

        folder, key = simulation.client(Path(str(run.get("folder", ""))), int(node["partition-id"]))
    else:
        raise DataError(
            "This SuperNode names no party's folder and key. Start it with: flower-supernode --node-config "
            '\'folder="/path/to/north" key="/path/to/north.key"\''
        )
    return _open(folder, key, (folder / "agreement.json").stat().st_mtime_ns if folder.is_dir() else 0)


@lru_cache(maxsize=32)
def _open(folder: Path, key: Path, signed_at: int) -> Party:
    """Open a party's folder once per process, and again when the party signed other terms."""
    return Party(folder, key)
