"""Look into a folder: where its party or the coordinator stands, what was sent, and what may be taken away."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import read_json
from fedfactor.core.checksummed_files import read_checked
from fedfactor.core.errors import DataError
from fedfactor.core.pytree import leaves
from fedfactor.core.run import STATUS
from fedfactor.core.wire import from_bytes, read_header, read_leaves
from fedfactor.federation.connectivity import Connection, moment
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.data_deletion import has_left
from fedfactor.federation.party import ROW_IDS, ROW_NAMES
from fedfactor.federation.progress_lines import away_words, is_locked
from fedfactor.federation.terms import Terms
from fedfactor.io.preprocessing import Preprocess
from fedfactor.io.result_folder import write_factors
from fedfactor.network.client import COLUMNS
from fedfactor.network.client_storage import Agreement, ClientFolder
from fedfactor.network.exchange import advice
from fedfactor.network.server import ENDED, UNPROTECTED, written


def folder_of(place: str | os.PathLike[str]) -> Path:
    """Find the folder that is meant: a party's own, or the server's beside a ``federation.toml``."""
    path = Path(place)
    if not path.exists():
        raise DataError(f"{place} does not exist. Give federation.toml at the coordinator, or a party's own folder.")
    folder = path if path.is_dir() else path.resolve().parent / "server"
    if path.is_dir() and not (path / "agreement.json").exists() and (path / "server" / "agreement.json").exists():
        folder = path / "server"
    if not any((place / "agreement.json").exists() for place in (folder, folder / "result")):
        when = has_left(folder)
        if when:
            raise DataError(f"{place} is the folder of a party that left at {when} and deleted what it had.")
        raise DataError(
            f"{place} leads to no party's folder. Give the folder that fedfactor join made, or the coordinator's "
            "federation.toml after fedfactor serve."
        )
    return folder


@contextmanager
def from_anywhere(folder: Path) -> Generator[None]:
    """Read a folder of untrusted origin: files that do not hold what they should are a mistake in data."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, AssertionError) as error:
        raise DataError(
            f"{folder} holds a file that this version of fedfactor does not write like this ({type(error).__name__}: "
            f"{error}). Another version wrote it, or it was changed: look at it with the version that wrote it."
        ) from error


def status_of(place: str | os.PathLike[str], server: Path | None = None) -> dict[str, Any]:
    """Return where a party or the coordinator stands; ``server`` is its folder where that is not beside the file."""
    folder = server or folder_of(place)
    with from_anywhere(folder):
        if not is_server(folder):
            return client_status(folder)
        path = Path(place)
        toml = path if path.is_file() else folder.parent / "federation.toml"
        return server_status(Coordinator(toml, folder))


def client_status(folder: Path) -> dict[str, Any]:
    """Return whether a party is connected, and what it has answered and sent: in all, and in its last run."""
    store = ClientFolder(folder)
    sent = store.sent()
    mine = store.agreement
    signed = folder / "signed.json"
    where = json.loads(signed.read_bytes())["terms"]["server"]["address"] if signed.exists() else "the server"
    last = sent[-1] if sent else None
    refused = [line for line in sent if line["kind"] == "refusal"]
    connection = _connection(folder, where)
    return {
        "party": mine.name,
        "terms": mine.terms,
        "connected": not connection.startswith("NOT"),
        "connection": connection,
        "state": "nothing was asked yet" if last is None else f"answered {last['kind']} {last['index']}",
        "last": None if last is None else last["time"],
        "run": None if last is None else last["run"],
        "rounds": len(_rounds(sent, last["run"])) if last else 0,
        "runs": [f"{run} ({len(_rounds(sent, run))} rounds)" for run in dict.fromkeys(line["run"] for line in sent)],
        "messages": len(sent),
        "bytes_sent": sum(line["bytes"] for line in sent),
        "asked_again": sum(line["again"] for line in sent),
        "refused": len(refused),
        "last_refusal": refused[-1].get("reason", "") if refused else "",
        "left": store.left().removeprefix("Left").strip(),
        "remaining": store.answered.remaining(),
        "budget": store.spent().removeprefix("Budget").strip(),
        "epsilon": _epsilon(store),
        "results": list(store.results()),
    }


