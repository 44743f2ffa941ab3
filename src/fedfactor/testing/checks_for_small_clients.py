"""What happens to clients with next to nothing, and to runs with empty chairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Algorithm, Round, Uplink, download_for, uplink_of
from fedfactor.core.pytree import freeze, leaves, tree_sum
from fedfactor.core.wire import check_message
from fedfactor.engines.local.engine import LocalEngine
from fedfactor.testing.data import empty_shard, federation_for, small_data
from fedfactor.testing.plain_loop import Trace, combine, drive, freeze_down, read_only
from fedfactor.testing.unreliable_clients import Flaky

Data = Mapping[str, Any] | None


def _owners(algorithm: Algorithm, data: Data) -> dict[str, Any]:
    return dict(small_data(algorithm.domain) if data is None else data)


def _assert_finite(trace: Trace, what: str) -> None:
    for name, tree in trace.everything:
        if name.startswith(("server", "state")):
            continue  # a state may hold infinity for "not known yet"
        for path, leaf in leaves(tree):
            array = np.asarray(leaf)
            fine = array.dtype.kind != "f" or bool(np.isfinite(array).all())
            assert fine, f"{name}: {path} is not finite with {what}"


def check_empty_shard(algorithm: Algorithm, data: Data = None) -> None:
    """A client without rows (all of them held out, say) sends zeros or less, not NaN, and spoils nothing."""
    trace = drive(algorithm, _owners(algorithm, data), rounds=1)
    shard = read_only(empty_shard(algorithm, trace.meta))
    at = Round(5, 0, "nobody", participants=(*trace.meta.clients, "nobody"))
    state = freeze(algorithm.init_client(shard, trace.meta, at))
    down = next(iter(trace.downs[0].values()))
    state, up = algorithm.client_step(shard, state, down, at)
    check_message(freeze(up), algorithm.messages(trace.meta))
    if uplink_of(up) == Uplink.SUM:
        total = combine(algorithm, trace.ups[0], down, trace.meta)
        _, sent = algorithm.server_step(trace.server[0], tree_sum([total, up]), at)
        received = download_for(freeze_down(sent), trace.meta.clients[0])
        check_message(received, algorithm.messages(trace.meta))
    kept = algorithm.finish(shard, state, down)
    assert kept.U.shape[0] == 0, f"U of no rows has {kept.U.shape[0]}"
    score = algorithm.score(shard, kept, down)
    assert float(score.sse) == 0, f"no rows cannot have an error of {float(score.sse)}"


def check_one_row(algorithm: Algorithm, data: Data = None) -> None:
    """A client of a single row takes part like any other."""
    owners = _owners(algorithm, data)
    first = next(iter(owners))
    _assert_finite(drive(algorithm, {**owners, first: owners[first][:1]}), "an owner of one row")


def check_all_zero(algorithm: Algorithm, data: Data = None) -> None:
    """Clients whose rows are all zero, one of them or all of them, give finite factors."""
    owners = _owners(algorithm, data)
    first = next(iter(owners))
    empty = {name: np.zeros_like(X) for name, X in owners.items()}
    _assert_finite(drive(algorithm, {**owners, first: empty[first]}), "an owner of zeros")
    _assert_finite(drive(algorithm, empty), "nothing but zeros")


def check_drop_outs(algorithm: Algorithm, data: Data = None) -> None:
    """Clients that vanish in some rounds, and a round without participants, leave a finite run that records it."""
    owners = _owners(algorithm, data)
    names = sorted(owners)
    absent = ((0, names[0]), (1, names[-1]), (2, "*"), (4, names[0]))
    run = LocalEngine(workers=1).run(Flaky(algorithm, absent), federation_for(algorithm, owners), rounds=6, seed=1)
    came = [record.participants for record in run.history]
    expected = [tuple(n for n in names if (t, n) not in absent and (t, "*") not in absent) for t in range(6)]
    assert came == expected, f"participants are {came}, not {expected}"
    assert run.history[2].bytes_up == 0, "a round without participants counted bytes"
    _assert_run(run, "drop-outs")


def check_partial_participation(algorithm: Algorithm, data: Data = None) -> None:
    """A share of the clients in each round, or one at a time, gives finite factors for all of them."""
    owners = _owners(algorithm, data)

    def in_turn(at: Round, names: tuple[str, ...]) -> tuple[str, ...]:
        return (names[at.index % len(names)],)

    for rule in (0.5, in_turn):
        run = LocalEngine(workers=1).run(
            Flaky(algorithm, ()), federation_for(algorithm, owners), rounds=6, seed=1, participation=rule
        )
        assert all(len(record.participants) < len(owners) for record in run.history), "every client took part"
        _assert_run(run, f"participation {rule}")


def _assert_run(run: Any, what: str) -> None:
    for name, kept in run.factors.items():
        fine = np.isfinite(kept.U).all() and np.isfinite(kept.V).all() and np.isfinite(run.scores[name].sse)
        assert fine, f"factors of {name!r} are not finite with {what}"
