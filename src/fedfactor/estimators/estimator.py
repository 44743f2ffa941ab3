"""Base classes of all estimators: they validate parameters, make the algorithm and run it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

from sklearn.base import BaseEstimator

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.parameters import Declared, Setting, check_settings, settings_of_class
from fedfactor.core.run import Run
from fedfactor.core.versioned_pickle import VersionedPickle
from fedfactor.engines.callbacks import listed, watcher
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.engines.engine import Engine
from fedfactor.engines.restarts import best_of, starts_of
from fedfactor.engines.run import engine_of, run
from fedfactor.estimators.inputs import draw_seed
from fedfactor.estimators.parameter_names import current_names
from fedfactor.linalg.cuda.device_rows import check_device
from fedfactor.network.message_format import WIRE
from fedfactor.privacy.dp import refuse_repeats

UNCHECKED = Declared(check=False)
AT_LEAST_ONE = Declared(at_least=1)

BOUNDS: Mapping[str, Declared] = {
    "callbacks": UNCHECKED,
    "checkpoint": UNCHECKED,
    "device": UNCHECKED,
    "missing_values": UNCHECKED,
    "n_clients": AT_LEAST_ONE,
    "n_components": AT_LEAST_ONE,
    "n_init": AT_LEAST_ONE,
    "rounds": AT_LEAST_ONE,
    "scale": Declared(because="the lowest and the highest rating"),
    "time_limit": Declared(at_least=0),
    "verbose": Declared(at_least=0),
}
"""Bounds of the parameters that estimators have beside those of an algorithm; their types are in the signatures."""


class Estimator(VersionedPickle, BaseEstimator):
    """An estimator whose parameters are validated by ``fit``, by type and bounds."""

    _pickled_by = WIRE
    _bounds: ClassVar[Mapping[str, Declared]] = {}
    """Bounds of further parameters, by name."""

    @classmethod
    def _parameters(cls) -> list[Setting]:
        """Return the parameters of the signature with types, defaults and bounds."""
        kinds = get_type_hints(cls.__init__)
        bounds = {**BOUNDS, **cls._bounds}
        return [
            Setting(name, kinds[name], each.default, bounds.get(name, Declared()))
            for name, each in signature(cls).parameters.items()
        ]

    def _check_parameters(self) -> None:
        """Raise ``ValueError`` for the first parameter that its type or bounds do not allow."""
        check_settings(self, self._parameters())


class FederatedEstimator(Estimator, ABC):
    """An estimator of a federated method: its parameters are those of an algorithm and those of a run."""

    _method: ClassVar[type[Algorithm]]
    _aliases: ClassVar[Mapping[str, str]] = {}
    _expressed_otherwise: ClassVar[frozenset[str]] = frozenset()
    """Settings of the algorithm that follow from values of other parameters."""

    def __init__(
        self,
        rounds: int | None,
        n_clients: int,
        engine: str | Engine,
        privacy: Any,
        random_state: Any,
        verbose: int | bool,
        callbacks: Any,
        checkpoint: Any,
    ) -> None:
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
        self.checkpoint = checkpoint

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as in scikit-learn.

        Parameters
        ----------
        **params
            By name; aliases are taken as well.

        Returns
        -------
        self
        """
        return super().set_params(**current_names(type(self), params))

    def to_algorithm(self) -> Algorithm:
        """Validate all parameters and return the algorithm with those that are its own.

        Returns
        -------
        Algorithm
        """
        own = [each.name for each in settings_of_class(self._method)]
        algorithm = self._method(**self._algorithm_parameters())
        check_settings(algorithm)
        check_settings(self, [each for each in self._parameters() if each.name not in own])
        return algorithm

    def run_algorithm(self, data: Any, *, participation: Any = 1.0, **changed: Any) -> Run:
        """Run the algorithm on the data of clients, as :meth:`fit` does, and return the run; nothing is fitted.

        Parameters
        ----------
        data : as in :meth:`fit`
        participation : float or function
            As in :func:`fedfactor.run`.
        **changed
            Parameters of the run that replace those of this estimator.

        Returns
        -------
        Run
        """
        given = self.get_params(deep=False)
        unknown = [name for name in changed if name not in given]
        if unknown:
            raise IncompatibleError(f"{type(self).__name__} has no parameter {unknown[0]!r}. Leave it out.")
        model = type(self)(**{**given, **changed})
        algorithm, engine, seed = model._settings()
        return model._run(algorithm, model._federated(data, algorithm, seed), engine, seed, participation)

    def _algorithm_parameters(self) -> dict[str, Any]:
        """Return the parameters of the algorithm by name."""
        given = self.get_params(deep=False)
        return {each.name: given[each.name] for each in settings_of_class(self._method) if each.name in given}

    @abstractmethod
    def _federated(self, data: Any, algorithm: Algorithm, seed: int) -> Federation:
        """Return the data of all clients in the form that the algorithm takes."""

    def _settings(self) -> tuple[Algorithm, Engine, int]:
        """Return the algorithm, the engine and the seed, once all parameters are valid."""
        return self.to_algorithm(), engine_of(self.engine), draw_seed(self.random_state)

    def _run(
        self, algorithm: Algorithm, federation: Federation, engine: Any, seed: int, participation: Any = 1.0
    ) -> Run:
        """Run the algorithm with the parameters of this estimator; of several initializations keep the best run."""
        n_init: int | None = getattr(self, "n_init", None)
        if n_init is not None:
            refuse_repeats(self.privacy, n_init, f"n_init={n_init}")
        callbacks = (*watcher(int(self.verbose), type(self).__name__), *listed(self.callbacks))
        checkpoint = Checkpoint.of(self.checkpoint)
        device: str | None = getattr(self, "device", None) if "storage" in self.get_params(deep=False) else None
        storage = getattr(self, "storage", None)
        check_device(device, storage)

        def once(_: int, each: Algorithm, seed: int) -> Run:
            # Every initialization has a folder of its own: they differ in their seed.
            folder = None if checkpoint is None else Path(checkpoint.folder) / f"seed-{seed}"
            return run(
                each,
                federation,
                engine=engine,
                rounds=self._exchanges(),
                seed=seed,
                privacy=self.privacy,
                participation=participation,
                callbacks=callbacks,
                checkpoint=None if checkpoint is None else replace(checkpoint, folder=folder),
                device=device,
                storage=storage,
            )

        if not hasattr(self, "n_init"):
            return once(0, algorithm, seed)
        return best_of(starts_of(algorithm, n_init, private=self.privacy is not None), seed, once)

    def _exchanges(self) -> int | None:
        """Return the number of rounds to ask for."""
        return self.rounds
