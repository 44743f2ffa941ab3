"""What answers letters at a client: checks them, takes the step, keeps state and answer, writes down what is sent.

The same for a process that lives for one letter and for one that stays. A letter that was answered before gets the same
bytes again, so a server may ask as often as it likes: no step is taken twice, and no noise is drawn twice.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property

import numpy as np

from fedfactor.core.errors import DataError, FedfactorError, ProtocolError
from fedfactor.core.federation import Shard
from fedfactor.core.files import private_folder, write_atomic
from fedfactor.core.protocol import LocalFactors, Round, Score
from fedfactor.core.tree import Tree
from fedfactor.core.wire import Spec, check_message, from_bytes, to_bytes
from fedfactor.engines import client
from fedfactor.engines.base import check_fit
from fedfactor.engines.letters import Head, most_bytes, read_head, seal, unseal
from fedfactor.engines.seat import Agreement, Seat
from fedfactor.engines.survey import Ask, ColumnSums, column_sums, survey_messages, weighted
from fedfactor.threads import limit_threads

logger = logging.getLogger("fedfactor")

_ORDER = ("survey", "step", "end")


class Refused(FedfactorError, ValueError):
    """A client will not do what a letter asks; the reason goes back to the server."""


class Clerk:
    """Answers for one client.

    Parameters
    ----------
    seat : Seat
        The client's folder.
    """

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.agreement: Agreement = seat.agreement
        self.algorithm = self.agreement.make()
        self.expected: dict[type, Spec] = check_fit(self.algorithm, self.agreement.meta)
        self._most = self.agreement.most_steps
        self._surveyed = survey_messages(self.agreement.meta)
        self._limit = most_bytes({**self.expected, **self._surveyed})

    def answer(self, data: bytes) -> bytes:
        """Answer one letter; the answer may be a refusal, and is written down before it is returned."""
        with self.seat.locked(), limit_threads(self.agreement.threads):
            told = Head("refusal", "", 0, self.agreement.name, self.agreement.terms)
            try:
                if len(data) > self._limit:
                    raise ProtocolError(f"a letter of {len(data)} bytes came where {self._limit} can be right")
                asked = read_head(data)
                told = replace(told, run=asked.run, index=asked.index, since=asked.since)
                self._agree(asked)
                answer, told = self._serve(asked, data)
            except Exception as error:
                told = replace(told, reason=_reason(error))
                answer = seal(told)
            self.seat.log(told, answer)
            return answer

    def _agree(self, asked: Head) -> None:
        mine = self.agreement
        if asked.terms != mine.terms:
            raise Refused(
                "the server's federation.toml is not the one this party signed up for "
                f"(fingerprint {asked.terms[:12]}, here {mine.terms[:12]}). Compare the two; join again if you agree"
            )
        if asked.client != mine.name:
            raise Refused(f"the letter is for {asked.client!r}, but this is {mine.name!r}")
        if asked.kind not in _ORDER:
            raise Refused(f"a letter of kind {asked.kind!r} asks for nothing")
        if asked.index > self._most:
            raise Refused(f"step {asked.index} was asked for, but {self._most} were agreed")

    def _serve(self, asked: Head, data: bytes) -> tuple[bytes, Head]:
        last, state, before, kept = self.seat.load()
        told = replace(asked, participants=(), reason="", scales=(), attempt=0)
        if last is not None and last.run == asked.run:
            if (last.kind, last.index) == (asked.kind, asked.index):
                return kept, told  # asked again: the same bytes
            if (_ORDER.index(asked.kind), asked.index) < (_ORDER.index(last.kind), last.index):
                raise Refused(f"{asked.kind} {asked.index} is stale: {last.kind} {last.index} was answered already")
        if asked.kind == "survey":
            answer = seal(told, self._survey(unseal(data, asked, self._surveyed)))
            self.seat.save(told, None, None, answer)
            return answer, told
        down = unseal(data, asked, self.expected, self.agreement.payload)
        base = self._state_after(asked, last, state, before)
        if base is None:
            base = client.begin(self.algorithm, self.shard, self.agreement.meta, self.agreement.seed, asked.client)
        state, up = self._work(asked, base, down)
        answer = seal(told, up, self.agreement.payload if asked.kind == "step" else "exact")
        self.seat.save(told, state, base, answer)
        return answer, told

    def _state_after(self, asked: Head, last: Head | None, state: Tree, before: Tree) -> Tree:
        """Return the state after the last step that counted: an answer that came too late never happened."""
        if last is None or last.run != asked.run or asked.since < 0:
            return None
        return state if last.index == asked.since else before if last.since == asked.since else None

    def _survey(self, down: Tree) -> Tree:
        kind = self.agreement.survey
        if not kind:
            raise Refused("column sums were asked for, but the agreed preprocessing needs none")
        if isinstance(down, ColumnSums):
            self.__dict__.pop("shard", None)
            write_atomic(self.seat.folder / "weights.safetensors", to_bytes({"weights": down.weights(kind)}))
            return Ask(np.float64(0))
        return column_sums(self.seat.shard.X)

    def _work(self, asked: Head, state: Tree, down: Tree) -> tuple[Tree, Tree]:
        if asked.kind == "end":
            factors, score = client.end(self.algorithm, self.shard, state, down)
            self._take_home(asked.run, factors, score)
            return state, score if self.agreement.report_score else Ask(np.float64(0))
        at = Round(self.agreement.seed, asked.index, asked.client, asked.participants)
        new_state, up = client.step(self.algorithm, self.shard, state, down, at)
        if up is None:
            raise Refused("this client cannot take part in this round")
        check_message(up, self.expected)
        return new_state, up

    def _take_home(self, run: str, factors: LocalFactors, score: Score) -> None:
        """Keep the factors in the client's own folder; nothing of them is sent but the score."""
        folder = private_folder(self.seat.folder / "result")
        write_atomic(folder / "factors.safetensors", to_bytes({"factors": factors, "score": score}, {"run": run}))

    @cached_property
    def shard(self) -> Shard:
        """The rows as the algorithm sees them: weighted by column, when a survey found the weights."""
        shard = self.seat.shard
        if not self.agreement.survey:
            return shard
        file = self.seat.folder / "weights.safetensors"
        if not file.exists():
            raise Refused("the column weights were never agreed: the server skipped its survey")
        return Shard(weighted(shard.X, from_bytes(file.read_bytes())["weights"]), shard.mask, shard.features)


def _reason(error: Exception) -> str:
    """Tell the server why, unless the reason may speak of rows: then it is told that, and the log here has the rest."""
    if isinstance(error, Refused | ProtocolError):
        return f"{type(error).__name__}: {error}"[:2000]
    logger.error("A letter could not be answered.", exc_info=error)
    if isinstance(error, DataError):
        return "DataError: the rows do not suit the algorithm; the client's log says why"
    return f"{type(error).__name__}: the client's log says more"
