"""From a fitted estimator to a folder and back: arrays and plain text, nothing that could run."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor import estimators
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError
from fedfactor.core.pytree import to_numpy
from fedfactor.core.run import Run
from fedfactor.estimators.base import FederatedTransformer
from fedfactor.io.result_folder import (
    NOBODY,
    has_results,
    owner_to_file,
    owners_of,
    private_parts,
    write_factors,
)
from fedfactor.io.run_record import missing_of, part_of
from fedfactor.recommend.client_tables import OwnerTables
from fedfactor.recommend.estimator_base import FederatedRecommender
from fedfactor.recommend.ratings import Ratings
from fedfactor.saved_models.run_folder import other_version, plain_value, read_result

__all__ = ["load", "save"]

_MODEL = ".model.npz"


def save(estimator: Any, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a fitted estimator to a folder, in the layout of ``fedfactor fit``.

    Parameters
    ----------
    estimator : fitted estimator
        A factorization or a recommender.
    folder : path
        Made if missing. What may be published lies in ``shared/``; ``private/`` holds every client's own part, readable
        by its writer only.
    overwrite : bool, default=False
        Whether results that lie there may be replaced.

    Returns
    -------
    Path
        The folder; :func:`load` reads it back.

    Examples
    --------
    >>> import tempfile, numpy as np, fedfactor
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> model = fedfactor.PooledNMF(2, rounds=5, tol=0, random_state=0).fit({"a": X[:10], "b": X[10:]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = fedfactor.load(fedfactor.save(model, folder))
    >>> bool(np.array_equal(again.transform(X), model.transform(X)))
    True
    """
    from sklearn.utils.validation import check_is_fitted

    out = Path(folder)
    if not isinstance(estimator, FederatedTransformer | FederatedRecommender):
        raise TypeError(f"save takes a fitted estimator of fedfactor, but this is a {type(estimator).__name__}.")
    check_is_fitted(estimator)
    if has_results(out) and not overwrite:
        raise DataError(f"{out} already holds a result. Choose another folder, or say overwrite=True.")
    run: Run = estimator.run_
    done = getattr(estimator, "preprocess_", None)
    absent = getattr(estimator, "_missing", None)
    record = {
        **run.summary(),
        "asked": {"missing_values": None if absent is None else str(absent), "rounds": estimator.rounds},
        "owners": owners_of(run),
        "preprocess": None if done is None else done.record(),
    }
    names = getattr(estimator, "feature_names_in_", getattr(estimator, "items_", None))
    features = None if names is None else [str(name) for name in names]
    turned = getattr(estimator, "split", "rows") == "columns"  # then clients have columns, and U is what they share
    private = {} if turned else private_parts(run)
    write_factors(out, to_numpy(estimator.components_), features=features, private=private, run=record)
    if isinstance(estimator, FederatedRecommender):
        write_models(estimator, out)
    return out


def load(folder: str | os.PathLike[str]) -> Any:
    """Read a result back as a fitted estimator.

    Parameters
    ----------
    folder : path
        Written by ``fedfactor fit -o``, by ``fedfactor results`` of a federation, or by :func:`save`.

    Returns
    -------
    estimator
        Ready for ``transform``, ``predict`` or ``recommend``. New rows are preprocessed as those of the run were:
        give them as they are in the files. Settings of engine and privacy are not kept.

    Raises
    ------
    DataError
        If the files are missing, damaged, or do not fit together.

    Examples
    --------
    >>> import tempfile, numpy as np, fedfactor
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> model = fedfactor.PooledNMF(2, rounds=5, tol=0, random_state=0).fit(X, groups=["a"] * 10 + ["b"] * 20)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fedfactor.load(fedfactor.save(model, folder)).client_factors_["b"].shape
    (20, 2)
    """
    out = Path(folder)
    record, run = read_result(out)
    kind: Any = getattr(estimators, record["algorithm"])
    if issubclass(kind, FederatedRecommender):
        return _recommender(out, kind, run)
    model = kind(**_parameters(kind, record, out))
    rows = Federation({NOBODY: np.zeros((1, run.V.shape[1]))}, missing_values=missing_of(record))
    rows.preprocess = record.get("preprocess")
    model._adopt(run, rows)
    if NOBODY in run.factors:
        model.client_factors_ = {}
    model.n_iter_ = int(record["rounds"])
    if run.owners_only is not None:
        return model  # of a private run exact errors are not released, here as in Python
    if "squared_error" not in next(iter(part_of(record, "owners").values()), dict[str, Any]()):
        model.reconstruction_err_ = math.nan  # the record knows the relative error alone
    model.relative_error_ = math.nan if (error := record.get("relative_error")) is None else float(error)
    return model


