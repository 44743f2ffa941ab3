"""The clients of a Dask cluster: workers hold clients; a round is a map over workers and a sum along a tree."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round, Scatter, Score, Uplink, one_of
from fedfactor.core.client_data import Facts, Federation, agree
from fedfactor.core.errors import IncompatibleError, WorkerError
from fedfactor.core.grid import even_bounds
from fedfactor.core.input_validation import check_scale
from fedfactor.core.pytree import Tree
from fedfactor.engines.capabilities import client_groups
from fedfactor.engines.dask import worker
from fedfactor.engines.round import Clients, Receiver, Receiving

if TYPE_CHECKING:
    from fedfactor.privacy.pipeline import Channel

LOOK = 2.0
"""Seconds between two looks at whether all workers are still there: a task bound to a lost one would wait for ever."""


class DaskClients(Clients):
    """Clients dealt to workers in name order, as evenly as they go.

    Parameters
    ----------
    client : distributed.Client
        The way to the cluster.
    federation : Federation
        Whose openers travel to the workers; rows that lie in this process travel with them.
    """

    def __init__(self, client: Any, federation: Federation) -> None:
        self.client = client
        run = uuid.uuid4().hex
        there: dict[str, int] = client.nthreads()
        if not there:
            raise WorkerError("The Dask cluster has no workers. Start some: dask worker ADDRESS, on each machine.")
        names = federation.names
        addresses = sorted(there)[: len(names)]
        bounds = even_bounds(len(names), len(addresses))
        self.own = {where: names[bounds[i] : bounds[i + 1]] for i, where in enumerate(addresses)}
        self.key = {where: f"{run} {where}" for where in addresses}
        self.threads = {where: max(1, min(there[where], len(self.own[where]))) for where in addresses}
        self.facts = self._open(federation)

    # ------------------------------------------------------------------------------------------------ set up
    def _open(self, federation: Federation) -> list[Facts]:
        """Let every worker open its own clients."""
        from importlib import metadata

        def openers(where: str) -> dict[str, Any]:
            return {name: federation.opener(name) for name in self.own[where]}

        try:
            found = self._everywhere(worker.open_owners, lambda where: (openers(where), federation.missing_values))
        except ModuleNotFoundError as error:
            raise WorkerError(
                f"A Dask worker cannot import {error.name!r}. Install fedfactor, with the same version, in the Python "
                "environment of every worker."
            ) from error
        ours = metadata.version("fedfactor")
        for where, (_, theirs) in zip(self.own, found, strict=True):
            if theirs != ours:
                raise IncompatibleError(
                    f"The Dask worker {where} has fedfactor {theirs}, this process {ours}: results would not be those "
                    "of one version. Install the same one everywhere."
                )
        return [each for facts, _ in found for each in facts]

    def meet(self, algorithm: Algorithm) -> Meta:
        """Return the public facts of all clients' rows."""
        self.algorithm, self.meta = algorithm, agree(self.facts)
        return self.meta

    def adopt(self, channel: Channel | None) -> None:
        """Bring all rows to the agreed form, and set whether uploads arrive as sums or one by one."""
        algorithm = self.algorithm
        meta = self.meta
        self.apart = channel is not None
        sender = None if channel is None else channel.sender
        gathers = any(getattr(kind, "uplink", "") == Uplink.GATHER for kind in algorithm.messages(meta))
        self.summed = channel is None and not gathers
        about = (algorithm, self.facts[0], meta, algorithm.domain, sender)
        largest = self._everywhere(worker.adopt, lambda where: (*about, self.threads[where]))
        check_scale(max(largest), meta.dtype)

    def mark(self, seed: int, **more: Any) -> dict[str, Any]:
        """Name what a resumed run must share with the one that was interrupted."""
        found = self._everywhere(worker.mark, lambda where: (self.algorithm, self.meta, seed))
        data = {name: digest for each in found for name, digest in each["data"].items()}
        return {**found[0], "clients": list(self.meta.clients), "data": data, **more}

    # ------------------------------------------------------------------------------------------------ states
    def begin(self, seed: int) -> None:
        """Make every client's first state."""
        self._everywhere(worker.begin, lambda where: (seed,))

    def restore(self, states: Mapping[str, Tree]) -> None:
        """Take up states that were saved."""
        self._everywhere(worker.restore, lambda where: ({name: states[name] for name in self.own[where]},))

    def states(self) -> dict[str, Tree]:
        """Hand out all states, to be saved."""
        found = self._everywhere(worker.states, lambda where: ())
        return {name: worker.landed(state) for each in found for name, state in each.items()}

    # ------------------------------------------------------------------------------------------------ rounds
    ordered = False
    """Whether sums are formed in name order, from worker to worker, and not along a tree."""

    def exchange(self, down: Tree, at: Round, receiver: Receiving) -> None:
        """Let every worker's clients take a step, and bring the sum of what they send here, or all of it."""
        asked = [where for where, own in self.own.items() if set(own) & set(at.participants)]
        downs = self._downs(down, asked)
        ups = {where: self._submit(worker.step, where, downs[where], at) for where in asked}
        if not self.summed:
            for each in self._results(list(ups.values())):
                for name, up in each.items():
                    receiver.add(name, worker.landed(up))
            return
        assert isinstance(receiver, Receiver)  # what goes through a channel is seen one by one
        groups = client_groups(self.algorithm, one_of(down), self.meta)
        add = self._chain if self.ordered else self._tree
        if not groups:
            (part,) = self._results([add(ups, None)])
            receiver.replace_by(worker.landed(part.total), part.present, part.rejected)
            return
        members: dict[str, list[str]] = {}
        for name in at.participants:
            members.setdefault(groups[name], []).append(name)
        # A sum passes the workers of its group alone.
        inside = {g: {w: up for w, up in ups.items() if set(self.own[w]) & set(own)} for g, own in members.items()}
        parts = self._results([add(inside[group], own) for group, own in members.items()])
        for group, part in zip(members, parts, strict=True):
            receiver.put_group(group, worker.landed(part.total), part.present, part.rejected)

    def _chain(self, ups: Mapping[str, Any], names: Sequence[str] | None) -> Any:
        total = None
        for where, mine in ups.items():
            total = self._submit(worker.add, where, total, mine, names)
        return total

    def _tree(self, ups: Mapping[str, Any], names: Sequence[str] | None) -> Any:
        parts = {where: self._submit(worker.add, where, None, mine, names) for where, mine in ups.items()}
        places = list(parts)
        while len(places) > 1:
            for a, b in zip(places[::2], places[1::2], strict=False):
                parts[a] = self.client.submit(worker.merge, parts[a], parts.pop(b), workers=[a], pure=False)
            places = places[::2]
        return parts[places[0]]

    def end(self, down: Tree) -> Iterator[tuple[str, LocalFactors | None, Score]]:
        """Let every client finish, and bring the factors here."""
        downs = self._downs(down, list(self.own))
        for future in [self._submit(worker.end, where, downs[where]) for where in self.own]:
            for name, factors, score in self._results([future])[0]:
                yield name, worker.landed(factors), worker.landed(score)

    def about(self) -> dict[str, Any]:
        """Return how many workers there were."""
        return {"dask_workers": len(self.own)}

    def close(self) -> None:
        """Let the workers forget the run; one that is gone has forgotten it."""
        there = set(self.client.nthreads())
        for where in there & set(self.own):
            self._submit(worker.close, where).result()

    # ------------------------------------------------------------------------------------------------ tasks
    def _downs(self, down: Tree, asked: Sequence[str]) -> dict[str, Any]:
        """Send a broadcast from worker to worker; of a scatter, to each the parts of its own clients."""
        if isinstance(down, Scatter):
            parts = {w: {name: down.items[name] for name in self.own[w] if name in down.items} for w in asked}
            return {where: Scatter(mine) for where, mine in parts.items()}
        if not asked:
            return {}
        (sent,) = self.client.scatter([down], workers=list(asked), broadcast=True, hash=False)
        return dict.fromkeys(asked, sent)

    def _submit(self, work: Callable[..., Any], where: str, *arguments: Any) -> Any:
        return self.client.submit(work, self.key[where], *arguments, workers=[where], pure=False)

    def _everywhere(self, work: Callable[..., Any], arguments: Callable[[str], tuple[Any, ...]]) -> list[Any]:
        """Run a function at every worker; return the results in the clients' order."""
        return self._results([self._submit(work, where, *arguments(where)) for where in self.own])

    def _results(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for tasks while all workers live, and fetch what they returned."""
        from distributed import wait

        while True:
            try:
                wait(list(futures), timeout=LOOK)
                break
            except TimeoutError:
                self._check_alive()
        return [self._fetch(future) for future in futures]

    def _fetch(self, future: Any) -> Any:
        patience = 15.0
        while True:
            try:
                return future.result(timeout=patience)
            except TimeoutError:
                if future.status == "error":  # the task's own
                    raise
                self._check_alive()
                patience *= 2  # a large answer over a slow network is requested again, with more time

    def _check_alive(self) -> None:
        gone = sorted(set(self.own) - set(self.client.nthreads()))
        if gone:
            raise WorkerError(
                f"The Dask worker {gone[0]} is gone, and with it the states of its owners, {self.own[gone[0]][0]!r} "
                "among them. Run again; with a checkpoint it goes on where it was."
            )
