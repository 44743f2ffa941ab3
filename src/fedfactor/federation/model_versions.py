"""Versions of a federation's model: what each run left at the coordinator, and which one the next run starts at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.atomic_files import read_json, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.core.wire import fingerprint_of, read_leaves, to_bytes
from fedfactor.federation import terms_writer
from fedfactor.federation.terms import Terms
from fedfactor.network.coordinator_journal import Journal
from fedfactor.network.server import START

SHOWN = (
    "Under secure aggregation without noise, the sums of a refit and those before it differ by what the leaving party "
    "sent, and all parties see both. Let all parties agree to that first ([privacy] allow = "
    '["removal"]), or let the remaining parties run from the beginning with another [run] seed.'
)
"""Why a run does not start where one with a further party ended."""


@dataclass(frozen=True, slots=True)
class Version:
    """What one run left.

    Parameters
    ----------
    run : str
        Name of the run.
    components : str
        Fingerprint of its V, empty where the server has none.
    parents : tuple of str
        Fingerprints of the components it started at.
    parties : tuple of str
        Who took part to its end.
    terms : str
        Fingerprint of what they had agreed on.
    folder : Path
        Where it lies.
    """

    run: str
    components: str
    parents: tuple[str, ...]
    parties: tuple[str, ...]
    terms: str
    folder: Path

    @property
    def V(self) -> np.ndarray:
        """Its components."""
        found = _components(self.folder)
        assert found is not None
        return found


def versions(folder: Path) -> list[Version]:
    """List what the runs of a server's folder left, the last one last."""
    from fedfactor.federation.results import from_anywhere, server_results

    found: list[Version] = []
    with from_anywhere(folder):
        for run, place in server_results(folder).items():
            record: dict[str, Any] = read_json(place / "run.json")
            V = _components(place)
            parents = tuple(record.get("parents", ()))
            parties = tuple(record["finished"])
            found.append(Version(run, "" if V is None else fingerprint_of(V), parents, parties, record["terms"], place))
    return found


def _components(folder: Path) -> np.ndarray | None:
    return read_leaves((folder / "down.safetensors").read_bytes(), "down").get("V")


def alike(V: np.ndarray, W: np.ndarray) -> list[float]:
    """Compare two versions component by component: the cosine of each of the first with its match in the second.

    From runs with other seeds, or without one of the parties, it reports which components are stable.
    """
    from fedfactor.evaluation.metrics.coherence import cosine_similarity, match_components

    if V.shape[1] != W.shape[1]:
        return []
    mine, theirs = match_components(V, W)
    return [float(each) for each in cosine_similarity(V, W)[mine, theirs]]


def start_next_at(file: Path, folder: Path, run: str = "") -> Terms:
    """Write into the terms that the next run starts at the components of the last one, or of the one named."""
    known = [version for version in versions(folder) if version.components]
    if not known:
        raise DataError(f"{folder} holds no finished run with components, so there is nothing to start at.")
    chosen = [version for version in known if version.run == run] if run else known[-1:]
    if not chosen:
        raise DataError(f"There is no run {run!r} to start at. There are: {', '.join(each.run for each in known)}.")
    now = Terms.read(file)
    if set(chosen[0].parties) - set(now.names) and not now.consents_to_removal:
        raise DataError(SHOWN)
    content = now.content
    terms = terms_writer.save(file, {**content, "run": {**content["run"], "start": chosen[0].components}})
    Journal(folder).write("next version agreed", start=terms.start, terms=terms.fingerprint)
    return terms


def put_start(terms: Terms, folder: Path) -> None:
    """Lay the components that the terms name where the run looks for them; refuse when no version has them."""
    if not terms.start:
        return
    for version in versions(folder):
        if version.components == terms.start:
            if (kept := version.V.dtype) != (agreed := terms.content["run"]["dtype"]):
                raise DataError(f"The components to start at are {kept}, and [run] dtype is {agreed}. Agree on {kept}.")
            write_atomic(folder / START, to_bytes({"V": version.V}))
            return
    raise DataError(f"No version in {folder} has the components {terms.start}, at which the parties agreed to start.")