def recommender_of(run: Run, federation: Federation) -> FederatedRecommender:
    """Make the recommender whose algorithm, one of ``RECOMMENDERS``, ran on files.

    Users and items keep the ids of the files, as numbers where they are whole numbers.
    """
    kind: Any = getattr(estimators, type(run.algorithm).__name__)
    known = set(kind._get_param_names())
    settings = {name: getattr(run.algorithm, name) for name in run.algorithm.__dataclass_fields__ if name in known}
    model = kind(**settings)
    shards = {name: federation.shard(name) for name in federation.names}
    m = federation.n_features
    items = _ids(federation.feature_names, m)
    users = {name: _ids(shard.row_ids, shard.n_rows) for name, shard in shards.items()}
    if len({each.dtype.kind for each in users.values()}) > 1:
        users = {name: each.astype(str) for name, each in users.items()}
    from scipy import sparse

    found = Ratings({name: sparse.csr_array(shard.X) for name, shard in shards.items()}, users, items)
    model._keep(run, found)
    return model


def write_models(model: FederatedRecommender, out: Path) -> None:
    """Write every client's users and ratings beside its factors, readable by the writer alone."""
    for name in model.tables_:
        model.save(out / "private" / model_file(name), client=name)


def model_file(owner: str) -> str:
    """Name the file of a client's users and ratings."""
    return owner_to_file(owner).removesuffix(".safetensors") + _MODEL


def _recommender(out: Path, kind: Any, run: Run) -> Any:
    files = sorted((out / "private").glob(f"*{_MODEL}"))
    if not files:
        raise DataError(
            f"{out} holds item factors, but no owner's users and ratings: it cannot make recommendations. "
            "Give the folder that fedfactor fit wrote from a table of ratings."
        )
    models = [kind.load(path) for path in files]
    first = models[0]
    factors: dict[str, Any] = {}
    for each in models:
        factors |= each.run_.factors
        first.tables_ = OwnerTables(first.tables_ | each.tables_)
        first.users_ |= each.users_
        first.client_factors_ |= each.client_factors_
    first.run_ = replace(run, factors=factors)
    return first


def _parameters(kind: Any, record: dict[str, Any], out: Path) -> dict[str, Any]:
    """Turn a record's settings into parameters of an estimator."""
    known = set(kind._get_param_names())
    found = {key: plain_value(value) for key, value in record["settings"].items() if key in known}
    if "random_state" in known:
        found["random_state"] = int(record["seed"])
    if "missing_values" in known:
        found["missing_values"] = missing_of(record)
    asked = part_of(record, "asked").get("rounds")
    if "rounds" in known and isinstance(asked, int):
        found["rounds"] = asked
    try:
        model = kind(**found)
        model.to_algorithm()
    except (TypeError, ValueError) as error:
        raise other_version(out, error, record) from None
    return found


def _ids(names: Any, count: int) -> np.ndarray:
    """Return ids as whole numbers where all of them are such, else as text; positions where there are none."""
    if names is None:
        return np.arange(count)
    whole = all(name.isdecimal() and len(name) < 19 and (name == "0" or name[0] != "0") for name in names)
    return np.array([int(name) for name in names]) if whole else np.array(names, dtype=str)
