"""Look into a party's folder: where it stands, what it sent, and what it may take away."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fedfactor.algorithms.names import algorithm_class
from fedfactor.core.checked import read_checked
from fedfactor.core.errors import DataError
from fedfactor.core.files import read_json
from fedfactor.core.protocol import Algorithm
from fedfactor.core.tree import leaves, type_tag
from fedfactor.core.wire import from_bytes, read_header
from fedfactor.data.preprocess import Preprocess
from fedfactor.data.results import write_factors
from fedfactor.engines.remote.client import COLUMNS
from fedfactor.engines.remote.client_folder import Agreement, ClientFolder
from fedfactor.federation.member import ROW_IDS
from fedfactor.federation.terms import Terms


def folder_of(place: str | os.PathLike[str]) -> Path:
    """Find the folder that is meant: a party's own, or the server's beside a ``federation.toml``."""
    path = Path(place)
    folder = path if path.is_dir() else path.resolve().parent / "server"
    if path.is_dir() and not (path / "agreement.json").exists() and (path / "server" / "agreement.json").exists():
        folder = path / "server"
    if not (folder / "agreement.json").exists():
        raise DataError(
            f"{place} leads to no party's folder. Give the folder that fedfactor join made, or the coordinator's "
            "federation.toml after fedfactor serve."
        )
    return folder


def client_status(folder: Path) -> dict[str, Any]:
    """Tell what one client has answered and sent so far."""
    store = ClientFolder(folder)
    sent = store.sent()
    mine = store.agreement
    last = sent[-1] if sent else None
    refused = [line for line in sent if line["kind"] == "refusal"]
    return {
        "party": mine.name,
        "terms": mine.terms,
        "state": "nothing was asked yet" if last is None else f"answered {last['kind']} {last['index']}",
        "last": None if last is None else last["time"],
        "letters": len(sent),
        "bytes_sent": sum(line["bytes"] for line in sent),
        "rounds": len({(line["run"], line["index"]) for line in sent if line["kind"] == "step"}),
        "asked_again": sum(line["again"] for line in sent),
        "refused": len(refused),
        "last_refusal": refused[-1].get("reason", "") if refused else "",
        "left": store.left().removeprefix("Left").strip(),
        "budget": store.spent().removeprefix("Budget").strip(),
        "result": (folder / "result" / "factors.safetensors").exists(),
    }


def is_server(folder: Path) -> bool:
    """Tell the server's folder from a client's."""
    return (folder / "server.json").exists()


def write_result(folder: Path, out: str | os.PathLike[str]) -> Path:
    """Write what this party may have, in the layout of ``fedfactor fit``."""
    agreement = Agreement.of((folder / "agreement.json").read_bytes())
    known_algorithm(agreement)  # bytes never cause an import, so the algorithm that wrote them must be known
    return _server_result(folder, out) if is_server(folder) else _client_result(folder, agreement, out)


def known_algorithm(agreement: Agreement) -> type[Algorithm]:
    """Find the agreed algorithm among the public ones; a folder may come from anywhere, and must not name code."""
    try:
        found = algorithm_class(agreement.algorithm.rpartition(":")[2])
    except ValueError:
        found = None
    if found is None or type_tag(found) != agreement.algorithm:
        raise DataError(
            f"{agreement.algorithm!r} is not an algorithm of fedfactor. The folder was changed by somebody."
        )
    return found


def _client_result(folder: Path, agreement: Agreement, out: str | os.PathLike[str]) -> Path:
    file = folder / "result" / "factors.safetensors"
    if not file.exists():
        raise DataError(f"{folder} holds no result yet: the run has not ended, or this party was away at its end.")
    data = file.read_bytes()
    kept = from_bytes(data)
    factors, score = kept["factors"], kept["score"]
    private = {name: array for name, array in leaves(factors) if name != "V"}
    terms = Terms.of(json.loads((folder / "signed.json").read_bytes())["terms"])
    record = {
        "algorithm": agreement.algorithm.rpartition(":")[2],
        "settings": agreement.settings,
        "seed": agreement.seed,
        "run": read_header(data, limit=1 << 30)[1].get("run"),
        "terms": agreement.terms,
        "party": agreement.name,
        "relative_error": score.relative_error,
        **{key: value for key, value in client_status(folder).items() if key in ("bytes_sent", "rounds", "letters")},
    }
    if agreement.noise:
        record["privacy"] = _paid(ClientFolder(folder), record["run"], record["rounds"])
    plan = terms.preprocess()
    columns = folder / COLUMNS
    weights = from_bytes(read_checked(columns)).get("weights") if plan.survey and columns.exists() else None
    record |= _preprocessed(plan, weights)
    ids = read_json(folder / ROW_IDS) if (folder / ROW_IDS).exists() else None
    name = agreement.name
    return write_factors(
        out, factors.V, features=terms.features, private={name: private}, run=record, row_ids={name: ids}
    )


def _paid(store: ClientFolder, run: str, rounds: int) -> dict[str, Any]:
    """Say what a run with noise promises, and what it cost these rows by their own books."""
    channel, ledger = store.agreement.channel(run), store.ledger
    assert channel is not None
    assert ledger is not None
    return {**channel.report(rounds), "epsilon": ledger.epsilon(run=run), "data_set_epsilon": ledger.epsilon()}


def _preprocessed(plan: Preprocess, weights: Any) -> dict[str, Any]:
    """Say how rows were brought to the components, so that new rows can be."""
    absent = plan.missing_values
    return {
        "preprocess": {"steps": plan.words, "weights": None if weights is None else [float(each) for each in weights]},
        "asked": {"missing_values": None if absent is None else str(absent)},
    }


def _server_result(folder: Path, out: str | os.PathLike[str]) -> Path:
    file = folder / "result" / "run.json"
    if not file.exists():
        raise DataError(f"{folder} holds no result yet. See fedfactor status.")
    record = json.loads(file.read_bytes())
    shared = dict(leaves(from_bytes((folder / "result" / "down.safetensors").read_bytes())["down"]))
    if "V" not in shared:
        raise DataError(
            f"{record['algorithm']} leaves no V at the server: each party has its own. Ask them, or read "
            f"{folder / 'result'}."
        )
    features = read_json(folder / "features.json")
    if (folder / "preprocess.json").exists():
        plan, sums = Preprocess.of(read_json(folder / "preprocess.json")), folder / "survey.safetensors"
        weights = from_bytes(sums.read_bytes())["sums"].weights(plan.survey) if plan.survey and sums.exists() else None
        record |= _preprocessed(plan, weights)
    return write_factors(out, shared["V"], features=features, run=record)
