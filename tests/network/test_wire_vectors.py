"""The vectors of the specification are what both ends compute; another implementation can be checked with them."""

from __future__ import annotations

import hashlib
import json
import ssl
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("httpx")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedfactor.network.https import protocol as wire
from fedfactor.network.https.identity import digest, pinned_certificate
from fedfactor.network.message_format import Head, read_head, seal
from tests.network.https_world import heads, world

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reference"


HEAD = Head("refusal", "00112233", 4, "north", "f" * 64, reason="no")


def vectors():
    """Compute the vectors: of the key whose private number is 1, and of a refusal without a payload."""
    public = ec.derive_private_key(1, ec.SECP384R1()).public_key()
    certificate = pinned_certificate(public)
    return {
        "protocol": wire.VERSION,
        "public_key": public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
        "party_id": digest(public),
        "certificate_sha256": hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.decode())).hexdigest(),
        "certificate": certificate.decode().splitlines(),
        "message_head": json.loads(json.dumps({name: getattr(HEAD, name) for name in Head.__slots__})),
        "message": seal(HEAD).hex(),
    }


def test_the_vectors_of_the_page_are_those_of_the_code():
    written, made = json.loads((PAGES / "wire_vectors.json").read_text()), vectors()
    message = bytes.fromhex(written.pop("message"))
    assert read_head(message) == HEAD
    assert len(message) == len(bytes.fromhex(made.pop("message")))  # the order of metadata is not fixed
    assert written == made


def test_the_page_names_every_path_header_and_limit():
    page = (PAGES / "wire_protocol.md").read_text()
    for word in (wire.EXCHANGE, wire.ALIVE, wire.TERMS_PATH, wire.TICKET, *wire.OWN, wire.UNKNOWN_KEY,
                 wire.OTHER_TERMS, wire.SECOND_PROCESS, wire.ENDING, wire.VERSIONS):  # fmt: skip
        assert f"`{word}`" in page or word in page, word


def test_another_version_of_the_protocol_is_told(tmp_path):
    with world(tmp_path / "fed") as made:
        status, said = made.ask("north", "/fedfactor/2/exchange", headers=heads())
    assert (status, json.loads(said)) == (404, {"detail": f"{wire.VERSIONS} {wire.VERSION}"})


if __name__ == "__main__":
    (PAGES / "wire_vectors.json").write_text(json.dumps(vectors(), indent=1) + "\n")
