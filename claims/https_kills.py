"""Ten SIGKILLs of parties and five of the server at random moments: the run ends with the bits of an undisturbed one.

Each kill takes the whole family of processes, as when a machine dies; the killed come back and go on. Some kills come
before the federation has recovered from the last one. No round waits longer than its deadline. A second run, with a
secure sum, loses a party and a server in the middle of sums.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

from claims import _flower as real
from fedfactor.federation.trial import Trial

MEMBERS, SERVERS, ROUNDS, DEADLINE = 10, 5, 400, 120
OVER = ("finished", "failed", "paused")


def kill(trial: Trial, kind: str, name: str) -> None:
    """Kill, and come back."""
    if kind == "member":
        real.kill_member(trial, name)
        trial.join(name)
    else:
        real.kill_server(trial)
        trial.serve()
        trial.coordinator.start()


def disturb(trial: Trial, chance: random.Random, kills: list[str], figures: dict[str, Any]) -> None:
    """Kill at random moments, one time in four without waiting for a round after the last kill."""
    for kind in kills:
        time.sleep(chance.uniform(0.0, 3.0))
        at = trial.coordinator.status()
        if at["state"] in OVER:
            figures["too_late"] += 1
            continue
        began = time.monotonic()
        kill(trial, kind, chance.choice(real.PARTIES))
        figures[f"{kind}s_killed"] += 1
        figures["at"].append(f"{kind}, {at['state']}")
        if chance.random() < 0.75:
            real.wait_for_round(trial, trial.coordinator.status().get("round", 0) + 1, 2 * DEADLINE)
            figures["recovered_after_s"].append(round(time.monotonic() - began, 1))
        print(figures["at"][-1], figures["recovered_after_s"][-1:], flush=True)


def outcome(trial: Trial) -> dict[str, Any]:
    status = trial.coordinator.wait(1200)
    if status["state"] != "finished":
        return {"state": status["state"], "reason": status.get("reason")}
    past = real.history(trial)
    return {
        "state": "finished",
        "rounds": len(past),
        "largest_difference": real.largest_difference(real.factors(trial), real.local(trial.files, trial).factors),
        "longest_round": round(max(entry["seconds"] for entry in past), 1),
        "everybody_in_every_round": all(len(entry["participants"]) == 3 for entry in past),
        "rejected": {kind: n for kind, n in status["rejected"].items() if " " not in kind},
    }


def one(trial: Trial, rounds: int, kills: list[str], secure: bool, seed: int) -> dict[str, Any]:
    """Run with so many kills."""
    chance = random.Random(seed)
    chance.shuffle(kills)
    figures: dict[str, Any] = {"members_killed": 0, "servers_killed": 0, "too_late": 0}
    figures |= {"at": [], "recovered_after_s": []}
    changes = real.terms("PooledNMF", rounds, {"deadline": DEADLINE}, tol=0.0)
    if secure:
        changes["privacy"] |= {"protect": "secure-sum", "allow": ["small-client"]}
    real.everybody_joins(trial, trial.files, changes)
    trial.coordinator.start(again=True, sure=True)
    real.wait_for_round(trial, 1)
    disturb(trial, chance, kills, figures)
    return figures | outcome(trial)


def claim() -> dict:
    with tempfile.TemporaryDirectory() as folder, Trial(
        Path(folder) / "all", real.write_rows(Path(folder)), real.terms("PooledNMF", 1)
    ) as trial:  # fmt: skip
        plain = one(trial, ROUNDS, ["member"] * MEMBERS + ["server"] * SERVERS, secure=False, seed=0)
        secure = one(trial, 6, ["member", "server"], secure=True, seed=1)
    holds = all(
        found.get("largest_difference") == 0.0
        and found["everybody_in_every_round"]
        and found["longest_round"] <= 1.1 * DEADLINE
        and not found["too_late"]
        for found in (plain, secure)
    )
    killed = (plain["members_killed"], plain["servers_killed"]) == (MEMBERS, SERVERS)
    return {"plain": plain, "secure": secure, "holds": bool(holds and killed)}
