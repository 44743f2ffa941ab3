"""A secure aggregation that outlives the process which began it, where another process answers each message."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

import numpy as np

from fedfactor.core.checksummed_files import read_checked, write_checked
from fedfactor.core.entropy import Entropy
from fedfactor.core.pytree import Tree, leaves, to_numpy
from fedfactor.core.wire import from_bytes, to_bytes

FILE = "sum.safetensors"


def entropy_of(secret: bytes, up: Tree, bond: Tree) -> Entropy:
    """Return the randomness of an aggregation: other uploads, or other questions, never have the same masks."""
    digest = hashlib.sha256(secret)
    for path, leaf in leaves({"up": up, "bond": bond}):
        array = np.ascontiguousarray(to_numpy(leaf))
        digest.update(repr((path, array.dtype.str, array.shape)).encode())
        digest.update(array.tobytes())
    return Entropy(digest.digest())


class KeptSum:
    """The secret of one secure aggregation, and the questions that were answered in it, in a client's folder.

    A client's answers follow from the two, so that the next process repeats them and goes on. The file is written
    before an answer leaves, under the lock of the folder: no two processes can answer one question differently, which
    could reveal both shares of a mask. The next aggregation replaces it.

    Parameters
    ----------
    folder : path
        The client's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE

    def begin(self, session: int) -> None:
        """Draw a fresh secret, unless this session is the one that is kept."""
        if self.load()[0] != session:
            self._write(session, secrets.token_bytes(32), {})

    def add(self, session: int, phase: str, question: bytes) -> tuple[bytes, list[bytes]]:
        """Keep the first question of a phase; return the secret and the questions of the phases before it.

        A session that is not kept has no secret.
        """
        kept, secret, questions = self.load()
        if kept != session:
            return b"", []
        if phase not in questions:
            self._write(session, secret, {**questions, phase: question})
        return secret, list(questions.values())

    def load(self) -> tuple[int, bytes, dict[str, bytes]]:
        """Return the session that is kept (-1: none), its secret, and by phase its questions, in order."""
        if not self._file.exists():
            return -1, b"", {}
        tree = from_bytes(read_checked(self._file))
        questions = {name[2:]: data.tobytes() for name, data in sorted(tree["questions"].items())}
        return int(tree["session"]), tree["secret"].tobytes(), questions

    def _write(self, session: int, secret: bytes, questions: dict[str, bytes]) -> None:
        kept = {f"{i:02d}{phase}": np.frombuffer(data, np.uint8) for i, (phase, data) in enumerate(questions.items())}
        tree = {"session": np.int64(session), "secret": np.frombuffer(secret, np.uint8), "questions": kept}
        write_checked(self._file, to_bytes(tree))
