"""Identifiers of types in files of version 0.2, which were module paths, and the identifiers that replaced them."""

from __future__ import annotations

_FORMER_MODULES = {
    "fedfactor.algorithms.async_nmf": "async_nmf",
    "fedfactor.algorithms.baselines": "baselines",
    "fedfactor.algorithms.boolean_votes": "boolean_votes",
    "fedfactor.algorithms.distributed_nmf": "distributed_nmf",
    "fedfactor.algorithms.dsanls": "dsanls",
    "fedfactor.algorithms.fcf": "fcf",
    "fedfactor.algorithms.feddmf.messages": "feddmf",
    "fedfactor.algorithms.fedmf": "fedmf",
    "fedfactor.algorithms.fedprox_nmf": "fedprox_nmf",
    "fedfactor.algorithms.fedsplit.messages": "fedsplit",
    "fedfactor.algorithms.felb": "felb",
    "fedfactor.algorithms.fnmf.messages": "fnmf",
    "fedfactor.algorithms.grid_nmf": "grid_nmf",
    "fedfactor.algorithms.one_shot_nmf": "one_shot_nmf",
    "fedfactor.algorithms.pooled_bmf.home": "pooled_bmf",
    "fedfactor.algorithms.pooled_bmf.messages": "pooled_bmf",
    "fedfactor.algorithms.pooled_bmf.proximal": "pooled_bmf",
    "fedfactor.algorithms.pooled_bmf.search": "pooled_bmf",
    "fedfactor.algorithms.pooled_cf": "pooled_cf",
    "fedfactor.algorithms.pooled_cnmf": "pooled_cnmf",
    "fedfactor.algorithms.pooled_ease": "pooled_ease",
    "fedfactor.algorithms.pooled_nmf.algorithm": "pooled_nmf",
    "fedfactor.algorithms.pooled_nmf.losses.kullback_leibler": "pooled_nmf",
    "fedfactor.algorithms.pooled_nmf.losses.multiplicative": "pooled_nmf",
    "fedfactor.algorithms.pooled_nmf.losses.squared_error": "pooled_nmf",
    "fedfactor.algorithms.pooled_nmf.start": "pooled_nmf",
    "fedfactor.algorithms.pooled_ridge": "pooled_ridge",
    "fedfactor.algorithms.secure_nmf": "secure_nmf",
    "fedfactor.algorithms.secure_steps": "secure_nmf",
    "fedfactor.core.column_sums": "core",
    "fedfactor.core.protocol": "core",
    "fedfactor.engines.remote.column_sums": "column_survey",
    "fedfactor.engines.remote.secure_sum": "secure_sum",
    "fedfactor.privacy.sum_phases": "secure_aggregation",
    "fedfactor.testing.probe": "probe",
}


def current_identifier(tag: str) -> str:
    """Return the present identifier of a record type, given a present or a former one.

    Examples
    --------
    >>> current_identifier("fedfactor.algorithms.pooled_nmf.start:Wide")
    'pooled_nmf.Wide'
    >>> current_identifier("pooled_nmf.Wide")
    'pooled_nmf.Wide'
    """
    module, _, name = tag.partition(":")
    family = _FORMER_MODULES.get(module)
    return tag if family is None else f"{family}.{name}"


def current_algorithm(tag: str) -> str:
    """Return the present identifier of an algorithm, given a present or a former one.

    Examples
    --------
    >>> current_algorithm("fedfactor.algorithms.pooled_nmf.algorithm:PooledNMF")
    'fedfactor.algorithms:PooledNMF'
    """
    module, _, name = tag.partition(":")
    return f"fedfactor.algorithms:{name}" if module.startswith("fedfactor.algorithms.") else tag