def _epsilon(store: ClientFolder) -> dict[str, float]:
    """Return what these rows have cost and what is left of their budget; nothing where they have none."""
    ledger = store.ledger
    if ledger is None:
        return {}
    spent = ledger.epsilon()
    budget = ledger.budget
    found = {"spent": spent, "budget": budget, "left": max(0.0, budget - spent)}
    return {name: value for name, value in found.items() if math.isfinite(value)}  # JSON has no infinity


def _rounds(sent: Sequence[Mapping[str, Any]], run: str) -> set[int]:
    return {line["index"] for line in sent if line["kind"] == "step" and line["run"] == run}


def _connection(folder: Path, where: str) -> str:
    if not is_locked(folder / "join.lock"):
        return "NOT connected: no fedfactor join runs here"
    found = Connection.of(folder)
    return f"NOT connected: {where} was not reached yet" if found is None else found.words(where)


def server_status(place: Coordinator) -> dict[str, Any]:
    """Return whether the coordinator serves, who is connected, where the run stands, and what to do about it.

    Numbers are numbers and times are ISO 8601, so that programs can read them. ``state`` is ``not started``,
    ``starting``, ``running``, ``interrupted``, ``paused``, ``failed`` or ``finished``; ``phase`` is what a running
    one waits for.
    """
    raw = place.status()
    served = place.served
    there = place.presence()
    about: dict[str, Any] = {
        "served": served,
        "address": place.terms.content["server"]["address"],
        "connected": [name for name, (online, _) in there.items() if online],
        "not_connected": [f"{name} ({away_words(since)})" for name, (online, since) in there.items() if not online],
        "removed": place.removed(),
        "state": run_state(place),
    }
    if "time" not in raw:
        return about | {"advice": advice_for(about, place.file)}
    about |= {
        "phase": raw["state"] if raw["state"] not in ENDED else "",
        "reason": STATUS.get(why := raw.get("reason", ""), why),
        "refusing": raw.get("refusing", []),
        "unavailable": raw.get("unavailable", []),
        "run": raw.get("run", ""),
        "as_of": moment(raw["time"]).replace(" UTC", "Z").replace(" ", "T"),
        "seconds_since": round(time.time() - raw["time"], 1),
        "round": raw["round"],
        "rounds": raw["rounds"],
    }
    about["advice"] = advice_for(about, place.file)
    if "metrics" not in raw:
        return about
    gone = set(place.removed())
    away = sorted(set(raw["clients"]) - set(raw["participants"]) - gone) if raw["participants"] else []
    owing = set(raw["clients"]) - set(raw.get("answered", raw.get("present", raw["clients"]))) - gone
    return about | {
        "took_part": raw["participants"],
        "away": away,
        "waiting_for": sorted(owing) if place.running else [],
        "metrics": raw["metrics"],
        "seconds": round(raw.get("seconds", 0.0), 2),
        "bytes_up": raw["bytes_up"],
        "bytes_down": raw["bytes_down"],
        "rejected": {key: n for key, n in raw["rejected"].items() if " " not in key},
        "last_said": raw["reasons"],
        "privacy": _privacy(place.folder),
    }


RUN_STATES = ("not started", "starting", "running", "interrupted", "paused", "failed", "finished")
"""States of a run, as ``fedfactor status`` and the metrics name them."""


def run_state(place: Coordinator) -> str:
    """Return the state of the run; one whose process has ended, in order or not, is ``interrupted``."""
    state = place.status()["state"]
    if state == "not started" or state in ENDED:
        return state
    if not place.running:
        return "interrupted"
    return state if state == "starting" else "running"


def advice_for(about: Mapping[str, Any], file: Path) -> str:
    """Return what the coordinator has to do next; nothing when nothing has to be done."""
    state = about["state"]
    served = about["served"]
    if state == "interrupted":
        return f"resume it with {'' if served else f'fedfactor serve {file}, then '}fedfactor start {file}"
    if state == "paused":
        return advice(about["refusing"], about["unavailable"]) or f"resume it with fedfactor start {file}"
    return "" if served else f"no party can connect: fedfactor serve {file}"


