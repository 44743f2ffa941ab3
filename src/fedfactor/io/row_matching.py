"""Rows that several clients know, found by keyed hashes of their ids, or by points that every client has blinded."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence

import numpy as np

from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError

__all__ = ["blinded", "common_hashes", "hashes_of_ids", "matched_rows", "points_of_ids", "positions_of"]

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
    digests = b"".join(hmac.digest(key, text.encode(), hashlib.sha256)[:SIZE] for text in texts_of_ids(ids))
    return np.frombuffer(digests, dtype=f"V{SIZE}")


def texts_of_ids(ids: Sequence[object]) -> list[str]:
    """Return ids as the texts by which they are compared; an id of more than one row is an error."""
    texts = [str(each).strip() for each in ids]
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise DataError(f"The id {text!r} stands for more than one row. Join such rows, or leave them out, first.")
        seen.add(text)
    return texts


PRIME = 2**255 - 19
CURVE = 486662
"""The field of Curve25519, and the coefficient of its equation ``v² = u³ + 486662 u² + u`` (RFC 7748)."""


def points_of_ids(ids: Sequence[object]) -> list[bytes]:
    """Map each id to a point of Curve25519, given by its u-coordinate.

    Hashes that are no coordinate on the curve are hashed again: a point of the twist would remain one however often it
    is blinded, and show one bit of the hash.

    Examples
    --------
    >>> points_of_ids(["p1"]) == points_of_ids([" p1 "]), len(points_of_ids(["p1"])[0])
    (True, 32)
    """
    return [_point(text.encode()) for text in texts_of_ids(ids)]


def _point(text: bytes) -> bytes:
    digest = hashlib.sha256(b"fedfactor row id\0" + text).digest()
    while True:
        u = int.from_bytes(digest, "little") % 2**255 % PRIME
        if u > 1 and pow(u * (u * u + CURVE * u + 1), (PRIME - 1) // 2, PRIME) == 1:
            return u.to_bytes(32, "little")
        digest = hashlib.sha256(digest).digest()


def blinded(points: Sequence[bytes], secret: bytes) -> list[bytes]:
    """Multiply points by a client's secret scalar (X25519); the order in which clients do this does not matter.

    Parameters
    ----------
    points : sequence of bytes
        Of :func:`points_of_ids`, or what other clients have blinded before.
    secret : bytes of length 32
        Random, used for one matching only, and kept by the client.

    Returns
    -------
    list of bytes

    Notes
    -----
    Once all clients have blinded a point, equal points are equal ids, and a client whose secret is unknown to an
    attacker stops it from comparing points with those of guessed ids: the coordinator together with all but one client
    cannot. A client can put guessed ids on its own list, as in any matching: each is then answered.

    Examples
    --------
    >>> points = points_of_ids(["p1", "p2"])
    >>> a, b = bytes([1]) * 32, bytes([2]) * 32
    >>> blinded(blinded(points, a), b) == blinded(blinded(points, b), a)
    True
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    key = X25519PrivateKey.from_private_bytes(secret)
    try:
        return [key.exchange(X25519PublicKey.from_public_bytes(point)) for point in points]
    except ValueError as error:
        raise DataError(f"The list holds something that is no blinded id ({error}). Ask for the list again.") from None


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


def matched_rows(shards: Mapping[str, Shard]) -> dict[str, np.ndarray]:
    """Return the positions of the common rows at each of several clients that are in this process.

    Examples
    --------
    >>> X = np.ones((2, 3))
    >>> rows = matched_rows({"lab": Shard(X, row_ids=("a", "b")), "clinic": Shard(X, row_ids=("b", "c"))})
    >>> {name: places.tolist() for name, places in rows.items()}
    {'lab': [1], 'clinic': [0]}
    """
    if not shards:
        raise DataError("No client has columns. Give at least one table.")
    with_ids = [name for name, shard in shards.items() if shard.row_ids is not None]
    if not with_ids:
        sizes = {name: shard.n_rows for name, shard in shards.items()}
        if len(set(sizes.values())) > 1:
            said = ", ".join(f"{name!r} has {size}" for name, size in sizes.items())
            raise DataError(f"Clients that hold columns must have the same rows, but {said}. Give row ids to match by.")
        return {name: np.arange(size) for name, size in sizes.items()}
    if len(with_ids) < len(shards):
        bare = next(name for name in shards if name not in with_ids)
        raise DataError(f"Client {with_ids[0]!r} has row ids but {bare!r} has none. Give row ids for all, or for none.")
    key = secrets.token_bytes(32)
    hashed = {name: hashes_of_ids(shard.row_ids or (), key) for name, shard in shards.items()}
    common = common_hashes(hashed)
    if not len(common):
        raise DataError("The clients have no row in common. Compare how their ids are written.")
    places = {name: positions_of(common, own) for name, own in hashed.items()}
    order = np.argsort(next(iter(places.values())))  # as at the first client: that of the hashes is drawn
    return {name: found[order] for name, found in places.items()}
