"""PooledNMF, FNMF, FELB, FedSPLIT and AsynSD over Flower, with TLS and registered keys, give the local engine's bits.

A real SuperLink and three SuperNodes on this machine; for AsynSD, whose uploads come in no fixed order, this machine
takes the same steps in the order in which they arrived.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from fedfactor.federation.trial import Trial
from prove import _flower as real

CASES: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "PooledNMF": (4, {"tol": 0.0}, {}),
    "FNMF": (3, {}, {}),
    "FELB": (3, {}, {"binary": True}),
    "FedSPLIT": (4, {"local_components": 3}, {"ratings": True}),
    "AsynSD": (3, {}, {}),
}


def compare(name: str, folder: Path) -> dict[str, Any]:
    rounds, settings, data = CASES[name]
    files = real.write_ratings(folder) if data.get("ratings") else real.write_rows(folder, binary=bool(data))
    changes = real.terms(name, rounds, **settings)
    if data.get("ratings"):
        changes["preprocess"] = {"missing_values": "unstored"}
    trial = Trial(folder / "all", files, changes)
    with trial:
        for party in files:
            trial.join(party)
        trial.coordinator.start()
        status = trial.coordinator.wait(400)
    if status["state"] != "finished":
        return {"state": status["state"], "reason": status.get("reason")}
    past = real.history(trial)
    asynchronous = trial.terms.agreement().asynchronous
    wanted = (
        real.replay(trial, [entry["participants"][0] for entry in past])
        if asynchronous
        else real.local(files, trial).factors
    )
    return {
        "rounds": len(past),
        "largest_difference": real.largest_difference(real.factors(trial), wanted),
        "seconds": [round(entry["seconds"], 2) for entry in past],
        "bytes_up": [entry["bytes_up"] for entry in past],
    }


def claim() -> dict:
    figures: dict[str, Any] = {}
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = compare(name, Path(folder))
    return {**figures, "holds": all(found.get("largest_difference") == 0.0 for found in figures.values())}
