"""What answers messages at a client: checks them, takes the step, keeps state and answer, writes down what is sent.

The same for a process that lives for one message and for one that stays. A message that was answered before gets the
same bytes again, so a server may ask as often as it likes: no step is taken twice, and no noise is drawn twice.

The server is believed in nothing. What it asks is checked against what an honest one can ask, and counted against what
was agreed, before rows are touched. A refusal never contains its reason: a reason that depends on rows would
answer questions beside those that were agreed on. Where uploads are protected, values that do not fit are cut to what
does, because a refusal would state that they did not; and a step that fails all the same is the last of its run.
"""

from __future__ import annotations

import errno
import hashlib
import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.algorithm import LocalFactors, Round, Score
from fedfactor.core.atomic_files import private_folder, write_atomic
from fedfactor.core.checksummed_files import read_checked, write_checked
from fedfactor.core.client_data import Shard
from fedfactor.core.column_scales import ColumnSums, column_sums, needs_bins, weighted
from fedfactor.core.errors import CheckpointError, NotFiniteError, ProtocolError
from fedfactor.core.flattened_upload import Layout, Parcel, restore
from fedfactor.core.pytree import Tree, leaves, to_numpy, tree_map
from fedfactor.core.threads import limit_threads
from fedfactor.core.transforms import Sender, Transform
from fedfactor.core.wire import Spec, check_finite, check_message, fingerprint_of, from_bytes, to_bytes
from fedfactor.engines import client_step as client
from fedfactor.engines.engine import check_fit
from fedfactor.network.answer_limits import LimitError
from fedfactor.network.client_storage import Agreement, ClientFolder, Kept
from fedfactor.network.column_survey import Ask, survey_messages
from fedfactor.network.errors import Refused
from fedfactor.network.message_format import Head, most_bytes, read_head, seal, unseal
from fedfactor.network.verified_client import VerifiedClient
from fedfactor.network.verified_messages import Counts
from fedfactor.privacy.ledger import BudgetError, Entry
from fedfactor.privacy.minimums import RefusedError
from fedfactor.privacy.rare_columns import column_counts, without_columns
from fedfactor.privacy.sent_uploads import Outbox
from fedfactor.privacy.subjects import keep_only

logger = logging.getLogger("fedfactor")

_ORDER = ("survey", "step", "end")
COLUMNS = "columns.safetensors"


BESIDE = ("agreement.json", "signed.json", "rows.json")
"""What is kept beside a result, so that it can be read when the party has long signed up for something else."""

REFUSAL = "the party does not answer this; its own log says why"
"""All that a server learns of a refusal, whatever its reason."""

BROKEN = "broken"
"""File with the name of a run in which a step failed on rows that were to be protected: it gets no further answer."""


