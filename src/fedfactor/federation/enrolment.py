"""Enrolment by files and words: an invitation for each party, its reply, and consent to terms that the server offers.

The invitation holds a draft of the terms and a secret of its own; the reply holds the party's public key and its
column names, with a proof that it comes from a holder of the invitation. Words of the invitation, read out of band,
protect the party against a forged one; words of the key protect the coordinator against a forged reply. The terms as
they are in the end come from the server, over mutual TLS, and count when the party consents to them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfactor.core.atomic_files import private_folder, read_json, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.core.parameters import with_tuples
from fedfactor.core.pytree import is_list, is_mapping
from fedfactor.federation import keys, setup, terms_writer
from fedfactor.federation.features import column_names
from fedfactor.federation.fingerprint_words import key_words, spoken
from fedfactor.federation.terms import Terms, TermsError, check_party_name
from fedfactor.federation.vouching import read_public
from fedfactor.io.file_content import Reading
from fedfactor.network.https.protocol import OTHER_TERMS

if TYPE_CHECKING:
    from fedfactor.federation.party import Member
    from fedfactor.network.https.client import Wire

KIND = "fedfactor invitation 1"
REPLY = "fedfactor reply 1"
VALID = 30
"""Days for which an invitation is good."""

INVITED = "invitations.json"
"""File in the server's folder: for each invited party the secret of its invitation, the last day, and its columns."""

ENROLMENT = "enrolment.json"
TERMS = "federation.toml"
PROPOSED = "proposed.json"
CONSENT = "consent.json"
"""Files in a party's folder: what it accepted; the terms; terms that the server offers; consent to them."""

LARGEST_TERMS = 64 << 20
"""Most bytes of terms that a party reads."""

LOOK = 1.0
"""Seconds between two looks for terms, or for consent to them."""


def invite(file: Path, names: Sequence[str], folder: Path) -> dict[str, tuple[Path, str]]:
    """Write an invitation for each party; return its path and its words, which are read to that party out of band."""
    terms = Terms.read(file)
    place = file.resolve().parent / "server" / INVITED
    known: dict[str, Any] = read_json(place) if place.exists() else {}
    last = (datetime.now(UTC).date() + timedelta(days=VALID)).isoformat()
    for name in names:
        check_party_name(name)
        known[name] = {"secret": secrets.token_hex(16), "until": last}
    write_atomic(place, json.dumps(known, indent=1).encode())
    made: dict[str, tuple[Path, str]] = {}
    for name in names:
        about = {"kind": KIND, "party": name, **known[name], "invited": sorted({*known, *terms.names})}
        content: dict[str, Any] = {**terms.content, "parties": {}}
        path = write_atomic(folder / f"{name}.invite", json.dumps({**about, "terms": content}, indent=1).encode())
        made[name] = (path, invitation_words(read_invitation(path)))
        setup.write_down(file, "invited", party=name, until=last)
    return made


