"""Who owns which rows. Shards are opened lazily and never leave their owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfactor.core.checks import as_matrix, check_features, check_values, dtype_name, is_sparse, library, split_missing
from fedfactor.core.errors import DataError
from fedfactor.core.protocol import Domain, Meta
from fedfactor.core.tree import Array, is_numpy

Missing = float | str | None


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """The rows of one owner.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_rows, n_features)
        The rows. Never changed, never sent.
    mask : bool array like X, "stored", or None
        Which cells were observed: all of them (None), those marked True, or only the stored cells of a sparse matrix.
    features : tuple of str, optional
        Column names.
    holdout : bool array like X, or sparse matrix, optional
        Cells kept aside for :meth:`Algorithm.score`, which then speaks of them alone: True where X holds one, or the
        stored cells of a matrix that has them. They must not be observed cells.
    """

    X: Array
    mask: Array | str | None = None
    features: tuple[str, ...] | None = None
    holdout: Array | None = None

    @classmethod
    def of(cls, data: Any, missing_values: Missing = None) -> Shard:
        """Build a shard from an array, a sparse matrix, a data frame or a torch tensor.

        Examples
        --------
        >>> Shard.of(np.array([[1.0, np.nan]]), missing_values=np.nan).mask
        array([[ True, False]])
        """
        if isinstance(data, Shard):
            return data
        X, features = as_matrix(data)
        X, mask = split_missing(X, missing_values)
        return cls(X=X, mask=mask, features=features)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    @property
    def scored(self) -> tuple[Array, Array | str | None]:
        """The matrix and the mask of the cells that an error is about: those held out, if any, else those observed."""
        if self.holdout is None:
            return self.X, self.mask
        return (self.holdout, "stored") if is_sparse(self.holdout) else (self.X, self.holdout)

    @property
    def dtype(self) -> str:
        """Name of the floating type, such as ``"float32"``."""
        return dtype_name(self.X)


class Federation:
    """Owners by name, each with rows of one matrix.

    Parameters
    ----------
    owners : mapping of name to rows
        A matrix (dense, sparse, data frame, tensor), a :class:`Shard`, or a function without arguments that opens one
        when it is first needed. A list of matrices is named ``"0"``, ``"1"``, ...
    missing_values : None, nan, number or "unstored"
        None: NaN is an error and unstored sparse cells are zero. A value: such cells are missing. ``"unstored"``: only
        the stored cells of sparse matrices were observed.

    Notes
    -----
    Clients are known by name and always visited in name order, so the order of the mapping never matters.

    Examples
    --------
    >>> federation = Federation({"north": np.ones((3, 2)), "south": np.ones((5, 2))})
    >>> federation.names, federation.n_rows
    (('north', 'south'), 8)
    """

    def __init__(self, owners: Mapping[str, Any] | Sequence[Any], *, missing_values: Missing = None) -> None:
        if not isinstance(owners, Mapping):
            owners = {str(position): rows for position, rows in enumerate(owners)}
        if not owners:
            raise DataError("A federation needs at least one owner, but none was given.")
        names = [str(name) for name in owners]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise DataError(f"Two owners share the name {twice[0]!r} (names are compared as text). Rename one of them.")
        self.missing_values = missing_values
        self._owners: dict[str, Any] = dict(sorted(zip(names, owners.values(), strict=True)))
        self._open: dict[str, Shard] = {}
        self._agreed: tuple[str, ...] | None = None
        self._checked = False

    @property
    def names(self) -> tuple[str, ...]:
        """Client names, sorted: the order of every sum."""
        return tuple(self._owners)

    def __len__(self) -> int:
        """Count the owners."""
        return len(self._owners)

    def __iter__(self) -> Any:
        """Iterate over the names."""
        return iter(self._owners)

    def shard(self, name: str) -> Shard:
        """Open one owner's rows; the second call returns the same shard."""
        if name not in self._open:
            if name not in self._owners:
                raise KeyError(f"No owner is called {name!r}; the owners are {', '.join(self.names)}.")
            source = self._owners[name]
            data = source() if callable(source) else source
            try:
                self._open[name] = Shard.of(data, self.missing_values)
            except DataError as error:
                raise DataError(f"Owner {name!r}: {error}") from None
        return self._open[name]

    def opener(self, name: str) -> Any:
        """Return what a worker process needs to open one owner's rows itself: its function, or the rows."""
        source = self._owners[name]
        return source if callable(source) else self.shard(name)

    @property
    def n_rows(self) -> int:
        """Rows of all owners together."""
        return sum(self.shard(name).n_rows for name in self.names)

    @property
    def n_features(self) -> int:
        """Columns, equal for all owners."""
        return self.shard(self.names[0]).n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Column names, when the owners have them."""
        return self.shard(self.names[0]).features

    def prepare(self, domain: Domain = "nonnegative") -> Meta:
        """Open and check every shard, bring all to one dtype and one order of columns, and say what is public.

        Raises
        ------
        DataError
            Empty owners, unequal columns, duplicate or clashing names, values outside the domain; nothing has been
            computed then.
        """
        first = self.names[0]
        reference = self.shard(first)
        for name in self.names:
            shard = self.shard(name)
            if shard.n_rows == 0:
                raise DataError(f"Owner {name!r} has no rows. Leave it out, or give it at least one row.")
            if shard.n_features != reference.n_features:
                raise DataError(
                    f"Owner {name!r} has {shard.n_features} columns but {first!r} has {reference.n_features}. All "
                    "owners must have the same features in the same columns."
                )
            if library(shard.X) != library(reference.X):
                raise DataError(
                    f"Owner {name!r} brings {library(shard.X)} data but {first!r} brings {library(reference.X)}: their "
                    "sums cannot be added. Convert one of them."
                )
            order = check_features(name, shard.features, first, reference.features)
            if order is not None:
                self._open[name] = _reorder(shard, order, reference.features)
        dtype = "float32" if all(self.shard(name).dtype == "float32" for name in self.names) else "float64"
        for name in self.names:
            shard = self._open[name] = _cast(self.shard(name), dtype)
            check_values(name, shard.X, shard.mask, domain)
        masked = any(self.shard(name).mask is not None for name in self.names)
        return Meta(self.n_features, self.names, dtype, masked, self.n_rows)


def _reorder(shard: Shard, order: Sequence[int], features: tuple[str, ...] | None) -> Shard:
    X = shard.X[:, np.asarray(order)]
    mask = shard.mask if shard.mask is None or isinstance(shard.mask, str) else shard.mask[:, np.asarray(order)]
    return Shard(X, mask, features, shard.holdout)


def _cast(shard: Shard, dtype: str) -> Shard:
    if shard.dtype == dtype:
        return shard
    X: Any = shard.X.astype(dtype) if is_numpy(shard.X) or is_sparse(shard.X) else shard.X.double()
    return Shard(X, shard.mask, shard.features, shard.holdout)


Opener = Callable[[], Any]
