"""The processes of a federation, each of which ends itself with SIGKILL at given moments of the protocol.

A moment is an empty file in a folder of plans, named after the role, the question and the place in the code; it is
renamed before the process dies, so each kill happens once. Nothing else differs from ``fedfactor serve`` and
``fedfactor join``: the same classes, folders, keys and HTTPS connections.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import read_json
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.engines.round import Rounds
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.party import Member
from fedfactor.network import secure_aggregation, server
from fedfactor.network.answer_limits import AnsweredCounts
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.exchange import Exchange
from fedfactor.network.message_format import Head, read_head

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


def question(head: Head) -> str:
    """Return a name for a question: the sum of a survey has the number of the first sum of a step."""
    return f"{'survey ' if head.kind == 'sum' and head.session == 1 else ''}{head.kind} {head.index}"


class Deaths:
    """Kills this process at the moments of a role.

    Parameters
    ----------
    plans : Path
        Folder with a file for each moment.
    role : str
    """

    def __init__(self, plans: Path, role: str) -> None:
        self._plans = plans
        self._role = role
        self.question = ""

    def reach(self, place: str) -> None:
        """Die here if that was planned."""
        plan = self._plans / f"{self._role} {self.question} {place}"
        try:
            plan.rename(plan.with_name(f"done {plan.name}"))
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str, before: str = "", after: str = "") -> None:
        """Die before a function is called, or when it has returned."""
        inner = getattr(owner, name)

        def wrapped(*args: Any, **more: Any) -> Any:
            if before:
                self.reach(before)
            found = inner(*args, **more)
            if after:
                self.reach(after)
            return found

        setattr(owner, name, wrapped)


def take_part(toml: Path, name: str, plans: Path) -> None:
    """Be a party until the process ends."""
    deaths = Deaths(plans, name)
    answer = RemoteClient.answer

    def noted(self: RemoteClient, data: bytes) -> bytes:
        deaths.question = question(read_head(data))
        deaths.reach("received")
        found = answer(self, data)
        deaths.reach("answered")
        return found

    RemoteClient.answer = noted
    deaths.around(AnsweredCounts, "count", after="counted")
    deaths.around(RemoteClient, "admit", after="paid")
    deaths.around(ClientFolder, "save", before="saving", after="saved")
    folder = toml.parent / name
    Member(toml, toml.parent / f"{name}.key", folder).join(ClientFolder(folder))


def coordinate(toml: Path, plans: Path) -> None:
    """Be the coordinator until the run has ended."""
    deaths = Deaths(plans, "coordinator")
    ask = Exchange.ask

    def noted(self: Exchange, head: Head, *args: Any, **more: Any) -> Any:
        deaths.question = question(head)
        deaths.reach("asking")
        found = ask(self, head, *args, **more)
        deaths.reach("asked")
        return found

    Exchange.ask = noted
    deaths.around(secure_aggregation, "write_atomic", before="keeping tags", after="tags kept")
    deaths.around(Rounds, "_served", before="server step", after="server step taken")
    deaths.around(Checkpoint, "save", before="saving", after="saved")
    write = server.write_atomic

    def written(path: Path, *args: Any) -> None:
        write(path, *args)
        deaths.reach(f"{path.name} written")

    server.write_atomic = written
    place = Coordinator(toml)
    place.serve()
    try:
        if not ended(place.folder):
            place.start()
            place.wait(600.0)
    finally:
        place.close()


def ended(folder: Path) -> bool:
    """Return whether a run's result is there, with every party's score."""
    file = folder / "result" / "run.json"
    return file.exists() and set(read_json(file)["finished"]) == set(read_json(file)["clients"])


def survive(roles: Mapping[str, Callable[[], Any]], seconds: float) -> Counter[str]:
    """Run processes until the coordinator ends in order, and start each again that was killed; count the kills."""
    running = {name: start() for name, start in roles.items()}
    kills: Counter[str] = Counter()
    end = time.monotonic() + seconds
    try:
        while running["coordinator"].exitcode != 0:
            if time.monotonic() > end:
                raise TimeoutError(f"The run did not end in {seconds:g} s; kills: {kills}.")
            for name, child in running.items():
                if child.exitcode not in (None, 0):
                    assert child.exitcode == -signal.SIGKILL, (name, child.exitcode)
                    kills[name] += 1
                    running[name] = roles[name]()
            time.sleep(0.02)
    finally:
        for child in running.values():
            child.kill()
            child.join()
    return kills


def process(target: Callable[..., None], *args: Any) -> Any:
    """Start a process."""
    made = PROCESSES.Process(target=target, args=args, daemon=True)
    made.start()
    return made
