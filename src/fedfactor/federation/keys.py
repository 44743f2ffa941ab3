"""Keys that identify parties: elliptic curve P-384, in the format of OpenSSH.

The key with which a party signs in secure aggregation (Ed25519) is derived from it, so that there is one file to keep.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedfactor.core.errors import DataError, MissingExtraError
from fedfactor.network.key_file import load_private_key
from fedfactor.privacy.secure_aggregation.primitives import Identity

SIGN = "sign:"


def crypto() -> Any:
    """Return the elliptic curves and the serialization of cryptography, or raise that the extra is missing."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise MissingExtraError.named("cryptography", "flower", "Making keys and certificates") from None
    return ec, serialization


def make_key(path: str | os.PathLike[str], comment: str, passphrase: bytes = b"") -> Path:
    """Write a private key (mode 0600) and, beside it, its public half ``<path>.pub``; never over an old one.

    With a passphrase the private key is encrypted, as ``ssh-keygen`` does it; ``ssh-keygen -p`` changes it.
    """
    path = Path(path)
    ec, ser = crypto()
    from cryptography.exceptions import UnsupportedAlgorithm

    public = Path(f"{path}.pub")
    for file in (path, public):
        if file.exists():
            raise DataError(
                f"{file} exists, and a key that others know must not be lost. For a second key of the same "
                f"party, write another file: fedfactor keygen {comment} --out {path.with_name(f'{path.stem}-2.key')}"
            )
    key = ec.generate_private_key(ec.SECP384R1())
    hidden = ser.BestAvailableEncryption(passphrase) if passphrase else ser.NoEncryption()
    try:
        text = key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.OpenSSH, hidden)
    except UnsupportedAlgorithm:
        raise MissingExtraError.named("bcrypt", "federation", "A key with a passphrase") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(text)
    line = key.public_key().public_bytes(ser.Encoding.OpenSSH, ser.PublicFormat.OpenSSH).decode()
    sign = Identity(_signing_secret(key)).public.hex()
    public.write_text(f"{line} {comment.replace(' ', '-')} {SIGN}{sign}\n")
    return path


def identity_secret(path: str | os.PathLike[str]) -> bytes:
    """Derive, from a private key, the secret with which its client signs in secure aggregation."""
    return _signing_secret(_private(path))


def _signing_secret(key: Any) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    number = key.private_numbers().private_value
    derive = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"fedfactor identity")
    return derive.derive(number.to_bytes(66, "big"))


def signing_key(path: str | os.PathLike[str]) -> str:
    """Read from a ``.pub`` file the key with which its client signs in secure aggregation; empty when there is none."""
    words = Path(path).read_text().split()
    found = [word.removeprefix(SIGN) for word in words[2:] if word.startswith(SIGN)]
    if found and not (len(found[0]) == 64 and all(c in "0123456789abcdef" for c in found[0])):
        raise DataError(f"{path}: the signing key is damaged. Paste the whole line of the .pub file.")
    return found[0] if found else ""


def public_line(path: str | os.PathLike[str]) -> str:
    """Read a public key: its kind and its letters, without the comment."""
    try:
        words = Path(path).read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}). Give the .pub file that fedfactor keygen wrote.") from None
    line = " ".join(words[:2])
    if line.startswith("-----BEGIN"):
        raise DataError(
            f"{path} is a private key, which must never leave its party. Delete it here, have that party make a new "
            "one (fedfactor keygen), and take its .pub file."
        )
    public_pem(line)
    return line


def public_pem(line: str) -> bytes:
    """Turn an OpenSSH line into the bytes under which Flower knows the key."""
    ec, ser = crypto()
    try:
        key = ser.load_ssh_public_key(line.encode())
    except Exception as error:
        raise DataError(
            f"{line[:40]!r} is not a public key ({error}). Paste the whole line of the .pub file."
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise DataError("The key is not of the kind that Flower takes (ECDSA). Make one with fedfactor keygen.")
    return key.public_bytes(ser.Encoding.PEM, ser.PublicFormat.SubjectPublicKeyInfo)


def line_of_private(path: str | os.PathLike[str]) -> str:
    """Read a private key and return the line of its public half."""
    _, ser = crypto()
    key = _private(path)
    return key.public_key().public_bytes(ser.Encoding.OpenSSH, ser.PublicFormat.OpenSSH).decode()


def _private(path: str | os.PathLike[str]) -> Any:
    try:
        return load_private_key(path)
    except DataError:  # of a passphrase
        raise
    except FileNotFoundError:
        raise DataError(f"{path} is not there. Make a key with: fedfactor keygen") from None
    except Exception as error:
        other = " Give the file without .pub." if str(path).endswith(".pub") else ""
        raise DataError(f"{path} is not a private key in OpenSSH format ({error}).{other}") from None
