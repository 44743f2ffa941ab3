"""A sum whose terms stay hidden: the client's side and the server's side of one round.

Protocol of Bonawitz et al. (2017) with the consistency check for a server that may lie, on the complete graph:

1. *advertise*: every client sends two fresh public keys, signed with its identity key.
2. *share*: every client checks all signatures, and sends shares of its mask key and of its seed, each sealed for one
   peer.
3. *mask*: every client sends its integers plus masks that cancel in the sum.
4. *agree*: every client signs the list of those whose masked integers arrived.
5. *unmask*: a client that sees enough signatures of one list sends, for each peer on it, the share of the seed, and for
   each peer not on it the share of the mask key. Never both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from fedfactor.core.entropy import Entropy
from fedfactor.core.errors import ProtocolError
from fedfactor.privacy.secure_aggregation.fixed_point import add, subtract
from fedfactor.privacy.secure_aggregation.primitives import (
    Identity,
    KeyAgreement,
    mask_words,
    open_sealed,
    seal,
    verify,
)
from fedfactor.privacy.secure_aggregation.shamir import SHARE_BYTES, join, split

__all__ = ["AbortError", "Advert", "SecureClient", "SecureServer", "Shares", "least_threshold"]


F = TypeVar("F", bound=Callable[..., Any])


class AbortError(ProtocolError):
    """Secure aggregation was left before anything was revealed."""


@dataclass(frozen=True, slots=True)
class Advert:
    """A client's public keys for one round."""

    seal_key: bytes
    mask_key: bytes
    signature: bytes

    def signed(self, name: str, session: bytes) -> bytes:
        """The bytes under the signature."""
        return b"advert" + session + _text(name) + self.seal_key + self.mask_key


@dataclass(frozen=True, slots=True)
class Shares:
    """What a client reveals at the end: per peer one share, of its seed or of its mask key."""

    seeds: Mapping[str, bytes]
    keys: Mapping[str, bytes]


def least_threshold(n_clients: int) -> int:
    """Smallest threshold a client accepts: more than half, so that two disjoint groups cannot both unmask."""
    return n_clients // 2 + 1


def session_of(run: bytes, index: int, names: Sequence[str], threshold: int, size: tuple[int, int]) -> bytes:
    """Name one round of one run: all signatures and keys hang on it, so nothing can be carried over from another."""
    text = repr((run, int(index), tuple(names), int(threshold), tuple(size))).encode()
    return hashlib.sha256(text).digest()


def _after(stage: str) -> Callable[[F], F]:
    """Let a step of the protocol follow one other step only; one that was refused is the last."""

    def ordered(step: F) -> F:
        @wraps(step)
        def taken(client: SecureClient, *words: Any) -> Any:
            if client.stage != stage:
                raise AbortError(
                    f"Client {client.name!r} was asked to {step.__name__} after {client.stage}: out of order, refused."
                )
            client.stage = "a refusal"
            answer = step(client, *words)
            client.stage = step.__name__
            return answer

        return cast("F", taken)

    return ordered


