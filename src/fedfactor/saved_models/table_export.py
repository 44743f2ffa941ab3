"""Components and factors as a table that other programs read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.core.pytree import to_numpy
from fedfactor.io.file_content import Rows, write_rows
from fedfactor.io.formats import format_of
from fedfactor.io.result_folder import owner_from_file, read_components, read_private, read_row_ids
from fedfactor.io.run_record import read_record

__all__ = ["export"]


def export(result: Any, out: str | os.PathLike[str], *, rows: bool = False, owner: str | None = None) -> Path:
    """Write V, one line for each feature, or U, one line for each row with its id.

    Parameters
    ----------
    result : path or fitted estimator
        A folder written by ``fedfactor fit``, ``fedfactor results`` or :func:`~fedfactor.save`, or a factorization.
    out : path
        The table; its suffix gives the format: ``.csv``, ``.tsv``, ``.parquet``, ``.npy``, ``.h5ad`` and others. An
        ``.h5ad`` file has room for both: U in ``obsm``, V in ``varm``, what made them in ``uns``.
    rows : bool, default=False
        Write U instead of V. Where several clients' rows go into one table, ids begin with the client's name. U is
        private, and the file readable by its writer alone: pass on only what is yours.
    owner : str, optional
        U of this client only.

    Returns
    -------
    Path
        The table.

    Examples
    --------
    >>> import tempfile, numpy as np, fedfactor
    >>> X = np.random.default_rng(0).random((30, 3))
    >>> model = fedfactor.PooledNMF(2, rounds=5, tol=0, random_state=0).fit({"a": X[:10], "b": X[10:]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fedfactor.export(model, f"{folder}/v.csv").read_text().splitlines()[0]
    ...     len(fedfactor.export(model, f"{folder}/u.csv", rows=True, owner="b").read_text().splitlines())
    'feature,component_0,component_1'
    21
    """
    target = Path(out)
    format_of(target, writes=True)
    found = Parts.of(result)
    names = tuple(f"component_{t}" for t in range(len(found.V)))
    if not (rows or owner is not None or holds_both(target)):
        V = np.ascontiguousarray(found.V.T)
        write_rows(target, Rows(V, names, found.ids_of_features, "feature", None, None, None, found.about))
        return target
    U, ids = found.stacked(owner)
    columns = found.features or tuple(f"column_{j}" for j in range(found.V.shape[1]))
    write_rows(target, Rows(U, names, ids, "row", found.V, columns, None, found.about))
    return target


def holds_both(target: Path) -> bool:
    """Return whether a table has room for U and V."""
    return target.name.lower().endswith(".h5ad")


@dataclass(frozen=True, slots=True)
class Parts:
    """What can be written of a result: V, and every client's U with what it calls its rows."""

    where: str
    V: np.ndarray
    features: tuple[str, ...] | None
    factors: dict[str, Any]
    row_ids: dict[str, tuple[str, ...] | None]
    about: dict[str, str]

    @classmethod
    def of(cls, result: Any) -> Parts:
        """Read a folder, or take a fitted estimator apart."""
        try:
            folder = Path(result)
        except TypeError:
            return cls._of_estimator(result)
        V, features = read_components(folder)
        record = read_record(folder)
        owners = sorted(owner_from_file(path.name) for path in (folder / "private").glob("*.safetensors"))
        factors = {owner: read_private(folder, owner).get("U") for owner in owners}
        ids = {owner: read_row_ids(folder, owner) for owner in owners}
        about = {"algorithm": str(record["algorithm"]), "seed": str(record["seed"])}
        return cls(str(folder), V, features, factors, ids, about)

    @classmethod
    def _of_estimator(cls, model: Any) -> Parts:
        from sklearn.utils.validation import check_is_fitted

        from fedfactor.estimators.base import FederatedTransformer

        if not isinstance(model, FederatedTransformer):
            raise TypeError(f"export takes a folder or a fitted factorization, but this is a {type(model).__name__}.")
        check_is_fitted(model)
        names = getattr(model, "feature_names_in_", None)
        factors = {name: to_numpy(U) for name, U in model.client_factors_.items()}
        about = {"algorithm": type(model.run_.algorithm).__name__, "seed": str(model.run_.seed)}
        features = None if names is None else tuple(map(str, names))
        return cls("The model", to_numpy(model.components_), features, factors, {}, about)

    @property
    def ids_of_features(self) -> tuple[str, ...]:
        """What the lines of V are called."""
        return self.features or tuple(map(str, range(self.V.shape[1])))

    def stacked(self, owner: str | None) -> tuple[np.ndarray, tuple[str, ...]]:
        """Put the rows of all clients, or of one, into one table with ids."""
        if owner is not None and owner not in self.factors:
            raise DataError(f"{self.where} holds no U of {owner!r}; it has {', '.join(self.factors) or 'none'}.")
        chosen = list(self.factors) if owner is None else [owner]
        if not chosen:
            raise DataError(f"{self.where} holds no owner's U. Leave --rows out for V, or ask the owners.")
        parts: list[np.ndarray] = []
        ids: list[str] = []
        for name in chosen:
            U = self.factors[name]
            if U is None or U.ndim != 2 or U.shape[1] != len(self.V):
                raise DataError(
                    f"{self.where}: U of {name!r} does not fit the {len(self.V)} components. Write the results again."
                )
            own = self.row_ids.get(name) or tuple(map(str, range(len(U))))
            parts.append(U)
            ids += own if len(chosen) == 1 else [f"{name}/{each}" for each in own]
        return np.concatenate(parts), tuple(ids)
