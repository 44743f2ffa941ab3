"""One function that runs any algorithm on any engine."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from fedfactor.core.algorithm import Algorithm, LocalFactors, Score
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.method import Method, algorithm_of, run_parameters
from fedfactor.core.parameters import check_settings
from fedfactor.core.run import Run
from fedfactor.engines.callbacks import listed
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.engines.client_sampling import Participation
from fedfactor.engines.empty_columns import without_empty_columns
from fedfactor.engines.engine import AnyCallback, Engine, judge_small
from fedfactor.linalg.cuda.device_rows import Storage, check_device, home, move

if TYPE_CHECKING:
    from fedfactor.engines.columns import ColumnFactors


def engine_of(engine: str | Engine) -> Engine:
    """Turn a name into an engine; engines pass through."""
    if not isinstance(engine, str):
        if not hasattr(engine, "run"):
            raise TypeError(f"engine={engine!r} cannot run anything. Use 'local', or an engine such as LocalEngine().")
        return engine
    if engine == "local":
        from fedfactor.engines.local.engine import LocalEngine

        return LocalEngine()
    if engine == "mpi":
        from fedfactor.engines.mpi.engine import MPIEngine, load_mpi

        load_mpi()
        return MPIEngine()
    if engine == "dask":
        from fedfactor.engines.dask.engine import DaskEngine, load_dask

        load_dask()
        return DaskEngine()
    raise ValueError(
        f"engine={engine!r} is not known. Use 'local', 'mpi', 'dask', or an engine object such as "
        "LocalEngine(workers=2)."
    )


@overload
def run(
    algorithm: Method,
    federation: Federation | Mapping[str, Any] | Sequence[Any],
    *,
    split: Literal["columns"],
    engine: str | Engine | None = ...,
    rounds: int | None = ...,
    seed: int | None = ...,
    privacy: Any = ...,
    participation: Participation = ...,
    checkpoint: Any = ...,
    callbacks: Sequence[AnyCallback] = ...,
    device: str | None = ...,
    storage: Storage | None = ...,
) -> ColumnFactors: ...


@overload
def run(
    algorithm: Method,
    federation: Federation | Mapping[str, Any] | Sequence[Any],
    *,
    engine: str | Engine | None = ...,
    rounds: int | None = ...,
    seed: int | None = ...,
    privacy: Any = ...,
    participation: Participation = ...,
    checkpoint: Any = ...,
    callbacks: Sequence[AnyCallback] = ...,
    device: str | None = ...,
    storage: Storage | None = ...,
    split: Literal["rows"] = ...,
) -> Run: ...


def run(
    algorithm: Method,
    federation: Federation | Mapping[str, Any] | Sequence[Any],
    *,
    engine: str | Engine | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    privacy: Any = None,
    participation: Participation = 1.0,
    checkpoint: Any = None,
    callbacks: Sequence[AnyCallback] = (),
    device: str | None = None,
    storage: Storage | None = None,
    split: Literal["rows", "columns"] = "rows",
) -> Any:
    """Run a federated algorithm.

    Parameters
    ----------
    algorithm : estimator or Algorithm
        Method with its parameters, such as ``fedfactor.PooledNMF(n_components=20)``. Of an estimator also the
        parameters of the run are used (``rounds``, ``random_state`` as seed, ``engine``, ``privacy``, ``checkpoint``,
        ``callbacks``, ``device``, ``storage``), unless they are given here, and ``n_init``, ``missing_values``,
        ``binarize`` and ``verbose``; it is not fitted.
    federation : Federation, mapping or list
        Data of each client. With an estimator anything that its ``fit`` takes.
    engine : str or Engine, optional
        ``"local"`` (default), ``"mpi"``, ``"dask"``, or an engine object such as ``LocalEngine(workers=2)``.
    rounds : int, optional
        Maximum number of rounds; by default that of the algorithm.
    seed : int, optional
        Seed of every random stream; drawn and kept in ``Run.seed`` when None.
    privacy : str, dp(...), transform, or tuple of these, optional
        What protects uploads on their way: ``"secure-sum"`` shows the server sums only, :func:`fedfactor.dp` adds noise
        for a budget, the robust rules (:class:`fedfactor.aggregation.Robust`), such as ``"median"``, withstand hostile
        clients. None: every upload is seen in the clear.
    participation : float or function
        Share of clients in each round, or a rule ``(round, names) -> names``.
    checkpoint : path or Checkpoint, optional
        Folder in which the run is stored, and from which an interrupted run resumes.
    callbacks : sequence
        Objects of :class:`~fedfactor.engines.engine.Callback`, or functions of a round record that return True to stop.
    device : {"cpu", "cuda"}, optional
        Where rows are worked on (``"cuda:1"``: the second GPU); by default where they are. They go to the GPU in
        blocks, and stay there for the run; what does not fit is sent again in every round. Factors come back to where
        the rows are.
    storage : {"float32", "bfloat16", "float64"}, optional
        How a GPU keeps dense rows; by default in single precision. ``"bfloat16"`` halves memory and traffic: rows are
        rounded up or down by chance, by half a per cent of a cell at most, and errors are stated without what that
        adds. Double precision has none of the fast kernels.
    split : {"rows", "columns"}, default="rows"
        What clients hold: rows with the same columns, or columns of the same rows, which are matched by their ids (for
        PooledNMF, PooledPCA and PooledSVD).

    Returns
    -------
    Run
        With ``split="columns"`` a :class:`~fedfactor.engines.columns.ColumnFactors`.

    Examples
    --------
    >>> import numpy as np
    >>> import fedfactor
    >>> X = np.random.default_rng(0).random((60, 8))
    >>> model = fedfactor.PooledNMF(n_components=3, rounds=5)
    >>> result = fedfactor.run(model, {"a": X[:20], "b": X[20:]}, seed=0)
    >>> result.V.shape, result.rounds
    ((3, 8), 5)
    """
    _check_numbers(rounds, seed)
    if split not in ("rows", "columns"):
        raise ValueError(f"split={split!r} must be 'rows' or 'columns': what each client holds.")
    given = {
        "engine": engine,
        "rounds": rounds,
        "random_state": seed,
        "privacy": privacy,
        "checkpoint": checkpoint,
        "callbacks": listed(callbacks) or None,
        "device": device,
        "storage": storage,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    if split == "columns":
        return _of_columns(algorithm, federation, {"participation": participation, **given})
    if not isinstance(algorithm, Algorithm):
        algorithm_of(algorithm)  # raises if it is no estimator
        return algorithm.run_algorithm(federation, participation=participation, **changed)
    check_settings(algorithm)  # here too: what rows it takes may depend on them
    if not isinstance(federation, Federation):
        federation = Federation(federation)
    chosen = engine_of("local" if engine is None else engine)
    check_device(device, storage)
    if device not in (None, "cpu"):
        _check_local(chosen, device, privacy)
        moved = move(federation, algorithm, device, storage)
        found = run(
            algorithm,
            moved,
            engine=chosen,
            rounds=rounds,
            seed=seed,
            participation=participation,
            checkpoint=checkpoint,
            callbacks=callbacks,
        )
        return home(found, federation)
    federation = move(federation, algorithm, device)
    settings: dict[str, Any] = {
        "seed": secrets.randbits(63) if seed is None else int(seed),
        "participation": participation,
        "checkpoint": checkpoint,
        "callbacks": callbacks,
    }
    if privacy is None:
        return _in_the_clear(chosen, algorithm, federation, rounds, settings)
    return _protected(chosen, algorithm, federation, rounds, settings, privacy)


def _of_columns(algorithm: Method, tables: Any, options: dict[str, Any]) -> ColumnFactors:
    """Run an algorithm, with the parameters of the run that its estimator has, on columns of several clients."""
    from fedfactor.engines.columns import factor_columns

    if not isinstance(tables, Mapping):
        raise IncompatibleError("split='columns' needs a mapping from each client to its columns.")
    method = algorithm_of(algorithm)
    options = run_parameters(algorithm, **options)
    options["seed"] = options.pop("random_state")
    options["callbacks"] = tuple(options["callbacks"] or ())
    clients: Mapping[str, Any] = dict(tables)  # pyright: ignore[reportUnknownArgumentType]
    return factor_columns(method, clients, **options)


def _in_the_clear(
    engine: Engine, algorithm: Algorithm, federation: Federation, rounds: int | None, settings: dict[str, Any]
) -> Run:
    if getattr(engine, "simulation", False):  # elsewhere no party may open the rows of another to look
        shards = {name: federation.shard(name) for name in federation.names}
        if all(shard.place is None for shard in shards.values()):  # nodes of a grid keep nothing from each other
            judge_small(algorithm, {name: shard.n_rows for name, shard in shards.items()}, simulation=True)
    found = engine.run(algorithm, federation, rounds=rounds, **settings)
    return without_empty_columns(found, federation) if getattr(engine, "simulation", False) else found


def _protected(
    engine: Any, algorithm: Algorithm, federation: Federation, rounds: int | None, settings: dict[str, Any], asked: Any
) -> Run:
    from fedfactor.privacy.planner import make_plan, spread_plan  # late: a run in the clear needs none of it

    if not getattr(engine, "channels", False):
        raise IncompatibleError(
            f"{type(engine).__name__} carries uploads in the clear: it has no place for privacy={asked!r}. Use "
            "engine='local', or leave privacy out."
        )
    if getattr(engine, "apart", False):  # opening all clients here would defeat such an engine
        algorithm, channel = spread_plan(asked, algorithm)
        return engine.run(algorithm, federation, rounds=rounds, channel=channel, **settings)
    kept = Checkpoint.of(settings["checkpoint"])
    folder = None if kept is None else Path(kept.folder)
    simulation = bool(getattr(engine, "simulation", False))
    plan = make_plan(asked, algorithm, federation, rounds, simulation=simulation, folder=folder)
    result: Run = engine.run(plan.algorithm, plan.federation, rounds=plan.rounds, channel=plan.channel, **settings)
    return result if plan.federation is federation else _at_home(result, plan.original)


def _check_local(engine: Any, device: str | None, privacy: Any) -> None:
    """Refuse what does not support tensors on a GPU: separate processes, and protection of uploads."""
    if not getattr(engine, "simulation", False) or getattr(engine, "backend", "threads") != "threads":
        raise IncompatibleError(
            f"device={device!r} is for runs in one process. Use engine='local', or give each owner tensors on its GPU."
        )
    if privacy is not None:
        raise IncompatibleError(
            f"privacy={privacy!r} protects uploads that lie in main memory, not those on a GPU. Leave out privacy, or "
            f"device={device!r}."
        )


def _check_numbers(rounds: Any, seed: Any) -> None:
    """Raise ``ValueError`` unless the number of rounds and the seed are whole numbers or None."""
    for word, value in (("rounds", rounds), ("seed", seed)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
            raise ValueError(f"{word}={value!r} must be a whole number, or None.")


def _at_home(result: Run, federation: Federation) -> Run:
    """Fit U to all rows and columns: a client may use locally what a run must not share."""
    factors: dict[str, LocalFactors] = {}
    scores: dict[str, Score] = {}
    for name in federation.names:
        shard = federation.shard(name)
        kept = result.factors[name]
        U = result.algorithm.fold_in(shard.X, kept, shard.mask)
        factors[name] = replace(kept, U=U)
        scores[name] = result.algorithm.score(shard, factors[name], result.down)
    if result.owners_only is not None:
        return replace(result, factors=factors, owners_only=replace(result.owners_only, scores=scores))
    return replace(result, factors=factors, scores=scores)
