"""Who vouches for whose key: a party that others know signs the name and keys of one that they do not know yet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedfactor.core.errors import DataError
from fedfactor.federation.fingerprint_words import key_bytes
from fedfactor.federation.keys import identity_secret, line_of_private, public_line, signing_key
from fedfactor.federation.terms import Terms, TermsError
from fedfactor.privacy.secure_aggregation.primitives import Identity, verify

__all__ = ["needed", "read_public", "strangers", "vouch", "vouchers"]

VALID = 90
"""Days for which a party vouches for another one."""


def read_public(path: str | Path) -> dict[str, str]:
    """Read both public keys of a party from its ``.pub`` file."""
    sign = signing_key(path)
    return {"key": public_line(path), **({"sign": sign} if sign else {})}


def vouch(terms: Terms, name: str, pub: str | Path, key: str | Path) -> str:
    """Sign another party's name and keys with one's own; return the line that goes into its ``vouched``."""
    line = line_of_private(key).split()[:2]
    mine = [by for by, party in terms.content["parties"].items() if party["key"].split()[:2] == line]
    if not mine:
        raise TermsError(f"{key} is not the key of a party in this file: only parties can vouch for others.")
    if name == mine[0]:
        raise DataError("No party can vouch for its own key. Ask a party that the others know.")
    last = (datetime.now(UTC).date() + timedelta(days=VALID)).isoformat() if terms.id else ""
    signature = Identity(identity_secret(key)).sign(_message(terms, name, read_public(pub), last))
    return f"{mine[0]} {signature.hex()} {last}".rstrip()


def vouchers(terms: Terms, name: str, known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Name the known parties whose signatures of this party's name and keys are right.

    Under noise, a signature that never expires (terms of format 1) counts for nothing.
    """
    party = terms.content["parties"][name]
    found: dict[str, None] = {}
    if terms.noise and not terms.id:
        return []
    today = datetime.now(UTC).date().isoformat()
    for line in party.get("vouched", ()):
        rest, _, last = line.rpartition(" ") if terms.id else (line, "", "")
        by, _, text = rest.rpartition(" ")
        sign = known.get(by, {}).get("sign", "")
        message = _message(terms, name, party, last)
        expired = bool(last) and last < today
        if by != name and sign and not expired and verify(bytes.fromhex(sign), bytes.fromhex(text), message):
            found[by] = None
    return list(found)


def needed(terms: Terms) -> int:
    """Return how many vouchers make a new key known.

    Under noise each honest party adds a share of it that shrinks with the number of parties, and the promise covers
    ``colluding`` dishonest ones: so many together must not be able to bring in others.
    """
    return int(terms.noise["colluding"]) + 1 if terms.noise else 1


def strangers(terms: Terms, known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Name what stands between these terms and the parties that one knows: new keys that too few known vouch for.

    A known party that left, or whose keys changed, is named too: with others in its place a sum would hide less.
    """
    parties = terms.content["parties"]
    odd = [name for name, party in known.items() if name not in parties or not _same(parties[name], party)]
    least = needed(terms)
    new = (name for name in parties if name not in known and len(vouchers(terms, name, known)) < least)
    return sorted({*odd, *new})


def registry(terms: Terms) -> dict[str, dict[str, str]]:
    """List the keys of all parties, as one keeps them once they are confirmed."""
    return {
        name: {"key": party["key"], "sign": party.get("sign", "")} for name, party in terms.content["parties"].items()
    }


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(part, "") == other.get(part, "") for part in ("key", "sign"))


def _message(terms: Terms, name: str, party: Mapping[str, Any], last: str) -> bytes:
    # The federation is in it: the same name may be another party elsewhere.
    if terms.id:
        return b"fedfactor vouch 2\0" + f"{terms.id}\0{last}\0".encode() + key_bytes(name, party)
    return b"fedfactor vouch\0" + str(terms.content["federation"]["name"]).encode() + b"\0" + key_bytes(name, party)
