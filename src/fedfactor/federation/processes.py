"""Flower's processes as children of ours: their environment, their logs, and how they are ended."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from fedfactor.core.errors import FedfactorError, MissingExtraError
from fedfactor.federation.logs import pump


class ChildError(FedfactorError, RuntimeError):
    """A process of Flower did not start, or ended by itself; its log says why."""


def need_flower() -> None:
    """Say how to install Flower when it is not there."""
    if find_spec("flwr") is None:
        raise MissingExtraError.named("flwr", "flower", "A federation across machines")


def quiet_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Copy the environment; no telemetry and no look for updates, unless the user turned them on."""
    here = os.path.dirname(sys.executable)
    environment = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", **os.environ, **extra}
    # Flower starts its own commands by name: they must be those of this very installation.
    environment["PATH"] = here + os.pathsep + environment.get("PATH", "")
    environment["NO_PROXY"] = environment["no_proxy"] = without_proxy()
    return environment


def without_proxy() -> str:
    """Name the hosts that no proxy may come between: this machine speaks to itself."""
    known = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    return ",".join(dict.fromkeys([*filter(None, known.split(",")), "127.0.0.1", "localhost", "::1"]))


def start(command: Sequence[str], log: Path, extra: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a child whose words go to a log that only its owner may read, each line with its time."""
    child = subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=quiet_environment(extra),
    )  # fmt: skip
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
    """Find a port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(host: str, port: int) -> bool:
    """Tell whether a server of this machine could listen there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE  # what else is wrong, the server itself will say
    return True


def tail(log: Path, lines: int = 12) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
