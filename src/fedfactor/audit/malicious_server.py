"""A server that lies: it sends what no honest one sends, and asks for answers that depend on rows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fedfactor.audit.findings import Finding
from fedfactor.core.algorithm import Algorithm, Domain, download_for
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import ProtocolError
from fedfactor.core.flattened_upload import flatten
from fedfactor.core.pytree import Array, Tree, leaves, to_numpy, tree_map
from fedfactor.core.wire import check_message
from fedfactor.engines import client_step as client
from fedfactor.privacy.secure_aggregation.fixed_point import quantise
from fedfactor.privacy.upload_recorder import Listener

__all__ = ["chosen_downloads", "refusals_that_tell"]

LIAR = "a server that lies: it sends what it likes to one party of a federation"
FRACTION = 32
"""Fractional bits of secure aggregation."""

LIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "not_finite": lambda leaf: np.full_like(leaf, np.nan),
    "negative": lambda leaf: -leaf,
    "one_column": lambda leaf: np.concatenate([np.full_like(leaf[..., :1], -1.0), leaf[..., 1:]], axis=-1),
    "tiny": lambda leaf: leaf * leaf.dtype.type(1e-9),
    "huge": lambda leaf: leaf * leaf.dtype.type(1e9),
}
"""How a false question changes a matrix of reals. Signs choose which rows contribute; sizes cause overflow."""


def _honest(heard: Listener, name: str) -> dict[type, list[Tree]]:
    found: dict[type, list[Tree]] = {}
    for _, _, down in heard.rounds:
        got = download_for(down, name)
        found.setdefault(got.__class__, []).append(got)
    return found


def _only(leaf: Array, told: Callable[[np.ndarray], np.ndarray]) -> Callable[[Array], Array]:
    """Return a function that changes one leaf and leaves all others as they are."""
    return lambda each: told(to_numpy(each)) if each is leaf else each


def chosen_downloads(algorithm: Algorithm, federation: Federation, heard: Listener) -> Finding:
    """Offer a party downloads that no honest server sends, and count those that it would work on.

    Parameters
    ----------
    algorithm : Algorithm
        Whose ``accepts`` a party asks before it touches rows, after form and finite values are checked.
    federation : Federation
        The clients.
    heard : Listener
        What an honest server sent in a run: signs that occur there are no lie.
    """
    attack = "downloads that no honest server sends"
    claim = "a party works on no V that chooses which rows speak"
    meta = federation.prepare(algorithm.domain)
    expected = algorithm.messages(meta)
    taken = dict.fromkeys(LIES, 0)
    offered = dict.fromkeys(LIES, 0)
    for downs in _honest(heard, federation.names[0]).values():
        for path, leaf in leaves(downs[0]):
            if np.ndim(leaf) < 2 or to_numpy(leaf).dtype.kind != "f":
                continue
            signed = any((to_numpy(dict(leaves(down))[path]) < 0).any() for down in downs)
            for lie, told in LIES.items():
                if signed and lie in ("negative", "one_column"):
                    continue
                forged = tree_map(_only(leaf, told), downs[0])
                offered[lie] += 1
                taken[lie] += int(not _refused(algorithm, forged, meta, expected))
    figures = {"offered": sum(offered.values()), **{f"taken_{lie}": count for lie, count in taken.items()}}
    if not figures["offered"]:
        note = "No download of this method holds a matrix of real numbers; lies of other kinds were not tried."
        return Finding(attack, LIAR, claim, "not examined", figures, note)
    refuted = any(taken[lie] for lie in ("not_finite", "negative", "one_column"))
    note = "A V that an honest server could send is a question too: only limits of runs and noise bound many of them."
    if taken["tiny"] or taken["huge"]:
        note += " This method promises no length of V, so that any is taken."
    return Finding(attack, LIAR, claim, "REFUTED" if refuted else "consistent", figures, note)


def _refused(algorithm: Algorithm, down: Tree, meta: Any, expected: Any) -> bool:
    try:
        check_message(down, expected)
    except ProtocolError:
        return True
    return bool(algorithm.accepts(down, meta))


def refusals_that_tell(algorithm: Algorithm, federation: Federation, heard: Listener, seed: int) -> Finding:
    """Ask a client the first question of a run with rows of other sizes: whether it answers must not depend on them."""
    attack = "answers or refusals that depend on rows"
    claim = "a party's answer is the promised message, whatever its rows hold"
    name = federation.names[0]
    meta = federation.prepare(algorithm.domain)
    shard = federation.shard(name)
    sizes = (0.0, 1.0) if algorithm.domain == Domain.BINARY else (0.0, 1.0, 1e-12, 1e12)
    silent: dict[float, str] = {}
    log = logging.getLogger("fedfactor")
    log.disabled, before = True, log.disabled  # cut values are logged at the client, many times here
    for size in sizes:
        try:
            rows = replace(shard, X=(shard.X * size).astype(shard.X.dtype))
            state = client.begin(algorithm, rows, meta, seed, name)
            at, _, down = heard.rounds[0]
            with np.errstate(all="ignore"):
                here = replace(at, client=name, participants=meta.clients)
                _, up = client.step(algorithm, rows, state, download_for(down, name), here)
                quantise(flatten(up, noisy=False)[0].values, FRACTION, meta.n_clients, cut=True)
        except Exception as error:
            silent[size] = f"{type(error).__name__}: {error}"
    log.disabled = before
    figures = {"sizes_tried": len(sizes), "sizes_refused": len(silent)}
    if len(silent) == len(sizes):
        return Finding(
            attack, LIAR, claim, "not examined", figures, f"Nothing was answered at all: {silent[1.0]}"[:300]
        )
    # What is refused of the real rows is refused at home, before anything is sent: that is no answer.
    told = f"Rows times {next(iter(silent)):g}: {next(iter(silent.values()))}"[:300] if silent else ""
    return Finding(attack, LIAR, claim, "REFUTED" if silent else "consistent", figures, told)
