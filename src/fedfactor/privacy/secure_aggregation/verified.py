"""Verified secure aggregation: a sum of masked uploads whose total every party checks, in two exchanges.

*Setup, once a run*: every party sends a fresh X25519 key, signed with its identity key over the run. From the keys of
all parties follow the transcript of the run and one secret for each pair of parties.

*Round*: every party sends its integers under masks that cancel in the sum, and a signed hash of them (:meth:`commit`).
The masks are keyed by the pair and by the label of the round, which contains the digest of the question: uploads of
parties that were asked different questions do not cancel. Then every party receives all signed hashes and the total,
derives two coefficient vectors from the digest of all of it, and signs the linear tags of its own masked words
(:meth:`tag`). The coefficients depend on the total: known before, they could be solved for a false total that fits.
Finally every party checks that the tags of all parties add up to the tags of the total (:meth:`check`).

A false total passes with probability about 2^-122, provided that the coordinator colludes with no party: a colluding
party can sign any tag, so with one of them the total can be any. No party may be missing from a sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedfactor.core.errors import ProtocolError
from fedfactor.privacy.secure_aggregation.field_tags import PRIME, coefficients, linear_tag, tag_of_total
from fedfactor.privacy.secure_aggregation.fixed_point import add, subtract
from fedfactor.privacy.secure_aggregation.primitives import Identity, KeyAgreement, mask_words, verify

__all__ = ["Advert", "Commitment", "Context", "Member", "Tags", "Total", "VerificationError", "carry_dtype", "label_of"]

PROTOCOL = b"fedfactor verified aggregation 1"
"""Name and version of the protocol, in everything that is signed or hashed."""

LEAST = 3
"""Fewest parties: of two, each could subtract its own upload from the total and read the other's."""


class VerificationError(ProtocolError):
    """A message of the protocol is not what honest parties and an honest coordinator would have sent."""


@dataclass(frozen=True, slots=True)
class Context:
    """What all parties of a run know beforehand, from another source than the coordinator.

    Parameters
    ----------
    federation : str
        Identifier of the federation.
    terms : str
        Fingerprint of the terms.
    run : str
        Name of the run.
    seed : int
        Seed of the run.
    registry : mapping of str to bytes
        Public identity keys of all parties.
    """

    federation: str
    terms: str
    run: str
    seed: int
    registry: Mapping[str, bytes]

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, sorted: rows of all messages are in this order."""
        return tuple(sorted(self.registry))

    def digest(self, purpose: str, *parts: bytes) -> bytes:
        """Hash parts for one purpose in this run; every part is preceded by its length."""
        about = (PROTOCOL, purpose.encode(), self.federation.encode(), self.terms.encode(), self.run.encode())
        return _digest(*about, str(self.seed).encode(), *parts)


@dataclass(frozen=True, slots=True)
class Advert:
    """A party's fresh key for one run, and its signature."""

    key: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Commitment:
    """The hash of a party's masked words, and its signature."""

    digest: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Tags:
    """A party's two linear tags, and its signature."""

    values: tuple[int, int]
    signature: bytes


@dataclass(frozen=True, slots=True)
class Total:
    """All commitments of a round, and the total of the masked words over the integers."""

    commitments: Mapping[str, Commitment]
    words: np.ndarray
    carries: np.ndarray

    def decoded(self, wide: int) -> np.ndarray:
        """Return the sum of the words as :func:`~.fixed_point.add` forms it: carries of low words go to high words."""
        words = self.words.copy()
        if wide:
            words[-wide:] += self.carries[-2 * wide : -wide].astype(np.uint64)
        return words


