"""The contract of an engine: it returns what the reference engine returns, and notifies the callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.algorithms import FedAvgNMF, GridNMF, PooledNMF
from fedfactor.core.algorithm import Algorithm, Domain, Round
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.grid import block_federation
from fedfactor.core.pytree import is_numpy
from fedfactor.core.run import RoundRecord, Run
from fedfactor.engines.engine import Callback, Engine
from fedfactor.engines.local.engine import LocalEngine
from fedfactor.privacy.noise import Clip, Gaussian
from fedfactor.privacy.planner import make_plan
from fedfactor.testing.data import small_data, variants
from fedfactor.testing.plain_loop import apart, differences
from fedfactor.testing.probe_algorithm import Probe

MakeEngine = Callable[[], Engine]


def check_engine_equals_local(make_engine: MakeEngine, tolerance: float = 0.0) -> None:
    """Sums, gathers, scatters, masks, sparse rows and float32 give what the reference engine gives."""
    for algorithm in (Probe(), FedAvgNMF(3, local_steps=2), PooledNMF(3)):
        for kind, owners in variants(algorithm).items():
            _compare(make_engine, algorithm, owners, tolerance, f"{type(algorithm).__name__} on {kind} data")


def check_engine_participation(make_engine: MakeEngine, tolerance: float = 0.0) -> None:
    """A share of the clients is drawn as the reference engine draws it; a rule is asked."""

    def alternate(at: Round, names: tuple[str, ...]) -> tuple[str, ...]:
        return names[at.index % 2 :: 2]

    for rule in (0.5, alternate):
        _compare(make_engine, PooledNMF(2), small_data(), tolerance, f"participation {rule}", participation=rule)


def check_engine_drop_outs(make_engine: MakeEngine, tolerance: float = 0.0) -> None:
    """Clients that do not come are left out, and a round without participants changes nothing."""
    names = sorted(small_data())
    flaky = Probe(absent=(f"0 {names[1]}", "2 *", f"3 {names[0]}"))
    run = _compare(make_engine, flaky, small_data(Domain.REAL), tolerance, "drop-outs")
    came = [len(record.participants) for record in run.history]
    assert came == [2, 3, 0, 2, 3], f"{came} clients came to the rounds"


def check_engine_callbacks(make_engine: MakeEngine, tolerance: float = 0.0) -> None:
    """Callbacks are notified of the start, every round in order (the last one too), and the end with the run."""
    for algorithm, rounds in ((PooledNMF(2, tol=0.0), 3), (PooledNMF(2, tol=1e9), 20)):
        recorder = Recorder()
        plain = list[RoundRecord]()
        run = make_engine().run(
            algorithm, Federation(small_data()), rounds=rounds, seed=1, callbacks=(recorder, plain.append)
        )
        assert recorder.started == [(rounds, 0)], f"on_start was called with {recorder.started}"
        heard = [record.index for record in recorder.records]
        assert heard == list(range(run.rounds)), f"on_round heard rounds {heard} of a run of {run.rounds}"
        assert [record.index for record in plain] == heard, "a plain function heard other rounds than a Callback"
        assert len(recorder.ended) == 1, f"on_end was called {len(recorder.ended)} times"
        assert recorder.ended[0] is not None, "on_end was notified of a failed run"


def check_engine_stop(make_engine: MakeEngine, tolerance: float = 0.0) -> None:
    """A callback that returns True ends the run after that round, and the status shows it."""
    run = make_engine().run(
        PooledNMF(2, tol=0.0), Federation(small_data()), rounds=9, seed=1, callbacks=(lambda record: record.index == 2,)
    )
    assert run.status == "stopped", f"status is {run.status!r}, not 'stopped'"
    assert run.rounds == 3, f"{run.rounds} rounds ran, not 3"


def check_engine_converged(make_engine: MakeEngine, tolerance: float = 0.0) -> None:
    """The algorithm's own test ends the run, and the status shows it."""
    run = _compare(make_engine, PooledNMF(2, tol=1e9), small_data(), tolerance, "a run that converges", rounds=30)
    assert run.status == "converged", f"status is {run.status!r}, not 'converged'"
    assert run.rounds < 30, "a converged run used all rounds"


