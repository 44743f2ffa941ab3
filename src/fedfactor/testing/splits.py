"""Who comes first, and who owns what, must not matter more than rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation
from fedfactor.engines.local.engine import LocalEngine
from fedfactor.testing.data import federation_for, partitions, small_data, with_holes
from fedfactor.testing.plain_loop import apart, differences, drive, traces

Data = Mapping[str, Any] | None

ROUNDING = 1e-8
"""How far apart float64 results may be when only the order of additions differs.

An algorithm whose messages are in single precision declares it with an attribute ``rounding``, which then holds."""


def _reverse(names: tuple[str, ...]) -> tuple[str, ...]:
    return names[::-1]


def check_client_order(algorithm: Algorithm, data: Data = None) -> None:
    """The order in which uploads are added changes nothing but rounding (uplink ``sum``)."""
    for kind, (owners, one) in traces(algorithm, data).items():
        if "float32" in kind:
            continue
        two = drive(algorithm, owners, order=_reverse)
        for name, kept in one.factors.items():
            distance = apart(kept.V, two.factors[name].V)
            assert distance < getattr(algorithm, "rounding", ROUNDING), (
                f"V of {name!r} on {kind} data moves by {distance:.1e} when clients come in reverse"
            )


def check_mapping_order(algorithm: Algorithm, data: Data = None) -> None:
    """The order of the mapping of clients changes nothing, to the last bit."""
    owners = dict(small_data(algorithm.domain) if data is None else data)
    runs = [
        LocalEngine().run(
            algorithm, federation_for(algorithm, {name: owners[name] for name in order}), rounds=3, seed=2
        )
        for order in (list(owners), list(owners)[::-1])
    ]
    for name, kept in runs[0].factors.items():
        found = differences(kept, runs[1].factors[name])
        assert not found, f"factors of {name!r} depend on the order of the mapping: {found}"


def check_streams_by_name(algorithm: Algorithm, data: Data = None) -> None:
    """What a client does first depends on its name, its rows and the download, not on who worked before it."""
    for kind, (owners, one) in traces(algorithm, data).items():
        two = drive(algorithm, owners, rounds=1, order=_reverse)
        for name, up in one.ups[0].items():
            found = differences(up, two.ups[0][name]) or differences(one.clients[1][name], two.clients[1][name])
            assert not found, f"the first step of {name!r} on {kind} data depends on the order of clients: {found}"


def check_pooled(algorithm: Algorithm, data: Data = None) -> None:
    """Every way to split the rows gives the V of the pooled rows, up to rounding."""
    owners = dict(small_data(algorithm.domain) if data is None else data)
    kinds = {"complete": np.vstack(list(owners.values()))}
    if algorithm.handles_missing:
        kinds["masked"] = np.vstack(list(with_holes(owners).values()))
    for kind, X in kinds.items():
        pooled: Any = None
        for split, parts in partitions(X).items():
            missing = np.nan if kind == "masked" else None
            run = LocalEngine().run(algorithm, Federation(parts, missing_values=missing), rounds=8, seed=4)
            pooled = run.V if pooled is None else pooled
            distance = apart(pooled, run.V)
            assert distance < getattr(algorithm, "rounding", ROUNDING), (
                f"{split}, {kind} rows: V differs from pooled rows by {distance:.1e}"
            )
