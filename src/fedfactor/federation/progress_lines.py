"""What happens, as lines for people: the run as its party sees it, and as the coordinator does.

Both read files that are written anyway, so that a terminal, a page in a browser and a log report the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfactor.core.printable_text import printable
from fedfactor.core.run import STATUS
from fedfactor.federation.connectivity import Connection
from fedfactor.federation.logs import Event
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.server import ENDED

if TYPE_CHECKING:
    from fedfactor.federation.coordinator import Coordinator

PASSING = 10.0
"""Seconds for which requests may be lost before that is spoken of: a busy network loses some."""

APART = "under other terms"
"""Stands in the place of when a party last came, while it asks under other terms than those that are served."""


def away_words(since: str) -> str:
    """Return what is known of a party that is not connected.

    Examples
    --------
    >>> away_words("2030-01-02 03:04:05 UTC")
    'last came 2030-01-02 03:04:05 UTC'
    """
    if since == APART:
        return "asks under other terms: it is shown what changed, and consents with fedfactor accept FOLDER"
    return f"last came {since[:19]} UTC" if since else "never came"


class PartyWatch:
    """Reports what is new at a party: whether it is connected, and what it answered.

    Parameters
    ----------
    store : ClientFolder
        The party's folder.
    where : str
        The server's address.
    """

    def __init__(self, store: ClientFolder, where: str) -> None:
        self._store = store
        self._where = where
        self._file = store.folder / "sent.jsonl"
        self._read = self._file.read_bytes().rfind(b"\n") + 1 if self._file.exists() else 0
        self._said = ""
        self._begun = ""
        self._round = ""
        self._bytes = 0
        self._about: dict[str, Any] = {}

    def news(self) -> list[str]:
        """Return one line for each thing that happened since the last call."""
        return [*self._state(), *(line for sent in self._sent() for line in self._words(sent) if line)]

    def _state(self) -> list[str]:
        """Return whether the party is connected when that changed; a single request that was lost is no change."""
        now = Connection.of(self._store.folder)
        if now is None:
            return []
        state = now.words(self._where)
        before = self._said
        good = not state.startswith("NOT")
        was_good = before.startswith("connected")
        passing = was_good and not good and now.time - now.since < PASSING
        if passing or (good and was_good) or state == before:
            return []
        self._said = state
        event = "connected" if good else "disconnected"
        return [self._event(state[0].upper() + state[1:] + ".", event, "info" if good else "warning")]

    def _event(self, text: str, event: str, level: str = "info", **fields: Any) -> Event:
        return Event(text, event, level, party=self._store.agreement.name, **fields)

    def _sent(self) -> list[dict[str, Any]]:
        if not self._file.exists() or self._file.stat().st_size <= self._read:
            return []
        with self._file.open("rb") as file:
            file.seek(self._read)
            whole, _, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + 1
        return [json.loads(line) for line in whole.splitlines()]

    def _words(self, sent: dict[str, Any]) -> list[str]:
        kind = sent["kind"]
        index = sent["index"]
        size = sent["bytes"]
        about: dict[str, Any] = {"run": sent["run"], "bytes": size}
        if kind == "refusal":
            text = f"REFUSED: {printable(sent.get('reason', ''))}. The server learns that you refuse, and not why."
            return [self._event(text, "refused", "warning", **about)]
        if kind == "sum":  # a message of secure aggregation that the last question began
            self._bytes += size
            return []
        before = self._summed()
        if kind == "end":
            text = f"Run {sent['run']} has ended; your result is here. {self._store.left()}"
            return [*before, self._event(text, "run ended", **about)]
        begun = self._begun
        self._begun = sent["run"]
        new = "" if begun == sent["run"] else f"Run {sent['run']} is going on. "
        if sent["again"]:
            text = f"{new}Asked for {kind} {index} again: the same {size} bytes."
            return [*before, self._event(text, "asked again", **about)]
        named = f"Round {index + 1} of {self._store.agreement.rounds}" if kind == "step" else f"Survey {index}"
        about["round"] = index + 1 if kind == "step" else None
        if not self._store.agreement.secure:
            return [self._event(f"{new}{named}: {size} bytes sent.", "round", **about)]
        self._round = named
        self._bytes = size
        self._about = about
        return [*before, self._event(new.strip(), "run begun", run=sent["run"]) if new else ""]

    def _summed(self) -> list[str]:
        """Return what a round with secure aggregation sent in all its messages: known when the next one begins."""
        text = f"{self._round}: {self._bytes} bytes sent."
        about: dict[str, Any] = {**self._about, "bytes": self._bytes}
        said: list[str] = []
        if self._round:
            said.append(self._event(text, "round", **about))
        self._round = ""
        self._bytes = 0
        return said


class ServerWatch:
    """Reports what is new at the coordinator: who is connected, rounds, refusals, the end."""

    def __init__(self, place: Coordinator) -> None:
        self._place = place
        self._there: set[str] = set()
        self._apart: set[str] = set()
        status = place.status()
        # How the last run ended was reported when it ended, and not again at each start of the server.
        ended = "run" in status and status["state"] in ENDED
        self._last: tuple[Any, ...] = _key(status) if ended else ()
        self._reasons: dict[str, str] = dict(status["reasons"]) if ended else {}

    def news(self) -> list[str]:
        """Return one line for each thing that happened since the last call."""
        return [*self._presence(), *self._run()]

    def _presence(self) -> list[str]:
        seen = self._place.presence()
        there = {name for name, (online, _) in seen.items() if online}
        apart = {name for name, (_, since) in seen.items() if since == APART}
        before = self._there
        self._there = there
        said: list[str] = [Event(f"{name} is connected.", "connected", party=name) for name in sorted(there - before)]
        for name in sorted(before - there):
            said.append(Event(f"{name} is no longer connected.", "disconnected", "warning", party=name))
        for name in sorted(apart - self._apart):
            said.append(Event(f"{name} {away_words(APART)}.", "other terms", "warning", party=name))
        self._apart = apart
        return said

    def _run(self) -> list[str]:
        status = self._place.status()
        said = list[str]()
        if "run" not in status:
            return []
        for name, why in status["reasons"].items():
            if self._reasons.get(name) != why:
                text = f"{name}: {printable(why).rstrip('.')}."
                said.append(Event(text, "party reason", "warning", party=name, run=status["run"]))
        self._reasons = dict(status["reasons"])
        if (key := _key(status)) != self._last:
            self._last = key
            said.append(run_event(status))
        return said


def _key(status: dict[str, Any]) -> tuple[Any, ...]:
    """Return what changes when there is something new about a run."""
    return status["run"], status["round"], status["state"] if status["state"] in ENDED else "running"


def run_event(status: dict[str, Any]) -> Event:
    """Return where a run stands as a line with fields: a round that was completed, or how the run ended."""
    state = status["state"]
    level = {"failed": "error", "paused": "warning", "interrupted": "warning"}.get(state, "info")
    event = f"run {state}" if state in ENDED else "round"
    return Event(
        run_words(status),
        event,
        level,
        run=status["run"],
        round=status["round"],
        rounds=status.get("rounds"),
        duration=status.get("seconds"),
        reason=status.get("reason"),
    )


def run_words(status: dict[str, Any]) -> str:
    """Return the state of a run in one line."""
    state = status["state"]
    if state in ENDED:
        reason = status.get("reason", "")
        why = f": {STATUS.get(reason, reason)}" if reason else ""
        return f"Run {status['run']} {state} after {status['round']} rounds{printable(why).rstrip('.')}."
    error = status["metrics"].get("relative_error")
    shown = f", error {error:.4f}" if isinstance(error, float) else ""
    took = f", {status['seconds']:.1f} s" if status.get("seconds") else ""
    who = f", with {', '.join(status['participants'])}" if status["participants"] else ""
    return f"Round {status['round']} of {status['rounds']}{who}{shown}{took}."


def is_locked(file: Path) -> bool:
    """Return whether a process holds a lock on a file."""
    import fcntl
    import os

    if not file.exists():
        return False
    handle = os.open(file, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
