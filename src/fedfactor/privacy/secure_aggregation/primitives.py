"""The few cryptographic operations that secure aggregation is made of, each from the package `cryptography`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor.core.entropy import Entropy
from fedfactor.core.errors import MissingExtraError, ProtocolError

__all__ = ["Identity", "KeyAgreement", "mask_words", "open_sealed", "seal", "verify"]


def _need(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"cryptography.{module}")
    except ImportError:
        raise MissingExtraError.named("cryptography", "privacy", "Secure aggregation") from None


class KeyAgreement:
    """A one-round X25519 key pair: two parties make the same secret from one's private and the other's public key."""

    def __init__(self, secret: bytes) -> None:
        x25519 = _need("hazmat.primitives.asymmetric.x25519")
        self._module = x25519
        self.secret = secret
        self._key = x25519.X25519PrivateKey.from_private_bytes(secret)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    @classmethod
    def fresh(cls, entropy: Entropy) -> KeyAgreement:
        """Make a new key pair."""
        return cls(entropy.take(32))

    def key_with(self, public: bytes, purpose: bytes) -> bytes:
        """Derive the 32-byte key shared with another party for one purpose (HKDF-SHA256)."""
        hashes = _need("hazmat.primitives.hashes")
        hkdf = _need("hazmat.primitives.kdf.hkdf")
        try:
            shared = self._key.exchange(self._module.X25519PublicKey.from_public_bytes(public))
        except ValueError:  # an all-zero secret: a key of low order, which only a cheat would send
            raise ProtocolError("A peer's public key has low order: no secret can be agreed with it.") from None
        return hkdf.HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"fedfactor " + purpose).derive(shared)


class Identity:
    """A client's long-lived Ed25519 key, whose public half the others know from somewhere else than the server."""

    def __init__(self, secret: bytes | None = None) -> None:
        ed25519 = _need("hazmat.primitives.asymmetric.ed25519")
        private = ed25519.Ed25519PrivateKey
        self._key = private.generate() if secret is None else private.from_private_bytes(secret)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        return self._key.sign(message)


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether a signature of a message is right."""
    ed25519 = _need("hazmat.primitives.asymmetric.ed25519")
    exceptions = _need("exceptions")
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (exceptions.InvalidSignature, ValueError):
        return False
    return True


def mask_words(key: bytes, count: int) -> np.ndarray:
    """Stretch a key to uniform 64-bit integers (ChaCha20); each key makes one mask, so the nonce may be zero."""
    ciphers = _need("hazmat.primitives.ciphers")
    stream = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8")


def seal(key: bytes, message: bytes, context: bytes) -> bytes:
    """Encrypt and authenticate one message under a key that is used once (ChaCha20-Poly1305)."""
    aead = _need("hazmat.primitives.ciphers.aead")
    return aead.ChaCha20Poly1305(key).encrypt(bytes(12), message, context)


def open_sealed(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Decrypt what :func:`seal` made, or raise when it was modified."""
    aead = _need("hazmat.primitives.ciphers.aead")
    exceptions = _need("exceptions")
    try:
        return aead.ChaCha20Poly1305(key).decrypt(bytes(12), sealed, context)
    except exceptions.InvalidTag:
        raise ProtocolError("Key shares arrived damaged or forged. The round was left.") from None
