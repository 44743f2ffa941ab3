"""The steps of FedDMF that need no training: what is sent, what is taken in, and what is left at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfactor.core.algorithm import Meta, Round, Score
from fedfactor.core.client_data import Shard
from fedfactor.core.client_items import held_columns, open_columns
from fedfactor.core.wire import Leaf, Spec
from fedfactor.recommend.feddmf import network as dmf
from fedfactor.recommend.feddmf.messages import (
    Anchor,
    Catalogue,
    DeepFactors,
    Done,
    Hello,
    Holdings,
    Local,
    Publish,
    Published,
    Server,
    Vectors,
)
from fedfactor.recommend.feddmf.negative_sampling import ones_of, zeros_of

if TYPE_CHECKING:
    from fedfactor.recommend.feddmf.algorithm import FedDMF

SHARED = {
    "items": (),
    "tower": ("item_weight", "item_bias", "join_item", "join_bias"),
    "network": dmf.LAYERS,
}


def messages(settings: FedDMF, meta: Meta) -> dict[type, Spec]:
    """Announce every message; the number of common items is known only once holdings are counted."""
    m = meta.n_features
    d = settings.n_components
    kind = meta.dtype
    whole = Leaf("int64", ())
    flag = Leaf("bool", ())
    number = Leaf("float64", ())
    some = {"Q": Leaf(kind, (m, d), exact=False), "count": Leaf(kind, (m,), exact=False)}
    every = {"Q": Leaf(kind, (m, d)), "count": Leaf(kind, (m,))}
    layers = {f"net.{name}": Leaf(kind, value.shape) for name, value in _layers(settings, kind).items()}
    weight = {"weight": number} if layers else {}
    watch = {"sse": number, "n": number} if settings.patience else {}
    items = {"items": Leaf("int64", (m,), exact=False), "seen_in": whole, "keep": flag}
    return {
        Hello: {"n_components": whole},
        Holdings: {"count": every["count"]},
        Anchor: {**items, "total": some["Q"], "count": some["count"], **layers},
        Vectors: {**some, **layers, **weight, **watch},
        Publish: {"keep": flag},
        Published: every,
        Catalogue: {"total": every["Q"], "count": every["count"]},
        Done: {"n": whole},
    }


def _layers(settings: FedDMF, kind: str) -> dict[str, np.ndarray]:
    net = dmf.draw_network(settings.n_components, settings.hidden, np.random.default_rng(0), kind)
    return {name: np.zeros_like(net[name]) for name in SHARED[settings.share]}


def marks(columns: np.ndarray, size: int, kind: Any) -> np.ndarray:
    """Return ones at some columns and zeros elsewhere."""
    found = np.zeros(size, kind)
    found[columns] = 1
    return found


def set_aside(settings: FedDMF, shard: Shard, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the cells on which epochs are compared: a share of the ones, and zeros in the ratio of training."""
    none = np.zeros(0, np.int64), np.zeros(0, np.uint8)
    if not settings.patience:
        return none
    columns = held_columns(shard)
    ones = np.setdiff1d(ones_of(shard.X, columns), held_out(shard, columns), assume_unique=True)
    some = np.sort(rng.choice(ones, int(settings.validation * len(ones)), replace=False))
    if not len(some):
        return none
    hidden = np.union1d(np.setdiff1d(ones, some), held_out(shard, columns))
    ratio = 4 if settings.negatives is None else settings.negatives
    zeros = np.unique(zeros_of(np.union1d(hidden, some), shard.n_rows * len(columns), ratio * len(some), rng))
    cells = np.concatenate([some, zeros])
    order = np.argsort(cells)
    return cells[order], (np.arange(len(cells)) < len(some))[order].astype(np.uint8)


def held_out(shard: Shard, columns: np.ndarray) -> np.ndarray:
    """Number the cells that the shard holds out for evaluation."""
    if shard.holdout is None:
        return np.zeros(0, np.int64)
    mask = np.asarray(shard.holdout, bool)
    mask = np.broadcast_to(mask[:, None], (len(mask), len(columns))) if mask.ndim == 1 else mask[:, columns]
    return np.flatnonzero(mask)


def hidden_cells(shard: Shard, state: Local, columns: np.ndarray) -> np.ndarray | None:
    """Return the cells that training must not see, rising."""
    aside = held_out(shard, columns)
    cells = np.union1d(state.cells, aside) if len(state.cells) else aside
    return cells if len(cells) else None