class RemoteClient:
    """Answers for one client.

    Parameters
    ----------
    store : ClientFolder
        The client's folder.
    """

    def __init__(self, store: ClientFolder) -> None:
        self.store = store
        self.agreement: Agreement = store.agreement
        self.algorithm = self.agreement.make()
        self.expected: dict[type, Spec] = check_fit(self.algorithm, self.agreement.meta)
        self._most = self.agreement.most_steps
        self.channel = self.agreement.channel()
        self._ledger = store.ledger
        self._outbox: tuple[str, Outbox] | None = None
        self._surveyed = survey_messages(self.agreement.meta)
        self._verified = VerifiedClient(self) if self.agreement.secure else None
        forms = {**self.expected, **self._surveyed} if self._verified is None else self._verified.forms
        self._limit = most_bytes(forms)

    @property
    def longest(self) -> int:
        """Most bytes of a message that can be right."""
        return self._limit

    def answer(self, data: bytes) -> bytes:
        """Answer one message; the answer may be a refusal, and is written down before it is returned."""
        with self.store.locked(), limit_threads(self.agreement.threads):
            told = Head("refusal", "", 0, self.agreement.name, self.agreement.terms, reason=REFUSAL)
            why = ""
            try:
                if len(data) > self._limit:
                    raise ProtocolError(f"a message of {len(data)} bytes came where {self._limit} can be right")
                asked = read_head(data)
                told = replace(told, run=asked.run, index=asked.index, since=asked.since, session=asked.session)
                self._agree(asked)
                answer, told = self._serve(asked, data)
            except Exception as error:
                if _is_of_the_disk(error):
                    raise  # nothing was stored, so nothing is sent: the server asks again when this party is back
                why = f"{type(error).__name__}: {error}"[:2000]
                expected = isinstance(error, Refused | ProtocolError | LimitError | BudgetError)
                logger.warning("A message was refused: %s", why, exc_info=None if expected else error)
                answer = seal(told)
            self.store.log(told, answer, why)
            return answer

    def _agree(self, asked: Head) -> None:
        mine = self.agreement
        if asked.terms != mine.terms:
            raise Refused(
                "the server's federation.toml is not the one this party signed up for "
                f"(fingerprint {asked.terms[:12]}, here {mine.terms[:12]}). Compare the two; join again if you agree"
            )
        if asked.client != mine.name:
            raise Refused(f"the message is for {asked.client!r}, but this is {mine.name!r}")
        if asked.kind not in (*_ORDER, *(("meet", "sum") if mine.secure else ())):
            raise Refused(f"a message of kind {asked.kind!r} asks for nothing")
        if asked.index > self._most - (asked.kind == "step"):  # the end has the number after the last step's
            raise Refused(f"{asked.kind} {asked.index} was asked for, but {self._most} were agreed")
        if asked.kind == "step" and mine.secure and asked.participants != mine.meta.clients:
            raise Refused("a sum of others than those who were agreed on was asked for")

    def _serve(self, asked: Head, data: bytes) -> tuple[bytes, Head]:
        told = replace(asked, participants=(), reason="", scales=(), attempt=0)
        mine = self.agreement
        if self._verified is not None:
            return self._verified.serve(asked, data, told), told
        kept = self.store.load()
        if kept is not None and kept.head.run == asked.run:
            last = kept.head
            if (last.kind, last.index) == (asked.kind, asked.index):
                return kept.answer, told  # asked again: the same bytes
            if (_ORDER.index(asked.kind), asked.index) < (_ORDER.index(last.kind), last.index):
                raise Refused(f"{asked.kind} {asked.index} is stale: {last.kind} {last.index} was answered already")
        if asked.kind == "survey":
            down = unseal(data, asked, self._surveyed)
            self.admit(asked, _digest(down))
            with self.last_word(asked):
                return self._keep(asked, told, None, None, self._survey(down), down)
        down = unseal(data, asked, self.expected, mine.payload)
        odd = self.algorithm.accepts(down, mine.meta)
        if odd:
            raise Refused(f"no honest server sends this: {odd}")
        if mine.start and (asked.kind, asked.index) == ("step", 0) and fingerprint_of(to_numpy(down.V)) != mine.start:
            raise Refused(f"the run begins at other components than the agreed ones ({mine.start})")
        self.admit(asked, _digest(down))
        with self.last_word(asked):
            base = None if kept is None else _state_after(asked, kept)
            if base is None:
                base = client.begin(self.algorithm, self.shard, mine.meta, mine.seed, asked.client)
            state, up = self.work(asked, base, down)
            return self._keep(asked, told, state, base, up, down)

    def admit(self, asked: Head, digest: bytes) -> None:
        """Count a question before it is worked on; refuse it when enough were answered."""
        broken = self.store.folder / BROKEN
        if broken.exists() and broken.read_text() == asked.run:
            raise Refused("a step of this run failed here, and nothing more is answered in it")
        if self._ledger is not None and asked.kind != "end":
            entry = self._entry(asked)
            self._ledger.belong(self.store.rows)
            self.check_budget(asked.run)  # before it is counted among the runs and rounds that were answered
            if asked.kind == "step" and self.channel is not None and self.channel.sender.noisy:
                self._outbox_of(asked.run)  # it is there before anything is paid, so that its loss can be detected
            self.store.answered.count(asked.run, asked.kind, asked.index, asked.terms, digest)
            self._ledger.debit(entry)
            return
        self.store.answered.count(asked.run, asked.kind, asked.index, asked.terms, digest)

    def check_budget(self, run: str) -> None:
        """Refuse a run whose remaining rounds cost more than the budget has left, before any of them is paid for.

        The terms fix the rounds and the noise, so the cost of the whole run is known at its first message. A run that
        was begun and could not be completed would cost ε without a result.
        """
        if self._ledger is None:
            return
        survey = [self._entry(Head("survey", run, 0, "", ""))] if self.agreement.survey else []
        rounds = (self._entry(Head("step", run, index, "", "")) for index in range(self.agreement.rounds))
        if not self._ledger.affords(*survey, *rounds):
            raise Refused(
                f"the whole run of {self.agreement.rounds} rounds would bring these rows beyond their budget of "
                f"ε = {self._ledger.budget:g} (spent so far: {self._ledger.epsilon():.3g}), so none of it is answered. "
                "A larger budget is a decision about the people in the rows: join with --budget and --raise-budget"
            )

    def _entry(self, asked: Head) -> Entry:
        """Return what an answer costs these rows; sums of columns have no noise."""
        if asked.kind == "survey" or self.channel is None:
            name = type(self.algorithm).__name__
            return Entry(asked.run, -1, 0.0, "client", what=asked.kind, algorithm=name, scope=self.store.scope)
        return replace(self.channel.books.entry, run=asked.run, round=asked.index, scope=self.store.scope)

    @contextmanager
    def last_word(self, asked: Head) -> Generator[None]:
        """Let a failure on protected rows be the last word of its run: more of them would be answers to questions."""
        try:
            yield
        except (Refused, CheckpointError, RefusedError):  # damaged or missing files reveal nothing about rows
            raise
        except Exception as error:
            if self.channel is not None and not _is_of_the_disk(error):
                write_atomic(self.store.folder / BROKEN, asked.run.encode())
            raise

    def _keep(self, asked: Head, told: Head, state: Tree, before: Tree, up: Tree, down: Tree) -> tuple[bytes, Head]:
        """Keep everything before it is sent, noise and all."""
        sent = up
        if asked.kind == "step" and self.channel is not None:
            sent = restore(*self.encoded(asked, up, down))
        answer = seal(told, sent, self.agreement.payload if told.kind == "step" else "exact")
        self.store.save(Kept(told, answer, state, before))
        return answer, told

    @property
    def links(self) -> tuple[Transform, ...]:
        """What becomes of an upload before it is sent."""
        return () if self.channel is None else self.channel.links

    def encoded(self, asked: Head, up: Tree, down: Tree) -> tuple[Parcel, Layout]:
        """Take an upload through the links that were agreed on; one with noise is stored before it is sent."""
        assert self.channel is not None
        at = Round(self.agreement.seed, asked.index, asked.client, asked.participants)
        if not self.channel.sender.noisy:
            return self.channel.sender.encode(asked.client, up, at, down)
        outbox = self._outbox_of(asked.run)
        found = Sender(self.links, self.algorithm, outbox=outbox).encode(asked.client, up, at, down)
        outbox.release(at, at.participants)
        outbox.forget(asked.index)  # of rounds before this one the server can ask nothing any more
        return found

    def _outbox_of(self, run: str) -> Outbox:
        """Open what this party sent in a run: a server may change between runs, and noise is not drawn again."""
        if self._outbox is None or self._outbox[0] != run:
            folder = private_folder(self.store.folder / "noise") / hashlib.sha256(run.encode()).hexdigest()[:16]
            entries = [] if self._ledger is None else self._ledger.entries()
            paid = any(entry.run == run and entry.scope in ("", self.store.scope) for entry in entries)
            if paid and not folder.exists():
                raise Refused("this run was paid for, and what was sent in it is gone: noise is not drawn again")
            self._outbox = (run, Outbox(folder, run))
        return self._outbox[1]

    def _survey(self, down: Tree) -> Tree:
        """Count one's columns for what all clients' columns add up to; then take in what they add up to."""
        kind = self.agreement.survey
        if not kind:
            raise Refused("column sums were asked for, but none were agreed on")
        if isinstance(down, ColumnSums):
            self.__dict__.pop("shard", None)
            write_checked(self.columns_file, to_bytes({"weights": down.weights(kind)}))
            return Ask(np.float64(0))
        shard = self.store.shard
        return column_sums(shard.X, shard.mask, bins=needs_bins(kind))

    def counts(self) -> Counts:
        """Count the rows that fill each column, and whether any does."""
        counts = column_counts(self.store.shard).astype(np.float64)
        return Counts(counts, (counts > 0).astype(np.float64))

    def work(self, asked: Head, state: Tree, down: Tree) -> tuple[Tree, Tree]:
        """Take the step, or finish; what is not finite is cut where a refusal would reveal rows."""
        if asked.kind == "end":
            # At home every row counts again, also those beyond the cap of a subject.
            shard = self.shard if self.store.counted is None else self.store.shard
            factors, score = client.end(self.algorithm, shard, state, down)
            self._take_home(asked.run, asked.index, factors, score)
            return state, score if self.agreement.report_score else Ask(np.float64(0))
        at = Round(self.agreement.seed, asked.index, asked.client, asked.participants)
        new_state, up = client.step(self.algorithm, self.shard, state, down, at)
        if up is None:
            raise Refused("this client cannot take part in this round")
        covered = self.channel is not None and not self.channel.shows
        if covered:
            try:
                check_finite(up)
            except NotFiniteError as error:  # under noise or masks it could not be left out any more
                logger.warning(
                    "Round %d: %s. Zeros, or the largest numbers there are, were sent instead, since a refusal would "
                    "reveal rows: the result is wrong where they count. Do the settings suit the data?",
                    asked.index,
                    str(error).partition(". ")[0],
                )
                up = tree_map(_finite, up)
        try:
            check_message(up, self.expected)
        except NotFiniteError:  # the server leaves it out, and names its sender
            if covered:
                raise
        return new_state, up

    def _take_home(self, run: str, rounds: int, factors: LocalFactors, score: Score) -> None:
        """Keep the factors in the client's own folder, with all that they were made under; what an earlier run left is
        moved aside. Nothing of them is sent but the score.
        """
        folder = self.store.folder / "result"
        before = self.store.run_of(folder)
        if before not in ("", run):
            kept = private_folder(self.store.folder / "runs") / before
            if not kept.exists():
                folder.rename(kept)
        private_folder(folder)
        for name in (COLUMNS, *BESIDE):
            if (self.store.folder / name).exists():
                write_atomic(folder / name, (self.store.folder / name).read_bytes())
        about = {"run": run, "rounds": str(rounds)}
        write_atomic(folder / "factors.safetensors", to_bytes({"factors": factors, "score": score}, about))

    def columns(self) -> dict[str, np.ndarray]:
        """Read the result of the survey of columns; nothing before it."""
        file = self.columns_file
        return from_bytes(read_checked(file)) if file.exists() else {}

    @property
    def columns_file(self) -> Path:
        """File with the result of the survey of columns."""
        return self.store.folder / COLUMNS

    @cached_property
    def shard(self) -> Shard:
        """The rows as the algorithm sees them: weighted by column, or without rare columns, as the totals require."""
        shard = self.store.shard
        if not self.agreement.survey and not self.agreement.counted:
            counted = self.store.counted
            return shard if counted is None else keep_only(shard, counted * 1.0, np.ones(shard.n_features))
        found = self.columns()
        if not found:
            raise Refused("the columns were never agreed on: the server skipped its survey")
        if "rare" in found:
            return without_columns(shard, found["rare"], merge=False) if found["rare"].size else shard
        return Shard(weighted(shard.X, found["weights"]), shard.mask, shard.features)


def _is_of_the_disk(error: Exception) -> bool:
    """Return whether this machine could not write, which reveals nothing about rows and is temporary."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def _digest(down: Tree) -> bytes:
    """Digest of a message: which question a party answered."""
    found = hashlib.sha256(type(down).__name__.encode())
    for path, leaf in leaves(down):
        array = to_numpy(leaf)
        found.update(repr((path, array.dtype.str, array.shape)).encode() + array.tobytes())
    return found.digest()


def _state_after(asked: Head, kept: Kept) -> Tree:
    """Return the state after the last step that counted: an answer that came too late never happened."""
    last = kept.head
    if last.run != asked.run or asked.since < 0:
        return None
    return kept.state if last.index == asked.since else kept.before if last.since == asked.since else None


def _finite(leaf: Any) -> Any:
    """Cut what is not finite to what is: the sum then says that something is wrong, and no refusal reveals at which
    client.
    """
    array = to_numpy(leaf)
    return np.nan_to_num(array) if array.dtype.kind == "f" and not np.isfinite(array).all() else leaf
