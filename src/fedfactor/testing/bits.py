"""Same input, same bits: seeds, purity, bytes, checkpoints."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Algorithm, Round
from fedfactor.core.client_data import Shard
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.pytree import Tree, freeze
from fedfactor.core.run import Run
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.engines.local.engine import LocalEngine
from fedfactor.testing.data import federation_for, small_data
from fedfactor.testing.plain_loop import combine, differences, drive, freeze_down, open_all, traces

Data = Mapping[str, Any] | None


def check_same_seed_same_bits(algorithm: Algorithm, data: Data = None) -> None:
    """Two runs from one seed agree in every state, message and factor, to the last bit."""
    for kind, (owners, one) in traces(algorithm, data).items():
        for (name, a), (_, b) in zip(one.everything, drive(algorithm, owners).everything, strict=True):
            assert not (found := differences(a, b)), f"two runs of one seed on {kind} data: {name}: {found}"


def check_inputs_untouched(algorithm: Algorithm, data: Data = None) -> None:
    """No step writes into its arguments: all of them are read-only, and the rows are the same afterwards."""
    try:
        found = traces(algorithm, data)
    except ValueError as error:
        raise AssertionError(f"a step fails on read-only data: does it write into its input? {error}") from error
    for kind, (owners, trace) in found.items():
        before = open_all(algorithm, owners)[1]
        for name, shard in trace.shards.items():
            assert _same_rows(shard, before[name]), f"the rows of {name!r} changed on {kind} data"


def _same_rows(one: Shard, two: Shard) -> bool:
    left, right = (x.X.toarray() if is_sparse(x.X) else x.X for x in (one, two))
    return left.tobytes() == right.tobytes()


def check_pure_functions(algorithm: Algorithm, data: Data = None) -> None:
    """Calling a step again with the same arguments gives the same result: nothing is remembered outside the state."""
    for kind, (_, trace) in traces(algorithm, data).items():
        for index, ups in enumerate(trace.ups):
            at = Round(5, index, participants=trace.meta.clients)
            for name in reversed(trace.meta.clients):
                here = replace(at, client=name)
                state = trace.clients[index][name]
                again = algorithm.client_step(trace.shards[name], state, trace.downs[index][name], here)
                found = differences(ups[name], freeze(again[1])) or differences(
                    trace.clients[index + 1][name], freeze(again[0])
                )
                assert not found, f"client_step of {name!r}, called again on {kind} data: {found}"
            server, _ = algorithm.server_step(
                trace.server[index], combine(algorithm, ups, next(iter(trace.downs[index].values())), trace.meta), at
            )
            found = differences(trace.server[index + 1], freeze(server))
            assert not found, f"server_step, called again on {kind} data: {found}"
        for name, kept in trace.factors.items():
            again = algorithm.finish(trace.shards[name], trace.clients[-1][name], trace.downs[-1][name])
            assert not (found := differences(kept, freeze(again))), f"finish of {name!r}, called again: {found}"


def check_bytes_round_trip(algorithm: Algorithm, data: Data = None) -> None:
    """Every state, message and result survives safetensors bytes: same type, same leaves, same bits."""
    for kind, (_, trace) in traces(algorithm, data).items():
        for name, tree in trace.everything:
            found = differences(tree, freeze_down(through_bytes(tree)))
            assert not found, f"{name} on {kind} data does not survive its bytes: {found}"


def through_bytes(tree: Tree) -> Tree:
    """Write a tree and read it back, as a checkpoint does."""
    return freeze(from_bytes(to_bytes({"it": tree}))["it"])


def check_state_through_bytes(algorithm: Algorithm, data: Data = None) -> None:
    """A run whose states and downloads pass through bytes before each step gives the same factors."""
    for kind, (owners, plain) in traces(algorithm, data).items():
        stored = drive(algorithm, owners, keep=through_bytes)
        for name, kept in plain.factors.items():
            found = differences(kept, stored.factors[name])
            assert not found, f"factors of {name!r} on {kind} data change when states pass through bytes: {found}"


def check_resume(algorithm: Algorithm, data: Data = None) -> None:
    """A run that is interrupted after its first or its last but one round and resumed gives the same bits."""
    owners = dict(small_data(algorithm.domain) if data is None else data)
    rounds = 4
    whole = _run(algorithm, owners, rounds, None)
    for stop in (1, rounds - 1):
        with tempfile.TemporaryDirectory() as folder:
            with contextlib.suppress(_InterruptedRun):  # a method that needs fewer rounds ends before the stop
                _run(algorithm, owners, rounds, folder, interrupt_at=stop)
                assert whole.rounds <= stop, f"the stop in round {stop} of {whole.rounds} did not happen"
            resumed = _run(algorithm, owners, rounds, folder)
        assert resumed.rounds == whole.rounds, (
            f"{resumed.rounds} rounds after a stop in round {stop}, not {whole.rounds}"
        )
        for name, kept in whole.factors.items():
            found = differences(kept, resumed.factors[name])
            assert not found, f"factors of {name!r} after a stop in round {stop} and a resumption: {found}"
    assert np.isfinite(whole.V).all(), "V is not finite"


class _InterruptedRun(Exception):
    """Stands for a crash between two rounds."""


def _run(algorithm: Algorithm, owners: Any, rounds: int, folder: Any, interrupt_at: int | None = None) -> Run:
    def interrupt(record: Any) -> None:
        if record.index == interrupt_at:
            raise _InterruptedRun

    engine = LocalEngine(workers=1)
    return engine.run(
        algorithm, federation_for(algorithm, owners), rounds=rounds, seed=3, checkpoint=folder, callbacks=(interrupt,)
    )