def common_part(shard: Shard, state: Local, down: Anchor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find held items that others sent vectors of; return their places, the others' mean vectors, and those of all.

    What the client itself sent is taken out of the sum: for two clients, what is left is the other one's vector.
    """
    gave = int(down.seen_in) >= 0 and int(state.sent_in) == int(down.seen_in)
    return _others(shard, state.weights["Q"], down.items, down.total, down.count, gave)


def _others(
    shard: Shard, Q: np.ndarray, items: np.ndarray, total: np.ndarray, count: np.ndarray, gave: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    held = held_columns(shard)
    place = np.minimum(np.searchsorted(held, items), max(0, len(held) - 1))
    here = (held[place] == items) & (count > 0.5) if len(held) else np.zeros(len(items), bool)
    items = items[here]
    place = place[here]
    total = total[here]
    count = count[here]
    mine = (np.isin(items, open_columns(shard)) & gave).astype(Q.dtype)
    rest = count - mine
    there = rest > 0.5
    place = place[there]
    rest = rest[there, None]
    mine = mine[there, None]
    z = (total[there] - mine * Q[place]) / rest
    return place, z, total[there] / count[there, None]


def others_published(settings: FedDMF, shard: Shard, state: Local, down: Catalogue) -> tuple[np.ndarray, np.ndarray]:
    """Find held items that others published vectors of, turned into one's own space where that is asked for."""
    items = np.arange(shard.n_features)
    place, z, _ = _others(shard, state.weights["Q"], items, down.total, down.count, bool(state.published))
    return place, z @ _turn(settings, z, state.weights["Q"][place])


def _turn(settings: FedDMF, theirs: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the orthogonal map that takes their vectors of common items nearest to one's own (Procrustes)."""
    if not settings.rotate or not len(own):
        return np.eye(settings.n_components, dtype=own.dtype)
    left, _, right = np.linalg.svd(theirs.T @ own)
    return (left @ right).astype(own.dtype)


def vectors(settings: FedDMF, shard: Shard, state: Local, items: np.ndarray, sse: Any, n: Any) -> Vectors:
    """Lay out the vectors of the common items that the client holds and shares."""
    weights = state.weights
    held = held_columns(shard)
    kind = weights["Q"].dtype
    mine = np.isin(items, open_columns(shard))
    Q = np.zeros((len(items), settings.n_components), kind)
    Q[mine] = weights["Q"][np.searchsorted(held, items[mine])]
    if settings.share == "items":
        return Vectors(Q, mine.astype(kind), sse=sse, n=n)
    net = {name: shard.n_rows * weights[name] for name in SHARED[settings.share]}
    return Vectors(Q, mine.astype(kind), net, np.float64(shard.n_rows), sse, n)


def publish(shard: Shard, state: Local) -> Published:
    """Lay out the vectors of everything that the client shares, over the whole catalogue."""
    columns = open_columns(shard)
    Q = state.weights["Q"]
    out = np.zeros((shard.n_features, Q.shape[1]), Q.dtype)
    out[columns] = Q[np.searchsorted(held_columns(shard), columns)]
    return Published(out, marks(columns, shard.n_features, Q.dtype))


def back_to_best(state: Local, keep: bool) -> Local:
    """Return to the weights of the best epoch, unless that is the last one."""
    weights = model(state) if keep or state.best is None else state.best
    return replace(state, weights=weights, best=None, mean=None, published=np.bool_(True))


def model(state: Local) -> dict[str, Any]:
    """Return the weights that are judged and published: their running mean, where one is kept."""
    return state.weights if state.mean is None else state.mean


def smoothed(settings: FedDMF, state: Local, index: int) -> Local:
    """Take one more epoch into the running mean; early on the newest weights count most, the first ones being poor."""
    if state.mean is None:
        return state
    new = 1 - min(settings.smooth, index / (index + 9))
    mean = {k: (v + new * (state.weights[k] - v)).astype(v.dtype) for k, v in state.mean.items()}
    return replace(state, mean=mean)


def validate(shard: Shard, state: Local) -> tuple[np.float64, np.float64]:
    """Return the summed squared error on the validation cells, and their number."""
    if not len(state.cells):
        return np.float64(0), np.float64(0)
    rows, places = np.divmod(state.cells, len(held_columns(shard)))
    net = model(state)
    a = dmf.user_part(net, net["P"])
    b = dmf.item_part(net, net["Q"])
    odds = np.exp(-dmf.pair_logits(net, a[rows], b[places]).astype(np.float64))
    return np.float64(((1 / (1 + odds) - state.labels) ** 2).sum()), np.float64(len(rows))


def server_step(settings: FedDMF, state: Server, up: Any, at: Round) -> tuple[Server, Any]:
    """Add up holdings, then vectors epoch by epoch, then what is published."""
    match up:
        case Holdings():
            items = np.flatnonzero(up.count > 1.5)
            kind = up.count.dtype
            total = np.zeros((len(items), settings.n_components), kind)
            count = np.zeros(len(items), kind)
            state = replace(state, items=items, total=total, count=count)
            return state, _anchor(settings, state, -1, False, _layers(settings, str(kind)))
        case Vectors():
            return _after_epoch(settings, state, up, at)
        case Published():
            over = np.bool_(settings.refine == 0)
            return replace(state, published=up.Q, holders=up.count, over=over), Catalogue(up.Q, up.count)
        case Done():
            return replace(state, over=np.bool_(True)), Catalogue(state.published, state.holders)
        case _:
            raise TypeError(f"The server of FedDMF does not know {type(up).__name__}.")


def _after_epoch(settings: FedDMF, state: Server, up: Vectors, at: Round) -> tuple[Server, Any]:
    sent: np.ndarray = up.Q
    counted: np.ndarray = up.count
    fresh = counted > 0.5  # of items whose holders were all away, the last vectors still stand
    total = np.where(fresh[:, None], sent, np.asarray(state.total))
    count = np.where(fresh, counted, np.asarray(state.count))
    loss = float(up.sse) / float(up.n) if up.sse is not None and up.n is not None and float(up.n) > 0 else np.nan
    keep = not loss >= float(state.best)  # no loss to compare: the last epoch is the best one
    waited = 0 if keep else int(state.waited) + 1
    epoch = int(state.epoch) + 1
    state = replace(
        state,
        total=total,
        count=count,
        epoch=np.int64(epoch),
        waited=np.int64(waited),
        loss=np.float64(loss),
        best=np.float64(loss) if keep and loss == loss else state.best,
    )
    if epoch >= settings.epochs or 0 < settings.patience <= waited:
        return state, Publish(np.bool_(keep))
    weight = 1.0 if up.weight is None else max(float(up.weight), 1e-300)
    net = {name: (value / weight).astype(value.dtype) for name, value in (up.net or {}).items()}
    return state, _anchor(settings, state, at.index, keep, net)


def _anchor(settings: FedDMF, state: Server, seen_in: int, keep: bool, net: dict[str, Any]) -> Anchor:
    layers = net if settings.share != "items" else None
    return Anchor(state.items, state.total, state.count, np.int64(seen_in), np.bool_(keep), layers)


def finish(settings: FedDMF, shard: Shard, state: Local, down: Any) -> DeepFactors:
    """Keep own vectors of held items and the others' of all else; without a catalogue, own ones alone."""
    weights = state.weights
    held = held_columns(shard)
    V = np.zeros((shard.n_features, settings.n_components), weights["Q"].dtype)
    known = np.zeros(shard.n_features, bool)
    if isinstance(down, Catalogue):
        place, z, _ = _others(
            shard, weights["Q"], np.arange(shard.n_features), down.total, down.count, bool(state.published)
        )
        known = down.count > 0.5
        mean = down.total[known] / down.count[known, None]
        V[known] = mean @ _turn(settings, z, weights["Q"][place])
    V[held] = weights["Q"]
    known[held] = True
    network = {name: weights[name] for name in dmf.LAYERS}
    return DeepFactors(weights["P"], np.ascontiguousarray(V.T), network=network, known=known)


def score(shard: Shard, factors: DeepFactors) -> Score:
    """Sum the squared error over all cells of held items, a few users at a time."""
    assert factors.network is not None
    held = held_columns(shard)
    Q = np.ascontiguousarray(factors.V[:, held].T)
    sse = total = 0.0
    for start in range(0, shard.n_rows, 256):
        X = shard.X[start : start + 256]
        X = (X.toarray() if hasattr(X, "toarray") else np.asarray(X))[:, held]
        guess = dmf.probabilities(factors.network, factors.U[start : start + 256], Q)
        sse += float(((X - guess) ** 2).sum(dtype=np.float64))
        total += float((X.astype(np.float64) ** 2).sum())
    return Score.of(sse, shard.n_rows * len(held), total)