def _privacy(folder: Path) -> str:
    """Return what protects uploads, and what was spent."""
    agreement = Agreement.read(folder)
    if noise := agreement.noise:
        run = f"ε = {noise['epsilon']:g}, δ = {noise['delta']:g} for one {noise['unit']} in a whole run"
        return f"dp: the server sees only noisy sums of all parties; {run}. Each party keeps its own ledger"
    whose = "only sums of all parties" if agreement.secure else "each party's sums"
    if agreement.links:
        return f"{agreement.protect}: the server sees {whose}, after {len(agreement.links)} links; see run.json"
    return f"{agreement.protect}: the server sees {whose}; no noise, so epsilon is infinite"


def is_server(folder: Path) -> bool:
    """Distinguish the server's folder from a client's."""
    return (folder / "server.json").exists()


def server_results(folder: Path) -> dict[str, Path]:
    """Find the results of all runs at the server, the last one last."""
    older = [path for path in (folder / "runs").glob("*") if (path / "run.json").exists()]
    older.sort(key=lambda path: (path / "run.json").stat().st_mtime)
    found = {path.name: path for path in older}
    last = folder / "result"
    return {**found, read_json(last / "run.json")["run"]: last} if (last / "run.json").exists() else found


def write_result(folder: Path, out: str | os.PathLike[str], run: str = "") -> Path:
    """Write what this party may have of its last run, or of the one named, in the layout of ``fedfactor fit``."""
    with from_anywhere(folder):
        return _write_result(folder, out, run)


def _write_result(folder: Path, out: str | os.PathLike[str], run: str) -> Path:
    serves = is_server(folder)
    found = server_results(folder) if serves else ClientFolder(folder).results()
    if not found:
        why = going_on(folder) or ("See fedfactor status" if serves else "No run ended while this party was there")
        raise DataError(f"{folder} holds no result yet. {why}.")
    if run and run not in found:
        raise DataError(f"{folder} holds no result of run {run!r}. It holds: {', '.join(found)}.")
    chosen = run or list(found)[-1]
    before = list(found)[: list(found).index(chosen)]
    make = _server_result if serves else _client_result
    return make(folder, found[chosen], before, out)


def going_on(folder: Path) -> str:
    """Name the run that has begun here and left no result yet, and how far it is; nothing when there is none."""
    with from_anywhere(folder):
        return _going_on(folder)


def _going_on(folder: Path) -> str:
    if is_server(folder):
        about: dict[str, Any] = read_json(folder / "status.json") if (folder / "status.json").exists() else {}
        run = about.get("run")
        rounds = about.get("round")
        known = server_results(folder)
    else:
        store = ClientFolder(folder)
        sent = [line for line in store.sent() if line["kind"] in ("survey", "step")]
        run = sent[-1]["run"] if sent else None
        known = store.results()
        rounds = len(_rounds(sent, run)) if run else 0
    if not run or run in known or not (folder / "agreement.json").exists():
        return ""
    agreed = Agreement.read(folder)
    return f"Run {run} has not ended: round {rounds} of {agreed.rounds}, terms {agreed.terms[:16]}"


