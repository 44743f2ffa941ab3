"""The phases of secure aggregation as messages: one state machine for every transport.

Five questions make a sum: for keys, for sealed shares of secrets, for the parcels under masks, for signatures of who is
in the sum, and for the shares that take the masks off. :class:`SumClient` answers them at a client, :class:`SumServer`
asks them; what is between the two is a function ``ask(questions) -> answers``, within a process or over a network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedfactor.core.errors import ProtocolError
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.pytree import Array, Tree, nbytes, public, record
from fedfactor.privacy.secure_aggregation.fixed_point import from_wide, join, quantise
from fedfactor.privacy.secure_aggregation.masked_sum import Advert, SecureClient, SecureServer, Shares
from fedfactor.privacy.secure_aggregation.shamir import SHARE_BYTES

__all__ = ["SumClient", "SumServer", "read_words", "size_of", "words_of"]

SEALED = 2 * SHARE_BYTES + 16

Ask = Callable[[Mapping[str, Tree]], Mapping[str, Any]]
"""Puts one question to each client named, and returns the answers that came."""


@record("secure_aggregation.Begin")
class Begin:
    """Down: begins a sum; 1 when it is the one before round 0."""

    nothing: Array = public()


@record("secure_aggregation.Keys")
class Keys:
    """Up: fresh public keys, signed. Down: those of every party, in name order; zeros where a client sent none."""

    seal: Array
    mask: Array
    signature: Array


@record("secure_aggregation.Sealed")
class Sealed:
    """Up: shares of one's secrets, sealed for each peer. Down: those that the peers sealed for the receiver."""

    parts: Array


@record("secure_aggregation.Masked")
class Masked:
    """Up: the parcel in integers, under masks that cancel in the sum."""

    words: Array


@record("secure_aggregation.Agree")
class Agree:
    """Down: who is in the sum, to be signed: one where a client's part has come."""

    survivors: Array


@record("secure_aggregation.Signatures")
class Signatures:
    """Up: one's signature of who is in the sum. Down: those of every party."""

    signature: Array


@record("secure_aggregation.Opened")
class Opened:
    """Up: one share for each peer: of its seed when it is in the sum, else of its mask key. Never both."""

    shares: Array


def size_of(values: int, side: int) -> tuple[int, int]:
    """Count the 64-bit words of a parcel, and the wide numbers among them."""
    return values + 2 * side, side


def words_of(parcel: Parcel, fraction: int, n: int, *, cut: bool = False) -> np.ndarray:
    """Write a parcel as integers: on its own grid, or rounded to fractional bits; cut or refused if too large."""
    values = quantise(parcel.values, fraction, n, cut=cut) if parcel.grid is None else parcel.values
    return join(values, parcel.side)


def read_words(words: np.ndarray, side: int, grid: float) -> Parcel:
    """Read the sum of such integers."""
    split = words.size - 2 * side
    return Parcel(words[:split].view(np.int64), tuple(from_wide(words[split:])), grid)


