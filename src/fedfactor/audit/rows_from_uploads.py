"""Attacks on what clients send: each upload by itself where the server sees it, and their sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.audit.aggregate_attacks import differencing_error, singleton_columns, singleton_exposure
from fedfactor.audit.findings import Finding
from fedfactor.audit.method_attacks import factor_inference
from fedfactor.audit.reconstruction import (
    MOST_RANK,
    binary_rows_in_span,
    reconstruction_rate,
    rows_confirmed,
    spans_less,
)
from fedfactor.core.algorithm import Algorithm, Uplink, download_for
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import FedfactorError, IncompatibleError, ProtocolError
from fedfactor.core.pytree import Tree, leaves, to_numpy
from fedfactor.engines import client_step as client
from fedfactor.engines.run import run
from fedfactor.privacy.minimums import Minimums, RefusedError
from fedfactor.privacy.planner import parts_of
from fedfactor.privacy.upload_recorder import Listener

__all__ = ["SERVER", "dense", "differencing", "rows_from_sums", "rows_from_uploads", "singletons", "wide_matrices"]

SERVER = "the server, which follows the protocol and looks at all it gets"
LATE = 20
"""Round in which a client drops out: by then V moves little, and the difference of two sums is that client's part."""
ROWS = "no row can be read from what the server sees"
ONE_UPLOAD = "rows from one upload in the clear"
_COUNTED = ("rows", "recovered", "false", "confirmed")
NO_MATRIX = "No upload here holds a matrix over all columns; what its numbers reveal about rows was not tested."
SUMS = 10
"""Sums of each kind in which rows are looked for."""


def dense(X: Any) -> np.ndarray:
    """Return rows as a dense array."""
    return X.toarray() if scipy.sparse.issparse(X) else to_numpy(X)


def wide_matrices(tree: Any, m: int) -> list[np.ndarray]:
    """List the matrices over all columns in a message, vectors as one row; those with columns as rows are turned."""
    found = [to_numpy(leaf).astype(np.float64) for _, leaf in leaves(tree)]
    found = [leaf[None] if leaf.shape == (m,) else leaf for leaf in found]
    found = [leaf for leaf in found if leaf.ndim == 2 and m in leaf.shape and 0 not in leaf.shape]
    return [leaf if leaf.shape[1] == m else leaf.T for leaf in found]


def _sent_by(
    algorithm: Algorithm, federation: Federation, name: str, heard: Listener, seed: int
) -> list[tuple[Tree, Tree, Tree]]:
    """Replay one client along what a run sent to it: (upload, download, state then) of each round."""
    meta = federation.prepare(algorithm.domain)
    shard = federation.shard(name)
    state = client.begin(algorithm, shard, meta, seed, name)
    found: list[tuple[Tree, Tree, Tree]] = []
    for at, _, down in heard.rounds:
        got = download_for(down, name)
        state, up = client.step(algorithm, shard, state, got, replace(at, client=name, participants=meta.clients))
        found.append((up, got, state))
    return found


def rows_from_uploads(algorithm: Algorithm, federation: Federation, seed: int, *, all_kinds: bool) -> list[Finding]:
    """Read rows out of each client's own uploads, one of every kind; beside secure aggregation, of those seen one by
    one.
    """
    heard = Listener()
    k = getattr(algorithm, "n_components", 1)
    try:
        run(algorithm, federation, seed=seed, privacy=(heard,))
    except FedfactorError as error:
        return [Finding(ONE_UPLOAD, SERVER, ROWS, "not examined", {}, f"The run did not come to an end: {error}")]
    rows = {name: dense(federation.shard(name).X) for name in federation.names}
    small = [name for name in federation.names if len(rows[name]) <= k]
    search = _Search(federation.n_features)
    inferred = list[float]()
    rng = np.random.default_rng(seed)
    for name, X in rows.items():
        others = np.concatenate([part for other, part in rows.items() if other != name] or [X[:0]])
        kinds: dict[type, tuple[Any, Any]] = {}
        for up, got, _ in _sent_by(algorithm, federation, name, heard, seed):
            if up is not None and (all_kinds or up.uplink == Uplink.GATHER):
                kinds.setdefault(up.__class__, (up, got))
        last = search.owner(X, others, kinds)
        if last and name in small[:5]:
            inferred.append(factor_inference(X, last[-1], 0.25, rng, ridge=1e-6))
    return [search.finding(len(small)), _inference(inferred, k)]


