"""Noise in a federation of five processes over TLS: as good as simulated, paid once whoever is killed, and refused.

PooledNMF, unit row, ε = 1 in four rounds. The errors of twenty federated runs and of twenty simulated ones have means
within two standard errors of each other. With the noise of a simulation injected into the parties, V is that of the
simulation. A party dies in mid-round and the coordinator twice: every party's ledger shows the budget once. A second
run is refused, by the parties: the coordinator has no ledger.
"""

from __future__ import annotations

import math
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

import fedfactor
from claims import _flower as real
from fedfactor.federation import processes as children
from fedfactor.federation.trial import Trial
from fedfactor.network.client import REFUSAL
from fedfactor.network.client_storage import ClientFolder
from fedfactor.privacy.secure_aggregation.transform import SecureSum

RUNS, ROUNDS, SEED, PATIENCE = 20, 4, 5, 1800.0
PARTIES = ("centre", "east", "north", "south", "west")
PRIVACY = {"protect": "dp", "epsilon": 1.0, "delta": 1e-5, "unit": "row", "row_bound": 6.0, "rows": 2000.0}

SEEDED = """\
from fedfactor.core.transforms import Site
from fedfactor.core.entropy import Entropy

Site.entropy = lambda site, purpose: Entropy.seeded(7, site.name, site.at.index, purpose)
"""
"""Gives a party the noise of a simulation with noise_seed=7; the library has no such setting, for it hides nothing."""


def write_rows(folder: Path) -> dict[str, Path]:
    """Write planted rows for five parties: three patterns in twelve columns, and a little noise."""
    rng = np.random.default_rng(0)
    V, files = rng.gamma(0.6, 1.0, (3, 12)), {}
    for size, name in enumerate(PARTIES):
        rows = 300 + 50 * size
        X = rng.gamma(0.5, 1.0, (rows, 3)) @ V + 0.05 * rng.random((rows, 12))
        files[name] = folder / f"{name}.npz"
        np.savez(files[name], X=X, features=[f"feature {j}" for j in range(12)])
    return files


def changes() -> dict[str, Any]:
    """Say what differs from the usual terms."""
    made = real.terms("PooledNMF", ROUNDS)
    return {**made, "privacy": {**PRIVACY, "minimum_rows": 5, "report_error": False}, "limits": {"runs": 100}}


def simulate(files: Mapping[str, Path], trial: Trial, noise_seed: int | None = None) -> np.ndarray:
    """Run the same on one machine, with the same budget and the same shares of noise; return V."""
    owners = {name: np.load(file)["X"] for name, file in files.items()}
    asked = fedfactor.dp(**trial.terms.agreement().noise, noise_seed=noise_seed)
    engine = fedfactor.LocalEngine(workers=2)
    run = fedfactor.run(
        trial.terms.algorithm(), owners, rounds=ROUNDS, seed=SEED, privacy=(asked, SecureSum(5, 1.0)), engine=engine
    )
    return np.asarray(next(iter(run.factors.values())).V)


def error(files: Mapping[str, Path], V: np.ndarray) -> float:
    """Return the relative error of all rows with this V, which only a claim may look at."""
    X = np.concatenate([np.load(file)["X"] for file in files.values()])
    return float(math.hypot(*(nnls(V.T, row)[1] for row in X)) / np.linalg.norm(X))


def join_anew(trial: Trial, *more: str) -> None:
    """Let every party leave, and come back."""
    for child in trial.members.values():
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
    for child in trial.members.values():
        children.end(child, patience=30.0)
    for name in trial.files:
        trial.join(name, *more)


def finished(trial: Trial) -> dict[str, np.ndarray]:
    """Run once more, and return each party's V."""
    trial.coordinator.start(again=True, sure=True)
    status = trial.coordinator.wait(PATIENCE)
    if status["state"] != "finished":
        raise RuntimeError(f"{status['state']}: {status.get('reason')}")
    return {name: np.asarray(kept.V) for name, kept in real.factors(trial).items()}


def books(trial: Trial) -> dict[str, dict[str, float]]:
    """Read each party's own ledger."""
    found = {}
    for name in trial.files:
        ledger = ClientFolder(trial.folder(name)).ledger
        assert ledger is not None
        found[name] = {"entries": len(ledger.entries()), "epsilon": ledger.epsilon(), "budget": ledger.budget}
    return found


def killed(trial: Trial) -> dict[str, Any]:
    """Kill a party in the middle of a round, and the coordinator twice; then ask for a second run."""
    trial.coordinator.start(again=True, sure=True)
    real.wait_for_round(trial, 1, PATIENCE)
    reached = real.hold(trial, "south")
    real.kill_member(trial, "south")
    trial.join("south")
    for more in (1, 2):
        real.wait_for_round(trial, min(reached + more, ROUNDS - 1), PATIENCE)
        real.kill_server(trial)
        trial.serve()
        trial.coordinator.start()
    state = trial.coordinator.wait(PATIENCE)["state"]
    spent = books(trial)
    trial.coordinator.start(again=True, sure=True)
    second = trial.coordinator.wait(PATIENCE)
    reasons = {name: ClientFolder(trial.folder(name)).sent()[-1].get("reason", "") for name in trial.files}
    return {
        "party_killed_in_round": reached,
        "state": state,
        "spent": spent,
        "second_run": second["state"],
        "second_run_is_told": REFUSAL in str(second.get("reason")),
        "parties_refuse": sum("beyond their budget" in reason for reason in reasons.values()),
        "spent_after_it": books(trial),
        "coordinator_has_a_ledger": (trial.coordinator.folder / "ledger.jsonl").exists(),
    }


def claim() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        files = write_rows(Path(folder))
        with Trial(Path(folder) / "all", files, changes()) as trial:
            join_anew(trial)
            kills = killed(trial)
            print(kills, flush=True)
            (Path(folder) / "sitecustomize.py").write_text(SEEDED)
            sys.path.insert(0, folder)  # of the parties only: this process has begun
            join_anew(trial, "--budget", "1000", "--raise-budget")
            sys.path.remove(folder)
            injected = finished(trial)
            wanted = simulate(files, trial, noise_seed=7)
            difference = max(float(np.abs(V - wanted).max()) for V in injected.values())
            print(difference, flush=True)
            join_anew(trial)
            errors, seconds = [], []
            for _ in range(RUNS):
                began = time.monotonic()
                errors.append(error(files, finished(trial)["north"]))
                seconds.append(round(time.monotonic() - began, 1))
                print(errors[-1], seconds[-1], flush=True)
            simulated = [error(files, simulate(files, trial)) for _ in range(RUNS)]
    mean, other = float(np.mean(errors)), float(np.mean(simulated))
    spread = math.sqrt((np.var(errors, ddof=1) + np.var(simulated, ddof=1)) / RUNS)
    once = all(part["entries"] == ROUNDS and part["epsilon"] <= 1.0 for part in kills["spent"].values())
    holds = (
        kills["state"] == "finished" and once and kills["spent_after_it"] == kills["spent"]
        and kills["second_run"] == "paused" and kills["second_run_is_told"] and kills["parties_refuse"] == len(PARTIES)
        and not kills["coordinator_has_a_ledger"]
        and abs(mean - other) <= 2 * spread and difference < 1e-12
    )  # fmt: skip
    return {
        "runs": RUNS, "federated": {"mean": mean, "errors": errors}, "simulated": {"mean": other, "errors": simulated},
        "difference_in_standard_errors": abs(mean - other) / spread, "V_with_injected_noise": difference,
        "seconds_per_run": seconds, "kills": kills, "holds": bool(holds),
    }  # fmt: skip
