"""A coordinator that lies gets no answer to a question of its own, with every method whose uploads are sums.

Each attack drives the code of real parties (``RemoteClient.answer``) through the coordinator's own relay. Without a
colluding party a coordinator tries: a chosen question, in the first round and in the second; another question under a
label that was answered; runs that alternate, and runs side by side, for more questions than the limits of the terms; a
false total; different totals for different parties; a sum that one party is left out of; and a checkpoint that
was changed. Every lie is refused, every answer that was given belongs to the honest run, and the limits hold.

Parties without the check answer the same chosen question, so the attack is a real one. What no check can refuse is
measured beside it: where a party joins under new terms (``fedfactor federation next``), the difference of the first
totals of the two versions is the newcomer's upload.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.errors import FedfactorError
from fedfactor.core.pytree import leaves, to_numpy, tree_map
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.engines.checkpoint import Checkpoint, Snapshot
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.exchange import Arrival
from fedfactor.network.message_format import read_head, seal
from fedfactor.network.replica import Replica
from fedfactor.network.server import Server
from fedfactor.network.verified_messages import octets
from fedfactor.network.waiting_rules import WaitingRules

ROUNDS = 2
LIMITS = (2, 2 * ROUNDS, "")
"""Runs and rounds that the terms allow in the attacks that alternate between runs."""

RULES = WaitingRules(minimum=3, dropouts="wait", deadline=60.0, gather=60.0, resend=20.0)

Forge = Callable[[str, bytes], bytes]


class Stop(Exception):
    """The coordinator puts a run aside."""


class World:
    """A federation with a coordinator that may forge what it sends."""

    def __init__(self, folder: Path, algorithm: Any, rows: Any, **more: Any) -> None:
        from tests.network.in_process import Office

        third = len(rows) // 3
        self.owners = {"north": rows[:third], "south": rows[third : 2 * third], "west": rows[2 * third :]}
        about = {"protect": "secure-sum", "report_score": False, **more}
        self.office = Office(folder, algorithm, self.owners, rounds=ROUNDS, **about)
        self.transport = self.office.post
        self.folder = folder

    def server(self, name: str = "server", transport: Any = None) -> Server:
        """Return a coordinator with a folder, and so with a run, of its own."""
        clock = self.office.clock
        where = self.folder / name
        through = transport or self.transport
        return Server(where, self.office.agreement, RULES, through, clock=clock, sleep=clock.sleep)

    def answers(self) -> dict[str, dict[tuple[str, int], set[str]]]:
        """Return what each party sent for each step of each run."""
        found: dict[str, dict[tuple[str, int], set[str]]] = {}
        for name in self.owners:
            sent = found[name] = defaultdict(set)
            for line in ClientFolder(self.folder / name).sent():
                if line["kind"] == "step" and "reason" not in line:
                    sent[line["run"], line["index"]].add(line["sha256"])
        return found

    def steps(self) -> int:
        """Count the different answers to steps that any party gave at most."""
        return max(sum(map(len, sent.values())) for sent in self.answers().values())


def bent(leaf: Any) -> Any:
    """Change a part of a question by far more than rounding could."""
    array = to_numpy(leaf)
    if array.dtype == bool:
        return ~array
    if array.dtype.kind in "iu":
        return array + array.dtype.type(1)
    return (array * 1.001 + 1e-3 * max(1.0, float(np.abs(array).max(initial=0.0)))).astype(array.dtype)


def altered(data: bytes) -> bytes:
    """Ask something else under the same head."""
    question = from_bytes(data)
    down = tree_map(bent, from_bytes(question.down.tobytes()))
    return seal(read_head(data), replace(question, down=octets(to_bytes(down))))


def lies(world: World, forge: Forge, server: Server | None = None) -> bool:
    """Let a coordinator lie; return whether its run ended for it."""
    world.transport.forge = forge
    try:
        (server or world.server()).run()
    except FedfactorError:
        return True
    finally:
        world.transport.forge = None
    return False


def chosen(world: World, index: int, whom: str = "") -> dict[str, Any]:
    """Ask a question of the coordinator's own in some round, of all parties or of one."""
    seen: list[str] = []

    def forge(name: str, data: bytes) -> bytes:
        head = read_head(data)
        if (head.kind, head.index) != ("step", index) or whom not in ("", name):
            return data
        seen.append(name)
        return altered(data)

    ended = lies(world, forge)
    if not seen:
        return {"refused": True, "answered": 0, "tried": False}
    lied_to = [whom] if whom else list(world.owners)
    answered = sum(
        len(world.answers()[name].get((key[0], index), ())) for name in lied_to for key in _runs(world, name)
    )
    return {"refused": ended and not answered, "answered": answered, "tried": True}