def check_engine_error(make_engine: MakeEngine, tolerance: float = 0.0) -> None:
    """A run that cannot start raises before anything is sent, and callbacks are notified of no round."""
    recorder = Recorder()
    try:
        make_engine().run(PooledNMF(99), Federation(small_data()), rounds=2, seed=1, callbacks=(recorder,))
    except ValueError:
        assert not recorder.records, "rounds were run"
        return
    raise AssertionError("a rank of 99 for 13 features was accepted")


def check_engine_rejects(make_engine: MakeEngine, tolerance: float = 0.0) -> None:
    """An upload of NaN, and one that cannot be true, are left out, named in the record, and change nothing else."""
    for gathers in (False, True):  # sums in every round, and sums and single uploads in turn
        east, south, west = sorted(small_data(Domain.REAL))
        bad = (f"0 {south} NaN", f"1 {east} lie", f"2 {east} lie", f"2 {west} NaN", f"3 {west} NaN")
        run, reference = _both(make_engine, Probe(bad=bad, gathers=gathers), rounds=5)
        rejected = [record.rejected for record in run.history]
        assert rejected == [(south,), (east,), (east, west), (west,), ()], f"left out and named are {rejected}"
        came = [record.participants for record in run.history]
        assert came == [(east, west), (south, west), (south,), (east, south), (east, south, west)], f"{came} are in"
        _assert_near(run, reference, tolerance, "bad uploads")
    run, reference = _both(make_engine, Probe(bad=(f"0 {south} quiet", f"2 {east} quiet"), gathers=False))
    assert not run.rejected, f"{run.rejected} left out no more than they may"
    _assert_near(run, reference, tolerance, "uploads without what may be left out")


def check_engine_groups(make_engine: MakeEngine, tolerance: float = 0.0) -> None:
    """Sums by group, of blocks on a grid, give what the reference gives; an engine without them refuses."""
    X = np.vstack(list(small_data().values()))
    for kind, matrix in {"dense": X, "sparse": sparse.csr_array(X), "float32": X.astype(np.float32)}.items():
        try:
            run = make_engine().run(GridNMF(3), block_federation(matrix, (2, 3)), rounds=6, seed=6)
        except IncompatibleError:
            return
        reference = LocalEngine().run(GridNMF(3), block_federation(matrix, (2, 3)), rounds=6, seed=6)
        _assert_near(run, reference, max(tolerance, 1e-4 * (tolerance > 0 and kind == "float32")), f"a {kind} grid")
        came = {record.participants for record in run.history}
        assert came == {reference.history[0].participants}, f"{came} are in sums by group"


def check_engine_channel(make_engine: MakeEngine, tolerance: float = 0.0) -> None:
    """Links act at the clients and are undone at the server as in the reference; the report contains the same
    entries.
    """
    plain, _ = _both(make_engine, Probe(gathers=False))
    for links in ((Clip(0.5),), (Clip(0.5), Gaussian(1e-9, 0.5, whole=True, share="local"))):
        run, reference = _both(make_engine, Probe(gathers=False), links)
        # Noise of a billionth is no more than rounding, and its place in the channel the same as that of any other.
        _assert_near(run, reference, max(tolerance, 1e-6 if len(links) > 1 else 0.0), f"{len(links)} links")
        assert run.privacy is not None, "the run says nothing of its privacy"
        assert reference.privacy is not None
        for entry in ("mode", "channel", "sees", "in_clear", "not_covered", "guarantee", "unit"):
            ours = run.privacy[entry]
            theirs = reference.privacy[entry]
            assert ours == theirs, f"{entry} of the report is {ours}, not {theirs}"
        assert apart(run.V, plain.V) > 1e-3, "the clip changed nothing"
    loud, _ = _both(make_engine, Probe(gathers=False), (Clip(0.5), Gaussian(10.0, 0.5, whole=True, share="local")))
    assert apart(loud.V, plain.V) > 1e-2, "the noise changed nothing"
    assert all(record.participants == run.history[0].participants for record in loud.history)


CHECKS: tuple[Callable[[MakeEngine, float], None], ...] = (
    check_engine_equals_local,
    check_engine_participation,
    check_engine_drop_outs,
    check_engine_callbacks,
    check_engine_stop,
    check_engine_converged,
    check_engine_error,
    check_engine_rejects,
    check_engine_groups,
    check_engine_channel,
)


