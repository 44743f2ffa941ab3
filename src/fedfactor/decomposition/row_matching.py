"""Rows that several clients know, found by keyed hashes of their ids."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

import numpy as np

from fedfactor.core.errors import DataError

__all__ = ["common_hashes", "hashes_of_ids", "positions_of"]

SIZE = 16
"""Bytes of a hash: of 100,000 ids two are equal by chance with probability 1e-29."""

KEY_BYTES = 16
"""Shortest key: a shorter one could be found by trying all."""


def hashes_of_ids(ids: Sequence[object], key: bytes) -> np.ndarray:
    """Hash the ids of a client's rows with a key that all clients share and the coordinator does not have.

    Parameters
    ----------
    ids : sequence of length n
        Compared as text, without leading and trailing blanks.
    key : bytes
        At least 16 random bytes (``secrets.token_bytes(32)``), sent between the clients by a channel that the
        coordinator cannot read.

    Returns
    -------
    array of shape (n,), dtype ``S16`` as raw bytes (``V16``)
        HMAC-SHA256, cut to 16 bytes.

    Notes
    -----
    Without the key no hash can be compared with that of a guessed id. A coordinator that one client gives the key to
    can hash all ids that it can think of; and every client learns which of its rows the others have.

    Examples
    --------
    >>> one, two = (hashes_of_ids(["p1", "p2"], key=bytes([n]) * 16) for n in (1, 2))
    >>> one.dtype, bool((one == two).any())
    (dtype('V16'), False)
    """
    if len(key) < KEY_BYTES:
        raise ValueError(
            f"A key of {len(key)} bytes can be found by trying all. Use secrets.token_bytes(32) at one client, and "
            "send it to the others by a channel that the coordinator cannot read."
        )
    texts = [str(each).strip() for each in ids]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise DataError(f"The id {twice!r} stands for more than one row. Join such rows, or leave them out, first.")
    digests = b"".join(hmac.digest(key, text.encode(), hashlib.sha256)[:SIZE] for text in texts)
    return np.frombuffer(digests, dtype=f"V{SIZE}")


def common_hashes(hashes: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the hashes that all clients have, in an order that depends on no client: what the coordinator does.

    Examples
    --------
    >>> key = b"0123456789abcdef"
    >>> hashes = {"lab": hashes_of_ids(["a", "b"], key), "clinic": hashes_of_ids(["b", "c"], key)}
    >>> len(common_hashes(hashes))
    1
    """
    sets = [{each.tobytes() for each in found} for found in hashes.values()]
    return np.frombuffer(b"".join(sorted(sets[0].intersection(*sets))), dtype=f"V{SIZE}")


def positions_of(common: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return where each of the common rows lies at a client.

    Examples
    --------
    >>> own = hashes_of_ids(["a", "b", "c"], b"0123456789abcdef")
    >>> positions_of(own[[2, 0]], own)
    array([2, 0])
    """
    place = {each.tobytes(): position for position, each in enumerate(own)}
    return np.array([place[each.tobytes()] for each in common], dtype=np.int64)
