"""The coordinator's side of verified aggregation: it relays, adds masked words, and shows every party the total.

Every party is needed: a sum of others would, beside this one, show what the missing party sent. What a restarted
coordinator needs is in one file; parties send the same bytes again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import IncompatibleError, ProtocolError
from fedfactor.core.flattened_upload import Layout, Parcel
from fedfactor.core.pytree import Tree, freeze
from fedfactor.core.transforms import Transform
from fedfactor.core.wire import Spec, from_bytes, to_bytes
from fedfactor.network.exchange import Exchange, NotEnough
from fedfactor.network.message_format import Head
from fedfactor.network.verified_client import session_of
from fedfactor.network.verified_messages import (
    KEY,
    TAGGED,
    Counts,
    Masked,
    Meet,
    Question,
    Shown,
    adverts_of,
    empty_upload,
    layout_digest,
    layout_of,
    masked_messages,
    octets,
    question_digest,
    question_of,
    tags_of,
    total_of,
    uploads,
)
from fedfactor.privacy.secure_aggregation.field_tags import accumulate
from fedfactor.privacy.secure_aggregation.phases import read_words
from fedfactor.privacy.secure_aggregation.verified import (
    LEAST,
    Context,
    Total,
    carry_dtype,
    check_total,
    label_of,
    transcript_of,
)

if TYPE_CHECKING:
    from fedfactor.network.client_storage import Agreement

__all__ = ["LEAST", "Relay", "uploads"]


class Relay:
    """The sums of one run.

    Parameters
    ----------
    exchange : Exchange
        Sends questions and collects answers.
    agreement : Agreement
        The terms that every party accepted.
    run : str
        Name of the run.
    file : Path
        Where keys and the tags of the last sum are kept.
    links : sequence of Transform
        What becomes of uploads at the parties.
    """

    def __init__(
        self, exchange: Exchange, agreement: Agreement, run: str, file: Path, links: Sequence[Transform]
    ) -> None:
        self.exchange = exchange
        self.links = tuple(links)
        self.file = file
        self.names = tuple(sorted(agreement.meta.clients))
        registry = {name: bytes.fromhex(key) for name, key in agreement.registry.items()}
        self.context = Context(agreement.federation, agreement.terms, run, agreement.run_seed, registry)
        self._number = agreement.seed_number
        self._kept: dict[str, Any] | None = None

    def question(self, head: Head, down: Tree) -> Question:
        """Write a question, with all that parties need to check it: keys before the first sum, tags after each."""
        kept = self._opened(head)
        return question_of(down, kept["keys"], kept.get("last"))

    def collect(
        self,
        head: Head,
        down: Tree,
        expected: Mapping[type, Spec],
        since: Mapping[str, int],
        rare: np.ndarray | None = None,
    ) -> tuple[Parcel, Layout]:
        """Ask a question, and return the sum of the uploads, which the parties have tagged."""
        links = () if head.kind == "survey" else self.links
        ask = dict.fromkeys(self.names, self.question(head, down))
        masked = self.exchange.ask(head, ask, masked_messages(expected), since=since)
        kind, sizes = self._form(masked, expected, counts=head.kind == "survey")
        layout, _, wide, grid = layout_of(empty_upload(kind, expected[kind], sizes.tolist()), links)
        total = self._total(masked)
        digest = question_digest(head.kind, self.names, down, rare, links)
        transcript = transcript_of(self.context, adverts_of(self.names, self._opened(head)["keys"]))
        label = label_of(transcript, head.kind, head.index, digest, layout_digest(kind, sizes, wide))
        words = total_of(self.names, {**total}).decoded(wide)
        self._tagged(head, label, total, since)
        return read_words(words, wide, grid), layout

    def _form(
        self, masked: Mapping[str, Masked], expected: Mapping[type, Spec], *, counts: bool
    ) -> tuple[type, np.ndarray]:
        """Find the kind and the sizes that all uploads have in common."""
        kinds = [Counts] if counts else uploads(expected)
        forms = {(int(up.kind), tuple(up.sizes.tolist()), up.words.size) for up in masked.values()}
        number, sizes, _ = next(iter(forms))
        if len(forms) != 1 or not 0 <= number + counts < len(kinds):
            raise NotEnough("The parties made uploads of different forms. Do all run the same version?")
        return kinds[number + counts], np.array(sizes, np.int64)

    def _total(self, masked: Mapping[str, Masked]) -> dict[str, np.ndarray]:
        """Add masked words over the integers, beside the signed hashes of all parties."""
        size = next(iter(masked.values())).words.size
        words = np.zeros(size, np.uint64)
        carries = np.zeros(size, carry_dtype(len(self.names)))
        for name in self.names:
            accumulate(words, carries, masked[name].words)
        digests = np.stack([masked[name].digest for name in self.names])
        signatures = np.stack([masked[name].signature for name in self.names])
        return {"digests": digests, "signatures": signatures, "words": words, "carries": carries}

    def _tagged(self, head: Head, label: bytes, total: dict[str, np.ndarray], since: Mapping[str, int]) -> None:
        """Show the total to every party, and keep the tags for the next question."""
        asked = replace(head, kind="sum", session=session_of(head.kind), participants=())
        tagged = self.exchange.ask(asked, dict.fromkeys(self.names, Shown(**total)), TAGGED, since=since)
        tags = np.stack([tagged[name].tags for name in self.names])
        last = {"tags": tags, "signatures": np.stack([tagged[name].signature for name in self.names])}
        shown: Total = total_of(self.names, total)
        try:
            check_total(self.context, label, shown, tags_of(self.names, last["tags"], last["signatures"]))
        except ProtocolError as error:
            raise NotEnough(f"The sum of {head.kind} {head.index} cannot be verified: {error}") from None
        self._kept = {**self._opened(head), "last": last}
        write_atomic(self.file, to_bytes(self._kept))

    def _opened(self, head: Head) -> dict[str, Any]:
        """Return the keys of all parties, asked for once in a run."""
        if self._kept is None and self.file.exists():
            kept = dict(freeze(from_bytes(self.file.read_bytes())))
            self._kept = kept if kept["run"].tobytes() == head.run.encode() else None
        if self._kept is None:
            asked = Head("meet", head.run, 0, "", head.terms)
            keys = self.exchange.ask(asked, dict.fromkeys(self.names, Meet(np.int64(self._number))), KEY)
            rows = [np.concatenate([keys[name].key, keys[name].signature]) for name in self.names]
            self._kept = {"run": octets(head.run.encode()), "keys": np.stack(rows)}
            write_atomic(self.file, to_bytes(self._kept))
        return self._kept


def one_message(messages: Mapping[str, Tree]) -> Tree:
    """Return the message that all parties are sent, or refuse a method that sends each its own."""
    first = next(iter(messages.values()))
    if any(message is not first for message in messages.values()):
        raise IncompatibleError(
            "Secure aggregation needs that all parties are sent the same: one that is sent something of its own "
            "could be made to send alone. Use an algorithm with one download for all, or protect = 'none'."
        )
    return first