@dataclass
class Recorder(Callback):
    """Records all notifications."""

    started: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    records: list[RoundRecord] = field(default_factory=list[RoundRecord])
    ended: list[Run | None] = field(default_factory=list[Run | None])

    def on_start(self, algorithm: Algorithm, meta: Any, rounds: int, first: int) -> None:
        """Note the start."""
        self.started.append((rounds, first))

    def on_round(self, record: RoundRecord) -> bool | None:
        """Note a round."""
        self.records.append(record)

    def on_end(self, run: Run | None) -> None:
        """Note the end."""
        self.ended.append(run)


def engine_checks() -> Iterator[Callable[[MakeEngine, float], None]]:
    """List the checks that an engine must pass, for ``pytest.mark.parametrize``.

    Examples
    --------
    >>> from fedfactor import LocalEngine
    >>> for check in engine_checks():
    ...     if check.__name__ in ("check_engine_stop", "check_engine_error"):
    ...         check(LocalEngine, 0.0)
    """
    yield from CHECKS


def check_engine(make_engine: MakeEngine, *, tolerance: float = 0.0) -> None:
    """Run every check on a synchronous engine.

    Parameters
    ----------
    make_engine : callable
        Makes an engine, e.g. a class without arguments.
    tolerance : float
        How far factors may lie from those of the reference, relative to the largest entry; 0 asks for equal bits.

    Examples
    --------
    >>> from fedfactor import LocalEngine
    >>> check_engine(lambda: LocalEngine(workers=1))
    """
    for check in CHECKS:
        check(make_engine, tolerance)


def _both(
    make_engine: MakeEngine, algorithm: Algorithm, links: tuple[Any, ...] = (), rounds: int = 4
) -> tuple[Run, Run]:
    """Run on an engine and on the reference, through a channel where links are given."""
    found: list[Run] = []
    for engine in (make_engine(), LocalEngine()):
        federation = Federation(small_data(Domain.REAL))
        more = {}
        if links:
            plan = make_plan(links, algorithm, federation, rounds, simulation=True)
            more = {"channel": plan.channel}
        made: Any = engine
        found.append(made.run(algorithm, federation, rounds=rounds, seed=6, **more))
    return found[0], found[1]


def _assert_near(found: Run, reference: Run, tolerance: float, what: str) -> None:
    """Compare what clients keep; an engine of several processes has only its own here."""
    for name, kept in found.factors.items():
        theirs = reference.factors[name]
        distance = max(apart(kept.U, theirs.U), apart(kept.V, theirs.V))
        assert distance <= tolerance, f"{what}: factors of {name!r} lie {distance:.1e} apart"


def _compare(
    make_engine: MakeEngine,
    algorithm: Algorithm,
    owners: Mapping[str, Any],
    tolerance: float,
    what: str,
    **options: Any,
) -> Run:
    holes = any(is_numpy(X) and np.isnan(X).any() for X in owners.values())
    settings: dict[str, Any] = {"rounds": 5, "seed": 6, **options}
    found, reference = (
        engine.run(algorithm, Federation(owners, missing_values=np.nan if holes else None), **settings)
        for engine in (make_engine(), LocalEngine())
    )
    assert found.status == reference.status, f"{what}: status is {found.status!r}, not {reference.status!r}"
    for ours, theirs in zip(reference.history, found.history, strict=True):
        for name in ("index", "participants", "bytes_up", "bytes_down", "rejected"):
            a = getattr(ours, name)
            b = getattr(theirs, name)
            assert a == b, f"{what}: {name} of round {ours.index} is {b}, not {a}"
    assert list(found.factors) == list(reference.factors), f"{what}: factors of {list(found.factors)}"
    for name, kept in reference.factors.items():
        other = found.factors[name]
        if tolerance == 0:
            different = differences(kept, other) or differences(reference.scores[name], found.scores[name])
            assert not different, f"{what}: factors of {name!r}: {different}"
        else:
            distance = max(apart(kept.U, other.U), apart(kept.V, other.V))
            assert distance <= tolerance, f"{what}: factors of {name!r} lie {distance:.1e} apart"
    return found
