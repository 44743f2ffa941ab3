"""A method as users give it: an algorithm, or the estimator with its parameters."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.run import Run

__all__ = ["Method", "SupportsAlgorithm", "algorithm_of"]


@runtime_checkable
class SupportsAlgorithm(Protocol):
    """An estimator: it validates its parameters, and makes and runs an algorithm."""

    def to_algorithm(self) -> Algorithm:
        """Return the algorithm with the parameters of the estimator."""
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
