"""Outsiders without a key (2,000 connections, 1,024 files) neither fill the server's memory nor deafen it."""

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

CONNECTIONS, SECONDS, FILES = 2000, 600.0, 1024  # they are ended when the run is


def memory(pid: int) -> float:
    """Return the megabytes that the SuperLink itself holds."""
    return psutil.Process(pid).memory_info().rss / 1e6


def attack(trial: Trial, connections: int, seconds: float, said: Path) -> subprocess.Popen[bytes]:
    """Let outsiders come, in a process of their own with files enough."""
    command = [sys.executable, "-m", "claims._outsiders", "127.0.0.1", str(trial.coordinator.port),
               str(connections), str(seconds)]  # fmt: skip
    many = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))  # noqa: E731
    with said.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, preexec_fn=many)


def besiege(trial: Trial, connections: int, seconds: float) -> dict[str, Any]:
    """Run once in peace and once besieged; tell the memory of the server before and at its highest."""
    child = trial.coordinator.child
    assert child is not None
    resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
    for name in trial.files:
        trial.join(name)
    trial.coordinator.start()
    trial.coordinator.wait(300)
    before, peak, files, done = memory(child.pid), 0.0, 0, threading.Event()

    def watch() -> None:
        nonlocal peak, files
        while not done.wait(0.1):
            peak = max(peak, memory(child.pid))
            files = max(files, psutil.Process(child.pid).num_fds())

    threading.Thread(target=watch, daemon=True).start()
    said = trial.root / "outsiders.log"
    outside = attack(trial, connections, seconds, said)
    try:
        time.sleep(20.0)
        began = time.monotonic()
        trial.coordinator.start(again=True, sure=True)
        ended = trial.coordinator.wait(300)
        took = time.monotonic() - began
        besieged = outside.poll() is None
        while time.monotonic() - began < 20 and outside.poll() is None:
            time.sleep(0.5)  # slow ones need their time to fill anything
    finally:
        outside.kill()
        outside.wait()
        done.set()
    counts = [json.loads(line) for line in said.read_text().splitlines() if line.startswith("{")]
    return {
        "connections": connections,
        "most_open_outside": max(line["open"] for line in counts),
        "opened_outside": counts[-1]["opened"],
        "server_mb_before": round(before),
        "server_mb_peak": round(peak),
        "most_files": files,
        "run_besieged": ended["state"],
        "seconds_besieged": round(took, 1),
        "still_besieged_at_its_end": besieged,
        "rounds": ended["round"],
    }


def claim() -> dict[str, Any]:
    """Besiege a real SuperLink on this machine while three parties work."""
    with tempfile.TemporaryDirectory() as folder:
        files = real.write_rows(Path(folder))
        with Trial(Path(folder) / "trial", files, real.terms("PooledNMF", 4, tol=0.0)) as trial:
            found = besiege(trial, CONNECTIONS, SECONDS)
    holds = (
        found["server_mb_peak"] - found["server_mb_before"] <= 100
        and found["run_besieged"] == "finished"
        and found["still_besieged_at_its_end"]
        and found["opened_outside"] >= CONNECTIONS
    )
    return {**found, "holds": bool(holds)}
