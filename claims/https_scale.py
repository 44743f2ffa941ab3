"""What the default transport and verified aggregation cost with 3, 20 and 100 parties, and the memory of the transport.

A real server and all parties, which share one process with a TLS connection and a folder each. Every run is finished
with the V of the local engine. A round has one exchange in the clear and two under secure aggregation. Beside its rows,
the transport adds at most 30 MB (PSS) to the process of a party, and of the coordinator.

``python -m claims.https_scale`` measures, and writes ``docs/reference/network_costs.md``.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import fedfactor
from claims import _flower as real
from fedfactor.algorithms import PooledNMF
from fedfactor.core.client_data import Federation
from fedfactor.federation.party import Member
from fedfactor.federation.trial import Trial
from fedfactor.io.read import load_shard
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import ClientFolder

PARTIES = (3, 20, 100)
ROUNDS, RANK, ROWS, COLUMNS = 4, 10, 30, 500
MEGABYTES = 30.0
"""What the transport may add to a process."""

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "network_costs.md"


def write_rows(folder: Path, parties: int) -> dict[str, Path]:
    """Write rows for so many parties."""
    rng = np.random.default_rng(0)
    V = rng.gamma(0.6, 1.0, (RANK, COLUMNS))
    files: dict[str, Path] = {}
    for number in range(parties):
        name = f"p{number:03d}"
        files[name] = folder / f"{name}.npz"
        np.savez(files[name], X=rng.gamma(0.5, 1.0, (ROWS, RANK)) @ V, features=[f"c{j}" for j in range(COLUMNS)])
    return files


def used(pid: int) -> float:
    """Return the processor seconds of a process."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def exchanges(folder: Path) -> int:
    """Count the answers of a party to the last round."""
    return sum(line["kind"] in ("step", "sum") and line["index"] == ROUNDS - 1 for line in ClientFolder(folder).sent())


def measure(folder: Path, parties: int, protect: str) -> dict[str, Any]:
    """Run a federation; return seconds, processor seconds and bytes of its median round."""
    folder.mkdir()
    files = write_rows(folder, parties)
    policy = {"deadline": 1200, "gather": 1200, "resend": 600}
    changes = real.terms("PooledNMF", ROUNDS, policy, tol=0.0)
    changes["algorithm"]["n_components"] = RANK
    if protect != "none":
        changes["privacy"] |= {"protect": protect, "allow": ["small-client"]}
    with Trial(folder / "all", files, changes) as trial:
        assert trial.server is not None
        together = trial.join_together(list(files))
        trial.coordinator.start()
        real.wait_for_round(trial, 1, 1200.0)
        before = used(trial.server.pid), used(together.pid)
        status = trial.coordinator.wait(1200.0)
        after = used(trial.server.pid), used(together.pid)
        assert status["state"] == "finished", status
    past = real.history(trial)[1:]
    owners = Federation({name: load_shard(file) for name, file in files.items()})
    privacy = None if protect == "none" else protect
    run = fedfactor.run(PooledNMF(RANK, tol=0.0), owners, rounds=ROUNDS, seed=5, privacy=privacy)
    found = real.factors(trial)
    return {
        "seconds": float(np.median([entry["seconds"] for entry in past])),
        "coordinator_processor_seconds": (after[0] - before[0]) / len(past),
        "party_processor_seconds": (after[1] - before[1]) / len(past) / parties,
        "bytes_up": int(np.median([entry["bytes_up"] for entry in past])) // parties,
        "bytes_down": int(np.median([entry["bytes_down"] for entry in past])) // parties,
        "exchanges": exchanges(trial.folder(next(iter(files)))),
        "largest_difference": max(float(np.abs(found[name].V - run.factors[name].V).max()) for name in files),
    }


# -------------------------------------------------------------------------------------------------------------- memory
def pss() -> float:
    """Return the megabytes of this process, pages that it shares counted by their share."""
    return psutil.Process().memory_full_info().pss / 1e6


def party_memory(toml: Path, name: str, file: Path, ready: Any, end: Any) -> None:
    """Load rows and compute, then connect; send what the connection added."""
    member = Member(toml, toml.parent / f"{name}.key", toml.parent / name)
    store = member.sign_up(file, confirmed=True)
    remote = RemoteClient(store)
    fedfactor.run(remote.algorithm, Federation({name: store.shard}), rounds=1, seed=0)
    before = pss()
    from fedfactor.network.https.client import PartyClient

    client = PartyClient(remote, member.wire(None, remote.longest), member.folder, member.terms.fingerprint)
    client.serve(lambda: not end.wait(0.2))
    ready.send(pss() - before)


