"""Real federations on this machine for claims and tests: start, disturb, compare with the local engine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import fedfactor
from fedfactor.core.algorithm import LocalFactors, Round
from fedfactor.core.client_data import Federation
from fedfactor.core.pytree import freeze, leaves
from fedfactor.core.run import Run
from fedfactor.core.threads import limit_threads
from fedfactor.core.wire import from_bytes
from fedfactor.engines import client_step as client
from fedfactor.federation import processes as children
from fedfactor.federation import terms_writer
from fedfactor.federation.features import agree, column_names
from fedfactor.federation.terms import DEFAULTS, features_hash
from fedfactor.federation.trial import Trial
from fedfactor.io.read import load_shard
from fedfactor.privacy.transform_registry import link_of

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


def write_ratings(folder: Path, seed: int = 0) -> dict[str, Path]:
    """Write small tables of ratings for three parties, as sparse matrices."""
    from scipy import sparse

    rng = np.random.default_rng(seed)
    files = {}
    for size, name in enumerate(PARTIES):
        rated = rng.random((25 + 5 * size, 12)) < 0.6
        files[name] = folder / f"{name}.npz"
        sparse.save_npz(
            files[name], sparse.csr_matrix(np.where(rated, rng.integers(1, 6, rated.shape), 0).astype(float))
        )
    return files


def terms(algorithm: str, rounds: int, policy: Mapping[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """Say what differs from the usual terms."""
    # Everybody takes part in every round, as on the local engine, unless a case says how few are enough.
    dropouts = "continue" if policy and "minimum" in policy else "wait"
    times = {"deadline": 240, "gather": 240, "resend": 30, "dropouts": dropouts}
    return {
        "algorithm": {"name": algorithm, "n_components": 3, **settings},
        "run": {"rounds": rounds, "seed": 5},
        "privacy": {"minimum_rows": 5},
        "policy": {**times, **(policy or {})},
    }


CASES: dict[str, tuple[int, dict[str, Any], str]] = {
    "PooledNMF": (4, {"tol": 0.0}, "rows"),
    "FNMF": (4, {"barycenter": "client", "align_every": 1}, "rows"),
    "FELB": (3, {}, "binary"),
    "FedSPLIT": (4, {"local_components": 3}, "ratings"),
    "AsynSD": (3, {}, "rows"),
    "PooledNMF secure": (2, {"tol": 0.0}, "rows"),
    "FedAvgNMF clipped": (3, {"weights": "equal"}, "rows"),
}
"""What is run over Flower and compared: rounds, settings, kind of data."""


def case(name: str, folder: Path) -> tuple[dict[str, Path], dict[str, Any]]:
    """Write a case's rows; return them and its terms."""
    rounds, settings, data = CASES[name]
    files = write_ratings(folder) if data == "ratings" else write_rows(folder, binary=data == "binary")
    changes = terms(name.split()[0], rounds, **settings)
    if name.endswith("secure"):
        changes["privacy"] |= {"protect": "secure-sum", "allow": ["small-client"]}
    if name.endswith("clipped"):
        changes["privacy"] |= {"links": [{"link": "Clip", "norm": 0.5}]}
    if data == "ratings":
        changes["preprocess"] = {"missing_values": "unstored"}
    return files, changes