class Member:
    """One party in one run. Holds no state of a round: a party that was restarted makes it again from its keys.

    Parameters
    ----------
    context : Context
        The run.
    name : str
        The party.
    identity : Identity
        Its long-lived signing key.
    secret : bytes
        Its fresh secret of this run, 32 bytes.
    least : int
        Fewest parties in a sum.
    """

    def __init__(self, context: Context, name: str, identity: Identity, secret: bytes, *, least: int = LEAST) -> None:
        if name not in context.registry or identity.public != context.registry[name]:
            raise VerificationError(f"{name!r} is not registered with this identity key.")
        if len(context.registry) < least:
            raise VerificationError(
                f"Secure aggregation needs {least} parties: of two, each can read the other's upload."
            )
        self.context = context
        self.name = name
        self._identity = identity
        self._agreement = KeyAgreement(secret)
        self._secrets: dict[str, bytes] = {}
        self.transcript = b""

    @cached_property
    def advert(self) -> Advert:
        """The signed fresh key of this party."""
        key = self._agreement.public
        return Advert(key, self._identity.sign(_advert_text(self.context, self.name, key)))

    def meet(self, adverts: Mapping[str, Advert]) -> None:
        """Check the keys of all parties, and derive the transcript and one secret for each pair."""
        context = self.context
        if set(adverts) != set(context.registry):
            raise VerificationError("The keys of some party are missing, or there are keys of others.")
        if adverts[self.name] != self.advert:
            raise VerificationError("This party's own key was replaced.")
        for name, advert in adverts.items():
            if not verify(context.registry[name], advert.signature, _advert_text(context, name, advert.key)):
                raise VerificationError(f"The key said to be {name!r}'s is not signed by {name!r}.")
        if len({advert.key for advert in adverts.values()}) < len(adverts):
            raise VerificationError("Two parties sent the same key.")
        self.transcript = transcript_of(context, adverts)
        purpose = b"pair" + self.transcript
        others = [name for name in context.names if name != self.name]
        self._secrets = {name: self._agreement.key_with(adverts[name].key, purpose) for name in others}

    def mask(self, label: bytes, words: np.ndarray, wide: int) -> np.ndarray:
        """Add masks that cancel in the sum over all parties that have the same label."""
        if not self._secrets:
            raise VerificationError("A sum was begun before the keys of all parties were known.")
        masked = words
        for name, secret in self._secrets.items():
            mask = mask_words(_digest(b"mask", secret, label), words.size)
            masked = (add if self.name < name else subtract)(masked, mask, wide)
        return masked

    def commit(self, label: bytes, masked: np.ndarray) -> Commitment:
        """Sign the hash of the masked words."""
        digest = _words_digest(label, masked)
        return Commitment(digest, self._identity.sign(_commitment_text(label, self.name, digest)))

    def tag(self, label: bytes, masked: np.ndarray, total: Total) -> Tags:
        """Check that all commitments are there and that one's own is right; return the tags of one's masked words."""
        context = self.context
        if set(total.commitments) != set(context.registry):
            raise VerificationError("A party is missing from the sum, or another party is in it.")
        if total.words.shape != masked.shape or total.carries.shape != masked.shape:
            raise VerificationError("The total has another size than what this party sent.")
        if int(total.carries.max(initial=0)) >= len(context.registry):
            raise VerificationError("The total is larger than so many parties can make it.")
        if total.commitments[self.name].digest != _words_digest(label, masked):
            raise VerificationError("The hash in this party's name is not that of what it sent.")
        for name, commitment in total.commitments.items():
            text = _commitment_text(label, name, commitment.digest)
            if not verify(context.registry[name], commitment.signature, text):
                raise VerificationError(f"The hash said to be {name!r}'s is not signed by {name!r}.")
        seal = seal_of(label, total)
        one, two = (linear_tag(weights, masked) for weights in _weights(seal, masked.size))
        return Tags((one, two), self._identity.sign(_tags_text(seal, self.name, (one, two))))

    def check(self, label: bytes, total: Total, tags: Mapping[str, Tags]) -> None:
        """Check that the tags of all parties add up to those of the total, or raise."""
        check_total(self.context, label, total, tags)


def check_total(context: Context, label: bytes, total: Total, tags: Mapping[str, Tags]) -> None:
    """Check the tags of all parties against the total of one round, or raise."""
    if set(tags) != set(context.registry):
        raise VerificationError("The tags of some party are missing.")
    seal = seal_of(label, total)
    for name, tag in tags.items():
        if max(tag.values) >= PRIME or min(tag.values) < 0:
            raise VerificationError(f"A tag of {name!r} is not an element of the field.")
        if not verify(context.registry[name], tag.signature, _tags_text(seal, name, tag.values)):
            raise VerificationError(f"The tags said to be {name!r}'s are not signed by {name!r}.")
    for place, weights in enumerate(_weights(seal, total.words.size)):
        expected = sum(tag.values[place] for tag in tags.values()) % PRIME
        if tag_of_total(weights, total.words, total.carries) != expected:
            raise VerificationError("The total is not the sum of what the parties sent.")


def transcript_of(context: Context, adverts: Mapping[str, Advert]) -> bytes:
    """Digest of what identifies a run: terms, federation, run, seed, and the identity and fresh keys of all parties."""
    keys: list[bytes] = []
    for name in context.names:
        keys += [name.encode(), context.registry[name], adverts[name].key]
    return context.digest("transcript", *keys)


def label_of(transcript: bytes, kind: str, index: int, question: bytes, layout: bytes) -> bytes:
    """Name one sum: the run, the round, the digest of the question, and the layout of the upload."""
    return _digest(b"label", transcript, kind.encode(), str(int(index)).encode(), question, layout)


def seal_of(label: bytes, total: Total) -> bytes:
    """Digest of all commitments and the total, which fixes the coefficients of the tags."""
    hashes = [part for name in sorted(total.commitments) for part in (name.encode(), total.commitments[name].digest)]
    carries = total.carries.astype("<u2").tobytes()
    return _digest(b"total", label, *hashes, total.words.astype("<u8").tobytes(), carries)


def carry_dtype(n_parties: int) -> str:
    """Name the smallest type that counts the overflows of a sum of so many words."""
    return "uint8" if n_parties <= 1 << 8 else "uint16"


def _weights(seal: bytes, count: int) -> tuple[np.ndarray, np.ndarray]:
    return coefficients(_digest(b"coefficients 0", seal), count), coefficients(_digest(b"coefficients 1", seal), count)


def _advert_text(context: Context, name: str, key: bytes) -> bytes:
    return context.digest("advert", name.encode(), key)


def _words_digest(label: bytes, masked: np.ndarray) -> bytes:
    return _digest(b"words", label, np.ascontiguousarray(masked.astype("<u8")).tobytes())


def _commitment_text(label: bytes, name: str, digest: bytes) -> bytes:
    return _digest(b"commitment", label, name.encode(), digest)


def _tags_text(seal: bytes, name: str, values: tuple[int, int]) -> bytes:
    return _digest(b"tags", seal, name.encode(), *(value.to_bytes(8, "little") for value in values))


def _digest(*parts: bytes) -> bytes:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()
