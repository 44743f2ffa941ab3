"""Run on every rank: one run that may be told to fail. Arguments: what, folder."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
from mpi4py import MPI

import fedfactor
from fedfactor.algorithms import DSANLS, AsynSD, PooledNMF
from fedfactor.core.errors import FedfactorError
from fedfactor.core.grid import grid_federation
from fedfactor.engines import client_step as client
from fedfactor.engines.mpi.engine import MPIEngine

what, folder = sys.argv[1], sys.argv[2]
rank = MPI.COMM_WORLD.rank
rng = np.random.default_rng(0)
X = rng.random((80, 4)) @ rng.random((4, 30)) + 0.01 * rng.random((80, 30))
owners = {str(i): X[20 * i : 20 * (i + 1)] for i in range(4)}
whole_step = client.step


def trouble(algorithm, shard, state, down, at):
    if at.index == 7 and at.client == "3":
        if what == "kill":
            print(f"dies at {time.time()}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        print(f"dies at {time.time()}", file=sys.stderr, flush=True)
        raise OSError("the disk is gone")
    return whole_step(algorithm, shard, state, down, at)


def wire():
    """Bytes that the loopback interface has carried so far: all of MPI's messages when they must go through TCP."""
    with open("/proc/net/dev") as file:
        return next(int(line.split(":")[1].split()[8]) for line in file if line.strip().startswith("lo:"))


def say(**figures):
    if rank == 0:
        print(json.dumps(figures))


if what in ("kill", "raise"):
    client.step = trouble
if what in ("kill", "raise", "go on", "whole"):
    kept = None if what == "whole" else folder
    run = fedfactor.run(PooledNMF(4, tol=0), owners, engine=MPIEngine(), rounds=15, seed=1, checkpoint=kept)
    say(rounds=run.rounds, V=run.V.tolist())
elif what == "bytes":
    k, T = 3, 40
    M = rng.random((400, 3)) @ rng.random((3, 300))
    method = DSANLS(k, iterations=T, leak="ignore", collect=False)
    run = fedfactor.run(method, grid_federation(M, 2), engine=MPIEngine(), seed=0)
    # Besides the sums: the agreement on the data, one byte a round for the end, and the scores.
    say(sent=run.environment["rank_sent_bytes"], up=run.bytes_up, per_iteration=8 * k * (30 + 40))
elif what == "wire":
    # Twice as many iterations cost so much more: the start, the agreement and the scores fall out of the difference.
    k, n, m, carried = 10, 2000, 1500, []
    federation = grid_federation(rng.random((n, k)) @ rng.random((k, m)), MPI.COMM_WORLD.size)
    for T in (20, 120):
        MPI.COMM_WORLD.Barrier()
        before = wire()
        method = DSANLS(k, iterations=T, leak="ignore", collect=False)
        fedfactor.run(method, federation, engine=MPIEngine(), seed=0)
        MPI.COMM_WORLD.Barrier()
        carried.append(wire() - before)
    each = (carried[1] - carried[0]) / 100 / MPI.COMM_WORLD.size
    say(a_rank_an_iteration=each, sketches=8 * k * (n // 10 + m // 10), factors=8 * k * (n + m))
elif what == "asynchronous":
    run = fedfactor.run(AsynSD(4), owners, engine=MPIEngine(), rounds=40, seed=0)
    came = {name: sum(record.participants == (name,) for record in run.history) for name in owners}
    say(error=run.relative_error, arrivals=len(run.history), came=came, status=run.status)
elif what == "bad rows":
    lazily = {name: (lambda name=name: owners[name] - 5 * (name == "3")) for name in owners}
    try:
        fedfactor.run(PooledNMF(4), lazily, engine=MPIEngine(), rounds=3, seed=0)
    except (FedfactorError, ValueError) as error:
        print(json.dumps({"rank": rank, "error": str(error)}))
elif what == "apart":
    opened = []
    lazily = {name: (lambda name=name: opened.append(name) or owners[name]) for name in owners}
    fedfactor.run(PooledNMF(4), lazily, engine=MPIEngine(), rounds=3, seed=0)
    time.sleep(0.1 * rank)
    print(json.dumps({"rank": rank, "opened": opened}))
elif what == "size":
    try:
        fedfactor.run(PooledNMF(4), owners, engine=MPIEngine(size=3), rounds=3, seed=0)
    except FedfactorError as error:
        say(error=str(error))
elif what == "too many ranks":
    try:
        fedfactor.run(PooledNMF(2), {"a": X}, engine=MPIEngine(), rounds=3, seed=0)
    except FedfactorError as error:
        say(error=str(error))
elif what == "cards":

    class Cards:
        """Two cards that a machine does not have: which one was taken is all that is asked of them."""

        taken: ClassVar[list[int]] = []
        is_available, device_count, set_device = (lambda: True), (lambda: 2), taken.append

    sys.modules["torch"] = SimpleNamespace(cuda=Cards)

    def opened(name):
        assert Cards.taken, "an owner was opened before a card was taken"
        sys.modules.pop("torch", None)
        return owners[name]

    lazily = {name: (lambda name=name: opened(name)) for name in owners}
    fedfactor.run(PooledNMF(4), lazily, engine=MPIEngine(), rounds=1, seed=0)
    time.sleep(0.1 * rank)
    print(json.dumps({"rank": rank, "taken": Cards.taken}))
