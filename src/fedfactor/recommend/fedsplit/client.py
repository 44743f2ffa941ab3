"""What a client does at home in FedSPLIT: factor its own ratings, and take its part in a joint step on sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Round
from fedfactor.core.errors import ClientUnavailable, DataError
from fedfactor.core.pytree import Array
from fedfactor.linalg.missing_values import masked_sums, solve_rows_masked
from fedfactor.linalg.nnls import solve_rows
from fedfactor.recommend.fedsplit.joint_nmf import fill_unrated, row_rms
from fedfactor.recommend.fedsplit.messages import JointSums, Local
from fedfactor.recommend.local_cnmf import RatingPenalty, cnmf
from fedfactor.recommend.printed_cnmf import printed_cnmf
from fedfactor.recommend.rating_model import item_counts
from fedfactor.recommend.rating_statistics import own_error

__all__ = ["check_overrides", "enough_raters", "fit_own", "joint_sums"]

OWN = ("local_components", "iterations", "start_scale", *RatingPenalty._fields)
"""What a client may set for itself: all else is part of what clients agreed on."""


def check_overrides(overrides: tuple[Any, ...], clients: Sequence[str]) -> None:
    """Refuse settings of strangers, and settings that are no client's own affair."""
    for name, own in overrides:
        if str(name) not in clients:
            raise DataError(f"overrides names {str(name)!r}, which is no client of this federation.")
        foreign = [setting for setting in dict(own) if setting not in OWN]
        if foreign:
            raise ValueError(f"overrides of {name} sets {foreign[0]!r}. An owner may set {', '.join(OWN)}.")
        RatingPenalty(
            **{setting: value for setting, value in dict(own).items() if setting in RatingPenalty._fields}
        ).check()


def fit_own(settings: Any, R: Array, state: Local, down: Any, at: Round | None) -> Local:
    """Factor own ratings, and prepare what is sent of it (nothing, when `at` is None)."""
    mu = float(getattr(down, "mu", R.data.mean() if R.nnz else 0.0))
    given = getattr(down, "item", None) if settings.item_bias == "pooled" else None
    start = state.item if given is None else np.asarray(given, state.V.dtype)
    options = {"penalty": settings.penalty, "iterations": settings.iterations}
    if settings.updates == "printed":
        model = printed_cnmf(R, state.U, state.V, mu, **options)
        if settings.unrated == "keep":
            model = model._replace(V=np.where(item_counts(R) > 0, model.V, state.V))
    else:
        model = cnmf(R, state.U, state.V, mu, item=start, item_steps=given is None, **options)
    if at is not None and not (np.isfinite(model.V).all() and np.isfinite(model.item).all()):
        raise ClientUnavailable(f"{at.client} diverged on its own ratings and sends nothing.")
    U = model.U
    V = model.V
    sent = model.V
    item = model.item
    if at is not None and not settings.masked:
        sent = _cover(settings, R, V, at.rng("unrated"))
        item = _cover(settings, R, item[None], at.rng("unrated bias"))[0]
    if settings.unit_rows:
        size = row_rms(sent)
        U = U * size.T
        V = V / size
        sent = sent / size
    if at is not None and settings.masked:  # what the mask leaves out is not read, and so need not be shown
        rated = enough_raters(R, settings.min_raters)
        sent = sent * rated
        item = item * rated
    chosen = at is None or _gives(settings, R, mu, start, len(V), at)
    return replace(
        state,
        U=U,
        V=V,
        user=model.user,
        item=model.item,
        mu=np.float64(mu),
        sent=sent,
        sent_item=item,
        fitted=np.bool_(True),
        chosen=np.bool_(chosen),
    )


def _cover(settings: Any, R: Array, V: Array, rng: np.random.Generator) -> np.ndarray:
    """Replace the factors of items of too few raters; ``unrated="keep"`` concerns items without raters only."""
    rated = enough_raters(R, settings.min_raters)
    if settings.unrated == "zero":
        return np.where(rated, V, 0).astype(V.dtype)
    if settings.unrated != "keep":
        return fill_unrated(V, rated, settings.unrated, rng)
    return np.where(item_counts(R) > 0, fill_unrated(V, rated, "draw", rng), V)


def _gives(settings: Any, R: Array, mu: float, item: Array, k: int, at: Round) -> bool:
    """Return whether this client gives its item factors; it alone looks at what decides that."""
    if settings.select == "size":
        return R.nnz >= settings.min_ratings
    if settings.select == "quality":
        error = own_error(R, mu, item, k, settings.penalty, settings.iterations, at.rng("select"))
        return error <= settings.max_error
    return True


def enough_raters(R: Array, least: int) -> np.ndarray:
    """Mark the items that at least so many users rated."""
    return item_counts(R) >= least


def joint_sums(R: Array, state: Local, V: Array, *, masked: bool, raters: int) -> tuple[Local, JointSums]:
    """Fit own M to the joint V and send what the next V depends on: never the item factors themselves."""
    S = state.sent
    V = np.asarray(V, state.sent.dtype)
    rated = enough_raters(R, raters)
    if not bool(state.chosen) or not rated.any():  # zeros: in a sum it stays hidden which client gave nothing
        zero = np.zeros_like(V)
        return state, JointSums(np.zeros((len(V), len(V)), V.dtype), zero, zero if masked else None)
    if not masked:
        M = solve_rows(state.M, V @ V.T, S @ V.T, sweeps=5)
        return replace(state, M=M), JointSums(M.T @ M, M.T @ S)
    mask = np.broadcast_to(rated, S.shape)
    M = solve_rows_masked(state.M, S, mask, V, sweeps=5)
    N, D, _ = masked_sums(M, S, mask, V)
    return replace(state, M=M), JointSums(M.T @ M, N, D)
