"""Identity by mutual TLS: certificates that are pinned by public keys, and the contexts of both ends.

The terms hold the public key of every party. From it both ends derive the same certificate, byte for byte
(:func:`pinned_certificate`), so that the server trusts exactly this certificate and no certificate has to be exchanged.
Its signature carries no meaning: the party proves that it holds the private key in the TLS handshake. It is no
authority (CA:FALSE), so nothing that a party signs with its key is trusted. Names in certificates are ignored: a party
is who the SHA-256 of its public key (SubjectPublicKeyInfo) stands for in the terms.

An organisation may present a certificate of its own authority for the same key instead. The coordinator then trusts
that authority in addition; identity remains the public key.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import secrets
import ssl
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedfactor.core.errors import DataError
from fedfactor.network.key_file import load_private_key

_ISSUER = hashlib.sha256(b"fedfactor pinned certificate 1").digest()
"""Secret of the key that signs every pinned certificate: public on purpose, because the signature means nothing."""

_BEGIN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_END = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)  # RFC 5280: no end that is known
"""Dates of a pinned certificate. Its key ends with the terms that list it, and not with a date."""


def digest(public: Any) -> str:
    """Return the SHA-256 of a public key, as SubjectPublicKeyInfo in DER, in hexadecimal digits."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def digest_of_pem(pem: bytes) -> str:
    """Return the digest of a public key in PEM."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    return digest(load_pem_public_key(pem))


@lru_cache(1024)
def digest_of_certificate(der: bytes) -> str:
    """Return the digest of the public key of a certificate in DER."""
    from cryptography import x509

    return digest(x509.load_der_x509_certificate(der).public_key())


def pinned_certificate(public: Any) -> bytes:
    """Return the certificate of a public key in PEM; the same bytes wherever it is computed."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = digest(public)
    use = x509.KeyUsage(True, False, False, False, False, False, False, False, False)  # digital signatures only
    builder = (
        x509.CertificateBuilder()
        .subject_name(_common_name(key))
        .issuer_name(_common_name("fedfactor pinned key"))
        .public_key(public)
        .serial_number(int(key[:32], 16) >> 1 or 1)
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(use, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    return builder.sign(Ed25519PrivateKey.from_private_bytes(_ISSUER), None).public_bytes(Encoding.PEM)


def _common_name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate_request(key: Path, name: str) -> bytes:
    """Return a signing request (PKCS #10, PEM) for a party's key, for an authority of its organisation."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA384
    from cryptography.hazmat.primitives.serialization import Encoding

    builder = x509.CertificateSigningRequestBuilder().subject_name(_common_name(name))
    return builder.sign(load_private_key(key), SHA384()).public_bytes(Encoding.PEM)


def server_context(
    certificate: Path, key: Path, parties: Iterable[bytes], authorities: Iterable[Path] = ()
) -> ssl.SSLContext:
    """Return the server's context: TLS 1.3, and only parties with one of these keys.

    Parameters
    ----------
    certificate, key : path
        The server's own.
    parties : iterable of bytes
        Public keys in PEM.
    authorities : iterable of path
        Authorities of organisations whose certificates are accepted for these keys, too.
    """
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    # A pinned certificate is trusted itself; without this only authorities could be.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.num_tickets = 0  # every connection proves its key again: no session is resumed
    context.set_alpn_protocols(["http/1.1"])
    trusted = [pinned_certificate(load_pem_public_key(pem)).decode() for pem in parties]
    if trusted:
        context.load_verify_locations(cadata="".join(trusted))
    for file in authorities:
        try:
            context.load_verify_locations(cafile=file)
        except (OSError, ssl.SSLError) as error:
            raise DataError(f"{file} is no certificate of an authority in PEM ({error}).") from None
    return context


def client_context(authority: str, key: Path, certificate: Path | None = None) -> ssl.SSLContext:
    """Return a party's context: TLS 1.3 to a server of this authority, with the party's own certificate.

    Parameters
    ----------
    authority : str
        Certificate of the authority that signed the server's, in PEM.
    key : path
        The party's private key, in OpenSSH's format.
    certificate : path, optional
        Certificate for this key by an authority of the party's organisation, with its chain; by default the pinned one.
    """
    context = ssl.create_default_context(cadata=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    present(context, key, certificate)
    return context


def present(context: ssl.SSLContext, key: Path, certificate: Path | None = None) -> None:
    """Let a context present the certificate of a private key."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    private = load_private_key(key)
    chain = pinned_certificate(private.public_key()) if certificate is None else certificate.read_bytes()
    try:
        leaf = x509.load_pem_x509_certificate(chain)
    except ValueError as error:
        raise DataError(f"{certificate} is no certificate in PEM ({error}).") from None
    if digest(leaf.public_key()) != digest(private.public_key()):
        raise DataError(f"{certificate} is not a certificate for the key {key}. Let it be issued for that key.")
    # Python reads keys from files only. This one is encrypted with a password that exists in memory alone.
    password = secrets.token_hex(16).encode()
    text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
    handle, name = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text + chain)
        context.load_cert_chain(name, password=password)
    finally:
        os.unlink(name)
