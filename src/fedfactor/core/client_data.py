"""Who owns which rows. Shards are opened lazily and never leave their client."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Domain, Meta
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import (
    as_matrix,
    check_features,
    check_parts,
    check_scale,
    check_tiling,
    check_values,
    dtype_name,
    is_sparse,
    library,
    row_ids_of,
    wake_card,
)
from fedfactor.core.missing_policies import split_missing
from fedfactor.core.pytree import Array, is_numpy

Missing = float | str | None


HALVES = ("bfloat16", "float16")
"""Types of torch in which rows may be stored at half the bytes."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Shard:
    """The rows of one client.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_rows, n_features)
        The rows. Never changed, never sent.
    mask : bool array like X, "stored", or None
        Which cells were observed: all of them (None), those marked True, or only the stored cells of a sparse matrix.
    features : tuple of str, optional
        Column names.
    holdout : bool array like X, or sparse matrix, optional
        Cells held out for :meth:`Algorithm.score`, which then speaks of them alone: True where X holds one, or the
        stored cells of a matrix that has them. They must not be observed cells.
    row_ids : tuple of str, optional
        What the client calls its rows. They stay with the client, as the rows do.
    id_name : str, optional
        The column that the ids came from.
    lost : float, default=0
        ``‖stored − X‖²`` where the rows are stored in half precision, rounded by chance: what an error of the stored
        rows has too much.
    """

    X: Array
    mask: Array | str | None = None
    features: tuple[str, ...] | None = None
    holdout: Array | None = None
    row_ids: tuple[str, ...] | None = None
    id_name: str | None = None
    lost: float = 0.0

    @classmethod
    def of(cls, data: Any, missing_values: Missing = None) -> Shard:
        """Build a shard from an array, a sparse matrix, a data frame, a torch tensor, AnnData, or a table as read.

        Examples
        --------
        >>> Shard.of(np.array([[1.0, np.nan]]), missing_values=np.nan).mask
        array([[ True, False]])
        """
        if isinstance(data, Shard):
            sketched = data.bounds is not None and data.place is None  # whose methods read columns
            X = check_parts(data.X, data.mask, data.named, grid=sketched)
            if data.place is not None and is_numpy(X):
                X = np.ascontiguousarray(X)  # a block is often cut out of a wider matrix, which it must not keep
            return data if X is data.X else replace(data, X=X)
        X, features = as_matrix(data)
        # What is remembered of sparse rows shall not outlive the shard: an object of its own, with the same cells.
        X = copy.copy(X) if is_sparse(X) else X
        X, mask = split_missing(X, getattr(data, "missing_values", None) if missing_values is None else missing_values)
        return cls(X, mask, features, row_ids=row_ids_of(data), id_name=getattr(data, "id_name", None))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    @property
    def named(self) -> tuple[str, ...] | None:
        """Names of the columns that X has."""
        return self.features

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

    @property
    def bounds(self) -> tuple[int, int, int, int] | None:
        """Where a block of a grid lies in the whole matrix; None for rows alone."""
        return None

    @property
    def place(self) -> tuple[int, int] | None:
        """Row and column on a grid of blocks; None for a shard that is no such block."""
        return None

    def take(self, rows: np.ndarray) -> Shard:
        """Return some of the rows, with their mask and ids; none of their cells is held out.

        Examples
        --------
        >>> Shard(np.eye(3), row_ids=("a", "b", "c")).take(np.array([2, 0])).row_ids
        ('c', 'a')
        """
        mask = self.mask if self.mask is None or isinstance(self.mask, str) else self.mask[rows]
        ids = None if self.row_ids is None else tuple(self.row_ids[int(row)] for row in rows)
        return replace(self, X=self.X[rows], mask=mask, holdout=None, row_ids=ids)

    def cast(self, dtype: str) -> Shard:
        """Bring the rows to a floating type."""
        X: Any = self.X.astype(dtype) if is_numpy(self.X) or is_sparse(self.X) else _as_tensor(self.X, dtype)
        held: Any = self.holdout
        return replace(self, X=X, holdout=held.astype(dtype) if is_sparse(held) else held)


def _as_tensor(X: Any, dtype: str) -> Any:
    return X.float() if dtype == "float32" else X.double()


