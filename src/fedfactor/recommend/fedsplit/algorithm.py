"""FedSPLIT: a recommender from one exchange of item factors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

import numpy as np

from fedfactor.core.algorithm import LocalFactors, Meta, Round, Scatter, Score
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import odd_numbers
from fedfactor.core.errors import ClientUnavailable
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, is_mapping
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import reconstruction
from fedfactor.recommend.fedsplit.client import check_overrides, enough_raters, fit_own, joint_sums
from fedfactor.recommend.fedsplit.joint_nmf import far_off, joint_factors, outliers
from fedfactor.recommend.fedsplit.messages import (
    Basis,
    Begin,
    BiasSums,
    Factors,
    Global,
    JointSums,
    Level,
    Local,
    Means,
    Server,
    Stats,
)
from fedfactor.recommend.fedsplit.server import as_joint, check_stats, doubtful_stats
from fedfactor.recommend.local_cnmf import bilinear, fold_bilinear, fold_users, starting_factors
from fedfactor.recommend.rating_model import FLOOR, item_counts, observed
from fedfactor.recommend.rating_parameters import RatingParts
from fedfactor.recommend.rating_statistics import item_residuals, pooled_item_biases


@declares_settings
class FedSPLIT(RatingParts):
    r"""Clients factor their own ratings, the server factors the stacked item factors, clients take the result home.

    Each client c models :math:`x_{ij} \approx \mu + b_i + c_j + U_i V_j` on its own ratings (see
    :func:`~fedfactor.recommend.local_cnmf.cnmf`). The server stacks the :math:`V_c` and solves
    :math:`\min_{M, V \ge 0} \sum_c \|V_c - M_c^\top V\|^2`; the client distils :math:`U_c M_c^\top`, whose item factors
    are V.

    Notes
    -----
    Two exchanges (three with ``item_bias="count"``): up 2 + 2m numbers and then :math:`k_c m`; down 1 + m and then
    :math:`K(m + k_c) + m`. The number of components reveals that the client has at least three times
    (``rank_rule="paper"``: one more than) as many users. Where we differ from the paper by default: pooled item
    biases, unrated items and those of few raters drawn so that V does not show which they are, lower ranks for small
    clients, bias steps that cannot overshoot, a joint step by coordinate descent, steps at home after distillation;
    :meth:`as_printed` has none of these. Residuals and counts are sums; ``privacy=SecureSum(gathered="clear")`` hides
    them from the server as well.

    References
    ----------
    .. [1] M. E. Eren et al., "One-Shot Federated Group Collaborative Filtering", ICMLA 2022.
       doi:10.1109/ICMLA55696.2022.00107

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).integers(0, 6, (40, 12)).astype(float)
    >>> run = fedfactor.run(FedSPLIT(2), {"a": X[:20], "b": X[20:]}, seed=0)
    >>> run.rounds, run.status, run.V.shape
    (2, 'converged', (4, 12))
    """

    n_components: int = setting("Rank of the joint factors, the paper's K.", at_least=1)
    local_components: int = setting(
        "Rank of an owner's own factors, at most; see ``rank_rule``.", default=6, at_least=1
    )
    rank_rule: Literal["third", "paper"] = setting(
        "An owner of n users takes at most n/3 components, or at most min(n, 21) − 1 as printed. With n − 1 components "
        "for n users the item factors give ratings away.",
        default="third",
    )
    item_bias: Literal["pooled", "count", "mean"] = setting(
        '``"pooled"``: item biases from sums over all owners, before any client factors. ``"count"``: owners\' own '
        'biases, averaged by their numbers of ratings (one more exchange). ``"mean"``: the plain average, as printed. '
        "Numbers of ratings travel only inside sums.",
        default="pooled",
    )
    unrated: Literal["draw", "mean", "keep", "zero"] = setting(
        "What stands for items that an owner has no rating of; see "
        ":func:`~fedfactor.recommend.fedsplit.joint_nmf.fill_unrated`. ``zero``: as eq. 13 of the paper.",
        default="draw",
    )
    masked: bool = setting(
        'Leave unrated items out of the joint step instead. With ``joint="gather"`` this **shows the server which '
        'items each owner\'s users rated**; with ``joint="sum"`` it does not.',
        default=False,
    )
    unit_rows: bool = setting("Send item factors at one scale and keep their sizes at home.", default=True)
    joint: Literal["gather", "sum"] = setting(
        '``"gather"``: item factors travel once and the server sees each owner\'s. ``"sum"``: they stay home and the '
        "joint step runs on sums, ``joint_rounds`` exchanges of them.",
        default="gather",
    )
    joint_rounds: int = setting("Exchanges of the joint step on sums.", default=30, at_least=1)
    refine: int = setting(
        "Steps on U and user biases at home, after the joint factors came; 0 as printed.", default=20, at_least=0
    )
    min_raters: int = setting(
        "Send item factors of items that at least this many users of the owner rated; the others are drawn as if "
        "unrated. Factors of an item that one or two users rated give these ratings away. An owner without such an "
        "item sends no factors, and still receives the joint ones. 1 as printed.",
        default=4,
        at_least=1,
    )
    scale: tuple[float, float] | None = setting(
        "The lowest and the highest rating that all clients agreed on, to which predictions are clipped; by default "
        "the smallest and the largest in ``fit``. When given, levels and residuals that no such ratings can give are "
        "left out, wherever single uploads are seen, and their senders named.",
        default=None,
        because="the lowest and the highest rating",
        shown="(low, high)",
    )
    outlier: float = setting(
        "Leave out owners whose largest entry is this many times the median owner's; only where uploads are seen.",
        default=20.0,
        above=1,
        at_most=math.inf,
    )
    select: Literal["all", "size", "quality"] = setting(
        "Who gives item factors: all; owners of at least ``min_ratings`` ratings; owners whose own model misses a "
        "fifth of their ratings, held out, by at most ``max_error``. Owners decide for themselves; the "
        "others still receive.",
        default="all",
    )
    min_ratings: int = setting('For ``select="size"``.', default=100, at_least=0)
    max_error: float = setting(
        'For ``select="quality"``: a root mean square.', default=1.0, at_least=0, at_most=math.inf
    )
    updates: Literal["stable", "printed"] = setting(
        "Of the owner's own factorization: :func:`~fedfactor.recommend.local_cnmf.cnmf`, or the printed eqs. 10 to 13.",
        default="stable",
    )
    joint_solver: Literal["hals", "multiplicative"] = setting(
        "Of the joint step on gathered factors: coordinate descent, or the printed eqs. 2 and 3.", default="hals"
    )
    iterations: int = setting("Of the owner's own factorization.", default=60, at_least=1)
    overrides: tuple[tuple[Any, tuple[tuple[str, Any], ...]], ...] = setting(
        "An owner's own values of ``local_components``, ``iterations``, and ``start_scale`` to ``by_count``, as tuning "
        "finds them, for its own factorization (``refine`` takes the common ones). They stay with the owner.",
        default=(),
        shown="tuple of (client, ((setting, value), ...))",
    )

    handles_missing: ClassVar[bool] = True

    @classmethod
    def as_printed(cls, n_components: int, **settings: Any) -> FedSPLIT:
        """Return the paper's protocol: eqs. 2, 3 and 10 to 19 and Algorithm 1.

        Other readings: ``updates="stable"`` (Surprise's steps), ``unrated="keep"`` (initial factors stay for unrated
        items; eq. 13 makes them zero), ``by_count=True`` (Surprise's regularization).
        """
        printed: dict[str, Any] = {
            "local_components": 20,
            "rank_rule": "paper",
            "item_bias": "mean",
            "unrated": "zero",
            "refine": 0,
            "unit_rows": False,
            "iterations": 100,
            "min_raters": 1,
            "by_count": False,
            "updates": "printed",
            "joint_solver": "multiplicative",
        }
        return cls(n_components, **{**printed, **settings})

    @property
    def default_rounds(self) -> int:  # type: ignore[override]
        """As many as the protocol has exchanges."""
        return 1 + self._extra + (self.joint_rounds if self.joint == "sum" else 1)

    @property
    def _extra(self) -> int:
        """Return whether item biases take an exchange of their own: they must be summed, and V must not."""
        return int(self.item_bias == "count" or (self.item_bias == "mean" and self.joint == "sum"))

    @property
    def against_noise(self) -> str:
        """Explain that the server distinguishes false sums from true ones by their bounds."""
        return (
            "its server refuses sums that no ratings can give, and sums with noise are such. Use PooledCF without "
            "noise under secure aggregation, or PooledNMF with noise."
        )

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)
        if self.scale is not None and not (len(self.scale) == 2 and self.scale[0] < self.scale[1]):
            raise ValueError(f"scale={self.scale} must be the lowest and the highest rating.")
        check_overrides(self.overrides, meta.clients)
        if self.updates == "printed" and self.item_bias == "pooled":
            raise ValueError("updates='printed' needs item_bias='mean' or 'count': clients move their own biases.")

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Announce only what this configuration sends."""
        m = meta.n_features
        K = self.n_components
        kind = meta.dtype
        most = max([self.local_components, *(dict(own).get("local_components", 1) for _, own in self.overrides)])
        number = Leaf("float64", ())
        row = Leaf(kind, (m,))
        wide = Leaf(kind, (K, m))
        pooled = self.item_bias == "pooled"
        by_sum = self.joint == "sum"
        found: dict[type, Spec] = {
            Begin: {"n_components": Leaf("int64", ())},
            Stats: {"total": number, "weight": number} | ({"residuals": row, "counts": row} if pooled else {}),
            Means: {"mean": number},
            Level: {"mu": number}
            | ({"item": row} if pooled else {})
            | ({"V": wide} if by_sum and not self._extra else {}),
        }
        del found[Stats if self.item_bias == "mean" and not by_sum else Means]
        if self._extra:
            found |= {BiasSums: {"item": row, "weight": row}}
        if by_sum or self._extra:
            found[Basis] = {"mu": number, "item": row, "V": wide}
        if by_sum:
            return found | {JointSums: {"G": Leaf(kind, (K, K)), "N": wide} | ({"D": wide} if self.masked else {})}
        factors = {"V": Leaf(kind, (most, m), exact=False)}
        factors |= {"item": row} if self.item_bias == "mean" else {}
        factors |= {"seen": Leaf("bool", (m,))} if self.masked else {}
        joined = {"mu": number, "item": row, "V": wide, "M": Leaf(kind, (K, most), exact=False)}
        return found | {Factors: factors, Global: joined}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Begin]:
        """Draw a public start for the joint step on sums."""
        m = meta.n_features
        kind = meta.dtype
        V = at.shared_rng("V").random((self.n_components, m)).astype(kind)
        server = Server(
            mu=np.float64(0),
            item=np.zeros(m, kind),
            V=V,
            steps=np.int64(0),
            moved=np.float64(np.inf),
            done=np.bool_(False),
            rejected=np.zeros(meta.n_clients, bool),
            names=np.frombuffer("\0".join(meta.clients).encode(), np.uint8),
        )
        return server, Begin(np.int64(self.n_components))

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw the start of the client's own factors."""
        here = self._here(at.client)
        n = shard.n_rows
        m = meta.n_features
        most = n // 3 if here.rank_rule == "third" else min(n, 21) - 1
        k = max(1, min(here.local_components, most))
        U, V = starting_factors(n, m, k, at.rng("start"), here.start_scale, meta.dtype)
        return Local(
            U=U,
            V=V,
            user=np.zeros(n, meta.dtype),
            item=np.zeros(m, meta.dtype),
            mu=np.float64(0),
            sent=V[:0],
            sent_item=np.zeros(0, meta.dtype),
            M=np.zeros((k, self.n_components), meta.dtype),
            fitted=np.bool_(False),
            chosen=np.bool_(True),
        )

    def client_step(self, shard: Shard, state: Local, down: Any, at: Round) -> tuple[Local, Any]:
        """Answer by what came down: rate levels, then factors (or sums of them)."""
        R = observed(shard.X, shard.mask)
        if isinstance(down, (Begin, Global)):  # after the end there is nothing new
            return state, self._stats(R, state)
        if not bool(state.fitted):
            state = fit_own(self._here(at.client), R, state, down, at)
        if isinstance(down, Level) and self._extra:
            weight = (item_counts(R) if self.item_bias == "count" else np.ones_like(state.item)) * bool(state.chosen)
            return state, BiasSums(state.item * weight, weight)
        if self.joint == "sum":
            return joint_sums(R, state, down.V, masked=self.masked, raters=self.min_raters)
        if not bool(state.chosen):
            raise ClientUnavailable(f"{at.client} keeps its item factors to itself (select={self.select!r}).")
        rated = enough_raters(R, self.min_raters)
        anything = bool(rated.any())  # else there is nothing to draw from, and no row is sent
        return state, Factors(
            V=state.sent[: len(state.sent) * anything],
            item=state.sent_item * anything if self.item_bias == "mean" else None,
            seen=rated if self.masked else None,
        )

    def doubt(self, up: Any) -> str:
        """Look at levels before they are added; factors are compared with those of others, later."""
        if isinstance(up, Means) and self.scale and not self.scale[0] <= float(up.mean) <= self.scale[1]:
            return f"A mean of {float(up.mean):.6g} is outside the scale {self.scale}."
        return doubtful_stats(up, self.scale) if isinstance(up, Stats) else ""

    def accepts(self, down: Any, meta: Meta) -> str:
        """Expect numbers, and the rank that was agreed on; joint factors have any sign and size."""
        return odd_numbers(down, {"n_components": (self.n_components, self.n_components)})

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Any]:
        """Level, then join; a run that goes on after the end repeats what it found."""
        if is_mapping(up):
            ups: dict[str, Any] = dict(up)
            return self._join(state, ups) if isinstance(next(iter(ups.values())), Factors) else self._mean(state, ups)
        if isinstance(up, Stats):
            check_stats(up, self.scale)
            return self._level(state, float(up.total / up.weight) if up.weight > 0 else 0.0, up)
        if isinstance(up, BiasSums):
            item = np.divide(up.item, up.weight, out=np.zeros_like(up.item), where=up.weight > 0)
            server = replace(state, item=item)
            return server, Basis(server.mu, server.item, server.V)
        V = as_joint(state.V, up, sweeps=10)
        moved = np.linalg.norm(V - state.V) / max(float(np.linalg.norm(V)), FLOOR)
        steps = int(state.steps) + 1
        server = replace(
            state, V=V, steps=np.int64(steps), moved=np.float64(moved), done=np.bool_(steps >= self.joint_rounds)
        )
        return server, Basis(server.mu, server.item, V)

    def converged(self, state: Server) -> bool:
        """Return whether the protocol has come to its end."""
        return bool(state.done)

    def report(self, state: Server) -> dict[str, float]:
        """Return how many clients were left out, and how far the joint factors still move."""
        found = {"rejected": float(state.rejected.sum())} if state.rejected.any() else {}
        return found | ({"moved": float(state.moved)} if np.isfinite(state.moved) else {})

    def rejected(self, state: Server) -> tuple[str, ...]:
        """Name the clients whose upload was left out of the joint step."""
        return tuple(np.array(_names(state))[state.rejected].tolist())

    def finish(self, shard: Shard, state: Local, down: Any) -> LocalFactors:
        """Distil the joint factors into the client's own model; without them, keep that model."""
        R = observed(shard.X, shard.mask)
        alone = not isinstance(down, Global) and (self.joint == "gather" or not isinstance(down, Basis))
        if alone and not bool(state.fitted):
            state = fit_own(self, R, state, down, None)
        if alone:
            return LocalFactors(*bilinear(state.U, state.V, state.user, state.item, float(state.mu)))
        M = down.M.T if isinstance(down, Global) else state.M
        V = np.asarray(down.V, state.V.dtype)
        item = np.asarray(down.item, state.V.dtype)
        mu = float(down.mu)
        if M.shape[0] != state.U.shape[1] or not bool(state.fitted) or not bool(state.chosen) or not M.any():
            U, user = fold_users(R, V, item, mu, penalty=self.penalty, iterations=100)
        else:
            U = state.U @ M
            user = state.user
            if self.refine:
                U = np.maximum(U, FLOOR).astype(V.dtype)
                U, user = fold_users(R, V, item, mu, U=U, user=user, penalty=self.penalty, iterations=self.refine)
        return LocalFactors(*bilinear(U, V, user, item, mu))

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U and the bias of new users for fixed item factors."""
        return fold_bilinear(observed(X, mask), factors.V, self.penalty)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Any) -> Score:
        """Measure the error over the ratings."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        return Score.of(*reconstruction(observed(shard.X, shard.mask), factors.U, factors.V, "stored"))

    def _here(self, client: str | None) -> FedSPLIT:
        own = dict(next((own for name, own in self.overrides if str(name) == client), ()))
        return replace(self, **own) if own else self

    def _stats(self, R: Array, state: Local) -> Stats | Means:
        kind = state.V.dtype
        total = float(R.data.sum(dtype=np.float64))
        n = R.nnz
        if self.item_bias == "pooled":
            return Stats(np.float64(total), np.float64(n), item_residuals(R).astype(kind), item_counts(R).astype(kind))
        if self.item_bias == "count":
            return Stats(np.float64(total), np.float64(n))
        mean = np.float64(total / max(n, 1))
        return Means(mean) if self.joint == "gather" else Stats(mean, np.float64(n > 0))

    def _level(self, state: Server, mu: float, up: Stats | None = None) -> tuple[Server, Any]:
        if bool(state.done) or int(state.steps):
            return state, self._last(state)
        item = state.item if up is None or up.counts is None else pooled_item_biases(up.residuals, up.counts)
        server = replace(state, mu=np.float64(mu), item=item)
        by_sum = self.joint == "sum" and not self._extra
        pooled = self.item_bias == "pooled"
        return server, Level(server.mu, item if pooled else None, server.V if by_sum else None)

    def _last(self, state: Server) -> Any:
        if self.joint == "sum":
            return Basis(state.mu, state.item, state.V)
        nothing = np.zeros((self.n_components, 0), state.V.dtype)
        return Scatter({name: Global(state.mu, state.item, state.V, nothing) for name in _names(state)})

    def _mean(self, state: Server, up: dict[str, Means]) -> tuple[Server, Any]:
        """Average the means, less those that are far from all others."""
        means = np.array([float(each.mean) for each in up.values()])
        odd = far_off(means, self.outlier)
        state = replace(state, rejected=state.rejected | np.isin(_names(state), np.array(list(up))[odd]))
        return self._level(state, float(means[~odd].mean()) if (~odd).any() else 0.0)

    def _join(self, state: Server, up: dict[str, Factors]) -> tuple[Server, Any]:
        """Leave out what cannot be item factors, stack the rest, factor it, and cut M apart again."""
        up = {name: each for name, each in up.items() if len(each.V)}  # some have no item of enough raters
        sizes = [np.abs(each.V).max(initial=0.0) if (each.V >= 0).all() else np.inf for each in up.values()]
        bad = outliers(sizes, self.outlier)
        if self.item_bias == "mean":
            bad |= outliers([np.abs(cast("Array", each.item)).max(initial=0.0) for each in up.values()], self.outlier)
        good = {name: each for (name, each), out in zip(up.items(), bad, strict=True) if not out}
        rejected = state.rejected | np.isin(_names(state), np.array(list(up), str)[bad])
        server = replace(state, rejected=rejected, done=np.bool_(True), steps=np.int64(1))
        if not good:  # nothing to join: every client keeps the model of its own ratings
            return server, Level(state.mu, state.item if self.item_bias == "pooled" else None)
        S = np.concatenate([each.V for each in good.values()])
        item = state.item
        mask = None
        if self.masked:
            mask = np.concatenate([np.broadcast_to(cast("Array", each.seen), each.V.shape) for each in good.values()])
        M, V, error = joint_factors(S, self.n_components, mask=mask, solver=self.joint_solver)
        if self.item_bias == "mean":
            item = np.mean([cast("Array", each.item) for each in good.values()], axis=0).astype(V.dtype)
        server = replace(server, V=V, item=item, moved=np.float64(error))
        cuts = np.split(M, np.cumsum([len(each.V) for each in good.values()])[:-1])
        own = {name: np.ascontiguousarray(part.T) for name, part in zip(good, cuts, strict=True)}
        nothing = np.zeros((self.n_components, 0), V.dtype)
        return server, Scatter({name: Global(server.mu, item, V, own.get(name, nothing)) for name in _names(state)})


def _names(state: Server) -> list[str]:
    return state.names.tobytes().decode().split("\0")
