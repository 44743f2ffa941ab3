"""Rows that a Boolean search hands to all clients, as candidates or components that one single row proposed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.audit.findings import Finding
from fedfactor.boolean.pooled.messages import AskGains, AskSwaps, AskVotes, Together
from fedfactor.core.client_data import Federation
from fedfactor.recommend.rating_model import observed

__all__ = ["row_exposure"]


def row_exposure(rounds: Sequence[tuple[Any, Any, Any]], federation: Federation) -> Finding:
    """Look for whole rows among the sets of columns that clients receive in a run of PooledBMF.

    Parameters
    ----------
    rounds : list of (round, summed upload, download)
        What a :class:`~fedfactor.privacy.Listener` kept.
    federation : Federation
        The clients of that run.

    Returns
    -------
    Finding
        ``rows``: rows of two ones or more such that no other row has all of their columns. ``rows_met``: of these, how
        many some received set equals. ``rows_published``: of these, those that only the row itself can have proposed:
        none of its columns shares each of the others with a second row. (The rest are patterns of many rows that one
        row happens to have in full.) For the server ``counts_of_one``: the share of the co-occurrence counts above
        zero that belong to one single row.
    """
    sets: set[bytes] = set()
    counts = 0
    single = 0
    for _, up, down in rounds:
        parts = [down.candidates] if isinstance(down, AskGains) else []
        parts += [down.V] if isinstance(down, AskVotes) else []
        parts += [down.V, down.pool] if isinstance(down, AskSwaps) else []
        for part in parts:
            sets.update(row.tobytes() for row in np.asarray(part, np.uint8).reshape(-1, part.shape[-1]))
        if isinstance(up, Together):
            counts = counts + int((up.together > 0).sum())
            single = single + int((up.together == 1).sum())
    parts = [observed(federation.shard(name).X, federation.shard(name).mask) for name in federation.names]
    X = scipy.sparse.csr_array(scipy.sparse.vstack(parts))
    X = scipy.sparse.csr_array(((X.data != 0).astype(np.int32), X.indices, X.indptr), shape=X.shape)
    X.eliminate_zeros()
    long = np.flatnonzero(np.diff(X.indptr) >= 2)
    alone = 0
    met = 0
    published = 0
    for row in long:
        cells = X[[row]].toarray().ravel()
        if int((X @ cells == cells.sum()).sum()) > 1:  # others have these columns too
            continue
        alone += 1
        if np.packbits(cells.astype(bool), bitorder="little").tobytes() in sets:
            met += 1
            mine = X[:, np.flatnonzero(cells)]
            published += int((mine.T @ mine).toarray().min(axis=1).max() < 2)
    figures = {
        "rows": alone,
        "rows_met": met,
        "rows_published": published,
        "sets_received": len(sets),
        "counts_of_one": single / max(1, counts),
    }
    return Finding(
        "rows among the candidates",
        "any owner, who receives them",
        "no single row is published",
        "REFUTED" if published else "consistent" if alone and sets else "not examined",
        figures,
        "min_rows=3 keeps columns and components of fewer rows back."
        if published
        else ""
        if alone and sets
        else "There was no row that another row does not contain, or nothing was received.",
    )
