"""What a party deletes: its rows, its factors, the bytes that it sent; and that it leaves for good.

The list of what was sent (times, sizes, digests) and the count of what was asked stay: they are what a party can show,
and hold a coordinator to. Deleting a file does not reach copies of a disk, nor blocks that a drive keeps to itself.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Collection
from pathlib import Path

from fedfactor.core.atomic_files import read_json, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.core.hash_chain import Chain
from fedfactor.federation.gain import KEPT_OUT
from fedfactor.federation.party import ROW_IDS, ROW_NAMES
from fedfactor.federation.progress_lines import is_locked
from fedfactor.network.client import COLUMNS
from fedfactor.network.client_storage import ClientFolder

PARTS: dict[str, tuple[str, ...]] = {
    "rows": (
        "data",
        KEPT_OUT,
        f"{KEPT_OUT}_given",
        "state.safetensors",
        COLUMNS,
        ROW_IDS,
        ROW_NAMES,
        "agreement.json",
        "identity.key",
    ),
    "factors": ("result", "runs", "state.safetensors"),
    "sent": ("sent",),
}
"""What can be forgotten, and where it lies in a party's folder."""

WORDS = {
    "rows": "the copy of your rows",
    "factors": "your factors, which are the results of all your runs (--keep-results keeps them)",
    "sent": "the bytes that you sent",
}
"""The same, for people."""

FORGOTTEN = "forgotten.jsonl"
LEFT = "left.json"


def forget(folder: Path, parts: Collection[str] = tuple(PARTS)) -> list[str]:
    """Delete these parts of a party's folder; return what was deleted.

    Without its rows a party has to join again, with the file; what it agreed to, and how much it answered, is kept.
    """
    _at_rest(folder)
    if "rows" in parts and (folder / "data" / "about.json").exists() and (signed := folder / "signed.json").exists():
        # Their fingerprint stays: what was spent on these rows stays spent when they come back.
        kept = {**read_json(signed), "source": "", "rows": ClientFolder(folder).rows}
        write_atomic(signed, json.dumps(kept).encode())
    gone: list[str] = []
    for name in dict.fromkeys(name for part in parts for name in PARTS[part]):
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
        else:
            continue
        gone.append(name)
    _note(folder, "forgot", sorted(parts))
    return gone


SENT_DAYS = 90
"""Days after which the bytes that were sent in a run that is over are deleted, unless the terms or the party say so."""


def forget_old(folder: Path, agreed: int, keep_sent: int = SENT_DAYS, now: float | None = None) -> list[str]:
    """Delete bytes that were sent, and results, that are older than agreed; the list of what was sent stays.

    Answers of a run that is not over stay, however old they are.

    Parameters
    ----------
    folder : Path
        The party's folder.
    agreed : int
        Days after which the terms let bytes and results be deleted; 0: results are kept.
    keep_sent : int
        Days for bytes where the terms have none; 0: they are kept.
    now : float, optional
        Unix time.
    """
    now = now or time.time()
    days = agreed or keep_sent
    open_answers = _unfinished(ClientFolder(folder))
    old = [path for path in (folder / "sent").glob("*.safetensors") if path.stem not in open_answers]
    old = [path for path in old if days and path.stat().st_mtime < now - days * 86400]
    for path in old:
        path.unlink()
    results = [path for path in (folder / "result", *(folder / "runs").glob("*")) if agreed]
    results = [path for path in results if _older(path, now - agreed * 86400)]
    for path in results:
        shutil.rmtree(path)
    gone = [path.name for path in (*old, *results)]
    if gone:
        _note(folder, f"deleted what was older than {days} days", gone)
    return gone


def _unfinished(store: ClientFolder) -> set[str]:
    """Return the digests of what was sent in the last run, if that is not over."""
    sent = [line for line in store.sent() if "reason" not in line]
    if not sent or any(line["kind"] == "end" for line in sent if line["run"] == sent[-1]["run"]):
        return set()
    return {line["sha256"] for line in sent if line["run"] == sent[-1]["run"]}


def leave(folder: Path) -> None:
    """Write down that this party left for good: it joins from this folder no more."""
    _at_rest(folder)
    write_atomic(folder / LEFT, json.dumps({"time": _now()}).encode())
    _note(folder, "left", [])


def has_left(folder: Path) -> str:
    """Return when a party left for good; empty when it did not."""
    return read_json(folder / LEFT)["time"] if (folder / LEFT).exists() else ""


def _older(path: Path, before: float) -> bool:
    file = path / "factors.safetensors"
    return file.exists() and file.stat().st_mtime < before


def _at_rest(folder: Path) -> None:
    if not (folder / "signed.json").exists() and not (folder / "agreement.json").exists():
        raise DataError(f"{folder} is no party's folder. Give the one that fedfactor join made.")
    if is_locked(folder / "join.lock"):
        raise DataError(f"fedfactor join runs in {folder}. End it first.")


def _note(folder: Path, deed: str, what: list[str]) -> None:
    chain = Chain(folder / FORGOTTEN)
    with chain.alone():
        chain.append({"time": _now(), "deed": deed, "what": what})


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
