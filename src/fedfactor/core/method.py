"""A method as users give it: an algorithm, or the estimator with its parameters."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.run import Run

__all__ = ["Method", "SupportsAlgorithm", "algorithm_of", "run_parameters"]


@runtime_checkable
class SupportsAlgorithm(Protocol):
    """An estimator: it validates its parameters, and makes and runs an algorithm."""

    def to_algorithm(self) -> Algorithm:
        """Return the algorithm with the parameters of the estimator."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the estimator by name."""
        ...

    def run_algorithm(self, data: Any, *, participation: Any = 1.0, **changed: Any) -> Run:
        """Run the algorithm on the data of clients, with some parameters of the run changed."""
        ...


Method = Algorithm | SupportsAlgorithm
"""What functions take that need an algorithm."""


def algorithm_of(method: Any) -> Algorithm:
    """Return the algorithm of an estimator; an algorithm is returned unchanged.

    Parameters
    ----------
    method : Algorithm or estimator

    Returns
    -------
    Algorithm

    Raises
    ------
    IncompatibleError
        If ``method`` is a class, or neither an algorithm nor an estimator of one.

    Examples
    --------
    >>> import fedfactor
    >>> algorithm_of(fedfactor.PooledNMF(3, local_steps=2)).local_steps
    2
    """
    if isinstance(method, Algorithm):
        return method
    if isinstance(method, type):
        raise IncompatibleError(
            f"{method.__name__} is a class. Pass an instance with its parameters: {method.__name__}(...)."
        )
    if isinstance(method, SupportsAlgorithm):
        return method.to_algorithm()
    raise IncompatibleError(
        f"{type(method).__name__} is neither an estimator of a federated method nor an algorithm. Pass an estimator "
        "with its parameters, such as fedfactor.PooledNMF(n_components=5)."
    )


def run_parameters(method: Any, **given: Any) -> dict[str, Any]:
    """Return parameters of a run: those given, and of an estimator its own in place of those that are None.

    Examples
    --------
    >>> import fedfactor
    >>> run_parameters(fedfactor.PooledNMF(3, rounds=5, privacy="median"), rounds=None, privacy="secure-sum")
    {'rounds': 5, 'privacy': 'secure-sum'}
    """
    own: dict[str, Any] = {} if isinstance(method, Algorithm) else method.get_params(deep=False)
    return {name: own.get(name) if value is None else value for name, value in given.items()}
