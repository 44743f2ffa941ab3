"""What runs at a Dask worker: the clients assigned to it, their steps, and sums of their uploads.

Clients stay with one worker for a whole run, outside Dask's own store: what lies there may be written to disk, moved or
made again, and a client's state must be none of these. Every task is therefore bound to its worker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from fedfactor.core.algorithm import Algorithm, Domain, LocalFactors, Meta, Round, Scatter, Score
from fedfactor.core.client_data import Facts, Federation
from fedfactor.core.errors import WorkerError
from fedfactor.core.pytree import Tree, freeze, nbytes, tree_map, tree_sum
from fedfactor.core.threads import limit_threads
from fedfactor.engines.checkpoint import fingerprint
from fedfactor.engines.local.thread_pool import ThreadPool
from fedfactor.engines.round import Receiver

if TYPE_CHECKING:
    from fedfactor.core.transforms import Sender


def _aligned(leaf: Any) -> Any:
    flags = getattr(leaf, "flags", None)  # tensors and sparse matrices have none
    return leaf if flags is None or flags.aligned else leaf.copy(order="K")


def landed(tree: Tree) -> Tree:
    """Copy a received tree into aligned memory: products of unaligned arrays may differ in the last bits."""
    return freeze(tree_map(_aligned, tree))


@dataclass(slots=True)
class Held:
    """The clients of one worker, while a run lasts."""

    federation: Federation
    clients: ThreadPool | None = None
    sender: Sender | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """The sum of some clients' uploads, with the bytes of each, and who was left out why."""

    total: Tree = None
    present: Mapping[str, int] = field(default_factory=dict[str, int])
    rejected: Mapping[str, str] = field(default_factory=dict[str, str])


_held: dict[str, Held] = {}
"""By run and worker: the workers of a cluster for tests may share one process."""


def _mine(key: str) -> Held:
    if key not in _held:
        raise WorkerError(
            "A Dask worker was started again in the middle of a run, and its owners' states are gone. Run again; "
            "with a checkpoint it goes on where it was."
        )
    return _held[key]


def _clients(key: str) -> ThreadPool:
    clients = _mine(key).clients
    assert clients is not None
    return clients


def open_owners(key: str, openers: Mapping[str, Any], missing_values: Any) -> tuple[list[Facts], str]:
    """Open the rows of these clients here; return what all parties must agree on, and this version."""
    sent = {name: source for name, source in openers.items() if not callable(source)}
    for name, shard in sent.items():
        rows = {each.name: _aligned(getattr(shard, each.name)) for each in fields(shard)}
        openers = {**openers, name: replace(shard, **rows)}
    held = _held[key] = Held(Federation(openers, missing_values=missing_values))
    return [held.federation.facts(name) for name in held.federation.names], metadata.version("fedfactor")


def adopt(
    key: str, algorithm: Algorithm, first: Facts, meta: Meta, domain: Domain, sender: Sender | None, threads: int
) -> float:
    """Bring the rows to the agreed form and get ready; return the largest value."""
    held = _mine(key)
    held.clients = ThreadPool(algorithm, held.federation, meta, threads)
    held.sender = sender
    return held.federation.adopt(first, meta, domain)


def mark(key: str, algorithm: Algorithm, meta: Meta, seed: int) -> dict[str, Any]:
    """Name what a resumed run must share with this worker's part of it."""
    federation = _mine(key).federation
    return fingerprint(algorithm, federation, replace(meta, clients=federation.names), seed, 1)


def begin(key: str, seed: int) -> None:
    """Make the first states."""
    with limit_threads(1):
        _clients(key).begin(seed)


def restore(key: str, states: Mapping[str, Tree]) -> None:
    """Take up states that were saved."""
    _clients(key).restore({name: landed(state) for name, state in states.items()})


def states(key: str) -> dict[str, Tree]:
    """Hand out all states, to be saved."""
    return _clients(key).states()


def _part_of(down: Tree) -> Tree:
    if isinstance(down, Scatter):
        return Scatter({name: landed(part) for name, part in down.items.items()})
    return landed(down)


def step(key: str, down: Tree, at: Round) -> dict[str, Tree]:
    """Let the selected clients take one step; return their uploads in name order."""
    clients = _clients(key)
    sender = _mine(key).sender
    down = _part_of(down)
    with limit_threads(1):
        ups = {name: up for name, up in clients.steps(down, at) if up is not None}
    return ups if sender is None else {name: sender.sent(name, up, at, down) for name, up in ups.items()}


def add(key: str, before: Part | None, ups: Mapping[str, Tree], names: Collection[str] | None = None) -> Part:
    """Add uploads, of these clients alone if they are named, to a sum, one after the other, as the reference does."""
    algorithm = _clients(key).algorithm
    meta = _clients(key).meta
    receiver = Receiver(algorithm.messages(meta), algorithm.doubt)
    before = before or Part()
    receiver.replace_by(landed(before.total), before.present, before.rejected)
    for name, up in ups.items():
        if names is None or name in names:
            receiver.add(name, up)
    sizes = {name: nbytes(ups[name]) if name in ups else before.present[name] for name in receiver.present}
    return Part(receiver.combined if sizes else None, sizes, receiver.rejected)


def merge(a: Part, b: Part) -> Part:
    """Add two sums."""
    sums = [landed(part.total) for part in (a, b) if part.present]
    summed = tree_sum(sums) if len(sums) > 1 else next(iter(sums), None)
    return Part(summed, {**a.present, **b.present}, {**a.rejected, **b.rejected})


def end(key: str, down: Tree) -> list[tuple[str, LocalFactors | None, Score]]:
    """Let every client finish."""
    with limit_threads(1):
        return list(_clients(key).end(_part_of(down)))


def close(key: str) -> None:
    """Let go of everything of a run."""
    held = _held.pop(key, None)
    if held is not None and held.clients is not None:
        held.clients.close()
