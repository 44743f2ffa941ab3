"""A party's side of verified aggregation: which question it answers, what it keeps, and what it checks.

Everything that a restarted party needs is in one file that is replaced as a whole (:class:`Kept`): the fresh secret and
the keys of the run, the replica of the server, the masked words of the open sum, and the answers. A question that was
answered before gets the same bytes again; another question under the same label gets none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfactor.core.algorithm import Round
from fedfactor.core.checksummed_files import write_checked
from fedfactor.core.entropy import Entropy
from fedfactor.core.flattened_upload import Parcel, flatten
from fedfactor.core.pytree import Tree, freeze, kind_of, to_numpy
from fedfactor.core.wire import Spec, fingerprint_of, receive, to_bytes
from fedfactor.engines import client_step as client
from fedfactor.engines.capabilities import started_at
from fedfactor.network.client_storage import Kept
from fedfactor.network.errors import Refused
from fedfactor.network.message_format import Head, seal, unseal
from fedfactor.network.replica import Replica
from fedfactor.network.verified_messages import (
    FRACTION,
    MEET,
    PARTS_OF_TOTAL,
    Counts,
    Key,
    Masked,
    Tagged,
    adverts_of,
    counts_messages,
    empty_upload,
    layout_digest,
    layout_of,
    octets,
    question_digest,
    question_messages,
    shown_messages,
    sizes_of,
    tags_of,
    total_of,
    uploads,
)
from fedfactor.privacy.secure_aggregation.phases import Begin, read_words, words_of
from fedfactor.privacy.secure_aggregation.primitives import Identity
from fedfactor.privacy.secure_aggregation.verified import Context, Member, label_of

if TYPE_CHECKING:
    from fedfactor.network.client import RemoteClient

_ORDER = ("survey", "step", "end")

# What a party keeps of the protocol: secret, number of the seed, keys, server, down, start, open, total, tagged.
State = dict[str, Any]


class VerifiedClient:
    """Answers the questions of verified aggregation for one party.

    Parameters
    ----------
    owner : RemoteClient
        The party: its folder, its agreement, its limits and its algorithm.
    """

    def __init__(self, owner: RemoteClient) -> None:
        self.owner = owner
        self.mine = owner.agreement
        self.names = tuple(sorted(self.mine.meta.clients))
        self._counts = counts_messages(self.mine.meta)
        self._kinds = uploads(owner.expected)
        n = len(self.names)
        both: dict[type, Spec] = {**owner.expected, **self._counts}
        self._questions = question_messages(both, n)
        self._shown = shown_messages(both, n)
        self.forms: dict[type, Spec] = {**MEET, **self._questions, **self._shown}

    def serve(self, asked: Head, data: bytes, told: Head) -> bytes:
        """Answer one message."""
        store = self.owner.store
        kept = store.load()
        here = kept if kept is not None and kept.head.run == asked.run and kept.protocol is not None else None
        if asked.kind == "meet":
            return self._meet(asked, data, told, here)
        if here is None:
            raise Refused("this party's state of that run is gone or was never made: only a new run can be begun")
        if asked.kind == "sum":
            return self._tag(asked, data, told, here)
        return self._question(asked, data, told, here)

    # ------------------------------------------------------------------------------------------------------- setup
    def _meet(self, asked: Head, data: bytes, told: Head, here: Kept | None) -> bytes:
        """Send the fresh key of a run; the same one as often as it is asked for."""
        number = int(unseal(data, asked, MEET).seed)
        if here is not None and here.head.kind == "end":
            raise Refused("that run has ended")
        if here is not None:
            return here.answer if here.head.kind == "meet" else self._key(told, here.protocol)
        if asked.run in self.owner.store.answered.so_far()[0]:
            raise Refused("this party took part in that run, and what it kept of it is gone: only a new run can begin")
        if not 0 <= number <= self.mine.further_seeds:
            raise Refused(
                f"a run with seed number {number} was begun, but {self.mine.further_seeds} further were agreed"
            )
        self.owner.check_budget(asked.run)
        protocol: State = {"secret": octets(Entropy().take(32)), "number": np.int64(number)}
        self._member(asked.run, protocol)  # a party that is not registered, or too few of them: nothing is kept
        answer = self._key(told, protocol)
        self.owner.store.save(Kept(told, answer, protocol=protocol))
        return answer

    def _key(self, told: Head, protocol: State) -> bytes:
        advert = self._member(told.run, {**protocol, "keys": None}).advert
        return seal(told, Key(octets(advert.key), octets(advert.signature)))

    def _member(self, run: str, protocol: State, keys: np.ndarray | None = None) -> Member:
        """Make this party's part in the run again from what it keeps."""
        mine = self.mine
        registry = {name: bytes.fromhex(key) for name, key in mine.registry.items()}
        identity = Identity((self.owner.store.folder / "identity.key").read_bytes())
        seed = mine.numbered_seed(int(protocol["number"]))
        context = Context(mine.federation, mine.terms, run, seed, registry)
        member = Member(context, mine.name, identity, to_numpy(protocol["secret"]).tobytes())
        known = protocol.get("keys") if keys is None else keys
        if known is not None:
            member.meet(adverts_of(self.names, known))
        return member

    # --------------------------------------------------------------------------------------------------- a question
    def _question(self, asked: Head, data: bytes, told: Head, here: Kept) -> bytes:
        """Admit the one question that follows from the totals; take the step, and send it under masks."""
        question = unseal(data, asked, self._questions)
        announced = self._counts if asked.kind == "survey" else self.owner.expected
        down = freeze(receive(to_numpy(question.down).tobytes(), announced))
        last = here.head
        protocol = dict(here.protocol)
        if (asked.kind, asked.index) == (last.kind, last.index):
            if to_numpy(protocol["digest"]).tobytes() != self._digest(asked, down):
                raise Refused("another question was answered under this label, and one label has one answer")
            return here.answer
        self._in_order(asked, last)
        if protocol.get("keys") is None:
            self._member(asked.run, protocol, question.keys)  # all keys are checked before one is kept
            protocol["keys"] = question.keys
        protocol = self._admitted(asked, down, protocol, question)
        odd = "" if asked.kind == "survey" else self.owner.algorithm.accepts(down, self.mine.meta)
        if odd:
            raise Refused(f"no honest server sends this: {odd}")
        digest = self._digest(asked, down)
        self.owner.admit(asked, digest)
        with self.owner.last_word(asked):
            return self._answered(asked, told, down, here, {**protocol, "digest": octets(digest)})

    def _in_order(self, asked: Head, last: Head) -> None:
        """Refuse what does not come next: a replica can follow no other order."""
        counted = self.mine.counted
        first = ("survey", 0) if counted else ("step", 0)
        after = {
            "meet": [first],
            "survey": [("survey", 1)] if last.index == 0 else [("step", 0)],
            "step": [("step", last.index + 1), ("end", last.index + 1)],
        }
        if (asked.kind, asked.index) not in after.get(last.kind, []):
            raise Refused(f"{asked.kind} {asked.index} does not follow {last.kind} {last.index}")

    def _digest(self, asked: Head, down: Tree) -> bytes:
        # The columns that are left out are found after the question of the survey, and known to all steps.
        rare = None if asked.kind == "survey" else self.owner.columns().get("rare")
        links = () if asked.kind == "survey" else self.owner.links
        return question_digest(asked.kind, self.names, down, rare, links)

    def _admitted(self, asked: Head, down: Tree, protocol: State, question: Any) -> State:
        """Check the total of the last sum, take the server's step, and refuse any other question than what follows."""
        total = self._verified(asked, protocol, question)
        index = int(asked.index)
        if asked.kind == "survey":
            right: Any = Begin if index == 0 else Counts
            if not isinstance(down, right):
                raise Refused("the columns are counted once, and their totals are returned once")
            if index and not _same_counts(total, down):
                raise Refused("the totals of the columns are not those that were verified")
            return {**protocol, "open": None, "total": None, "tagged": None}
        replica, start = self._replica(asked, down, protocol)
        if asked.kind == "end":
            server, adopted, wrong = replica.last(protocol["server"], total, index - 1, down)
        elif index == 0:
            server, adopted, wrong = replica.first(down)
        else:
            server, adopted, wrong = replica.following(protocol["server"], total, index - 1, down)
        if wrong:
            raise Refused(f"the question does not follow from the totals: {wrong}")
        kept = {**{name: protocol[name] for name in ("secret", "number", "keys")}, "start": start}
        return {**kept, "server": server, "down": adopted, "open": None, "total": None, "tagged": None}

    def _replica(self, asked: Head, down: Tree, protocol: State) -> tuple[Replica, Any]:
        """Make the replica; a run that starts at agreed components takes them from the first question."""
        algorithm = self.owner.algorithm
        mine = self.mine
        start = protocol.get("start")
        if mine.start and (asked.kind, asked.index) == ("step", 0):
            if not hasattr(down, "V") or fingerprint_of(to_numpy(down.V)) != mine.start:
                raise Refused(f"the run begins at other components than the agreed ones ({mine.start})")
            start = down.V
        if start is not None:
            algorithm = started_at(algorithm, start)
        seed = mine.numbered_seed(int(protocol["number"]))
        return Replica(algorithm, mine.meta, seed, self.owner.expected), start

    def _verified(self, asked: Head, protocol: State, question: Any) -> Tree:
        """Check the tags of the last sum, and return its decoded total; None where there was none."""
        held = protocol.get("open")
        if held is None:
            return None
        if protocol.get("total") is None:
            raise Refused("the sum of the last question was never shown: no other question is answered before")
        label = to_numpy(held["label"]).tobytes()
        shown = total_of(self.names, protocol["total"])
        member = self._member(asked.run, protocol)
        member.check(label, shown, tags_of(self.names, question.tags, question.signatures))
        return self._decoded(protocol, shown.decoded(int(held["wide"])))

    def _decoded(self, protocol: State, words: np.ndarray) -> Tree:
        """Read a total as the server does."""
        held = protocol["open"]
        expected = {**self.owner.expected, **self._counts}
        if int(held["kind"]) < 0:
            kind = Counts
            links = ()
            channel = None
        else:
            kind = self._kinds[int(held["kind"])]
            links = self.owner.links
            channel = self.owner.channel
        layout, _, wide, grid = layout_of(empty_upload(kind, expected[kind], held["sizes"].tolist()), links)
        parcel = read_words(words, wide, grid)
        if channel is None:
            from fedfactor.core.flattened_upload import restore

            return restore(parcel, layout)
        at = Round(self.mine.seed, int(held["index"]), None, self.mine.meta.clients)
        receiver = channel.open(self.owner.expected, at, protocol["down"], encoded=True)
        receiver.replace_by(parcel, layout, self.mine.meta.clients)
        return receiver.combined

    def _answered(self, asked: Head, told: Head, down: Tree, here: Kept, protocol: State) -> bytes:
        """Touch the rows: take the step, or count the columns, and keep all of it before it is sent."""
        if asked.kind == "survey" and asked.index == 1:
            write_checked(self.owner.columns_file, to_bytes({"rare": down.rare(self.mine.least)}))
            self.owner.__dict__.pop("shard", None)
            answer = seal(told, Begin(np.float64(0)))
            self.owner.store.save(Kept(told, answer, protocol=protocol))
            return answer
        state: Tree = None
        if asked.kind == "survey":
            up: Tree = self.owner.counts()
            parcel = flatten(up, noisy=False)[0]
        else:
            base = here.state
            if base is None:
                base = client.begin(
                    self.owner.algorithm, self.owner.shard, self.mine.meta, self.mine.seed, asked.client
                )
            state, up = self.owner.work(asked, base, down)
            if asked.kind == "end":
                answer = seal(told, up)
                self.owner.store.save(Kept(told, answer, state, protocol={**protocol, "secret": octets(bytes(32))}))
                return answer
            parcel = self.owner.encoded(asked, up, down)[0]
        answer, held = self._masked(asked, told, up, parcel, protocol)
        self.owner.store.save(Kept(told, answer, state, protocol={**protocol, "open": held}))
        return answer

    def _masked(self, asked: Head, told: Head, up: Tree, parcel: Parcel, protocol: State) -> tuple[bytes, State]:
        """Mask an upload, and sign the hash of it."""
        number = -1 if isinstance(up, Counts) else self._kinds.index(kind_of(up))
        sizes = sizes_of(up)
        wide = len(parcel.side)
        member = self._member(asked.run, protocol)
        layout = layout_digest(kind_of(up), sizes, wide)
        label = label_of(member.transcript, asked.kind, asked.index, to_numpy(protocol["digest"]).tobytes(), layout)
        words = member.mask(label, words_of(parcel, FRACTION, len(self.names), cut=True), wide)
        signed = member.commit(label, words)
        held: State = {
            "label": octets(label),
            "kind": np.int64(number),
            "sizes": sizes,
            "wide": np.int64(wide),
            "words": words,
            "index": np.int64(asked.index),
        }
        sent = Masked(np.int64(number), sizes, words, octets(signed.digest), octets(signed.signature))
        return seal(told, sent), held

    # ------------------------------------------------------------------------------------------------------ a total
    def _tag(self, asked: Head, data: bytes, told: Head, here: Kept) -> bytes:
        """Sign the tags of what was sent, for the total that is shown; one sum has one total."""
        shown = unseal(data, asked, self._shown)
        protocol = dict(here.protocol)
        held = protocol.get("open")
        if held is None or (here.head.index, session_of(here.head.kind)) != (asked.index, asked.session):
            raise Refused("no sum of that round is open here")
        parts = {name: to_numpy(getattr(shown, name)) for name in PARTS_OF_TOTAL}
        if protocol.get("total") is not None:
            if any(not np.array_equal(parts[name], protocol["total"][name]) for name in PARTS_OF_TOTAL):
                raise Refused("another total of this sum was tagged, and one sum has one total")
            return to_numpy(protocol["tagged"]).tobytes()
        total = total_of(self.names, parts)
        tags = self._member(asked.run, protocol).tag(to_numpy(held["label"]).tobytes(), held["words"], total)
        answer = seal(told, Tagged(np.array(tags.values, np.uint64), octets(tags.signature)))
        protocol |= {"total": parts, "tagged": octets(answer)}
        self.owner.store.save(replace(here, protocol=protocol))
        return answer


def session_of(kind: str) -> int:
    """Return the sum of a survey from that of a step with the same number."""
    return 1 if kind == "survey" else 2


def _same_counts(total: Counts, told: Counts) -> bool:
    return np.array_equal(total.rows, told.rows) and np.array_equal(total.clients, told.clients)