def everybody_joins(
    trial: Trial,
    files: Mapping[str, Path],
    changes: Mapping[str, Mapping[str, Any]],
    more: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Bring a served federation to other terms and rows: every party joins anew, the server stays."""
    for child in trial.members.values():
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
    for child in trial.members.values():
        children.end(child, patience=30.0)
    kept = {part: trial.terms.content[part] for part in ("federation", "server", "parties")}
    names = agree({name: column_names(file) for name, file in files.items()})
    features = {**DEFAULTS["features"], "names": list(names), "sha256": features_hash(names)}
    sections = {part: {**DEFAULTS[part], **changes.get(part, {})} for part in DEFAULTS if part not in kept}
    trial.terms = terms_writer.save(trial.toml, {**sections, **kept, "features": features})
    trial.files = {name: Path(file).resolve() for name, file in files.items()}
    trial.coordinator.terms = trial.terms
    trial.coordinator.prepare()
    for name in files:
        trial.join(name, "--accept-changes", "--replace-data", *(more or {}).get(name, ()))


def compare(trial: Trial, name: str, folder: Path, patience: float = 400.0) -> dict[str, Any]:
    """Run a case over Flower, and tell how far its factors are from those of this machine alone."""
    files, changes = case(name, folder)
    everybody_joins(trial, files, changes)
    trial.coordinator.start(again=True, sure=True)
    status = trial.coordinator.wait(patience)
    if status["state"] != "finished":
        return {"state": status["state"], "reason": status.get("reason")}
    past = history(trial)
    if trial.terms.agreement().asynchronous:
        wanted: Mapping[str, LocalFactors] = replay(trial, [entry["participants"][0] for entry in past])
    else:
        wanted = local(files, trial).factors
    return {
        "rounds": len(past),
        "largest_difference": largest_difference(factors(trial), wanted),
        "seconds": [round(entry["seconds"], 2) for entry in past],
        "bytes_up": [entry["bytes_up"] for entry in past],
        "rejected": status["rejected"],
    }


def local(files: Mapping[str, Path], trial: Trial) -> Run:
    """Run the same on the local engine."""
    missing = trial.terms.preprocess().missing_values
    owners = {name: load_shard(file, missing_values=missing) for name, file in files.items()}
    engine = fedfactor.LocalEngine(workers=len(os.sched_getaffinity(0)))  # one thread per product, as at the parties
    run = trial.terms.content["run"]
    privacy = "secure-sum" if trial.terms.secure else tuple(map(link_of, trial.terms.links)) or None
    return fedfactor.run(
        trial.terms.algorithm(),
        Federation(owners),
        rounds=run["rounds"],
        seed=run["seed"],
        privacy=privacy,
        engine=engine,
    )


def factors(trial: Trial) -> dict[str, LocalFactors]:
    """Read what each party took home."""
    trial.terms.algorithm()
    return {
        name: from_bytes((trial.folder(name) / "result" / "factors.safetensors").read_bytes())["factors"]
        for name in trial.files
    }


def replay(trial: Trial, order: list[str]) -> dict[str, LocalFactors]:
    """Take the steps of an asynchronous run again on this machine, in the order in which its uploads arrived."""
    algorithm, seed = trial.terms.algorithm(), trial.terms.content["run"]["seed"]
    shards = {name: load_shard(file) for name, file in trial.files.items()}
    meta = trial.terms.meta()
    server, down = algorithm.init_server(meta, Round(seed, 0))
    states = {name: client.begin(algorithm, shards[name], meta, seed, name) for name in meta.clients}
    work, steps = dict.fromkeys(meta.clients, down), dict.fromkeys(meta.clients, 0)
    with limit_threads(1):
        for index, name in enumerate(order):
            at = Round(seed, steps[name], name, (name,))
            states[name], up = client.step(algorithm, shards[name], states[name], work[name], at)
            steps[name] += 1
            server, down = algorithm.server_step(server, freeze(up), Round(seed, index, participants=(name,)))
            work[name] = down
        down = algorithm.settle(server, down)
        return {name: client.end(algorithm, shards[name], states[name], down)[0] for name in meta.clients}


def largest_difference(found: Mapping[str, LocalFactors], wanted: Mapping[str, LocalFactors]) -> float:
    """Compare all factors of all parties; 0.0 means the same bits."""
    worst = 0.0
    for name, kept in found.items():
        reference = dict(leaves(wanted[name]))
        mine = dict(leaves(kept))
        assert mine.keys() == reference.keys()
        for path, leaf in mine.items():
            if not np.array_equal(leaf, reference[path]):
                worst = max(worst, float(np.abs(leaf - reference[path]).max()))
    return worst


def history(trial: Trial) -> list[dict[str, Any]]:
    """Read the rounds of a finished run, as the server wrote them."""
    return json.loads((trial.coordinator.folder / "result" / "run.json").read_bytes())["history"]


def signal_family(pid: int, number: int) -> list[psutil.Process]:
    """Send a signal to one process of ours and to all that it started."""
    try:
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return []
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    return family


def kill_family(pid: int) -> None:
    """SIGKILL one process of ours and all that it started, as when its machine dies."""
    psutil.wait_procs(signal_family(pid, signal.SIGKILL), timeout=10)


def hold(trial: Trial, name: str) -> int:
    """Stop a party in its tracks, so that the present round cannot end; return the number of rounds done."""
    signal_family(trial.members[name].pid, signal.SIGSTOP)
    time.sleep(1.5)  # what was answered before is taken in, and the status is written once a second
    return trial.coordinator.status()["round"]


def release(trial: Trial, name: str) -> None:
    """Let a held party go on."""
    signal_family(trial.members[name].pid, signal.SIGCONT)


def kill_member(trial: Trial, name: str) -> None:
    """SIGKILL a party's processes."""
    child = trial.members[name]
    kill_family(child.pid)
    child.wait()


def kill_server(trial: Trial) -> None:
    """SIGKILL the process that serves, and the run in it."""
    assert trial.server is not None
    kill_family(trial.server.pid)
    trial.server.wait()
    trial.server = None


def wait_for_round(trial: Trial, number: int, patience: float = 240.0) -> dict[str, Any]:
    """Wait until so many rounds are done."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        status = trial.coordinator.status()
        if status.get("round", 0) >= number or status["state"] in ("finished", "failed", "paused"):
            return status
        time.sleep(0.1)
    raise TimeoutError(f"round {number} did not come: {trial.coordinator.status()}")