class SecureClient:
    """One client in one round.

    Parameters
    ----------
    name : str
        Its name.
    identity : Identity
        Its signing key.
    registry : mapping of str to bytes
        Public identity keys of all clients, known from elsewhere than the server.
    least : int
        Fewest clients in a sum that this client lends itself to.
    entropy : Entropy
        Its secret bytes.
    """

    def __init__(
        self, name: str, identity: Identity, registry: Mapping[str, bytes], least: int, entropy: Entropy
    ) -> None:
        self.name = name
        self._identity = identity
        self._registry = registry
        self._least = least
        self._entropy = entropy
        self.stage = "new"

    @_after("new")
    def advertise(self, run: bytes, index: int, names: Sequence[str], threshold: int, size: tuple[int, int]) -> Advert:
        """Send fresh keys, unless the round breaks this client's own minimums; `size`: words, and wide numbers."""
        unknown = [name for name in names if name not in self._registry]
        if unknown or len(set(names)) != len(names) or self.name not in names:
            who = repr(unknown[0]) if unknown else "a list with repeated names or without me"
            raise AbortError(f"Client {self.name!r} does not know {who}: the cohort is not the one agreed on. Refused.")
        self._check_minimum(len(names), threshold)
        self._names, self._threshold, (self._size, self._wide) = tuple(names), threshold, size
        self._session = session_of(run, index, names, threshold, size)
        self._seal, self._mask = KeyAgreement.fresh(self._entropy), KeyAgreement.fresh(self._entropy)
        bare = Advert(self._seal.public, self._mask.public, b"")
        signature = self._identity.sign(bare.signed(self.name, self._session))
        self._mine = Advert(bare.seal_key, bare.mask_key, signature)
        return self._mine

    def _check_minimum(self, count: int, threshold: int) -> None:
        if count < self._least:
            raise AbortError(
                f"Client {self.name!r} refuses a sum of {count} clients: its minimum is {self._least}, because fewer "
                "terms can be distinguished by those who know their own."
            )
        if not least_threshold(count) <= threshold <= count:
            raise AbortError(
                f"Client {self.name!r} refuses threshold {threshold} of {count}: below {least_threshold(count)} two "
                "groups could unmask different sums."
            )

    @_after("advertise")
    def share(self, adverts: Mapping[str, Advert]) -> dict[str, bytes]:
        """Check every party's keys; send sealed shares of one's own secrets."""
        alive = [name for name in self._names if name in adverts]
        self._check_minimum(len(alive), self._threshold)
        if adverts.get(self.name) != self._mine:
            raise AbortError(f"Client {self.name!r} refuses: its own keys were left out, or older ones put in place.")
        for name in alive:
            advert = adverts[name]
            if not verify(self._registry[name], advert.signature, advert.signed(name, self._session)):
                raise AbortError(
                    f"Client {self.name!r} refuses: the keys said to be {name!r}'s are not signed by {name!r}. "
                    "A party between the two is replacing keys."
                )
        if len({a.mask_key for a in adverts.values()} | {a.seal_key for a in adverts.values()}) < 2 * len(adverts):
            raise AbortError(f"Client {self.name!r} refuses: two clients sent the same key.")
        self._adverts = dict(adverts)
        self._alive = alive
        self._seed = self._entropy.take(32)
        points = len(self._names)
        seeds = split(self._seed, points, self._threshold, self._entropy)
        keys = split(self._mask.secret, points, self._threshold, self._entropy)
        here = self._names.index(self.name)
        self._held = {self.name: (seeds[here], keys[here])}
        sealed: dict[str, bytes] = {}
        for position, name in enumerate(self._names):
            if name in adverts and name != self.name:
                message = seeds[position] + keys[position]
                sealed[name] = seal(self._pair_key(name, self.name, name), message, self._session)
        return sealed

    def _pair_key(self, peer: str, sender: str, receiver: str) -> bytes:
        purpose = b"shares" + self._session + _text(sender) + _text(receiver)
        return self._seal.key_with(self._adverts[peer].seal_key, purpose)

    @_after("share")
    def mask(self, sealed: Mapping[str, bytes], values: np.ndarray) -> np.ndarray:
        """Take in the peers' shares; send the integers under masks that cancel in the sum."""
        if values.dtype != np.uint64 or values.shape != (self._size,):
            raise ValueError(f"Expected {self._size} 64-bit integers, got {values.dtype}{list(values.shape)}.")
        self._peers = [name for name in self._alive if name != self.name and name in sealed]
        self._check_minimum(len(self._peers) + 1, self._threshold)
        masked = add(values, mask_words(self._seed, self._size), self._wide)
        for name in self._peers:
            opened = open_sealed(self._pair_key(name, name, self.name), sealed[name], self._session)
            self._held[name] = (opened[:SHARE_BYTES], opened[SHARE_BYTES:])
            words = mask_words(_mask_key(self._mask, self._adverts[name].mask_key, self._session), self._size)
            masked = (add if self.name < name else subtract)(masked, words, self._wide)
        return masked

    @_after("mask")
    def agree(self, survivors: Sequence[str]) -> bytes:
        """Sign the list of those who are in the sum."""
        listed = set(survivors)
        if self.name not in listed or not listed <= {self.name, *self._peers}:
            raise AbortError(f"Client {self.name!r} refuses a list of survivors that it cannot be right about.")
        self._check_minimum(len(listed), min(self._threshold, len(listed)))
        if len(listed) < self._threshold:
            raise AbortError(f"Client {self.name!r} refuses: {len(listed)} survivors, {self._threshold} are needed.")
        self._survivors = listed
        return self._identity.sign(_survivor_text(self._session, listed))

    @_after("agree")
    def unmask(self, seeds: Sequence[str], keys: Sequence[str], signatures: Mapping[str, bytes]) -> Shares:
        """Reveal one share per peer, of its seed or of its mask key, and never both."""
        both = set(seeds) & set(keys)
        if both:
            raise AbortError(
                f"Client {self.name!r} was asked for both shares of {min(both)!r}: together they uncover that client's "
                "upload. Refused."
            )
        if set(seeds) != self._survivors:  # and, by the above, no key of a survivor
            raise AbortError(f"Client {self.name!r} was asked to unmask another list than the one it signed. Refused.")
        text = _survivor_text(self._session, self._survivors)
        right = [n for n in self._survivors if n in signatures and verify(self._registry[n], signatures[n], text)]
        if len(right) < self._threshold:
            raise AbortError(
                f"Client {self.name!r} refuses: only {len(right)} clients signed this list of survivors, "
                f"{self._threshold} are needed."
            )
        wanted = [name for name in keys if name in self._held]
        return Shares({n: self._held[n][0] for n in seeds}, {n: self._held[n][1] for n in wanted})