def _runs(world: World, name: str) -> set[tuple[str]]:
    return {(run,) for run, _ in world.answers()[name]} or {("",)}


def repeated(world: World) -> dict[str, Any]:
    """Ask a party something else under the label of a question that it answered, and the same question again."""
    asked: dict[str, bytes] = {}
    first: dict[str, bytes] = {}
    found: list[bool] = []

    def tamper(name: str, answer: bytes) -> list[Arrival]:
        head = read_head(answer)
        if (head.kind, head.index) == ("step", 0):
            first[name] = answer
        return [Arrival(name, answer)]

    def forge(name: str, data: bytes) -> bytes:
        head = read_head(data)
        if (head.kind, head.index) == ("step", 0):
            asked[name] = data
        elif (head.kind, head.index, head.session) == ("sum", 0, 2) and name in asked:
            clerk = world.office.clerks[name]
            other = read_head(clerk.answer(altered(asked[name])))
            found.append(other.kind == "refusal" and clerk.answer(asked[name]) == first[name])
        return data

    world.transport.tamper = tamper
    lies(world, forge)
    most = max((len(sent) for kept in world.answers().values() for sent in kept.values()), default=0)
    return {"refused": bool(found) and all(found) and most == 1, "answers_to_one_label": most}


def alternating(world: World) -> dict[str, Any]:
    """Put runs aside after each step and turn to the other one, for more questions than the limits allow."""
    for turn in range(6):
        server = world.server(f"server {turn % 3}")
        with contextlib.suppress(Stop):
            lies(world, _stop_after_step(), server)
    return _within_limits(world)


def _stop_after_step() -> Forge:
    steps: list[str] = []

    def forge(name: str, data: bytes) -> bytes:
        head = read_head(data)
        if head.kind == "step":
            steps.append(name)
        if head.kind in ("step", "end") and len(steps) > 3:
            raise Stop
        return data

    return forge


def side_by_side(world: World) -> dict[str, Any]:
    """Run three runs at once against the same parties."""
    from tests.network.in_process import AnyFolder, InProcessTransport, RemoteClient

    def drive(number: int) -> None:
        clerks = {name: RemoteClient(AnyFolder(world.folder / name)) for name in world.owners}
        with contextlib.suppress(FedfactorError):
            world.server(f"server {number}", InProcessTransport(clerks)).run()

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _within_limits(world)


def _within_limits(world: World) -> dict[str, Any]:
    sent = world.answers()
    runs = max(len({run for run, _ in kept}) for kept in sent.values())
    most = max((len(answers) for kept in sent.values() for answers in kept.values()), default=0)
    steps = world.steps()
    right = runs <= LIMITS[0] and steps <= LIMITS[1] and most <= 1
    return {"refused": right, "runs": runs, "steps": steps, "answers_to_one_label": most}


def false_total(world: World, whom: str = "") -> dict[str, Any]:
    """Show a total that the uploads do not have, to all parties or to one; nothing is answered afterwards."""

    def forge(name: str, data: bytes) -> bytes:
        head = read_head(data)
        if (head.kind, head.index, head.session) != ("sum", 0, 2) or whom not in ("", name):
            return data
        shown = from_bytes(data)
        words = shown.words.copy()
        words[0] += np.uint64(1)
        return seal(head, replace(shown, words=words))

    ended = lies(world, forge)
    return {"refused": ended and world.steps() <= 1, "steps": world.steps()}


def left_out(world: World) -> dict[str, Any]:
    """Ask for a sum of fewer parties than agreed."""

    def forge(name: str, data: bytes) -> bytes:
        head = read_head(data)
        return seal(replace(head, participants=("north", "south")), from_bytes(data)) if head.kind == "step" else data

    return {"refused": lies(world, forge) and not world.steps(), "steps": world.steps()}


