"""Signatures with which parties prove who they are, whatever carries their answers.

Flower authenticates SuperNodes towards the SuperLink, not parties towards the ServerApp. So each answer is signed with
the key of the terms. A signature covers the Flower run, the node, the question and the answer: it is worth nothing for
another question, another run, or another node.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from fedfactor.core.errors import DataError
from fedfactor.network.key_file import load_private_key

CONTEXT = b"fedfactor.flower 1\0"

ALGORITHM = ec.ECDSA(hashes.SHA384())


def statement(run_id: int, node_id: int, question: bytes, answer: bytes) -> bytes:
    """Return the bytes under a signature.

    Examples
    --------
    >>> statement(1, 2, b"question", b"answer") == statement(1, 3, b"question", b"answer")
    False
    """
    where = b"".join((number & (1 << 64) - 1).to_bytes(8, "big") for number in (run_id, node_id))
    return CONTEXT + where + hashlib.sha256(question).digest() + hashlib.sha256(answer).digest()


def load_key(path: str | os.PathLike[str]) -> ec.EllipticCurvePrivateKey:
    """Load a party's private key, in the format of OpenSSH that ``fedfactor keygen`` and Flower use.

    Raises
    ------
    DataError
        The file is missing, cannot be decrypted, or holds another kind of key.
    """
    try:
        key: Any = load_private_key(path)
    except DataError:  # of the passphrase, which explains itself
        raise
    except OSError as error:
        raise DataError(f"The key {path} cannot be read ({error.strerror}). Give key in --node-config.") from None
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is not a private key in OpenSSH format ({error}). Use fedfactor keygen.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DataError(f"{path} is not an elliptic curve key. Make one with fedfactor keygen.")
    return key


def sign(key: ec.EllipticCurvePrivateKey, said: bytes) -> bytes:
    """Sign a statement."""
    return key.sign(said, ALGORITHM)


def is_signed(public_pem: bytes, signature: bytes, said: bytes) -> bool:
    """Return whether the client of a public key signed a statement."""
    key: Any = load_pem_public_key(public_pem)
    try:
        key.verify(signature, said, ALGORITHM)
    except InvalidSignature:
        return False
    return True