def _client_result(folder: Path, result: Path, before: list[str], out: str | os.PathLike[str]) -> Path:
    """Read a result with what was kept beside it: the party may have signed up for other terms since."""
    beside = result if (result / "agreement.json").exists() else folder
    agreement = Agreement.read(beside)
    agreement.make()  # a folder may come from anywhere: it names one of the public algorithms, or nothing is read
    data = (result / "factors.safetensors").read_bytes()
    kept = from_bytes(data)
    about = read_header(data, limit=1 << 30)[1]
    factors = kept["factors"]
    score = kept["score"]
    private = {name: array for name, array in leaves(factors) if name != "V"}
    terms = Terms.of(json.loads((beside / "signed.json").read_bytes())["terms"])
    store = ClientFolder(folder)
    store.agreement = agreement  # that of the run: the folder's own may be another, or was forgotten with its rows
    sent = [line for line in store.sent() if line["run"] == about.get("run")]
    record: dict[str, Any] = {
        "algorithm": agreement.algorithm.rpartition(":")[2],
        "settings": agreement.settings,
        "seed": agreement.seed,
        "run": about.get("run"),
        "lineage": _lineage(
            about.get("run", ""),
            before,
            agreement.terms,
            agreement.meta.clients,
            [agreement.start] * bool(agreement.start),
        ),
        "terms": agreement.terms,
        "party": agreement.name,
        "relative_error": score.relative_error,
        "rounds": len(_rounds(sent, about.get("run", ""))),
        "bytes_sent": sum(line["bytes"] for line in sent),
        "letters": len(sent),
    }
    record["privacy"] = _protected(agreement, store, about.get("run", ""), record["rounds"])
    plan = terms.preprocess()
    columns = beside / COLUMNS
    weights = terms.declared_weights()
    if plan.survey and columns.exists():
        weights = from_bytes(read_checked(columns)).get("weights")
    record |= _preprocessed(plan, weights)
    ids = read_json(beside / ROW_IDS) if (beside / ROW_IDS).exists() else None
    name = agreement.name
    if terms.by_columns:
        # As of rows: V describes this party's columns, and U the rows, which are private; their ids are known here.
        known = {hashed: each for each, hashed in read_json(folder / ROW_NAMES).items()}
        rows = [known[hashed] for hashed in terms.features]
        record["settings"] = {key: value for key, value in agreement.settings.items() if key != "split"}
        U = {"U": factors.V.T}
        return write_factors(out, factors.U.T, features=ids, private={name: U}, run=record, row_ids={name: rows})
    return write_factors(
        out, factors.V, features=terms.features, private={name: private}, run=record, row_ids={name: ids}
    )


def _protected(agreement: Agreement, store: ClientFolder, run: str, rounds: int) -> dict[str, Any]:
    """Return what protected the uploads of a run; with noise also what it cost these rows by their own books."""
    channel = agreement.channel(run)
    report = UNPROTECTED if channel is None else written(channel.report(rounds))
    if not agreement.noise:
        return report
    ledger = store.ledger
    assert ledger is not None
    return {**report, "epsilon": ledger.epsilon(run=run), "data_set_epsilon": ledger.epsilon()}


def _preprocessed(plan: Preprocess, weights: Any) -> dict[str, Any]:
    """Return how rows were brought to the components, so that new rows can be."""
    absent = plan.missing_values
    return {
        "preprocess": {"steps": plan.words, "weights": None if weights is None else [float(each) for each in weights]},
        "asked": {"missing_values": None if absent is None else str(absent)},
    }


def _lineage(run: str, before: list[str], terms: str, parties: Sequence[str], parents: Sequence[str]) -> dict[str, Any]:
    """Return which version of the model this is, what it started at, and on whose rows and terms it stands."""
    return {
        "version": len(before) + 1,
        "run": run,
        "earlier": before,
        "parents": list(parents),
        "terms": terms,
        "parties": list(parties),
    }


def _server_result(folder: Path, result: Path, before: list[str], out: str | os.PathLike[str]) -> Path:
    record = read_json(result / "run.json")
    record["lineage"] = _lineage(record["run"], before, record["terms"], record["finished"], record.get("parents", ()))
    folder = result if (result / "features.json").exists() else folder
    shared = read_leaves((result / "down.safetensors").read_bytes(), "down")
    if "V" not in shared:
        raise DataError(
            f"{record['algorithm']} leaves no V at the server: each party has its own. Ask them, or read {result}."
        )
    features = read_json(folder / "features.json")
    if (folder / "preprocess.json").exists() and read_json(folder / "preprocess.json").get("split") == "columns":
        raise DataError(
            "Parties hold columns: each has its own part of V, and the coordinator only U of hashed rows, in "
            f"{result / 'down.safetensors'}. Ask the parties for their results."
        )
    if (folder / "preprocess.json").exists():
        kept = read_json(folder / "preprocess.json")
        sums = folder / "survey.safetensors"
        plan = Preprocess.of(kept)
        weights = kept.get("weights")
        if plan.survey and sums.exists():
            weights = from_bytes(sums.read_bytes())["sums"].weights(plan.survey)
        record |= _preprocessed(plan, weights)
    return write_factors(out, shared["V"], features=features, run=record)
