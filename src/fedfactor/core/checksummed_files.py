"""Files that know their own checksum: a bit that flipped on the disk is noticed before it is used."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import CheckpointError

__all__ = ["file_digest", "read_checked", "write_checked"]

_MARK = b"\nsha256 "
_TAIL = len(_MARK) + 64 + 1


def write_checked(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file with its own checksum behind it, for :func:`read_checked`; replaced in one step.

    Examples
    --------
    >>> import tempfile
    >>> from fedfactor.core.checksummed_files import read_checked, write_checked
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_checked(write_checked(f"{folder}/state", b"mine"))
    b'mine'
    """
    return write_atomic(path, data + _MARK + hashlib.sha256(data).hexdigest().encode() + b"\n")


def read_checked(path: str | os.PathLike[str]) -> bytes:
    """Read what :func:`write_checked` wrote, or refuse it when any of its bytes changed."""
    whole = Path(path).read_bytes()
    data = whole[:-_TAIL]
    tail = whole[-_TAIL:]
    if tail != _MARK + hashlib.sha256(data).hexdigest().encode() + b"\n":
        raise CheckpointError(
            f"{path} is damaged: its checksum is wrong. Restore it from a back-up, or begin again without it."
        )
    return data


def file_digest(path: str | os.PathLike[str]) -> str:
    """Name a file by its content (SHA-256)."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
