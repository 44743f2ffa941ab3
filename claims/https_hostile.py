"""A registered party that sends a different broken or hostile answer each round changes nothing and stops nobody.

Over a real server, with keys and TLS: every answer is rejected and counted, the run goes on, its memory is bounded, and
the two honest parties end with the bits of a run in which the third was away in those rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

import fedfactor
from claims import _flower as real
from fedfactor.core.client_data import Federation
from fedfactor.federation.trial import Trial
from fedfactor.io.read import load_shard

ROOT = Path(__file__).resolve().parent.parent

HOSTILE = """
import sys
sys.path.insert(0, sys.argv[1])
from fedfactor.network import client as clerk
from fedfactor.network.message_format import read_head
from tests.network.hostile import KINDS
from fedfactor.federation.party import Member

honest, kinds = clerk.RemoteClient.answer, list(KINDS.values())

def answer(self, data):
    good = honest(self, data)
    head = read_head(good)
    return kinds[head.index - 1](good) if head.kind == "step" and 0 < head.index <= len(kinds) else good

clerk.RemoteClient.answer = answer
member = Member(*sys.argv[2:5])
member.join(member.sign_up(sys.argv[5]))
"""


def memory_of(trial: Trial) -> int:
    """Return the bytes that the process that serves holds now."""
    assert trial.server is not None
    return psutil.Process(trial.server.pid).memory_info().rss


def growth(trial: Trial, rounds: int) -> float:
    """Watch memory from the first round to the last; return by how many MB it grew at most."""
    real.wait_for_round(trial, 1, 300)
    before = most = memory_of(trial)
    while (status := trial.coordinator.status())["round"] < rounds and status["state"] not in ("paused", "failed"):
        most = max(most, memory_of(trial))
        time.sleep(0.5)
    return round((most - before) / 1e6, 1)


def claim() -> dict:
    sys.path.insert(0, str(ROOT))
    from tests.network.hostile import KINDS

    rounds = len(KINDS) + 2
    figures: dict[str, Any] = {"kinds": len(KINDS)}
    with tempfile.TemporaryDirectory() as folder:
        files = real.write_rows(Path(folder))
        policy = {"minimum": 2, "deadline": 12, "resend": 600}
        trial = Trial(Path(folder) / "all", files, real.terms("PooledNMF", rounds, policy, tol=0.0))
        with trial:
            for party in ("north", "south"):
                trial.join(party)
            words = [trial.toml, trial.root / "west.key", trial.folder("west"), files["west"]]
            command = [sys.executable, "-c", HOSTILE, str(ROOT), *map(str, words)]
            trial.members["west"] = subprocess.Popen(command)
            trial.coordinator.start()
            figures["memory_growth_mb"] = growth(trial, rounds)
            status = trial.coordinator.wait(600)
        figures["state"], figures["rejected"] = status["state"], status["rejected"]
        past = real.history(trial)
        figures["west_in_rounds"] = [entry["index"] for entry in past if "west" in entry["participants"]]
        owners = Federation({name: load_shard(file) for name, file in files.items()})
        reference = fedfactor.run(
            trial.terms.algorithm(), owners, rounds=rounds, seed=5,
            engine=fedfactor.LocalEngine(workers=len(os.sched_getaffinity(0))),
            participation=lambda at, names: [n for n in names if n != "west" or at.index in figures["west_in_rounds"]],
        )  # fmt: skip
        figures["largest_difference"] = real.largest_difference(real.factors(trial), reference.factors)
    rejected = sum(count for key, count in figures["rejected"].items() if key.endswith(" west"))
    holds = (
        figures["west_in_rounds"] == [0, rounds - 1]
        and rejected >= len(KINDS)
        and figures["largest_difference"] == 0.0
        and figures["memory_growth_mb"] < 60
    )
    return {**figures, "holds": bool(holds)}
