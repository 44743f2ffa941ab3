"""A post inside one process, with a clock of its own: letters can be lost, doubled, delayed or forged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedfactor.core.federation import Federation
from fedfactor.core.protocol import settings_of
from fedfactor.core.tree import type_tag
from fedfactor.core.wire import from_bytes
from fedfactor.engines.remote.client import RemoteClient
from fedfactor.engines.remote.client_folder import Agreement, ClientFolder
from fedfactor.engines.remote.exchange import Arrival, WaitingRules
from fedfactor.engines.remote.server import Server
from fedfactor.privacy.primitives import Identity

TERMS = "f" * 64


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Mailroom:
    """Answers at once, unless told otherwise: ``tamper(name, answer) -> list of arrivals``.

    ``forge(name, letter) -> letter`` is a server that does not send what it should.
    """

    forge: Callable[[str, bytes], bytes] | None = None

    def __init__(
        self, clerks: dict[str, RemoteClient], tamper: Callable[[str, bytes], list[Arrival]] | None = None
    ) -> None:
        self.clerks, self.tamper = clerks, tamper
        self.here = dict.fromkeys(clerks, "1")
        self.box: list[Arrival] = []
        self.letters: list[tuple[str, bytes]] = []

    def present(self) -> dict[str, str]:
        return dict(self.here)

    def send(self, letters: Any) -> None:
        for name, data in letters:
            self.letters.append((name, data))
            answer = self.clerks[name].answer(data if self.forge is None else self.forge(name, data))
            self.box += [Arrival(name, answer)] if self.tamper is None else self.tamper(name, answer)

    def collect(self) -> list[Arrival]:
        box, self.box = self.box, []
        return box


class Office:
    """A federation in one process."""

    def __init__(self, folder: Path, algorithm: Any, owners: dict[str, Any], rounds: int = 4, **more: Any) -> None:
        self.folder = folder
        self.federation = Federation(owners)
        meta = replace(self.federation.prepare(algorithm.domain), n_rows=None)
        secrets = {name: name.encode().ljust(32, b"-") for name in owners}
        if more.get("protect"):
            more["registry"] = {name: Identity(secret).public.hex() for name, secret in secrets.items()}
        self.agreement = Agreement(
            "", TERMS, type_tag(type(algorithm)), settings_of(algorithm), meta, seed=5, rounds=rounds, **more
        )
        for name in owners:
            mine = replace(self.agreement, name=name)
            if not (folder / name / "agreement.json").exists():
                ClientFolder.make(folder / name, mine, self.federation.shard(name))
                (folder / name / "identity.key").write_bytes(secrets[name])
        self.clerks = {name: RemoteClient(ClientFolder(folder / name)) for name in owners}
        self.post = Mailroom(self.clerks)
        self.clock = Clock()

    def server(self, **policy: Any) -> Server:
        rules = WaitingRules(
            **{"minimum": len(self.clerks), "deadline": 60.0, "gather": 60.0, "resend": 20.0, **policy}
        )
        return Server(
            self.folder / "server", self.agreement, rules, self.post, clock=self.clock, sleep=self.clock.sleep
        )

    def factors(self, name: str) -> Any:
        return from_bytes((self.folder / name / "result" / "factors.safetensors").read_bytes())["factors"]
