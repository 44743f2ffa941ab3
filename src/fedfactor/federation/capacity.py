"""What a federation will need: bytes of each party and of the coordinator, and memory, before a run.

Bytes are found by a run in miniature: the messages of the real server and of real parties, on random rows with the
agreed columns, counted for a few rounds and continued to the agreed number. Memory is a formula of what both ends hold.
"""

from __future__ import annotations

import copy
import secrets
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Domain
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError
from fedfactor.federation import keys
from fedfactor.federation.terms import Terms, features_hash
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.exchange import Arrival
from fedfactor.network.message_format import read_head
from fedfactor.network.server import Server

ROUNDS = 8
"""Rounds of the run in miniature; the last one stands for all later ones."""

MOST_ROWS = 400
"""Rows of each party in the run in miniature."""

PROCESS = 290e6
"""Resident bytes of a process that has answered a small question, with all libraries; a third of it is shared."""

OF_ROWS = 1.7
"""Copies of a party's rows while the file is read and prepared; afterwards they are mapped."""

OF_MESSAGE = 7.0
"""Copies of the longest message at a party: bytes, arrays, their sums, and what is kept before and after a step."""

AT_SERVER = 4.0
"""Copies of the longest upload of each party at the coordinator."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a federation needs.

    Parameters
    ----------
    parties, columns, rounds : int
        What was assumed.
    bytes_up, bytes_down : int
        Of one party's messages in a whole run, without TLS and HTTP.
    bytes_rounds : int
        Of one party's messages in all rounds, both directions, as ``run.json`` counts them.
    bytes_first, bytes_round : int
        Of one party's messages, both directions, in the longest round and in a late round.
    messages : int
        Requests of one party in a whole run.
    party_memory, server_memory : int
        Bytes, at their peak.
    party_disk : int
        Bytes that one run adds to a party's folder while what it sent is kept.
    """

    parties: int
    columns: int
    rounds: int
    bytes_up: int
    bytes_down: int
    bytes_rounds: int
    bytes_first: int
    bytes_round: int
    messages: int
    party_memory: int
    server_memory: int
    party_disk: int


class Counting:
    """Delivers messages in this process, and counts the bytes of one party."""

    def __init__(self, clients: Mapping[str, RemoteClient]) -> None:
        self._clients = clients
        self._first = min(clients)
        self._arrived: list[Arrival] = []
        self.sizes: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)

    def present(self) -> dict[str, str]:
        """Return all parties, which are always connected."""
        return dict.fromkeys(self._clients, "1")

    def send(self, messages: Iterable[tuple[str, bytes]], most: int) -> None:
        """Have each message answered."""
        for name, data in messages:
            answer = self._clients[name].answer(data)
            self._arrived.append(Arrival(name, answer))
            if name == self._first:
                head = read_head(data)
                kind = "step" if head.kind == "sum" and head.session == 2 else head.kind
                self.sizes[kind, head.index].append((len(answer), len(data)))

    def collect(self) -> Sequence[Arrival]:
        """Return the answers."""
        arrived = self._arrived
        self._arrived = []
        return arrived