class _Search:
    """Looks for rows in uploads, client by client, and counts what comes back."""

    def __init__(self, n_features: int) -> None:
        self._m = n_features
        self.total = dict.fromkeys((*_COUNTED, "uploads", "uploads_that_span_everything"), 0)
        self._silent = set[str]()
        self._full = set[str]()
        self._looked_at = set[str]()

    def owner(self, X: np.ndarray, others: np.ndarray, kinds: dict[type, tuple[Any, Any]]) -> list[np.ndarray]:
        """Search what one client sent; return the matrices of the last kind that has any."""
        last: list[np.ndarray] = []
        best = dict.fromkeys(_COUNTED, 0)
        for kind, (up, got) in kinds.items():
            blocks = wide_matrices(up, self._m)
            received = wide_matrices(got, self._m)
            if not blocks:
                self._silent.add(kind.__name__)
                continue
            last = blocks
            self.total["uploads"] += 1
            if not spans_less(*blocks):
                self.total["uploads_that_span_everything"] += 1
                self._full.add(kind.__name__)
                continue
            self._looked_at.add(kind.__name__)
            one = _searched(X, others, blocks, received)
            best = {word: max(best[word], one[word]) for word in best}
        for word, count in best.items():
            self.total[word] += count
        return last

    def finding(self, small: int) -> Finding:
        """Return what was found, and what could not be searched."""
        total = self.total
        silent = sorted(self._silent)
        unseen = sorted(self._full - self._looked_at)
        word = "REFUTED" if total["recovered"] or total["confirmed"] else "consistent"
        note = f"Kinds without a matrix over all columns, not searched: {', '.join(silent)}." if silent else ""
        if not total["uploads"]:
            word = "not examined"
            note = NO_MATRIX
        elif word == "consistent" and unseen:
            why = "every one spans all columns, so that this search has no result."
            word = "not examined"
            note = f"{', '.join(unseen)}: {why} {note}"
        return Finding(ONE_UPLOAD, SERVER, ROWS, word, {**total, "owners_with_few_rows": small}, note.strip())


def _inference(inferred: list[float], k: int) -> Finding:
    """Return how well cells were guessed that the attacker did not know."""
    attack = "unknown cells from one upload and a quarter of the cells"
    if not inferred:
        note = f"No owner has as few rows as there are components ({k})."
        return Finding(attack, SERVER, ROWS, "does not apply", {}, note)
    error = float(np.median(inferred))
    figures = {"relative_error_on_unknown_cells": error, "owners": len(inferred)}
    return Finding(attack, SERVER, ROWS, "REFUTED" if error < 0.1 else "consistent", figures)


def _searched(
    X: np.ndarray, others: np.ndarray, blocks: list[np.ndarray], received: list[np.ndarray]
) -> dict[str, int]:
    """Look for rows in the span of an upload, and in that of the upload and what came before it."""
    binary = bool(np.isin(X, (0, 1)).all())
    found: dict[str, int] = {"rows": len(np.unique(X, axis=0)), "recovered": 0, "false": 0}
    found["confirmed"] = rows_confirmed(X, others, *blocks)
    if binary:
        direct = binary_rows_in_span(*blocks)
        through = direct if direct.size or not received else binary_rows_in_span(*blocks, *received)
        found |= reconstruction_rate(X, through)
    return found


def rows_from_sums(heard: Listener, federation: Federation, others: np.ndarray) -> Finding:
    """Try the same on the sums that the server was handed, the first ones of every kind."""
    X = np.concatenate([dense(federation.shard(name).X) for name in federation.names])
    binary = bool(np.isin(X, (0, 1)).all())
    attack = "rows from the sums"
    total = {"rows": len(X), "recovered": 0, "false": 0, "confirmed": 0, "sums": 0, "sums_that_span_everything": 0}
    seen: dict[str, int] = {}
    silent = set[str]()
    wide = 0
    for _, up, _ in heard.rounds:
        kind = type(up).__name__
        seen[kind] = seen.get(kind, 0) + 1
        if isinstance(up, Mapping) or seen[kind] > SUMS:
            continue
        blocks = wide_matrices(up, X.shape[1])
        if not blocks:
            silent.add(kind)
            continue
        total["sums"] += 1
        if not spans_less(*blocks):
            total["sums_that_span_everything"] += 1
            continue
        total["confirmed"] = max(total["confirmed"], rows_confirmed(X, others, *blocks))
        wide += int(min(np.vstack(blocks).shape) > MOST_RANK)
        rate = reconstruction_rate(X, binary_rows_in_span(*blocks)) if binary else {"recovered": 0, "false": 0}
        total["recovered"] = max(total["recovered"], rate["recovered"])
        total["false"] = max(total["false"], rate["false"])
    notes = [] if binary else ["Of values that are not 0 or 1, only guesses can be confirmed; rows are not listed."]
    notes += [f"{wide} sums have too many dimensions to list binary rows; guesses were tried."] if wide else []
    notes += [f"Kinds without a matrix over all columns, not searched: {', '.join(sorted(silent))}."] if silent else []
    word = "REFUTED" if total["recovered"] or total["confirmed"] else "consistent"
    if all(isinstance(up, Mapping) for _, up, _ in heard.rounds):
        word = "does not apply"
        notes = ["Nothing is summed: the server sees each upload."]
    elif not total["sums"]:
        word = "not examined"
        notes = [NO_MATRIX]
    elif total["sums"] == total["sums_that_span_everything"]:
        word = "not examined"
        notes = ["Every sum spans all columns, so that this search has no result.", *notes]
    return Finding(attack, SERVER, ROWS, word, total, " ".join(notes))


