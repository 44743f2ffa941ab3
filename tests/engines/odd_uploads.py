"""Algorithms of careless authors: what they send is not what an engine can carry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedfactor.algorithms import GridNMF
from fedfactor.core.algorithm import Scatter, Uplink
from fedfactor.core.errors import ClientUnavailable
from fedfactor.core.pytree import Array, record, tree_map
from fedfactor.core.wire import Leaf
from fedfactor.testing.probe_algorithm import Ask, Probe, Total
from tests.network.naughty_clients import BadStream


@record
class Other:
    """As large as the right one."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    numbers: Array
    more: Array


ODD = {
    "list": lambda up: Total(up.sums.tolist(), up.loss),
    "number": lambda up: Total(up.sums, 0.5),
    "objects": lambda up: Total(up.sums.astype(object), up.loss),
    "swapped bytes": lambda up: Total(up.sums.astype(">f8"), up.loss),
    "shape": lambda up: Total(up.sums[1:].copy(), up.loss),
    "array": lambda up: up.sums,
    "dict": lambda up: {"sums": up.sums},
    "another kind": lambda up: Other(up.sums, up.loss),
}


@dataclass(frozen=True, slots=True)
class Odd(Probe):
    """One client sends something odd in round 1."""

    who: str = ""
    what: str = "list"

    def messages(self, meta):
        number = Leaf("float64", ())
        return {**Probe.messages(self, meta), Other: {"numbers": Leaf(meta.dtype, (meta.n_features,)), "more": number}}

    def client_step(self, shard, state, down, at):
        state, up = Probe.client_step(self, shard, state, down, at)
        return state, ODD[self.what](up) if (at.index, at.client) == (1, self.who) else up

    def doubt(self, up):
        return ""


@dataclass(frozen=True, slots=True)
class Forgetful(Probe):
    """Answers only those who came."""

    def server_step(self, state, up, at):
        server, down = Probe.server_step(self, state, up, at)
        return server, Scatter({n: down.items[n] for n in at.participants}) if isinstance(down, Scatter) else down


@dataclass(frozen=True, slots=True)
class Tells(Probe):
    """Reports the summed loss; a thousand million where not all sent theirs."""

    def server_step(self, state, up, at):
        server, down = Probe.server_step(self, state, up, at)
        return replace(server, moved=np.float64(1e9) if up.loss is None else np.float64(up.loss)), down


@dataclass(frozen=True, slots=True)
class TooLarge(Probe):
    """Uploads that are finite, and a sum that is not."""

    def client_step(self, shard, state, down, at):
        state, up = Probe.client_step(self, shard, state, down, at)
        return state, tree_map(lambda leaf: np.full_like(leaf, 1.7e308), up)

    def doubt(self, up):
        return ""

    def server_step(self, state, up, at):
        with np.errstate(all="ignore"):
            return state, Ask(state.V + up.sums)


@dataclass(frozen=True, slots=True)
class BadGrid(GridNMF):
    """A node sends NaN in round 2."""

    def client_step(self, shard, state, down, at):
        state, up = GridNMF.client_step(self, shard, state, down, at)
        bad = at.index == 2 and at.client == at.participants[1]
        return state, tree_map(lambda leaf: leaf * np.nan, up) if bad else up


class AwayStream(BadStream):
    """A client that never comes."""

    __slots__ = ()

    def client_step(self, shard, state, down, at):
        if at.client == "west":
            raise ClientUnavailable("away")
        return super().client_step(shard, state, down, at)
