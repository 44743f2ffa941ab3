"""Attackers without a key (2,000 connections, 1,024 files) and with the key of a party neither fill nor stop a server.

Outsiders say nothing, say it letter by letter, or send large bodies; the holder of a key sends half requests, and slow,
oversized and compressed bodies. Meanwhile the three parties finish a run.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from claims import _flower as real
from fedfactor.federation.trial import Trial

CONNECTIONS, BY_KEY, SECONDS, FILES = 2000, 200, 600.0, 1024  # they are ended when the run is
GROWTH = 60
"""Megabytes by which the server may grow."""


def memory(pid: int) -> float:
    """Return the megabytes that the process that serves holds."""
    return psutil.Process(pid).memory_info().rss / 1e6


def attack(trial: Trial, connections: int, seconds: float, said: Path, *key: str) -> subprocess.Popen[bytes]:
    """Let attackers come, in a process of their own with files enough."""
    command = [sys.executable, "-m", "claims._outsiders", "127.0.0.1", str(trial.coordinator.port),
               str(connections), str(seconds), *key]  # fmt: skip
    many = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))  # noqa: E731
    with said.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, preexec_fn=many)


def besiege(trial: Trial, connections: int, by_key: int, seconds: float) -> dict[str, Any]:
    """Run once in peace and once besieged; return the memory of the server before, and at its highest."""
    assert trial.server is not None
    pid = trial.server.pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (FILES, FILES))
    for name in trial.files:
        trial.join(name)
    trial.coordinator.start()
    trial.coordinator.wait(300)
    before, peak, files, done = memory(pid), 0.0, 0, threading.Event()

    def watch() -> None:
        nonlocal peak, files
        while not done.wait(0.1):
            peak = max(peak, memory(pid))
            files = max(files, psutil.Process(pid).num_fds())

    threading.Thread(target=watch, daemon=True).start()
    logs = [trial.root / "outsiders.log", trial.root / "by_key.log"]
    key = (str(trial.root / "west.key"), trial.terms.fingerprint)
    attackers = [attack(trial, connections, seconds, logs[0]), attack(trial, by_key, seconds, logs[1], *key)]
    try:
        time.sleep(20.0)
        began = time.monotonic()
        trial.coordinator.start(again=True, sure=True)
        ended = trial.coordinator.wait(300)
        took = time.monotonic() - began
        besieged = all(attacker.poll() is None for attacker in attackers)
        time.sleep(max(0.0, 20 - took))  # slow ones need their time to fill anything
    finally:
        for attacker in attackers:
            attacker.kill()
            attacker.wait()
        done.set()
    counts = [[json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")] for log in logs]
    return {
        "connections": connections,
        "most_open_outside": max(line["open"] for line in counts[0]),
        "came_outside": counts[0][-1]["came"],
        "came_by_key": counts[1][-1]["came"],
        "sent_by_key_mb": round(counts[1][-1]["sent"] / 1e6),
        "server_mb_before": round(before),
        "server_mb_peak": round(peak),
        "most_files": files,
        "run_besieged": ended["state"],
        "reason": ended.get("reason", ""),
        "seconds_besieged": round(took, 1),
        "still_besieged_at_its_end": besieged,
        "rounds": ended["round"],
    }


def claim() -> dict[str, Any]:
    """Besiege a real server on this machine while three parties work."""
    with tempfile.TemporaryDirectory() as folder:
        files = real.write_rows(Path(folder))
        with Trial(Path(folder) / "trial", files, real.terms("PooledNMF", 4, tol=0.0)) as trial:
            found = besiege(trial, CONNECTIONS, BY_KEY, SECONDS)
    holds = (
        found["server_mb_peak"] - found["server_mb_before"] <= GROWTH
        and found["run_besieged"] == "finished"
        and found["still_besieged_at_its_end"]
        and found["came_outside"] >= CONNECTIONS
        and found["came_by_key"] >= BY_KEY
    )
    return {**found, "holds": bool(holds)}
