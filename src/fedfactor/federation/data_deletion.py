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

    Without its rows a party has to join anew, with the file; what it agreed to, and how much it answered, is kept.
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


def forget_old(folder: Path, days: int, now: float | None = None) -> list[str]:
    """Delete what was sent, and results, that are older than agreed; the list of what was sent stays."""
    if not days:
        return []
    before = (now or time.time()) - days * 86400
    old = [path for path in (folder / "sent").glob("*.safetensors") if path.stat().st_mtime < before]
    for path in old:
        path.unlink()
    results = [path for path in (folder / "result", *(folder / "runs").glob("*")) if _older(path, before)]
    for path in results:
        shutil.rmtree(path)
    gone = [path.name for path in (*old, *results)]
    if gone:
        _note(folder, f"deleted what was older than {days} days", gone)
    return gone


def leave(folder: Path) -> None:
    """Write down that this party left for good: it joins from this folder no more."""
    _at_rest(folder)
    write_atomic(folder / LEFT, json.dumps({"time": _now()}).encode())
    _note(folder, "left", [])


def has_left(folder: Path) -> str:
    """Tell when a party left for good; empty when it did not."""
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
