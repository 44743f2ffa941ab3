"""A file of lines that only grows: each line carries the digest of the one before, so that none can change or vanish.

Beside the file lies a small one, ``NAME.head``, with the number of lines and the last digest. Lines cut off at the end
do not fit it. A copy of both files put in the place of newer ones looks whole: no file can know its own future. Where a
:class:`~fedfactor.core.rollback_detection.Witness` remembers how long the file was, that is noticed, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import alone_with, write_atomic
from fedfactor.core.errors import FedfactorError
from fedfactor.core.rollback_detection import Witness

__all__ = ["Chain", "ChainError"]


class ChainError(FedfactorError, RuntimeError):
    """A file that only grows has changed, or has lost lines."""


class Chain:
    """Lines of JSON, each bound to all before it.

    Parameters
    ----------
    path : path
        The file; made with the first line, readable by its owner only.
    witness : Witness, optional
        Who else remembers how long the file was.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     chain = Chain(f"{folder}/notes.jsonl")
    ...     with chain.alone():
    ...         chain.append({"said": "yes"})
    ...     chain.lines()
    [{'said': 'yes'}]
    """

    def __init__(self, path: str | os.PathLike[str], witness: Witness | None = None) -> None:
        self.path = Path(path)
        self._witness = witness
        self._head = self.path.with_name(self.path.name + ".head")
        self._seen: tuple[Any, tuple[list[dict[str, Any]], str, int]] | None = None

    def lines(self) -> list[dict[str, Any]]:
        """Return all lines, oldest first, or raise when they are not those that were written."""
        return [dict(line) for line in self._read()[0]]

    def append(self, line: dict[str, Any]) -> None:
        """Add a line; returns when it is on the disk. Call it inside :meth:`alone`."""
        lines, digest, whole = self._read()
        text = json.dumps({"before": digest, **line}, ensure_ascii=False).encode() + b"\n"
        handle = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
        with os.fdopen(handle, "r+b") as file:
            file.truncate(whole)  # a line that a power cut tore: it was never acted upon
            file.seek(whole)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        last = _digest(text)
        write_atomic(self._head, json.dumps({"lines": len(lines) + 1, "digest": last}).encode())
        if self._witness is not None:
            self._witness.tell(self.path, len(lines) + 1, last)
        self._seen = (self._mark(), ([*lines, line], last, whole + len(text)))

    def follows(self, number: int, digest: str) -> bool:
        """Return whether the line of this number is there, and has this digest."""
        self._checked()
        texts = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        return number < len(texts) and _digest(texts[number - 1] + b"\n") == digest

    @contextlib.contextmanager
    def alone(self) -> Generator[None, None, None]:
        """Keep other processes waiting, where the system has file locks."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with alone_with(self.path):
            yield

    def _read(self) -> tuple[list[dict[str, Any]], str, int]:
        """Return the lines, the digest of the last one, and the bytes that they take; read again when files changed."""
        while True:
            mark = self._mark()
            seen = self._seen
            if seen is not None and seen[0] == mark:
                return seen[1]
            try:
                found = self._checked()
            except ChainError:
                if self._mark() == mark:
                    raise
                continue  # another process appended lines between the reading of the two files
            self._seen = (mark, found)
            return found

    def _mark(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for path in (self.path, self._head):
            about = path.stat() if path.exists() else None
            found.append(None if about is None else (about.st_ino, about.st_size, about.st_mtime_ns))
        return found

    def _checked(self) -> tuple[list[dict[str, Any]], str, int]:
        count, last = self._promised()
        data = self.path.read_bytes() if self.path.exists() else b""
        *whole, _torn = data.split(b"\n")
        if not count <= len(whole) <= count + 1:  # killed between a line and the count of it
            raise self._changed(f"it has {len(whole)} lines, but {count} were written")
        found: list[dict[str, Any]] = []
        digest = ""
        size = 0
        for number, text in enumerate(whole, 1):
            try:
                line: Any = json.loads(text)
                before = line.pop("before")
            except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
                raise self._changed(f"line {number} cannot be read") from None
            if before != digest:
                raise self._changed(f"line {number} does not follow the one before it")
            digest = _digest(text + b"\n")
            size = size + len(text) + 1
            if number == count and digest != last:
                raise self._changed(f"line {number} is not the one that was written")
            found.append(line)
        if self._witness is not None:
            seen, known = self._witness.of(self.path)
            if seen > len(whole) or (seen and _digest(whole[seen - 1] + b"\n") != known):
                raise ChainError(
                    f"{self.path} is an old copy, or gone: {self._witness.path} remembers {seen} lines of it, and it "
                    f"does not hold them. Restore the newest copy of {self.path.parent}. If there is none, and you "
                    "decide that what these rows have answered, and cost, so far no longer counts, delete "
                    f"{self._witness.path}."
                )
        return found, digest, size

    def _promised(self) -> tuple[int, str]:
        if not self._head.exists():
            return 0, ""
        try:
            raw: Any = json.loads(self._head.read_bytes())
            return int(raw["lines"]), str(raw["digest"])
        except (ValueError, KeyError, TypeError):
            raise self._changed(f"{self._head.name} beside it is damaged") from None

    def _changed(self, why: str) -> ChainError:
        return ChainError(
            f"{self.path} was changed, or is damaged: {why}. Restore it from a copy, with "
            f"{self._head.name} beside it: without it past operations are unknown."
        )


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
