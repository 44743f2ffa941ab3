"""Which components are stable: runs with other seeds, and without each party, compared with the last run.

They are made in the federation, as the terms allow. In the clear the server sees every upload anyway, so that runs
without a party reveal nothing about that party that the others could not have computed. Under secure aggregation they
would: two sums whose parties differ by one show that one's upload. So the terms refuse them there; other seeds, with
all parties in every sum, may be agreed on, and cost ε where there is noise.

Parties are not notified of an end and store no result: what they have stays that of the last run. Each of these runs is
counted among those that they answer.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.atomic_files import alone_with, private_folder, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.model_versions import alike, versions
from fedfactor.network.client_storage import Agreement
from fedfactor.network.exchange import Transport
from fedfactor.network.server import START, Lock, Server

MARK = "-stability"
"""How the names of these runs end."""


def variants(agreed: Agreement, seeds: int, leave_out: bool) -> dict[str, Agreement]:
    """Say which runs are compared: the same terms with other seeds, and with all but one of the parties."""
    names = agreed.meta.clients
    found = {f"seed {i}": replace(agreed, seed_number=i) for i in range(1, seeds + 1)}
    for name in names if leave_out else ():
        rest = tuple(other for other in names if other != name)
        found[f"without {name}"] = replace(agreed, meta=replace(agreed.meta, clients=rest))
    return found


def ordered(place: Coordinator, say: Callable[[str], Any]) -> dict[str, list[float]]:
    """Let the process that serves make the runs that the terms allow; return how like their components are."""
    if not place.served:
        raise DataError(f"Nothing is served from {place.folder}. Begin with: fedfactor serve {place.file}")
    with alone_with(place.folder / "start"):
        if place.running:
            raise DataError("A run goes on. Wait for its end: fedfactor status")
        place.order("stability")
        return place.follow(say)


def refuse_absent(place: Coordinator, post: Transport) -> None:
    """Refuse to begin while a party cannot be asked: these runs need every party, and would wait without a word."""
    there = post.present()
    away = [name for name in place.terms.names if name not in there]
    if away:
        raise DataError(
            f"{', '.join(away)} cannot be asked: not connected, or removed. These runs need every party that "
            "agreed. See fedfactor status; go on without a party by a new agreement."
        )


def stability(place: Coordinator, post: Transport, say: Callable[[str], Any]) -> dict[str, list[float]]:
    """Return for each further run how like the components of the last run those are that it found.

    What was reached is kept, so that a call that was broken off goes on.
    """
    terms = place.terms
    known = [version for version in versions(place.folder) if version.components]
    if not any(terms.stability):
        raise DataError(
            "The terms allow no further runs ([stability]). That is a new agreement: write seeds, and leave_out, under "
            "[stability]; the parties then join with --accept-changes."
        )
    if not known or known[-1].terms != terms.fingerprint:
        raise DataError("There is no finished run under these terms to compare with. Begin with: fedfactor start")
    if place.running:
        raise DataError("A run goes on. Wait for its end: fedfactor status")
    seeds, leave_out = terms.stability
    if (asked := 1 + seeds + leave_out * (len(terms.names) - 1)) > terms.limits[0]:
        raise DataError(f"Each party would answer {asked} runs, but [limits] runs = {terms.limits[0]} was agreed on.")
    last = known[-1]
    found = dict[str, list[float]]()
    folder = private_folder(private_folder(place.folder / "stability") / last.run)
    runs = variants(terms.agreement(), seeds, leave_out)
    with Lock(place.folder / "lock"):
        place.journal.write("stability", run=last.run, runs=len(runs))
        for number, (name, agreement) in enumerate(runs.items(), 1):
            V = _components(private_folder(folder / name.replace("/", "_")), agreement, place, post)
            found[name] = alike(last.V, V)
            say(f"{name} ({number} of {len(runs)}): {', '.join(f'{each:.3f}' for each in found[name])}")
    write_atomic(folder / "stability.json", json.dumps({"run": last.run, "cosines": found}, indent=1).encode())
    return found


def _components(folder: Path, agreement: Agreement, place: Coordinator, post: Transport) -> np.ndarray:
    if not (folder / "run").exists():
        write_atomic(folder / "run", f"{secrets.token_hex(8)}{MARK}".encode())
    if agreement.start:
        write_atomic(folder / START, (place.folder / START).read_bytes())
    everybody = replace(place.terms.policy(), minimum=len(agreement.meta.clients), dropouts="wait")
    return np.asarray(Server(folder, agreement, everybody, post, tells_end=False).run().down.V)
