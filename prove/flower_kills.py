"""Ten SIGKILLs of parties and five of the server at random moments: the run ends with the bits of an undisturbed one.

Each kill takes the whole family of processes, as when a machine dies; the killed come back and go on. No round waits
longer than its deadline.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

from fedfactor.federation.trial import Trial
from prove import _flower as real

MEMBERS, SERVERS, ROUNDS, DEADLINE = 10, 5, 40, 240


def disturb(trial: Trial, chance: random.Random, figures: dict[str, Any]) -> None:
    """Kill, come back, and wait until a round was done since."""
    kills = ["member"] * MEMBERS + ["server"] * SERVERS
    chance.shuffle(kills)
    for kind in kills:
        reached = trial.coordinator.status().get("round", 0)
        real.wait_for_round(trial, reached + 1, 2 * DEADLINE)
        time.sleep(chance.uniform(0.0, 4.0))
        at = trial.coordinator.status()
        if at["state"] in ("finished", "failed", "paused"):
            figures["too_late"] += 1
            continue
        if kind == "member":
            name = chance.choice(real.PARTIES)
            real.kill_member(trial, name)
            trial.join(name)
        else:
            real.kill_server(trial)
            trial.coordinator.serve()
            trial.coordinator.start()
        figures[f"{kind}s_killed"] += 1
        figures["rounds_at_kills"].append(at["round"])


def claim() -> dict:
    figures: dict[str, Any] = {"members_killed": 0, "servers_killed": 0, "too_late": 0, "rounds_at_kills": []}
    with tempfile.TemporaryDirectory() as folder:
        files = real.write_rows(Path(folder))
        trial = Trial(Path(folder) / "all", files, real.terms("PooledNMF", ROUNDS, {"deadline": DEADLINE}, tol=0.0))
        with trial:
            for party in files:
                trial.join(party)
            trial.coordinator.start()
            real.wait_for_round(trial, 1)
            disturb(trial, random.Random(0), figures)
            status = trial.coordinator.wait(1800)
        past = real.history(trial) if status["state"] == "finished" else []
        figures["state"], figures["rounds"] = status["state"], len(past)
        if past:
            figures["largest_difference"] = real.largest_difference(
                real.factors(trial), real.local(files, trial).factors
            )
            figures["longest_round"] = round(max(entry["seconds"] for entry in past), 1)
            figures["everybody_in_every_round"] = all(len(entry["participants"]) == 3 for entry in past)
    holds = (
        figures.get("largest_difference") == 0.0
        and figures["members_killed"] == MEMBERS
        and figures["servers_killed"] == SERVERS
        and figures["longest_round"] <= 1.1 * DEADLINE
    )
    return {**figures, "holds": bool(holds)}
