"""How a party shows who it is: with every request it signs the time of its own clock.

The form is that of Flower's nodes, so that one gate lets in both kinds of party by the same look at the head.
"""

from __future__ import annotations

import datetime
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Collection
from pathlib import Path
from typing import Any

KEY, MOMENT, SIGNATURE = "flwr-public-key", "flwr-timestamp", "flwr-signature"
"""Headers of a request: the public key as PEM, the time, and what the private key makes of the time."""

AHEAD, BEHIND = 4.5, 304.5
"""Seconds by which a clock may be wrong: a little less than Flower's own bounds, because who passes the gate must not
be turned away a moment later without a word."""

UNKNOWN = "Invalid SuperNode authentication"
"""What a party is told whose key is not registered; Flower's own words."""

CLOCK = "Your clock is"
"""How a refusal begins whose only reason is the time."""


class Signer:
    """Signs for one party.

    Parameters
    ----------
    key : bytes
        The private key, in OpenSSH's format.
    """

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

        self._private: Any = load_ssh_private_key(key, None)
        public: bytes = self._private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self._public = b64encode(public).decode()

    @classmethod
    def of(cls, file: Path) -> Signer:
        """Read the private key from a file."""
        return cls(file.read_bytes())

    def head(self) -> dict[str, str]:
        """Return the headers of a request that is sent now."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256

        moment = now().isoformat()
        signature: bytes = self._private.sign(moment.encode("ascii"), ec.ECDSA(SHA256()))
        return {KEY: self._public, MOMENT: moment, SIGNATURE: b64encode(signature).decode()}


def now() -> datetime.datetime:
    """Tell the time, as this machine's clock has it."""
    return datetime.datetime.now(datetime.UTC)


def refusal(headers: Collection[tuple[bytes, bytes]], keys: Collection[bytes]) -> str | None:
    """Say why a request is not let in; None when one of these keys has signed its head just now.

    That only a clock is wrong is told to holders of registered keys alone.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    found = {name.lower(): value for name, value in headers}
    try:
        key = b64decode(found[KEY.encode()], validate=True)
        if key.strip() not in keys:
            return UNKNOWN
        moment = found[MOMENT.encode()]
        signed = datetime.datetime.fromisoformat(moment.decode("ascii"))
        age = (now() - signed).total_seconds()
        public: Any = load_pem_public_key(key)
        public.verify(b64decode(found[SIGNATURE.encode()], validate=True), moment, ec.ECDSA(SHA256()))
    except (KeyError, ValueError, TypeError, Base64Error, InvalidSignature):
        return UNKNOWN
    if age <= -AHEAD:
        return f"{CLOCK} {-age:.0f} s ahead of the server's"
    if age >= BEHIND:
        return f"{CLOCK} {age:.0f} s behind the server's"
    return None


def key_of(headers: Collection[tuple[bytes, bytes]]) -> bytes:
    """Return the key that a request names, as PEM; of one that :func:`refusal` let in."""
    return b64decode(next(value for name, value in headers if name.lower() == KEY.encode())).strip()