def coordinator_memory(toml: Path, started: Any, ready: Any, parties: int) -> None:
    """Load what a run needs, then serve one; send what serving added."""
    from fedfactor.federation.coordinator import Coordinator
    from fedfactor.network.server import Server  # noqa: F401  # what a run needs, whatever carries its messages

    place = Coordinator(toml)
    rows = np.random.default_rng(0).random((ROWS, COLUMNS))
    fedfactor.run(place.terms.algorithm(), {str(i): rows for i in range(parties)}, rounds=1, seed=0)
    before = pss()
    place.serve()
    started.set()
    place.start()
    place.wait(600.0)
    ready.send(pss() - before)
    place.close()


def memory(folder: Path) -> dict[str, float]:
    """Return the megabytes that the transport adds to a party and to the coordinator of three."""
    folder.mkdir()
    files = write_rows(folder, 3)
    trial = Trial(folder / "all", files, real.terms("PooledNMF", 3, tol=0.0))
    context = multiprocessing.get_context("spawn")
    started, end = context.Event(), context.Event()
    pipes = {name: context.Pipe() for name in ("coordinator", *files)}
    server = (trial.toml, started, pipes["coordinator"][1], len(files))
    children = [context.Process(target=coordinator_memory, args=server)]
    for name, file in files.items():
        children.append(context.Process(target=party_memory, args=(trial.toml, name, file, pipes[name][1], end)))
    children[0].start()
    started.wait(300.0)
    for child in children[1:]:
        child.start()
    try:
        coordinator = pipes["coordinator"][0].recv()
        end.set()
        parties = [pipes[name][0].recv() for name in files]
    finally:
        for child in children:
            child.join(60.0)
            child.kill()
    return {"coordinator_mb": round(coordinator, 1), "party_mb": round(max(parties), 1)}


def claim() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        added = memory(root / "memory")
        for parties in PARTIES:
            for protect in ("none", "secure-sum"):
                figures[f"{parties} {protect}"] = measure(root / f"{parties} {protect}", parties, protect)
                print(parties, protect, figures[f"{parties} {protect}"], flush=True)
    same = all(about["largest_difference"] <= 1e-12 for about in figures.values())
    few = all(about["exchanges"] == (1 if name.endswith("none") else 2) for name, about in figures.items())
    return {**figures, "memory": added, "holds": bool(same and few and max(added.values()) <= MEGABYTES)}


def page(found: Mapping[str, Any]) -> str:
    """Return the page with these figures."""
    rows = [
        "| parties | mode | seconds a round | processor s, coordinator | processor s, party | bytes up | bytes down "
        "| exchanges |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for parties in PARTIES:
        for protect, title in (("none", "in the clear"), ("secure-sum", "secure aggregation")):
            if (about := found.get(f"{parties} {protect}")) is None:
                continue
            rows.append(
                f"| {parties} | {title} | {about['seconds']:.2f} | {about['coordinator_processor_seconds']:.3f} "
                f"| {about['party_processor_seconds']:.3f} | {about['bytes_up']:,} | {about['bytes_down']:,} "
                f"| {about['exchanges']} |"
            )
    added = found["memory"]
    return "\n".join(
        [
            "# Costs of the network",
            "",
            "Written by `python -m claims.https_scale`. PooledNMF with "
            f"{RANK} components over {COLUMNS} columns and {ROWS} rows at each party: HTTPS with mutual TLS, one "
            "server process, and one process with all parties on the same two processors. Bytes are those of one "
            "party. Seconds depend on the machine and on what else it does; processor seconds and bytes hardly do.",
            "",
            *rows,
            "",
            "Under secure aggregation every party receives, with each question and each total, a signed hash and "
            "signed tags of all parties.",
            "",
            f"The transport adds {added['party_mb']:g} MB (proportional set size) to the process of a party that has "
            f"imported fedfactor and computed with its rows, and {added['coordinator_mb']:g} MB to that of a "
            "coordinator of three parties.",
            "",
        ]
    )


if __name__ == "__main__":
    result = claim()
    PAGE.write_text(page(result))
    print(result)