class Federation:
    """Clients by name, each with rows of one matrix.

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
    ``preprocess`` holds what was done to the rows before (steps, and a weight for each column), to be kept with
    results. What is worked out from sparse rows may be kept as long as the federation: after writing into their cells,
    make a new one.

    Examples
    --------
    >>> federation = Federation({"north": np.ones((3, 2)), "south": np.ones((5, 2))})
    >>> federation.names, federation.n_rows
    (('north', 'south'), 8)
    """

    def __init__(self, owners: Mapping[str, Any] | Sequence[Any], *, missing_values: Missing = None) -> None:
        if hasattr(owners, "shape") or isinstance(owners, (str, bytes)):
            # Its rows, or its column names, would otherwise become clients.
            raise DataError(
                f"A federation needs owners by name, or a list of matrices, but this is one {type(owners).__name__}. "
                "Give {'a': X} for one owner, or split the rows with fedfactor.data.split_rows(X, labels)."
            )
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
        self.preprocess: Mapping[str, Any] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Client names, sorted: the order of every sum."""
        return tuple(self._owners)

    def __len__(self) -> int:
        """Count the clients."""
        return len(self._owners)

    def __iter__(self) -> Any:
        """Iterate over the names."""
        return iter(self._owners)

    def shard(self, name: str) -> Shard:
        """Open one client's rows; the second call returns the same shard."""
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
        """Return what a worker process needs to open one client's rows itself: its function, or the rows."""
        source = self._owners[name]
        return source if callable(source) else self.shard(name)

    @property
    def n_rows(self) -> int:
        """Rows of all clients together; those of a line of a grid are counted once."""
        shards = [self.shard(name) for name in self.names]
        return sum(shard.n_rows for shard in shards if shard.place is None or shard.place[1] == 0)

    @property
    def n_features(self) -> int:
        """Columns, equal for all clients."""
        return self.shard(self.names[0]).n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Column names, when the clients have them."""
        return self.shard(self.names[0]).features

    def prepare(self, domain: Domain = Domain.NONNEGATIVE, halves: bool = False) -> Meta:
        """Open and check every shard, bring all to one dtype and one order of columns, and return the public facts.

        Tensors of half precision on a GPU stay as they are with `halves`, and factors are then of single precision;
        without, they become single precision themselves.

        Raises
        ------
        DataError
            Empty clients, unequal columns, duplicate or clashing names, values outside the domain; nothing has been
            computed then.
        """
        found = [self.facts(name) for name in self.names]
        meta = agree(found)
        check_scale(self.adopt(found[0], meta, domain, halves), meta.dtype)
        wake_card(self.shard(self.names[0]).X)
        return meta

    def facts(self, name: str) -> Facts:
        """Open one client's rows and return what all parties must agree on."""
        shard = self.shard(name)
        masked = shard.mask is not None
        size = (shard.n_rows, shard.n_features)
        return Facts(name, *size, library(shard.X), shard.dtype, masked, shard.features, shard.bounds, shard.place)

    def adopt(self, first: Facts, meta: Meta, domain: Domain, halves: bool = False) -> float:
        """Bring the clients' rows to the agreed dtype and order of columns; look at every value, return the largest."""
        largest = 0.0
        for name in self.names:
            shard = self.shard(name)
            order = check_features(name, shard.features, first.name, first.features)
            if order is not None:
                if shard.bounds is not None:
                    raise DataError(f"The columns of node {name!r} are in another order than those of {first.name!r}.")
                shard = _reorder(shard, order, first.features)
            shard = self._open[name] = _cast(shard, meta.dtype, halves)
            largest = max(largest, check_values(name, shard.X, shard.mask, domain, shard.named, shard.row_ids))
        return largest


@dataclass(frozen=True, slots=True)
class Facts:
    """What parties exchange before a run, so that none of them has to open another's rows."""

    name: str
    n_rows: int
    n_features: int
    library: str
    dtype: str
    masked: bool
    features: tuple[str, ...] | None
    bounds: tuple[int, int, int, int] | None
    place: tuple[int, int] | None = None


def agree(found: Sequence[Facts]) -> Meta:
    """Compare the facts of all clients, in name order, and return the public ones; refuse what does not fit
    together.
    """
    first = found[0]
    for each in found:
        if each.n_rows == 0 and each.place is None:
            raise DataError(f"Owner {each.name!r} has no rows. Leave it out, or give it at least one row.")
        check_features(each.name, each.features, first.name, first.features)
        if each.n_features != first.n_features:
            raise DataError(
                f"Owner {each.name!r} has {each.n_features} columns but {first.name!r} has {first.n_features}. All "
                "owners must have the same features in the same columns."
            )
        if each.library != first.library:
            raise DataError(
                f"Owner {each.name!r} brings {each.library} data but {first.name!r} brings {first.library}: their "
                "sums cannot be added. Convert one of them."
            )
    check_tiling([each.bounds for each in found], first.n_features, [each.place for each in found])
    dtype = "float32" if all(each.dtype == "float32" or each.dtype in HALVES for each in found) else "float64"
    names = tuple(each.name for each in found)
    masked = any(each.masked for each in found)
    blocks = tuple((*each.place, *each.bounds) for each in found if each.place and each.bounds) or None
    n_rows = max(block[3] for block in blocks) if blocks else sum(each.n_rows for each in found)
    return Meta(first.n_features, names, dtype, masked, n_rows, blocks)


def _reorder(shard: Shard, order: Sequence[int], features: tuple[str, ...] | None) -> Shard:
    def turned(part: Any) -> Any:
        return part if part is None or isinstance(part, str) else part[:, np.asarray(order)]

    return replace(shard, X=turned(shard.X), mask=turned(shard.mask), features=features, holdout=turned(shard.holdout))


def _cast(shard: Shard, dtype: str, halves: bool) -> Shard:
    kept = halves and dtype == "float32" and shard.dtype in HALVES
    return shard if shard.dtype == dtype or kept else shard.cast(dtype)
