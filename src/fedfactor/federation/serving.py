"""The process that serves a federation: the HTTPS server in one thread, and the runs that are ordered in another."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfactor.core.atomic_files import read_json, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.engines.checkpoint import environment
from fedfactor.federation.processes import ChildError, PassingError
from fedfactor.network.client_storage import Agreement
from fedfactor.network.coordinator_journal import Journal
from fedfactor.network.exchange import NotEnough
from fedfactor.network.server import ENDED, AbandonedError, Server
from fedfactor.network.waiting_rules import WaitingRules

if TYPE_CHECKING:
    from fedfactor.federation.coordinator import Coordinator

logger = logging.getLogger("fedfactor")

LEAST_ROOM = 8 << 20
"""Bytes on the disk of a served folder below which nothing works any more: checkpoints, status, logs."""

LOOK = 0.1
"""Seconds between two looks for an order."""

PATIENCE = 10.0
"""Seconds that a run gets to stop when the server ends."""


class Registered:
    """The parties' keys and the terms that are served, from ``server.json``, read again when the file changes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen = -1
        self._names: dict[str, str] = {}
        self._terms = ""
        self._versions = environment(1)

    def _read(self) -> None:
        from fedfactor.network.https.identity import digest_of_pem

        changed = self._file.stat().st_mtime_ns
        if changed == self._seen:
            return
        about: dict[str, Any] = json.loads(self._file.read_bytes())
        self._names = {digest_of_pem(pem.encode()): name for name, pem in about["keys"].items()}
        self._terms = about["terms"]
        self._seen = changed

    def parties(self) -> Mapping[str, str]:
        """Return the name of each registered key, by the digest of the key."""
        self._read()
        return self._names

    def served(self) -> Mapping[str, Any]:
        """Return the terms that are served, and the versions of packages that decide the bits of a run."""
        self._read()
        return {"terms": self._terms, "versions": self._versions}


class Serving:
    """Serves a coordinator's folder until it is closed.

    Parameters
    ----------
    place : Coordinator
    listen : str
        HOST:PORT where to listen; empty means the port of the terms' address, at this machine alone when that address
        is one of it alone, and else at all its addresses.
    authorities : tuple of path
        Authorities of organisations whose certificates are accepted for registered keys, too.
    """

    def __init__(self, place: Coordinator, listen: str, authorities: tuple[Path, ...]) -> None:
        from fedfactor.federation.coordinator import AGREED
        from fedfactor.network.https.identity import server_context
        from fedfactor.network.https.party_queues import PartyQueues
        from fedfactor.network.https.server import HttpsServer

        self._place = place
        self._folder = place.folder
        keys: dict[str, str] = read_json(self._folder / "server.json")["keys"]
        registered = Registered(self._folder / "server.json")
        context = server_context(
            self._folder / "server.pem",
            self._folder / "server.key",
            [key.encode() for key in keys.values()],
            authorities,
        )
        host, port = where_to_listen(listen, place.terms.address)
        sockets = _open(host, port)
        self.where = f"{'[::]' if not host else f'[{host}]' if ':' in host else host}:{sockets[0].getsockname()[1]}"
        self.queues = PartyQueues(lambda: registered.parties().values())
        agreed = self._folder / AGREED
        self._server = HttpsServer(
            self.queues, registered.parties, registered.served, context, agreement=agreed.read_bytes
        )
        self._server.start(sockets)
        self._ended = threading.Event()
        self._worker = threading.Thread(target=self._work, name="fedfactor-runs", daemon=True)
        self._worker.start()

    def check(self) -> None:
        """Raise when parties cannot be served any more."""
        if self._server.failure is not None:
            raise PassingError(f"The server ended: {self._server.failure}. See {self._place.log}.")
        free = shutil.disk_usage(self._folder).free
        if free < LEAST_ROOM:
            raise PassingError(
                f"The server ends: only {free >> 10} kB are free at {self._folder}. Make room, and start fedfactor "
                "serve again; what was reached is kept."
            )

    def close(self) -> None:
        """End: interrupt a run that goes on, and close all connections."""
        self._ended.set()
        self._server.close()
        self._worker.join(PATIENCE)

    # ---------------------------------------------------------------------------------------------------------- orders
    def _work(self) -> None:
        from fedfactor.federation.coordinator import ORDER

        order = self._folder / ORDER
        while not self._ended.wait(LOOK):
            if not order.exists():
                continue
            order.unlink()
            try:
                self._run()
            except SystemExit:  # the server ends
                return
            finally:
                self.queues.rest()

    def _run(self) -> None:
        """Run, or resume a run; how it ended is in its status and in the journal."""
        try:
            about = read_json(self._folder / "server.json")
            server = Server(self._folder, Agreement.read(self._folder), WaitingRules(**about["policy"]), self.queues)
        except Exception as error:  # it could not begin: no other party would say so
            status = {**self._place.status(), "state": "failed", "reason": f"{type(error).__name__}: {error}"}
            write_atomic(self._folder / "status.json", json.dumps({**status, "time": time.time()}).encode())
            logger.error("The run could not begin: %s", error, exc_info=error)
            return
        try:
            journalled(server)
        except (NotEnough, AbandonedError):
            pass  # in the status
        except Exception as error:
            logger.error("The run failed: %s", error, exc_info=error)


