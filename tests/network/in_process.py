"""A transport inside one process, with a clock of its own: messages can be lost, doubled, delayed or forged."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from fedfactor.core.algorithm import Algorithm, algorithm_tag, settings_of
from fedfactor.core.client_data import Federation
from fedfactor.core.former_identifiers import current_algorithm
from fedfactor.core.run import Run
from fedfactor.core.wire import from_bytes
from fedfactor.engines.local.worker_process import algorithm_of
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import Agreement, ClientFolder
from fedfactor.network.exchange import Arrival
from fedfactor.network.server import Server
from fedfactor.network.waiting_rules import WaitingRules
from fedfactor.privacy.secure_aggregation.primitives import Identity

TERMS = "f" * 64


class AnyAgreement(Agreement):
    """Agrees to algorithms from outside the library, too."""

    __slots__ = ()

    def make(self) -> Algorithm:
        return algorithm_of(current_algorithm(self.algorithm), self.settings)


class AnyFolder(ClientFolder):
    @cached_property
    def agreement(self) -> AnyAgreement:
        return AnyAgreement.of((self.folder / "agreement.json").read_bytes())


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class InProcessTransport:
    """Answers at once, unless told otherwise: ``tamper(name, answer) -> list of arrivals``.

    ``forge(name, message) -> message`` is a server that does not send what it should.
    """

    forge: Callable[[str, bytes], bytes] | None = None

    def __init__(
        self, clerks: dict[str, RemoteClient], tamper: Callable[[str, bytes], list[Arrival]] | None = None
    ) -> None:
        self.clerks, self.tamper = clerks, tamper
        self.here = dict.fromkeys(clerks, "1")
        self.box: list[Arrival] = []
        self.messages: list[tuple[str, bytes]] = []

    def present(self) -> dict[str, str]:
        return dict(self.here)

    def send(self, messages: Any, most: int) -> None:
        for name, data in messages:
            self.messages.append((name, data))
            answer = self.clerks[name].answer(data if self.forge is None else self.forge(name, data))
            self.box += [Arrival(name, answer)] if self.tamper is None else self.tamper(name, answer)

    def collect(self) -> list[Arrival]:
        box, self.box = self.box, []
        return box


class Office:
    """A federation in one process."""

    def __init__(self, folder: Path, algorithm: Any, owners: dict[str, Any], rounds: int = 4, **more: Any) -> None:
        self.folder = folder
        self.federation = owners if isinstance(owners, Federation) else Federation(owners)
        owners = dict.fromkeys(self.federation.names)
        meta = replace(self.federation.prepare(algorithm.domain), n_rows=None)
        keys = {name: name.encode().ljust(32, b"-") for name in owners}
        if more.get("protect"):
            more["registry"] = {name: Identity(secret).public.hex() for name, secret in keys.items()}
        about = {"seed": 5, "rounds": rounds, **more}
        self.agreement = AnyAgreement("", TERMS, algorithm_tag(type(algorithm)), settings_of(algorithm), meta, **about)
        for name in owners:
            mine = replace(self.agreement, name=name)
            if not (folder / name / "agreement.json").exists():
                ClientFolder.make(folder / name, mine, self.federation.shard(name))
                (folder / name / "identity.key").write_bytes(keys[name])
        self.clerks = {name: RemoteClient(AnyFolder(folder / name)) for name in owners}
        self.post = InProcessTransport(self.clerks)
        self.clock = Clock()

    def server(self, **policy: Any) -> Server:
        rules = WaitingRules(
            **{"minimum": len(self.clerks), "deadline": 60.0, "gather": 60.0, "resend": 20.0, **policy}
        )
        return Server(
            self.folder / "server", self.agreement, rules, self.post, clock=self.clock, sleep=self.clock.sleep
        )

    def run_with_a_server_killed_at(self, message: int) -> None:
        """Let the server die at that message, and another one finish what it began."""

        def tamper(name: str, answer: bytes) -> list[Arrival]:
            if len(self.post.messages) == message:
                raise KeyboardInterrupt
            return [Arrival(name, answer)]

        self.post.tamper = tamper
        with pytest.raises(KeyboardInterrupt):
            self.server(dropouts="wait").run()
        self.post.tamper, self.post.box = None, []
        self.server(dropouts="wait").run()

    def factors(self, name: str) -> Any:
        return from_bytes((self.folder / name / "result" / "factors.safetensors").read_bytes())["factors"]


class InProcessEngine:
    """Runs a federation of remote parties in this process, as other engines do: messages, folders and all."""

    channels = True

    def __init__(self, folder: Path, **policy: Any) -> None:
        self.folder, self.policy = folder, {"minimum": 1, **policy}

    def run(self, algorithm: Any, federation: Federation, *, rounds: int, seed: int, channel: Any = None) -> Run:
        links = () if channel is None else tuple(_named(link) for link in channel.links)
        where = self.folder / secrets.token_hex(4)
        office = Office(where, algorithm, federation, rounds=rounds, seed=seed, links=links)
        outcome = office.server(**self.policy).run()
        factors = {name: office.factors(name) for name in federation.names}
        about: dict[str, Any] = {}
        return Run(
            algorithm, seed, outcome.status, outcome.history, factors, outcome.scores, outcome.down, about, None,
            outcome.privacy,
        )  # fmt: skip


def _named(link: Any) -> dict[str, Any]:
    return {"link": type(link).__name__, **{f.name: getattr(link, f.name) for f in fields(link)}}
