"""From a client's file to the rows that take part: agreed columns, agreed preprocessing, agreed dtype, checked."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import replace

import numpy as np

from fedfactor.core.client_data import Shard
from fedfactor.core.column_scales import column_sums
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import check_values, is_sparse
from fedfactor.core.missing_policies import split_missing
from fedfactor.core.printable_text import listed
from fedfactor.engines.columns import columns_as_rows
from fedfactor.federation.column_ranges import strange_columns
from fedfactor.federation.features import arrange, names_of, row_names_of
from fedfactor.federation.terms import Terms
from fedfactor.io.file_content import Reading
from fedfactor.io.read import load
from fedfactor.io.uneven_columns import ScaleWarning, uneven
from fedfactor.privacy.subjects import keep_only, subject_rows


def prepare_rows(path: str | os.PathLike[str], terms: Terms, name: str, reading: Reading | None = None) -> Shard:
    """Open, arrange, preprocess and check one client's rows; nothing leaves this machine."""
    if terms.by_columns:
        return _prepare_columns(path, terms, name, reading or Reading())
    plan = terms.preprocess()
    features = terms.content["features"]
    reading = reading or Reading()
    subject = terms.noise.get("subject")
    if subject is not None:  # its name stands in each of its rows
        reading = replace(reading, id=subject if reading.id is None else reading.id, repeated_ids=True)
    table = load(path, replace(reading, missing_values=plan.missing_values))
    X, mask = split_missing(table.X, table.missing_values if terms.meta().masked else plan.missing_values)
    try:
        X, there = arrange(X, names_of(table), terms.features, how=features["how"], absent=features["absent"])
    except DataError as error:
        raise DataError(f"{path} does not fit the agreed features: {error}") from None
    if there is not None:
        if is_sparse(X):
            raise DataError("absent = 'missing' needs dense rows, but this file is sparse. Agree on absent = 'zero'.")
        mask = there if mask is None else there & mask[:, _order(names_of(table), terms.features)]
    elif mask is not None and not isinstance(mask, str):
        mask = mask[:, _order(names_of(table), terms.features)]
    strange = strange_columns(terms.content.get("units", {}), terms.features, X, mask)
    if strange:
        raise DataError(
            f"{path} has other units than agreed, it seems, in {len(strange)} of {len(terms.content['units'])} columns "
            f"with a declared range: {listed(strange, 12, '; ')}. Convert these columns, or agree on other ranges "
            "([units]). Nothing of this was sent."
        )
    X = plan.apply(X, terms.declared_weights())
    X = X.astype(terms.content["run"]["dtype"], copy=False)
    if mask is None and terms.meta().masked and not is_sparse(X):
        mask = np.ones(X.shape, bool)
    check_values(name, X, mask, terms.algorithm().domain, terms.features, table.row_ids)
    if "scale" not in plan.weighing and not is_sparse(X):
        said = uneven(terms.features, column_sums(X, mask))
        if said:
            warnings.warn(said, ScaleWarning, stacklevel=2)
    if X.shape[0] < terms.least_rows:
        raise DataError(
            f"{path} has {X.shape[0]} rows, but at least {terms.least_rows} are needed: of so few, single rows could "
            "be read from what is sent. ([privacy] minimum_rows, and never fewer than components + 1.)"
        )
    return Shard(X, mask, terms.features, row_ids=table.row_ids, id_name=table.id_name)


def _prepare_columns(path: str | os.PathLike[str], terms: Terms, name: str, reading: Reading) -> Shard:
    """Open and check one party's columns, and bring the common rows into the agreed order."""
    plan = terms.preprocess()
    table = load(path, replace(reading, missing_values=plan.missing_values))
    known = row_names_of(table, path, reading)
    position = {row: place for place, row in enumerate(known)}
    lacking = sum(row not in position for row in terms.features)
    if lacking:
        raise DataError(
            f"{lacking} of the {len(terms.features)} agreed rows are not in {path}. Give the file and the row names of "
            "fedfactor features, or agree on rows again."
        )
    X, mask = split_missing(table.X, table.missing_values if terms.meta().masked else plan.missing_values)
    X = X.astype(terms.content["run"]["dtype"], copy=False)
    check_values(name, X, mask, terms.algorithm().domain, names_of(table), table.row_ids)
    if mask is None and terms.meta().masked and not is_sparse(X):
        mask = np.ones(X.shape, bool)
    rows = np.array([position[row] for row in terms.features], np.int64)
    shard = columns_as_rows(Shard(X, mask, names_of(table)), rows, terms.features)
    if shard.n_rows < terms.least_rows:
        raise DataError(
            f"{path} has {shard.n_rows} columns, but at least {terms.least_rows} are needed: of so few, single columns "
            "could be read from what is sent. ([privacy] minimum_rows, and never fewer than components + 1.)"
        )
    return shard


def count_subjects(shard: Shard, terms: Terms, name: str) -> tuple[Shard, np.ndarray | None]:
    """State, where the agreed noise protects subjects, which rows count; what names a subject is no measurement."""
    assumed = terms.noise.get("rows", math.inf)
    if shard.n_rows > 2 * assumed:
        raise DataError(
            f"{name!r} has {shard.n_rows} rows, but the terms assume {assumed:g} of all parties together: the noise is "
            "set for the rounding of sums of so many. Agree on a larger number ([privacy] rows)."
        )
    if terms.noise.get("unit") != "subject":
        return shard, None
    rows, columns = subject_rows(name, shard, terms.noise["subject"], terms.noise["cap"])
    return keep_only(shard, np.ones(shard.n_rows), columns), rows > 0


def _order(names: tuple[str, ...], agreed: tuple[str, ...]) -> np.ndarray:
    position = {name: j for j, name in enumerate(names)}
    return np.array([max(position.get(name, 0), 0) for name in agreed], np.int64)
