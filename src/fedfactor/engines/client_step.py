"""What happens at one client, the same in a thread, in a process and across a network."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round, Scatter, Score, download_for
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import ClientUnavailable, ProtocolError
from fedfactor.core.pytree import Tree, freeze, is_record, kind_of, leaves
from fedfactor.engines.capabilities import SupportsBatchedClients


def begin(algorithm: Algorithm, shard: Shard, meta: Meta, seed: int, name: str) -> Tree:
    """Make a client's first state."""
    return freeze(algorithm.init_client(shard, meta, Round(seed, 0, name)))


def step(algorithm: Algorithm, shard: Shard, state: Tree, down: Tree, at: Round) -> tuple[Tree, Tree]:
    """Take one step; an upload of None is a drop-out, and the state then stays as it was."""
    try:
        new_state, up = algorithm.client_step(shard, state, down, at)
    except ClientUnavailable:
        return state, None
    except Exception as error:
        _note(error, at)
        raise
    return freeze(new_state), _sent(up, at)


def _sent(up: Tree, at: Round) -> Tree:
    """Freeze an upload; refuse what only some engines could carry: anything but records of arrays of plain numbers."""
    if up is not None and not is_record(up):
        raise ProtocolError(
            f"Client {at.client!r}: {kind_of(up).__name__} was sent, but an upload is a record of arrays."
        )
    for path, leaf in leaves(up):
        dtype = getattr(leaf, "dtype", None)
        plain = dtype is not None and (not isinstance(dtype, np.dtype) or (dtype.kind in "fiub" and dtype.isnative))
        if not plain:
            what = f"a {type(leaf).__name__}" if dtype is None else f"an array of {dtype}"
            raise ProtocolError(
                f"Client {at.client!r}: {kind_of(up).__name__}.{path} is {what}, but what is sent must be arrays of "
                "numbers, such as np.float64(0.5)."
            )
    return freeze(up)


def _note(error: Exception, at: Round) -> None:
    error.add_note(f"This happened at client {at.client!r} in round {at.index}.")


def together(
    algorithm: Algorithm, shards: Sequence[Shard], states: Sequence[Tree], down: Tree, ats: Sequence[Round]
) -> Iterator[tuple[Tree, Tree]] | None:
    """Take the steps of several clients in one batch; None where the algorithm does not support that."""
    if len(shards) < 2 or isinstance(down, Scatter) or not isinstance(algorithm, SupportsBatchedClients):
        return None
    if not _speaks_for_each(type(algorithm)):
        return None
    found = algorithm.client_steps(shards, states, down, ats)
    return None if found is None else _each(found, ats)


def _each(found: Iterable[tuple[Tree, Tree]], ats: Sequence[Round]) -> Iterator[tuple[Tree, Tree]]:
    taken = 0
    try:
        for state, up in found:
            yield freeze(state), _sent(up, ats[taken]) if taken < len(ats) else freeze(up)
            taken += 1
    except Exception as error:
        if taken < len(ats):
            _note(error, ats[taken])
        raise


@functools.cache
def _speaks_for_each(kind: type[Algorithm]) -> bool:
    """Return whether the step for several clients fits that for one: not where only the latter was overridden."""
    nearest = next(each for each in kind.__mro__ if {"client_step", "client_steps"} & vars(each).keys())
    return "client_steps" in vars(nearest)


def steps(
    algorithm: Algorithm, shards: Sequence[Shard], states: Sequence[Tree], down: Tree, ats: Sequence[Round]
) -> Iterator[tuple[Tree, Tree]]:
    """Take the steps of several clients, in order; those on a GPU in one batch where the algorithm supports that."""
    on_card = bool(shards) and getattr(shards[0].X, "is_cuda", False)
    found = together(algorithm, shards, states, down, ats) if on_card else None
    if found is not None:
        yield from found
        return
    for shard, state, at in zip(shards, states, ats, strict=True):
        yield step(algorithm, shard, state, download_for(down, str(at.client)), at)


def end(algorithm: Algorithm, shard: Shard, state: Tree, down: Tree) -> tuple[LocalFactors, Score]:
    """Take the factors home and measure them."""
    factors = freeze(algorithm.finish(shard, state, down))
    return factors, freeze(algorithm.score(shard, factors, down))
