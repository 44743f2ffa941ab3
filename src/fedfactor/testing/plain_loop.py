"""The barest loop that can run an algorithm: every step in plain sight, every array read-only, no engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedfactor.core.algorithm import (
    Algorithm,
    LocalFactors,
    Meta,
    Round,
    Scatter,
    Uplink,
    download_for,
    one_of,
    uplink_of,
)
from fedfactor.core.client_data import Shard
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.parameters import check_settings
from fedfactor.core.pytree import Tree, freeze, is_numpy, leaves, tree_sum
from fedfactor.engines.capabilities import client_groups
from fedfactor.testing.data import federation_for, variants

Keep = Callable[[Tree], Tree]


@dataclass
class Trace:
    """All that passed in a run: states after each step, messages both ways, and what the clients kept."""

    meta: Meta
    shards: dict[str, Shard]
    server: list[Tree] = field(default_factory=list[Tree])
    clients: list[dict[str, Tree]] = field(default_factory=list[dict[str, Tree]])
    downs: list[dict[str, Tree]] = field(default_factory=list[dict[str, Tree]])
    ups: list[dict[str, Tree]] = field(default_factory=list[dict[str, Tree]])
    factors: dict[str, LocalFactors] = field(default_factory=dict[str, LocalFactors])
    scores: dict[str, Tree] = field(default_factory=dict[str, Tree])

    @property
    def everything(self) -> list[tuple[str, Tree]]:
        """Name and value of every state, message and result, in the order in which they came to be."""
        found = [(f"server state {t}", state) for t, state in enumerate(self.server)]
        for word, rounds in (("state", self.clients), ("download", self.downs), ("upload", self.ups)):
            found += [(f"{word} {t} of {name!r}", tree) for t, all_ in enumerate(rounds) for name, tree in all_.items()]
        found += [(f"factors of {name!r}", kept) for name, kept in self.factors.items()]
        return found + [(f"score of {name!r}", score) for name, score in self.scores.items()]


def drive(
    algorithm: Algorithm,
    owners: Mapping[str, Any],
    *,
    rounds: int = 3,
    seed: int = 5,
    order: Callable[[tuple[str, ...]], Any] = tuple,
    keep: Keep = lambda tree: tree,
) -> Trace:
    """Run an algorithm step by step and remember everything.

    Parameters
    ----------
    algorithm : Algorithm
        What to run.
    owners : mapping of name to rows, Shard or None
        Who owns what. Rows are opened as a federation opens them, with NaN meaning missing.
    rounds, seed : int
        How long, and from which streams.
    order : callable
        Puts the client names in the order in which clients work and uploads are added.
    keep : callable
        Applied to each state between steps, e.g. a round trip through bytes.

    Examples
    --------
    >>> from fedfactor.algorithms import PooledNMF
    >>> trace = drive(PooledNMF(1), {"a": np.ones((2, 2))}, rounds=1)
    >>> sorted(trace.ups[0])
    ['a']
    """
    meta, shards = open_all(algorithm, owners)
    trace = Trace(meta, shards)
    check_settings(algorithm)
    algorithm.check(meta)
    server, down = algorithm.init_server(meta, Round(seed, 0))
    server = freeze(server)
    down = freeze_down(down)
    names = tuple(order(meta.clients))
    states = {name: freeze(algorithm.init_client(shards[name], meta, Round(seed, 0, name))) for name in names}
    trace.server.append(server)
    trace.clients.append(dict(states))
    for index in range(rounds):
        at = Round(seed, index, participants=meta.clients)
        got = {name: download_for(down, name) for name in names}
        ups: dict[str, Tree] = {}
        for name in names:
            here = replace(at, client=name)
            state, up = algorithm.client_step(shards[name], keep(states[name]), keep(got[name]), here)
            states[name] = freeze(state)
            ups[name] = freeze(up)
        server, down = algorithm.server_step(keep(server), combine(algorithm, ups, down, meta), at)
        server = freeze(server)
        down = freeze_down(down)
        trace.server.append(server)
        trace.clients.append(dict(states))
        trace.downs.append(got)
        trace.ups.append(ups)
    down = freeze_down(algorithm.settle(server, down))
    last = {name: download_for(down, name) for name in names}
    trace.downs.append(last)
    for name in meta.clients:
        trace.factors[name] = freeze(algorithm.finish(shards[name], keep(states[name]), keep(last[name])))
        trace.scores[name] = freeze(algorithm.score(shards[name], trace.factors[name], last[name]))
    return trace


_last: list[Any] = []


def traces(algorithm: Algorithm, data: Mapping[str, Any] | None = None) -> dict[str, tuple[dict[str, Any], Trace]]:
    """Name → clients and plain run, for every kind of data that the algorithm takes.

    What one call gave is kept for the next with the same arguments: most checks look at this run. All that a trace
    holds is read-only.

    Examples
    --------
    >>> from fedfactor.algorithms import PooledNMF
    >>> list(traces(PooledNMF(1), {"a": np.ones((2, 2))}))
    ['dense', 'float32', 'sparse', 'masked', 'masked float32']
    """
    if not (_last and _last[0] is algorithm and _last[1] is data):
        found = {kind: (owners, drive(algorithm, owners)) for kind, owners in variants(algorithm, data).items()}
        _last[:] = algorithm, data, found
    return _last[2]


def combine(algorithm: Algorithm, ups: Mapping[str, Tree], down: Tree, meta: Meta) -> Tree:
    """Add the answers to a download in the order given, all of them or by group, or hand them out by name."""
    first = next(iter(ups.values()))
    if uplink_of(first) == Uplink.GATHER:
        return {name: ups[name] for name in meta.clients}
    groups = client_groups(algorithm, one_of(down), meta)
    if groups:
        return {n: freeze(tree_sum(up for m, up in ups.items() if groups[m] == groups[n])) for n in meta.clients}
    return freeze(tree_sum(ups.values()))


def open_all(algorithm: Algorithm, owners: Mapping[str, Any]) -> tuple[Meta, dict[str, Shard]]:
    """Open clients as an engine does, then make all their arrays read-only."""
    missing = np.nan if any(_has_nan(rows) for rows in owners.values()) else None
    federation = federation_for(algorithm, owners, missing)
    meta = federation.prepare(algorithm.domain)
    return meta, {name: read_only(federation.shard(name)) for name in meta.clients}


def _has_nan(rows: Any) -> bool:
    return is_numpy(rows) and bool(np.isnan(rows).any())


def read_only(shard: Shard) -> Shard:
    """Copy a shard with arrays that cannot be written to."""
    X = shard.X.copy()
    for part in (X.data, X.indices, X.indptr) if is_sparse(X) else (X,):
        part.flags.writeable = False
    mask = shard.mask
    if is_numpy(mask):
        mask = mask.copy()
        mask.flags.writeable = False
    return replace(shard, X=X, mask=mask)


def freeze_down(down: Tree) -> Tree:
    """Freeze a download, or every part of a scatter."""
    if isinstance(down, Scatter):
        return Scatter({name: freeze(part) for name, part in down.items.items()})
    return freeze(down)


def differences(one: Tree, two: Tree) -> list[str]:
    """Return where two trees differ in type, in leaves, in dtype, in shape or in any bit."""
    if type(one) is not type(two):
        return [f"{type(one).__name__} became {type(two).__name__}"]
    left = dict(leaves(one))
    right = dict(leaves(two))
    if left.keys() != right.keys():
        return [f"leaves {sorted(left)} became {sorted(right)}"]
    found: list[str] = []
    for path, a in left.items():
        if not hasattr(a, "dtype"):
            found.append(f"{path or 'value'} is a {type(a).__name__}, not an array")
            continue
        a = np.asarray(a)
        b = np.asarray(right[path])
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            found.append(f"{path or 'value'}: {a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}")
        elif a.tobytes() != b.tobytes():
            found.append(f"{path or 'value'}: values differ")
    return found


def apart(one: Any, two: Any) -> float:
    """Return the largest difference between two arrays relative to the largest entry."""
    scale = max(float(np.abs(one).max(initial=0.0)), 1e-300)
    return float(np.abs(np.asarray(one) - np.asarray(two)).max(initial=0.0)) / scale