class SumClient:
    """A client in one sum. Lives in memory only: a client that was restarted takes part in the next try.

    Parameters
    ----------
    client : SecureClient
        Its keys and its minimums.
    about : tuple
        What all parties of the sum must agree on, as :class:`SecureServer` takes it: run, index, names, threshold,
        size. The client's own, not the server's.
    words : array, optional
        Its parcel in integers; needed when it is asked for them, not before.
    """

    def __init__(self, client: SecureClient, about: tuple[Any, ...], words: np.ndarray | None = None) -> None:
        self.name = client.name
        self.names = tuple(about[2])
        self.words = words
        self._client = client
        self._about = about
        self._said: dict[type, Tree] = {}
        self._listed: list[str] = []

    def answer(self, down: Tree) -> Tree:
        """Take the next step of the protocol; the same question gets the same answer."""
        if type(down) not in self._said:
            self._said[type(down)] = self._next(down)
        return self._said[type(down)]

    def _next(self, down: Tree) -> Tree:
        if isinstance(down, Begin):
            advert = self._client.advertise(*self._about)
            return Keys(_array(advert.seal_key), _array(advert.mask_key), _array(advert.signature))
        if isinstance(down, Keys):
            rows = zip(self.names, down.seal, down.mask, down.signature, strict=True)
            sealed = self._client.share({n: _advert(s, m, g) for n, s, m, g in rows if g.any()})
            return Sealed(np.stack([_array(sealed.get(name, bytes(SEALED))) for name in self.names]))
        if isinstance(down, Sealed):
            assert self.words is not None
            peers = zip(self.names, down.parts, strict=True)
            sealed = {name: part.tobytes() for name, part in peers if name != self.name and part.any()}
            return Masked(self._client.mask(sealed, self.words))
        if isinstance(down, Agree):
            self._listed = [name for name, there in zip(self.names, down.survivors, strict=True) if there]
            return Signatures(_array(self._client.agree(self._listed)))
        if isinstance(down, Signatures):
            rows = zip(self.names, down.signature, strict=True)
            signed = {name: row.tobytes() for name, row in rows if row.any()}
            gone = [name for name in self.names if name not in set(self._listed)]
            shares = self._client.unmask(self._listed, gone, signed)
            told = {**shares.keys, **shares.seeds}
            return Opened(np.stack([_array(told.get(name, bytes(SHARE_BYTES))) for name in self.names]))
        raise ProtocolError(f"{type(down).__name__} is no part of secure aggregation.")


class SumServer:
    """The server in one sum."""

    def __init__(self, run: bytes, index: int, names: Sequence[str], threshold: int, size: tuple[int, int]) -> None:
        self.names = tuple(names)
        self._server = SecureServer(run, index, names, threshold, size)
        self.bytes_up = 0

    def open(self, ask: Ask, *, survey: bool = False) -> dict[str, Sealed]:
        """Exchange keys and sealed shares; returns for each client the question for its masked part."""
        names = self.names
        keys = self._asked(ask, dict.fromkeys(names, Begin(np.float64(survey))))
        rows = {
            part: np.stack([getattr(keys[n], part) if n in keys else np.zeros(width, np.uint8) for n in names])
            for part, width in (("seal", 32), ("mask", 32), ("signature", 64))
        }
        sealed = self._asked(ask, dict.fromkeys(keys, Keys(**rows)))
        self._server.register({n: _advert(k.seal, k.mask, k.signature) for n, k in keys.items()}, sealed)
        nothing = np.zeros(SEALED, np.uint8)
        return {
            to: Sealed(np.stack([sealed[by].parts[i] if by in sealed else nothing for by in names]))
            for i, to in enumerate(names)
            if to in sealed
        }

    def take(self, name: str, masked: Masked) -> None:
        """Add one masked part."""
        self._server.take(name, masked.words)
        self.bytes_up += nbytes(masked)

    @property
    def survivors(self) -> list[str]:
        """Those whose masked parts came."""
        return self._server.survivors

    def close(self, ask: Ask) -> np.ndarray:
        """Let those who are in the sum sign it and open it; returns the sum."""
        listed = self._server.listed()
        there = np.array([name in set(listed) for name in self.names], np.uint8)
        signed = self._asked(ask, dict.fromkeys(listed, Agree(there)))
        nothing = np.zeros(64, np.uint8)
        rows = Signatures(np.stack([signed[n].signature if n in signed else nothing for n in self.names]))
        opened = self._asked(ask, dict.fromkeys(signed, rows))
        gone = set(self._server.dropped)
        answers: dict[str, Shares] = {}
        for by, told in opened.items():
            shares = {n: row.tobytes() for n, row in zip(self.names, told.shares, strict=True)}
            lost = {n: shares[n] for n in gone if any(shares[n])}
            answers[by] = Shares({n: shares[n] for n in listed}, lost)
        return self._server.total(answers)

    def _asked(self, ask: Ask, questions: Mapping[str, Tree]) -> dict[str, Any]:
        answers = dict(ask(questions))
        self.bytes_up += sum(nbytes(answer) for answer in answers.values())
        return answers


def _advert(seal: np.ndarray, mask: np.ndarray, signature: np.ndarray) -> Advert:
    return Advert(seal.tobytes(), mask.tobytes(), signature.tobytes())


def _array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)
