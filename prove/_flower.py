"""Real federations on this machine for claims and tests: start, disturb, compare with the local engine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import fedfactor
from fedfactor.core.federation import Federation
from fedfactor.core.protocol import LocalFactors
from fedfactor.core.run import Run
from fedfactor.core.tree import leaves
from fedfactor.core.wire import from_bytes
from fedfactor.federation.trial import Trial

PARTIES = ("north", "south", "west")


def write_rows(
    folder: Path, *, binary: bool = False, columns: int = 12, rows: int = 40, seed: int = 0
) -> dict[str, Path]:
    """Write small rows for three parties."""
    rng = np.random.default_rng(seed)
    V = rng.gamma(0.6, 1.0, (4, columns))
    features = [f"feature {j}" for j in range(columns)]
    files = {}
    for size, name in enumerate(PARTIES):
        X = rng.gamma(0.5, 1.0, (rows + 5 * size, 4)) @ V + 0.05 * rng.random((rows + 5 * size, columns))
        files[name] = folder / f"{name}.npz"
        np.savez(files[name], X=(X > np.median(X)).astype(float) if binary else X, features=features)
    return files


def terms(algorithm: str, rounds: int, policy: Mapping[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """Say what differs from the usual terms."""
    times = {"deadline": 240, "gather": 240, "resend": 30}
    return {
        "algorithm": {"name": algorithm, "n_components": 3, **settings},
        "run": {"rounds": rounds, "seed": 5},
        "privacy": {"minimum_rows": 5},
        "policy": {**times, **(policy or {})},
    }


def local(files: Mapping[str, Path], trial: Trial) -> Run:
    """Run the same on the local engine."""
    owners = {name: np.load(file)["X"] for name, file in files.items()}
    engine = fedfactor.LocalEngine(workers=len(os.sched_getaffinity(0)))  # one thread per product, as at the parties
    run = trial.terms.content["run"]
    return fedfactor.run(
        trial.terms.algorithm(), Federation(owners), rounds=run["rounds"], seed=run["seed"], engine=engine
    )


def factors(trial: Trial) -> dict[str, LocalFactors]:
    """Read what each party took home."""
    trial.terms.algorithm()
    return {
        name: from_bytes((trial.folder(name) / "result" / "factors.safetensors").read_bytes())["factors"]
        for name in trial.files
    }


def largest_difference(found: Mapping[str, LocalFactors], run: Run) -> float:
    """Compare all factors of all parties; 0.0 means the same bits."""
    worst = 0.0
    for name, kept in found.items():
        reference = dict(leaves(run.factors[name]))
        mine = dict(leaves(kept))
        assert mine.keys() == reference.keys()
        for path, leaf in mine.items():
            if not np.array_equal(leaf, reference[path]):
                worst = max(worst, float(np.abs(leaf - reference[path]).max()))
    return worst


def kill_family(pid: int) -> None:
    """SIGKILL one process of ours and all that it started, as when its machine dies."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(family, timeout=10)


def kill_member(trial: Trial, name: str) -> None:
    """SIGKILL a party's processes."""
    child = trial.members[name]
    kill_family(child.pid)
    child.wait()


def kill_server(trial: Trial) -> None:
    """SIGKILL the SuperLink, and the server app with it."""
    child = trial.coordinator.child
    assert child is not None
    kill_family(child.pid)
    child.wait()
    trial.coordinator.child = None


def wait_for_round(trial: Trial, number: int, patience: float = 240.0) -> dict[str, Any]:
    """Wait until so many rounds are done."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        status = trial.coordinator.status()
        if status.get("round", 0) >= number or status["state"] in ("finished", "failed", "paused"):
            return status
        time.sleep(0.1)
    raise TimeoutError(f"round {number} did not come: {trial.coordinator.status()}")