def tampered_checkpoint(world: World) -> dict[str, Any]:
    """Change the coordinator's checkpoint after the first round, and go on from it."""
    server = world.server()
    with contextlib.suppress(Stop):
        lies(world, _stop_after_step(), server)
    kept = Checkpoint(world.folder / "server" / "checkpoint")
    if not kept.file.exists() or not (snapshot := Snapshot.from_bytes(kept.file.read_bytes())).next_round:
        return {"refused": True, "tried": False}
    if snapshot.ended:
        return {"refused": True, "tried": False}
    down = tree_map(bent, snapshot.down)
    kept.save(replace(snapshot, down=down))
    before = world.steps()
    ended = lies(world, lambda name, data: data)
    return {"refused": ended and world.steps() == before, "steps": world.steps() - before}


def versions(folder: Path) -> dict[str, Any]:
    """Compare the first totals of a federation and of its next version, which a party joined under new terms."""
    from tests.network.test_chosen_questions import BINARY, NMF, Liar

    thirds = len(BINARY) // 3
    totals = []
    for number, rows in enumerate((BINARY, BINARY[: 2 * thirds])):
        liar = Liar(folder / str(number), NMF, rows, 2)
        _, down = liar.server.algorithm.init_server(liar.server.meta, _first())
        totals.append(liar.ask(down))
    whole, part = (dict(leaves(total)) for total in totals)
    newcomer = Liar(folder / "alone", NMF, BINARY[2 * thirds :], 2)
    alone = dict(leaves(newcomer.ask(newcomer.server.algorithm.init_server(newcomer.server.meta, _first())[1])))
    scale = float(np.abs(alone["A"]).max())
    return {"newcomer_read_to": float(np.abs(whole["A"] - part["A"] - alone["A"]).max()) / scale}


def unchecked(folder: Path) -> int:
    """Count the answers to a chosen question of parties that believe any question."""
    from tests.network.test_replica import METHODS

    def believe(self: Replica, *parts: Any) -> tuple[Any, Any, str]:
        return None, parts[-1], ""

    kept = {name: getattr(Replica, name) for name in ("first", "following", "last")}
    try:
        for name in kept:
            setattr(Replica, name, believe)
        return chosen(World(folder, *METHODS["penalties"]), 0)["answered"]
    finally:
        for name, method in kept.items():
            setattr(Replica, name, method)


def _first() -> Any:
    from fedfactor.core.algorithm import Round

    return Round(5, 0)


ATTACKS: dict[str, tuple[Callable[[World], dict[str, Any]], dict[str, Any]]] = {
    "chosen question, round 0": (lambda world: chosen(world, 0), {}),
    "chosen question, round 1": (lambda world: chosen(world, 1), {}),
    "chosen question for one party": (lambda world: chosen(world, 1, "west"), {}),
    "repeated question": (repeated, {}),
    "alternating runs": (alternating, {"limits": LIMITS}),
    "parallel runs": (side_by_side, {"limits": LIMITS}),
    "false total": (false_total, {}),
    "split totals": (lambda world: false_total(world, "west"), {}),
    "one party left out": (left_out, {}),
    "tampered checkpoint": (tampered_checkpoint, {}),
}


def attacked(names: Iterator[str] | list[str]) -> dict[str, dict[str, Any]]:
    """Run all attacks against these methods."""
    from tests.network.test_replica import METHODS

    found: dict[str, dict[str, Any]] = {}
    for name in names:
        algorithm, rows = METHODS[name]
        found[name] = {}
        for title, (attack, more) in ATTACKS.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name][title] = attack(World(Path(folder), algorithm, rows, **more))
    return found


def claim() -> dict[str, Any]:
    from tests.network.test_replica import METHODS

    found = attacked(list(METHODS))
    answered = {
        f"{name}: {title}": about
        for name, attacks in found.items()
        for title, about in attacks.items()
        if not about["refused"]
    }
    tried = {title: sum(attacks[title].get("tried", True) for attacks in found.values()) for title in ATTACKS}
    with tempfile.TemporaryDirectory() as folder:
        measured = {**versions(Path(folder)), "answers_without_the_check": unchecked(Path(folder) / "unchecked")}
    return {
        "methods": len(found),
        "attacks": len(ATTACKS),
        "methods_tried": tried,
        "answered": answered,
        **measured,
        "holds": not answered
        and measured["answers_without_the_check"] > 0
        and all(number > len(found) // 2 for number in tried.values()),
    }
