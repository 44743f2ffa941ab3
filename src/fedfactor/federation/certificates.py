"""A certificate authority of one's own, for federations that have no other, and the server's certificate."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import private_folder, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.federation.keys import crypto

AUTHORITY_DAYS = 3650
SERVER_DAYS = 397


def make_authority(folder: str | os.PathLike[str], name: str) -> Path:
    """Make ``ca.key`` and ``ca.crt`` in a folder, unless they are there; return the certificate."""
    folder = private_folder(folder)
    if not (folder / "ca.crt").exists():
        ec, _ = crypto()
        key = ec.generate_private_key(ec.SECP384R1())
        who = _name(f"fedfactor {name}"[:60])
        builder = _builder(who, who, key, AUTHORITY_DAYS)
        certificate = _sign(builder, key, authority=True)
        _write(folder, "ca", key, certificate)
    return folder / "ca.crt"


def make_server_certificate(
    folder: str | os.PathLike[str],
    hosts: Sequence[str],
    days: float = SERVER_DAYS,
    ca_key: str | os.PathLike[str] | None = None,
) -> Path:
    """Make (or renew) ``server.key`` and ``server.pem``, signed by the folder's authority, for these hosts.

    The authority's key may lie elsewhere (``ca_key``): on a drive that is connected for this only.

    The loopback names of this machine are always among them, because the server also connects to itself.
    """
    from cryptography import x509

    folder = Path(folder)
    ec, ser = crypto()
    try:
        authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        signer = ser.load_pem_private_key(Path(ca_key or folder / "ca.key").read_bytes(), None)
    except FileNotFoundError as error:
        raise DataError(
            f"{error.filename} is not there, so no certificate can be signed here. If the key of the authority is kept "
            "elsewhere, give it with --ca-key."
        ) from None
    left = (authority.not_valid_after_utc - now()).total_seconds() / 86400
    if left <= 0:
        raise DataError(
            f"The authority {folder / 'ca.crt'} ended on {authority.not_valid_after_utc:%Y-%m-%d}: no party would "
            "accept what it signs. Found the federation again (fedfactor federation init), which is a new agreement."
        )
    days = min(days, left)  # no certificate outlives the authority that signed it
    key = ec.generate_private_key(ec.SECP384R1())
    names = [_alternative(host) for host in dict.fromkeys([*hosts, "127.0.0.1", "::1", "localhost"])]
    builder = _builder(_name(hosts[0]), authority.subject, key, days)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    _write(folder, "server", key, _sign(builder, signer, authority=False), ".pem")
    return folder / "server.pem"


def expires(certificate: str | os.PathLike[str]) -> datetime:
    """Return when a certificate ends."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(Path(certificate).read_bytes()).not_valid_after_utc


def begins(certificate: str | os.PathLike[str]) -> datetime:
    """Return when a certificate becomes valid."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(Path(certificate).read_bytes()).not_valid_before_utc


def now() -> datetime:
    """Return the time in the form of certificates."""
    return datetime.now(UTC)


def names_host(certificate: str | os.PathLike[str], host: str) -> bool:
    """Return whether a certificate is made out for a host, by name or by address."""
    from cryptography import x509

    made = x509.load_pem_x509_certificate(Path(certificate).read_bytes())
    try:
        names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    if isinstance(wanted := _alternative(host), x509.IPAddress):
        return wanted.value in names.get_values_for_type(x509.IPAddress)
    known = [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    return host.lower() in known or f"*.{host.lower().partition('.')[2]}" in known


def _name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: Any, issuer: Any, key: Any, days: float) -> Any:
    from cryptography import x509

    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    # A little in the past: the clocks of two organisations differ.
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=days))


def _sign(builder: Any, signer: Any, *, authority: bool) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    basic = x509.BasicConstraints(ca=authority, path_length=0 if authority else None)
    builder = builder.add_extension(basic, critical=True)
    use = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    usage = x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, **use)
    builder = builder.add_extension(usage, critical=True)
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return builder.add_extension(known, critical=False).sign(signer, hashes.SHA384())


def _write(folder: Path, stem: str, key: Any, certificate: Any, ending: str = ".crt") -> None:
    _, ser = crypto()
    text = key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption())
    write_atomic(folder / f"{stem}.key", text, mode=0o600)
    write_atomic(folder / f"{stem}{ending}", certificate.public_bytes(ser.Encoding.PEM), mode=0o644)
