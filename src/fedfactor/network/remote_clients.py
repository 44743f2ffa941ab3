"""The parties of a federation as the server reaches them in rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedfactor.core.algorithm import LocalFactors, Round, Score, download_for
from fedfactor.core.pytree import Tree
from fedfactor.engines.round import Clients, Receiving
from fedfactor.network.exchange import NotEnough
from fedfactor.network.secure_aggregation import one_message

if TYPE_CHECKING:
    from fedfactor.network.server import Server


class RemoteClients(Clients):
    """Parties across a network: their states lie in their own folders, and so do their factors."""

    apart = True

    def __init__(self, server: Server) -> None:
        self.server = server

    def begin(self, seed: int) -> None:
        """Let columns be added up; first states are made by the parties themselves."""
        self.server.survey()

    def restore(self, states: Mapping[str, Tree]) -> None:
        """Wait for the parties, whose states are their own; a run that is only to be ended does not wait."""
        if not self.stopped():
            self.server.gather()

    def stopped(self) -> bool:
        """Return whether a stop was requested."""
        return (self.server.folder / "stop").exists()

    def exchange(self, down: Tree, at: Round, receiver: Receiving) -> None:
        """Ask all who take part, wait, and check what came; too few that can be used pause the run."""
        server = self.server
        exchange = self.server.exchange
        messages = {name: download_for(down, name) for name in at.participants}
        head = replace(server.head("step", at.index), participants=at.participants)
        exchange.take_bytes()
        if server.relay is not None:
            rare = server.surveyed.rare(server.agreement.least) if server.agreement.counted else None
            summed = server.relay.collect(head, one_message(messages), server.expected, server.since, rare)
            channelled: Any = receiver  # where sums are hidden, a channel receives
            channelled.replace_by(*summed, at.participants)
            return
        payload = server.agreement.payload
        for name, up in exchange.ask(head, messages, server.ups, payload, since=server.since).items():
            receiver.add(name, up)
        for name, why in receiver.rejected.items():
            server.tally.count("impossible", name, why)
        for name, why in exchange.left_out.items():
            receiver.reject(name, why)
        need = len(messages) if server.policy.dropouts == "wait" else server.policy.minimum
        if receiver.rejected and len(receiver.present) < need:
            raise NotEnough(
                f"{head.kind} {head.index} got {len(receiver.present)} uploads that can be true, but {need} are "
                "needed. " + " ".join(f"{name}: {why}" for name, why in receiver.rejected.items())
            )

    def traffic(self, down: Tree, at: Round, receiver: Receiving) -> tuple[int, int]:
        """Count what really travelled."""
        return self.server.exchange.take_bytes()

    def end(self, down: Tree) -> Iterator[tuple[str, LocalFactors | None, Score]]:
        """Nothing to hand out: the server asks for scores itself, and factors stay with the parties."""
        yield from ()