def read_invitation(path: Path) -> dict[str, Any]:
    """Read an invitation and check what it holds."""
    raw: Any = read_json(path, "Ask the coordinator for the invitation again.")
    if not is_mapping(raw) or raw.get("kind") != KIND:
        raise DataError(f"{path} is no invitation. Give the file that fedfactor federation invite wrote.")
    try:
        Terms.of(raw["terms"])
        check_party_name(raw["party"])
        if raw["until"] < datetime.now(UTC).date().isoformat():
            raise DataError(f"{path} was good until {raw['until']}. Ask the coordinator for another one.")
        _ = bytes.fromhex(raw["secret"]), list(raw["invited"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, DataError | TermsError):
            raise
        raise DataError(f"{path} is damaged ({error}). Ask the coordinator for it again.") from None
    return dict(raw)


def invitation_words(invitation: dict[str, Any]) -> str:
    """Return an invitation in words, for the telephone."""
    text = json.dumps(invitation, sort_keys=True, ensure_ascii=False).encode()
    return spoken(b"invitation " + hashlib.sha256(text).digest(), 6)


def accept(path: Path, data: Path, key: Path | None, folder: Path | None, reading: Reading) -> tuple[Path, str]:
    """Accept an invitation: make a key unless one is given, the party's folder, and the reply; return it and key words.

    The words of the invitation were compared before.
    """
    invitation = read_invitation(path)
    if Terms.of(invitation["terms"]).content["features"].get("split") == "columns":
        raise DataError(
            "Invitations are for parties that hold rows. Where parties hold columns, ids of rows have to be blinded "
            "first: fedfactor keygen, and fedfactor features --split columns."
        )
    name = str(invitation["party"])
    key = key or Path(f"{name}.key")
    if not key.exists():
        keys.make_key(key, name)
    public = Path(f"{key}.pub").read_text()
    columns = column_names(data, reading)
    own = private_folder(folder or Path(name))
    kept = {field.name: getattr(reading, field.name) for field in fields(reading) if field.init}
    about = {"invitation": invitation, "data": str(data.resolve()), "key": str(key.resolve()), "reading": kept}
    write_atomic(own / ENROLMENT, json.dumps(about).encode())
    reply = {"kind": REPLY, "party": name, "public": public, "columns": list(columns)}
    reply["proof"] = _proof(str(invitation["secret"]), reply)
    made = write_atomic(Path(f"{name}.accepted"), json.dumps(reply, indent=1).encode(), mode=0o644)
    return made, key_words(name, read_public(f"{key}.pub"))


def _proof(secret: str, reply: Mapping[str, Any]) -> str:
    signed = {name: reply.get(name) for name in ("kind", "party", "public", "columns")}
    text = json.dumps(signed, sort_keys=True, ensure_ascii=False).encode()
    return hmac.new(bytes.fromhex(secret), text, hashlib.sha256).hexdigest()


def admit_reply(file: Path, path: Path, vouched: Sequence[Path] = ()) -> str:
    """Add the party of a reply with its key, and note its columns; return its name.

    Raises
    ------
    DataError
        The reply does not answer an invitation of this federation, or not the last one of that party.
    """
    reply: Any = read_json(path, "Ask the party for its reply again.")
    if not is_mapping(reply) or reply.get("kind") != REPLY:
        raise DataError(f"{path} is no reply. Give the file that fedfactor accept wrote.")
    name = str(reply.get("party", ""))
    place = file.resolve().parent / "server" / INVITED
    known: dict[str, Any] = read_json(place) if place.exists() else {}
    if name not in known:
        raise DataError(f"{path} is the reply of {name!r}, which was not invited: fedfactor federation invite.")
    about = known[name]
    if about["until"] < datetime.now(UTC).date().isoformat():
        raise DataError(f"The invitation of {name!r} was good until {about['until']}. Invite that party again.")
    if not hmac.compare_digest(_proof(about["secret"], reply), str(reply.get("proof", ""))):
        raise DataError(
            f"{path} does not answer the last invitation of {name!r}: it was changed, or it answers an earlier "
            "one. Ask the party for its reply again, or invite it again."
        )
    columns = reply["columns"]
    if not is_list(columns) or not columns or len({*map(str, columns)}) < len(columns):
        raise DataError(f"{path} names no columns, or one of them twice. Ask the party for its reply again.")
    public = write_atomic(place.with_name(f"{name}.key.pub"), str(reply["public"]).encode(), mode=0o644)
    try:
        setup.admit(file, name, public, vouched)
    finally:
        public.unlink()
    write_atomic(place, json.dumps({**known, name: {**about, "columns": columns}}, indent=1).encode())
    return name


def agree_on_replies(file: Path) -> tuple[int, list[str]]:
    """Agree on columns once the replies of all invited parties are there; return their number, and who is missing."""
    terms = Terms.read(file)
    known: dict[str, Any] = read_json(file.resolve().parent / "server" / INVITED)
    lists = {name: known[name]["columns"] for name in terms.names if "columns" in known.get(name, {})}
    missing = sorted((set(known) | set(terms.names)) - set(lists))
    if missing:
        return 0, missing
    features = terms.content["features"]
    return len(setup.agree_on_lists(file, lists, features["how"], features["absent"]).features), []


class Enrolled:
    """A party's folder that :func:`accept` made.

    Parameters
    ----------
    folder : Path
        The party's folder, or one in which there is exactly one such folder.
    """

    def __init__(self, folder: Path) -> None:
        found = [folder] if (folder / ENROLMENT).exists() else [made.parent for made in folder.glob(f"*/{ENROLMENT}")]
        if len(found) != 1:
            many = f"{folder} holds {len(found)} of them: {', '.join(map(str, sorted(found)))}"
            raise DataError(
                f"{many if found else f'{folder} is neither federation.toml nor the folder of a party'}. Give the "
                "folder that fedfactor accept made, or federation.toml with --data and --key."
            )
        self.folder = found[0]
        about: dict[str, Any] = read_json(self.folder / ENROLMENT)
        self.name: str = about["invitation"]["party"]
        self.invited: list[str] = about["invitation"]["invited"]
        self.draft = Terms.of(about["invitation"]["terms"])
        self.data = Path(about["data"])
        self.key = Path(about["key"])
        self._about = about

    @property
    def file(self) -> Path:
        """The terms, once the server offered some that list this party."""
        return self.folder / TERMS

    def reading(self) -> Reading:
        """Return how the rows are read."""
        return Reading(**with_tuples(self._about["reading"]))

    def use_key(self, key: Path) -> None:
        """Take another key from now on."""
        self.key = key.resolve()
        self._about["key"] = str(self.key)
        write_atomic(self.folder / ENROLMENT, json.dumps(self._about).encode())

    def expected(self, terms: Terms) -> bool:
        """Return whether these terms differ from the draft by no more than the draft announced.

        That is: keys of parties that were invited, and the agreed columns. Where uploads are protected, keys decide
        who can read them, so that words have to be compared.
        """
        announced: dict[str, Any] = {
            "parties": {},
            "features": {**terms.content["features"], "names": [], "sha256": ""},
        }
        drafted: dict[str, Any] = {**self.draft.content, "parties": {}}
        drafted["features"] = {**drafted["features"], "names": [], "sha256": ""}
        same = {**terms.content, **announced} == drafted
        return same and set(terms.names) <= set(self.invited) and not terms.guarded


def wait_for_terms(enrolled: Enrolled, say: Callable[[str], Any], certificate: Path | None = None) -> Terms:
    """Ask the server for the terms until it knows this party's key and its terms are complete."""
    from fedfactor.network.https.client import ForeignServer, TurnedAway, Wire

    server = enrolled.draft.content["server"]
    mine = keys.line_of_private(enrolled.key).split()[:2]
    said = ""
    while True:
        wire = Wire(server["address"], server["certificate"], enrolled.key, certificate, LARGEST_TERMS)
        reason = "the coordinator has not added this party and agreed on columns yet"
        try:
            terms = offered(wire)
            if terms.features and any(party["key"].split()[:2] == mine for party in terms.content["parties"].values()):
                return terms
        except ForeignServer:
            raise DataError("The server's certificate is not the one of the invitation. Nothing was sent.") from None
        except TurnedAway:
            reason = f"{server['address']} cannot be reached, or does not know this key yet"
        finally:
            wire.close()
        if reason != said:
            say(f"Waiting: {reason}.")
            said = reason
        time.sleep(2 * LOOK)


def offered(wire: Wire) -> Terms:
    """Return the terms that a server offers."""
    from fedfactor.network.https.client import agreement

    try:
        return Terms.of(json.loads(agreement(wire)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"The server's terms cannot be read ({error}).") from None


class Proposal:
    """Terms that the server of a party offers instead of those that it signed: shown, and waiting for consent.

    Parameters
    ----------
    member : Member
    say : callable
    certificate : path, optional
    """

    def __init__(self, member: Member, say: Callable[[str], Any], certificate: Path | None = None) -> None:
        self._member = member
        self._say = say
        self._certificate = certificate
        self._seen = ""
        self._asked = 0.0
        self._terms: Terms | None = None
        self.confirmed = False
        """Whether consent came with words that were compared with the other parties."""

    def consented(self, error: str) -> bool:
        """Look, given the last error of the connection, for other terms; return whether the party consented to them."""
        if time.monotonic() - self._asked < LOOK:
            return False
        self._asked = time.monotonic()
        if OTHER_TERMS in error and error != self._seen:
            self._seen = error
            self._fetch()
        if self._terms is None:
            return False
        file = self._member.folder / CONSENT
        if not file.exists():
            return False
        about = read_json(file)
        file.unlink()
        if about["terms"] != self._terms.fingerprint:
            return False
        self.confirmed = bool(about["confirmed"])
        terms_writer.save(self._member.file, self._terms.content)
        (self._member.folder / PROPOSED).unlink(missing_ok=True)
        return True

    def _fetch(self) -> None:
        from fedfactor.network.https.client import ForeignServer, TurnedAway

        member = self._member
        wire = member.wire(self._certificate, LARGEST_TERMS)
        try:
            self._terms = propose(member, offered(wire))
        except (TurnedAway, ForeignServer, DataError, TermsError, OSError):
            self._seen = ""  # asked again
            return
        finally:
            wire.close()
        if self._terms is not None:
            self._say("The server offers other terms. Nothing is sent until you consent to them:")
            for change in self._terms.differences(member.terms):
                self._say(f"  {change}")
            self._say(f"To consent: fedfactor accept {member.folder}")


def propose(member: Member, terms: Terms) -> Terms | None:
    """Note terms that the server offers, so that ``fedfactor accept`` shows them; None for those that are signed."""
    if terms.fingerprint == member.terms.fingerprint:
        return None
    write_atomic(member.folder / PROPOSED, json.dumps(terms.content).encode())
    return terms


def proposed(folder: Path) -> Terms:
    """Return the terms that wait for consent at a party."""
    if not (folder / PROPOSED).exists():
        raise DataError(f"No other terms wait for consent in {folder}.")
    return Terms.of(read_json(folder / PROPOSED))


def wait_for_consent(folder: Path, terms: Terms) -> bool:
    """Wait for consent to terms; return whether their words were compared with the other parties."""
    file = folder / CONSENT
    while not (file.exists() and read_json(file)["terms"] == terms.fingerprint):
        time.sleep(LOOK)
    confirmed = bool(read_json(file)["confirmed"])
    file.unlink()
    (folder / PROPOSED).unlink(missing_ok=True)
    return confirmed


def consent(folder: Path, terms: Terms, confirmed: bool) -> None:
    """Consent to terms; the waiting ``fedfactor join`` takes part on them from then on."""
    with suppress(FileNotFoundError):
        (folder / CONSENT).unlink()
    write_atomic(folder / CONSENT, json.dumps({"terms": terms.fingerprint, "confirmed": confirmed}).encode())
