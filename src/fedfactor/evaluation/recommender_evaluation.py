"""How good a fitted recommender is on ratings it has not seen: errors, lists, and both client by client."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from fedfactor.core.errors import DataError
from fedfactor.evaluation.metrics.ranking import RankingScores, ranking_scores
from fedfactor.evaluation.metrics.ratings import mae, rmse
from fedfactor.recommend.ratings import compared_columns
from fedfactor.recommend.user_table import UnknownWarning

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures of a recommender on held-out ratings.

    Attributes
    ----------
    rmse, mae : float or None
        Errors of predicted ratings; None for signs of interest.
    ranking : RankingScores or None
        Of lists of n, over users who liked a held-out item; None where there is no such user.
    by_owner : dict of str to Evaluation
        The same for each client.
    n_ratings, n_unknown : int
        Ratings that were compared, and those of users or items that were not in ``fit``.
    liked : float or None
        Ratings from this on counted as liked; None: all that are not zero.
    """

    rmse: float | None
    mae: float | None
    ranking: RankingScores | None
    by_owner: dict[str, Evaluation]
    n_ratings: int
    n_unknown: int
    liked: float | None = None


def evaluate(model: Any, ratings: Any, *, n: int = 10, liked: float | None = None) -> Evaluation:
    """Compare a fitted recommender with ratings that were not in ``fit``.

    Parameters
    ----------
    model : recommender
        Fitted.
    ratings : data frame
        Held out: users, items and (unless they are signs of interest) ratings. :func:`fedfactor.data.leave_last_out`
        makes such a frame by time.
    n : int
        Length of the lists.
    liked : float, optional
        Ratings from this on count as liked, for the lists. By default the upper two fifths of the scale (4 of 1 to 5),
        for every model alike where the frame holds ratings (3 to 11 different values); else all that are not zero.
        ``Evaluation.liked`` is the value that was used: lists can be compared only where it agrees.

    Returns
    -------
    Evaluation
        Users and items that were not in ``fit`` count in the errors, predicted from averages, and not in the lists.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedfactor import PooledCF
    >>> from fedfactor.testing.checks_for_recommenders import small_ratings
    >>> frame = pd.DataFrame(small_ratings())
    >>> model = PooledCF(n_components=2, random_state=0).fit(frame[::2], groups="owner")
    >>> found = evaluate(model, frame[1::2], n=3)
    >>> found.rmse >= found.mae, sorted(found.by_owner)
    (True, ['east', 'north', 'west'])
    """
    check_is_fitted(model)
    users, items, stars = compared_columns(ratings, "evaluate", need_rating=False)
    users = np.asarray(users)
    items = np.asarray(items)
    explicit = model.scale_ is not None
    if explicit and stars is None:
        raise DataError("This model predicts ratings, but the frame has no column of them.")
    if liked is None and explicit:
        liked = _upper_part(*model.scale_)
    elif liked is None and stars is not None and _FEWEST_LEVELS <= len(np.unique(stars)) <= _MOST_LEVELS:
        liked = _upper_part(float(np.min(stars)), float(np.max(stars)))
    likes = np.ones(len(users), bool) if stars is None else stars >= liked if liked is not None else stars > 0
    homes = model.tables_.by_owner(users.tolist(), None, strangers=True)
    parts = {name: _one(model, name, np.array(where), users, items, stars, likes, n) for name, where in homes.items()}
    joined = _joined(parts, explicit, {name: found["evaluation"] for name, found in parts.items()})
    return replace(joined, liked=liked)


# of ratings; fewer are yes and no, more are counts
_FEWEST_LEVELS = 3
_MOST_LEVELS = 11


def _upper_part(low: float, high: float) -> float:
    """Return where the upper two fifths of a scale begin."""
    return low + 0.6 * (high - low) + 1e-9


def _one(model: Any, name: str, where: Any, users: Any, items: Any, stars: Any, likes: Any, n: int) -> dict[str, Any]:
    table = model.tables_[name]
    rows, columns = table.places(users[where], items[where])
    known = (rows >= 0) & (columns >= 0)
    found: dict[str, Any] = {"unknown": int((~known).sum()), "n": len(where), "m": len(table.items)}
    if model.scale_ is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnknownWarning)
            found["pairs"] = (stars[where], table.at_or_average(rows, columns))
    good = known & likes[where]
    who = np.unique(rows[good])
    places: np.ndarray = np.searchsorted(who, np.asarray(rows[good]))
    found["liked"] = sparse.csr_array(
        (np.ones(places.size), (places, columns[good])),
        shape=(len(who), len(table.items)),
    )
    found["lists"] = np.zeros((0, n), np.int64)
    if len(who):
        best, scores = table.best(who, min(n, len(table.items)))
        found["lists"] = np.where(np.isfinite(scores), best, -1)
    found["evaluation"] = _joined({name: found}, model.scale_ is not None, {})
    return found


def _joined(parts: dict[str, dict[str, Any]], explicit: bool, by_owner: dict[str, Evaluation]) -> Evaluation:
    errors: tuple[float | None, float | None] = (None, None)
    if explicit:
        true, guess = (np.concatenate([found["pairs"][side] for found in parts.values()]) for side in (0, 1))
        errors = (rmse(true, guess), mae(true, guess))
    some = [found for found in parts.values() if len(found["lists"])]
    ranking = None
    if some:
        lists = np.concatenate([found["lists"] for found in some])
        ranking = ranking_scores(lists, sparse.csr_array(sparse.vstack([found["liked"] for found in some])))
    total, unknown = (sum(found[word] for found in parts.values()) for word in ("n", "unknown"))
    return Evaluation(*errors, ranking, by_owner, total, unknown)