def journalled(server: Server) -> None:
    """Run, and record at the coordinator that it began and how it ended, in the words of its status."""
    journal = Journal(server.folder)
    kept = server.folder / "checkpoint" / "run.safetensors"
    journal.write("run goes on" if kept.exists() else "run begun", run=server.run_id)
    abandoned = False
    try:
        server.run()
    except AbandonedError:  # the command that abandons a run records that
        abandoned = True
        raise
    finally:
        if not abandoned:
            about = read_json(server.folder / "status.json")
            state = about["state"] if about["state"] in ENDED else "interrupted"
            journal.write(f"run {state}", run=server.run_id, round=about["round"], reason=about.get("reason", ""))


def where_to_listen(listen: str, public: tuple[str, int]) -> tuple[str, int]:
    """Return host and port at which to listen; an empty host means all addresses of this machine.

    Examples
    --------
    >>> where_to_listen("", ("fed.example.org", 443))
    ('', 443)
    >>> where_to_listen("[::1]:8443", ("fed.example.org", 443))
    ('::1', 8443)
    >>> where_to_listen(":8443", ("fed.example.org", 443))
    ('', 8443)
    """
    if not listen:
        host, port = public
        return (host if host in ("127.0.0.1", "localhost", "::1") else ""), port
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal() or int(port) >= 1 << 16 or (":" in host and not listen.startswith("[")):
        raise DataError(f"--listen {listen!r} must be HOST:PORT, [IPv6]:PORT, or :PORT for all addresses.")
    return ("" if host in ("*", "0.0.0.0", "::") else host), int(port)


def _open(host: str, port: int) -> list[socket.socket]:
    from fedfactor.network.https.connection_limits import listen

    try:
        return listen(host, port)
    except OSError as error:
        remedies = {
            errno.EADDRINUSE: "Another program listens there. End it, or choose another port with --listen HOST:PORT.",
            errno.EACCES: "Ports below 1024 need CAP_NET_BIND_SERVICE. Or listen on a higher port with --listen, and "
            "forward the public one.",
            errno.EADDRNOTAVAIL: "That address is not one of this machine. Give one with --listen HOST:PORT.",
        }
        remedy = remedies.get(error.errno or 0, "Give another address with --listen HOST:PORT.")
        kind = ChildError if error.errno == errno.EACCES else PassingError
        raise kind(f"The server cannot listen on {host or '*'}:{port} ({error.strerror}). {remedy}") from None
