"""Rows that belong to the same subject: a cap on how many of them count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import DataError

__all__ = ["cap_subjects", "keep_only", "subject_rows"]


def cap_subjects(federation: Federation, subject: str | Mapping[str, Any], cap: int) -> Federation:
    """Return the federation with at most `cap` rows per subject and client; further rows are set to zero.

    Parameters
    ----------
    federation : Federation
        Whose rows.
    subject : str or mapping of client name to ids
        A column whose values name the subject (it is then left at zero in what is factored), the column that the row
        ids were read from, or ids per client in row order.
    cap : int
        Rows of one subject that count, the first ones of each client.

    Notes
    -----
    Which rows count depends on that subject's own rows only, so one subject changes a sum by at most `cap` rows *per
    client that knows it*.
    """
    if cap != int(cap) or cap < 1:
        raise ValueError(f"cap={cap} must be a whole number of at least 1.")
    shards = {name: federation.shard(name) for name in federation.names}
    return Federation({n: keep_only(shard, *subject_rows(n, shard, subject, int(cap))) for n, shard in shards.items()})


def subject_rows(name: str, shard: Shard, subject: str | Mapping[str, Any], cap: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows of a client count, the first ones of each subject, and which columns are measurements."""
    X: Any = shard.X
    keep_columns = np.ones(shard.n_features)
    if isinstance(subject, str):
        column = shard.features.index(subject) if shard.features is not None and subject in shard.features else None
        if column is None and (shard.row_ids is None or subject != shard.id_name):
            raise DataError(
                f"Owner {name!r} has no column {subject!r} to name subjects. Name one that all owners have."
            )
        if column is None:  # ids beside the matrix are text, and exact; in a column of float32 two of them may collide
            ids = np.asarray(shard.row_ids)
        else:
            keep_columns[column] = 0
            cells = X[:, [column]]
            ids = np.asarray(cells.toarray() if scipy.sparse.issparse(cells) else cells).ravel()
    else:
        ids = np.asarray(subject[name])
    _refuse_rounded(name, subject if isinstance(subject, str) else "subject", ids)
    if ids.shape != (shard.n_rows,):
        raise DataError(f"Owner {name!r} has {shard.n_rows} rows but {ids.size} subject ids. Give one id per row.")
    return (_rank_within(ids) < cap).astype(np.float64), keep_columns


def keep_only(shard: Shard, keep_rows: np.ndarray, keep_columns: np.ndarray) -> Shard:
    """Set all other rows and columns to zero."""
    X: Any = shard.X
    if scipy.sparse.issparse(X):
        kept: Any = scipy.sparse.diags_array(keep_rows) @ X @ scipy.sparse.diags_array(keep_columns)
        kept = scipy.sparse.csr_array(kept).astype(X.dtype)
        kept.eliminate_zeros()
    else:
        kept = np.asarray(X) * keep_rows[:, None].astype(X.dtype) * keep_columns[None].astype(X.dtype)
    return replace(shard, X=kept)


def _refuse_rounded(name: str, subject: str, ids: np.ndarray) -> None:
    """Refuse ids that the dtype may have rounded: two subjects would count as one, and one as two."""
    if ids.dtype.kind != "f" or not ids.size:
        return
    most = 1 << {2: 11, 4: 24}.get(ids.dtype.itemsize, 53)
    remedy = "Read the file with id set to that column, or give subject={owner: ids} as text or integers."
    if not (ids == np.trunc(ids)).all():  # false for NaN, too
        raise DataError(
            f"The subject ids of owner {name!r} in {subject!r} are not whole numbers, and {ids.dtype} rounds others: "
            f"two subjects could count as one. {remedy}"
        )
    if float(np.abs(ids).max()) >= most:  # the first number beyond is rounded to this one
        raise DataError(
            f"The column {subject!r} of owner {name!r} holds subject ids of {most:,} or beyond, which {ids.dtype} does "
            f"not keep apart. {remedy}"
        )


def _rank_within(ids: np.ndarray) -> np.ndarray:
    """Number the rows of each subject from 0, in row order."""
    _, codes = np.unique(ids, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    lengths = np.diff(np.append(starts, ids.size))
    rank = np.empty(ids.size, np.int64)
    rank[order] = np.arange(ids.size) - np.repeat(starts, lengths)
    return rank