class SecureServer:
    """The server in one round: adds masked vectors as they come, then takes the masks off the total."""

    def __init__(self, run: bytes, index: int, names: Sequence[str], threshold: int, size: tuple[int, int]) -> None:
        self.names, self.threshold, (self.size, self.wide) = tuple(names), threshold, size
        self._session = session_of(run, index, names, threshold, size)
        self._total = np.zeros(self.size, np.uint64)
        self.survivors: list[str] = []

    def register(self, adverts: Mapping[str, Advert], sealed: Mapping[str, Mapping[str, bytes]]) -> None:
        """Remember keys and who shared; only those who did both are waited for."""
        self._adverts = dict(adverts)
        self.sharing = [name for name in self.names if name in sealed]
        if len(self.sharing) < self.threshold:
            raise AbortError(
                f"Only {len(self.sharing)} of {len(self.names)} clients are there, {self.threshold} are needed. The "
                "sum was left; nothing was revealed."
            )

    def take(self, name: str, masked: np.ndarray) -> None:
        """Add one masked vector."""
        if masked.dtype != np.uint64 or masked.shape != (self.size,) or name not in self.sharing:
            raise ProtocolError(f"{name!r} sent no masked vector of the agreed size. It was rejected.")
        self._total = add(self._total, masked, self.wide)
        self.survivors.append(name)

    def listed(self) -> list[str]:
        """Name those in the sum, or leave the round when they are too few."""
        if len(self.survivors) < self.threshold:
            raise AbortError(
                f"Only {len(self.survivors)} of {len(self.names)} clients sent their part, {self.threshold} are "
                "needed. The sum was left; nothing was revealed."
            )
        return sorted(self.survivors)

    @property
    def dropped(self) -> list[str]:
        """Those who shared their secrets, whose masks therefore sit in the sum, and then went away."""
        return [name for name in self.sharing if name not in set(self.survivors)]

    def total(self, answers: Mapping[str, Shares]) -> np.ndarray:
        """Take off every survivor's own mask, and every pairwise mask whose other half never came."""
        if len(answers) < self.threshold:
            raise AbortError(f"Only {len(answers)} clients helped to unmask, {self.threshold} are needed.")
        total = self._total.copy()
        for name in self.survivors:
            seed = self._restore({n: a.seeds[name] for n, a in answers.items()})
            total = subtract(total, mask_words(seed, self.size), self.wide)
        for gone in self.dropped:
            found = {n: a.keys[gone] for n, a in answers.items() if gone in a.keys}
            agreement = KeyAgreement(self._restore(found))
            if agreement.public != self._adverts[gone].mask_key:
                raise ProtocolError(f"The shares of {gone!r}'s key do not restore it: some client sent a false share.")
            for name in self.survivors:
                words = mask_words(_mask_key(agreement, self._adverts[name].mask_key, self._session), self.size)
                total = (add if gone < name else subtract)(total, words, self.wide)
        return total

    def _restore(self, shares: Mapping[str, bytes]) -> bytes:
        if len(shares) < self.threshold:
            raise AbortError(f"Only {len(shares)} shares of a secret arrived, {self.threshold} are needed.")
        chosen = sorted(shares)[: self.threshold]
        return join({self.names.index(name) + 1: shares[name] for name in chosen})


def _mask_key(mine: KeyAgreement, public: bytes, session: bytes) -> bytes:
    return mine.key_with(public, b"mask" + session)


def _survivor_text(session: bytes, survivors: set[str]) -> bytes:
    return b"survivors" + session + b"".join(_text(name) for name in sorted(survivors))


def _text(name: str) -> bytes:
    data = name.encode()
    return len(data).to_bytes(4, "little") + data
