"""Keys that tell parties apart: elliptic curve P-384, in the format of OpenSSH, as Flower wants them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedfactor.core.errors import DataError, MissingExtraError


def _crypto() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise MissingExtraError.named("cryptography", "flower", "Making keys and certificates") from None
    return ec, serialization


def make_key(path: str | os.PathLike[str], comment: str) -> Path:
    """Write a private key (mode 0600) and, beside it, its public half ``<path>.pub``; never over an old one."""
    path = Path(path)
    ec, ser = _crypto()
    public = Path(f"{path}.pub")
    for file in (path, public):
        if file.exists():
            raise DataError(f"{file} is there already. A key that others know must not be lost: choose another name.")
    key = ec.generate_private_key(ec.SECP384R1())
    text = key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.OpenSSH, ser.NoEncryption())
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(text)
    line = key.public_key().public_bytes(ser.Encoding.OpenSSH, ser.PublicFormat.OpenSSH).decode()
    public.write_text(f"{line} {comment}\n")
    return path


def public_line(path: str | os.PathLike[str]) -> str:
    """Read a public key: its kind and its letters, without the comment."""
    try:
        words = Path(path).read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}). Give the .pub file that fedfactor keygen wrote.") from None
    line = " ".join(words[:2])
    public_pem(line)
    return line


def public_pem(line: str) -> bytes:
    """Turn an OpenSSH line into the bytes under which Flower knows the key."""
    ec, ser = _crypto()
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
    _, ser = _crypto()
    try:
        key = ser.load_ssh_private_key(Path(path).read_bytes(), None)
    except FileNotFoundError:
        raise DataError(f"{path} is not there. Make a key with: fedfactor keygen") from None
    except Exception as error:
        raise DataError(f"{path} is not a private key in OpenSSH format ({error}).") from None
    return key.public_key().public_bytes(ser.Encoding.OpenSSH, ser.PublicFormat.OpenSSH).decode()
