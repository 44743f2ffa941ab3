"""A party's private key on disk, in the format of OpenSSH, with or without a passphrase."""

from __future__ import annotations

import getpass
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedfactor.core.errors import DataError

__all__ = ["PASSPHRASE_FILE", "load_private_key", "new_passphrase"]

PASSPHRASE_FILE = "FEDFACTOR_KEY_PASSPHRASE_FILE"
"""Environment variable: a file whose first line is the passphrase, for processes without a terminal."""


@lru_cache(64)
def _load(path: str, changed: int) -> Any:
    """Read a key; it stays in memory while its file does not change, so that its passphrase is asked for once."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    data = Path(path).read_bytes()
    try:
        return load_ssh_private_key(data, None)
    except TypeError:  # it is encrypted
        passphrase = _passphrase(path)
    try:
        return load_ssh_private_key(data, passphrase)
    except ValueError as error:
        raise DataError(f"{path} cannot be decrypted ({error}). Is the passphrase right?") from None


def load_private_key(path: str | os.PathLike[str]) -> Any:
    """Read a private key; its passphrase, if it has one, comes from a file or from the terminal."""
    path = Path(path)
    return _load(str(path.resolve()), path.stat().st_mtime_ns)


def _passphrase(path: str) -> bytes:
    named = os.environ.get(PASSPHRASE_FILE)
    if named:
        return _first_line(Path(named))
    if not sys.stdin.isatty():
        raise DataError(
            f"{path} has a passphrase, and there is no terminal to type it at. Set {PASSPHRASE_FILE} to a file that "
            "holds it and that only this user can read (with systemd: LoadCredential)."
        )
    return getpass.getpass(f"Passphrase of {path}: ").encode()


def new_passphrase() -> bytes:
    """Return the passphrase for a new key: from the file that the environment names, or typed twice."""
    named = os.environ.get(PASSPHRASE_FILE)
    if named:
        return _first_line(Path(named))
    if not sys.stdin.isatty():
        raise DataError(f"There is no terminal to type a passphrase at. Set {PASSPHRASE_FILE} to a file that holds it.")
    typed = getpass.getpass("Passphrase of the new key: ")
    if not typed or typed != getpass.getpass("The same again: "):
        raise DataError("The passphrases are empty or differ. Nothing was written.")
    return typed.encode()


def _first_line(file: Path) -> bytes:
    lines = file.read_bytes().splitlines()
    if not lines or not lines[0]:
        raise DataError(f"{file} holds no passphrase: its first line is empty.")
    return lines[0]
