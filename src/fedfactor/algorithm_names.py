"""Algorithms by name: one spelling for the command line, for the terms of a federation and for the reference."""

from __future__ import annotations

import re

from fedfactor import algorithms
from fedfactor.core.algorithm import Algorithm

RECOMMENDERS = ("Biases", "FCF", "FedMF", "FedSPLIT", "PooledCF", "PooledCNMF", "PooledEASE", "Popularity")
"""Those that recommend from one list of items: their results are kept with users and ratings of each client."""


def command_name(name: str) -> str:
    """Write an algorithm's name as on the command line, in files of terms and in the reference.

    Examples
    --------
    >>> command_name("PooledNMF"), command_name("FedAvgNMF")
    ('pooled-nmf', 'fedavg-nmf')
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    return re.sub(r"^fed-", "fed", words)


def algorithm_names() -> tuple[str, ...]:
    """Name all algorithms as on the command line."""
    return tuple(command_name(name) for name in dir(algorithms))


def algorithm_class(name: str) -> type[Algorithm]:
    """Find an algorithm by its name on the command line; hyphens, underscores and capitals do not matter.

    Examples
    --------
    >>> algorithm_class("pooled-nmf").__name__
    'PooledNMF'
    """
    plain = re.sub("[-_]", "", name).lower()
    for known in dir(algorithms):
        if known.lower() == plain:
            return getattr(algorithms, known)
    raise ValueError(f"There is no algorithm {name!r}. Use one of {', '.join(algorithm_names())}.")
