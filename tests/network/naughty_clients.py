"""Algorithms whose clients misbehave; a module of its own, because worker processes must be able to import it."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass

import numpy as np

from fedfactor.algorithms import AsynSD
from fedfactor.core.pytree import leaves, tree_map
from fedfactor.core.threads import thread_limit
from fedfactor.testing.probe_algorithm import Probe


@dataclass(frozen=True, slots=True)
class Raises(Probe):
    when: str = "1 north"

    def client_step(self, shard, state, down, at):
        if f"{at.index} {at.client}" == self.when:
            raise ZeroDivisionError("the client's own mistake")
        return Probe.client_step(self, shard, state, down, at)


@dataclass(frozen=True, slots=True)
class RaisesAtFirst(Probe):
    def init_client(self, shard, meta, at):
        raise ZeroDivisionError("cannot begin")


@dataclass(frozen=True, slots=True)
class Prints(Probe):
    def client_step(self, shard, state, down, at):
        print("client code says hello", flush=True)
        os.write(1, b"even past Python's own stdout\n")
        sys.__stdout__.write("again\n")
        sys.__stdout__.flush()
        return Probe.client_step(self, shard, state, down, at)


@dataclass(frozen=True, slots=True)
class Dies(Probe):
    how: int = int(signal.SIGKILL)

    def client_step(self, shard, state, down, at):
        if at.index == 1 and at.client == "north":
            os.kill(os.getpid(), self.how)
        return Probe.client_step(self, shard, state, down, at)


@dataclass(frozen=True, slots=True)
class Sleeps(Probe):
    seconds: float = 60.0

    def client_step(self, shard, state, down, at):
        if at.index == 1 and at.client == "west":
            time.sleep(self.seconds)
        return Probe.client_step(self, shard, state, down, at)


@dataclass(frozen=True, slots=True)
class Counts(Probe):
    """Fails, and says so, unless its worker is capped."""

    cap: int = 1

    def client_step(self, shard, state, down, at):
        import threadpoolctl

        blas = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
        if thread_limit() != self.cap or max(blas) > self.cap:
            raise RuntimeError(f"{thread_limit()} threads allowed, BLAS takes {blas}")
        return Probe.client_step(self, shard, state, down, at)


@dataclass(frozen=True, slots=True)
class Interrupted(Probe):
    """Gets the signal that Ctrl-C sends to every process of a terminal."""

    def client_step(self, shard, state, down, at):
        os.kill(os.getpid(), signal.SIGINT)
        return Probe.client_step(self, shard, state, down, at)


@dataclass(frozen=True, slots=True)
class BadStream(AsynSD):
    """One client sends NaN in its second step and what cannot be true in its third; the others never do."""

    who: str = "west"

    def client_step(self, shard, state, down, at):
        state, up = AsynSD.client_step(self, shard, state, down, at)
        if at.client != self.who or at.index not in (1, 2):
            return state, up
        value = np.nan if at.index == 1 else -1e30
        return state, tree_map(lambda leaf: np.full_like(leaf, value), up)

    def doubt(self, up):
        return "Numbers beyond any rows." if min(float(np.min(leaf)) for _, leaf in leaves(up)) <= -1e30 else ""


@dataclass(frozen=True, slots=True)
class OnlyNaN(BadStream):
    def client_step(self, shard, state, down, at):
        state, up = AsynSD.client_step(self, shard, state, down, at)
        return state, tree_map(lambda leaf: np.full_like(leaf, np.nan), up)
