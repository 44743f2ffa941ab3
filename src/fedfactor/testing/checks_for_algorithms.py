"""The contract of an algorithm, one check at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.method import Method, algorithm_of
from fedfactor.testing import bits, checks_for_small_clients, messages, splits

CHECKS: tuple[Callable[..., None], ...] = (
    bits.check_same_seed_same_bits,
    bits.check_inputs_untouched,
    bits.check_pure_functions,
    bits.check_bytes_round_trip,
    bits.check_state_through_bytes,
    bits.check_resume,
    messages.check_announced_messages,
    messages.check_uplink,
    messages.check_groups_alone,
    messages.check_float32_stays,
    messages.check_rows_stay_home,
    messages.check_factors,
    splits.check_client_order,
    splits.check_mapping_order,
    splits.check_streams_by_name,
    checks_for_small_clients.check_empty_shard,
    checks_for_small_clients.check_one_row,
    checks_for_small_clients.check_all_zero,
    checks_for_small_clients.check_drop_outs,
    checks_for_small_clients.check_partial_participation,
)


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """One check, ready to be called; its text is its name, which makes it a good test id."""

    function: Callable[..., None]
    algorithm: Algorithm
    data: Mapping[str, Any] | None = None

    def __call__(self) -> None:
        """Run the check; an AssertionError states what the algorithm does wrong."""
        self.function(self.algorithm, self.data)

    def __str__(self) -> str:
        """Name the check."""
        return self.function.__name__


def algorithm_checks(
    algorithm: Method, *, data: Mapping[str, Any] | None = None, pooled: bool | None = None
) -> Iterator[Check]:
    """List the checks that an algorithm must pass, for ``pytest.mark.parametrize``.

    Parameters
    ----------
    algorithm : Algorithm or estimator
        The algorithm with its parameters, or the estimator of one.
    data : mapping of name to dense array, optional
        A small federation of at least two clients; by default one that suits ``algorithm.domain``.
    pooled : bool, optional
        Whether the algorithm claims to compute what pooled rows would give. By default its class declares it, with an
        attribute ``pooled = True``; without one, no such claim is checked.

    Yields
    ------
    Check
        Call it to run it.

    Examples
    --------
    >>> from fedfactor import PooledNMF
    >>> next(algorithm_checks(PooledNMF(2))).function.__name__
    'check_same_seed_same_bits'
    """
    algorithm = algorithm_of(algorithm)
    for function in CHECKS:
        yield Check(function, algorithm, data)
    if getattr(type(algorithm), "pooled", False) if pooled is None else pooled:
        yield Check(splits.check_pooled, algorithm, data)


def check_algorithm(algorithm: Method, *, data: Mapping[str, Any] | None = None, pooled: bool | None = None) -> None:
    """Run every check on an algorithm; an AssertionError states which one fails and how.

    Parameters
    ----------
    algorithm : Algorithm or estimator
        The algorithm with its parameters, or the estimator of one.
    data : mapping of name to dense array, optional
        A small federation of at least two clients.
    pooled : bool, optional
        Whether it claims to compute what pooled rows would give; see :func:`algorithm_checks`.

    Examples
    --------
    >>> from fedfactor import Popularity
    >>> check_algorithm(Popularity())
    """
    for check in algorithm_checks(algorithm, data=data, pooled=pooled):
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"{type(algorithm).__name__} fails {check}: {error}") from error
