"""One function that runs any algorithm on any engine."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from fedfactor.core.errors import IncompatibleError
from fedfactor.core.federation import Federation
from fedfactor.core.protocol import Algorithm
from fedfactor.core.run import Run
from fedfactor.engines.base import AnyCallback, Engine, Participation


def engine_of(engine: str | Engine) -> Engine:
    """Turn a name into an engine; engines pass through."""
    if not isinstance(engine, str):
        return engine
    if engine == "local":
        from fedfactor.engines.local import LocalEngine

        return LocalEngine()
    if engine == "mpi":
        from fedfactor.engines.mpi import MPIEngine, load_mpi

        load_mpi()
        return MPIEngine()
    raise ValueError(
        f"engine={engine!r} is not known. Use 'local', 'mpi', or an engine object such as LocalEngine(workers=2)."
    )


def run(
    algorithm: Algorithm,
    federation: Federation | Mapping[str, Any] | Sequence[Any],
    *,
    engine: str | Engine = "local",
    rounds: int | None = None,
    seed: int | None = None,
    privacy: Any = None,
    participation: Participation = 1.0,
    checkpoint: Any = None,
    callbacks: Sequence[AnyCallback] = (),
) -> Run:
    """Run a federated algorithm.

    Parameters
    ----------
    algorithm : Algorithm
        What to compute, e.g. ``fedfactor.algorithms.PooledNMF(n_components=20)``.
    federation : Federation, mapping or list
        Who owns which rows.
    engine : str or Engine
        How messages travel.
    rounds : int, optional
        Rounds at most; by default the algorithm's own.
    seed : int, optional
        Seed of every stream; drawn and kept in ``Run.seed`` when None.
    privacy : None
        What protects uploads on their way. Plain sums only: anything else is refused.
    participation : float or function
        Share of clients in each round, or a rule ``(round, names) -> names``.
    checkpoint : path or Checkpoint, optional
        Folder in which the run is kept, and from which an interrupted run goes on.
    callbacks : sequence
        Objects of :class:`~fedfactor.engines.base.Callback`, or functions of a round record that return True to stop.

    Returns
    -------
    Run

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.algorithms import PooledNMF
    >>> X = np.random.default_rng(0).random((60, 8))
    >>> result = fedfactor.run(PooledNMF(n_components=3), {"a": X[:20], "b": X[20:]}, rounds=5, seed=0)
    >>> result.V.shape, result.rounds
    ((3, 8), 5)
    """
    if privacy is not None:
        raise IncompatibleError(f"privacy={privacy!r} is not offered by this version: only None, plain sums, is.")
    if not isinstance(federation, Federation):
        federation = Federation(federation)
    return engine_of(engine).run(
        algorithm,
        federation,
        rounds=rounds,
        seed=secrets.randbits(63) if seed is None else int(seed),
        participation=participation,
        checkpoint=checkpoint,
        callbacks=callbacks,
    )