def singletons(algorithm: Algorithm, federation: Federation, parts: Sequence[Any], seed: int) -> Finding:
    """Look for columns that one row fills, in the first sum of the run as it would really be made."""
    heard = Listener()
    if getattr(algorithm, "start", "random") not in ("random", "common", "own"):
        # A start of its own keeps no U to compare with; the rounds after it send sums of the kind looked at here.
        algorithm = replace(algorithm, start="random")
    attack = "columns that one row fills"
    claim = "no row's u is shown by a sum"
    X = scipy.sparse.vstack([scipy.sparse.csr_array(federation.shard(name).X) for name in federation.names])
    if not singleton_columns(X)[0].size:
        return Finding(attack, SERVER, claim, "does not apply", {}, "Every column has two rows or more, or none.")
    try:
        result = run(algorithm, federation, rounds=1, seed=seed, privacy=(heard, *parts))
    except FedfactorError as error:
        return Finding(attack, SERVER, claim, "not examined", {}, f"A run of one round is refused: {error}")
    first: Tree = heard.rounds[0][1] if heard.rounds else {}
    blocks = [] if isinstance(first, Mapping) else wide_matrices(first, federation.n_features)
    sent = [_sent_by(algorithm, federation, name, heard, seed)[0] for name in federation.names] if blocks else []
    U = [_u_of(state, algorithm) for _, _, state in sent]
    if not blocks or any(len(u) != federation.shard(name).n_rows for u, name in zip(U, federation.names, strict=True)):
        return Finding(attack, SERVER, claim, "not examined", {}, NO_MATRIX)
    figures = singleton_exposure(blocks[-1], np.concatenate(U), X)
    figures["withheld_columns"] = (result.privacy or {}).get("withheld_columns", 0)
    return Finding(attack, SERVER, claim, "REFUTED" if figures["rows_exposed"] else "consistent", figures)


def _u_of(state: Any, algorithm: Algorithm) -> np.ndarray:
    k = getattr(algorithm, "n_components", 1)
    found = [to_numpy(leaf) for path, leaf in leaves(state) if path.split(".")[-1] == "U"]
    return next((U for U in found if U.ndim == 2 and U.shape[1] == k), np.zeros((0, k)))


def differencing(algorithm: Algorithm, federation: Federation, parts: Sequence[Any], seed: int) -> Finding:
    """Let one client stay away from a late round, between parties for which minimums are not mere warnings."""
    gone, heard = federation.names[-1], Listener()
    minimums = parts_of(parts).minimums
    allowed = tuple({*minimums.allow, "small-client", "few-clients", "rare-columns"})
    strict = replace(minimums, strict=True, allow=allowed)
    rest = [part for part in parts if not isinstance(part, Minimums)]
    attack = "difference of two sums"
    claim = "the sums of two rounds do not give one client's upload"
    algorithm = replace(algorithm, tol=0.0) if hasattr(algorithm, "tol") else algorithm
    late = LATE
    while True:
        try:
            run(
                algorithm,
                federation,
                rounds=late + 1,
                seed=seed,
                privacy=(heard, *rest, strict),
                participation=lambda at, names, late=late: [n for n in names if at.index < late or n != gone],
            )
        except (RefusedError, IncompatibleError, ProtocolError) as refusal:  # a sum of too few is refused
            return Finding(attack, SERVER, claim, "consistent", {"refused": True}, str(refusal))
        if len(heard.rounds) > late or len(heard.rounds) < 2:
            break
        heard, late = Listener(), len(heard.rounds) - 1  # a method of few rounds: away from its last
    if len(heard.rounds) < 2:
        return Finding(attack, SERVER, claim, "does not apply", {}, "There is one sum only.")
    before = replace(heard, rounds=heard.rounds[:-1])
    sent = (
        *(up for _, up, _ in heard.rounds[-2:]),
        _sent_by(algorithm, federation, gone, before, seed)[-1][0],
    )
    blocks = [wide_matrices(up, federation.n_features) for up in sent]
    if not all(blocks):
        return Finding(attack, SERVER, claim, "not examined", {}, NO_MATRIX)
    error = differencing_error(*(found[-1] for found in blocks))
    return Finding(attack, SERVER, claim, "REFUTED" if error < 0.5 else "consistent", {"relative_error": error})
