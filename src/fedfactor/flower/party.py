"""A party behind a SuperNode: its folder answers, its key signs."""

from __future__ import annotations

import json
from pathlib import Path

from fedfactor.flower.records import Kind
from fedfactor.flower.signatures import load_key, sign, statement
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import ClientFolder


class Party:
    """One party.

    Parameters
    ----------
    folder : path
        Its own folder, made by ``fedfactor join --agree-only``.
    key : path
        Its private key.
    """

    def __init__(self, folder: Path, key: Path) -> None:
        # Flower starts a process for each message.
        self._client = RemoteClient(ClientFolder(folder))
        self._key = load_key(key)

    def answer(self, kind: Kind, question: bytes) -> bytes:
        """Answer a question: who answers here, or a message of the request/response protocol."""
        agreement = self._client.agreement
        if kind == "identify":
            return json.dumps({"party": agreement.name, "terms": agreement.terms}).encode()
        return self._client.answer(question)

    def sign(self, run_id: int, node_id: int, question: bytes, answer: bytes) -> bytes:
        """Sign an answer for one node and one Flower run."""
        return sign(self._key, statement(run_id, node_id, question, answer))
