"""Back up the folder of a coordinator or of a party as one archive, and restore it into an empty place."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import read_json, write_atomic
from fedfactor.core.checksummed_files import file_digest
from fedfactor.core.errors import DataError
from fedfactor.core.rollback_detection import Witness
from fedfactor.network.client_storage import WITNESS, ClientFolder

ABOUT = "backup.json"
"""First entry of an archive: kind, time, and the SHA-256 of each file."""

LEFT_OUT = (".lock", ".part", "serving.lock", "lock", "ready.json", "order.json", "presence.json", "connection.json")
"""Endings of files that say what processes do at the moment."""


def back_up(place: Path, archive: Path, key: Path | None = None) -> dict[str, Any]:
    """Write an archive of ``federation.toml`` with its ``server/``, or of a party's folder with its key.

    Parameters
    ----------
    place : Path
        ``federation.toml``, or a party's folder.
    archive : Path
        A new file, readable by its owner only: it holds private keys.
    key : Path, optional
        A party's key; by default the one whose books the folder names.

    Returns
    -------
    dict
        ``kind``, ``files`` and ``bytes``.
    """
    if archive.exists():
        raise DataError(f"{archive} is there already. Choose another name.")
    with _at_rest(place):
        named = _files(place, key)
        about = {
            "kind": "party" if place.is_dir() else "coordinator",
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "sha256": {name: file_digest(file) for name, file in named.items()},
        }
        draft = archive.with_name(f".{archive.name}.part")
        handle = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as whole, tarfile.open(fileobj=whole, mode="w") as tar:
            text = json.dumps(about).encode()
            entry = tarfile.TarInfo(ABOUT)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
            for name, file in named.items():
                tar.add(file, name, recursive=False)
    check(draft)
    os.replace(draft, archive)
    return {"kind": about["kind"], "files": len(named), "bytes": archive.stat().st_size}


def check(archive: Path) -> dict[str, Any]:
    """Read an archive through, and raise unless all its files are whole."""
    try:
        with tarfile.open(archive) as tar:
            about = json.loads(_content(tar, ABOUT))
            known: dict[str, str] = about["sha256"]
            wrong = [name for name in known if hashlib.sha256(_content(tar, name)).hexdigest() != known[name]]
    except (tarfile.TarError, OSError, KeyError, ValueError) as error:
        raise DataError(f"{archive} cannot be read ({error}). Take another backup.") from None
    if wrong:
        raise DataError(f"{archive} is damaged: {wrong[0]} has another checksum. Take another backup.")
    return about


def restore(archive: Path, into: Path) -> list[str]:
    """Put the files of an archive into a folder that has none of them; return what a person has to know.

    A file beside a party's key that remembers what was answered and paid is never replaced by an older one.
    """
    about = check(archive)
    books = [name for name in about["sha256"] if name.endswith(".books")]
    there = sorted(name for name in about["sha256"] if name not in books and (into / name).exists())
    if there:
        raise DataError(f"{into / there[0]} is there already. Restore into an empty folder, and move it in place.")
    said: list[str] = []
    with tarfile.open(archive) as tar:
        for name in about["sha256"]:
            if name in books and (into / name).exists():
                said.append(f"{into / name} was kept: it remembers what was answered and paid until now.")
                continue
            file = into / name
            if not file.resolve().is_relative_to(into.resolve()):
                raise DataError(f"{archive} names a file outside its folder, {name!r}. Nothing of it can be trusted.")
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(file, _content(tar, name), mode=0o600 | tar.getmember(name).mode & 0o044)
            if name in books:
                said.append(
                    f"{file} is as old as the backup of {about['time']}: what was answered and paid since then is "
                    "not known here. Where the newer one exists, put it in its place."
                )
    for path in into.rglob(WITNESS):  # it names the books by their absolute path
        beside = [into / name for name in books]
        if beside:
            write_atomic(path, str(Witness(beside[0].resolve()).path).encode())
    return said


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise DataError(f"{name} is no plain file.")
    return file.read()


def _at_rest(place: Path) -> Any:
    """Hold what would change files while they are copied, or refuse."""
    if place.is_dir():
        if not (place / "agreement.json").exists():
            raise DataError(f"{place} is no party's folder. Give that, or federation.toml at the coordinator.")
        return ClientFolder(place).locked()  # messages wait meanwhile
    from fedfactor.federation.coordinator import Coordinator

    if Coordinator(place).running:
        raise DataError("A run goes on. Back up when it has ended, or after fedfactor serve was stopped.")
    return nullcontext()


def _files(place: Path, key: Path | None) -> dict[str, Path]:
    """Return what belongs into an archive, by the name it has there."""
    if not place.is_dir():
        root = place.resolve().parent
        return {place.name: place, **_below(root / "server", root)}
    named = _below(place.resolve(), place.resolve().parent)
    witness = place / WITNESS
    if key is None and witness.exists():
        key = Path(witness.read_text().removesuffix(".books"))
    if key is None:
        raise DataError("Give the party's key with --key: without it the folder is of no use.")
    for file in (key, Path(f"{key}.pub"), Path(f"{key}.books")):
        if file.exists():
            named[file.name] = file
    enrolled = place / "enrolment.json"
    if enrolled.exists() and Path(read_json(enrolled)["key"]).name != key.name:
        raise DataError(f"{place} uses the key {read_json(enrolled)['key']}. Give that with --key.")
    return named


def _below(folder: Path, root: Path) -> dict[str, Path]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(root)): path for path in files if not path.name.endswith(LEFT_OUT)}
