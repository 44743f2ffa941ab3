"""Processes of federations as children of ours, for trials: their environment, their logs, and how they are ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from fedfactor.core.errors import FedfactorError, MissingExtraError
from fedfactor.federation.logs import pump


class ChildError(FedfactorError, RuntimeError):
    """A server or a party did not start, or ended by itself."""


class PassingError(ChildError):
    """What stands in the way may pass by itself: a port that is still held, a full disk, a run that takes longer."""

    passing = True


def need_federation() -> None:
    """Raise an error with the command that installs the transport, when it is missing."""
    for package in ("aiohttp", "httpx", "cryptography"):
        if find_spec(package) is None:
            raise MissingExtraError.named(package, "federation", "A federation across machines")


def start(command: Sequence[str], log: Path, extra: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a child whose words go to a log that only its owner may read, each line with its time."""
    child = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **extra},
    )
    assert child.stdout is not None
    carrier = threading.Thread(target=pump, args=(child.stdout, log), daemon=True)
    carrier.start()
    _carriers[child.pid] = carrier
    return child


_carriers: dict[int, threading.Thread] = {}
"""Who carries the words of which child."""


def heard(child: subprocess.Popen[bytes], patience: float = 2.0) -> None:
    """Wait until the last words of a child that ended are in its log."""
    if child.poll() is not None and child.pid in _carriers:
        _carriers[child.pid].join(patience)


def end(child: subprocess.Popen[bytes], patience: float = 10.0) -> None:
    """End one child, by its id: first politely."""
    if child.poll() is not None:
        return
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    try:
        child.wait(patience)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def free_port() -> int:
    """Find a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tail(log: Path, lines: int = 12) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