def plan(terms: Terms, rows: int, parties: int = 0, columns: int = 0) -> Need:
    """Return what a federation under these terms needs.

    Parameters
    ----------
    terms : Terms
        They may be a draft: without parties or columns.
    rows : int
        Of the largest party.
    parties, columns : int
        How many, where the terms have none yet.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = _complete(terms, parties, columns, Path(folder))
        few = min(made.content["run"]["rounds"], ROUNDS)
        counted = _miniature(made, rows, few, Path(folder))
    rounds = made.content["run"]["rounds"]
    agreed = made.agreement()
    most = agreed.most_steps if agreed.asynchronous else rounds
    steps = sorted(index for kind, index in counted if kind == "step")
    if not steps:
        raise DataError("The run in miniature took no step: the terms do not suit random rows.")
    last = counted["step", steps[-1]]
    late = (most - len(steps)) * np.array([sum(up for up, _ in last), sum(down for _, down in last), len(last)])
    every = [size for sizes in counted.values() for size in sizes]
    up = sum(size[0] for size in every) + int(late[0])
    down = sum(size[1] for size in every) + int(late[1])
    longest_up = max(size[0] for size in every)
    longest = max(max(size) for size in every)
    n = len(made.names)
    width = np.dtype(made.content["run"]["dtype"]).itemsize
    return Need(
        parties=n,
        columns=len(made.features),
        rounds=most,
        bytes_up=up,
        bytes_down=down,
        bytes_rounds=sum(sum(size) for (kind, _), sizes in counted.items() if kind == "step" for size in sizes)
        + int(late[0] + late[1]),
        bytes_first=max(sum(sum(size) for size in sizes) for (kind, _), sizes in counted.items() if kind == "step"),
        bytes_round=sum(sum(size) for size in last),
        messages=len(every) + int(late[2]),
        party_memory=int(PROCESS + OF_ROWS * rows * len(made.features) * max(width, 8) + OF_MESSAGE * longest),
        server_memory=int(PROCESS + AT_SERVER * n * longest_up + OF_MESSAGE * longest),
        party_disk=up + rows * len(made.features) * width,
    )


def _complete(terms: Terms, parties: int, columns: int, folder: Path) -> Terms:
    """Fill a draft with parties and columns; keys are made where secure aggregation needs signing keys."""
    content: dict[str, Any] = copy.deepcopy(dict(terms.content))
    if not (terms.features or columns):
        raise DataError("The terms name no columns yet. Give their number with --columns.")
    if not terms.features:
        names = [f"column {j}" for j in range(columns)]
        content["features"] = {**content["features"], "names": names, "sha256": features_hash(names)}
    if not (terms.names or parties):
        raise DataError("The terms name no parties yet. Give their number with --parties.")
    content["parties"] = {}
    for name in terms.names or [f"party-{i:03d}" for i in range(parties)]:
        path = keys.make_key(folder / f"{name}.key", name)
        content["parties"][name] = {"key": keys.public_line(f"{path}.pub"), "sign": keys.signing_key(f"{path}.pub")}
    content["limits"] = {**content["limits"], "since": "", "until": "", "runs": 10, "rounds": 0}
    content["run"] = {**content["run"], "start": ""}
    return Terms.of(content)


def _miniature(terms: Terms, rows: int, rounds: int, folder: Path) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Run a few rounds on random rows; return up- and downloads of one party by kind and number of the message."""
    few = Terms.of({**terms.content, "run": {**terms.content["run"], "rounds": rounds}})
    settings = {**few.content["algorithm"]}
    if hasattr(few.algorithm(), "tol"):
        few = Terms.of({**few.content, "algorithm": {**settings, "tol": 0.0}})  # the run may not end earlier
    algorithm = few.algorithm()
    n = min(rows, max(MOST_ROWS, few.least_rows))
    if n < few.least_rows:
        raise DataError(f"{rows} rows are fewer than the {few.least_rows} that a party needs under these terms.")
    rng = np.random.default_rng(0)
    clients: dict[str, RemoteClient] = {}
    for name in few.names:
        X = rng.gamma(0.5, 1.0, (n, len(few.features))).astype(few.content["run"]["dtype"])
        if algorithm.domain == Domain.BINARY:
            X = (X > 0.3).astype(X.dtype)
        mask = np.ones(X.shape, bool) if few.meta().masked else None
        store = ClientFolder.make(folder / name, few.agreement(name), Shard(X, mask, None))
        if few.secure:
            (folder / name / "identity.key").write_bytes(keys.identity_secret(folder / f"{name}.key"))
        clients[name] = RemoteClient(store)
    post = Counting(clients)
    policy = replace(few.policy(), deadline=60.0)
    Server(folder / f"server-{secrets.token_hex(2)}", few.agreement(), policy, post).run()
    return post.sizes
